"""The audit: what nodes measure of iteration times, against what the app says of them.

    audit = Audit(spec)
    audit.start(JobId("j0"), MACHINE, 4)                          # a process runs on these GPUs
    audit.measure(JobId("j0"), 900.0, 300.0, tolerance=0.25)      # True: surely contradicted
    audit.serial_factor, audit.level_factors                      # what to believe instead

An app claims its serial iteration time and its slowdowns, by its declaration or by a bid. Every
sample of a job on `count` GPUs at a level gives count * seconds / iterations, which should be the
claimed serial time times the claimed slowdown. A cumulative sum of log likelihood ratios in either
direction decides: claims that are right within the tolerance raise a false alarm in at most one of
1 / `FALSE_ALARMS` samples, whatever they are (docs/decisions/0032).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from themis.core.model import (
    LEVELS,
    MACHINE,
    SLOT,
    AppSpec,
    Bid,
    JobId,
    Row,
    RowTable,
    Slowdown,
    TableRow,
)

Cell = tuple[int, int]
"""A locality level and a number of GPUs."""

Factors = tuple[float, float, float, float]
"""One for each level."""

NOISE = 0.1
"""Standard deviation of the logarithm of one sample that the test allows for."""
SHIFT = 0.1
"""How far beyond the tolerance (in the logarithm) a claim is when it is called contradicted."""
FALSE_ALARMS = 1e-4
"""Of samples of claims that are just within the tolerance."""
LEAST_SAMPLES = 3
"""No fewer decide: one may have met a stall."""
SURE = 2.0
"""How many standard errors below the measured mean an iteration time is surely above."""
CLIP = 0.5
"""The most (in the logarithm) that one sample says of small errors: it may have met a stall."""
MOST_IN_SLOT = 0.1
"""So much (in the logarithm) a claimed slowdown of gangs within a slot explains, and no more."""
STEP = 0.02
"""Smaller changes of what is believed are not worth a new valuation."""
LEAST_ITERATIONS = 20.0
"""The fewest samples that count as evidence."""

_MOST = 1e100
"""A ratio of times beyond any that means something: hostile samples are no numbers otherwise."""
_ALARM = -math.log(FALSE_ALARMS)
_CONTRADICTED = _ALARM * (1 - 1e-9)
_MOST_OF_ONE = _ALARM / LEAST_SAMPLES
_LIKELIER = SHIFT / NOISE**2
"""What a normal sample with mean `allowed` + SHIFT is likelier by than with `allowed`."""
_NOTHING_WRONG: Factors = (1.0, 1.0, 1.0, 1.0)


@dataclass(slots=True)
class AuditedProcess:
    """The last process of a job."""

    cell: Cell
    scale: float
    """Seconds per iteration times this is 1 if everything is as declared."""
    seen: float
    """The iterations of the job's last sample."""
    mixed: bool
    """Whether the next sample also covers an earlier process."""
    iterations: float = 0.0
    seconds: float = 0.0


@dataclass(slots=True)
class Evidence:
    """What was seen in one cell: logarithms of measured over declared."""

    total: float = 0.0
    samples: int = 0
    slower: float = 0.0
    faster: float = 0.0
    """Cumulative sums: how much likelier it is that the claim is wrong in this direction."""
    contradicted: bool = False
    clipped: float = 0.0
    """As `total`, but no sample counts for more than `CLIP`."""

    @property
    def mean(self) -> float:
        """Of the logarithms."""
        return self.total / self.samples

    def add(self, found: float, claimed: float, allowed: float) -> bool:
        """Take one sample; whether the claim is contradicted now and was not before."""
        self.total += found
        self.clipped += max(-CLIP, min(found, CLIP))
        self.samples += 1
        beyond = abs(found - claimed) - allowed - SHIFT / 2
        up, down = (beyond, -SHIFT) if found > claimed else (-SHIFT, beyond)
        self.slower = max(0.0, self.slower + min(_MOST_OF_ONE, _LIKELIER * up))
        self.faster = max(0.0, self.faster + min(_MOST_OF_ONE, _LIKELIER * down))
        if self.contradicted or max(self.slower, self.faster) < _CONTRADICTED:
            return False
        self.contradicted = True
        return True


@dataclass(frozen=True, slots=True)
class AuditPart:
    """What was measured of an app's iteration times."""

    claimed: Slowdown | None
    processes: tuple[tuple[JobId, AuditedProcess], ...]
    evidence: tuple[tuple[Cell, Evidence], ...]
    alarms: int
    serial_factor: float
    level_factors: Factors
    estimated: bool = False
    found: float = 0.0
    slower: float = 0.0
    charged: float = 1.0


