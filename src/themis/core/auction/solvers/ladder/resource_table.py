"""What rows take of everything that is scarce, as one table of whole numbers.

Chunks that nothing tells apart form a kind. What rows demand of each kind is one table, what a
unit of each kind takes of each resource another, and their product is all that prices and the label
search look at. Every resource is a valid limit: an allocation that exceeds one cannot be packed.
The converse need not hold; packing decides.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from themis.core.auction.solvers.ladder.machine_patterns import bidder_groups
from themis.core.auction.solvers.milp import LOOSE, Kind, kind_of
from themis.core.auction.solvers.prepared import Option, PreparedProblem
from themis.core.model import MACHINE, RACK, SLOT, Chunk

Whole = npt.NDArray[np.int64]
Real = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Entries:
    """What rows demand of kinds, row after row: most rows demand one or two kinds of hundreds.

    A row may demand a kind twice: single GPUs and wide chunks alike may lie anywhere.
    """

    row: Whole
    kind: Whole
    amount: Whole
    begin: Whole
    """Where the entries of each row begin; every row has one."""

    def weighed(self, weights: Whole) -> Whole:
        """What rows take, given what a unit of each kind (second axis) does."""
        if not len(self.row):
            return np.zeros((0, len(weights)), dtype=np.int64)
        taken = np.ascontiguousarray(weights.T)[self.kind]
        taken *= self.amount[:, None]
        summed: Whole = taken[self.begin]
        # Few rows have many entries, so adding up the second ones, the third ones and so on is
        # quicker than row after row.
        counts = np.diff(self.begin, append=len(self.row))
        more = np.flatnonzero(counts > 1)
        step = 1
        while len(more):
            summed[more] += taken[self.begin[more] + step]
            step += 1
            more = more[counts[more] > step]
        return summed

    def only(self, rows: Flags) -> "Entries":
        """Without some rows."""
        kept = rows[self.row]
        row = (np.cumsum(rows) - 1)[self.row[kept]]
        return _entries(row, self.kind[kept], self.amount[kept])


def _entries(row: Whole, kind: Whole, amount: Whole) -> Entries:
    fresh = np.ones(len(row), dtype=bool)
    fresh[1:] = row[1:] != row[:-1]
    return Entries(row, kind, amount, np.flatnonzero(fresh))


@dataclass(slots=True)
class ResourceTable:
    """All rows of an auction that could win alone, bidder after bidder.

    `usage` is rows x resources, `capacity` what there is of each; resources may be added, kinds
    never change.
    """

    options: list[Option]
    first: Whole
    """Where the rows of each bidder begin; one entry more than bidders."""
    gain: Real
    kinds: list[Kind]
    groups: list[frozenset[int] | None]
    entries: Entries
    usage: Whole
    capacity: Whole
    mark: Whole
    """A number for what each row demands; sums of marks tell sums of demands apart."""
    _demand: Whole | None = None

    @property
    def demand(self) -> Whole:
        """Rows x kinds, in full."""
        if self._demand is None:
            self._demand = np.zeros((len(self.options), len(self.kinds)), dtype=np.int64)
            where = (self.entries.row, self.entries.kind)
            np.add.at(self._demand, where, self.entries.amount)
        return self._demand

    @property
    def owner(self) -> Whole:
        """The bidder of each row."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))

    def add(self, usage: Whole, capacity: int) -> None:
        """One more resource, of which each row takes so much."""
        self.usage = np.column_stack((self.usage, usage))
        self.capacity = np.append(self.capacity, capacity)


def tabulate(prepared: PreparedProblem) -> ResourceTable:
    """The table of a problem, with the counts that can limit it."""
    groups, numbers = bidder_groups(prepared)
    options = [option for rows in prepared.options for option in rows]
    kinds: dict[Kind, int] = {}
    known: list[dict[tuple[int, int, int], tuple[int, int]]] = [{} for _ in groups]
    """By group, the number of the kind of a chunk, and how many units one is."""
    rows: list[int] = []
    wanted: list[int] = []
    amounts: list[int] = []
    for row, option in enumerate(options):
        group = numbers[option.bidder]
        mine = known[group]
        for key, count in option.counts:
            found = mine.get(key)
            if found is None:
                level, negative, machine = key
                kind = kind_of(Chunk(level, -negative, None if machine < 0 else machine), group)
                number = kinds.setdefault(kind, len(kinds))
                found = mine[key] = (number, -negative if kind[0] == LOOSE else 1)
            rows.append(row)
            wanted.append(found[0])
            amounts.append(found[1] * count)
    entries = _entries(*(np.array(part, dtype=np.int64) for part in (rows, wanted, amounts)))
    weights, limits = _limits(prepared, list(kinds), groups, entries, options)
    usage, capacity = _usage(prepared, entries, options, weights, limits)
    # What exceeds a limit by itself would only mislead the prices.
    possible: Flags = np.all(usage <= capacity, axis=1)
    if not possible.all():
        entries, usage = entries.only(possible), usage[possible]
        options = [option for option, kept in zip(options, possible.tolist(), strict=True) if kept]
    sizes = np.bincount([option.bidder for option in options], minlength=len(prepared.bidders))
    first = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    needed = _most(usage, first) > capacity
    return ResourceTable(
        options,
        first,
        np.array([option.gain for option in options], dtype=np.float64),
        list(kinds),
        groups,
        entries,
        np.ascontiguousarray(usage[:, needed]),
        capacity[needed],
        entries.weighed(_marks(len(kinds))[None, :])[:, 0],
    )


