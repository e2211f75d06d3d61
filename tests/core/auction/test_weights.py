"""Weights of any size: only how they compare counts, and nothing is claimed that is not known."""

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from themis.core.auction import Problem, Solution, check_solution, solver
from themis.core.auction.solvers.prepared import scale_of
from themis.core.model import AppId

MakeProblem = Callable[[int], Problem]


def _weighted(problem: Problem, weights: list[float]) -> Problem:
    pairs = zip(problem.bidders, weights, strict=True)
    return replace(problem, bidders=tuple(replace(b, weight=weight) for b, weight in pairs))


def _rows(solution: Solution) -> dict[AppId, int]:
    return {app: win.row for app, win in solution.winners.items()}


@pytest.mark.parametrize("name", ["default", "ladder", "highs", "search", "greedy"])
@pytest.mark.parametrize("factor", [2.0**-40, 1e-8, 1e-12, 1e9])
def test_only_the_ratio_of_weights_counts(
    name: str, factor: float, make_problem: MakeProblem
) -> None:
    for seed in range(15):
        problem = make_problem(seed)
        scaled = _weighted(problem, [bidder.weight * factor for bidder in problem.bidders])
        before, after = solver(name).solve(problem), solver(name).solve(scaled)
        check_solution(scaled, after)
        assert after.exact == before.exact
        assert after.value / factor == pytest.approx(before.value, abs=1e-9)
        assert after.bound / factor == pytest.approx(before.bound, abs=1e-9)
        if _rows(after) == _rows(before):
            for app, kept in before.kept.items():
                assert after.kept[app].low == pytest.approx(kept.low, abs=1e-6)
                assert after.kept[app].high == pytest.approx(kept.high, abs=1e-6)


def _true_fraction(problem: Problem, solution: Solution, app: AppId) -> float:
    others = {bidder.app: bidder for bidder in problem.bidders if bidder.app != app}
    without = solver("brute-force").solve(replace(problem, bidders=tuple(others.values())))
    # Summed up at once: what stays as it is cancels out, however much it weighs.
    terms = [others[other].gain(win.row) for other, win in solution.winners.items() if other != app]
    terms += [-others[other].gain(win.row) for other, win in without.winners.items()]
    weight = next(bidder.weight for bidder in problem.bidders if bidder.app == app)
    return math.exp(min(0.0, math.fsum(terms) / weight))


@pytest.mark.parametrize("name", ["default", "ladder", "highs"])
def test_claims_hold_for_weights_of_many_orders_of_magnitude(
    name: str, make_problem: MakeProblem
) -> None:
    for seed in range(60):
        rng = random.Random(seed)
        plain = make_problem(seed)
        weights = [rng.choice([1e6, 1.0, 1e-3, 1e-6, 1e-9]) for _ in plain.bidders]
        problem = _weighted(plain, weights)
        solution, truth = solver(name).solve(problem), solver("brute-force").solve(problem)
        check_solution(problem, solution)
        assert solution.bound >= truth.value - 1e-8 * scale_of(problem)
        for app, kept in solution.kept.items():
            fraction = _true_fraction(problem, solution, app)
            assert kept.low - 1e-4 <= fraction <= kept.high + 1e-4, (seed, app)


def test_weights_at_the_ends_of_what_is_allowed_are_settled(make_problem: MakeProblem) -> None:
    for seed in range(10):
        plain = make_problem(seed)
        problem = _weighted(plain, [10.0 ** (15 - 30 * (i % 2)) for i in range(len(plain.bidders))])
        check_solution(problem, solver("default").solve(problem))
