"""Two answers to one auction: same, different, or impossible together."""

from dataclasses import replace

import pytest

from themis.core.auction import (
    Bidder,
    Candidate,
    Interval,
    OfferedMachine,
    Problem,
    Solution,
    Win,
    solver,
)
from themis.core.auction.solvers.comparison import compare
from themis.core.model import AppId, Chunk

A, B = AppId("a"), AppId("b")


@pytest.fixture
def problem() -> Problem:
    """Two apps for one machine; the first gains more."""
    row = Candidate((Chunk(1, 4),), 1.0)
    return Problem(
        (OfferedMachine(0, 0, (4,)),), (Bidder(A, 1.0, 8.0, (row,)), Bidder(B, 1.0, 2.0, (row,)))
    )


@pytest.fixture
def best(problem: Problem) -> Solution:
    return solver("brute-force").solve(problem)


def _other_winner(best: Solution, problem: Problem) -> Solution:
    return replace(
        best,
        winners={B: best.winners[A]},
        value=problem.bidders[1].gain(0),
        kept={B: Interval(0.1, 1.0)},
        exact=False,
    )


def test_the_same_answer_by_another_solver_is_the_same(problem: Problem, best: Solution) -> None:
    found = compare(problem, best, replace(best, solver="other", work=7))
    assert found.same
    assert (found.text, found.verdict) == ("same", "same")


def test_worse_heuristic_is_no_contradiction(problem: Problem, best: Solution) -> None:
    found = compare(problem, best, _other_winner(best, problem))
    assert not found.same
    assert not found.contradiction
    assert found.winners == (A, B)
    assert found.text == "worse by 1.39, other rows for a, b"
    assert found.verdict == "worse by 1.4"


def test_a_better_answer_than_an_exact_one_is_a_contradiction(
    problem: Problem, best: Solution
) -> None:
    worse = _other_winner(best, problem)
    claimed = replace(worse, bound=worse.value, exact=True)
    found = compare(problem, claimed, best)
    assert "the earlier exact value 0.693147 is exceeded by 2.079442" in found.contradiction
    assert found.verdict == "contradiction"
    assert "this exact value" in compare(problem, best, claimed).contradiction


def test_a_wider_interval_is_another_answer_and_no_contradiction(
    problem: Problem, best: Solution
) -> None:
    wide = replace(best, kept={A: Interval(0.4, 0.6)}, exact=False)
    found = compare(problem, best, wide)
    assert found.kept == (A,)
    assert not found.contradiction
    assert found.text == "same value, other kept fractions for a"


def test_kept_fractions_that_exclude_each_other_contradict(
    problem: Problem, best: Solution
) -> None:
    off = replace(best, kept={A: Interval(0.7, 0.8)})
    assert "kept fractions of a exclude" in compare(problem, best, off).contradiction


def test_impossible_answer_is_reported(problem: Problem, best: Solution) -> None:
    place = ((0, 0, 5),)
    greedy = replace(best, winners={A: Win(0, (place,))}, kept={})
    assert "this answer cannot be" in compare(problem, best, greedy).contradiction
    assert "the earlier answer cannot be" in compare(problem, greedy, best).contradiction


def test_many_differing_apps_are_counted_and_not_all_named() -> None:
    row = Candidate((Chunk(0, 1),), 1.0)
    apps = [AppId(f"app-{i}") for i in range(6)]
    problem = Problem(
        (OfferedMachine(0, 0, (8,)),), tuple(Bidder(app, 1.0, 2.0, (row,)) for app in apps)
    )
    full = solver("brute-force").solve(problem)
    empty = replace(full, winners={}, kept={}, value=0.0, exact=False)
    assert compare(problem, full, empty).text.endswith("for app-0, app-1, app-2 and 3 more")