def _marks(kinds: int) -> Whole:
    """Fixed odd numbers, one for each kind; sums of them wrap around."""
    rng = np.random.default_rng(20200226)
    return rng.integers(1, 2**62, size=kinds, dtype=np.int64) | 1


def _limits(
    prepared: PreparedProblem,
    kinds: Sequence[Kind],
    groups: Sequence[frozenset[int] | None],
    entries: Entries,
    options: Sequence[Option],
) -> tuple[Whole, list[int]]:
    """What a unit of each kind takes of each resource, and what there is."""
    weights: list[Whole] = []
    limits: list[int] = []
    for group in range(len(groups)):
        for weight, room in _region(prepared, kinds, groups, group):
            weights.append(weight)
            limits.append(room)
    for weight, room in _contested(prepared, kinds, entries, options):
        weights.append(weight)
        limits.append(room)
    return np.array(weights, dtype=np.int64).reshape(len(weights), len(kinds)), limits


def _usage(
    prepared: PreparedProblem,
    entries: Entries,
    options: Sequence[Option],
    weights: Whole,
    limits: Sequence[int],
) -> tuple[Whole, Whole]:
    usage = entries.weighed(weights)
    gpus = np.array([option.gpus for option in options], dtype=np.int64)
    owner = np.array([option.bidder for option in options], dtype=np.int64)
    for cap in prepared.caps:
        usage = np.column_stack((usage, gpus * np.isin(owner, sorted(cap.bidders))))
    capacity = [*limits, *(cap.gpus for cap in prepared.caps)]
    return usage, np.array(capacity, dtype=np.int64)


def _most(usage: Whole, first: Whole) -> Whole:
    """What would be taken of each resource if every bidder got its hungriest row."""
    begins = first[:-1][np.diff(first) > 0]
    if not len(begins):
        return np.zeros(usage.shape[1], dtype=np.int64)
    most: Whole = np.maximum.reduceat(usage, begins, axis=0).sum(axis=0)
    return most


def _region(
    prepared: PreparedProblem,
    kinds: Sequence[Kind],
    groups: Sequence[frozenset[int] | None],
    group: int,
) -> list[tuple[Whole, int]]:
    """GPUs, and pieces of every size that cutting wastes, among the machines of a group."""
    allowed = groups[group]
    machines = [m for m in prepared.machines if allowed is None or m.machine in allowed]
    inside = np.array([_within(kind, group, groups) for kind in kinds], dtype=bool)
    level_of = np.array([kind[0] for kind in kinds], dtype=np.int64)
    gpus = np.array([kind[1] for kind in kinds], dtype=np.int64)
    free = [m.gpus for m in machines]
    total = sum(free)
    counts: list[tuple[Whole, int]] = [(gpus * inside, total)]
    racks: dict[int, int] = {}
    for offered, spare in zip(machines, free, strict=True):
        racks[offered.rack] = racks.get(offered.rack, 0) + spare
    holes: dict[int, Sequence[int]] = {
        SLOT: [size for offered in machines for size in offered.slots],
        MACHINE: free,
        RACK: list(racks.values()),
    }
    for level, sizes in holes.items():
        hard = inside & (level_of > LOOSE) & (level_of <= level)
        pieces = np.array(sizes, dtype=np.int64)
        for k in sorted(set(gpus[hard & (gpus > 1)].tolist())):
            room = int((pieces // k).sum())
            if room * k < total:
                counts.append((gpus // k * hard, room))
    return counts


def _within(kind: Kind, group: int, groups: Sequence[frozenset[int] | None]) -> bool:
    """Whether chunks of a kind always lie on machines of the group."""
    allowed = groups[group]
    if allowed is None:
        return True
    if kind[2] is not None:
        return kind[2] in allowed
    own = groups[kind[3]]
    return own is not None and own <= allowed


def _contested(
    prepared: PreparedProblem, kinds: Sequence[Kind], entries: Entries, options: Sequence[Option]
) -> list[tuple[Whole, int]]:
    """Machines that more than one bidder is pinned to."""
    machine = np.array([-1 if kind[2] is None else kind[2] for kind in kinds], dtype=np.int64)
    gpus = np.array([kind[1] for kind in kinds], dtype=np.int64)
    owner = np.array([option.bidder for option in options], dtype=np.int64)
    pinned = np.flatnonzero(machine[entries.kind] >= 0)
    pins = set(
        zip(
            machine[entries.kind[pinned]].tolist(), owner[entries.row[pinned]].tolist(), strict=True
        )
    )
    bidders = Counter(number for number, _ in pins)
    free = {offered.machine: offered.gpus for offered in prepared.machines}
    return [
        (gpus * (machine == number), free.get(number, 0))
        for number in sorted(bidders)
        if bidders[number] > 1
    ]
