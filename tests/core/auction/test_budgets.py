"""Budgets hold for the solvers that are no search of our own, too: greedy and HiGHS."""

from collections.abc import Callable

import pytest

from tests.support.random_auctions import generated_problem
from themis.core.auction import Problem, check_solution, solver
from themis.core.auction.solvers import highs

MakeProblem = Callable[[int], Problem]


def test_greedy_tries_few_rows_for_each_of_hundreds_of_bidders() -> None:
    problem = generated_problem(256, 500, 1)
    answer = solver("greedy").solve(problem)
    check_solution(problem, answer)
    assert len(answer.winners) > 200
    # From scratch each of the re-solves would try hundreds.
    assert answer.work < 10 * len(answer.winners)


@pytest.mark.parametrize("budget", [1, 40, 300])
def test_greedy_stops_at_its_budget_and_says_what_holds(budget: int) -> None:
    problem = generated_problem(64, 30, 3)
    best = solver("default").solve(problem)
    free = solver("greedy").solve(problem)
    answer = solver("greedy").solve(problem, budget)
    check_solution(problem, answer)
    assert answer.winners
    assert answer.kept.keys() == answer.winners.keys()
    assert answer.work <= budget + 2 * max(map(len, (b.rows for b in problem.bidders)))
    assert answer.value <= free.value
    assert answer.value <= best.value + 1e-9 <= answer.bound + 2e-9


def test_a_small_budget_leaves_greedy_with_less(make_problem: MakeProblem) -> None:
    problem = generated_problem(64, 30, 3)
    greedy = solver("greedy")
    assert greedy.solve(problem, 5).value < greedy.solve(problem).value
    assert greedy.solve(problem, 10**6) == greedy.solve(problem)
    for seed in range(100):
        small = make_problem(seed)
        truth = solver("brute-force").solve(small)
        answer = greedy.solve(small, 1)
        check_solution(small, answer)
        assert answer.value <= truth.value + 1e-9 <= answer.bound + 2e-9, seed
        assert bool(answer.winners) == bool(truth.winners), seed


def test_after_the_node_limit_highs_solves_no_further_winners(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = generated_problem(64, 12, 2)
    truth = solver("highs").solve(problem)
    asked = []
    find = highs.HighsFinder.find

    def counted(self: highs.HighsFinder, bidders: tuple[int, ...], budget: int | None) -> object:
        asked.append(budget)
        return find(self, bidders, budget)

    monkeypatch.setattr(highs.HighsFinder, "find", counted)
    answer = solver("highs").solve(problem, 4)
    check_solution(problem, answer)
    assert len(answer.winners) > 6
    assert len(asked) <= 4
    assert answer.work <= 6
    assert not answer.exact
    assert answer.kept.keys() == answer.winners.keys()
    if answer.winners == truth.winners:
        for app, kept in truth.kept.items():
            assert answer.kept[app].low <= kept.low + 1e-6
            assert answer.kept[app].high >= kept.high - 1e-6
