"""The heaviest way to fill a group of machines with chunks, under weights on chunks.

A group is one machine, or all machines of a rack. Every machine is cut in some way; what the cuts
leave over may go to chunks that lie anywhere in the group.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from themis.core.auction.solvers.ladder.machine_patterns import Size
from themis.core.auction.solvers.ladder.resource_table import Real, Whole
from themis.core.model import MACHINE, SLOT

SINGLE: Size = (MACHINE, 1)
_NEVER = -1e15
MAX_WAYS = 4_000
"""To cut one machine."""

Pins = tuple[Size, ...]
"""Chunks pinned to a machine, sorted."""


@dataclass(frozen=True, slots=True)
class Ways:
    """Ways to cut one machine: how many chunks of each size, and how many GPUs they leave."""

    cuts: Real
    left: Whole


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of sizes that need a hole, of sizes within the group, and of any other GPU."""

    holes: Real
    spans: Real
    loose: float


class TooManyWaysError(Exception):
    """A machine has too many cuts to list."""


class Cuts:
    """The ways to cut machines into chunks of given sizes, around what is pinned there."""

    def __init__(self, sizes: tuple[Size, ...]) -> None:
        self.small = [size for level, size in sizes if level == SLOT]
        self.large = [size for level, size in sizes if level != SLOT]
        # Columns of the result: first the sizes of slots, then of machines, as sizes are sorted.
        self._known: dict[tuple[tuple[int, ...], Pins], Ways | None] = {}
        self._in_slots: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        self._in_machines: dict[int, Whole] = {}

    def ways(self, slots: tuple[int, ...], pins: Pins) -> Ways | None:
        """All of them; None when the pinned chunks do not fit.

        Raises:
            TooManyWaysError: They are too many to list.
        """
        key = (slots, pins)
        if key not in self._known:
            self._known[key] = self._cut(slots, pins)
        return self._known[key]

    def _cut(self, slots: tuple[int, ...], pins: Pins) -> Ways | None:
        total = sum(slots) - sum(size for _, size in pins)
        shapes = {slots}
        for level, size in pins:
            if level == SLOT:  # others come from whatever is left
                shapes = {_less(shape, i, size) for shape in shapes for i in _distinct(shape, size)}
        if total < 0 or not shapes:
            return None
        parts: list[Whole] = []
        count = 0
        for cut in sorted({cut for shape in shapes for cut in self._slot_cuts(shape)}):
            left = total - sum(n * size for n, size in zip(cut, self.small, strict=True))
            if left < 0:
                continue
            rest = self._machine_cuts(left)
            parts.append(np.hstack((np.tile(np.array(cut, dtype=np.int64), (len(rest), 1)), rest)))
            count += len(rest)
            if count > MAX_WAYS:
                raise TooManyWaysError
        table = np.vstack(parts)
        # As floats: products with weights are several times faster.
        return Ways(table[:, :-1].astype(np.float64), table[:, -1])

    def _slot_cuts(self, slots: tuple[int, ...]) -> list[tuple[int, ...]]:
        """How many slot chunks of each size, in all possible ways."""
        if slots not in self._in_slots:
            found = {tuple(0 for _ in self.small)}
            for slot in slots:
                fills = list(_fills(self.small, slot))
                if len(found) * len(fills) > 20 * MAX_WAYS:
                    raise TooManyWaysError
                found = {tuple(map(int.__add__, a, b)) for a in found for b in fills}
            self._in_slots[slots] = sorted(found)
        return self._in_slots[slots]

    def _machine_cuts(self, left: int) -> Whole:
        """How many machine chunks of each size, and what they leave of this many GPUs."""
        if left not in self._in_machines:
            rows = []
            for fill in _fills(self.large, left):
                rest = left - sum(n * size for n, size in zip(fill, self.large, strict=True))
                rows.append((*fill, rest))
                if len(rows) > MAX_WAYS:
                    raise TooManyWaysError
            self._in_machines[left] = np.array(rows, dtype=np.int64)
        return self._in_machines[left]


def _less(shape: tuple[int, ...], index: int, size: int) -> tuple[int, ...]:
    return tuple(sorted((*shape[:index], shape[index] - size, *shape[index + 1 :]), reverse=True))


def _distinct(shape: tuple[int, ...], size: int) -> list[int]:
    """Slots that hold so much, one of each size."""
    return list({room: i for i, room in enumerate(shape) if room >= size}.values())


