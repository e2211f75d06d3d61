"""An answer is due: the best so far comes, feasible and with a certificate that holds."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.random_auctions import generated_problem
from themis.core.auction import Objective, Problem, check_solution, solver


def _after(looks: int) -> Callable[[], float]:
    """A clock that has run out when it is looked at for so many times."""
    left = [looks]

    def seconds() -> float:
        left[0] -= 1
        return 10.0 if left[0] >= 0 else 0.0

    return seconds


CASES = {
    "64 GPUs": lambda: generated_problem(64, 10, 4),
    "256 GPUs": lambda: generated_problem(256, 12, 2, fragmented=True),
    "1,024 GPUs": lambda: generated_problem(1024, 70, 1, fragmented=True),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_deadline_at_any_moment_yields_an_answer_with_valid_bound(case: str) -> None:
    problem = CASES[case]()
    best = solver("default").solve(problem)
    for looks in (0, 1, 2, 3, 5, 8, 20):
        hurried = solver("default", _after(looks)).solve(problem)
        check_solution(problem, hurried)
        assert hurried.winners, looks
        assert hurried.value <= best.bound + 1e-9
        assert hurried.bound >= best.value - 1e-9


def test_claims_about_unsolved_winners_hold() -> None:
    problem = generated_problem(64, 10, 4)
    best = solver("default").solve(problem)
    assert best.exact
    # Time for the allocation, and for none of the re-solves.
    hurried = next(
        solution
        for looks in range(1, 60)
        if (solution := solver("default", _after(looks)).solve(problem)).value >= best.value - 1e-9
    )
    assert not hurried.exact
    assert hurried.kept.keys() == best.kept.keys()
    for app, kept in hurried.kept.items():
        assert kept.low <= best.kept[app].low + 1e-9
        assert kept.high >= best.kept[app].high - 1e-9
    assert any(kept.low > 0.2 for kept in hurried.kept.values())


@pytest.mark.parametrize("name", ["highs", "search", "ladder", "greedy"])
def test_every_solver_takes_a_deadline(name: str, make_problem: Callable[[int], Problem]) -> None:
    for seed in range(10):
        problem = make_problem(seed)
        truth = solver("brute-force").solve(problem)
        hurried = solver(name, _after(1)).solve(problem)
        check_solution(problem, hurried)
        assert hurried.value <= truth.value + 1e-9
        assert hurried.bound >= truth.value - 1e-9


def test_time_that_suffices_changes_nothing() -> None:
    problem = generated_problem(64, 10, 7, fragmented=True)
    assert solver("default", lambda: 1e9).solve(problem) == solver("default").solve(problem)


def test_a_lottery_is_drawn_up_in_time() -> None:
    problem = replace(generated_problem(64, 6, 1), objective=Objective.LOTTERY)
    best = solver("default").solve(problem)
    hurried = solver("default", _after(3)).solve(problem)
    check_solution(problem, hurried)
    assert hurried.lottery
    assert hurried.value <= best.value + 1e-6
    assert hurried.bound >= best.value - 1e-6
