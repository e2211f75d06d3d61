import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.core.fairness import Convention, JobLoad, PhaseLoad, ideal_time
from themis.errors import InvariantError

ONE_JOB: tuple[PhaseLoad, ...] = ((JobLoad(1200.0, 4),),)


def test_the_paper_multiplies_the_time_alone_by_the_contention() -> None:
    assert ideal_time(Convention.PAPER, ONE_JOB, contention=3, capacity=16) == 900.0
    assert ideal_time(Convention.PAPER, ONE_JOB, contention=3, capacity=2) == 1800.0


def test_budget_replaces_total_work_only_in_the_paper_convention() -> None:
    paper = ideal_time(Convention.PAPER, ONE_JOB, contention=3, capacity=16, budget=2400.0)
    fair = ideal_time(Convention.FAIR_SHARE, ONE_JOB, contention=3, capacity=16, budget=2400.0)
    assert paper == 1800.0
    assert fair == 300.0


def test_a_fair_share_may_be_a_fraction_of_a_gpu() -> None:
    assert ideal_time(Convention.FAIR_SHARE, ONE_JOB, contention=8, capacity=4) == 2400.0


@pytest.mark.parametrize("convention", Convention)
def test_an_app_that_no_gpu_suits_has_no_finite_ideal(convention: Convention) -> None:
    assert ideal_time(convention, ONE_JOB, contention=1, capacity=0) == math.inf
    assert ideal_time(convention, (), contention=1, capacity=0) == 0.0


def test_contention_below_one_is_an_internal_error() -> None:
    with pytest.raises(InvariantError):
        ideal_time(Convention.PAPER, ONE_JOB, contention=0.0, capacity=4)


PHASES = st.lists(
    st.lists(
        st.builds(JobLoad, st.floats(1.0, 1e5), st.integers(1, 16)), min_size=1, max_size=6
    ).map(tuple),
    min_size=1,
    max_size=4,
)


@given(PHASES, st.floats(1.0, 50.0), st.floats(1.0, 300.0))
def test_the_fair_share_is_the_formula_taken_literally(
    phases: list[PhaseLoad], contention: float, capacity: float
) -> None:
    share = capacity / contention
    expected = sum(
        max(
            sum(job.work for job in phase) / share,
            *(job.work / min(share, job.max_gpus) for job in phase),
        )
        for phase in phases
    )
    found = ideal_time(Convention.FAIR_SHARE, phases, contention=contention, capacity=capacity)
    assert found == pytest.approx(expected)


@given(st.integers(1, 64), st.floats(1.0, 20.0))
def test_the_conventions_agree_for_one_job_that_can_use_the_whole_cluster(
    capacity: int, contention: float
) -> None:
    phases = ((JobLoad(1000.0, 64),),)
    paper, fair = (
        ideal_time(convention, phases, contention=contention, capacity=capacity)
        for convention in (Convention.PAPER, Convention.FAIR_SHARE)
    )
    assert paper == pytest.approx(fair)
