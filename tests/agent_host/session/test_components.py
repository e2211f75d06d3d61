"""What an agent session is made of, each part alone."""

import math
from dataclasses import replace
from typing import Any

import pytest

from themis.agent_host.session.homes import BINDING_SECONDS, HomeMachines
from themis.agent_host.session.leases import HeldLeases
from themis.agent_host.session.outcomes import EndedRun, RunVerdict
from themis.agent_host.session.runs import FIRST_SILENCE, RunTracker
from themis.agent_host.session.trials import FIRST_BACKOFF, TrialRecord, TrialTable
from themis.apps import parse_app, plan_app
from themis.core.agent.events import JobBound, Window
from themis.core.model import AppId, GpuId, JobId, Lease, LeaseSource, OwnerId
from themis.protocol.agent_messages import (
    JobPast,
    LeaseNews,
    PointsNews,
    ReleaseRequest,
    RunNews,
    StopRequest,
)
from themis.protocol.node_messages import NOT_FINITE, Point, RunState

JOB, OTHER = JobId("0"), JobId("1")
GPUS = (GpuId(3),)


def table(**change: Any) -> TrialTable:
    keys = {"name": "a", "command": ["x"], "search": {"n": 2, "params": {"lr": [1, 2]}}}
    app = parse_app(keys | {"stop": {"max_iterations": 9}, "retries": 2} | change)
    return TrialTable(app, plan_app(app, AppId("a"), OwnerId("o"), seed=1).trials)


class TestTrials:
    def test_backoff_doubles_until_the_retries_are_used_up(self) -> None:
        trials = table()
        assert trials.fail(JOB, 100.0)
        assert trials.next_retry == 100.0 + FIRST_BACKOFF
        assert not trials.take_retry(JOB, 100.5)
        assert trials.take_retry(JOB, 101.0)
        assert not trials.is_backing_off(JOB)
        assert trials.fail(JOB, 200.0)
        assert trials.next_retry == 200.0 + 2 * FIRST_BACKOFF
        assert not trials.fail(JOB, 300.0)

    def test_false_starts_are_counted_apart_from_failures(self) -> None:
        trials = table()
        assert [trials.fail_start(JOB, 0.0) for _ in range(3)] == [True, True, False]
        assert trials.fail(JOB, 0.0)

    def test_an_app_has_failed_when_all_its_jobs_have(self) -> None:
        trials = table()
        trials.give_up(JOB, "boom")
        assert (trials.failed, trials.all_failed) == ((JOB,), False)
        trials.give_up(OTHER, "boom")
        assert trials.all_failed
        assert trials.reached(JOB).failed == "boom"

    @pytest.mark.parametrize(("goal", "cost"), [("minimize", 0.5), ("maximize", -0.5)])
    def test_a_lower_cost_is_better_whatever_the_goal(self, goal: str, cost: float) -> None:
        trials = table(metric={"goal": goal})
        assert trials.measure(JOB, 0.5) == cost
        assert math.isinf(trials.measure(JOB, NOT_FINITE))
        assert trials[JOB].measured

    def test_progress_moves_on_but_for_a_run_that_starts_earlier(self) -> None:
        trials = table()
        assert trials.advance(JOB, 5.0)
        assert not trials.advance(JOB, 4.0)
        trials.rewind(JOB, 1.0)
        assert trials.counted(JOB) == 1.0

    def test_nothing_counts_where_the_app_counts_no_iterations(self) -> None:
        trials = table(stop={"method": "none"})
        trials.advance(JOB, 5.0)
        assert trials.counted(JOB) == 0.0


def points(first: int, *reports: tuple[float, float | None], run: int = 7) -> PointsNews:
    return PointsNews(run, JOB, first, tuple(Point(n, time) for n, time in reports))