class Audit:
    """The audit of one app. It believes whatever was not measured."""

    def __init__(self, spec: AppSpec) -> None:
        self._jobs = {job.id: job for job in spec.jobs}
        self._declared = spec.jobs[0].slowdown
        self._claimed: Slowdown | None = None
        self._processes: dict[JobId, AuditedProcess] = {}
        self._evidence: dict[Cell, Evidence] = {}
        self.alarms = 0
        """How often a claim was called contradicted."""
        self.serial_factor = 1.0
        """What the declared iteration times are to be multiplied by."""
        self.level_factors = _NOTHING_WRONG
        """What seconds at each level are to be multiplied by."""
        self.estimated = spec.estimated
        """Whether the declared iteration times are a guess, and nothing was measured yet."""
        self._charged = 1.0
        """The factor by which it was longer than declared at the last `charge`."""
        self._slower = 0.0
        """The logarithm of how much longer iterations in a slot surely take than declared."""
        self._found = 0.0
        """Of times that were a guess: the logarithm of what was found over it, declared since."""

    def start(self, job: JobId, level: int, count: int) -> None:
        """A process of a job runs on this many GPUs, at this locality level."""
        spec = self._jobs.get(job)
        if spec is None or count < 1:
            return
        before = self._processes.get(job)
        declared = spec.slowdown.at(level, count)
        self._processes[job] = AuditedProcess(
            (level if count > 1 else SLOT, count),
            count / (spec.serial_iteration_time * math.exp(self._found)) / declared,
            0.0 if before is None else before.seen,
            # Where nothing else is known the first sample, which has the start-up in it, is none.
            mixed=before is not None or self.estimated,
        )

    def measure(self, job: JobId, iterations: float, seconds: float, tolerance: float) -> bool:
        """Take a sample; whether something else is to be believed from now on."""
        process = self._processes.get(job)
        if process is None:
            return False
        gained, process.seen = iterations - process.seen, iterations
        if process.mixed or gained <= 0.0 or seconds <= 0.0:
            process.mixed = False
            return False
        process.iterations += gained
        process.seconds += seconds
        if process.iterations < LEAST_ITERATIONS:
            return False
        ratio = process.scale * process.seconds / process.iterations
        found = math.log(min(max(ratio, 1.0 / _MOST), _MOST))
        process.iterations = process.seconds = 0.0
        if self.estimated:
            self._find(found)
            return True
        if not tolerance:
            return False
        cell = process.cell
        evidence = self._evidence.get(cell)
        if evidence is None:
            evidence = self._evidence[cell] = Evidence()
        allowed = math.log1p(tolerance)
        slower = self._surely_slower() if cell[0] == SLOT else self._slower
        contradicted = evidence.add(found, self._claim(cell), allowed)
        if contradicted or (slower > allowed and not evidence.contradicted):
            evidence.contradicted = True
            self.alarms += 1
        elif abs(slower - self._slower) <= STEP:
            return False
        self._conclude()
        return True

    def charge(self, tolerance: float) -> float:
        """The share of its work that it kept quiet about, if that is more than is tolerated.

        Zero otherwise, and if it was told before: only so much more again counts anew, lest noise
        is charged for twice.
        """
        longer, before = self.serial_factor / math.exp(self._found), self._charged
        if longer <= before * (1.0 + tolerance):
            return 0.0
        self._charged = longer
        return 1.0 - before / longer

    def _find(self, found: float) -> None:
        """Take what the first iterations took for what was declared: from now on it is fixed."""
        self.estimated = False
        self._found = found
        for process in self._processes.values():
            process.scale /= math.exp(found)
        self._conclude()

    def hear(self, profile: Slowdown | None, tolerance: float) -> bool:
        """Take the slowdowns of a fresh bid; whether something else is to be believed now.

        Claims that fit what was measured are believed again: agents learn.
        """
        if profile == self._claimed:
            return False
        self._claimed = profile
        allowed = math.log1p(tolerance)
        for cell, evidence in self._evidence.items():
            if abs(evidence.mean - self._claim(cell)) <= allowed:
                evidence.contradicted = False
                evidence.slower = evidence.faster = 0.0
        before = (self.serial_factor, self.level_factors)
        self._conclude()
        return before != (self.serial_factor, self.level_factors)

    def part(self) -> AuditPart:
        """Write it down."""
        return AuditPart(
            self._claimed,
            tuple((job, replace(process)) for job, process in self._processes.items()),
            tuple((cell, replace(evidence)) for cell, evidence in self._evidence.items()),
            self.alarms,
            self.serial_factor,
            self.level_factors,
            self.estimated,
            self._found,
            self._slower,
            self._charged,
        )

    def take_back(self, part: AuditPart) -> None:
        """Become what was written down."""
        self._claimed = part.claimed
        self._processes = {job: replace(process) for job, process in part.processes}
        self._evidence = {cell: replace(evidence) for cell, evidence in part.evidence}
        self.alarms = part.alarms
        self.serial_factor = part.serial_factor
        self.level_factors = part.level_factors
        self.estimated = part.estimated
        self._found = part.found
        self._slower = part.slower
        self._charged = part.charged

    def _claim(self, cell: Cell) -> float:
        """Logarithm of the claimed over the declared slowdown."""
        if self._claimed is None:
            return 0.0
        return math.log(self._claimed.at(*cell) / self._declared.at(*cell))

    def _serial(self, cell: Cell) -> float:
        """Logarithm of what the serial time must be multiplied by to explain what was measured."""
        declared = math.log(self._declared.at(*cell))
        found = self._evidence[cell].mean + declared
        claimed = max(0.0, self._claim(cell) + declared)
        return found - claimed if found > claimed else min(0.0, found)

    def _surely_slower(self) -> float:
        """Logarithm of how much longer iterations take than declared, at least, by what slots say.

        In a slot there is hardly a slowdown that could explain it. Zero while it may be chance.
        """
        total, samples = 0.0, 0
        for cell, seen in self._evidence.items():
            if cell[0] == SLOT:
                explained = min(max(0.0, self._claim(cell)), MOST_IN_SLOT)
                total += seen.clipped - explained * seen.samples
                samples += seen.samples
        if samples < LEAST_SAMPLES:
            return 0.0
        return max(0.0, total / samples - SURE * NOISE / math.sqrt(samples))

    def _conclude(self) -> None:
        """Find what would make the claims fit what was measured.

        Within a machine a gang is about as fast as its GPUs, so that one which is slower than it
        said, or faster than no slowdown at all, has another serial time, and at least what slots
        surely say. Everything else is put down to slowdowns: who overstated one must not come by a
        shorter serial time, for then it would look small. Who is wrong about one
        level is taken to be so about the others on the same side of a machine's border, as long as
        nothing was measured there.
        """
        wrong = sorted(cell for cell, seen in self._evidence.items() if seen.contradicted)
        within = [cell for cell in wrong if cell[0] <= MACHINE]
        self._slower = self._surely_slower()
        serial = _mean(map(self._serial, within))
        if serial >= 0.0:
            # A slowdown that was overstated and is contradicted takes no work away.
            serial = max(serial, self._slower)
        by_level: dict[int, list[float]] = {}
        for cell in wrong:
            rest = self._evidence[cell].mean - self._claim(cell) - serial
            by_level.setdefault(cell[0], []).append(rest)
        known = {level: _mean(rests) for level, rests in by_level.items()}
        trusted = {cell[0] for cell, seen in self._evidence.items() if not seen.contradicted}

        def factor(level: int) -> float:
            if level in known:
                return math.exp(known[level])
            side = [value for at, value in known.items() if (at <= MACHINE) == (level <= MACHINE)]
            return 1.0 if level in trusted else math.exp(_mean(side))

        self.serial_factor = math.exp(self._found + serial)
        slot, machine, rack, cluster = map(factor, LEVELS)
        self.level_factors = (slot, machine, rack, cluster)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found) if found else 0.0


def corrected_table(
    table: Sequence[TableRow], factors: Factors, scale: float = 1.0
) -> Sequence[TableRow]:
    """A valuation with all its seconds multiplied by `scale`, those of gangs also by their level's.

    Single GPUs are nowhere slower.
    """
    if factors == _NOTHING_WRONG and scale == 1.0:
        return table
    given = RowTable.of(table)
    rows = zip(given.shape.rows, given.seconds, strict=True)
    return RowTable(
        given.shape,
        tuple(
            [
                seconds * scale * (factors[level] if count > 1 else 1.0)
                for (level, count), seconds in rows
            ]
        ),
    )


def corrected_bid(bid: Bid, factors: Factors, scale: float = 1.0) -> Bid:
    """The same for the rows of a bid, by the worst level that each of them puts up with."""
    if factors == _NOTHING_WRONG and scale == 1.0:
        return bid
    rows = tuple(Row(row.chunks, row.seconds * scale * _factor(row, factors)) for row in bid.rows)
    return replace(bid, rows=rows, table=corrected_table(bid.table, factors, scale))


def _factor(row: Row, factors: Factors) -> float:
    levels = [chunk.level for chunk in row.chunks if chunk.count > 1]
    return factors[max(levels)] if levels else 1.0
