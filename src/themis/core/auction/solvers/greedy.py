"""A feasible answer at once: something for the starved first, then the best upgrades.

The seed of the other solvers and the answer when there is no time for one.
"""

import heapq
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property, partial

from themis.core.auction.packing.exact import PackingLimitError, needs_of, pack
from themis.core.auction.packing.free_gpus import ChunkNeed, Room, packing_order
from themis.core.auction.solution import Place
from themis.core.auction.solvers.bounds import bound_without, count_scarce, price
from themis.core.auction.solvers.prepared import Option, PreparedProblem
from themis.core.auction.solvers.registry import Determination, Find, Left, is_late

PACKING_LIMIT = 300
"""Steps to fit a single row, where nothing else was found."""

Held = dict[int, tuple[Option, tuple[Place, ...]]]
"""What each bidder has so far."""

_Upgrade = tuple[float, int, int, int, int]
"""The rate, falling; the bidder; the number of its option; the look it comes from; extra GPUs."""

LOOKS = 100
"""Rows that are looked at in the time that it takes to try one."""


def start(prepared: PreparedProblem, left: Left | None = None) -> Find:
    """Begin; answers come with an honest bound, and are rarely exact."""
    return GreedyFinder(prepared, left).find


class GreedyFinder:
    """Winner determinations on one problem. Work is counted in rows that were tried.

    Without one of the winners, the others keep what they have and share what it leaves: from
    scratch, hundreds of re-solves would take minutes.
    """

    def __init__(self, prepared: PreparedProblem, left: Left | None = None) -> None:
        self.prepared = prepared
        self.left = left
        self.counts = count_scarce(prepared)
        self.base: _Serving | None = None
        self.first: Determination | None = None

    def find(self, bidders: tuple[int, ...], budget: int | None) -> Determination:
        """Determine winners among these bidders."""
        again = self._without_one(bidders, budget)
        if again is not None:
            return again
        serving = _Serving(self.prepared, Room(self.prepared.machines), {}, budget, self.left)
        found = serving.serve(bidders)
        prices = price(self.prepared, self.counts, bidders, found.value)
        without = bound_without(self.prepared, self.counts, prices)
        exact = prices.bound <= found.value + 1e-9
        found = Determination(found.chosen, prices.bound, exact, found.work, found.place, without)
        if len(bidders) == len(self.prepared.bidders):
            self.base, self.first = serving, found
        return found

    def _without_one(self, bidders: tuple[int, ...], budget: int | None) -> Determination | None:
        """The answer for all but one of the bidders, if the one for all is known."""
        everyone = len(self.prepared.bidders)
        if self.base is None or self.first is None or len(bidders) != everyone - 1:
            return None
        gone = everyone * (everyone - 1) // 2 - sum(bidders)
        serving = self.base.without(gone, budget)
        found = serving.serve(bidders)
        assert self.first.without is not None
        bound = max(found.value, self.first.without(gone))
        return Determination(
            found.chosen, bound, bound <= found.value + 1e-9, found.work, found.place
        )


def serve(
    prepared: PreparedProblem, bidders: Sequence[int], start: Sequence[Option] = ()
) -> Determination:
    """A feasible allocation for these bidders, improving on `start` where that fits."""
    room = Room(prepared.machines)
    found = _Serving(prepared, room, _hold(prepared, room, start)).serve(bidders)
    return Determination(found.chosen, math.inf, False, 1, found.place)


