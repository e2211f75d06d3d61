"""A problem in the one form all solvers work on.

Machines sorted by number and bidders by app, so that the order of messages cannot decide; rows
that cannot matter removed; gains computed once.
"""

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from themis.core.auction.problem import Bidder, OfferedMachine, Problem
from themis.core.auction.solvers.dominance import Counts, counted, useful_shapes
from themis.core.model import CLUSTER, MACHINE, SLOT, Chunk

MANY_ROWS = 2_000
"""In all, from which on comparing them takes a noticeable part of a short deadline."""


@dataclass(frozen=True, slots=True)
class Option:
    """A row that may win. `bidder` is the number of its app in the prepared order."""

    bidder: int
    row: int
    chunks: tuple[Chunk, ...]
    gpus: int
    gain: float
    counts: Counts
    """The same chunks, counted."""


@dataclass(frozen=True, slots=True)
class Cap:
    """A quota by bidder number."""

    bidders: frozenset[int]
    gpus: int


@dataclass(frozen=True, slots=True)
class PreparedProblem:
    """What solvers see. Options of each bidder come in falling order of gain."""

    machines: tuple[OfferedMachine, ...]
    bidders: tuple[Bidder, ...]
    options: tuple[tuple[Option, ...], ...]
    caps: tuple[Cap, ...]

    def within_caps(self, chosen: Iterable[Option]) -> bool:
        """Whether the quotas allow these rows together."""
        if not self.caps:
            return True
        rows = tuple(chosen)
        return all(
            sum(option.gpus for option in rows if option.bidder in cap.bidders) <= cap.gpus
            for cap in self.caps
        )


def scale_of(problem: Problem) -> float:
    """About the average weight: the power of two next to it, so that dividing by it is exact."""
    count = len(problem.bidders)
    mean = math.fsum(bidder.weight / count for bidder in problem.bidders)
    return 2.0 ** round(math.log2(mean)) if mean > 0.0 else 1.0


def prepare(problem: Problem, *, hurried: bool = False, scale: float = 1.0) -> PreparedProblem:
    """Bring a problem into the prepared form.

    Args:
        problem: What is to be decided.
        hurried: Whether useless rows of large problems may remain.
        scale: What to divide all weights by, and with them all gains.
    """
    rows = sum(len(bidder.rows) for bidder in problem.bidders)
    choose = _every_option if hurried and rows > MANY_ROWS else _options
    machines = tuple(sorted(problem.machines, key=lambda offered: offered.machine))
    bidders = tuple(sorted(problem.bidders, key=lambda bidder: bidder.app))
    if scale != 1.0:
        least = sys.float_info.min
        bidders = tuple(replace(b, weight=max(least, b.weight / scale)) for b in bidders)
    number = {bidder.app: index for index, bidder in enumerate(bidders)}
    caps = tuple(
        Cap(frozenset(number[app] for app in quota.apps if app in number), quota.gpus)
        for quota in sorted(
            problem.quotas, key=lambda quota: (tuple(sorted(quota.apps)), quota.gpus)
        )
    )
    limits: dict[frozenset[int] | None, _Largest] = {}
    options: list[tuple[Option, ...]] = []
    for index, bidder in enumerate(bidders):
        largest = limits.get(bidder.machines)
        if largest is None:
            largest = limits[bidder.machines] = _Largest.of(machines, bidder.machines)
        cap = min((cap.gpus for cap in caps if index in cap.bidders), default=largest.total)
        options.append(choose(index, bidder, largest, cap))
    return PreparedProblem(machines, bidders, tuple(options), caps)


def _options(index: int, bidder: Bidder, largest: "_Largest", cap: int) -> tuple[Option, ...]:
    options = []
    nothing = math.log(bidder.rho_nothing)
    for row, shape in useful_shapes(bidder.rows, bidder.rho_nothing):
        if shape.gpus <= cap and largest.may_hold(shape.gpus, shape.name):
            gain = bidder.weight * (nothing - math.log(bidder.rows[row].rho))
            options.append(Option(index, row, shape.chunks, shape.gpus, gain, shape.name))
    return _best_first(options)


def _every_option(index: int, bidder: Bidder, largest: "_Largest", cap: int) -> tuple[Option, ...]:
    """The same without comparing rows with one another."""
    options = []
    nothing = math.log(bidder.rho_nothing)
    for row, candidate in enumerate(bidder.rows):
        better = nothing - math.log(candidate.rho)
        if better > 0.0:
            chunks, gpus, name, fits = largest.known(candidate.chunks)
            if fits and gpus <= cap:
                options.append(Option(index, row, chunks, gpus, bidder.weight * better, name))
    return _best_first(options)


def _best_first(options: list[Option]) -> tuple[Option, ...]:
    return tuple(sorted(options, key=lambda option: (-option.gain, option.gpus, option.row)))


@dataclass(frozen=True, slots=True)
class _Largest:
    """The largest holes some bidder may use: a quick test that spares most packing."""

    by_level: tuple[int, int, int, int]
    machine: dict[int, int]
    slot: dict[int, int]
    _known: dict[tuple[Chunk, ...], tuple[tuple[Chunk, ...], int, Counts, bool]] = field(
        default_factory=dict
    )

    @property
    def total(self) -> int:
        return self.by_level[CLUSTER]

    @staticmethod
    def of(machines: tuple[OfferedMachine, ...], allowed: frozenset[int] | None) -> "_Largest":
        usable = [m for m in machines if allowed is None or m.machine in allowed]
        racks: dict[int, int] = {}
        slot = {offered.machine: max(offered.slots, default=0) for offered in usable}
        machine = {offered.machine: offered.gpus for offered in usable}
        for offered in usable:
            racks[offered.rack] = racks.get(offered.rack, 0) + machine[offered.machine]
        by_level = (
            max(slot.values(), default=0),
            max(machine.values(), default=0),
            max(racks.values(), default=0),
            sum(racks.values()),
        )
        return _Largest(by_level, machine, slot)

    def known(self, chunks: tuple[Chunk, ...]) -> tuple[tuple[Chunk, ...], int, Counts, bool]:
        """What `counted` says, and whether such a row may fit: many bidders have the same rows."""
        found = self._known.get(chunks)
        if found is None:
            as_counted = counted(chunks)
            found = *as_counted, self.may_hold(*as_counted[1:])
            self._known[chunks] = found
        return found

    def may_hold(self, gpus: int, name: Counts) -> bool:
        """False when the row cannot fit even alone; True proves nothing."""
        if gpus > self.total:
            return False
        for (level, negative, machine), _ in name:
            if machine < 0:
                hole = self.by_level[level]
            else:
                hole = (self.slot if level == SLOT else self.machine).get(machine, 0)
            if -negative > hole:
                return False
        return True


def is_hard(chunk: Chunk) -> bool:
    """Whether a normal chunk needs a hole of its size in one machine (or one given machine)."""
    return chunk.machine is not None or (chunk.level <= MACHINE and chunk.count > 1)
