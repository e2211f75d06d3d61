"""Weighted max-min shares over time: everyone gets weight x level, at most what they can use.

The level changes only when somebody comes or goes. The full, who have all they can use, finish in
step with the clock; the thirsty finish in step with the integral of the level. Each kind waits in
heaps of its own, so an event touches only those whom the new level pushes across their limit.
"""

import heapq
import math
from dataclasses import dataclass

from themis.fairness.sums import ExactSum
from themis.model import AppId


@dataclass(slots=True)
class _Taker:
    """Somebody with work to do."""

    app: AppId
    number: int
    weight: float
    demand: float
    limit: float
    """The level at which its share reaches its demand."""
    end: float = 0.0
    """When it finishes: on the clock when full, on the integral of the level when thirsty."""
    moves: int = 0
    """How often it changed sides; heap entries from before the last time are void."""


class _Heap:
    """A heap of takers whose void entries are dropped when they surface."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, int, _Taker]] = []

    def push(self, key: float, taker: _Taker) -> None:
        # Number and moves are unique together, so takers themselves are never compared.
        heapq.heappush(self._entries, (key, taker.number, taker.moves, taker))

    def first(self) -> _Taker | None:
        entries = self._entries
        while entries and entries[0][2] != entries[0][3].moves:
            heapq.heappop(entries)
        return entries[0][3] if entries else None


class WaterLevel:
    """The shares of one capacity, and who finishes next."""

    def __init__(self, capacity: float) -> None:
        self.now = 0.0
        self._capacity = capacity
        self._poured = 0.0
        self._numbers = 0
        self._full_demand = ExactSum()
        self._full_ends = _Heap()
        self._full_limits = _Heap()
        self._thirsty = 0
        self._thirsty_weight = ExactSum()
        self._thirsty_ends = _Heap()
        self._thirsty_limits = _Heap()

    def add(self, app: AppId, weight: float, work: float, demand: float) -> None:
        """Let somebody take its share from now on until its work is done."""
        self._numbers += 1
        taker = _Taker(app, self._numbers, weight, demand, limit=demand / weight)
        self._make_thirsty(taker, work)

    def advance(self, until: float) -> AppId | None:
        """Go on to the next who finishes, and return it; or to `until` when nobody does."""
        self._settle()
        level = self._level()
        full, thirsty = self._full_ends.first(), self._thirsty_ends.first()
        full_end = full.end if full else math.inf
        thirsty_end = self.now + (thirsty.end - self._poured) / level if thirsty else math.inf
        end = max(self.now, min(full_end, thirsty_end))
        if end > until or math.isinf(end):
            self._pass(until, level)
            return None
        self._pass(end, level)
        if full and full_end <= thirsty_end:
            self._leave_full(full)
            return full.app
        if thirsty:
            self._leave_thirsty(thirsty)
            return thirsty.app
        return None

    def _pass(self, time: float, level: float) -> None:
        if math.isinf(time):
            return
        # Nobody is measured by an integral that nobody drinks from: starting it again keeps it
        # short, and its differences exact.
        self._poured = self._poured + level * (time - self.now) if self._thirsty else 0.0
        self.now = time

    def _level(self) -> float:
        spare = self._capacity - self._full_demand.value
        if self._thirsty:
            return spare / self._thirsty_weight.value
        return math.inf if spare >= 0.0 else -math.inf

    def _settle(self) -> None:
        """Move takers across their limits until everyone is on the right side.

        Both moves raise the level, so after the first loop nobody need become thirsty again.
        """
        while (taker := self._full_limits.first()) and taker.limit > self._level():
            self._leave_full(taker)
            self._make_thirsty(taker, (taker.end - self.now) * taker.demand)
        while (taker := self._thirsty_limits.first()) and taker.limit <= self._level():
            self._leave_thirsty(taker)
            self._make_full(taker, (taker.end - self._poured) * taker.weight)

    def _make_full(self, taker: _Taker, work: float) -> None:
        self._full_demand.change(added=taker.demand)
        taker.end = self.now + work / taker.demand
        self._full_ends.push(taker.end, taker)
        self._full_limits.push(-taker.limit, taker)

    def _make_thirsty(self, taker: _Taker, work: float) -> None:
        self._thirsty += 1
        self._thirsty_weight.change(added=taker.weight)
        taker.end = self._poured + work / taker.weight
        self._thirsty_ends.push(taker.end, taker)
        self._thirsty_limits.push(taker.limit, taker)

    def _leave_full(self, taker: _Taker) -> None:
        taker.moves += 1
        self._full_demand.change(removed=taker.demand)

    def _leave_thirsty(self, taker: _Taker) -> None:
        taker.moves += 1
        self._thirsty -= 1
        self._thirsty_weight.change(removed=taker.weight)
