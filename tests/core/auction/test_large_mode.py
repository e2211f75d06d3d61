"""What the ladder does in auctions too large for proof, tried where the truth is known."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.random_auctions import generated_problem
from themis.core.auction import (
    Bidder,
    Candidate,
    OfferedMachine,
    Problem,
    Solution,
    check_solution,
    solver,
)
from themis.core.auction.solvers.ladder import ladder as ladder_module
from themis.core.auction.solvers.ladder.ladder import Ladder, effort_for
from themis.core.auction.solvers.prepared import prepare
from themis.core.model import SLOT, AppId, Chunk

LARGE = effort_for(16_384, 400)


@pytest.fixture
def large_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every auction is taken for a large one."""
    monkeypatch.setattr(ladder_module, "effort_for", lambda *_: LARGE)


def _after(looks: int) -> Callable[[], float]:
    """A clock that has run out when it is looked at for so many times."""
    left = [looks]

    def seconds() -> float:
        left[0] -= 1
        return 10.0 if left[0] >= 0 else 0.0

    return seconds


def _true_fractions(problem: Problem, solution: Solution) -> dict[AppId, float]:
    """What the winners of an allocation owe, by trying everything."""
    bidders = {bidder.app: bidder for bidder in problem.bidders}
    fractions = {}
    for app in solution.winners:
        others = tuple(bidder for bidder in problem.bidders if bidder.app != app)
        rest = solver("brute-force").solve(replace(problem, bidders=others)).value
        served = math.fsum(
            bidders[other].gain(win.row) for other, win in solution.winners.items() if other != app
        )
        fractions[app] = math.exp(min(0.0, (served - rest) / bidders[app].weight))
    return fractions


def _check_claims(problem: Problem, best: float, solution: Solution) -> None:
    check_solution(problem, solution)
    assert solution.bound >= best - 1e-7
    if solution.exact:
        assert solution.value == pytest.approx(best, abs=1e-6)
    for app, fraction in _true_fractions(problem, solution).items():
        kept = solution.kept[app]
        assert kept.low - 1e-6 <= fraction <= kept.high + 1e-6


@pytest.mark.usefixtures("large_mode")
def test_claims_hold_with_and_without_budgets_and_deadlines(
    make_problem: Callable[[int], Problem],
) -> None:
    # In 379 a rack has room, but not where the app that asks may go.
    for seed in (*range(150), 379):
        problem = make_problem(seed)
        best = solver("brute-force").solve(problem).value
        for left in (None, _after(seed % 9)):
            for budget in (None, 1, 60):
                _check_claims(problem, best, solver("ladder", left).solve(problem, budget))


def test_removed_bidders_win_nothing_in_a_re_solve() -> None:
    finder = Ladder(prepare(generated_problem(1024, 70, 1, fragmented=True)))
    everyone = tuple(range(70))
    best = finder(everyone, None)
    assert best.without is not None
    for option in best.chosen[:8]:
        others = tuple(bidder for bidder in everyone if bidder != option.bidder)
        alone = finder(others, None)
        assert option.bidder not in {other.bidder for other in alone.chosen}
        assert alone.value <= best.without(option.bidder) + 1e-9


@pytest.mark.usefixtures("large_mode")
@pytest.mark.parametrize("looks", [None, 0, 1, 4])
def test_rows_that_only_a_search_can_pack_are_won(looks: int | None) -> None:
    # In slots of 5 and 4, 3 + 2 and 2 + 2: whoever puts the 3 into the smaller slot is stuck.
    sizes = (3, 2, 2, 2)
    machines = tuple(OfferedMachine(number, 0, (5, 4)) for number in range(2))
    rows = tuple(
        Candidate(tuple(Chunk(SLOT, size, number) for size in sizes), 1.0 + number / 100)
        for number in range(2)
    )
    bidders = tuple(Bidder(AppId(f"app-{i:02}"), 1.0, 8.0 + i, rows) for i in range(12))
    problem = Problem(machines, bidders)
    solution = solver("ladder", None if looks is None else _after(looks)).solve(problem)
    check_solution(problem, solution)
    assert len(solution.winners) == 2


@pytest.mark.usefixtures("large_mode")
def test_something_is_won_where_something_fits(make_problem: Callable[[int], Problem]) -> None:
    # In these, nothing of what the first prices ask for fits at once.
    for seed in (330, 474, 586, 738):
        problem = make_problem(seed)
        assert solver("brute-force").solve(problem).winners
        for budget in (None, 1, 60):
            assert solver("ladder").solve(problem, budget).winners
            assert solver("ladder", _after(0)).solve(problem, budget).winners


def test_budgets_of_work_are_kept_to() -> None:
    problem = generated_problem(1024, 100, 1, fragmented=True)
    # The first prices and one quick loading are always made, so that there is an answer.
    first = solver("ladder").solve(problem, 1)
    check_solution(problem, first)
    assert first.work < 1_500
    for budget in (2_000, 6_000):
        solution = solver("ladder").solve(problem, budget)
        check_solution(problem, solution)
        assert solution.work <= 1.5 * budget
        assert solution.value > first.value
