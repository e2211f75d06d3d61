"""Successive halving: who survives, what they train, and what is known of phases to come."""

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.small_sims import sim_app
from themis.core.model import AppId, AppSpec, JobId, JobSpec, OwnerId, Phase
from themis.core.tuners import Decision, Finished, Halving, NextPhase, Single, Tuner, tuner_for
from themis.errors import ConfigError, RefusedError
from themis.sim.workloads import SimApp, true_phases

PAPER = (Phase(4, 8), Phase(2, 16), Phase(1, 36))


def _jobs(*serial: float) -> tuple[JobSpec, ...]:
    return tuple(JobSpec(JobId(f"j{i}"), time, max_gpus=8) for i, time in enumerate(serial))


def _job(number: int) -> JobId:
    return JobId(f"j{number}")


def _reach(tuner: Tuner, metrics: dict[int, float]) -> Decision | None:
    decision: Decision | None = None
    for number, metric in metrics.items():
        assert decision is None
        decision = tuner.reached(_job(number), metric)
    return decision


def test_the_first_phase_trains_every_job_to_its_first_target() -> None:
    tuner = Halving(_jobs(80, 100, 100, 120), PAPER)
    assert tuner.begin() == NextPhase(0, tuple((_job(i), 8.0) for i in range(4)))
    assert tuner.phase == 0
    assert tuner.phases == PAPER


def test_nothing_is_decided_until_the_last_job_of_the_rung_is_in() -> None:
    tuner = Halving(_jobs(80, 100, 100, 120), PAPER)
    tuner.begin()
    assert [tuner.reached(_job(i), 0.5) for i in (2, 0, 3)] == [None] * 3
    assert tuner.phase == 0


def test_the_better_half_goes_on_and_targets_add_up_to_the_end() -> None:
    tuner = Halving(_jobs(80, 100, 100, 120), PAPER)
    tuner.begin()
    second = _reach(tuner, {0: 0.4, 1: 0.3, 2: 0.2, 3: 0.1})
    assert second == NextPhase(1, ((_job(2), 24.0), (_job(3), 24.0)))
    third = _reach(tuner, {3: 0.2, 2: 0.1})
    assert third == NextPhase(2, ((_job(2), 60.0),))
    assert _reach(tuner, {2: 0.05}) == Finished(_job(2))


def test_ties_go_to_the_job_declared_first_whatever_the_order_of_arrival() -> None:
    for order in itertools.permutations(range(4)):
        tuner = Halving(_jobs(1, 1, 1, 1), PAPER)
        tuner.begin()
        decision = _reach(tuner, dict.fromkeys(order, 0.5))
        assert isinstance(decision, NextPhase)
        assert [job for job, _ in decision.targets] == [_job(0), _job(1)]


def test_a_job_that_was_stopped_can_not_reach_a_target() -> None:
    tuner = Halving(_jobs(1, 1), (Phase(2, 1), Phase(1, 1)))
    tuner.begin()
    _reach(tuner, {0: 0.1, 1: 0.2})
    with pytest.raises(RefusedError, match="j1: it is not in phase 1"):
        tuner.reached(_job(1), 0.0)


def test_phases_to_come_are_copies_of_the_upper_median_survivor() -> None:
    # The paper's getJobsInPhase: survivors of 120 and 100 s make a last phase of 36 x 120 s.
    tuner = Halving(_jobs(80, 100, 100, 120), PAPER)
    tuner.begin()
    second, third = tuner.jobs_in_phase(1), tuner.jobs_in_phase(2)
    assert [(info.iterations_left, info.iteration_time) for info in second] == [(16, 100.0)] * 2
    assert [(info.iterations_left, info.iteration_time) for info in third] == [(36, 100.0)]
    _reach(tuner, {0: 0.4, 1: 0.3, 2: 0.2, 3: 0.1})
    assert [info.iteration_time for info in tuner.jobs_in_phase(2)] == [120.0]


