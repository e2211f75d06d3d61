import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.core.fairness import (
    JobLoad,
    best_case_rest,
    phase_time,
    restart_time,
    rho,
    rho_of_nothing,
    serial_rest,
    single_job_time,
)
from themis.errors import InvariantError


def test_elapsed_and_restart_count_and_the_rest_goes_at_the_rate() -> None:
    assert single_job_time(100.0, 600.0, rate=3.0, restart=40.0) == 340.0


def test_job_without_gpus_never_ends_and_finished_job_needs_no_restart() -> None:
    assert single_job_time(100.0, 600.0, rate=0.0) == math.inf
    assert single_job_time(100.0, 0.0, rate=0.0, restart=40.0) == 100.0


@pytest.mark.parametrize(
    ("works", "rates", "best", "seconds"),
    [
        pytest.param([100, 100], [1, 1], [2, 2], 100.0, id="all work at all rates"),
        pytest.param([300, 10], [1, 1], [1, 1], 300.0, id="the longest job alone"),
        pytest.param([300, 0], [1, 3], [4, 4], 300.0, id="the GPUs of a finished job do not help"),
        pytest.param([100, 100], [2, 0], [2, 2], 100.0, id="a waiting job takes its turn"),
        pytest.param([100, 100], [2, 0], [2, 0], math.inf, id="a gang that cannot start"),
        pytest.param([100], [0], [0], math.inf, id="no GPUs"),
        pytest.param([0, 0], [0, 0], [0, 0], 0.0, id="no work"),
        pytest.param([], [], [], 0.0, id="no jobs"),
    ],
)
def test_a_phase_lasts_as_long_as_its_work_or_its_longest_job(
    works: list[float], rates: list[float], best: list[float], seconds: float
) -> None:
    assert phase_time(works, rates, best) == seconds


def test_restarts_are_spread_over_all_gpus() -> None:
    assert restart_time([(2, 40.0), (1, 35.0)], total_gpus=6) == pytest.approx(115 / 6)
    assert restart_time([], total_gpus=6) == 0.0
    assert restart_time([], total_gpus=0) == 0.0


def test_rho_is_shared_over_ideal_and_refuses_an_app_without_work() -> None:
    assert rho(300.0, 200.0) == 1.5
    assert rho(math.inf, math.inf) == 0.0
    with pytest.raises(InvariantError):
        rho(1.0, 0.0)


def test_the_serial_rest_runs_one_job_after_another_within_its_limits() -> None:
    phases = ((JobLoad(100.0, 1), JobLoad(100.0, 4)), (JobLoad(90.0, 8, 3),))
    assert serial_rest(phases, gang=1) == 100 + 100 + 30
    assert serial_rest(phases, gang=2) == 100 + 50 + 30
    assert serial_rest(phases, gang=100) == 100 + 25 + 90 / 8


def test_best_case_takes_all_usable_gpus_up_to_capacity() -> None:
    phases = ((JobLoad(400.0, 4), JobLoad(200.0, 4)), (JobLoad(0.0, 4),), ())
    assert best_case_rest(phases) == 100.0
    assert best_case_rest(phases, capacity=5) == 120.0
    assert best_case_rest(((JobLoad(400.0, 4), JobLoad(0.0, 4)),)) == 100.0


@given(
    st.lists(
        st.lists(
            st.builds(JobLoad, st.floats(0.0, 1e6), st.integers(1, 16)), min_size=1, max_size=6
        ).map(tuple),
        max_size=4,
    ),
    st.integers(1, 4),
)
def test_the_best_case_is_never_slower_than_the_smallest_gang(
    phases: list[tuple[JobLoad, ...]], gang: int
) -> None:
    assert best_case_rest(phases) <= serial_rest(phases, gang) * (1 + 1e-9)


def test_winning_nothing_is_worse_than_waiting_and_running_on_the_smallest_gang() -> None:
    assert rho_of_nothing(100.0, 600.0, 1300.0, ideal=1000.0) == 4.0
    assert rho_of_nothing(100.0, 600.0, 1300.0, ideal=1000.0, starvation=1.5) == 3.0
