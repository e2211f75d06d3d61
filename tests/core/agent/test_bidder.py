"""Bids: rows within the offer, true to what the agent will do, restarts where jobs move."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.small_sims import sim_app
from themis.core.agent import AppBidder, BidContext, JobNeed
from themis.core.agent.bidder import ladder, table_counts
from themis.core.agent.carving import shape_rates
from themis.core.auction import check_bid, offered_machines
from themis.core.model import (
    LEVELS,
    MACHINE,
    NO_SLOWDOWN,
    SLOT,
    AppSpec,
    Bid,
    Chunk,
    GpuId,
    JobId,
    JobSpec,
    Machine,
    Offer,
    Row,
    Slowdown,
    Topology,
)

VGG = Slowdown((1.0, 1.05, 1.29, 1.44))
TOPOLOGY = Topology(
    (Machine("m0", "r0", (2, 2)), Machine("m1", "r0", (2, 2)), Machine("m2", "r1", (2, 1)))
)
ALL = tuple(map(GpuId, range(11)))


def _spec(costs: tuple[float, float] = (7.5, 35.0)) -> AppSpec:
    return sim_app("a", costs=costs).spec


def _needs(
    *work: float, high: int = 4, low: int = 1, slowdown: Slowdown = NO_SLOWDOWN
) -> tuple[JobNeed, ...]:
    return tuple(
        JobNeed(JobSpec(JobId(f"j{i}"), 1.0, high, low, slowdown), each)
        for i, each in enumerate(work)
    )


def _standing(
    needs: tuple[JobNeed, ...],
    running: dict[str, tuple[int, ...]] | None = None,
    later: tuple[tuple[JobNeed, ...], ...] = (),
) -> BidContext:
    placed = {JobId(j): tuple(map(GpuId, gs)) for j, gs in (running or {}).items()}
    return BidContext(needs, later, placed)


def _bid(
    standing: BidContext,
    offer: Offer | None = None,
    *,
    costs: tuple[float, float] = (7.5, 35.0),
    restart_in_bids: bool = True,
    sticky: bool = True,
) -> Bid:
    bidder = AppBidder(_spec(costs), restart_in_bids=restart_in_bids, sticky=sticky)
    return bidder.bid(standing, offer or Offer(1, ALL, ()), TOPOLOGY)


def _offer(
    gpus: list[int], *, kept: list[int] | None = None, mine: list[int] | None = None
) -> Offer:
    return Offer(
        1,
        tuple(map(GpuId, gpus)),
        tuple(map(GpuId, kept or [])),
        tuple(map(GpuId, mine or [])),
    )


def _seconds(bid: Bid, *chunks: Chunk) -> float:
    return next(row.seconds for row in bid.rows if row.chunks == chunks)


def _pinned(row: Row) -> bool:
    return any(chunk.machine is not None for chunk in row.chunks)


def test_paper_bid_table_has_one_half_and_a_quarter() -> None:
    # T_id = 400, 200 s of serial work, nothing elapsed.
    standing = _standing(_needs(200.0, high=2))
    bid = _bid(standing, _offer([0, 1]), costs=(0.0, 0.0))
    assert _seconds(bid, Chunk(SLOT, 1)) / 400 == pytest.approx(1 / 2)
    assert min(row.seconds for row in bid.rows if row.gpus == 2) / 400 == pytest.approx(1 / 4)
    assert {row.seconds / 400 for row in bid.table if row.count == 1} == {1 / 2}
    assert {row.seconds / 400 for row in bid.table if row.count == 2} == {1 / 4}


def test_a_first_start_costs_a_restart_and_no_checkpoint() -> None:
    bid = _bid(_standing(_needs(200.0, high=1)))
    assert _seconds(bid, Chunk(SLOT, 1)) == pytest.approx(200.0 + 35.0)


def test_without_restarts_in_bids_only_the_work_counts() -> None:
    bid = _bid(_standing(_needs(200.0, high=1)), restart_in_bids=False)
    assert _seconds(bid, Chunk(SLOT, 1)) == pytest.approx(200.0)


def test_staying_job_pays_nothing_and_moving_job_pays_checkpoint_and_restart() -> None:
    standing = _standing(_needs(400.0), {"j0": (0, 1, 2, 3)})
    bid = _bid(standing, _offer(list(range(8)), mine=[0, 1, 2, 3]))
    assert _seconds(bid, Chunk(MACHINE, 4, 0)) == pytest.approx(100.0)
    elsewhere = [row for row in bid.rows if row.gpus == 4 and not _pinned(row)]
    assert elsewhere
    assert all(row.seconds == pytest.approx(100.0 + 42.5) for row in elsewhere)


def test_move_delay_is_spread_over_all_gpus_by_moved_share() -> None:
    # Two jobs of 400 s; one keeps its 2 GPUs, the other starts on 4: 4/6 of a restart.
    standing = _standing(_needs(400.0, 400.0), {"j0": (0, 1)})
    bid = _bid(standing, _offer(list(range(2, 8)), kept=[0, 1]))
    row = next(row for row in bid.rows if row.gpus == 4)
    assert row.seconds == pytest.approx(800.0 / 6 + 35.0 * 4 / 6)


def test_kept_gpus_count_beside_every_row() -> None:
    standing = _standing(_needs(400.0, 400.0, high=1), {"j0": (0,)})
    bid = _bid(standing, _offer([4, 5], kept=[0]), costs=(0.0, 0.0))
    assert _seconds(bid, Chunk(SLOT, 1)) == pytest.approx(400.0)
    assert max(row.gpus for row in bid.rows) == 1


def test_an_app_that_keeps_all_it_can_use_asks_for_nothing() -> None:
    standing = _standing(_needs(400.0, high=2), {"j0": (0, 1)})
    assert _bid(standing, _offer([4, 5], kept=[0, 1])).rows == ()


def test_without_work_there_is_no_bid() -> None:
    assert _bid(_standing(())) == Bid(_spec().id)


def test_too_few_gpus_for_a_gang_have_no_row() -> None:
    assert _bid(_standing(_needs(400.0, low=4)), _offer([0, 1, 2])).rows == ()
    assert all(row.gpus >= 4 for row in _bid(_standing(_needs(400.0, low=4))).rows)


def test_later_phases_are_added_with_their_own_number_of_jobs() -> None:
    later = (_needs(300.0, high=4),)
    bid = _bid(_standing(_needs(100.0, 100.0, high=4), later=later), costs=(0.0, 0.0))
    best = min(row.seconds for row in bid.rows)
    # Eight GPUs: 200 / 8, then one job of 300 on the 4 that it can use.
    assert best == pytest.approx(200.0 / 8 + 300.0 / 4)


def test_agents_that_are_not_sticky_pin_nothing() -> None:
    standing = _standing(_needs(400.0), {"j0": (0, 1, 2, 3)})
    bid = _bid(standing, _offer(list(range(8)), mine=[0, 1, 2, 3]), sticky=False)
    assert bid.rows
    assert not any(map(_pinned, bid.rows))


def test_a_gang_across_machines_is_pinned_part_by_part() -> None:
    standing = _standing(_needs(400.0), {"j0": (2, 3, 4, 5)})
    bid = _bid(standing, _offer(list(range(8)), mine=[2, 3, 4, 5]))
    row = next(row for row in bid.rows if _pinned(row))
    assert row.chunks == (Chunk(SLOT, 2, 0), Chunk(SLOT, 2, 1))
    assert row.seconds == pytest.approx(100.0)


def test_the_ladder_doubles_within_a_gang_and_then_gangs() -> None:
    assert ladder(1, 4, 20) == [1, 2, 4, 8, 16, 20]
    assert ladder(2, 4, 3) == [2, 3]
    assert ladder(4, 4, 3) == []
    assert ladder(3, 3, 12) == [3, 6, 12]


def test_valuation_covers_every_part_of_a_gang_and_every_count() -> None:
    assert table_counts(1, 4, 18) == [1, 2, 3, 4, 8, 12, 16, 18]
    assert table_counts(3, 4, 9) == [3, 4, 8, 9]
    assert table_counts(4, 4, 3) == []
    # A job that can use the whole cluster is valued at every count.
    assert table_counts(1, 64, 64) == list(range(1, 65))


@given(low=st.integers(1, 9), size=st.integers(1, 300), most=st.integers(0, 2000))
def test_counts_are_between_the_smallest_gang_and_all_there_is(
    low: int, size: int, most: int
) -> None:
    for counts in (ladder(low, size, most), table_counts(low, size, most)):
        assert counts == sorted(set(counts))
        assert all(low <= count <= most for count in counts)
        assert bool(counts) == (most >= low)
        assert not counts or counts[-1] == most


@given(low=st.integers(1, 4), most=st.integers(1, 1000))
def test_a_valuation_has_no_wide_gaps(low: int, most: int) -> None:
    counts = table_counts(low, 10_000, most)
    for count, following in pairwise(counts):
        assert following - count <= max(1, count // 32)


@st.composite
def _situations(draw: st.DrawFn) -> tuple[BidContext, Offer]:
    low = draw(st.sampled_from([1, 1, 2, 4]))
    high = low * draw(st.integers(1, 3))
    works = draw(st.lists(st.floats(10.0, 1e5), min_size=1, max_size=5))
    needs = _needs(*works, low=low, high=high, slowdown=draw(st.sampled_from([VGG, NO_SLOWDOWN])))
    order = draw(st.permutations(range(11)))
    running = {}
    for need in needs:
        count = draw(st.integers(low, high))
        if draw(st.booleans()) and count <= len(order):
            running[str(need.spec.id)] = tuple(sorted(order[:count]))
            order = order[count:]
    held = sorted(gpu for gpus in running.values() for gpu in gpus)
    kept = [gpu for gpu in held if draw(st.booleans())]
    mine = [gpu for gpu in held if gpu not in kept]
    free = [gpu for gpu in order if draw(st.booleans())]
    offer = _offer(sorted([*mine, *free]), kept=kept, mine=mine)
    return _standing(needs, running), offer


@given(situation=_situations(), sticky=st.booleans())
def test_rows_are_within_offer_and_demand_and_the_arbiter_takes_them(
    situation: tuple[BidContext, Offer], sticky: bool
) -> None:
    standing, offer = situation
    bid = _bid(standing, offer, sticky=sticky)
    demand = sum(need.spec.max_gpus for need in standing.needs)
    for row in bid.rows:
        assert 1 <= row.gpus <= min(len(offer.gpus), demand - len(offer.kept))
        assert math.isfinite(row.seconds)
        assert row.seconds > 0.0
    assert len({row.chunks for row in bid.rows}) == len(bid.rows)
    check_bid(bid, offered_machines(offer.gpus, TOPOLOGY))


@given(situation=_situations())
def test_bids_pin_machines_where_enough_own_gpus_are_offered(
    situation: tuple[BidContext, Offer],
) -> None:
    standing, offer = situation
    mine = [TOPOLOGY.seats[gpu].machine for gpu in offer.expiring]
    for row in _bid(standing, offer).rows:
        for machine in range(len(TOPOLOGY.machines)):
            pinned = sum(chunk.count for chunk in row.chunks if chunk.machine == machine)
            assert pinned <= mine.count(machine)


@given(situation=_situations())
def test_with_no_restart_costs_rows_say_what_the_carving_gives(
    situation: tuple[BidContext, Offer],
) -> None:
    standing, offer = situation
    if offer.kept or offer.expiring:
        return
    typical = max(standing.needs, key=lambda need: (need.work, need.spec.id)).spec
    work = sum(need.work for need in standing.needs)
    longest = max(need.work for need in standing.needs)
    for row in _bid(standing, offer, costs=(0.0, 0.0)).rows:
        shape = tuple(sorted((chunk.level, chunk.count) for chunk in row.chunks))
        speed, best = shape_rates(
            shape, len(standing.needs), typical.min_gpus, typical.max_gpus, typical.slowdown
        )
        bound = max(work / speed, longest / best)
        if len(standing.needs) == 1:
            assert row.seconds == pytest.approx(bound)
        # Many come in waves, of which the last may not be full.
        assert bound * (1.0 - 1e-9) <= row.seconds <= (bound + longest) * (1.0 + 1e-9)


@given(work=st.floats(1.0, 1e6), high=st.integers(1, 8))
def test_closer_gang_of_equal_size_is_never_valued_slower(work: float, high: int) -> None:
    table = _bid(_standing(_needs(work, high=high, slowdown=VGG))).table
    assert max(row.count for row in table) == high
    found = {(row.level, row.count): row.seconds for row in table}
    widths = (2, 4, 8, 11)
    for (level, count), seconds in found.items():
        for closer in LEVELS[:level]:
            if (closer, count) in found and count <= widths[closer]:
                assert found[closer, count] <= seconds * (1 + 1e-9)


@given(work=st.floats(1.0, 1e6), jobs=st.integers(1, 5), high=st.integers(1, 4))
def test_without_slowdown_more_whole_gangs_are_never_slower(
    work: float, jobs: int, high: int
) -> None:
    table = _bid(_standing(_needs(*[work] * jobs, high=high))).table
    for level in LEVELS:
        rows = [row for row in table if row.level == level and row.count % high == 0]
        times = [row.seconds for row in rows]
        assert times == sorted(times, reverse=True)


def test_the_same_question_has_the_same_answer_from_memory() -> None:
    bidder = AppBidder(sim_app("a").spec)
    standing = _standing(_needs(100.0, 200.0, high=2), {"j0": (0, 1)})
    offer = _offer([0, 1, 2, 3], mine=[0, 1])
    first = bidder.bid(standing, offer, TOPOLOGY)
    assert bidder.bid(replace(standing, running=dict(standing.running)), offer, TOPOLOGY) is first


@pytest.mark.parametrize(
    ("standing", "offer"),
    [
        pytest.param(
            _standing(_needs(100.0, 150.0, high=2), {"j0": (0, 1)}),
            _offer([0, 1, 2, 3], mine=[0, 1]),
            id="progress",
        ),
        pytest.param(
            _standing(_needs(100.0, 200.0, high=2), {"j1": (0, 1)}),
            _offer([0, 1, 2, 3], mine=[0, 1]),
            id="another job runs there",
        ),
        pytest.param(
            _standing(_needs(100.0, 200.0, high=2), {"j0": (0, 1)}),
            _offer([0, 1, 2, 3, 4], mine=[0, 1]),
            id="more offered",
        ),
        pytest.param(
            _standing(_needs(100.0, 200.0, high=2), {"j0": (0, 1)}),
            _offer([2, 3], kept=[0, 1]),
            id="kept",
        ),
    ],
)
def test_whatever_changed_is_taken_into_account(standing: BidContext, offer: Offer) -> None:
    bidder = AppBidder(sim_app("a").spec)
    before = _standing(_needs(100.0, 200.0, high=2), {"j0": (0, 1)})
    bidder.bid(before, _offer([0, 1, 2, 3], mine=[0, 1]), TOPOLOGY)
    assert bidder.bid(standing, offer, TOPOLOGY) == AppBidder(sim_app("a").spec).bid(
        standing, offer, TOPOLOGY
    )
