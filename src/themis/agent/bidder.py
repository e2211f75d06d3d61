"""An app's answer to an offer: what every useful placement would do to its time.

    bid = Bidder(spec).bid(standing, offer, topology)

Rows come in two families: gangs anywhere, per locality level and GPU count; and gangs pinned to the
machines where jobs run already, which need no restart, with more on top.

Where jobs differ in the GPUs they can use, gangs are as wide as the widest of them, and there is no
row on which some job could never run, even if another one could: GPUs are bid for as if they were
binding to the end, and the app would never get there.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

from themis.agent.assignment import Need, longest_first
from themis.agent.clock import Clock, Outlook
from themis.agent.rates import Runs
from themis.fairness.rho import restart_time
from themis.model import (
    CLUSTER,
    LEVELS,
    MACHINE,
    SLOT,
    AppSpec,
    Bid,
    Chunk,
    GpuId,
    JobId,
    Offer,
    Row,
    Seat,
    TableRow,
    Topology,
    level_of,
)

Widths = tuple[int, int, int, int]
"""The most GPUs found together at each level."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where an app stands when it is asked."""

    needs: tuple[Need, ...]
    """Jobs of this phase with work left, by its own belief."""
    later: tuple[tuple[Need, ...], ...]
    """The phases to come: copies of a typical job, whose names do not matter."""
    running: Mapping[JobId, tuple[GpuId, ...]]


@dataclass(frozen=True, slots=True)
class _Gang:
    """One running job's GPUs that may be kept."""

    chunks: tuple[Chunk, ...]
    level: int
    count: int
    widest: int
    """The most GPUs that its job can use."""


@dataclass(frozen=True, slots=True)
class _Wants:
    """What the jobs of this phase can use."""

    smallest: int
    """The smallest gang of any job."""
    widest: int
    """The most GPUs of any job."""
    demand: int
    """The most GPUs of all jobs."""
    limits: tuple[tuple[int, int], ...]
    """The fewest and the most GPUs of each kind of job."""

    @staticmethod
    def of(needs: Sequence[Need]) -> "_Wants":
        limits = sorted({(need.spec.min_gpus, need.spec.max_gpus) for need in needs})
        return _Wants(
            limits[0][0],
            max(high for _, high in limits),
            sum(need.spec.max_gpus for need in needs),
            tuple(limits),
        )

    @property
    def levels(self) -> tuple[int, ...]:
        """The levels at which rows differ: single GPUs are the same wherever they are."""
        return LEVELS if self.widest > 1 else (CLUSTER,)

    def counts(self, width: int, most: int) -> list[int]:
        """GPU counts worth a row where at most `width` are found together."""
        if len(self.limits) == 1:
            return ladder(self.smallest, min(self.widest, width), most)
        rungs = (ladder(low, min(high, width), most) for low, high in self.limits)
        return sorted({count for rung in rungs for count in rung})


