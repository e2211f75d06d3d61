"""What the jobs of an app really do on their GPUs: slowdowns learned from measured iterations.

    profiler = Profiler(app.jobs)
    profiler.observe(JobId("j0"), RACK, 4, first=300.0, iterations=120.0, seconds=60.0)
    profiler.learned(job)          # the job with what was measured in place of its prior

Each measurement gives GPUs x seconds per iteration / declared serial time, the slowdown if the
declared time is right. On one GPU S is 1 by definition: what is measured there corrects the serial
time instead, and divides all slowdowns. Jobs of one app with the same declared profile and
`max_gpus` train one model and learn together. docs/concepts/profiler.md has the reasons.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import median, median_high

from themis.core.model import LEVELS, SLOT, JobId, JobSpec, MeasuredSlowdown, Slowdown
from themis.core.model.ids import check_count, check_number

Cell = tuple[int, int]
"""A locality level and a number of GPUs."""

ONE_GPU: Cell = (SLOT, 1)

LEAST_RATIO, MOST_RATIO = 1e-2, 1e4
"""What is outside is no slowdown but a mistake, such as a process that was suspended.

The quotient of two of them is within what a `Slowdown` takes.
"""


@dataclass(frozen=True, slots=True)
class EvidenceRule:
    """How much evidence a slowdown needs."""

    warm_up: float = 10.0
    """Iterations after each start of a process that tell nothing."""
    least_iterations: float = 20.0
    """Nothing is believed on fewer."""
    least_windows: int = 3
    """Nor on fewer measurements: one may have met a stall, the median of three has not."""
    memory: int = 32
    """Measurements kept for each number of GPUs at a level; older ones are forgotten."""
    step: float = 0.02
    """A change by a smaller share is noise, and not worth valuing everything anew."""

    def __post_init__(self) -> None:
        check_number("warm_up", self.warm_up)
        check_number("least_iterations", self.least_iterations)
        check_count("least_windows", self.least_windows, high=10**6)
        check_count("memory", self.memory, low=self.least_windows, high=10**6)
        check_number("step", self.step, high=1.0)


@dataclass(slots=True)
class _Measurements:
    """What was measured with this many GPUs at a level."""

    ratios: deque[float]
    iterations: float = 0.0


@dataclass(slots=True)
class _Kind:
    """Jobs that train one model: what was declared, seen and is believed of it."""

    declared: Slowdown
    seen: dict[Cell, _Measurements] = field(default_factory=dict)
    believed: dict[Cell, float] = field(default_factory=dict)
    """Ratios to the declared serial time."""
    base: float = 1.0
    """Of a declared serial time that is a guess: what it has to be multiplied by."""
    profile: Slowdown | None = None

    @property
    def serial_factor(self) -> float:
        """What the declared serial time has to be multiplied by."""
        return self.believed.get(ONE_GPU, self.base)


class Profiler:
    """Learns for the jobs of one app. What it cannot use it ignores."""

    def __init__(
        self, jobs: Iterable[JobSpec], rule: EvidenceRule | None = None, *, estimated: bool = False
    ) -> None:
        """Begin.

        Args:
            jobs: As declared.
            rule: How much evidence a slowdown needs.
            estimated: Whether their iteration times are a guess. Then the first that are measured
                count as declared, whatever they are measured on.
        """
        self._rule = rule or EvidenceRule()
        self._estimated = estimated
        self._declared = {job.id: job for job in jobs}
        kinds: dict[tuple[Slowdown, int], _Kind] = {}
        self._kinds = {
            name: kinds.setdefault((job.slowdown, job.max_gpus), _Kind(job.slowdown))
            for name, job in self._declared.items()
        }

    def observe(
        self,
        job: JobId,
        level: int,
        count: int,
        *,
        first: float,
        iterations: float,
        seconds: float,
    ) -> bool:
        """Take one measurement.

        Args:
            job: Whose process it was.
            level: How far apart its GPUs are.
            count: How many they are.
            first: Iterations that this process had done before; the first ones do not count.
            iterations: Done in the window measured.
            seconds: Of training in that window, without start-up and checkpoints.

        Returns:
            Whether what is believed has changed.
        """
        spec = self._declared.get(job)
        # Written so that what is not a number fails.
        if spec is None or level not in LEVELS or count < 1 or not first >= self._rule.warm_up:
            return False
        if not (0.0 < iterations < math.inf and 0.0 < seconds < math.inf):
            return False
        ratio = count * seconds / iterations / spec.serial_iteration_time
        kind = self._kinds[job]
        guess = self._estimated and not kind.believed
        if not guess and not LEAST_RATIO <= ratio / kind.base <= MOST_RATIO:
            return False
        return self._add(kind, (level, count) if count > 1 else ONE_GPU, ratio, iterations)

    def learned(self, spec: JobSpec) -> JobSpec:
        """A job as declared, with what is believed now in place of its slowdown and serial time.

        Its GPUs may differ from those declared, as they do from phase to phase.
        """
        kind = self._kinds.get(spec.id)
        if kind is None or not kind.believed:
            return spec
        if kind.profile is None:
            kind.profile = _profile(kind)
        serial = spec.serial_iteration_time * kind.serial_factor
        return replace(spec, serial_iteration_time=serial, slowdown=kind.profile)

    def estimated(self, job: JobId) -> bool:
        """Whether nothing measured backs the job's times yet, only what was declared."""
        kind = self._kinds.get(job)
        return kind is None or not kind.believed

    def _add(self, kind: _Kind, cell: Cell, ratio: float, iterations: float) -> bool:
        rule = self._rule
        seen = kind.seen.setdefault(cell, _Measurements(deque(maxlen=rule.memory)))
        seen.ratios.append(ratio)
        seen.iterations += iterations
        if len(seen.ratios) < rule.least_windows or seen.iterations < rule.least_iterations:
            return False
        value, before = median(seen.ratios), kind.believed.get(cell)
        if before is not None and abs(value - before) <= rule.step * before:
            return False
        if self._estimated and not kind.believed:
            kind.base = value / kind.declared.at(*cell)
        kind.believed[cell] = value
        kind.profile = None
        return True


def _profile(kind: _Kind) -> Slowdown:
    """The declared profile with every cell that is believed, and levels that fit them."""
    serial = kind.serial_factor
    cells = {cell: value / serial for cell, value in kind.believed.items() if cell != ONE_GPU}
    measured = tuple(MeasuredSlowdown(*cell, value) for cell, value in sorted(cells.items()))
    return Slowdown(_levels(kind.declared.levels, cells), measured)


def _levels(
    prior: tuple[float, float, float, float], cells: dict[Cell, float]
) -> tuple[float, float, float, float]:
    """What counts without data take: from other counts at their level, else from other levels.

    These are estimates, so they are at least one, and GPUs that are farther apart are not thought
    faster than what was seen nearer, nor nearer ones slower than what was seen farther: else an
    app that finds one level slow would hurry to a worse one of which it knows nothing.
    """
    seen: dict[int, float] = {}
    for level in LEVELS:
        values = [value for (where, _), value in sorted(cells.items()) if where == level]
        if values:
            seen[level] = max(1.0, median_high(values))

    def estimate(level: int) -> float:
        if level in seen:
            return seen[level]
        nearer = max((value for where, value in seen.items() if where < level), default=1.0)
        farther = min((value for where, value in seen.items() if where > level), default=math.inf)
        return min(max(prior[level], nearer), max(farther, nearer))

    slot, machine, rack, cluster = map(estimate, LEVELS)
    return (slot, machine, rack, cluster)
