"""From the columns of a solved class program to places on machines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from themis.auction.milp import LOOSE, Kind, Model, kind_of
from themis.auction.packing import by_option, pack
from themis.auction.patterns import Size
from themis.auction.prepared import Option, Prepared
from themis.auction.room import Need
from themis.auction.solution import Place
from themis.errors import InvariantError
from themis.model import RACK


def placing(
    prepared: Prepared, model: Model, chosen: tuple[Option, ...], values: list[int]
) -> Callable[[], tuple[tuple[Place, ...], ...]]:
    """How to find out where the chosen rows lie, from the values of the program's columns."""

    def place() -> tuple[tuple[Place, ...], ...]:
        places = pack(prepared.machines, _decode(prepared, model, chosen, values))
        if places is None:
            raise InvariantError("the rows the program chose do not fit", chosen)
        return by_option(chosen, places)

    return place


@dataclass(slots=True)
class _Stock:
    """What the program promised: holes by machine, and chunks of each kind by class and rack."""

    holes: dict[int, dict[Size, int]]
    hard: dict[Kind, list[tuple[int, int]]]
    racks: dict[Kind, list[tuple[int, int]]]


def _decode(
    prepared: Prepared, model: Model, chosen: Sequence[Option], values: list[int]
) -> list[Need]:
    """The chosen chunks, pinned to the machines and racks that the program found for them."""
    stock = _stock(model, values)
    needs = []
    for option in chosen:
        allowed = prepared.bidders[option.bidder].machines
        for chunk in option.chunks:
            kind = kind_of(chunk, model.groups[option.bidder])
            if kind[0] == RACK:
                needs.append(Need(chunk, allowed, _draw(stock.racks[kind])))
            elif kind[0] == LOOSE or chunk.machine is not None:
                needs.append(Need(chunk, allowed))
            else:
                members = model.classes[_draw(stock.hard[kind])].members
                machine = _take_hole(stock.holes, members, kind[:2])
                needs.append(Need(replace(chunk, machine=machine), allowed))
    return needs


def _stock(model: Model, values: list[int]) -> _Stock:
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
    raise InvariantError("the program placed fewer chunks than it chose")


def _take_hole(holes: dict[int, dict[Size, int]], members: Sequence[int], size: Size) -> int:
    for machine in members:
        room = holes.get(machine, {})
        if room.get(size, 0) > 0:
            room[size] -= 1
            return machine
    raise InvariantError("the program cut fewer holes than it filled")