def _fills(sizes: Sequence[int], room: int) -> Iterator[tuple[int, ...]]:
    if not sizes:
        yield ()
        return
    for count in range(room // sizes[0] + 1):
        for rest in _fills(sizes[1:], room - count * sizes[0]):
            yield (count, *rest)


def profile(ways: Ways, weights: Weights) -> Real:
    """The heaviest cut of a machine by the GPUs it leaves (this many or more)."""
    best = np.full(int(ways.left.max()) + 1, _NEVER)
    np.maximum.at(best, ways.left, ways.cuts @ weights.holes)
    return np.asarray(np.maximum.accumulate(best[::-1])[::-1])


def spread(spans: Sequence[int], weights: Weights, total: int) -> Real:
    """The heaviest use of this many GPUs of a group, cut as one likes."""
    best = [0.0] * (total + 1)
    items = [(1, weights.loose), *zip(spans, weights.spans.tolist(), strict=True)]
    for room in range(1, total + 1):
        best[room] = max(best[room - k] + w for k, w in items if k <= room)
    return np.array(best)


def joined(machines: Sequence[Real]) -> Real:
    """Profile of several machines together."""
    sums = np.zeros(1)
    for best in machines:
        sums = join(sums, best)
    return sums


def join(sums: Real, best: Real) -> Real:
    """Profile of some machines and one more."""
    edge = len(best) - 1
    padded = np.full(len(sums) + 2 * edge, _NEVER)
    padded[edge : edge + len(sums)] = sums
    # Every sum meets every profile entry along a diagonal: a view that moves on by one a row.
    step = padded.itemsize
    shape = (len(sums) + edge, edge + 1)
    view: Real = np.ndarray(shape, np.float64, padded, strides=(step, step))
    return np.asarray((view + best[::-1]).max(axis=1))


def heaviest_of_one(ways: Ways, weights: Weights) -> tuple[float, Real]:
    """The same for a group of one machine, where nothing need be joined."""
    loads = ways.cuts @ weights.holes + weights.loose * ways.left
    at = int(np.argmax(loads))
    counts = np.zeros(len(weights.holes) + 1)
    counts[:-1] = ways.cuts[at]
    counts[-1] = ways.left[at] if weights.loose > 0.0 else 0.0
    return float(loads[at]), counts


def heaviest(
    machines: Sequence[Ways], spans: Sequence[int], weights: Weights
) -> tuple[float, Real]:
    """The weight of the heaviest filling of a group, and what it holds of each size."""
    if len(machines) == 1 and not spans:
        return heaviest_of_one(machines[0], weights)
    known: dict[int, Real] = {}
    for ways in machines:
        if id(ways) not in known:  # equal machines share theirs
            known[id(ways)] = profile(ways, weights)
    profiles = [known[id(ways)] for ways in machines]
    before = [np.zeros(1)]
    for best in profiles:
        before.append(join(before[-1], best))
    total = len(before[-1]) - 1
    over = spread(spans, weights, total)
    at = int(np.argmax(before[-1] + over))
    top = float((before[-1] + over)[at])
    counts = np.zeros(len(weights.holes) + len(spans) + 1)
    counts[len(weights.holes) :] = _uses(spans, weights, over, at)
    for index in range(len(machines) - 1, -1, -1):
        lower, best = before[index], profiles[index]
        low = max(0, at - len(lower) + 1)
        lefts = np.arange(low, min(at, len(best) - 1) + 1)
        left = int(lefts[np.argmax(best[lefts] + lower[at - lefts])])
        ways = machines[index]
        load = np.where(ways.left >= left, ways.cuts @ weights.holes, _NEVER)
        counts[: len(weights.holes)] += ways.cuts[int(np.argmax(load))]
        at -= left
    return top, counts


def _uses(spans: Sequence[int], weights: Weights, over: Real, room: int) -> Real:
    counts = np.zeros(len(spans) + 1)
    items = [*zip(spans, weights.spans.tolist(), strict=True), (1, weights.loose)]
    while room:
        fitting = [
            (over[room - k] + w, -number) for number, (k, w) in enumerate(items) if k <= room
        ]
        number = -max(fitting)[1]
        counts[number] += 1
        room -= items[number][0]
    return counts


def closure(
    sizes: Sequence[Size], spans: Sequence[int], weights: Weights, largest: int
) -> tuple[list[int], list[int], list[int]]:
    """Whole weights of slot, machine and group chunks of every size.

    What a chunk occupies could be filled with what was weighed, so it weighs at least as much.
    """
    wide = [(k, round(w)) for k, w in zip(spans, weights.spans.tolist(), strict=True)]
    wide.append((1, round(weights.loose)))
    small = [
        (level, k, round(w)) for (level, k), w in zip(sizes, weights.holes.tolist(), strict=True)
    ]
    inner = [(k, w) for level, k, w in small if level != SLOT]
    return (
        _knapsack([*wide, *((k, w) for _, k, w in small)], largest),
        _knapsack([*wide, *inner], largest),
        _knapsack(wide, largest),
    )


def _knapsack(items: Sequence[tuple[int, int]], room: int) -> list[int]:
    best = [0] * (room + 1)
    for size in range(1, room + 1):
        best[size] = max(best[size - 1], *(best[size - k] + w for k, w in items if k <= size), 0)
    return best
