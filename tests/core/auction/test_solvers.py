"""All solvers give the answer of brute force, payments included, whatever the order of things."""

import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from themis.core.auction import (
    Bidder,
    Candidate,
    Interval,
    OfferedMachine,
    Problem,
    Quota,
    Solution,
    check_solution,
    solver,
)
from themis.core.auction.solvers.prepared import prepare
from themis.core.auction.solvers.registry import Determination, leave_one_out, start_of
from themis.core.model import AppId, Chunk
from themis.errors import ConfigError

MakeProblem = Callable[[int], Problem]
EXACT = ("search", "default", "ladder", "highs")
CASES = {
    "search": range(500),
    "default": range(500, 800),
    "ladder": range(600),
    "highs": range(300),
}


def _one_machine(*nothing: float, gpus: int = 4) -> Problem:
    """Bidders who all want the only machine, and reach rho 1 with it."""
    row = Candidate((Chunk(1, gpus),), 1.0)
    bidders = tuple(Bidder(AppId(f"app-{i}"), 1.0, rho, (row,)) for i, rho in enumerate(nothing))
    return Problem((OfferedMachine(0, 0, (gpus,)),), bidders)


def _rows(solution: Solution) -> dict[AppId, int]:
    return {app: win.row for app, win in solution.winners.items()}


@pytest.mark.parametrize("name", EXACT)
def test_a_solver_agrees_with_brute_force(name: str, make_problem: MakeProblem) -> None:
    compared = 0
    for seed in CASES[name]:
        problem = make_problem(seed)
        truth = solver("brute-force").solve(problem)
        answer = solver(name).solve(problem)
        check_solution(problem, answer)
        assert answer.exact, seed
        assert answer.value == pytest.approx(truth.value, abs=1e-7), seed
        assert answer.bound == pytest.approx(truth.value, abs=1e-7), seed
        if _rows(answer) == _rows(truth):  # with ties, another allocation owes other payments
            for app, kept in truth.kept.items():
                assert answer.kept[app].low == pytest.approx(kept.low, abs=1e-6), seed
                assert answer.kept[app].high == pytest.approx(kept.high, abs=1e-6), seed
                compared += kept.low < 1.0
    assert compared > len(CASES[name]) // 10  # payments were really tested


def test_brute_force_keeps_its_own_promises(make_problem: MakeProblem) -> None:
    for seed in range(200):
        problem = make_problem(seed)
        check_solution(problem, solver("brute-force").solve(problem))


def test_greedy_is_feasible_and_its_intervals_are_honest(make_problem: MakeProblem) -> None:
    exact = 0
    for seed in range(300):
        problem = make_problem(seed)
        truth = solver("brute-force").solve(problem)
        answer = solver("greedy").solve(problem)
        check_solution(problem, answer)
        exact += answer.exact
        assert answer.value <= truth.value + 1e-9 <= answer.bound + 2e-9, seed
        if _rows(answer) == _rows(truth):
            for app, kept in truth.kept.items():
                interval = answer.kept[app]
                assert interval.low - 1e-9 <= kept.low <= interval.high + 1e-9, seed
    assert 0 < exact < 300


@pytest.mark.parametrize("name", ["search", "default", "ladder", "highs"])
def test_out_of_budget_the_best_so_far_comes_with_an_honest_bound(
    name: str, make_problem: MakeProblem
) -> None:
    for seed in range(100):
        problem = make_problem(seed)
        truth = solver("brute-force").solve(problem)
        answer = solver(name).solve(problem, budget=1)
        check_solution(problem, answer)
        assert answer.value <= truth.value + 1e-7
        assert truth.value <= answer.bound + 1e-7
        assert bool(answer.winners) == bool(truth.winners), "never nothing when something fits"


