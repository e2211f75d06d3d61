"""Auctions over lotteries, against an enumeration of all allocations."""

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from themis.core.auction import (
    Bidder,
    Candidate,
    Interval,
    Objective,
    OfferedMachine,
    Problem,
    Quota,
    Solution,
    Ticket,
    Win,
    check_solution,
    draw,
    solver,
)
from themis.core.auction.packing.exact import pack
from themis.core.auction.packing.free_gpus import ChunkNeed
from themis.core.auction.problem import normal
from themis.core.model import MACHINE, SLOT, AppId, Chunk
from themis.errors import InvariantError
from themis.testing.solvers import random_problem

MakeProblem = Callable[[int], Problem]
A, B, C = AppId("a"), AppId("b"), AppId("c")


def _asking(problem: Problem) -> Problem:
    return replace(problem, objective=Objective.LOTTERY)


def _solve(problem: Problem, name: str = "search", budget: int | None = None) -> Solution:
    asked = _asking(problem)
    solution = solver(name).solve(asked, budget)
    check_solution(asked, solution)
    return solution


def _improvement(bidder: Bidder, row: int) -> float:
    return max(0.0, 1.0 / bidder.rows[row].rho - 1.0 / bidder.rho_nothing)


def _fits(problem: Problem, picked: Sequence[int | None]) -> bool:
    won = {
        bidder.app: bidder.rows[row]
        for bidder, row in zip(problem.bidders, picked, strict=True)
        if row is not None
    }
    for quota in problem.quotas:
        if sum(row.gpus for app, row in won.items() if app in quota.apps) > quota.gpus:
            return False
    allowed = {bidder.app: bidder.machines for bidder in problem.bidders}
    needs = [
        ChunkNeed(normal(chunk), allowed[app]) for app, row in won.items() for chunk in row.chunks
    ]
    return pack(problem.machines, needs) is not None


def _all_values(problem: Problem) -> list[tuple[float, ...]]:
    """What each possible allocation adds to 1/rho of each bidder, the best ones only."""
    choices = [(None, *range(len(bidder.rows))) for bidder in problem.bidders]
    found = {
        tuple(
            0.0 if row is None else _improvement(bidder, row)
            for bidder, row in zip(problem.bidders, picked, strict=True)
        )
        for picked in itertools.product(*choices)
        if _fits(problem, picked)
    }
    return sorted(
        one
        for one in found
        if not any(two != one and all(map(float.__ge__, two, one)) for two in found)
    )


def _best(values: Sequence[Sequence[float]], weights: Sequence[float]) -> tuple[float, float]:
    """Between what the best lottery lies: multiplicative updates and their own bound."""
    able = [k for k in range(len(weights)) if any(line[k] > 0.0 for line in values)]
    if not able:
        return 0.0, 0.0
    table = np.array([[line[k] for k in able] for line in values])
    share = np.array([weights[k] for k in able])
    chances = np.full(len(table), 1.0 / len(table))
    worth = table @ (share / (chances @ table)) / share.sum()
    for _ in range(3000):
        chances *= worth
        worth = table @ (share / (chances @ table)) / share.sum()
        if worth.max() < 1.0 + 1e-7:
            break
    value = float(share @ np.log(chances @ table))
    return value, value + float(share.sum()) * math.log(worth.max())


def _expected(problem: Problem, solution: Solution) -> dict[AppId, float]:
    bidders = {bidder.app: bidder for bidder in problem.bidders}
    return {
        app: math.fsum(
            ticket.probability * _improvement(bidders[app], ticket.winners[app].row)
            for ticket in solution.lottery
            if app in ticket.winners
        )
        for app in solution.kept
    }


def _check_against_enumeration(problem: Problem, solution: Solution) -> None:
    values = _all_values(problem)
    weights = [bidder.weight for bidder in problem.bidders]
    low, high = _best(values, weights)
    assert low - 1e-6 <= solution.bound
    assert solution.value <= high + 1e-6
    if solution.exact:
        assert solution.value >= low - 1e-6
        assert solution.bound - solution.value <= 1e-6
    expected = _expected(problem, solution)
    able = {b.app for k, b in enumerate(problem.bidders) if any(line[k] > 0.0 for line in values)}
    assert set(expected) == able
    for k, bidder in enumerate(problem.bidders):
        if bidder.app not in able:
            continue
        others = [0.0 if j == k else weight for j, weight in enumerate(weights)]
        rest = [tuple(0.0 if j == k else v for j, v in enumerate(line)) for line in values]
        low, high = _best(rest, others)
        served = math.fsum(
            other.weight * math.log(expected[other.app])
            for other in problem.bidders
            if other is not bidder and other.app in able
        )
        kept = solution.kept[bidder.app]
        assert kept.high >= min(1.0, math.exp((served - high) / bidder.weight)) - 1e-6
        assert kept.low <= min(1.0, math.exp((served - low) / bidder.weight)) + 1e-6
        if solution.exact:
            assert kept.high - kept.low <= 1e-5


