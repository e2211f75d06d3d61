"""A solved auction, and the check that it keeps its promises.

The value is the gain over no bidder winning anything: the sum of w_i log(rho_nothing_i / rho_i). Of
a lottery it is the sum of w_i log E[1/rho_i - 1/rho_nothing_i] over the apps that can win at all.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from themis.core.auction.problem import Bidder, Objective, OfferedMachine, Problem, normal
from themis.core.model import CLUSTER, MACHINE, RACK, SLOT, AppId, Chunk
from themis.errors import InvariantError

Place = tuple[tuple[int, int, int], ...]
"""Where one chunk lies: (machine, slot within the machine, GPUs) each."""

TOLERANCE = 1e-6
"""Nats, for a bidder of average weight. Solvers work in floating point; below this, values count as
equal."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A number known to lie between two others."""

    low: float
    high: float


WHOLE = Interval(1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Win:
    """The row an app won, and where each of its chunks lies, in the row's order."""

    row: int
    chunks: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Ticket:
    """One allocation of a lottery, and how likely it is drawn."""

    probability: float
    winners: Mapping[AppId, Win]


@dataclass(frozen=True, slots=True)
class Solution:
    """Who wins what, how good that is, and how good it could be at best.

    `kept` holds the kept fraction of each winner. When the solver stopped early it is an interval:
    it contains the fraction this allocation owes, whatever the re-solves would have found.
    `exact` says that value and kept fractions are proven (to within `TOLERANCE` nats
    of a bidder of average weight, kept fractions to within as much of the winner's own weight).
    `lottery` answers a problem that asks for one, likeliest ticket first: `winners` are then those
    of one ticket (the first, until one is drawn), and `kept` is about whoever may be drawn.
    """

    winners: Mapping[AppId, Win]
    value: float
    bound: float
    kept: Mapping[AppId, Interval]
    exact: bool
    solver: str
    work: int
    lottery: tuple[Ticket, ...] = ()


def check_solution(problem: Problem, solution: Solution) -> None:
    """Check an answer against its question.

    Raises:
        InvariantError: The allocation is not possible, or not worth what it says.
    """
    if problem.objective is Objective.LOTTERY:
        winners, value = _check_lottery(problem, solution)
    else:
        winners, value = set(solution.winners), _check_allocation(problem, solution.winners)
    _check_numbers(solution, winners, value)


def _check_allocation(problem: Problem, winners: Mapping[AppId, Win]) -> float:
    """Check that the rows won are possible together; returns what they gain."""
    bidders = {bidder.app: bidder for bidder in problem.bidders}
    machines = {offered.machine: offered for offered in problem.machines}
    used: dict[tuple[int, int], int] = {}
    value = 0.0
    for app, win in winners.items():
        if app not in bidders:
            raise InvariantError(f"{app} wins without a bid")
        value += _check_win(bidders[app], win, machines, used)
    for (machine, slot), count in sorted(used.items()):
        if count > machines[machine].slots[slot]:
            raise InvariantError(f"machine {machine} slot {slot}: a GPU is used twice")
    _check_quotas(problem, winners, bidders)
    return value


def _check_lottery(problem: Problem, solution: Solution) -> tuple[set[AppId], float]:
    """Check every ticket; returns who may win, and the value of the lottery."""
    bidders = {bidder.app: bidder for bidder in problem.bidders}
    expected: dict[AppId, float] = {}
    for ticket in solution.lottery:
        if not 0.0 < ticket.probability <= 1.0:
            raise InvariantError(f"a ticket is drawn with probability {ticket.probability}")
        _check_allocation(problem, ticket.winners)
        for app, win in ticket.winners.items():
            gained = ticket.probability * _improvement(bidders[app], win.row)
            expected[app] = expected.get(app, 0.0) + gained
    total = math.fsum(ticket.probability for ticket in solution.lottery)
    if solution.lottery and not math.isclose(total, 1.0, rel_tol=1e-9):
        raise InvariantError(f"the tickets of a lottery are drawn with probability {total}")
    drawn = [ticket.winners for ticket in solution.lottery] or [{}]
    if not any(solution.winners == winners for winners in drawn):
        raise InvariantError("the winners are not those of a ticket of the lottery")
    value = math.fsum(bidders[app].weight * math.log(mean) for app, mean in expected.items())
    return set(expected), value


def _improvement(bidder: Bidder, row: int) -> float:
    if bidder.rows[row].rho >= bidder.rho_nothing:
        raise InvariantError(f"{bidder.app} may win row {row}, which is not better than nothing")
    return math.exp(bidder.log_improvement(row))


def _check_win(
    bidder: Bidder,
    win: Win,
    machines: Mapping[int, OfferedMachine],
    used: dict[tuple[int, int], int],
) -> float:
    if not 0 <= win.row < len(bidder.rows):
        raise InvariantError(f"{bidder.app} wins row {win.row}, which it did not bid")
    wanted = bidder.rows[win.row].chunks
    if len(wanted) != len(win.chunks):
        raise InvariantError(f"{bidder.app}: {len(win.chunks)} chunks for {len(wanted)} bid")
    for chunk, place in zip(wanted, win.chunks, strict=True):
        for machine, slot, count in place:
            known = machine in machines and 0 <= slot < len(machines[machine].slots)
            if not known or count < 1:
                raise InvariantError(f"{bidder.app}: no machine {machine} slot {slot} x{count}")
            if bidder.machines is not None and machine not in bidder.machines:
                raise InvariantError(f"{bidder.app}: machine {machine} is not allowed")
            used[machine, slot] = used.get((machine, slot), 0) + count
        _check_place(bidder.app, normal(chunk), place, machines)
    return bidder.gain(win.row)


def _check_place(
    app: AppId, chunk: Chunk, place: Place, machines: Mapping[int, OfferedMachine]
) -> None:
    if sum(count for _, _, count in place) != chunk.count:
        raise InvariantError(f"{app}: {place} is not the {chunk.count} GPUs of its chunk")
    if chunk.machine is not None and any(machine != chunk.machine for machine, _, _ in place):
        raise InvariantError(f"{app}: a chunk pinned to machine {chunk.machine} lies elsewhere")
    if place_level(place, machines) > chunk.level:
        raise InvariantError(f"{app}: a chunk is spread wider than level {chunk.level}")


def place_level(place: Place, machines: Mapping[int, OfferedMachine]) -> int:
    """How far apart the GPUs of a place are."""
    if len({(machine, slot) for machine, slot, _ in place}) <= 1:
        return SLOT
    if len({machine for machine, _, _ in place}) == 1:
        return MACHINE
    return RACK if len({machines[machine].rack for machine, _, _ in place}) == 1 else CLUSTER


def _check_quotas(
    problem: Problem, winners: Mapping[AppId, Win], bidders: Mapping[AppId, Bidder]
) -> None:
    for quota in problem.quotas:
        won = sum(
            bidders[app].rows[winners[app].row].gpus
            for app in sorted(set(quota.apps))
            if app in winners
        )
        if won > quota.gpus:
            raise InvariantError(f"quota of {quota.gpus} exceeded: {won} GPUs won")


def _check_numbers(solution: Solution, winners: set[AppId], value: float) -> None:
    if not math.isclose(value, solution.value, rel_tol=1e-9, abs_tol=1e-9):
        raise InvariantError(f"value {solution.value} does not match the rows won ({value})")
    if solution.bound < solution.value - 1e-9:
        raise InvariantError(f"bound {solution.bound} below the value {solution.value}")
    if set(solution.kept) != winners:
        raise InvariantError("kept fractions are not those of the winners")
    for app, kept in solution.kept.items():
        if not 0.0 <= kept.low <= kept.high <= 1.0:
            raise InvariantError(f"{app}: kept fraction [{kept.low}, {kept.high}] is not in [0, 1]")