class TestRuns:
    def test_run_is_stopped_once_and_keeps_its_key_until_it_ends(self) -> None:
        runs = RunTracker("s")
        key = runs.request(JOB, GPUS, 0.0)
        assert runs.job_of(key) == JOB
        assert runs.stop(JOB, 1.0) == StopRequest(0, key)
        assert runs.stop(JOB, 1.0) is None
        again = runs.request(JOB, GPUS, 2.0)
        assert again != key
        stopped = runs.take_stopped(key)
        assert stopped is not None
        assert stopped.told_at is None, "it had not reported, and had nothing to save"
        assert JOB in runs

    def test_news_of_an_earlier_run_do_not_match_the_current_one(self) -> None:
        runs = RunTracker("s")
        key = runs.request(JOB, GPUS, 0.0)
        news = RunNews(7, JOB, GPUS, key, RunState.RUNNING)
        assert runs.match(replace(news, key="other")) is None
        run = runs.match(news)
        assert run is not None
        assert run.number == 7

    def test_points_that_come_twice_are_taken_once_and_give_windows(self) -> None:
        runs = RunTracker("s")
        runs.request(JOB, GPUS, 0.0)
        first = runs.take_points(points(1, (1.0, 10.0), (3.0, 14.0)), 20.0, 9.0)
        assert first.starts_at == 1.0
        assert first.windows == (Window(JOB, GPUS, 0.0, 2.0, 4.0),)
        again = runs.take_points(points(1, (1.0, 10.0), (3.0, 14.0), (4.0, 15.0)), 21.0, 9.0)
        assert [point.iteration for point in again.points] == [4.0]
        assert again.starts_at is None
        beyond = runs.take_points(points(4, (99.0, 16.0)), 22.0, 9.0)
        assert not beyond.windows, "it ignores its limit"

    def test_points_of_an_earlier_run_count_but_time_nothing(self) -> None:
        runs = RunTracker("s")
        runs.adopt(RunNews(8, JOB, GPUS, "k", RunState.RUNNING), 0.0, stopping=False)
        report = runs.take_points(points(1, (1.0, 10.0), (3.0, 14.0)), 20.0, 9.0)
        assert (len(report.points), report.gpus, report.windows) == (2, (), ())

    def test_the_time_to_the_first_iteration_is_measured(self) -> None:
        runs = RunTracker("s")
        runs.request(JOB, GPUS, 0.0)
        runs.note_running(JOB, 5.0)
        report = runs.take_points(points(1, (1.0, 50.0), (3.0, 52.0)), 20.0, 9.0)
        assert report.restart_seconds == 20.0 - 5.0 - 2.0

    def test_a_silent_run_is_believed_to_train_for_some_intervals_only(self) -> None:
        runs = RunTracker("s")
        runs.request(JOB, GPUS, 0.0)
        assert runs.seconds_trained(JOB, 99.0, 3.0) == 0.0, "its process was not seen"
        runs.note_running(JOB, 100.0)
        assert runs.seconds_trained(JOB, 110.0, 3.0) == 7.0
        assert runs.seconds_trained(JOB, 999.0, 3.0) == FIRST_SILENCE
        runs.take_points(points(1, (1.0, None)), 1000.0, 9.0)
        runs.take_points(points(2, (2.0, None)), 1010.0, 9.0)
        assert runs.seconds_trained(JOB, 1005.0 + 10.0, 3.0) == 5.0
        assert runs.seconds_trained(JOB, 2000.0, 3.0) == 30.0

    def test_the_longest_runtime_counts_all_runs_of_a_job(self) -> None:
        runs = RunTracker("s")
        runs.restart([JobPast(JOB, 40.0, 0)])
        assert math.isinf(runs.deadline(JOB, 100.0))
        runs.request(JOB, GPUS, 1000.0)
        assert runs.deadline(JOB, 100.0) == 1060.0
        runs.end(JOB, 1010.0)
        runs.request(JOB, GPUS, 2000.0)
        assert runs.deadline(JOB, 100.0) == 2050.0


def ended(code: int | None, state: RunState = RunState.EXITED, done: float = 9.0) -> RunNews:
    return RunNews(7, JOB, GPUS, "k", state, code, done, "boom")


