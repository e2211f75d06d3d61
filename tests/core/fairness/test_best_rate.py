from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirements import examples
from themis.core.fairness import best_rate
from themis.core.model import (
    NO_SLOWDOWN,
    GpuId,
    GpuPosition,
    Machine,
    MeasuredSlowdown,
    Slowdown,
    Topology,
    level_of,
)

SENSITIVE = Slowdown((1.0, 1.2, 3.0, 5.0))
TWO_RACKS = Topology(
    (
        Machine("m0", "r0", (2, 2)),
        Machine("m1", "r0", (2,)),
        Machine("m2", "r1", (1, 1)),
    )
)


def seats(*gpus: int) -> list[GpuPosition]:
    return [TWO_RACKS.seats[GpuId(gpu)] for gpu in gpus]


def ids(gang: tuple[GpuPosition, ...]) -> list[int]:
    return [seat.gpu for seat in gang]


@pytest.mark.parametrize(
    ("held", "rate", "gang"),
    [
        pytest.param([], 0.0, [], id="nothing held"),
        pytest.param([5], 1.0, [5], id="one GPU has no slowdown"),
        pytest.param([0, 1, 4], 2.0, [0, 1], id="a far GPU is left out when that is faster"),
        pytest.param([0, 1, 2, 4], 3 / 1.2, [0, 1, 2], id="three on a machine beat two in a slot"),
        pytest.param([6, 4], 1.0, [4], id="alone rather than across racks, lowest id"),
        pytest.param([7, 6, 5, 4], 2.0, [4, 5], id="the order of what is held does not matter"),
    ],
)
def test_a_job_uses_the_fastest_part_of_what_it_holds(
    held: list[int], rate: float, gang: list[int]
) -> None:
    found, chosen = best_rate(SENSITIVE, 1, 8, seats(*held))
    assert found == pytest.approx(rate)
    assert ids(chosen) == gang


def test_below_the_gang_a_job_cannot_run() -> None:
    assert best_rate(SENSITIVE, 3, 4, seats(0, 1)) == (0.0, ())


def test_a_gang_takes_slow_gpus_when_it_must() -> None:
    rate, gang = best_rate(SENSITIVE, 3, 4, seats(0, 1, 6))
    assert rate == pytest.approx(3 / 5.0)
    assert ids(gang) == [0, 1, 6]


def test_more_than_the_maximum_is_not_used_and_ties_stay_local() -> None:
    rate, gang = best_rate(NO_SLOWDOWN, 1, 2, seats(0, 2, 3, 4, 5))
    assert rate == 2.0
    assert ids(gang) == [2, 3]  # one slot, although lower ids would do as well


def test_a_measurement_that_favours_a_wide_spread_is_believed() -> None:
    odd = Slowdown((1.0, 1.0, 1.0, 1.0), (MeasuredSlowdown(3, 2, 0.5),))
    rate, gang = best_rate(odd, 1, 2, seats(0, 1, 4, 6, 7))
    assert rate == 4.0
    assert ids(gang) == [0, 6]


@st.composite
def instances(draw: st.DrawFn) -> tuple[Slowdown, int, int, list[GpuPosition]]:
    slots = st.lists(st.integers(1, 3), min_size=1, max_size=3)
    shapes = draw(st.lists(st.tuples(st.integers(0, 1), slots), min_size=1, max_size=4))
    topology = Topology.in_locality_order(
        Machine(f"m{index}", f"r{rack}", tuple(sizes)) for index, (rack, sizes) in enumerate(shapes)
    )
    chosen = draw(st.permutations(topology.seats))[: draw(st.integers(0, 7))]
    level = st.sampled_from((1.0, 1.5, 2.0, 3.0))  # round numbers, so that ties do occur
    priors = draw(st.tuples(level, level, level, level))
    measured = draw(
        st.dictionaries(
            st.tuples(st.integers(0, 3), st.integers(2, 7)), st.sampled_from((0.5, 1.0, 2.5))
        )
    )
    slowdown = Slowdown(
        priors, tuple(MeasuredSlowdown(*key, value) for key, value in measured.items())
    )
    low = draw(st.integers(1, 4))
    return slowdown, low, draw(st.integers(low, 8)), chosen


@examples(150)
@given(instances())
def test_best_rate_agrees_with_a_search_through_all_subsets(
    instance: tuple[Slowdown, int, int, list[GpuPosition]],
) -> None:
    slowdown, low, high, held = instance
    in_order = sorted(held, key=lambda seat: seat.gpu)
    gangs = [
        gang
        for size in range(low, min(high, len(held)) + 1)
        for gang in combinations(in_order, size)
    ]
    expected: tuple[GpuPosition, ...] = min(
        gangs,
        key=lambda gang: (
            -slowdown.rate(level_of(gang), len(gang)),
            level_of(gang),
            len(gang),
            [seat.gpu for seat in gang],
        ),
        default=(),
    )
    rate = slowdown.rate(level_of(expected), len(expected)) if expected else 0.0
    assert best_rate(slowdown, low, high, held) == (rate, expected)
