"""Jobs that differ in the GPUs they can use: bids say what the assignment gives, never more."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.small_sims import sim_app
from themis.core.agent import AppBidder, BidContext, JobNeed, assign
from themis.core.agent.carving import Shape, seats_of_shape
from themis.core.agent.remaining_time import Clock
from themis.core.fairness import best_rate, phase_time
from themis.core.model import (
    CLUSTER,
    LEVELS,
    MACHINE,
    NO_SLOWDOWN,
    RACK,
    SLOT,
    Bid,
    Chunk,
    GpuId,
    JobId,
    JobSpec,
    Machine,
    Offer,
    Slowdown,
    Topology,
    level_of,
)

VGG = Slowdown((1.0, 1.05, 1.29, 1.44))
STEEP = Slowdown((1.0, 2.0, 5.0, 9.0))
TOPOLOGY = Topology(tuple(Machine(f"m{number}", f"r{number // 2}", (2, 2)) for number in range(4)))
ALL = tuple(map(GpuId, range(16)))


def _need(name: str, work: float, low: int, high: int, slowdown: Slowdown = NO_SLOWDOWN) -> JobNeed:
    return JobNeed(JobSpec(JobId(name), 1.0, high, low, slowdown), work)


def _bid(
    *needs: JobNeed,
    gpus: int = 16,
    running: dict[str, tuple[int, ...]] | None = None,
    later: tuple[tuple[JobNeed, ...], ...] = (),
    costs: tuple[float, float] = (0.0, 0.0),
) -> Bid:
    placed = {JobId(job): tuple(map(GpuId, held)) for job, held in (running or {}).items()}
    mine = tuple(sorted(gpu for held in placed.values() for gpu in held))
    bidder = AppBidder(sim_app("a", costs=costs).spec)
    return bidder.bid(BidContext(needs, later, placed), Offer(1, ALL[:gpus], (), mine), TOPOLOGY)


def _by_assignment(needs: tuple[JobNeed, ...], shape: Shape) -> float:
    """The seconds that follow from placing the jobs on seats of this shape."""
    seats = seats_of_shape(shape)
    placement = assign(needs, seats, {})
    gangs = [[seats[gpu] for gpu in placement.get(need.spec.id, ())] for need in needs]
    return phase_time(
        [need.work for need in needs],
        [
            need.spec.slowdown.rate(level_of(gang), len(gang))
            for need, gang in zip(needs, gangs, strict=True)
        ],
        [
            best_rate(need.spec.slowdown, need.spec.min_gpus, need.spec.max_gpus, seats)[0]
            for need in needs
        ],
    )


SMALL = _need("a", 1000.0, 1, 1)


@pytest.mark.parametrize("work", [900.0, 1100.0], ids=["the smaller", "the larger"])
def test_gpus_on_which_one_job_can_never_run_have_no_row(work: float) -> None:
    large = _need("b", work, 4, 4)
    assert _bid(SMALL, large, gpus=3).rows == ()
    bid = _bid(SMALL, large)
    assert min(row.gpus for row in bid.rows) == 4
    assert min(row.count for row in bid.table) == 4
    # However many there are, the small job decides.
    assert min(row.seconds for row in bid.rows) == 1000.0


def test_jobs_that_wait_for_each_other_are_not_planned_in_parallel() -> None:
    bid = _bid(SMALL, _need("b", 900.0, 4, 4))
    # The longer one takes one of four GPUs, and the other cannot run on the rest.
    assert {row.seconds for row in bid.rows if row.gpus == 4} == {1900.0}
    assert {row.seconds for row in bid.rows if row.gpus == 5} == {1000.0}


def test_row_beside_a_kept_gang_may_serve_the_small_job_alone() -> None:
    large = _need("b", 900.0, 4, 4)
    bid = _bid(SMALL, large, running={"b": (0, 1, 2, 3)})
    assert {
        row.seconds for row in bid.rows if row.chunks == (Chunk(MACHINE, 4, 0), Chunk(SLOT, 1))
    } == {1000.0}


def test_a_job_that_keeps_its_gang_lets_only_the_others_write_checkpoints() -> None:
    # The one with 4 GPUs leaves and checkpoints, the one with 1 is pinned.
    large = _need("b", 900.0, 4, 4)
    bid = _bid(SMALL, large, running={"a": (0,), "b": (4, 5, 6, 7)}, costs=(7.5, 35.0))
    rows = [row for row in bid.rows if row.gpus == 5]
    moved = [row for row in rows if [chunk.machine for chunk in row.chunks] == [0, None]]
    assert {row.seconds for row in moved} == {1000.0 + 42.5 * 4 / 5}


def test_wide_job_behind_a_longer_narrow_one_gets_wide_bids() -> None:
    bid = _bid(_need("a", 1000.0, 1, 2, VGG), _need("b", 900.0, 2, 4, VGG))
    assert any(Chunk(MACHINE, 4) in row.chunks for row in bid.rows)


def test_a_slowdown_that_only_some_jobs_suffer_is_counted_for_those() -> None:
    needs = (_need("a", 1000.0, 2, 2), _need("b", 1000.0, 2, 2, STEEP))
    clock = Clock((needs,))
    # Across racks the second job runs at 2/9 and decides, though the first one stands first.
    assert clock.seconds(((CLUSTER, 4),)) == pytest.approx(1000.0 * 9 / 2)
    assert clock.seconds(((SLOT, 2), (SLOT, 2))) == pytest.approx(500.0)


def test_phases_to_come_use_the_slowdown_of_their_own_job() -> None:
    clock = Clock(((_need("a", 100.0, 2, 2),), (_need("b", 100.0, 2, 2, STEEP),)))
    assert clock.seconds(((RACK, 2),)) == pytest.approx(50.0 + 100.0 * 5 / 2)


def test_copies_in_a_phase_to_come_may_share_a_name_and_differ() -> None:
    later = (_need("x", 100.0, 1, 1), _need("x", 400.0, 4, 4))
    clock = Clock((later,))
    assert clock.seconds(((MACHINE, 4), (SLOT, 1))) == 100.0
    assert clock.seconds(((SLOT, 1),)) == math.inf


def test_finished_jobs_neither_take_gpus_nor_make_jobs_unlike() -> None:
    clock = Clock(((_need("a", 100.0, 1, 1), _need("b", 0.0, 4, 4)), ()))
    assert clock.seconds(((SLOT, 1),)) == 100.0


def test_the_seats_of_a_shape_are_as_far_apart_as_it_says() -> None:
    for level in LEVELS:
        seats = seats_of_shape(((level, 3), (level, 2)))
        assert [seat.gpu for seat in seats] == list(range(5))
        assert level_of(seats[:3]) == level_of(seats[3:]) == level
        assert level_of(seats) == CLUSTER


@st.composite
def _unlike(draw: st.DrawFn) -> tuple[JobNeed, ...]:
    needs = []
    for number in range(draw(st.integers(2, 5))):
        low = draw(st.integers(1, 4))
        high = low + draw(st.integers(0, 4))
        slowdown = draw(st.sampled_from([NO_SLOWDOWN, VGG, STEEP]))
        work = draw(st.sampled_from([100.0, 300.0]) | st.floats(1.0, 1e5))
        needs.append(_need(f"j{number}", work, low, high, slowdown))
    kinds = {(need.spec.min_gpus, need.spec.max_gpus, need.spec.slowdown) for need in needs}
    if len(kinds) == 1:
        needs.append(_need("k", 10.0, 1, 9))
    return tuple(needs)


@given(needs=_unlike(), gpus=st.integers(1, 16))
def test_rows_of_unlike_jobs_say_what_the_assignment_gives(
    needs: tuple[JobNeed, ...], gpus: int
) -> None:
    for row in _bid(*needs, gpus=gpus).rows:
        shape = tuple(sorted((chunk.level, chunk.count) for chunk in row.chunks))
        assert row.seconds == _by_assignment(needs, shape)


@given(
    needs=_unlike(),
    shape=st.lists(st.tuples(st.sampled_from(LEVELS), st.integers(1, 6)), max_size=4),
)
def test_any_shape_is_worth_what_the_assignment_gives_on_it(
    needs: tuple[JobNeed, ...], shape: list[tuple[int, int]]
) -> None:
    seconds = Clock((needs,)).seconds(tuple(shape))
    assert seconds == _by_assignment(needs, tuple(shape))
    widest = max(need.spec.min_gpus for need in needs)
    assert math.isinf(seconds) == (sum(count for _, count in shape) < widest)
