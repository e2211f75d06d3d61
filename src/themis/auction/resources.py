"""What rows take of everything that is scarce, as one table of whole numbers.

Chunks that nothing tells apart form a kind. What rows demand of each kind is one table, what a
unit of each kind takes of each resource another, and their product is all that prices and the label
search look at. Every resource is a valid limit: an allocation that exceeds one cannot be packed.
The converse need not hold; packing decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from themis.auction.milp import LOOSE, Kind, kind_of
from themis.auction.patterns import bidder_groups
from themis.auction.prepared import Option, Prepared
from themis.model import MACHINE, RACK, SLOT, Chunk

Whole = npt.NDArray[np.int64]
Real = npt.NDArray[np.float64]


@dataclass(slots=True)
class Table:
    """All rows of an auction, bidder after bidder.

    `demand` is rows x kinds. `usage` is rows x resources, `capacity` what there is of each;
    resources may be added, kinds never change.
    """

    options: list[Option]
    first: Whole
    """Where the rows of each bidder begin; one entry more than bidders."""
    gain: Real
    kinds: list[Kind]
    groups: list[frozenset[int] | None]
    demand: Whole
    usage: Whole
    capacity: Whole
    mark: Whole
    """A number for what each row demands; sums of marks tell sums of demands apart."""

    def add(self, usage: Whole, capacity: int) -> None:
        """One more resource, of which each row takes so much."""
        self.usage = np.column_stack((self.usage, usage))
        self.capacity = np.append(self.capacity, capacity)


def tabulate(prepared: Prepared) -> Table:
    """The table of a problem, with the counts that can limit it."""
    groups, numbers = bidder_groups(prepared)
    options = [option for rows in prepared.options for option in rows]
    sizes = [0, *(len(rows) for rows in prepared.options)]
    kinds: dict[Kind, int] = {}
    entries: dict[tuple[int, int], int] = {}
    for row, option in enumerate(options):
        group = numbers[option.bidder]
        for chunk, count in _grouped(option.chunks):
            kind = kind_of(chunk, group)
            key = (row, kinds.setdefault(kind, len(kinds)))
            entries[key] = entries.get(key, 0) + (
                chunk.count * count if kind[0] == LOOSE else count
            )
    demand = np.zeros((len(options), len(kinds)), dtype=np.int64)
    if entries:
        where = np.array(list(entries), dtype=np.int64)
        demand[where[:, 0], where[:, 1]] = list(entries.values())
    first = np.cumsum(np.array(sizes, dtype=np.int64))
    table = Table(
        options,
        first,
        np.array([option.gain for option in options], dtype=np.float64),
        list(kinds),
        groups,
        demand,
        np.zeros((len(options), 0), dtype=np.int64),
        np.zeros(0, dtype=np.int64),
        demand @ _marks(len(kinds)),
    )
    _count(prepared, table)
    return table


def _grouped(chunks: Sequence[Chunk]) -> list[tuple[Chunk, int]]:
    """Runs of equal chunks: rows of many jobs repeat the same one."""
    runs: list[tuple[Chunk, int]] = []
    for chunk in chunks:
        if runs and (runs[-1][0] is chunk or runs[-1][0] == chunk):
            runs[-1] = (chunk, runs[-1][1] + 1)
        else:
            runs.append((chunk, 1))
    return runs


def _marks(kinds: int) -> Whole:
    """Fixed odd numbers, one for each kind; sums of them wrap around."""
    rng = np.random.default_rng(20200226)
    return rng.integers(1, 2**62, size=kinds, dtype=np.int64) | 1


def _count(prepared: Prepared, table: Table) -> None:
    weights: list[list[int]] = []
    capacity: list[int] = []
    for group in range(len(table.groups)):
        for weight, room in _region(prepared, table, group):
            weights.append(weight)
            capacity.append(room)
    for weight, room in _contested(prepared, table):
        weights.append(weight)
        capacity.append(room)
    table_of_weights = np.array(weights, dtype=np.int64).reshape(len(weights), len(table.kinds))
    usage = table.demand @ table_of_weights.T
    gpus = np.array([option.gpus for option in table.options], dtype=np.int64)
    owner = np.repeat(np.arange(len(table.first) - 1), np.diff(table.first))
    for cap in prepared.caps:
        inside = np.isin(owner, sorted(cap.bidders))
        usage = np.column_stack((usage, gpus * inside))
        capacity.append(cap.gpus)
    limit = np.array(capacity, dtype=np.int64)
    needed = _most(usage, table.first) > limit
    table.usage = np.ascontiguousarray(usage[:, needed])
    table.capacity = limit[needed]


def _most(usage: Whole, first: Whole) -> Whole:
    """What would be taken of each resource if every bidder got its hungriest row."""
    begins = first[:-1][np.diff(first) > 0]
    if not len(begins):
        return np.zeros(usage.shape[1], dtype=np.int64)
    most: Whole = np.maximum.reduceat(usage, begins, axis=0).sum(axis=0)
    return most


def _region(prepared: Prepared, table: Table, group: int) -> list[tuple[list[int], int]]:
    """GPUs, and pieces of every size that cutting wastes, among the machines of a group."""
    allowed = table.groups[group]
    machines = [m for m in prepared.machines if allowed is None or m.machine in allowed]
    inside = [_within(kind, group, table.groups) for kind in table.kinds]
    total = sum(m.gpus for m in machines)
    counts = [([kind[1] * held for kind, held in zip(table.kinds, inside, strict=True)], total)]
    racks: dict[int, int] = {}
    for offered in machines:
        racks[offered.rack] = racks.get(offered.rack, 0) + offered.gpus
    holes: dict[int, Sequence[int]] = {
        SLOT: [size for offered in machines for size in offered.slots],
        MACHINE: [offered.gpus for offered in machines],
        RACK: list(racks.values()),
    }
    hard = list(zip(table.kinds, inside, strict=True))
    for level, sizes in holes.items():
        wanted = {
            kind[1] for kind, held in hard if held and kind[1] > 1 and LOOSE < kind[0] <= level
        }
        for k in sorted(wanted):
            room = sum(size // k for size in sizes)
            if room * k < total:
                weight = [
                    kind[1] // k if held and LOOSE < kind[0] <= level else 0 for kind, held in hard
                ]
                counts.append((weight, room))
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


def _contested(prepared: Prepared, table: Table) -> list[tuple[list[int], int]]:
    """Machines that more than one bidder is pinned to."""
    pinned: dict[int, set[int]] = {}
    for option in table.options:
        for chunk in option.chunks:
            if chunk.machine is not None:
                pinned.setdefault(chunk.machine, set()).add(option.bidder)
    free = {offered.machine: offered.gpus for offered in prepared.machines}
    return [
        ([kind[1] if kind[2] == machine else 0 for kind in table.kinds], free.get(machine, 0))
        for machine, bidders in sorted(pinned.items())
        if len(bidders) > 1
    ]
