"""Which auctions of a run are worth keeping, decided while they come.

    keep = Slowest(3)
    for number, cost in enumerate(costs):
        thrown = keep.offer(number, cost)       # those that need not be kept (any more)
    keep.settle()                               # and those at the end

Runs hold thousands of auctions: what is kept at any time stays within twice what was asked for.
"""

import heapq
from typing import Protocol


class Selection(Protocol):
    """Chooses among things that come one by one, by their numbers."""

    def offer(self, number: int, cost: float) -> tuple[int, ...]:
        """One more; returns those to throw away now, perhaps this one."""

    def settle(self) -> tuple[int, ...]:
        """No more will come; returns those to throw away at last."""


class Everything:
    """Throws nothing away."""

    def offer(self, number: int, cost: float) -> tuple[int, ...]:
        """Keep it."""
        return ()

    def settle(self) -> tuple[int, ...]:
        """Keep all."""
        return ()


class Slowest:
    """The this many that cost most; of equals the earlier."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._heap: list[tuple[float, int]] = []

    def offer(self, number: int, cost: float) -> tuple[int, ...]:
        """Throw away the cheapest when there is one too many."""
        heapq.heappush(self._heap, (cost, -number))
        if len(self._heap) <= self._count:
            return ()
        return (-heapq.heappop(self._heap)[1],)

    def settle(self) -> tuple[int, ...]:
        """Keep what there is."""
        return ()


class Spread:
    """At most this many, evenly spread from the first to the last."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._stride = 1
        self._seen = 0
        self._kept: list[int] = []

    def offer(self, number: int, cost: float) -> tuple[int, ...]:
        """Keep one in `stride`, which doubles when twice the number asked for is there."""
        self._seen += 1
        if (self._seen - 1) % self._stride:
            return (number,)
        self._kept.append(number)
        if len(self._kept) <= 2 * self._count:
            return ()
        thrown = self._kept[1::2]
        self._kept = self._kept[::2]
        self._stride *= 2
        return tuple(thrown)

    def settle(self) -> tuple[int, ...]:
        """Thin out to the number asked for."""
        have, want = len(self._kept), self._count
        if have <= want:
            return ()
        chosen = {index * (have - 1) // max(1, want - 1) for index in range(want)}
        return tuple(number for index, number in enumerate(self._kept) if index not in chosen)
