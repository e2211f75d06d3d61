"""Solvers by name, and what they share: the re-solve without each winner.

solution = solver("default").solve(problem)
solution.winners[app].row, solution.kept[app].high
"""

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Protocol, cast, runtime_checkable

from themis.core.auction.problem import Objective, Problem
from themis.core.auction.solution import TOLERANCE, WHOLE, Interval, Place, Solution, Win
from themis.core.auction.solvers.prepared import Option, PreparedProblem, prepare, scale_of
from themis.core.model import AppId
from themis.errors import ConfigError, unknown_name

_STARTS = {
    # Loaded on use: numpy and highspy are slow to import, the libraries of some are optional.
    "brute-force": "themis.core.auction.solvers.brute_force",
    "default": "themis.core.auction.solvers.default",
    "greedy": "themis.core.auction.solvers.greedy",
    "gurobi": "themis.core.auction.solvers.gurobi",
    "highs": "themis.core.auction.solvers.highs",
    "ladder": "themis.core.auction.solvers.ladder.ladder",
    "scip": "themis.core.auction.solvers.scip",
    "search": "themis.core.auction.solvers.search",
}
"""The module of each solver; its `start` begins work on a prepared problem."""

_BENCH = frozenset({"gurobi", "scip"})
"""The solvers whose libraries are in the `bench` extra."""


_NEEDS = {"default": ("ladder", "highs"), "ladder": ("highs",)}
"""Solvers that fall back on others."""

SHORT = 5e-9
"""Nats: what a value that a solver calls exact may be short of the best, for rounding's sake."""


_ROUNDING = 1e-10
"""Nats: sums of gains are exact to well below this."""


class Solver(Protocol):
    """Solves auctions: the same answer for the same problem, whatever its order."""

    @property
    def name(self) -> str:
        """What it is called in the registry and in records."""

    def solve(self, problem: Problem, budget: int | None = None) -> Solution:
        """Answer within about `budget` units of work (nodes), never with nothing in hand.

        Work is counted, not timed, so that a replay stops at the same place.
        """


@dataclass(frozen=True, slots=True)
class Determination:
    """An answer to one winner determination.

    `place` says where the chunks of each chosen option lie; it is asked only for the allocation
    that counts, since re-solves need no more than values.
    """

    chosen: tuple[Option, ...]
    bound: float
    exact: bool
    work: int
    place: Callable[[], tuple[tuple[Place, ...], ...]]
    without: Callable[[int], float] | None = None
    """A bound without one of the bidders that costs nothing, where there is one."""

    @property
    def value(self) -> float:
        """The gain of the chosen rows."""
        return math.fsum(option.gain for option in self.chosen)


Find = Callable[[tuple[int, ...], int | None], Determination]
"""Determine winners among some bidders (by number), within a budget."""

Left = Callable[[], float]
"""Seconds until an answer is due. Whoever gives it reads the clock; solvers have none."""


@runtime_checkable
class Revaluing(Protocol):
    """A finder that can start again with the same rows and other gains, keeping what it learned."""

    def revalued(self, prepared: PreparedProblem) -> Find:
        """How to determine winners at the gains of this problem, which has no other rows."""


class StartSolve(Protocol):
    """Begin work on a problem; the finder may remember things between determinations."""

    def __call__(self, prepared: PreparedProblem, left: Left | None = None, /) -> Find:
        """The finder. With `left` it returns its best when that comes to nothing."""


def restarted(
    find: Find | None, start: StartSolve, prepared: PreparedProblem, left: Left | None
) -> Find:
    """A finder for a problem that differs from that of `find` in its gains only."""
    again: object = find
    return again.revalued(prepared) if isinstance(again, Revaluing) else start(prepared, left)


@dataclass(frozen=True, slots=True)
class _Named:
    name: str
    start: StartSolve
    left: Left | None = None

    def solve(self, problem: Problem, budget: int | None = None) -> Solution:
        hurried = self.left is not None
        if problem.objective is Objective.LOTTERY:
            prepared = prepare(problem, hurried=hurried)
            solve = _load("themis.core.auction.lottery.lottery", self.name).solve_lottery
            return cast("Solution", solve(prepared, self.start, self.name, budget, self.left))
        # Solvers know absolute tolerances; with an average of about one they suit any weights.
        scale = scale_of(problem)
        prepared = prepare(problem, hurried=hurried, scale=scale)
        find = self.start(prepared, self.left)
        solution = leave_one_out(prepared, find, self.name, budget, self.left)
        return replace(solution, value=solution.value * scale, bound=solution.bound * scale)


def solver(name: str, left: Left | None = None) -> Solver:
    """The solver of this name.

    Args:
        name: One of `solver_names`.
        left: For live rounds: how many seconds are left until the answer is due. The solver
            returns the best it has soon after they have gone; what that is depends on the machine,
            so simulations give budgets of work instead.

    Raises:
        ConfigError: There is none, or its library is not installed.
    """
    return _Named(name, start_of(name), left)


def solver_names() -> tuple[str, ...]:
    """All solvers there are, installed or not."""
    return tuple(sorted(_STARTS))


def start_of(name: str) -> StartSolve:
    """How the solver of this name begins, for solvers made of others."""
    if name not in _STARTS:
        raise unknown_name("solver", name, _STARTS)
    return cast("StartSolve", _load(_STARTS[name], name).start)


