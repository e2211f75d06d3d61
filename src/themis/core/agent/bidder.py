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

from themis.core.agent.job_assignment import JobNeed, longest_first
from themis.core.agent.remaining_time import Clock, Outlook, are_alike
from themis.core.agent.row_drafts import Draft, HeldGpus, best_rows, by_machine, chunks_of, pins_of
from themis.core.agent.training_rates import Shapes
from themis.core.fairness.rho import restart_time
from themis.core.model import (
    CLUSTER,
    LEVELS,
    SLOT,
    AppSpec,
    Bid,
    Chunk,
    GpuId,
    GpuPosition,
    JobId,
    JobSpec,
    Offer,
    RowTable,
    Slowdown,
    TableRow,
    TableShape,
    Topology,
    level_of,
)
from themis.core.model.tables import shape_of

Widths = tuple[int, int, int, int]
"""The most GPUs found together at each level."""


@dataclass(frozen=True, slots=True)
class BidContext:
    """Where an app stands when it is asked."""

    needs: tuple[JobNeed, ...]
    """Jobs of this phase with work left, by its own belief."""
    later: tuple[tuple[JobNeed, ...], ...]
    """The phases to come: copies of a typical job, whose names do not matter."""
    running: Mapping[JobId, tuple[GpuId, ...]]


@dataclass(frozen=True, slots=True)
class _KeptGang:
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
    alike: bool
    """Whether they differ in nothing that a rate depends on."""

    @staticmethod
    def of(specs: Sequence[JobSpec]) -> "_Wants":
        limits = sorted({(spec.min_gpus, spec.max_gpus) for spec in specs})
        return _Wants(
            limits[0][0],
            max([high for _, high in limits]),
            sum([spec.max_gpus for spec in specs]),
            tuple(limits),
            are_alike(specs),
        )

    @property
    def levels(self) -> tuple[int, ...]:
        """The levels at which rows differ."""
        return levels_that_differ(self.widest)

    def counts(self, width: int, most: int) -> list[int]:
        """GPU counts worth a row where at most `width` are found together."""
        if len(self.limits) == 1:
            return ladder(self.smallest, min(self.widest, width), most)
        rungs = (ladder(low, min(high, width), most) for low, high in self.limits)
        return sorted({count for rung in rungs for count in rung})


class AppBidder:
    """Bids for one app. Knows its declared jobs; everything else comes with the question.

    What it has worked out it keeps for the next question, as far as nothing has changed.
    """

    def __init__(self, spec: AppSpec, *, restart_in_bids: bool = True, sticky: bool = True) -> None:
        self._spec = spec
        self._restart_in_bids = restart_in_bids
        self._sticky = sticky
        self._declared = {job.id: job.slowdown for job in spec.jobs}
        self._save, self._start = spec.checkpoint_seconds, spec.restart_seconds
        self._memory: _Memory | None = None

    def believe(self, checkpoint: float, restart: float) -> None:
        """Count with these seconds to save, and to train again after a start, from now on."""
        self._save, self._start = checkpoint, restart
        if self._memory is not None:
            self._memory.question = None

    def bid(self, standing: BidContext, offer: Offer, topology: Topology) -> Bid:
        """Rows for this offer, and the general valuation."""
        needs = standing.needs
        if not needs:
            return Bid(self._spec.id)
        memory = self._remember(standing, topology)
        question = (offer.gpus, offer.kept, offer.expiring, standing.running)
        if memory.bid is None or memory.question != question:
            drafts = self._drafts(standing, offer, topology, memory.wants)
            wanted = [draft.runs for draft in drafts]
            if memory.bid is None:
                memory.clock.prepare_column(memory.valued.shapes, wanted)
                table: Sequence[TableRow] = memory.valued.table(memory.clock)
            else:
                table = memory.bid.table
            memory.question = question
            rows = best_rows(drafts, memory.clock.seconds_on(wanted))
            memory.bid = Bid(self._spec.id, rows, table, self._profile(needs))
        return memory.bid

    def _profile(self, needs: Sequence[JobNeed]) -> Slowdown | None:
        """What slowdowns the bid assumes, if they are not those declared.

        The jobs of an app train one model as a rule: the first one speaks for all.
        """
        assumed = needs[0].spec
        declared = self._declared.get(assumed.id)
        return None if assumed.slowdown == declared else assumed.slowdown

    def _remember(self, standing: BidContext, topology: Topology) -> "_Memory":
        """What does not depend on the offer: as last time if the same work is left."""
        needs, later = standing.needs, standing.later
        before = self._memory
        specs = [need.spec for need in needs]
        if before is not None and before.topology is topology and before.later is later:
            if before.needs == needs:
                return before
            outlook, widths = before.outlook, before.widths
        else:
            before = None
            outlook, widths = Outlook(later), _widths(topology.seats)
        if before is not None and before.specs == specs:
            wants, valued = before.wants, before.valued
        else:
            wants = _Wants.of(specs)
            valued = _valued(wants.smallest, wants.widest, wants.demand, widths)
        clock = Clock((needs,), outlook, alike=wants.alike)
        self._memory = _Memory(needs, later, topology, widths, specs, wants, valued, outlook, clock)
        return self._memory

    def _drafts(
        self, standing: BidContext, offer: Offer, topology: Topology, wants: _Wants
    ) -> list[Draft]:
        """All rows, without what they are worth."""
        room = min(len(offer.gpus), wants.demand - len(offer.kept))
        if room < 1:
            return []
        seats = topology.seats
        widths = _widths([seats[gpu] for gpu in offer.gpus])
        kept = self._gangs(standing, offer.kept, topology, pinned=False)
        loose = len(offer.kept) - sum(gang.count for gang in kept)
        base = [(gang.level, gang.count) for gang in kept]
        base += [(SLOT, 1)] * max(0, loose)
        own = self._gangs(standing, offer.expiring, topology, pinned=True)
        drafts: list[Draft] = []
        for pins in _prefixes(own if self._sticky else []):
            taken = sum(gang.count for gang in pins)
            if taken > room:
                continue
            pinned = [chunk for gang in pins for chunk in gang.chunks]
            if wants.widest == 1:
                pinned = by_machine(pinned)
            held = HeldGpus([*base, *((gang.level, gang.count) for gang in pins)])
            leaving = sum(gang.widest for gang in own[len(pins) :])
            chosen = tuple(pinned)
            if pins:
                drafts.append(Draft(taken, chosen, (), taken, CLUSTER, held.runs(), 0.0))
            for level in wants.levels:
                size = min(wants.widest, widths[level])
                apart = level if size > 1 else CLUSTER
                drafts += [
                    Draft(
                        taken,
                        chosen,
                        chunks_of(level, size, count),
                        taken + count,
                        apart if count > 1 else CLUSTER,
                        held.runs(level, size, count),
                        self._restart(held.gpus, count, leaving),
                    )
                    for count in wants.counts(widths[level], room - taken)
                ]
        return drafts

    def _restart(self, held: int, new: int, leaving: int) -> float:
        """Delay of the new gangs; jobs that leave where they run write a checkpoint first.

        A gang may come as several chunks, so such jobs are counted by the GPUs they can use.
        """
        if not self._restart_in_bids:
            return 0.0
        moved = min(new, leaving)
        start, save = self._start, self._save
        changes = ((moved, save + start), (new - moved, start))
        return restart_time(changes, held + new)

    def _gangs(
        self, standing: BidContext, gpus: Iterable[GpuId], topology: Topology, *, pinned: bool
    ) -> list[_KeptGang]:
        """Running jobs whose GPUs are all among these, the longest first."""
        among = frozenset(gpus)
        running = standing.running
        gangs: list[_KeptGang] = []
        if not among:
            return gangs
        for need in longest_first([need for need in standing.needs if need.spec.id in running]):
            held = running[need.spec.id]
            if held and among.issuperset(held):
                seats = [topology.seats[gpu] for gpu in held]
                pins = pins_of(seats) if pinned else ()
                gangs.append(_KeptGang(pins, level_of(seats), len(held), need.spec.max_gpus))
        return gangs


