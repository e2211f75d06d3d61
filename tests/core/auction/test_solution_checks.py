"""A wrong answer is noticed, whatever is wrong with it."""

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
    Win,
    check_solution,
    solver,
)
from themis.core.model import AppId, Chunk
from themis.errors import InvariantError

A, B = AppId("a"), AppId("b")
PROBLEM = Problem(
    machines=(
        OfferedMachine(0, 0, (2, 2)),
        OfferedMachine(1, 0, (2,)),
        OfferedMachine(2, 1, (2,)),
    ),
    bidders=(
        Bidder(A, 1.0, 8.0, (Candidate((Chunk(0, 2), Chunk(2, 2)), 1.0),), frozenset({0, 1})),
        Bidder(B, 2.0, 4.0, (Candidate((Chunk(1, 2, machine=2),), 2.0),)),
    ),
    quotas=(Quota((A, B), 6),),
)
GOOD = solver("brute-force").solve(PROBLEM)


def _with(app: AppId, *places: tuple[tuple[int, int, int], ...], row: int = 0) -> Solution:
    return replace(GOOD, winners={**GOOD.winners, app: Win(row, places)})


def test_a_right_answer_passes() -> None:
    check_solution(PROBLEM, GOOD)
    assert set(GOOD.winners) == {A, B}


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        pytest.param(_with(A, ((0, 0, 2),), ((0, 0, 2),)), "used twice", id="a GPU used twice"),
        pytest.param(_with(A, ((0, 0, 1), (0, 1, 1)), ((1, 0, 2),)), "wider", id="two slots for 0"),
        pytest.param(_with(A, ((0, 0, 2),), ((0, 1, 1),)), "not the 2 GPUs", id="too few GPUs"),
        pytest.param(_with(A, ((0, 0, 2),)), "1 chunks for 2", id="a chunk missing"),
        pytest.param(
            _with(A, ((0, 0, 2),), ((2, 0, 2),)), "not allowed", id="a machine not allowed"
        ),
        pytest.param(_with(A, ((0, 0, 2),), ((9, 0, 2),)), "no machine", id="no such machine"),
        pytest.param(_with(A, ((0, 2, 2),), ((1, 0, 2),)), "no machine", id="no such slot"),
        pytest.param(_with(B, ((1, 0, 2),)), "pinned", id="a pin ignored"),
        pytest.param(_with(B, ((2, 0, 2),), row=1), "did not bid", id="no such row"),
        pytest.param(replace(GOOD, value=GOOD.value + 0.1), "match", id="a wrong value"),
        pytest.param(replace(GOOD, bound=GOOD.value - 0.1), "bound", id="a bound below the value"),
        pytest.param(replace(GOOD, kept={}), "kept", id="no kept fraction"),
        pytest.param(
            replace(GOOD, kept={**GOOD.kept, A: Interval(0.9, 1.1)}), r"\[0, 1\]", id="kept above 1"
        ),
        pytest.param(
            replace(GOOD, winners={**GOOD.winners, AppId("c"): GOOD.winners[A]}),
            "without a bid",
            id="a stranger wins",
        ),
    ],
)
def test_a_wrong_answer_is_named(broken: Solution, words: str) -> None:
    with pytest.raises(InvariantError, match=words):
        check_solution(PROBLEM, broken)


def test_a_quota_exceeded_is_named() -> None:
    with pytest.raises(InvariantError, match="quota"):
        check_solution(replace(PROBLEM, quotas=(Quota((A, B), 5),)), GOOD)


def test_a_chunk_across_racks_is_wider_than_a_rack() -> None:
    free = replace(PROBLEM.bidders[0], machines=None)
    problem = replace(PROBLEM, bidders=(free, PROBLEM.bidders[1]))
    with pytest.raises(InvariantError, match="wider than level 2"):
        check_solution(problem, _with(A, ((0, 0, 2),), ((1, 0, 1), (2, 0, 1))))
