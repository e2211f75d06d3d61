"""Auctions in few words."""

import pickle
from dataclasses import replace

import pytest

from themis.core.model import AppId
from themis.recording.codec import decode, dumps, loads
from themis.recording.packed_auctions import PackedProblem, pack, unpack
from themis.testing.solvers import random_problem


@pytest.mark.parametrize("seed", range(20))
def test_a_packed_auction_is_the_same_again(seed: int) -> None:
    problem = random_problem(seed)
    packed = pack(problem)
    assert unpack(packed) == problem
    assert unpack(decode(PackedProblem, loads(dumps(packed)))) == problem
    assert unpack(pickle.loads(pickle.dumps(packed))) == problem


def test_shared_rows_are_written_once() -> None:
    problem = random_problem(3)
    one = problem.bidders[0]
    many = replace(
        problem,
        quotas=(),
        bidders=tuple(replace(one, app=AppId(f"app-{number}")) for number in range(100)),
    )
    assert len(pack(many).shapes) == len({row.chunks for row in one.rows})
