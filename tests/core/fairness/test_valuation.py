"""A cached table, asked about GPUs that match none of its rows."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.core.fairness.valuation import Valuation, gang_counts
from themis.core.model import CLUSTER, MACHINE, RACK, SLOT, GpuId, Machine, TableRow, Topology

TOPOLOGY = Topology(
    (Machine("m0", "r0", (2, 2)), Machine("m1", "r0", (2, 2)), Machine("m2", "r1", (2, 2)))
)
VALUATION = Valuation(
    (TableRow(SLOT, 2, 900.0), TableRow(MACHINE, 4, 600.0), TableRow(RACK, 6, 500.0)), 1000.0
)


@pytest.mark.parametrize(
    ("level", "count", "seconds"),
    [
        pytest.param(SLOT, 2, 900.0, id="a row of its own"),
        pytest.param(SLOT, 4, 600.0, id="a worse row is good enough for closer GPUs"),
        pytest.param(SLOT, 8, 500.0, id="a row two levels worse, and smaller"),
        pytest.param(MACHINE, 5, 600.0, id="the largest row that is not larger"),
        pytest.param(MACHINE, 3, math.inf, id="a better row promises nothing for GPUs apart"),
        pytest.param(RACK, 4, math.inf, id="nor does a better row of the same count"),
        pytest.param(CLUSTER, 12, math.inf, id="no row at this level or a worse one"),
        pytest.param(SLOT, 1, math.inf, id="too few for any row"),
    ],
)
def test_gpus_are_worth_the_largest_row_at_this_or_worse_level(
    level: int, count: int, seconds: float
) -> None:
    assert VALUATION.lookup(level, count) == seconds


def test_faster_of_two_rows_with_one_count_decides() -> None:
    # Real measurements are not monotone: here a rack is quicker than a machine.
    valuation = Valuation((TableRow(MACHINE, 4, 600.0), TableRow(RACK, 4, 550.0)), 1000.0)
    assert valuation.lookup(SLOT, 4) == 550.0
    assert valuation.lookup(MACHINE, 4) == 550.0


def test_seconds_shrink_with_the_work_that_is_left() -> None:
    seats = TOPOLOGY.seats[:4]
    assert VALUATION.seconds(seats, gang=8, gangs=1, work_left=1000.0) == 600.0
    assert VALUATION.seconds(seats, gang=8, gangs=1, work_left=250.0) == pytest.approx(150.0)
    assert VALUATION.seconds_at(MACHINE, 4, work_left=250.0) == pytest.approx(150.0)


def test_a_job_leaves_out_gpus_that_would_slow_it_down() -> None:
    slow_apart = Valuation((TableRow(MACHINE, 4, 600.0), TableRow(RACK, 6, 700.0)), 1000.0)
    # GPUs 0 to 3 are one machine, 4 and 5 stand on the next.
    assert slow_apart.seconds(TOPOLOGY.seats[:6], gang=8, gangs=1, work_left=1000.0) == 600.0


@pytest.mark.parametrize(
    ("gpus", "gang", "gangs", "counts"),
    [
        pytest.param((0, 1, 2, 4, 8), 8, 1, (2, 3, 4, 5), id="one gang takes one place"),
        pytest.param((0, 1, 2, 4, 8), 2, 2, (3, 3, 4, 4), id="a pair, and one more GPU"),
        pytest.param((0, 2, 4, 6), 2, 2, (2, 4, 4, 4), id="pairs across slots of a machine"),
        pytest.param((0, 4, 8), 1, 2, (2, 2, 2, 2), id="single GPUs are never apart"),
    ],
)
def test_gpus_are_sorted_into_gangs_as_jobs_would_use_them(
    gpus: tuple[int, ...], gang: int, gangs: int, counts: tuple[int, int, int, int]
) -> None:
    seats = [TOPOLOGY.seats[GpuId(gpu)] for gpu in gpus]
    assert gang_counts(seats, gang, gangs) == counts


@given(
    st.sets(st.integers(0, 11), min_size=1),
    st.sampled_from((1, 2, 4, 8)),
    st.integers(1, 6),
    st.floats(1.0, 1000.0),
)
def test_cached_gpu_values_equal_those_of_their_seats(
    gpus: set[int], gang: int, gangs: int, left: float
) -> None:
    chosen = tuple(map(GpuId, sorted(gpus)))
    seats = [TOPOLOGY.seats[gpu] for gpu in chosen]
    plain = VALUATION.seconds(seats, gang=gang, gangs=gangs, work_left=left)
    for _ in range(2):
        assert plain == VALUATION.seconds_on(
            chosen, TOPOLOGY.seats, gang=gang, gangs=gangs, work_left=left
        )


def test_more_sets_of_gpus_than_are_remembered_are_still_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("themis.core.fairness.valuation.MOST_REMEMBERED", 3)
    valuation = Valuation(VALUATION.table, 1000.0)
    for count in (*range(1, 9), *range(1, 9)):
        gpus = tuple(map(GpuId, range(count)))
        assert valuation.seconds_on(
            gpus, TOPOLOGY.seats, gang=8, gangs=1, work_left=500.0
        ) == valuation.seconds(TOPOLOGY.seats[:count], gang=8, gangs=1, work_left=500.0)
