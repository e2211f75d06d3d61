"""From the columns of a solved class program back to rows won and where they lie.

Shared by all solvers that are given the program of `milp`: what they choose is read in one way.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from themis.core.auction.packing.exact import by_option, pack
from themis.core.auction.packing.free_gpus import ChunkNeed
from themis.core.auction.solution import Place
from themis.core.auction.solvers.bounds import bound_without, count_scarce, price
from themis.core.auction.solvers.greedy import serve
from themis.core.auction.solvers.ladder.machine_patterns import Size
from themis.core.auction.solvers.milp import LOOSE, Kind, MilpModel, kind_of
from themis.core.auction.solvers.prepared import Option, PreparedProblem
from themis.core.auction.solvers.registry import SHORT, Determination
from themis.core.model import RACK
from themis.errors import InvariantError


@dataclass(frozen=True, slots=True)
class MilpAnswer:
    """What a solver says of the program: whole values of its columns, none if it found none."""

    values: Sequence[int]
    exact: bool
    bound: float
    """Proven; infinite if nothing is."""
    work: int


def decode(
    prepared: PreparedProblem, model: MilpModel, bidders: Sequence[int], answer: MilpAnswer
) -> Determination:
    """The winners; a greedy answer where the solver stopped before it had a better one."""
    values = answer.values
    chosen = tuple(
        option
        for bidder in bidders
        for option, column in model.rows[bidder]
        if values and values[column]
    )
    place = _placing(prepared, model, chosen, values)
    without = _bounding(prepared, bidders, math.fsum(option.gain for option in chosen))
    found = Determination(chosen, 0.0, answer.exact, answer.work, place, without)
    # That it is the best counts only if the bound which the solver proved says so too.
    if answer.exact and answer.bound <= found.value + SHORT * max(1.0, found.value):
        return replace(found, bound=found.value)
    hopes = sum(rows[0].gain for i in bidders if (rows := prepared.options[i]))
    seed = serve(prepared, bidders)
    if not values or seed.value > found.value:
        found = replace(seed, work=answer.work, without=without)
    return replace(found, bound=max(min(hopes, answer.bound), found.value), exact=False)


def _bounding(
    prepared: PreparedProblem, bidders: Sequence[int], floor: float
) -> Callable[[int], float]:
    """Bounds without one of the bidders, for when there is no budget left to ask the solver."""

    @cache
    def bounds() -> Callable[[int], float]:
        # On demand: with a sufficient budget it is not needed.
        counts = count_scarce(prepared)
        return bound_without(prepared, counts, price(prepared, counts, bidders, floor))

    def without(bidder: int) -> float:
        return bounds()(bidder)

    return without


def _placing(
    prepared: PreparedProblem, model: MilpModel, chosen: tuple[Option, ...], values: Sequence[int]
) -> Callable[[], tuple[tuple[Place, ...], ...]]:
    def place() -> tuple[tuple[Place, ...], ...]:
        places = pack(prepared.machines, _needs(prepared, model, chosen, values))
        if places is None:
            raise InvariantError("the rows that the solver chose do not fit", chosen)
        return by_option(chosen, places)

    return place


@dataclass(slots=True)
class _Stock:
    """What the program promised: holes by machine, and chunks of each kind by class and rack."""

    holes: dict[int, dict[Size, int]]
    hard: dict[Kind, list[tuple[int, int]]]
    racks: dict[Kind, list[tuple[int, int]]]


def _needs(
    prepared: PreparedProblem, model: MilpModel, chosen: Sequence[Option], values: Sequence[int]
) -> list[ChunkNeed]:
    """The chosen chunks, pinned to the machines and racks that the program found for them."""
    stock = _stock(model, values)
    needs = []
    for option in chosen:
        allowed = prepared.bidders[option.bidder].machines
        for chunk in option.chunks:
            kind = kind_of(chunk, model.groups[option.bidder])
            if kind[0] == RACK:
                needs.append(ChunkNeed(chunk, allowed, _draw(stock.racks[kind])))
            elif kind[0] == LOOSE or chunk.machine is not None:
                needs.append(ChunkNeed(chunk, allowed))
            else:
                members = model.classes[_draw(stock.hard[kind])].members
                machine = _take_hole(stock.holes, members, kind[:2])
                needs.append(ChunkNeed(replace(chunk, machine=machine), allowed))
    return needs


def _stock(model: MilpModel, values: Sequence[int]) -> _Stock:
    holes: dict[int, dict[Size, int]] = {}
    used: dict[int, int] = {}
    for column, members, held in model.cuts:
        for _ in range(values[column]):
            if len(members) == 1:
                machine = members[0]
            else:
                machine = members[used.get(members[0], 0)]
                used[members[0]] = used.get(members[0], 0) + 1
            room = holes.setdefault(machine, {})
            for size, count in held.items():
                room[size] = room.get(size, 0) + count
    hard: dict[Kind, list[tuple[int, int]]] = {}
    for (kind, number), column in model.hard.items():
        hard.setdefault(kind, []).append((number, values[column]))
    racks: dict[Kind, list[tuple[int, int]]] = {}
    for (kind, rack), column in model.racks.items():
        racks.setdefault(kind, []).append((rack, values[column]))
    return _Stock(holes, hard, racks)


def _draw(left: list[tuple[int, int]]) -> int:
    for index, (where, count) in enumerate(left):
        if count > 0:
            left[index] = (where, count - 1)
            return where
    raise InvariantError("the solver placed fewer chunks than it chose")


def _take_hole(holes: dict[int, dict[Size, int]], members: Sequence[int], size: Size) -> int:
    for machine in members:
        room = holes.get(machine, {})
        if room.get(size, 0) > 0:
            room[size] -= 1
            return machine
    raise InvariantError("the solver cut fewer holes than it filled")
