"""An app's answer to an offer: what every useful placement would do to its time.

    bid = Bidder(spec).bid(standing, offer, topology)

Rows come in two families: gangs anywhere, per locality level and GPU count; and gangs pinned to the
machines where jobs run already, which need no restart, with more on top.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from themis.agent.assignment import Need
from themis.agent.carving import Shape, shape_rates
from themis.fairness.loads import PhaseLoad, longest_job, phase_work
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
    JobSpec,
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
    later: tuple[PhaseLoad, ...]
    """The phases to come."""
    running: Mapping[JobId, tuple[GpuId, ...]]


@dataclass(frozen=True, slots=True)
class _Gang:
    """One running job's GPUs that may be kept."""

    chunks: tuple[Chunk, ...]
    level: int
    count: int


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
        typical = _typical(needs)
        clock = _Clock(needs, standing.later, typical)
        table = self._table(clock, typical, topology, len(topology.seats))
        rows = self._rows(standing, offer, topology, clock, typical)
        return Bid(self._spec.id, rows, table)

    def _table(
        self, clock: "_Clock", typical: JobSpec, topology: Topology, most: int
    ) -> tuple[TableRow, ...]:
        """Seconds for counts of GPUs in gangs at each level, without restarts."""
        widths = _widths(topology.seats)
        rows = []
        for level in LEVELS:
            size = min(typical.max_gpus, widths[level])
            for count in table_counts(typical.min_gpus, size, min(clock.demand, most)):
                seconds = clock.seconds(_shape(level, size, count))
                if seconds < float("inf"):
                    rows.append(TableRow(level, count, seconds))
        return tuple(rows)

    def _rows(
        self,
        standing: Standing,
        offer: Offer,
        topology: Topology,
        clock: "_Clock",
        typical: JobSpec,
    ) -> tuple[Row, ...]:
        seats = topology.seats
        room = min(len(offer.gpus), clock.demand - len(offer.kept))
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
            held = [*base, *((gang.level, gang.count) for gang in pins)]
            more = room - sum(gang.count for gang in pins)
            if more < 0:
                continue
            if pins:
                rows.append(self._row(pinned, held, (), len(own) - len(pins), standing, clock))
            for level in LEVELS:
                size = min(typical.max_gpus, widths[level])
                for count in ladder(typical.min_gpus, size, more):
                    extra = _chunks(level, size, count)
                    rows.append(
                        self._row(pinned, held, extra, len(own) - len(pins), standing, clock)
                    )
        return thin_out(rows)

    def _row(
        self,
        pinned: Sequence[Chunk],
        held: Sequence[tuple[int, int]],
        extra: Sequence[Chunk],
        moved: int,
        standing: Standing,
        clock: "_Clock",
    ) -> Row:
        shape = tuple(sorted((*held, *((chunk.level, chunk.count) for chunk in extra))))
        seconds = clock.seconds(shape)
        if self._restart_in_bids:
            seconds += self._restart(held, extra, moved, clock.width)
        return Row((*pinned, *extra), seconds)

    def _restart(
        self, held: Sequence[tuple[int, int]], extra: Sequence[Chunk], moved: int, width: int
    ) -> float:
        """Delay of the new gangs, spread over all GPUs; the first `moved` write a checkpoint."""
        new = sum(chunk.count for chunk in extra)
        total = sum(count for _, count in held) + new
        # A gang may come as several chunks, so jobs are counted by what one of them can use.
        leaving = min(new, moved * width)
        cost = new * self._spec.restart_seconds + leaving * self._spec.checkpoint_seconds
        return cost / total if total else 0.0

    def _gangs(
        self, standing: Standing, among: frozenset[GpuId], topology: Topology, *, pinned: bool
    ) -> list[_Gang]:
        """Running jobs whose GPUs are all among these, the longest first."""
        gangs = []
        for need in sorted(standing.needs, key=lambda need: (-need.work, need.spec.id)):
            gpus = standing.running.get(need.spec.id, ())
            if gpus and all(gpu in among for gpu in gpus):
                seats = [topology.seats[gpu] for gpu in gpus]
                gangs.append(_Gang(_pins(seats) if pinned else (), level_of(seats), len(gpus)))
        return gangs


class _Clock:
    """Seconds still needed on a shape of GPUs: this phase as it stands, then those to come."""

    def __init__(self, needs: Sequence[Need], later: Sequence[PhaseLoad], typical: JobSpec) -> None:
        self._typical = typical
        self.demand = sum(need.spec.max_gpus for need in needs)
        self.width = typical.max_gpus
        now = (len(needs), sum(need.work for need in needs), max(need.work for need in needs))
        self._phases = [
            (*now, typical.min_gpus, typical.max_gpus),
            *(
                (
                    len(phase),
                    phase_work(phase),
                    max(load.work for load in phase),
                    phase[0].min_gpus,
                    phase[0].max_gpus,
                )
                for phase in later
                if longest_job(phase) > 0.0
            ),
        ]
        self._known: dict[Shape, float] = {}

    def seconds(self, shape: Shape) -> float:
        """The sum over phases of max(W / sum of rates, longest job / best rate)."""
        known = self._known.get(shape)
        if known is not None:
            return known
        total = 0.0
        for jobs, work, longest, low, high in self._phases:
            speed, best = shape_rates(shape, jobs, low, high, self._typical.slowdown)
            if speed <= 0.0 or best <= 0.0:
                total = float("inf")
                break
            total += max(work / speed, longest / best)
        self._known[shape] = total
        return total


def _typical(needs: Sequence[Need]) -> JobSpec:
    """The job that stands for all: they are alike as a rule; the longest decides otherwise."""
    return max(needs, key=lambda need: (need.work, need.spec.id)).spec


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
    return tuple(sorted((chunk.level, chunk.count) for chunk in _chunks(level, size, count)))


def _chunks(level: int, size: int, count: int) -> tuple[Chunk, ...]:
    whole, rest = divmod(count, size)
    chunks = [Chunk(level if size > 1 else SLOT, size)] * whole
    if rest:
        chunks.append(Chunk(level if rest > 1 else SLOT, rest))
    return tuple(chunks)


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
    best: dict[tuple[Chunk, ...], list[tuple[int, int, float]]] = {}
    # Fewer GPUs first, and among equals the least demanding level first.
    for row in sorted(rows, key=lambda row: (row.gpus, -_level(row), row.seconds)):
        if row.seconds == float("inf"):
            continue
        pins = tuple(chunk for chunk in row.chunks if chunk.machine is not None)
        level = _level(row)
        beaten = any(
            count <= row.gpus and other >= level and seconds <= row.seconds
            for count, other, seconds in best.get(pins, ())
        )
        if not beaten:
            best.setdefault(pins, []).append((row.gpus, level, row.seconds))
            kept.append(row)
    return tuple(kept)


def _level(row: Row) -> int:
    loose = [chunk.level for chunk in row.chunks if chunk.machine is None and chunk.count > 1]
    return max(loose, default=CLUSTER)
