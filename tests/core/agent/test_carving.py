"""Cutting GPUs into gangs: local, of useful sizes, and as the bids promise."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from themis.core.agent.carving import Carving, carve, shape_rates
from themis.core.model import (
    CLUSTER,
    MACHINE,
    NO_SLOWDOWN,
    RACK,
    SLOT,
    GpuId,
    GpuPosition,
    Machine,
    Slowdown,
    Topology,
    level_of,
)

VGG = Slowdown((1.0, 1.05, 1.29, 1.44))
STEEP = Slowdown((1.0, 2.5, 5.0, 9.0))
CLUSTER_OF_12 = Topology(
    (
        Machine("m0", "r0", (2, 2)),
        Machine("m1", "r0", (2,)),
        Machine("m2", "r1", (2, 2)),
        Machine("m3", "r1", (1, 1)),
    )
)


def _carve(
    gpus: list[int],
    jobs: int,
    *,
    low: int = 1,
    high: int = 4,
    slowdown: Slowdown = VGG,
    fixed: tuple[float, ...] = (),
) -> Carving:
    seats = [CLUSTER_OF_12.seats[gpu] for gpu in gpus]
    return carve(seats, jobs=jobs, min_gpus=low, max_gpus=high, slowdown=slowdown, fixed=fixed)


def _ids(carving: Carving) -> list[list[int]]:
    return [[seat.gpu for seat in gang] for gang in carving.gangs]


def test_gangs_stay_on_one_machine_where_they_fit() -> None:
    carving = _carve([0, 1, 2, 3, 6, 7, 8, 9], jobs=2)
    assert sorted(_ids(carving)) == [[0, 1, 2, 3], [6, 7, 8, 9]]
    assert carving.rates == pytest.approx((4 / 1.05, 4 / 1.05))


def test_a_job_that_hates_distance_leaves_far_gpus_alone() -> None:
    # Four GPUs of one rack at S = 5 are slower than the two of one slot.
    carving = _carve([0, 1, 4, 5], jobs=1, slowdown=STEEP)
    assert _ids(carving) in ([[0, 1]], [[4, 5]])
    assert carving.rates == (2.0,)


def test_a_job_that_does_not_mind_distance_takes_them_all() -> None:
    assert _ids(_carve([0, 1, 4, 5], jobs=1, slowdown=NO_SLOWDOWN)) == [[0, 1, 4, 5]]


def test_no_gang_is_wider_than_a_job_can_use() -> None:
    assert [len(gang) for gang in _carve(list(range(12)), jobs=1, high=3).gangs] == [3]


def test_too_few_gpus_for_a_gang_make_none() -> None:
    assert _carve([0, 1, 2], jobs=1, low=4).gangs == ()
    assert _carve([0, 1, 2], jobs=1, low=4).makespan == math.inf


def test_leftover_gpus_form_a_gang_only_if_large_enough() -> None:
    assert [len(g) for g in _carve([0, 1, 2, 3, 4], jobs=2, low=1).gangs] != [4]
    assert [len(g) for g in _carve([0, 1, 2, 3, 4], jobs=2, low=4).gangs] == [4]


def test_five_jobs_on_four_gpus_are_cut_for_the_fewest_waves() -> None:
    # One gang of 4 takes 5 x 1/4; four single GPUs take two waves of 1: wide gangs are better.
    assert [len(gang) for gang in _carve([0, 1, 2, 3], jobs=5, slowdown=NO_SLOWDOWN).gangs] == [4]
    # When a gang of more than one GPU is very slow, one GPU each it is.
    slow = Slowdown((9.0, 9.0, 9.0, 9.0))
    assert [len(gang) for gang in _carve([0, 1, 2, 3], jobs=5, slowdown=slow).gangs] == [1] * 4


def test_jobs_that_run_already_count_in_the_makespan() -> None:
    alone = _carve([0, 1], jobs=1, slowdown=NO_SLOWDOWN)
    beside = _carve([0, 1], jobs=1, slowdown=NO_SLOWDOWN, fixed=(1.0,))
    assert alone.makespan == pytest.approx(0.5)
    assert beside.makespan == pytest.approx(1.0)


def test_no_jobs_need_no_gangs() -> None:
    assert _carve([0, 1], jobs=0).gangs == ()


_PRIORS = st.lists(st.sampled_from([1.0, 1.05, 1.3, 1.5, 2.0, 4.0, 9.0]), min_size=4, max_size=4)
_SLOWDOWNS = _PRIORS.map(lambda values: Slowdown(tuple(sorted(values))))  # type: ignore[arg-type] # four of them


@given(
    gpus=st.sets(st.integers(0, 11)),
    jobs=st.integers(1, 8),
    low=st.integers(1, 4),
    extra=st.integers(0, 8),
    slowdown=_SLOWDOWNS,
)
def test_gangs_are_apart_within_bounds_and_rated_by_where_they_are(
    gpus: set[int], jobs: int, low: int, extra: int, slowdown: Slowdown
) -> None:
    carving = _carve(sorted(gpus), jobs, low=low, high=low + extra, slowdown=slowdown)
    used = [seat.gpu for gang in carving.gangs for seat in gang]
    assert len(set(used)) == len(used)
    assert set(used) <= gpus
    assert len(carving.gangs) <= jobs
    for gang, rate in zip(carving.gangs, carving.rates, strict=True):
        assert low <= len(gang) <= low + extra
        assert rate == pytest.approx(slowdown.rate(level_of(gang), len(gang)))
    assert list(carving.rates) == sorted(carving.rates, reverse=True)
    assert bool(carving.gangs) == (len(gpus) >= low)


@given(
    gpus=st.lists(st.integers(0, 11), min_size=1, max_size=12, unique=True),
    jobs=st.integers(1, 6),
    high=st.integers(1, 8),
    slowdown=_SLOWDOWNS,
)
def test_the_order_of_the_gpus_does_not_matter(
    gpus: list[int], jobs: int, high: int, slowdown: Slowdown
) -> None:
    there = _carve(gpus, jobs, high=high, slowdown=slowdown)
    back = _carve(gpus[::-1], jobs, high=high, slowdown=slowdown)
    assert there == back


def _seats_of(shape: list[tuple[int, int]]) -> list[GpuPosition]:
    """Seats exactly as far apart as each chunk says, every chunk in a rack of its own."""
    seats: list[GpuPosition] = []
    for number, (level, count) in enumerate(shape):
        first = 1000 * number
        for index in range(count):
            apart = first + index
            seats.append(
                GpuPosition(
                    rack=apart if level == CLUSTER else first,
                    machine=apart if level >= RACK else first,
                    slot=apart if level >= MACHINE else first,
                    gpu=GpuId(apart),
                )
            )
    return seats


_CHUNKS = st.tuples(st.sampled_from([SLOT, MACHINE, RACK, CLUSTER]), st.integers(1, 6))


@given(
    shape=st.lists(_CHUNKS, min_size=1, max_size=4),
    jobs=st.integers(1, 6),
    low=st.integers(1, 4),
    extra=st.integers(0, 7),
    slowdown=_SLOWDOWNS,
)
def test_a_bid_never_promises_more_than_carving_gives(
    shape: list[tuple[int, int]], jobs: int, low: int, extra: int, slowdown: Slowdown
) -> None:
    high = low + extra
    speed, best = shape_rates(tuple(sorted(shape)), jobs, low, high, slowdown)
    seats = _seats_of(shape)
    carving = carve(seats, jobs=jobs, min_gpus=low, max_gpus=high, slowdown=slowdown)
    alone = carve(seats, jobs=1, min_gpus=low, max_gpus=high, slowdown=slowdown)
    # What is left of several chunks may turn out closer together than it was counted.
    assert speed <= sum(carving.rates) * (1 + 1e-9)
    assert best <= max((*alone.rates, *carving.rates), default=0.0) * (1 + 1e-9)
    assert (speed > 0.0) == bool(carving.gangs)


@given(
    level=st.sampled_from([SLOT, MACHINE, RACK, CLUSTER]),
    whole=st.integers(0, 3),
    rest=st.integers(0, 3),
    jobs=st.integers(1, 6),
    slowdown=_SLOWDOWNS,
)
def test_whole_gangs_and_a_rest_are_carved_as_the_bid_promised(
    level: int, whole: int, rest: int, jobs: int, slowdown: Slowdown
) -> None:
    shape = [(level, 4)] * whole + ([(level, rest)] if rest else [])
    assume(shape)
    speed, _ = shape_rates(tuple(sorted(shape)), jobs, 1, 4, slowdown)
    carving = carve(_seats_of(shape), jobs=jobs, min_gpus=1, max_gpus=4, slowdown=slowdown)
    assert speed == pytest.approx(sum(carving.rates))


@given(
    gpus=st.sets(st.integers(0, 11), min_size=1),
    more=st.integers(0, 11),
    jobs=st.integers(1, 6),
    slowdown=_SLOWDOWNS,
)
def test_one_more_gpu_never_makes_a_lone_job_slower(
    gpus: set[int], more: int, jobs: int, slowdown: Slowdown
) -> None:
    assume(more not in gpus)
    before = _carve(sorted(gpus), 1, slowdown=slowdown)
    after = _carve(sorted({*gpus, more}), 1, slowdown=slowdown)
    assert after.makespan <= before.makespan * (1 + 1e-9)