@pytest.mark.parametrize("seed", range(40))
def test_exact_solvers_agree_with_enumeration(make_problem: MakeProblem, seed: int) -> None:
    problem = make_problem(seed)
    solution = _solve(problem)
    assert solution.exact
    _check_against_enumeration(problem, solution)


@pytest.mark.parametrize("seed", range(30))
def test_heuristics_and_hasty_solvers_are_honest(make_problem: MakeProblem, seed: int) -> None:
    problem = make_problem(seed)
    for name, budget in (("greedy", None), ("search", 1), ("search", 20), ("default", 7)):
        _check_against_enumeration(problem, _solve(problem, name, budget))


@pytest.mark.parametrize("name", ["brute-force", "default", "highs"])
def test_all_exact_solvers_find_the_same_expectations(make_problem: MakeProblem, name: str) -> None:
    for seed in range(100, 112):
        problem = make_problem(seed)
        one, other = _solve(problem), _solve(problem, name)
        assert other.exact
        assert other.value == pytest.approx(one.value, abs=1e-6)
        assert _expected(problem, other) == pytest.approx(_expected(problem, one), rel=1e-3)
        for app, kept in one.kept.items():
            assert other.kept[app].high == pytest.approx(kept.high, abs=1e-3)


def _check_floor(problem: Problem) -> None:
    """Nobody keeps less than (1 - s)^((1 - s) / s), s its share of the weights; 1/e or more."""
    solution = _solve(problem)
    assert solution.exact
    weights = {bidder.app: bidder.weight for bidder in problem.bidders}
    total = math.fsum(weights[app] for app in solution.kept)
    for app, kept in solution.kept.items():
        share = weights[app] / total
        floor = (1.0 - share) ** ((1.0 - share) / share)
        assert floor >= math.exp(-1.0)
        assert kept.low >= floor - 1e-5, problem


def test_every_winner_keeps_at_least_one_part_in_e(make_problem: MakeProblem) -> None:
    for seed in range(200):
        _check_floor(make_problem(seed + 1000))
    for seed in range(200):
        _check_floor(random_problem(seed + 1000))


@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("gpus", [1, 3])
def test_identical_linear_bidders_pay_as_for_a_divisible_pool(count: int, gpus: int) -> None:
    rows = tuple(Candidate((Chunk(MACHINE, k),), 8.0 / (1.0 + 2.0 * k)) for k in range(1, gpus + 1))
    bidders = tuple(Bidder(AppId(f"app-{n}"), 1.0, 8.0, rows) for n in range(count))
    solution = _solve(Problem((OfferedMachine(0, 0, (gpus,)),), bidders), "default")
    fair = (1.0 - 1.0 / count) ** (count - 1)
    for kept in solution.kept.values():
        assert (kept.low, kept.high) == pytest.approx((fair, fair), abs=1e-5)
    shares = _expected(Problem((), bidders), solution).values()
    assert list(shares) == pytest.approx([2.0 * gpus / 8.0 / count] * count, rel=1e-5)


def _two_for_one(weight_a: float, weight_b: float, scale: float = 1.0) -> Problem:
    row = (Candidate((Chunk(SLOT, 1),), 1.0),)
    wide = (Candidate((Chunk(SLOT, 1),), scale),)
    bidders = (Bidder(A, weight_a, 3.0 * scale, wide), Bidder(B, weight_b, 2.0, row))
    return Problem((OfferedMachine(0, 0, (1,)),), bidders)


def test_weights_decide_how_often_each_wins_and_what_it_keeps() -> None:
    solution = _solve(_two_for_one(2.0, 1.0))
    chances = {next(iter(t.winners)): t.probability for t in solution.lottery}
    assert chances == pytest.approx({A: 2 / 3, B: 1 / 3})
    assert solution.kept[A].high == pytest.approx((1 / 3) ** 0.5)
    assert solution.kept[B].high == pytest.approx((2 / 3) ** 2)
    # What they would gain by winning plays no part: only how they compare their own rows.
    assert solution.value == pytest.approx(
        2.0 * math.log(2 / 3 * (1.0 - 1 / 3)) + math.log(1 / 3 * (1.0 - 1 / 2))
    )


@pytest.mark.parametrize("factor", [1e-9, 1e-3, 1e6])
def test_only_the_ratio_of_weights_counts(factor: float) -> None:
    one, other = _solve(_two_for_one(2.0, 1.0)), _solve(_two_for_one(2.0 * factor, factor))
    assert other.exact
    for app, kept in one.kept.items():
        assert other.kept[app].high == pytest.approx(kept.high, rel=1e-5)


@pytest.mark.parametrize("scale", [1e-9, 1e9, 1e-200])
def test_scaling_all_rho_of_an_app_changes_nothing(scale: float) -> None:
    one, other = _solve(_two_for_one(1.0, 1.0)), _solve(_two_for_one(1.0, 1.0, scale))
    assert [t.winners for t in other.lottery] == [t.winners for t in one.lottery]
    assert other.kept[A].high == pytest.approx(one.kept[A].high)