@dataclass(slots=True)
class _Memory:
    """What a bidder worked out, and from what."""

    needs: tuple[JobNeed, ...]
    later: tuple[tuple[JobNeed, ...], ...]
    topology: Topology
    widths: Widths
    specs: list[JobSpec]
    """Of the jobs with work left."""
    wants: _Wants
    valued: "_Valued"
    outlook: Outlook
    clock: Clock
    question: object = None
    """What of the last offer, and of where jobs ran, the bid depends on."""
    bid: Bid | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Valued:
    """What a valuation has rows for."""

    rows: TableShape
    shapes: Shapes
    """What the app would have with each row."""

    def table(self, clock: Clock) -> RowTable:
        """Seconds for counts of GPUs in gangs at each level, without restarts."""
        seconds = clock.column(self.shapes)
        if max(seconds, default=0.0) < math.inf:
            return RowTable(self.rows, tuple(seconds))
        pairs = zip(self.rows.rows, seconds, strict=True)
        return RowTable.of([TableRow(*row, took) for row, took in pairs if took < math.inf])


@lru_cache(maxsize=256)
def _valued(low: int, widest: int, demand: int, widths: Widths) -> _Valued:
    """The levels and counts of a valuation, and their shapes."""
    nothing = HeldGpus(())
    most = min(demand, widths[CLUSTER])
    rows = [
        (level, count, nothing.runs(level, size, count))
        for level in levels_that_differ(widest)
        for size in (min(widest, widths[level]),)
        for count in table_counts(low, size, most)
    ]
    return _Valued(
        shape_of(tuple([(level, count) for level, count, _ in rows])),
        Shapes(tuple([runs for _, _, runs in rows])),
    )


def levels_that_differ(widest: int) -> tuple[int, ...]:
    """The levels that matter to gangs so wide: single GPUs are the same wherever they are."""
    return LEVELS if widest > 1 else (CLUSTER,)


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


def _prefixes(gangs: Sequence[_KeptGang]) -> Iterable[Sequence[_KeptGang]]:
    """None of the gangs, then 1, 2, 4, ... and all of them."""
    yield ()
    count = 1
    while count < len(gangs):
        yield gangs[:count]
        count *= 2
    if gangs:
        yield gangs


def _widths(seats: Sequence[GpuPosition]) -> Widths:
    """The most GPUs found together at each level."""
    if not seats:
        return (1, 1, 1, 1)
    racks, machines, slots, _ = zip(*seats, strict=True)
    slot, machine, rack = (max(Counter(place).values()) for place in (slots, machines, racks))
    return (slot, machine, rack, len(seats))