def _crowded() -> Problem:
    """Too many conflicting wishes for one node of search."""
    rng = random.Random(4)
    machines = tuple(OfferedMachine(i, i // 3, (3, 2)) for i in range(6))
    bidders = []
    for i in range(9):
        rows = tuple(
            Candidate(
                (Chunk(level, count),) * parts, 4.0 / (parts * count) ** rng.uniform(0.4, 0.9)
            )
            for level in (0, 1, 2)
            for count in (2, 3, 4, 5)
            for parts in (1, 2)
        )
        bidders.append(Bidder(AppId(f"app-{i}"), 1.0, rng.uniform(5, 20), rows))
    return Problem(machines, tuple(bidders))


def test_a_budget_can_leave_an_answer_unproven() -> None:
    problem = _crowded()
    truth = solver("highs").solve(problem)
    check_solution(problem, truth)
    hurried = solver("search").solve(problem, budget=20)
    check_solution(problem, hurried)
    assert truth.exact
    assert not hurried.exact
    assert hurried.value <= truth.value + 1e-9 <= hurried.bound + 1e-6
    assert any(kept.low < kept.high for kept in hurried.kept.values())


def test_a_crowded_auction_falls_back_on_highs() -> None:
    problem = _crowded()
    truth = solver("highs").solve(problem)
    answer = solver("default").solve(problem)
    check_solution(problem, answer)
    assert answer.exact
    assert answer.value == pytest.approx(truth.value, abs=1e-6)


def test_a_machine_with_too_many_patterns_is_cut_by_counts(
    make_problem: MakeProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("themis.core.auction.solvers.ladder.machine_patterns.MAX_PATTERNS", 0)
    for seed in range(80):
        problem = make_problem(seed)
        answer = solver("highs").solve(problem)
        check_solution(problem, answer)
        truth = solver("brute-force").solve(problem)
        assert answer.value == pytest.approx(truth.value, abs=1e-7), seed


@pytest.mark.parametrize("name", ["search", "ladder", "highs", "greedy"])
def test_the_order_of_bidders_and_machines_changes_nothing(
    name: str, make_problem: MakeProblem
) -> None:
    rng = random.Random(7)
    for seed in range(60):
        problem = make_problem(seed)
        machines, bidders = list(problem.machines), list(problem.bidders)
        rng.shuffle(machines)
        rng.shuffle(bidders)
        shuffled = Problem(tuple(machines), tuple(bidders), problem.quotas)
        assert solver(name).solve(shuffled) == solver(name).solve(problem), seed


@pytest.mark.parametrize("name", ["search", "ladder", "highs"])
def test_a_duplicated_row_changes_nothing(name: str, make_problem: MakeProblem) -> None:
    for seed in range(60):
        problem = make_problem(seed)
        doubled = replace(
            problem, bidders=tuple(replace(b, rows=b.rows + b.rows) for b in problem.bidders)
        )
        assert solver(name).solve(doubled) == solver(name).solve(problem), seed


@pytest.mark.parametrize("name", EXACT)
def test_a_lone_bidder_pays_nothing(name: str) -> None:
    solution = solver(name).solve(_one_machine(8.0))
    assert solution.kept == {AppId("app-0"): Interval(1.0, 1.0)}


@pytest.mark.parametrize("name", EXACT)
def test_an_auction_without_bids_or_machines_is_settled(name: str) -> None:
    problem = _one_machine(8.0)
    for empty in (replace(problem, bidders=()), replace(problem, machines=())):
        solution = solver(name).solve(empty)
        assert solution.winners == {}
        assert solution.exact


def test_only_winners_with_effect_on_others_are_solved_for_again() -> None:
    def calls(problem: Problem) -> list[tuple[int, ...]]:
        prepared = prepare(problem)
        find = start_of("search")(prepared)
        asked: list[tuple[int, ...]] = []

        def counting(bidders: tuple[int, ...], budget: int | None) -> Determination:
            asked.append(bidders)
            return find(bidders, budget)

        leave_one_out(prepared, counting, "counting", None)
        return asked

    assert calls(_one_machine(8.0)) == [(0,)]
    assert calls(_one_machine(8.0, 2.0, 4.0)) == [(0, 1, 2), (1, 2)]
    plenty = replace(
        _one_machine(8.0, 2.0), machines=tuple(OfferedMachine(i, 0, (4,)) for i in range(2))
    )
    assert calls(plenty) == [(0, 1)]


def test_weights_divide_the_payment() -> None:
    heavy = _one_machine(8.0, 2.0)
    heavy = replace(heavy, bidders=(replace(heavy.bidders[0], weight=2.0), heavy.bidders[1]))
    kept = solver("default").solve(heavy).kept[AppId("app-0")]
    assert kept.high == pytest.approx(0.5**0.5)


def test_apps_under_a_quota_win_no_more_than_it() -> None:
    machines = tuple(OfferedMachine(i, 0, (4,)) for i in range(2))
    problem = replace(_one_machine(8.0, 2.0), machines=machines)
    limited = replace(problem, quotas=(Quota((AppId("app-0"), AppId("app-1")), 4),))
    assert len(solver("default").solve(problem).winners) == 2
    for name in EXACT:
        solution = solver(name).solve(limited)
        assert _rows(solution) == {AppId("app-0"): 0}
        assert solution.kept[AppId("app-0")].high == pytest.approx(0.5)


def test_an_unknown_solver_is_a_config_error_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean 'highs'"):
        solver("hihgs")


def test_importing_the_auction_loads_no_numeric_library() -> None:
    code = (
        "import sys, themis.core.auction as a; a.solver('search').solve(a.Problem((), ()));"
        "print(sorted({'numpy', 'highspy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
