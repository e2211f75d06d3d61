"""Binding GPUs and settling: nothing is lost, nothing given twice."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirements import examples
from themis.core.auction import (
    Bidder,
    Candidate,
    Interval,
    Problem,
    Solution,
    Win,
    bind,
    check_solution,
    draw,
    offered_machines,
    payment,
    settle,
    solver,
)
from themis.core.model import AppId, Chunk, GpuId, Machine, Topology
from themis.errors import InvariantError

A, B = AppId("a"), AppId("b")
TOPOLOGY = Topology(
    (Machine("m0", "r0", (2, 2)), Machine("m1", "r0", (4,)), Machine("m2", "r1", (2, 1)))
)
EVERY = tuple(GpuId(number) for number in range(TOPOLOGY.gpus))


def _solution(winners: dict[AppId, Win], kept: float = 1.0) -> Solution:
    return Solution(winners, 0.0, 0.0, {a: Interval(kept, kept) for a in winners}, True, "test", 0)


def test_an_app_keeps_the_gpus_it_runs_on() -> None:
    solution = _solution({A: Win(0, (((1, 0, 2),),)), B: Win(0, (((1, 0, 1),), ((0, 1, 2),)))})
    bound = bind(solution, EVERY, {A: [GpuId(7)], B: [GpuId(4), GpuId(3)]}, TOPOLOGY)
    # `a` comes first, but takes neither GPU 4, which `b` runs on, nor leaves 7, its own.
    assert bound == {A: ((5, 7),), B: ((4,), (2, 3))}


def test_app_stays_in_its_slot_if_no_other_won_it() -> None:
    """Bids name machines, and the solver may take any slot of one."""
    solution = _solution({A: Win(0, (((0, 0, 1),),)), B: Win(0, (((0, 0, 1),),))})
    bound = bind(solution, EVERY, {A: [GpuId(0)], B: [GpuId(2)]}, TOPOLOGY)
    assert bound == {A: ((0,),), B: ((2,),)}


def test_an_app_does_not_stay_where_others_have_won() -> None:
    solution = _solution({A: Win(0, (((0, 1, 2),),)), B: Win(0, (((0, 0, 1),),))})
    bound = bind(solution, EVERY, {B: [GpuId(2)]}, TOPOLOGY)
    assert bound == {A: ((2, 3),), B: ((0,),)}


def test_slots_are_counted_within_the_machine() -> None:
    bound = bind(_solution({A: Win(0, (((2, 1, 1), (2, 0, 1)),))}), EVERY, {}, TOPOLOGY)
    assert bound == {A: ((8, 10),)}


def test_more_than_was_offered_cannot_be_bound() -> None:
    solution = _solution({A: Win(0, (((1, 0, 3),),))})
    with pytest.raises(InvariantError, match="lacks offered GPUs"):
        bind(solution, [GpuId(4), GpuId(5)], {}, TOPOLOGY)


def test_a_gpu_bound_twice_is_not_settled() -> None:
    solution = _solution({A: Win(0, ()), B: Win(0, ())})
    bound = {A: ((GpuId(1),),), B: ((GpuId(1),),)}
    with pytest.raises(InvariantError, match="bound twice"):
        settle(solution, bound, {}, payment("gpus"), 600.0, TOPOLOGY, EVERY, _rng)


def _rng(app: AppId) -> random.Random:
    return random.Random(f"7/{app}")


def test_app_draws_the_same_for_any_other_winners() -> None:
    one, two = ((GpuId(0), GpuId(1)),), ((GpuId(4), GpuId(5)),)
    win = Win(0, ())
    both = settle(
        _solution({A: win, B: win}, 0.5),
        {A: one, B: two},
        {},
        payment("lottery"),
        600.0,
        TOPOLOGY,
        EVERY,
        _rng,
    )
    alone = settle(
        _solution({B: win}, 0.5), {B: two}, {}, payment("lottery"), 600.0, TOPOLOGY, EVERY, _rng
    )
    assert both.awards[B] == alone.awards[B]


def _problem(rng: random.Random, offered: list[GpuId]) -> Problem:
    bidders = []
    for number in range(rng.randint(1, 4)):
        nothing = rng.uniform(2, 20)
        rows = tuple(
            Candidate(
                tuple(
                    Chunk(rng.randint(0, 3), rng.randint(1, 4)) for _ in range(rng.randint(1, 2))
                ),
                nothing * rng.uniform(0.1, 0.9),
            )
            for _ in range(5)
        )
        bidders.append(Bidder(AppId(f"app-{number}"), rng.choice([1.0, 2.0]), nothing, rows))
    return Problem(offered_machines(offered, TOPOLOGY), tuple(bidders))


@examples(60)
@given(
    seed=st.integers(0, 2**32),
    chosen=st.sets(st.sampled_from(EVERY)),
    name=st.sampled_from(["gpus", "time", "lottery", "lottery-pf", "floor"]),
)
def test_awards_and_leftover_partition_the_offer(seed: int, chosen: set[GpuId], name: str) -> None:
    rng = random.Random(seed)
    offered = sorted(chosen)
    problem = replace(_problem(rng, offered), objective=payment(name).objective)
    solution = solver("search").solve(problem)
    check_solution(problem, solution)
    solution = draw(solution, rng)
    held = {b.app: rng.sample(EVERY, 3) for b in problem.bidders}
    bound = bind(solution, offered, held, TOPOLOGY)
    units = {b.app: rng.randint(1, 2) for b in problem.bidders}
    outcome = settle(solution, bound, units, payment(name), 600.0, TOPOLOGY, offered, _rng)
    assert set(outcome.awards) == set(solution.winners)
    given_out = [gpu for award in outcome.awards.values() for gpu in award.gpus]
    assert sorted([*given_out, *outcome.leftover]) == offered
    for app, award in outcome.awards.items():
        row = sorted(gpu for chunk in bound[app] for gpu in chunk)
        assert sorted({*award.gpus, *award.paid}) == row
        levels = [TOPOLOGY.level(chunk) for chunk in bound[app]]
        wanted = next(b for b in problem.bidders if b.app == app).rows[solution.winners[app].row]
        assert all(got <= chunk.level for got, chunk in zip(levels, wanted.chunks, strict=True))
        if award.until_fraction is None:
            assert not set(award.gpus) & set(award.paid)


def test_an_interval_of_kept_fractions_settles_at_its_upper_end() -> None:
    solution = replace(_solution({A: Win(0, ())}), kept={A: Interval(0.25, 0.5)})
    bound = {A: ((GpuId(4), GpuId(5), GpuId(6), GpuId(7)),)}
    outcome = settle(solution, bound, {}, payment("gpus"), 600.0, TOPOLOGY, EVERY, _rng)
    assert outcome.awards[A].kept_fraction == 0.5
    assert len(outcome.awards[A].gpus) == 2