class _Serving:
    """One allocation in the making."""

    def __init__(
        self,
        prepared: PreparedProblem,
        room: Room,
        held: Held,
        budget: int | None = None,
        left: Left | None = None,
    ) -> None:
        self.prepared = prepared
        self.room = room
        self.held = held
        self.budget = math.inf if budget is None else budget
        self.left = left
        self.work = 0
        self.free = sum(room.free.values())
        self.before: tuple[list[_Upgrade], Held] | None = None
        """Upgrades in rising order of extra GPUs, and what every bidder had when they were
        found."""

    @cached_property
    def known(self) -> list[_Upgrade]:
        """What every bidder would rather have, now that this allocation is made."""
        upgrades = [
            upgrade
            for i, options in enumerate(self.prepared.options)
            for upgrade in _upgrades(options, self.held.get(i))
        ]
        return sorted(upgrades, key=lambda upgrade: (upgrade[-1], upgrade))

    def without(self, gone: int, budget: int | None) -> "_Serving":
        """The same allocation once more, for others to share what one bidder has of it."""
        room = Room(self.room.machines)
        room.free = dict(self.room.free)
        room.slots = {machine: list(slots) for machine, slots in self.room.slots.items()}
        held = {i: had for i, had in self.held.items() if i != gone}
        for place in self.held[gone][1] if gone in self.held else ():
            room.give(place)
        others = _Serving(self.prepared, room, held, budget, self.left)
        others.before = (self.known, self.held)
        return others

    def serve(self, bidders: Sequence[int]) -> Determination:
        """Give these bidders what fits beside what is held."""
        self._serve_the_waiting(bidders)
        self._upgrade(bidders)
        if not self.held:
            # Taking chunk by chunk can miss the only way to fit a row of several.
            return first_that_packs(self.prepared, bidders)
        chosen = tuple(self.held[i][0] for i in sorted(self.held))
        places = tuple(self.held[i][1] for i in sorted(self.held))
        return Determination(chosen, math.inf, False, max(1, self.work), lambda: places)

    def _is_spent(self) -> bool:
        """Whether to leave it at what there is, if there is something."""
        return bool(self.held) and (self.work >= self.budget or is_late(self.left))

    def _serve_the_waiting(self, bidders: Sequence[int]) -> None:
        # A starved app has most to gain from its first GPUs, so it comes first.
        options = self.prepared.options
        waiting = [i for i in bidders if i not in self.held and options[i]]
        waiting.sort(key=lambda i: (-options[i][0].gain, i))
        for i in waiting:
            if not self.free or self._is_spent():
                return
            fitting = [option for option in options[i] if option.gpus <= self.free]
            for option in sorted(fitting, key=lambda o: (-o.gain / o.gpus, o.row)):
                if self._swap(option):
                    break

    def _upgrade(self, bidders: Sequence[int]) -> None:
        """Take the upgrade with the best gain per extra GPU, until none fits."""
        ahead = self._ahead(bidders)
        while not self._is_spent() and (best := ahead.pop(self.free)) is not None:
            before = self.free
            if not self._swap(best):
                ahead.hopeless.add((best.bidder, best.row))
                continue
            ahead.look_at(best.bidder, self.held)
            if self.free > before:
                ahead.look_again()
        self.work += ahead.looked // LOOKS

    def _ahead(self, bidders: Sequence[int]) -> "_Upgrades":
        ahead = _Upgrades(self.prepared)
        if self.before is None:
            for i in bidders:
                ahead.look_at(i, self.held)
            return ahead
        known, held = self.before
        present = set(bidders)
        within = bisect_right(known, self.free, key=lambda upgrade: upgrade[-1])
        ahead.take([upgrade for upgrade in known[:within] if upgrade[1] in present])
        for i in sorted(self.held.keys() - held.keys()):
            ahead.look_at(i, self.held)
        return ahead

    def _swap(self, option: Option) -> bool:
        """Give a bidder this row instead of what it has, if it fits."""
        before = self.held.get(option.bidder)
        extra = option.gpus - (before[0].gpus if before else 0)
        if extra > self.free or not self._within_caps(option):
            return False
        self.work += 1
        for place in before[1] if before else ():
            self.room.give(place)
        needs = _needs(self.prepared, option)
        order = sorted(range(len(needs)), key=lambda index: packing_order(needs[index]))
        taken = self.room.take_all(needs[index] for index in order)
        if taken is None:
            for place in before[1] if before else ():
                _retake(self.room, place)
            return False
        placed = dict(zip(order, taken, strict=True))
        places = tuple(placed[index] for index in range(len(needs)))
        self.held[option.bidder] = (option, places)
        self.free -= extra
        return True

    def _within_caps(self, option: Option) -> bool:
        if not self.prepared.caps:
            return True
        others = (o for i, (o, _) in self.held.items() if i != option.bidder)
        return self.prepared.within_caps([*others, option])


