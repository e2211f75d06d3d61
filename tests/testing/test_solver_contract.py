"""Every solver of the package keeps to the contract, and a broken one does not."""

from dataclasses import replace

import pytest

from themis.core.auction import Problem, Solution, Solver, solver
from themis.errors import InvariantError
from themis.testing.solvers import SolverContract


class TestSearch(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return solver("search")


class TestDefault(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return solver("default")


class TestLadder(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return solver("ladder")


class TestHighs(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return solver("highs")


class TestBruteForce(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return solver("brute-force")


class TestGreedy(SolverContract):
    proves = False

    @pytest.fixture
    def solver(self) -> Solver:
        return solver("greedy")


class _Boastful:
    """Greedy, but it calls its answers proven."""

    name = "boastful"

    def solve(self, problem: Problem, budget: int | None = None) -> Solution:
        found = solver("greedy").solve(problem, budget)
        return replace(found, bound=found.value, exact=True)


class _Blind:
    """Answers as if there were no constraints."""

    name = "blind"

    def solve(self, problem: Problem, budget: int | None = None) -> Solution:
        free = tuple(replace(bidder, machines=None) for bidder in problem.bidders)
        return solver("search").solve(Problem(problem.machines, free), budget)


def test_a_bound_that_does_not_hold_is_caught() -> None:
    with pytest.raises(AssertionError):
        SolverContract().test_bounds_hold(_Boastful())


def test_constraints_that_are_not_kept_are_caught() -> None:
    with pytest.raises(InvariantError):
        SolverContract().test_answers_keep_what_they_promise(_Blind())
