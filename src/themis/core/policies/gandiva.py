"""gandiva: the best-placed gang first; jobs move to better-placed GPUs when some are free."""

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from themis.core.model import SLOT, AppId, GpuId, LeaseSource
from themis.core.model.ids import check_number
from themis.core.policies.base import AppView, DirectPolicy, Plan, View
from themis.core.policies.leftovers import Hand
from themis.core.policies.placing import Pool
from themis.core.policies.ranking import in_order


class Gandiva(DirectPolicy):
    """Greedy for the placement score 1/S, blind to fairness.

    `margin` is how much better a running job must fare elsewhere before it is moved.
    """

    name: ClassVar[str] = "gandiva"
    asks_tables: ClassVar[bool] = True
    asks_tables_each_phase: ClassVar[bool] = True

    def __init__(self, *, margin: float = 0.1) -> None:
        self.margin = check_number("margin", margin, high=1e6)

    def plan(self, view: View, rng: random.Random) -> Plan:
        """Renew what runs, then take the (app, gang) with the best score until nothing is left."""
        search = _GangSearch(view, self.margin)
        search.run()
        return Plan(search.hand.allotments(LeaseSource.DIRECT))


@dataclass(frozen=True, slots=True)
class _PlacedGang:
    """GPUs for one job: what it would add, how well it would be placed, and how fast."""

    gpus: tuple[GpuId, ...]
    score: float
    speed: float
    """GPUs times score: what it does, in GPUs at their best."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """An app's next gang, or (with `moving`) a new place for one that runs."""

    app: AppView
    moving: tuple[GpuId, ...] = ()