class Bidder:
    """Bids for one app. Knows its declared jobs; everything else comes with the question.

    What it has worked out it keeps for the next question, as far as nothing has changed.
    """

    def __init__(self, spec: AppSpec, *, restart_in_bids: bool = True, sticky: bool = True) -> None:
        self._spec = spec
        self._restart_in_bids = restart_in_bids
        self._sticky = sticky
        self._memory: _Memory | None = None

    def bid(self, standing: Standing, offer: Offer, topology: Topology) -> Bid:
        """Rows for this offer, and the general valuation."""
        needs = standing.needs
        if not needs:
            return Bid(self._spec.id)
        memory = self._remember(standing, topology)
        question = (offer.gpus, offer.kept, offer.expiring, standing.running)
        if memory.question != question:
            rows = self._rows(standing, offer, topology, memory)
            memory.question, memory.bid = question, Bid(self._spec.id, rows, memory.table)
        return memory.bid

    def _remember(self, standing: Standing, topology: Topology) -> "_Memory":
        """What does not depend on the offer: as last time if the same work is left."""
        needs, later = standing.needs, standing.later
        before = self._memory
        if before is not None and before.topology is topology and before.later is later:
            if before.needs == needs:
                return before
            outlook, widths = before.outlook, before.widths
        else:
            outlook, widths = Outlook(later), _widths(topology.seats)
        wants = _Wants.of(needs)
        clock = Clock((needs,), outlook)
        table = _table(clock, wants, widths)
        self._memory = _Memory(
            needs, later, topology, widths, wants, outlook, clock, table, None, Bid(self._spec.id)
        )
        return self._memory

    def _rows(
        self, standing: Standing, offer: Offer, topology: Topology, memory: "_Memory"
    ) -> tuple[Row, ...]:
        wants, clock = memory.wants, memory.clock
        room = min(len(offer.gpus), wants.demand - len(offer.kept))
        if room < 1:
            return ()
        seats = topology.seats
        widths = _widths([seats[gpu] for gpu in offer.gpus])
        kept = self._gangs(standing, offer.kept, topology, pinned=False)
        loose = len(offer.kept) - sum(gang.count for gang in kept)
        base = [(gang.level, gang.count) for gang in kept]
        base += [(SLOT, 1)] * max(0, loose)
        own = self._gangs(standing, offer.expiring, topology, pinned=True)
        rows = _Rows()
        for pins in _prefixes(own if self._sticky else []):
            more = room - sum(gang.count for gang in pins)
            if more < 0:
                continue
            pinned = [chunk for gang in pins for chunk in gang.chunks]
            if wants.widest == 1:
                pinned = _by_machine(pinned)
            held = Held([*base, *((gang.level, gang.count) for gang in pins)])
            leaving = sum(gang.widest for gang in own[len(pins) :])
            rows.begin(tuple(pinned), room - more)
            if pins:
                rows.add((), 0, CLUSTER, clock.seconds_on(held.runs()))
            for level in wants.levels:
                size = min(wants.widest, widths[level])
                for count in wants.counts(widths[level], more):
                    seconds = clock.seconds_on(held.runs(level, size, count))
                    if self._restart_in_bids:
                        seconds += self._restart(held.gpus, count, leaving)
                    apart = level if size > 1 and count > 1 else CLUSTER
                    rows.add(_chunks(level, size, count), count, apart, seconds)
        return rows.thinned_out()

    def _restart(self, held: int, new: int, leaving: int) -> float:
        """Delay of the new gangs; jobs that leave where they run write a checkpoint first.

        A gang may come as several chunks, so such jobs are counted by the GPUs they can use.
        """
        moved = min(new, leaving)
        start, save = self._spec.restart_seconds, self._spec.checkpoint_seconds
        changes = ((moved, save + start), (new - moved, start))
        return restart_time(changes, held + new)

    def _gangs(
        self, standing: Standing, gpus: Iterable[GpuId], topology: Topology, *, pinned: bool
    ) -> list[_Gang]:
        """Running jobs whose GPUs are all among these, the longest first."""
        among = frozenset(gpus)
        running = standing.running
        gangs: list[_Gang] = []
        if not among:
            return gangs
        for need in longest_first([need for need in standing.needs if need.spec.id in running]):
            held = running[need.spec.id]
            if held and among.issuperset(held):
                seats = [topology.seats[gpu] for gpu in held]
                pins = _pins(seats) if pinned else ()
                gangs.append(_Gang(pins, level_of(seats), len(held), need.spec.max_gpus))
        return gangs


@dataclass(slots=True)
class _Memory:
    """What a bidder worked out, and from what."""

    needs: tuple[Need, ...]
    later: tuple[tuple[Need, ...], ...]
    topology: Topology
    widths: Widths
    wants: _Wants
    outlook: Outlook
    clock: Clock
    table: tuple[TableRow, ...]
    question: object
    """What of the last offer, and of where jobs ran, its rows depend on."""
    bid: Bid


def _table(clock: Clock, wants: _Wants, widths: Widths) -> tuple[TableRow, ...]:
    """Seconds for counts of GPUs in gangs at each level, without restarts."""
    most = min(wants.demand, widths[CLUSTER])
    rows = []
    for level in wants.levels:
        size = min(wants.widest, widths[level])
        for count, runs in _table_shapes(level, wants.smallest, size, most):
            seconds = clock.seconds_on(runs)
            if seconds < math.inf:
                rows.append(TableRow(level, count, seconds))
    return tuple(rows)


@lru_cache(maxsize=256)
def _table_shapes(level: int, low: int, size: int, most: int) -> tuple[tuple[int, Runs], ...]:
    """The counts of a valuation at one level, and their shapes."""
    nothing = Held(())
    return tuple(
        (count, nothing.runs(level, size, count)) for count in table_counts(low, size, most)
    )


def ladder(low: int, size: int, most: int) -> list[int]:
    """GPU counts worth a row: doublings within a gang, doublings of gangs, and all there is."""
    if most < low:
        return []
    counts = {most}
    count = low
    while count < min(size, most):
        counts.add(count)
        count *= 2
    count = size
    while low <= count < most:
        counts.add(count)
        count *= 2
    return sorted(counts)