class _Upgrades:
    """The upgrades there are, best gain per extra GPU first."""

    def __init__(self, prepared: PreparedProblem) -> None:
        self.options = prepared.options
        self.hopeless: set[tuple[int, int]] = set()
        """Rows that did not fit."""
        self.looked = 0
        """At how many rows."""
        self._heap: list[_Upgrade] = []
        self._too_large: list[_Upgrade] = []
        self._looks: dict[int, int] = {}
        """How often each bidder was looked at: only what was seen the last time counts."""

    def take(self, known: Sequence[_Upgrade]) -> None:
        """Begin with upgrades that were worked out before."""
        self.looked += len(known)
        self._heap = list(known)
        heapq.heapify(self._heap)

    def look_at(self, bidder: int, held: Held) -> None:
        """Work out what a bidder gains by other rows than the one it has."""
        look = self._looks[bidder] = self._looks.get(bidder, 0) + 1
        for upgrade in _upgrades(self.options[bidder], held.get(bidder), look):
            self.looked += 1
            heapq.heappush(self._heap, upgrade)

    def look_again(self) -> None:
        """More is free than before: what was too large may not be any longer."""
        for upgrade in self._too_large:
            heapq.heappush(self._heap, upgrade)
        self._too_large = []

    def pop(self, free: int) -> Option | None:
        """The best one within what is free."""
        while self._heap:
            upgrade = heapq.heappop(self._heap)
            _, bidder, index, look, extra = upgrade
            option = self.options[bidder][index]
            if look < self._looks.get(bidder, 0) or (bidder, option.row) in self.hopeless:
                continue
            if extra <= free:
                return option
            self._too_large.append(upgrade)
        return None


def _upgrades(
    options: Sequence[Option], has: tuple[Option, tuple[Place, ...]] | None, look: int = 0
) -> Iterator[_Upgrade]:
    """What a bidder would rather have than what it has."""
    gain, gpus = (has[0].gain, has[0].gpus) if has else (0.0, 0)
    for index, option in enumerate(options):
        if option.gain <= gain:
            return  # options come in falling order of gain
        extra = option.gpus - gpus
        yield (gain - option.gain) / max(extra, 0.5), option.bidder, index, look, extra


def first_that_packs(prepared: PreparedProblem, bidders: Sequence[int]) -> Determination:
    """The best single row that fits: not much, but never nothing where there is something."""
    rows = [option for i in bidders for option in prepared.options[i]]
    for option in sorted(rows, key=lambda o: (-o.gain, o.bidder, o.row)):
        try:
            places = pack(prepared.machines, _needs(prepared, option), PACKING_LIMIT)
        except PackingLimitError:
            continue
        if places is not None and prepared.within_caps([option]):
            return Determination((option,), math.inf, False, 1, partial(_alone, tuple(places)))
    return Determination((), math.inf, False, 1, tuple)


def _alone(places: tuple[Place, ...]) -> tuple[tuple[Place, ...], ...]:
    return (places,)


def _hold(prepared: PreparedProblem, room: Room, start: Sequence[Option]) -> Held:
    needs = [(need, k) for k, option in enumerate(start) for need in _needs(prepared, option)]
    order = sorted(range(len(needs)), key=lambda index: packing_order(needs[index][0]))
    taken = room.take_all(needs[index][0] for index in order)
    if taken is None:
        return {}
    placed = dict(zip(order, taken, strict=True))
    places: list[list[Place]] = [[] for _ in start]
    for index, (_, k) in enumerate(needs):
        places[k].append(placed[index])
    return {o.bidder: (o, tuple(p)) for o, p in zip(start, places, strict=True)}


def _needs(prepared: PreparedProblem, option: Option) -> list[ChunkNeed]:
    return needs_of(prepared, (option,))


def _retake(room: Room, place: Place) -> None:
    for machine, slot, count in place:
        room.slots[machine][slot] -= count
        room.free[machine] -= count