class _GangSearch:
    """One round: a heap of wishes, checked again when they come up since GPUs go meanwhile."""

    def __init__(self, view: View, margin: float) -> None:
        self._view = view
        self._margin = margin
        self._pool = Pool(view.topology, view.offer)
        self.hand = Hand(view, self._pool)
        self._order = in_order(view, lambda app: (app.arrival,))
        self._place = {app.app: place for place, app in enumerate(self._order)}
        self._heap: list[tuple[float, int, int, int, _Wish]] = []
        self._pushed = 0
        self._grown: set[AppId] = set()
        self._scores: dict[tuple[AppId, int, int], float] = {}

    def run(self) -> None:
        """Serve wishes until none can be met."""
        self.hand.deal_own(self._order)
        for app in self._order:
            self._push(_Wish(app))
            if app.gang > 1 or self._score(app, SLOT, 1) < 1.0:
                # Single GPUs are nowhere faster: none of them is worth a move.
                for running in self._carve(app):
                    self._push(_Wish(app, running))
        while self._heap:
            score, size, place, _, wish = heapq.heappop(self._heap)
            gang = self._meet(wish)
            if gang is None:
                continue
            if self._key(wish, gang) > (score, size, place):
                self._push(wish)
            elif wish.moving:
                self._move(wish, gang)
            elif self._grow(wish.app, gang):
                self._push(wish)
        # GPUs that make no gang may still help an app.
        self.hand.deal(self._order)

    def _push(self, wish: _Wish) -> None:
        gang = self._meet(wish)
        if gang is not None:
            self._pushed += 1
            heapq.heappush(self._heap, (*self._key(wish, gang), self._pushed, wish))

    def _key(self, wish: _Wish, gang: _PlacedGang) -> tuple[float, int, int]:
        """The best score first, then the larger gang, then who came first."""
        return (-gang.score, -len(gang.gpus), self._place[wish.app.app])

    def _carve(self, app: AppView) -> list[tuple[GpuId, ...]]:
        """What an app goes on with, as the gangs its jobs make of it."""
        own = Pool(self._view.topology, self.hand.given(app.app))
        gangs = []
        while len(own):
            gang = tuple(own.next_part(len(own), gang=app.gang))
            own.remove(gang)
            gangs.append(gang)
        return gangs

    # Wishes

    def _meet(self, wish: _Wish) -> _PlacedGang | None:
        """The best that can be had for a wish now."""
        if not wish.moving:
            return self._next(wish.app)
        # With more GPUs its gangs are other ones than those that were carved.
        return None if wish.app.app in self._grown else self._elsewhere(wish.app, wish.moving)

    def _next(self, app: AppView) -> _PlacedGang | None:
        room = self.hand.room(app)
        if room <= 0 or not len(self._pool):
            return None
        near = (*app.kept, *self.hand.given(app.app))
        part = self._pool.next_part(room, gang=app.gang, near=near, machines=app.machines)
        if len(near) + len(part) < app.min_gang or not part:
            return None
        return self._gang(app, part, self._completed(app, part, near))

    def _completed(
        self, app: AppView, part: Sequence[GpuId], near: Sequence[GpuId]
    ) -> Sequence[GpuId]:
        """What was there of the gang that a part makes whole."""
        machine = self._pool.seat(part[0]).machine
        there = [gpu for gpu in near if self._pool.seat(gpu).machine == machine]
        broken = len(there) % app.gang
        return there[len(there) - broken :] if broken + len(part) <= app.gang else ()

    def _elsewhere(self, app: AppView, gang: Sequence[GpuId]) -> _PlacedGang | None:
        """A better place for a gang, if there is one that is worth a move."""
        size = min(app.gang, len(gang) + self.hand.room(app))
        here = self._gang(app, gang, ())
        if here.score >= 1.0 and len(gang) == size:
            return None
        part = self._tightest(app, size, gang)
        if len(part) < max(len(gang), app.min_gang):
            return None
        stays = here.speed
        if len(gang) < size:
            more = self._pool.next_part(
                size - len(gang), gang=app.gang, near=gang, machines=app.machines
            )
            stays = max(stays, self._gang(app, more, gang).speed)
        there = self._gang(app, part, ())
        return there if there.speed > stays * (1.0 + self._margin) else None

    def _tightest(self, app: AppView, size: int, gang: Sequence[GpuId]) -> list[GpuId]:
        """The best place for this many GPUs, free ones and those that the gang itself frees."""
        for gpu in gang:
            self._pool.put_back(gpu)
        part = self._pool.next_part(size, gang=app.gang, machines=app.machines)
        self._pool.remove(gang)
        return part

    def _gang(self, app: AppView, gpus: Sequence[GpuId], others: Sequence[GpuId]) -> _PlacedGang:
        """These GPUs, as a gang together with others that the app has."""
        size = len(gpus) + len(others)
        score = self._score(app, self._view.topology.level([*gpus, *others]), size)
        return _PlacedGang(tuple(gpus), score, size * score)

    def _score(self, app: AppView, level: int, count: int) -> float:
        key = (app.app, level, count)
        score = self._scores.get(key)
        if score is None:
            score = self._scores[key] = placement_score(app, level, count)
        return score

    # Deeds

    def _grow(self, app: AppView, gang: _PlacedGang) -> bool:
        self._grown.add(app.app)
        if app.gang > 1:
            return self.hand.give(app, gang.gpus)
        # Single GPUs all score the same, so it would come up again until it is filled.
        self.hand.deal([app])
        return False

    def _move(self, wish: _Wish, gang: _PlacedGang) -> None:
        app = wish.app
        have = [*app.kept, *self.hand.given(app.app)]
        rest = [gpu for gpu in have if gpu not in wish.moving]
        if app.seconds_with([*rest, *gang.gpus]) < app.seconds_with(have):
            # The new place may overlap with the old one.
            self.hand.take_back(app, wish.moving)
            self._pool.remove(gang.gpus)
            self.hand.note(app, gang.gpus)


def placement_score(app: AppView, level: int, count: int) -> float:
    """1/S of one gang of the app, by its valuation; 0 if it cannot run on this many.

    The smallest gang well placed stands for S = 1: the score is speed per GPU compared with it.
    """
    seconds = app.seconds_at(level, count)
    least = min(count, app.min_gang)
    best = app.seconds_at(SLOT, least)
    if best == float("inf"):
        least, best = count, app.seconds_at(SLOT, count)
    if seconds == float("inf") or seconds <= 0.0:
        return 0.0
    # Rounded, so that equal scores are ties in spite of the last digits of a table's numbers.
    return round(best * least / (seconds * count), 9)
