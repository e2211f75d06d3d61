"""An app's answer to an offer: what every useful placement would do to its time.

    bid = Bidder(spec).bid(standing, offer, topology)

Rows come in two families: gangs anywhere, per locality level and GPU count; and gangs pinned to the
machines where jobs run already, which need no restart, with more on top.

Where jobs differ in the GPUs they can use, gangs are as wide as the widest of them, and there is no
row on which some job could never run, even if another one could: GPUs are bid for as if they were
binding to the end, and the app would never get there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from themis.agent.assignment import Need, longest_first
from themis.agent.carving import Shape
from themis.agent.clock import Clock
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
    """Bids for one app. Knows its declared jobs; everything else comes with the question."""

    def __init__(self, spec: AppSpec, *, restart_in_bids: bool = True, sticky: bool = True) -> None:
        self._spec = spec
        self._restart_in_bids = restart_in_bids
        self._sticky = sticky

    def bid(self, standing: Standing, offer: Offer, topology: Topology) -> Bid:
        """Rows for this offer, and the general valuation."""
        needs = standing.needs
        if not needs:
            return Bid(self._spec.id)
        wants = _Wants.of(needs)
        clock = Clock((needs, *standing.later))
        table = self._table(clock, wants, topology)
        rows = self._rows(standing, offer, topology, clock, wants)
        return Bid(self._spec.id, rows, table)

    def _table(self, clock: Clock, wants: _Wants, topology: Topology) -> tuple[TableRow, ...]:
        """Seconds for counts of GPUs in gangs at each level, without restarts."""
        widths = _widths(topology.seats)
        most = min(wants.demand, len(topology.seats))
        rows = []
        for level in wants.levels:
            size = min(wants.widest, widths[level])
            for count in table_counts(wants.smallest, size, most):
                seconds = clock.seconds(_shape(level, size, count))
                if seconds < float("inf"):
                    rows.append(TableRow(level, count, seconds))
        return tuple(rows)

    def _rows(
        self,
        standing: Standing,
        offer: Offer,
        topology: Topology,
        clock: Clock,
        wants: _Wants,
    ) -> tuple[Row, ...]:
        seats = topology.seats
        room = min(len(offer.gpus), wants.demand - len(offer.kept))
        if room < 1:
            return ()
        widths = _widths([seats[gpu] for gpu in offer.gpus])
        kept = self._gangs(standing, frozenset(offer.kept), topology, pinned=False)
        loose = len(offer.kept) - sum(gang.count for gang in kept)
        base = [(gang.level, gang.count) for gang in kept]
        base += [(SLOT, 1)] * max(0, loose)
        own = self._gangs(standing, frozenset(offer.expiring), topology, pinned=True)
        rows = []
        for pins in _prefixes(own if self._sticky else []):
            pinned = [chunk for gang in pins for chunk in gang.chunks]
            if wants.widest == 1:
                pinned = _by_machine(pinned)
            held = [*base, *((gang.level, gang.count) for gang in pins)]
            more = room - sum(gang.count for gang in pins)
            if more < 0:
                continue
            leaving = sum(gang.widest for gang in own[len(pins) :])
            if pins:
                rows.append(self._row(pinned, held, (), leaving, clock))
            for level in wants.levels:
                size = min(wants.widest, widths[level])
                for count in wants.counts(widths[level], more):
                    extra = _chunks(level, size, count)
                    rows.append(self._row(pinned, held, extra, leaving, clock))
        return thin_out(rows)

    def _row(
        self,
        pinned: Sequence[Chunk],
        held: Sequence[tuple[int, int]],
        extra: Sequence[Chunk],
        leaving: int,
        clock: Clock,
    ) -> Row:
        shape = _together((*held, *[(chunk.level, chunk.count) for chunk in extra]))
        seconds = clock.seconds(shape)
        if self._restart_in_bids:
            seconds += self._restart(held, extra, leaving)
        return Row((*pinned, *extra), seconds)

    def _restart(
        self, held: Sequence[tuple[int, int]], extra: Sequence[Chunk], leaving: int
    ) -> float:
        """Delay of the new gangs; jobs that leave where they run write a checkpoint first.

        A gang may come as several chunks, so such jobs are counted by the GPUs they can use.
        """
        new = sum(chunk.count for chunk in extra)
        moved = min(new, leaving)
        start, save = self._spec.restart_seconds, self._spec.checkpoint_seconds
        changes = ((moved, save + start), (new - moved, start))
        return restart_time(changes, sum(count for _, count in held) + new)

    def _gangs(
        self, standing: Standing, among: frozenset[GpuId], topology: Topology, *, pinned: bool
    ) -> list[_Gang]:
        """Running jobs whose GPUs are all among these, the longest first."""
        gangs = []
        for need in longest_first(standing.needs):
            gpus = standing.running.get(need.spec.id, ())
            if gpus and all(gpu in among for gpu in gpus):
                seats = [topology.seats[gpu] for gpu in gpus]
                pins = _pins(seats) if pinned else ()
                gangs.append(_Gang(pins, level_of(seats), len(gpus), need.spec.max_gpus))
        return gangs


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


def _shape(level: int, size: int, count: int) -> Shape:
    return _together([(chunk.level, chunk.count) for chunk in _chunks(level, size, count)])


def _together(chunks: Iterable[tuple[int, int]]) -> Shape:
    """A shape in one spelling, with single GPUs as one chunk that may be spread anywhere."""
    singles = 0
    gangs = []
    for level, count in chunks:
        if count == 1 or level == CLUSTER:
            singles += count
        else:
            gangs.append((level, count))
    gangs.sort()
    if singles:
        gangs.append((CLUSTER, singles))
    return tuple(gangs)


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


def _widths(seats: Iterable[Seat]) -> tuple[int, int, int, int]:
    """The most GPUs found together at each level."""
    slots: dict[int, int] = {}
    machines: dict[int, int] = {}
    racks: dict[int, int] = {}
    total = 0
    for seat in seats:
        slots[seat.slot] = slots.get(seat.slot, 0) + 1
        machines[seat.machine] = machines.get(seat.machine, 0) + 1
        racks[seat.rack] = racks.get(seat.rack, 0) + 1
        total += 1
    return (
        max(slots.values(), default=1),
        max(machines.values(), default=1),
        max(racks.values(), default=1),
        max(1, total),
    )


def thin_out(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Drop rows that another one with the same pins beats: no more GPUs, no closer, no slower."""
    kept: list[Row] = []
    best: dict[tuple[Chunk, ...], list[tuple[int, float]]] = {}
    # Fewer GPUs first, and among equals the least demanding level first: none before is larger.
    for row in sorted(rows, key=lambda row: (row.gpus, -_level(row), row.seconds)):
        if row.seconds == float("inf"):
            continue
        pins = tuple(chunk for chunk in row.chunks if chunk.machine is not None)
        level = _level(row)
        before = best.setdefault(pins, [])
        if not any(other >= level and seconds <= row.seconds for other, seconds in before):
            before.append((level, row.seconds))
            kept.append(row)
    return tuple(kept)


def _level(row: Row) -> int:
    loose = [chunk.level for chunk in row.chunks if chunk.machine is None and chunk.count > 1]
    return max(loose, default=CLUSTER)
