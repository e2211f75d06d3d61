"""Weighted max-min shares over time: everyone gets weight x level, at most what they can use.

The level changes only when an app comes or goes. The full, who have all they can use, finish in
step with the clock; the thirsty finish in step with the integral of the level. Each kind waits in
heaps of its own, so an event touches only those whom the new level pushes across their limit.
"""

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass

from themis.core.fairness.exact_sums import ExactSum
from themis.core.model import AppId

_FEW = 64
"""This many void entries of a heap are no matter."""


@dataclass(frozen=True, slots=True)
class TakerState:
    """An app with work to do, written down."""

    number: int
    weight: float
    demand: float
    end: float
    full: bool


@dataclass(frozen=True, slots=True)
class WaterState:
    """A level written down, without those who take from it."""

    capacity: float
    now: float
    poured: float
    numbers: int


@dataclass(slots=True)
class _Taker:
    """An app with work to do."""

    app: AppId
    number: int
    weight: float
    demand: float
    limit: float
    """The level at which its share reaches its demand."""
    end: float = 0.0
    """When it finishes: on the clock when full, on the integral of the level when thirsty."""
    full: bool = False
    moves: int = 0
    """How often it changed sides; heap entries from before the last time are void."""


class _Heap:
    """A heap of takers whose void entries are dropped when they surface."""

    __slots__ = ("_entries", "_most")

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, int, _Taker]] = []
        self._most = _FEW

    def push(self, key: float, taker: _Taker) -> None:
        # Number and moves are unique together, so takers themselves are never compared.
        heapq.heappush(self._entries, (key, taker.number, taker.moves, taker))
        if len(self._entries) > self._most:
            # What never surfaces would stay for ever.
            self._entries = [entry for entry in self._entries if entry[2] == entry[3].moves]
            heapq.heapify(self._entries)
            self._most = _FEW + 2 * len(self._entries)

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
        self._takers: dict[AppId, _Taker] = {}
        self.touched: set[AppId] = set()
        """Apps whose state has changed since it was last emptied."""
        self._full_demand = ExactSum()
        self._full_ends = _Heap()
        self._full_limits = _Heap()
        self._thirsty = 0
        self._thirsty_weight = ExactSum()
        self._thirsty_ends = _Heap()
        self._thirsty_limits = _Heap()

    def add(self, app: AppId, weight: float, work: float, demand: float) -> None:
        """Let an app take its share from now on until its work is done."""
        self._numbers += 1
        taker = _Taker(app, self._numbers, weight, demand, limit=demand / weight)
        self._takers[app] = taker
        self._make_thirsty(taker, work)

    def remove(self, app: AppId) -> float:
        """Let an app take no more; returns the work it had left."""
        left = self.left(app)
        taker = self._takers.pop(app)
        if taker.full:
            self._leave_full(taker)
        else:
            self._leave_thirsty(taker)
        return left

    def left(self, app: AppId) -> float:
        """The work that an app has left now."""
        taker = self._takers[app]
        if taker.full:
            return max(0.0, (taker.end - self.now) * taker.demand)
        return max(0.0, (taker.end - self._poured) * taker.weight)

    def demand(self, app: AppId) -> float:
        """The most that an app takes."""
        return self._takers[app].demand

    @property
    def capacity(self) -> float:
        """What is shared."""
        return self._capacity

    def set_capacity(self, capacity: float) -> None:
        """Let there be more or less to share from now on."""
        self._capacity = capacity

    def advance(self, until: float) -> AppId | None:
        """Go on to the next who finishes, and return it; or to `until` when no app does."""
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
            del self._takers[full.app]
            return full.app
        if thirsty:
            self._leave_thirsty(thirsty)
            del self._takers[thirsty.app]
            return thirsty.app
        return None

    def _pass(self, time: float, level: float) -> None:
        if math.isinf(time):
            return
        # An integral that no app draws on measures nothing: starting it again keeps it
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

        Both moves raise the level, so after the first loop no app need become thirsty again.
        """
        while (taker := self._full_limits.first()) and taker.limit > self._level():
            self._leave_full(taker)
            self._make_thirsty(taker, (taker.end - self.now) * taker.demand)
        while (taker := self._thirsty_limits.first()) and taker.limit <= self._level():
            self._leave_thirsty(taker)
            self._make_full(taker, (taker.end - self._poured) * taker.weight)

    def _make_full(self, taker: _Taker, work: float) -> None:
        taker.full, taker.end = True, self.now + work / taker.demand
        self.touched.add(taker.app)
        self._enter_full(taker)

    def _enter_full(self, taker: _Taker) -> None:
        self._full_demand.change(added=taker.demand)
        self._full_ends.push(taker.end, taker)
        self._full_limits.push(-taker.limit, taker)

    def _make_thirsty(self, taker: _Taker, work: float) -> None:
        taker.full, taker.end = False, self._poured + work / taker.weight
        self.touched.add(taker.app)
        self._enter_thirsty(taker)

    def _enter_thirsty(self, taker: _Taker) -> None:
        self._thirsty += 1
        self._thirsty_weight.change(added=taker.weight)
        self._thirsty_ends.push(taker.end, taker)
        self._thirsty_limits.push(taker.limit, taker)

    def _leave_full(self, taker: _Taker) -> None:
        taker.moves += 1
        self.touched.add(taker.app)
        self._full_demand.change(removed=taker.demand)

    def _leave_thirsty(self, taker: _Taker) -> None:
        taker.moves += 1
        self.touched.add(taker.app)
        self._thirsty -= 1
        self._thirsty_weight.change(removed=taker.weight)

    # Writing down

    def state(self) -> WaterState:
        """Write it down."""
        return WaterState(self._capacity, self.now, self._poured, self._numbers)

    def taker_state(self, app: AppId) -> TakerState | None:
        """An app written down; None if it takes nothing."""
        taker = self._takers.get(app)
        if taker is None:
            return None
        return TakerState(taker.number, taker.weight, taker.demand, taker.end, taker.full)

    @staticmethod
    def restored(state: WaterState, takers: Mapping[AppId, TakerState]) -> "WaterLevel":
        """The level that was written down."""
        water = WaterLevel(state.capacity)
        water.now, water._poured, water._numbers = state.now, state.poured, state.numbers
        for app, each in takers.items():
            limit = each.demand / each.weight
            taker = _Taker(app, each.number, each.weight, each.demand, limit, each.end, each.full)
            water._takers[app] = taker
            if taker.full:
                water._enter_full(taker)
            else:
                water._enter_thirsty(taker)
        return water
