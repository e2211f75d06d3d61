"""A feasible answer at once: something for the starved first, then the best upgrades.

The seed of the other solvers and the answer when there is no time for one.
"""

import math
from collections.abc import Sequence
from functools import partial

from themis.auction.bounds import count_scarce, price
from themis.auction.packing import PackingLimitError, needs_of, pack
from themis.auction.prepared import Option, Prepared
from themis.auction.room import Need, Room, packing_order
from themis.auction.solution import Place
from themis.auction.solver import Find, Found, Left

PACKING_LIMIT = 300
"""Steps to fit a single row, where nothing else was found."""

Held = dict[int, tuple[Option, tuple[Place, ...]]]
"""What each bidder has so far."""


def start(prepared: Prepared, _: Left | None = None) -> Find:
    """Begin; answers come with an honest bound, and are rarely exact."""
    counts = count_scarce(prepared)

    def find(bidders: tuple[int, ...], _: int | None) -> Found:
        found = serve(prepared, bidders)
        bound = price(prepared, counts, bidders, found.value).bound
        return Found(found.chosen, bound, bound <= found.value + 1e-9, 1, found.place)

    return find


def serve(prepared: Prepared, bidders: Sequence[int], start: Sequence[Option] = ()) -> Found:
    """A feasible allocation for these bidders, improving on `start` where that fits."""
    room = Room(prepared.machines)
    held = _hold(prepared, room, start)
    # A starved app has most to gain from its first GPUs, so it comes first.
    waiting = [i for i in bidders if i not in held and prepared.options[i]]
    waiting.sort(key=lambda i: (-prepared.options[i][0].gain, i))
    for i in waiting:
        for option in sorted(prepared.options[i], key=lambda o: (-o.gain / o.gpus, o.row)):
            if _swap(prepared, room, held, option):
                break
    _upgrade(prepared, room, held, bidders)
    if not held:
        # Taking chunk by chunk can miss the only way to fit a row of several.
        return first_that_packs(prepared, bidders)
    chosen = tuple(held[i][0] for i in sorted(held))
    places = tuple(held[i][1] for i in sorted(held))
    return Found(chosen, math.inf, False, 1, lambda: places)


def first_that_packs(prepared: Prepared, bidders: Sequence[int]) -> Found:
    """The best single row that fits: not much, but never nothing where there is something."""
    rows = [option for i in bidders for option in prepared.options[i]]
    for option in sorted(rows, key=lambda o: (-o.gain, o.bidder, o.row)):
        try:
            places = pack(prepared.machines, _needs(prepared, option), PACKING_LIMIT)
        except PackingLimitError:
            continue
        if places is not None and prepared.within_caps([option]):
            return Found((option,), math.inf, False, 1, partial(_alone, tuple(places)))
    return Found((), math.inf, False, 1, tuple)


def _alone(places: tuple[Place, ...]) -> tuple[tuple[Place, ...], ...]:
    return (places,)


def _hold(prepared: Prepared, room: Room, start: Sequence[Option]) -> Held:
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


def _upgrade(prepared: Prepared, room: Room, held: Held, bidders: Sequence[int]) -> None:
    """Take the upgrade with the best gain per extra GPU, until none fits."""
    hopeless: set[tuple[int, int]] = set()
    while True:
        free = sum(room.free.values())
        best: tuple[float, int, Option] | None = None
        for i in bidders:
            gain, gpus = (held[i][0].gain, held[i][0].gpus) if i in held else (0.0, 0)
            for option in prepared.options[i]:
                if option.gain <= gain:
                    break
                extra = option.gpus - gpus
                if extra > free or (i, option.row) in hopeless:
                    continue
                rate = (option.gain - gain) / max(extra, 0.5)
                if best is None or rate > best[0]:
                    best = (rate, i, option)
        if best is None:
            return
        if not _swap(prepared, room, held, best[2]):
            hopeless.add((best[1], best[2].row))


def _swap(prepared: Prepared, room: Room, held: Held, option: Option) -> bool:
    """Give a bidder this row instead of what it has, if it fits."""
    before = held.get(option.bidder)
    others = [o for i, (o, _) in held.items() if i != option.bidder]
    if not prepared.within_caps([*others, option]):
        return False
    for place in before[1] if before else ():
        room.give(place)
    needs = _needs(prepared, option)
    order = sorted(range(len(needs)), key=lambda index: packing_order(needs[index]))
    taken = room.take_all(needs[index] for index in order)
    if taken is None:
        for place in before[1] if before else ():
            _retake(room, place)
        return False
    placed = dict(zip(order, taken, strict=True))
    held[option.bidder] = (option, tuple(placed[index] for index in range(len(needs))))
    return True


def _needs(prepared: Prepared, option: Option) -> list[Need]:
    return needs_of(prepared, (option,))


def _retake(room: Room, place: Place) -> None:
    for machine, slot, count in place:
        room.slots[machine][slot] -= count
        room.free[machine] -= count
