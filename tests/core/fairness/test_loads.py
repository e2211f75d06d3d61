import pytest

from themis.core.fairness import (
    JobLoad,
    PhaseSums,
    declared_phases,
    demand_max,
    longest_job,
    median_job,
    phase_work,
    remaining_phases,
    total_work,
)
from themis.core.model import AppId, AppSpec, JobId, JobSpec, OwnerId, Phase
from themis.errors import InvariantError


def job(name: str, time: float, max_gpus: int = 4, min_gpus: int = 1) -> JobSpec:
    return JobSpec(JobId(name), time, max_gpus, min_gpus)


def app(jobs: tuple[JobSpec, ...], *phases: Phase) -> AppSpec:
    return AppSpec(AppId("a"), OwnerId("ann"), jobs, phases)


FOUR = (job("a", 80.0), job("b", 120.0, 8, 2), job("c", 90.0), job("d", 100.0, 2))


def test_first_phase_has_the_apps_jobs_and_later_phases_median_copies() -> None:
    phases = declared_phases(app(FOUR, Phase(4, 8), Phase(2, 16), Phase(1, 36)))
    assert phases[0] == (
        JobLoad(640.0, 4),
        JobLoad(960.0, 8, 2),
        JobLoad(720.0, 4),
        JobLoad(800.0, 2),
    )
    # Upper median of 80, 90, 100, 120: job d, with its own limits.
    assert phases[1] == (JobLoad(1600.0, 2), JobLoad(1600.0, 2))
    assert phases[2] == (JobLoad(3600.0, 2),)


def test_targets_replace_the_common_number_of_iterations() -> None:
    phases = declared_phases(app(FOUR[:2], Phase(2, 50, targets=(10, 50))))
    assert [load.work for load in phases[0]] == [800.0, 6000.0]


def test_remaining_load_is_current_work_plus_copies_of_the_median() -> None:
    spec = app(FOUR, Phase(4, 8), Phase(2, 16), Phase(1, 36))
    now = (JobLoad(100.0, 4), JobLoad(0.0, 8, 2))
    assert remaining_phases(now, spec, (FOUR[0], FOUR[1]), 1) == (now, (JobLoad(4320.0, 8, 2),))
    assert remaining_phases(now, spec, (FOUR[0],), 2) == (now,)


def test_new_bracket_trains_jobs_like_the_app_and_not_its_survivors() -> None:
    spec = app(FOUR, Phase(2, 10), Phase(1, 20), Phase(2, 30), Phase(1, 5))
    rest = remaining_phases((), spec, (FOUR[0],), 0)
    assert [phase[0].work for phase in rest[1:]] == [20 * 80.0, 30 * 100.0, 5 * 100.0]


def test_unknown_phase_is_an_internal_error() -> None:
    with pytest.raises(InvariantError):
        remaining_phases((), app(FOUR, Phase(4, 8)), FOUR, 1)


def test_the_earlier_of_two_median_jobs_is_copied() -> None:
    twins = (job("a", 5.0, 1), job("b", 7.0, 2), job("c", 7.0, 3), job("d", 9.0, 4))
    assert median_job(twins).id == "b"


def test_finished_jobs_want_no_gpus() -> None:
    phases = ((JobLoad(10.0, 4), JobLoad(0.0, 8)), (JobLoad(5.0, 2),))
    assert demand_max(phases) == 4
    assert total_work(phases) == 15.0
    assert demand_max(()) == 0


def test_useful_demand_stops_where_the_longest_job_decides() -> None:
    phase = (JobLoad(400.0, 4), JobLoad(100.0, 4))
    assert longest_job(phase) == 100.0
    assert phase_work(phase) == 500.0
    assert PhaseSums.of(phase).useful == 5.0  # not 8: job one needs 100 s whatever the other has
    assert PhaseSums.of((JobLoad(0.0, 4),)).useful == 0.0