def table_counts(low: int, size: int, most: int) -> list[int]:
    """GPU counts of a valuation: every part of a gang, every number of gangs, and all there is.

    The arbiter values GPUs that match no row by the next smaller one, so that whatever lies
    between two rows is worth nothing to it: from 32 on, rows are within 1/32 of each other.
    """
    if most < low:
        return []
    counts = {most}
    count = low
    while count < min(size, most):
        counts.add(count)
        count += max(1, count // 32)
    gangs = 1
    while gangs * size < most:
        if gangs * size >= low:
            counts.add(gangs * size)
        gangs += max(1, gangs // 32)
    return sorted(counts)


class Held:
    """GPUs that an app has in any case, to which others are added."""

    def __init__(self, chunks: Iterable[tuple[int, int]]) -> None:
        self._singles = 0
        self._gangs: dict[tuple[int, int], int] = {}
        self.gpus = 0
        for level, count in chunks:
            self.gpus += count
            if count == 1 or level == CLUSTER:
                self._singles += count
            else:
                self._gangs[level, count] = self._gangs.get((level, count), 0) + 1

    def runs(self, level: int = SLOT, size: int = 1, count: int = 0) -> Runs:
        """The shape with so many more in gangs of a size at a level.

        In one spelling, with single GPUs as one chunk that may be spread anywhere.
        """
        singles, gangs = self._singles, self._gangs
        if size == 1 or level == CLUSTER:
            singles += count
        else:
            gangs = dict(gangs)
            whole, rest = divmod(count, size)
            if whole:
                gangs[level, size] = gangs.get((level, size), 0) + whole
            if rest > 1:
                gangs[level, rest] = gangs.get((level, rest), 0) + 1
            else:
                singles += rest
        runs = [(level, size, many) for (level, size), many in gangs.items()]
        if len(runs) > 1:
            runs.sort()
        if singles:
            runs.append((CLUSTER, singles, 1))
        return tuple(runs)


@lru_cache(maxsize=4096)
def _chunks(level: int, size: int, count: int) -> tuple[Chunk, ...]:
    if size == 1:
        # Any so many GPUs will do: one chunk, which solvers like better than many.
        return (Chunk(CLUSTER if count > 1 else SLOT, count),)
    whole, rest = divmod(count, size)
    chunks = [Chunk(level, size)] * whole
    if rest:
        chunks.append(Chunk(level if rest > 1 else SLOT, rest))
    return tuple(chunks)


def _by_machine(pins: Iterable[Chunk]) -> list[Chunk]:
    """Pinned single GPUs, those of a machine together."""
    counts: dict[int | None, int] = {}
    for chunk in pins:
        counts[chunk.machine] = counts.get(chunk.machine, 0) + chunk.count
    return [
        Chunk(MACHINE if count > 1 else SLOT, count, machine) for machine, count in counts.items()
    ]


def _pins(seats: Sequence[Seat]) -> tuple[Chunk, ...]:
    """One running gang as chunks on the machines where it is."""
    by_machine: dict[int, list[Seat]] = {}
    for seat in seats:
        by_machine.setdefault(seat.machine, []).append(seat)
    return tuple(
        Chunk(min(level_of(group), MACHINE), len(group), machine)
        for machine, group in sorted(by_machine.items())
    )


def _prefixes(gangs: Sequence[_Gang]) -> Iterable[Sequence[_Gang]]:
    """None of the gangs, then 1, 2, 4, ... and all of them."""
    yield ()
    count = 1
    while count < len(gangs):
        yield gangs[:count]
        count *= 2
    if gangs:
        yield gangs


def _widths(seats: Sequence[Seat]) -> Widths:
    """The most GPUs found together at each level."""
    if not seats:
        return (1, 1, 1, 1)
    racks, machines, slots, _ = zip(*seats, strict=True)
    slot, machine, rack = (max(Counter(place).values()) for place in (slots, machines, racks))
    return (slot, machine, rack, len(seats))


class _Rows:
    """Rows of a bid as they come, by what is pinned."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, float, list[float], Row]] = []
        self._best: list[float] = []
        self._pinned: tuple[Chunk, ...] = ()
        self._held = 0

    def begin(self, pinned: tuple[Chunk, ...], gpus: int) -> None:
        """From here on, rows have these chunks, so many GPUs, pinned."""
        self._pinned = pinned
        self._held = gpus
        self._best = [math.inf] * (CLUSTER + 1)

    def add(self, extra: tuple[Chunk, ...], count: int, level: int, seconds: float) -> None:
        """One row: so many more GPUs, in gangs no farther apart than this level."""
        if seconds < math.inf:
            row = Row(self._pinned + extra, seconds)
            self._rows.append((self._held + count, -level, seconds, self._best, row))

    def thinned_out(self) -> tuple[Row, ...]:
        """Without rows that another one with the same pins beats.

        Which has no more GPUs, is no closer together and no slower.
        """
        kept: list[Row] = []
        # Fewer GPUs first, and among equals the least demanding level first: none before is larger.
        self._rows.sort(key=itemgetter(0, 1, 2))
        for _, minus_level, seconds, best, row in self._rows:
            # `best` has for each level the least seconds of rows that are no more demanding.
            if best[-minus_level] > seconds:
                for level in range(-minus_level + 1):
                    best[level] = min(best[level], seconds)
                kept.append(row)
        return tuple(kept)
