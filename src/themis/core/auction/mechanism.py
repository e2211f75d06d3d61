"""From a solved auction to awards: bind GPUs, take the hidden payments, name the leftover.

solution = draw(solution, rng)
bound = bind(solution, offered, held, topology)
outcome = settle(solution, bound, units, payment("lottery"), 600.0, topology, offered, rng_for)
outcome.awards[app].gpus, outcome.leftover
"""

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from themis.core.auction.payments import Award, Payment, Won
from themis.core.auction.solution import Solution, Win
from themis.core.model import AppId, GpuId, Topology
from themis.errors import InvariantError

Bound = tuple[tuple[GpuId, ...], ...]
"""The GPUs of a won row, chunk by chunk."""


@dataclass(frozen=True, slots=True)
class AuctionOutcome:
    """A settled auction. The awards' GPUs and the leftover partition the offer."""

    awards: Mapping[AppId, Award]
    leftover: tuple[GpuId, ...]


def draw(solution: Solution, rng: random.Random) -> Solution:
    """Draw a ticket where the solution is a lottery: its winners, and what they keep."""
    if not solution.lottery:
        return solution
    (ticket,) = rng.choices(solution.lottery, [t.probability for t in solution.lottery])
    kept = {app: solution.kept[app] for app in ticket.winners}
    return replace(solution, winners=ticket.winners, kept=kept)


def bind(
    solution: Solution,
    offered: Collection[GpuId],
    held: Mapping[AppId, Collection[GpuId]],
    topology: Topology,
) -> dict[AppId, Bound]:
    """Choose GPU ids for what was won, those an app runs on now before any others.

    Raises:
        InvariantError: The solution takes more GPUs of a slot than were offered.
    """
    free: dict[tuple[int, int], list[GpuId]] = {}
    for gpu in sorted(offered):
        seat = topology.seats[gpu]
        free.setdefault((seat.machine, seat.slot), []).append(gpu)
    apps = sorted(solution.winners)
    wins = _stayed({app: solution.winners[app] for app in apps}, held, free, topology)
    # Every app first takes what it holds; only then may any bidder take the others' GPUs.
    pieces = {app: _own(wins[app], held.get(app, ()), free, topology) for app in apps}
    return {app: _filled(app, wins[app], pieces[app], free, topology) for app in apps}


def _stayed(
    wins: Mapping[AppId, Win],
    held: Mapping[AppId, Collection[GpuId]],
    free: Mapping[tuple[int, int], list[GpuId]],
    topology: Topology,
) -> dict[AppId, Win]:
    """Let chunks in one slot stay in the slot of their machine that their app runs in now.

    Bids name machines: which slot of one it is makes no difference to them, unless the app has to
    move for it. Only room that no bidder has won is used, so that no other bidder moves.
    """
    room = {place: len(gpus) for place, gpus in free.items()}
    for win in wins.values():
        for machine, slot, count in (piece for chunk in win.chunks for piece in chunk):
            place = (machine, topology.slots_of[machine][slot])
            room[place] = room.get(place, 0) - count
    stayed = dict(wins)
    for app in sorted(wins):
        mine = _by_slot(held.get(app, ()), free, topology)
        chunks = []
        for chunk in wins[app].chunks:
            machine, slot, count = chunk[0]
            here = (machine, topology.slots_of[machine][slot])
            home = _home(machine, count, mine, room)
            if len(chunk) > 1 or home is None or mine.get(here, 0) >= count:
                chunks.append(chunk)
                mine[here] = mine.get(here, 0) - count
                continue
            room[here] += count
            room[home] -= count
            mine[home] -= count
            chunks.append(((machine, topology.slots_of[machine].index(home[1]), count),))
        stayed[app] = replace(wins[app], chunks=tuple(chunks))
    return stayed


def _by_slot(
    gpus: Collection[GpuId], free: Mapping[tuple[int, int], list[GpuId]], topology: Topology
) -> dict[tuple[int, int], int]:
    """How many of these GPUs are offered in each slot."""
    found: dict[tuple[int, int], int] = {}
    for gpu in gpus:
        seat = topology.seats[gpu]
        if gpu in free.get((seat.machine, seat.slot), ()):
            found[seat.machine, seat.slot] = found.get((seat.machine, seat.slot), 0) + 1
    return found


def _home(
    machine: int,
    count: int,
    mine: Mapping[tuple[int, int], int],
    room: Mapping[tuple[int, int], int],
) -> tuple[int, int] | None:
    """A slot of a machine where an app has this many GPUs that no other bidder has won."""
    able = [
        place
        for place, own in sorted(mine.items())
        if place[0] == machine and own >= count and room.get(place, 0) >= count
    ]
    return able[0] if able else None


def _own(
    win: Win,
    held: Collection[GpuId],
    free: Mapping[tuple[int, int], list[GpuId]],
    topology: Topology,
) -> list[list[GpuId]]:
    mine = set(held)
    chunks: list[list[GpuId]] = []
    for place in win.chunks:
        chunk: list[GpuId] = []
        for machine, slot, count in place:
            pool = free.get((machine, topology.slots_of[machine][slot]), [])
            own = [gpu for gpu in pool if gpu in mine][:count]
            for gpu in own:
                pool.remove(gpu)
            chunk.extend(own)
        chunks.append(chunk)
    return chunks


def _filled(
    app: AppId,
    win: Win,
    pieces: list[list[GpuId]],
    free: Mapping[tuple[int, int], list[GpuId]],
    topology: Topology,
) -> Bound:
    for place, chunk in zip(win.chunks, pieces, strict=True):
        for machine, slot, count in place:
            number = topology.slots_of[machine][slot]
            have = sum(1 for gpu in chunk if topology.seats[gpu].slot == number)
            pool = free.get((machine, number), [])
            if len(pool) < count - have:
                raise InvariantError(f"{app}: machine {machine} slot {slot} lacks offered GPUs")
            chunk.extend(pool[: count - have])
            del pool[: count - have]
    return tuple(tuple(sorted(chunk)) for chunk in pieces)


def settle(
    solution: Solution,
    bound: Mapping[AppId, Bound],
    units: Mapping[AppId, int],
    payment: Payment,
    lease: float,
    topology: Topology,
    offered: Collection[GpuId],
    rng_for: Callable[[AppId], random.Random],
) -> AuctionOutcome:
    """Take the payments. `units` is each winner's smallest gang (1 when missing).

    With an interval of kept fractions the upper end counts: it follows from allocations in hand,
    where the lower one follows from what might exist.

    Raises:
        InvariantError: A GPU was bound twice or was not offered.
    """
    awards: dict[AppId, Award] = {}
    unbound = set(offered)
    for app in sorted(solution.winners):
        row = [gpu for chunk in bound[app] for gpu in chunk]
        if len(set(row)) != len(row) or not unbound.issuperset(row):
            raise InvariantError(f"{app}: a GPU of its row is bound twice or was not offered")
        unbound.difference_update(row)
        won = Won(bound[app], solution.kept[app].high, units.get(app, 1), lease, topology)
        awards[app] = payment.award(won, rng_for(app))
    awarded = {gpu for award in awards.values() for gpu in award.gpus}
    return AuctionOutcome(awards, tuple(sorted(set(offered) - awarded)))