DONE, CONTINUES, FAILED, NEVER_STARTED = RunVerdict


@pytest.mark.parametrize(
    ("news", "about", "verdict", "why"),
    [
        pytest.param(ended(0), {}, DONE, "", id="at its target"),
        pytest.param(ended(0, done=5.0), {}, FAILED, "iteration 5", id="exits with 0 too early"),
        pytest.param(ended(0, done=5.0), {"counted": False}, DONE, "", id="nothing is counted"),
        pytest.param(ended(75, done=99.0), {}, DONE, "", id="was stopped beyond its target"),
        pytest.param(ended(75), {"reported": True}, CONTINUES, "", id="saves and exits"),
        pytest.param(ended(75, done=1.0), {}, FAILED, "boom", id="saves before it reports"),
        pytest.param(ended(1), {}, FAILED, "boom", id="crashes"),
        pytest.param(ended(1), {"told": True}, CONTINUES, "", id="crashes when told to stop"),
        pytest.param(ended(-9), {"lease_ended": True}, CONTINUES, "", id="ends with its lease"),
        pytest.param(ended(None, RunState.LOST), {"ran": True}, CONTINUES, "", id="is lost"),
    ],
)
def test_how_a_run_ended_decides_what_follows(
    news: RunNews, about: dict[str, Any], verdict: RunVerdict, why: str
) -> None:
    trial = TrialRecord({}, done=news.iterations, reported=True)
    found = EndedRun(news, trial, 9.0, **{"counted": True} | about).judge()
    assert found[0] is verdict
    assert why in found[1]


def test_a_run_that_is_lost_before_its_process_ran_never_started() -> None:
    run = EndedRun(ended(None, RunState.LOST), TrialRecord({}), 9.0, counted=True)
    assert run.judge() == (NEVER_STARTED, "boom")


class TestHomes:
    def test_jobs_are_bound_once_checkpoints_are_known_not_to_be_shared(self) -> None:
        homes = HomeMachines()
        assert homes.report(0.0, OTHER, 2) is None
        assert homes.refuse(1.0, JOB, 4) == JobBound(1.0, JOB, 4)
        assert homes.refuse(1.0, JOB, 4) is None, "it waits for that machine already"
        assert homes.report(2.0, OTHER, 2) == JobBound(2.0, OTHER, 2)

    def test_waiting_job_is_released_and_running_job_stays_bound(self) -> None:
        homes = HomeMachines()
        homes.refuse(0.0, JOB, 4)
        end = homes.next_expiry
        assert end == BINDING_SECONDS
        assert homes.expire(end, JOB, running=True) is None
        assert homes.next_expiry == 2 * BINDING_SECONDS
        assert homes.expire(2 * end, JOB, running=False) == JobBound(2 * end, JOB, None)
        assert math.isinf(homes.next_expiry)


def lease(gpu: int, token: int, end: float = 100.0) -> Lease:
    return Lease(GpuId(gpu), AppId("a"), token, 0.0, end, LeaseSource.AUCTION)


class TestLeases:
    def test_late_end_of_an_old_lease_keeps_the_new_lease(self) -> None:
        held = HeldLeases([lease(1, 10)])
        held.change(LeaseNews(granted=(lease(1, 12),), revoked=(lease(1, 10),)))
        assert held.gpus == (1,)
        held.change(LeaseNews(revoked=(lease(1, 12),)))
        assert not held.gpus

    def test_gpus_are_given_back_with_the_tokens_of_their_leases(self) -> None:
        held = HeldLeases([lease(1, 10), lease(2, 11)])
        assert held.release([GpuId(2), GpuId(5)]) == ReleaseRequest((GpuId(2),), (11,))

    def test_a_lease_that_is_gone_or_past_its_end_has_ended(self) -> None:
        held = HeldLeases([lease(1, 10, end=50.0)])
        assert not held.any_ended([GpuId(1)], 49.0)
        assert held.any_ended([GpuId(1)], 50.0)
        assert held.any_ended([GpuId(2)], 0.0)