def _load(module: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        where = ", in the `bench` extra" if name in _BENCH else ""
        needs = f"one that is installed: this needs {error.name}{where}"
        raise ConfigError("solver", name, needs) from error


def preload(name: str) -> None:
    """Load all that a solver may need, so that no round waits for it.

    Raises:
        ConfigError: There is no such solver, or a library of it is not installed.
    """
    for needed in (name, *_NEEDS.get(name, ())):
        start_of(needed)


def leave_one_out(
    prepared: PreparedProblem, find: Find, name: str, budget: int | None, left: Left | None = None
) -> Solution:
    """Determine the winners, then what each of them keeps: the shared frame of all solvers.

    Half the budget goes to the allocation, the rest evenly to the re-solves. When time is up or
    the budget spent, the intervals of those that are left come from prices.
    """
    everyone = tuple(range(len(prepared.bidders)))
    best = find(everyone, None if budget is None else max(1, budget // 2))
    work = best.work
    exact = best.exact
    winners: dict[AppId, Win] = {}
    kept: dict[AppId, Interval] = {}
    tops = [rows[0].gain if rows else 0.0 for rows in prepared.options]
    gains = [option.gain for option in best.chosen]
    total = math.fsum(tops)
    value = best.value
    bound = value if best.exact else max(value, best.bound)
    for count, (option, places) in enumerate(zip(best.chosen, best.place(), strict=True)):
        app = prepared.bidders[option.bidder].app
        winners[app] = Win(option.row, places)
        spent = budget is not None and work >= budget
        if best.without is not None and (spent or is_late(left)):
            high = min(best.without(option.bidder), total - tops[option.bidder])
            kept[app] = _unasked(value - option.gain, high, prepared.bidders[option.bidder].weight)
            exact = False
            continue
        share = None if budget is None else max(1, (budget - work) // (len(best.chosen) - count))
        served = math.fsum(gains[:count] + gains[count + 1 :])
        most = math.fsum(tops[: option.bidder] + tops[option.bidder + 1 :])
        rest = _Rest(find, best, bound, served, most)
        interval, proven, more = _kept(prepared, rest, option, share)
        kept[app] = interval
        exact = exact and proven
        work += more
    return Solution(winners, value, bound, kept, exact, name, work)


def is_late(left: Left | None) -> bool:
    """Whether the answer is due."""
    return left is not None and left() <= 0.0


@dataclass(frozen=True, slots=True)
class _Rest:
    """What is known when one winner's fraction is to be found."""

    find: Find
    best: Determination
    bound: float
    """Of the best allocation among all."""
    served: float
    """What all others have."""
    most: float
    """What they would have if every bidder got its best row."""


def _kept(
    prepared: PreparedProblem, rest: _Rest, option: Option, budget: int | None
) -> tuple[Interval, bool, int]:
    """What a winner keeps, whether that is proven, and the work it took."""
    best, served = rest.best, rest.served
    weight = prepared.bidders[option.bidder].weight
    others = tuple(i for i in range(len(prepared.bidders)) if i != option.bidder)
    if SHORT / weight > TOLERANCE:
        return _kept_by_the_light(prepared, rest, option, others, budget)
    if rest.most <= served + 1e-12:
        return WHOLE, True, 0  # no bidder is denied anything: no re-solve is needed
    alone = rest.find(others, budget)
    low = high = max(alone.value, served)
    if not alone.exact:
        # One more bidder cannot make the best worse, so the bound of the whole holds here too.
        bound = min(rest.most, rest.bound, alone.bound)
        if best.without is not None:
            bound = min(bound, best.without(option.bidder))
        high = max(low, bound)
    interval = Interval(_fraction(served - high, weight), _fraction(served - low, weight))
    return interval, alone.exact, alone.work


def _kept_by_the_light(
    prepared: PreparedProblem,
    rest: _Rest,
    option: Option,
    others: tuple[int, ...],
    budget: int | None,
) -> tuple[Interval, bool, int]:
    """The same for who weighs so little that it feels what is rounding to the others.

    Sums are taken over what changes only, and what a solver calls exact leaves something open.
    """
    weight = prepared.bidders[option.bidder].weight
    have = [other.gain for other in rest.best.chosen if other.bidder != option.bidder]
    tops = [prepared.options[i][0].gain for i in others if prepared.options[i]]
    if math.fsum([*tops, *(-gain for gain in have)]) <= 0.0:
        return WHOLE, True, 0
    alone = rest.find(others, budget)
    harm = min(0.0, math.fsum([*have, *(-other.gain for other in alone.chosen)]))
    gap = SHORT if alone.exact else SHORT + max(0.0, alone.bound - max(alone.value, rest.served))
    return Interval(_fraction(harm - gap, weight), _fraction(harm, weight)), False, alone.work


def _unasked(served: float, high: float, weight: float) -> Interval:
    """What a winner keeps if all that is known of the others is what they could have at best."""
    return Interval(_fraction(min(0.0, served - high - _ROUNDING), weight), 1.0)


def _fraction(harm: float, weight: float) -> float:
    # A heuristic may serve the others better with us present; no bidder is paid to take part.
    return math.exp(min(0.0, harm / weight))
