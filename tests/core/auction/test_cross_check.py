"""SCIP and Gurobi, where they are installed: they agree with HiGHS, payments included.

Install the `bench` extra to run what is skipped here.
"""

import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from themis.core.auction import (
    Bidder,
    Candidate,
    OfferedMachine,
    Problem,
    Solution,
    Solver,
    check_solution,
    solver,
)
from themis.core.auction.solvers.comparison import compare
from themis.core.auction.solvers.registry import solver_names
from themis.core.model import AppId, Chunk
from themis.errors import ConfigError
from themis.testing.solvers import SolverContract

MakeProblem = Callable[[int], Problem]
PACKAGES = {"scip": "pyscipopt", "gurobi": "gurobipy"}
CASES = range(60)


@pytest.fixture(params=PACKAGES)
def other(request: pytest.FixtureRequest) -> Solver:
    """Each of the optional solvers that is there."""
    pytest.importorskip(PACKAGES[request.param])
    return solver(request.param)


class TestOptionalSolvers(SolverContract):
    @pytest.fixture
    def solver(self, other: Solver) -> Solver:
        return other


def _rows(solution: Solution) -> dict[AppId, int]:
    return {app: win.row for app, win in solution.winners.items()}


def test_an_optional_solver_agrees_with_highs(other: Solver, make_problem: MakeProblem) -> None:
    paid = 0
    for seed in CASES:
        problem = make_problem(seed)
        expected, answer = solver("highs").solve(problem), other.solve(problem)
        check_solution(problem, answer)
        assert answer.exact, seed
        assert answer.value == pytest.approx(expected.value, abs=1e-7), seed
        found = compare(problem, expected, answer)
        assert not found.contradiction, (seed, found.text)
        if _rows(answer) == _rows(expected):  # with ties, another allocation owes other payments
            assert found.same, (seed, found.text)
            paid += sum(kept.low < 1.0 for kept in answer.kept.values())
    assert paid >= 10  # payments were really tested


def _crowd(bidders: int, machines: int) -> Problem:
    """Many rows of several sizes, for a program that the small licence does not take."""
    rows = tuple(
        Candidate((Chunk(level, count),), 1.0 + 1.0 / (count - level / 10.0))
        for level in (0, 1, 2, 3)
        for count in range(2, 9)
    )
    return Problem(
        tuple(OfferedMachine(i, i // 4, (4, 4)) for i in range(machines)),
        tuple(Bidder(AppId(f"app-{i}"), 1.0, 9.0 + i / 7.0, rows) for i in range(bidders)),
    )


def test_auction_beyond_gurobis_licence_is_refused_in_words() -> None:
    pytest.importorskip("gurobipy")
    try:
        solver("gurobi").solve(_crowd(200, 4), budget=1)
    except ConfigError as error:
        assert "limited in size" in error.allowed  # noqa: PT017 -- it may not be raised
        assert "columns" in error.allowed  # noqa: PT017 -- as above
    else:
        pytest.skip("this Gurobi licence has no limit")


@pytest.mark.parametrize("name", PACKAGES)
def test_a_solver_that_is_not_installed_says_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing: dict[str, ModuleType | None] = {PACKAGES[name]: None}
    for module, value in nothing.items():
        monkeypatch.setitem(sys.modules, module, value)
    monkeypatch.delitem(sys.modules, f"themis.core.auction.{name}", raising=False)
    with pytest.raises(ConfigError, match=f"needs {PACKAGES[name]}, in the `bench` extra"):
        solver(name)


def test_names_include_solvers_that_are_not_installed() -> None:
    assert {"default", "highs", *PACKAGES} <= set(solver_names())