def test_a_lone_bidder_wins_its_best_row_for_certain_and_pays_nothing() -> None:
    rows = (Candidate((Chunk(SLOT, 1),), 2.0), Candidate((Chunk(SLOT, 2),), 1.0))
    solution = _solve(Problem((OfferedMachine(0, 0, (2,)),), (Bidder(A, 1.0, 8.0, rows),)))
    (ticket,) = solution.lottery
    assert (ticket.probability, ticket.winners[A].row) == (1.0, 1)
    assert solution.kept == {A: Interval(1.0, 1.0)}


def test_winner_without_effect_on_others_keeps_everything() -> None:
    row = (Candidate((Chunk(SLOT, 1),), 1.0),)
    bidders = tuple(Bidder(app, 1.0, 8.0, row) for app in (A, B, C))
    solution = _solve(Problem((OfferedMachine(0, 0, (3,)),), bidders))
    assert set(solution.kept.values()) == {Interval(1.0, 1.0)}
    assert len(solution.lottery) == 1
    assert solution.work <= 1


def test_auction_without_possible_winners_is_an_empty_lottery() -> None:
    row = Candidate((Chunk(MACHINE, 4),), 1.0)
    bidder = Bidder(A, 1.0, 8.0, (row,))
    narrow = (OfferedMachine(0, 0, (2,)), OfferedMachine(1, 0, (2,)))
    for problem in (
        Problem((), (bidder,)),
        Problem((OfferedMachine(0, 0, (4,)),), ()),
        Problem((OfferedMachine(0, 0, (4,)),), (replace(bidder, rho_nothing=1.0),)),
        Problem(narrow, (replace(bidder, rows=(Candidate((Chunk(SLOT, 2),) * 3, 1.0),)),)),
        Problem((OfferedMachine(0, 0, (4,)),), (bidder,), (Quota((A,), 3),)),
    ):
        solution = _solve(problem)
        assert solution == Solution({}, 0.0, 0.0, {}, True, "search", solution.work)


def test_a_row_that_cannot_be_had_is_no_reason_to_expect_more() -> None:
    # Three pairs in one slot each do not fit into slots of three, though GPUs and pieces do.
    rows = (Candidate((Chunk(SLOT, 2),) * 3, 0.5), Candidate((Chunk(SLOT, 2),), 1.0))
    problem = Problem((OfferedMachine(0, 0, (3, 3)),), (Bidder(A, 1.0, 8.0, rows),))
    assert [t.winners[A].row for t in _solve(problem).lottery] == [1]


def test_order_decides_nothing(make_problem: MakeProblem) -> None:
    for seed in range(15):
        problem = make_problem(seed)
        turned = replace(problem, machines=problem.machines[::-1], bidders=problem.bidders[::-1])
        assert _solve(turned) == _solve(problem)


def test_tickets_are_few_and_come_likeliest_first(make_problem: MakeProblem) -> None:
    for seed in range(30):
        solution = _solve(make_problem(seed))
        chances = [ticket.probability for ticket in solution.lottery]
        assert chances == sorted(chances, reverse=True)
        assert len(chances) <= len(solution.kept) + 1


def test_drawing_follows_the_probabilities() -> None:
    solution = _solve(_two_for_one(2.0, 1.0))
    drawn = [draw(solution, random.Random(seed)) for seed in range(3000)]
    assert {tuple(d.winners) for d in drawn} == {(A,), (B,)}
    assert all(set(d.kept) == set(d.winners) for d in drawn)
    wins = sum(A in d.winners for d in drawn) / len(drawn)
    assert wins == pytest.approx(2 / 3, abs=0.03)


def test_a_solution_without_a_lottery_is_not_drawn_from() -> None:
    solution = solver("search").solve(_two_for_one(1.0, 1.0))
    rng = random.Random(1)
    before = rng.getstate()
    assert draw(solution, rng) is solution
    assert rng.getstate() == before


def _broken(**changes: object) -> tuple[Problem, Solution]:
    problem = _asking(_two_for_one(2.0, 1.0))
    return problem, replace(solver("search").solve(problem), **changes)  # type: ignore[arg-type]


def test_a_lottery_that_cannot_be_is_noticed() -> None:
    win_a, win_b = {A: Win(0, (((0, 0, 1),),))}, {B: Win(0, (((0, 0, 1),),))}
    both = {**win_a, **win_b}
    for changes, complaint in (
        ({"lottery": (Ticket(0.5, win_a), Ticket(0.4, win_b))}, "with probability 0.9"),
        ({"lottery": (Ticket(1.5, win_a), Ticket(-0.5, win_b))}, "probability 1.5"),
        ({"lottery": (Ticket(1.0, both),)}, "used twice"),
        ({"lottery": (Ticket(0.5, win_a), Ticket(0.5, win_b))}, "does not match"),
        ({"winners": both}, "not those of a ticket"),
        ({"kept": {A: Interval(0.5, 0.5)}}, "not those of the winners"),
        ({"lottery": (), "winners": {}}, "does not match"),
    ):
        with pytest.raises(InvariantError, match=complaint):
            check_solution(*_broken(**changes))