def test_the_present_phase_names_its_jobs_with_what_they_can_use() -> None:
    tuner = Halving(_jobs(80, 100, 100, 120), PAPER)
    tuner.begin()
    _reach(tuner, {0: 0.4, 1: 0.3, 2: 0.2, 3: 0.1})
    infos = tuner.jobs_in_phase(1)
    assert [(info.job, info.iterations_left) for info in infos] == [(_job(2), 16), (_job(3), 16)]
    assert {(info.min_gpus, info.max_gpus) for info in infos} == {(1, 8)}


def test_phases_with_per_job_targets_pass_them_to_remaining_jobs() -> None:
    tuner = Halving(_jobs(1, 1, 1), (Phase(3, 5, (5, 6, 7)), Phase(2, 9, (8, 9))))
    first = tuner.begin()
    assert [target for _, target in first.targets] == [5.0, 6.0, 7.0]
    assert [info.iterations_left for info in tuner.jobs_in_phase(1)] == [8, 9]
    second = _reach(tuner, {0: 0.9, 1: 0.1, 2: 0.2})
    assert second == NextPhase(1, ((_job(1), 6.0 + 8.0), (_job(2), 7.0 + 9.0)))


def test_one_phase_needs_no_tuning_and_the_best_metric_wins() -> None:
    jobs = _jobs(1, 1, 1)
    spec = AppSpec(AppId("a"), OwnerId("a"), jobs, (Phase(3, 5, (5, 6, 7)),))
    tuner = tuner_for(spec)
    assert isinstance(tuner, Single)
    assert [target for _, target in tuner.begin().targets] == [5.0, 6.0, 7.0]
    assert _reach(tuner, {0: 0.3, 2: 0.1, 1: 0.2}) == Finished(_job(2))


def test_a_single_job_is_finished_when_it_is_done() -> None:
    tuner = tuner_for(sim_app("a", work=10.0).spec)
    assert tuner.begin() == NextPhase(0, ((_job(0), 10.0),))
    assert tuner.reached(_job(0), 1.0) == Finished(_job(0))


def test_no_tuning_over_several_phases_is_refused() -> None:
    with pytest.raises(ConfigError, match="one phase"):
        Single(_jobs(1, 1), (Phase(2, 1), Phase(1, 1)))


def test_an_app_of_several_phases_is_halved() -> None:
    app = sim_app("a", jobs=2, phases=(Phase(2, 1), Phase(1, 1)))
    tuner = tuner_for(app.spec)
    assert isinstance(tuner, Halving)
    assert not isinstance(tuner, Single)


@st.composite
def _apps(draw: st.DrawFn) -> SimApp:
    counts = [draw(st.integers(1, 9))]
    while counts[-1] > 1 and draw(st.booleans()):
        counts.append(draw(st.integers(1, counts[-1] - 1)))
    phases = [Phase(count, draw(st.integers(1, 50))) for count in counts]
    qualities = draw(st.lists(st.sampled_from([0.1, 0.2, 0.3]), min_size=9, max_size=9))
    return sim_app("a", jobs=counts[0], phases=phases, qualities=qualities[: counts[0]])


@given(app=_apps(), order=st.randoms(use_true_random=False))
def test_the_tuner_trains_exactly_what_the_workload_says_really_runs(
    app: SimApp, order: Random
) -> None:
    tuner = tuner_for(app.spec)
    decision: Decision | None = tuner.begin()
    quality = {job.spec.id: job.quality for job in app.jobs}
    done = dict.fromkeys(quality, 0.0)
    for phase in true_phases(app):
        assert isinstance(decision, NextPhase)
        work = [target - done[job] for job, target in decision.targets]
        assert work == [load.work for load in phase]
        names = [job for job, _ in decision.targets]
        order.shuffle(names)
        done |= dict(decision.targets)
        for job in names:
            decision = tuner.reached(job, quality[job])
    assert isinstance(decision, Finished)
