import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from themis.agent_host.session.outcomes import RESUMABLE
from themis.agent_host.session.runs import FIRST_SILENCE
from themis.agent_host.session.session import AgentSession
from themis.agent_host.session.trials import FIRST_BACKOFF
from themis.apps import parse_app, plan_app
from themis.core.agent import Agent
from themis.core.agent.commands import AgentCommand
from themis.core.agent.events import AgentEvent, MoveTimed, Progressed
from themis.core.model import AppId, AppSpec, GpuId, JobId, Lease, LeaseSource, OwnerId
from themis.core.model.presets import preset
from themis.core.tuners import Curves, Tuner
from themis.protocol.agent_messages import (
    AgentRequest,
    AgentStart,
    AppEndNews,
    Curve,
    EndApp,
    JobPast,
    LeaseNews,
    PhaseStart,
    PointsNews,
    Reached,
    RefusalNews,
    ReleaseRequest,
    RunNews,
    RunRequest,
    StopRequest,
    TargetChange,
    TrialParams,
)
from themis.protocol.node_messages import NOT_FINITE, Point, RunState

TOPOLOGY = preset("demo16")
SWEEP: dict[str, Any] = {
    "name": "sweep",
    "command": ["train", "--lr={lr}"],
    "search": {"n": 4, "params": {"lr": {"log": [1e-3, 1e-1]}}},
    "stop": {"method": "halving", "max_iterations": 12},
    "iteration_seconds": 1.0,
    "retries": 1,
}


class RecordedAgent(Agent):
    """An agent whose events are kept."""

    def __init__(self, events: list[AgentEvent], spec: AppSpec, tuner: Tuner, **more: Any) -> None:
        super().__init__(spec, tuner, **more)
        self._events = events

    def handle(self, event: AgentEvent) -> list[AgentCommand]:
        self._events.append(event)
        return super().handle(event)


class Stage:
    """Plays the service to one session: grants, runs, losses, and restarts of the agent."""

    def __init__(self, **change: Any) -> None:
        given = SWEEP | change
        self.written = parse_app({key: value for key, value in given.items() if value is not None})
        self.plan = plan_app(self.written, AppId("sweep"), OwnerId("ann"), seed=3)
        self.at = 0.0
        self.leases: dict[int, Lease] = {}
        self.reached: list[Reached] = []
        self.trials: list[TrialParams] = []
        self.curves: dict[JobId, list[tuple[float, float]]] = {}
        self.done: dict[JobId, float] = {}
        self.phase = 0
        self.live: dict[JobId, RunNews] = {}
        self.ended: dict[JobId, RunNews] = {}
        self.asked: list[RunRequest] = []
        self.stopped: list[int | str] = []
        self.released: list[int] = []
        self.end: EndApp | None = None
        self.count = 0
        self.sessions = 0
        self.past: tuple[JobPast, ...] = ()
        self.events: list[AgentEvent] = []
        self.agents: list[Agent] = []
        self.session = self.begin()

    def begin(self) -> AgentSession:
        """An agent starts, or starts again."""
        self.sessions += 1
        self.session = AgentSession(
            self.plan,
            session=f"s{self.sessions}",
            choose=lambda _: {"lr": 0.5},
            make_agent=self._make_agent,
        )
        self.hear(
            AgentStart(
                self.plan.spec,
                TOPOLOGY,
                tuple(self.leases.values()),
                (*self.live.values(), *self.ended.values()),
                self.phase,
                tuple(self.done.items()),
                tuple(self.trials),
                tuple(self.reached),
                tuple(Curve(job, tuple(points)) for job, points in self.curves.items()),
                past=self.past,
            )
        )
        return self.session

    def _make_agent(self, spec: AppSpec, tuner: Tuner, **options: Any) -> Agent:
        self.agents.append(RecordedAgent(self.events, spec, tuner, **options))
        return self.agents[-1]

    def hear(self, item: Any) -> list[AgentRequest]:
        self.at += 0.01
        return self._take(self.session.hear(self.at, item))

    def wake(self, at: float) -> list[AgentRequest]:
        self.at = at
        return self._take(self.session.wake(at))

    def _take(self, said: Sequence[AgentRequest]) -> list[AgentRequest]:
        for each in said:
            match each:
                case RunRequest():
                    self.asked.append(each)
                    self.count += 1
                    self.live[each.job] = RunNews(
                        self.count, each.job, each.gpus, each.key, RunState.STARTING
                    )
                    self.ended.pop(each.job, None)
                case StopRequest():
                    self.stopped.append(each.run or each.key)
                case Reached():
                    self.reached.append(each)
                case TrialParams():
                    self.trials.append(each)
                case PhaseStart():
                    self.phase = each.phase
                case ReleaseRequest():
                    self.released.extend(each.gpus)
                    for gpu in each.gpus:
                        del self.leases[gpu]
                case EndApp():
                    self.end = each
                case _:
                    pass
        return list(said)

    def grant(self, *gpus: int) -> list[AgentRequest]:
        leases = tuple(
            Lease(
                GpuId(gpu), AppId("sweep"), 100 + gpu, self.at, self.at + 600.0, LeaseSource.AUCTION
            )
            for gpu in gpus
        )
        self.leases.update((lease.gpu, lease) for lease in leases)
        return self.hear(LeaseNews(granted=leases))

    def revoke(self, *gpus: int) -> list[AgentRequest]:
        return self.hear(LeaseNews(revoked=tuple(self.leases.pop(gpu) for gpu in gpus)))

    def report(self, job: JobId, iteration: float, loss: float) -> list[AgentRequest]:
        run = self.live[job]
        self.done[job] = iteration
        self.curves.setdefault(job, []).append((iteration, loss))
        point = Point(iteration, None, (("loss", loss),))
        return self.hear(PointsNews(run.run, job, len(self.curves[job]), (point,)))

    def exit(
        self,
        job: JobId,
        code: int | None,
        state: RunState = RunState.EXITED,
        *,
        interrupted: bool = False,
    ) -> list[AgentRequest]:
        run = self.live.pop(job)
        done = self.done.get(job, 0.0)
        over = RunNews(
            run.run, job, run.gpus, run.key, state, code, done, "boom", interrupted=interrupted
        )
        self.ended[job] = over
        return self.hear(over)

    def finish(self, job: JobId, loss: float) -> list[AgentRequest]:
        """A job trains to its limit and exits."""
        limit = next(each.limit for each in reversed(self.asked) if each.job == job)
        self.report(job, limit, loss)
        return self.exit(job, 0)

    def running(self) -> list[JobId]:
        return sorted(self.live)


def losses(stage: Stage) -> dict[JobId, float]:
    return {job.id: 1.0 + index for index, job in enumerate(stage.plan.spec.jobs)}


def test_a_sweep_runs_phase_by_phase_to_its_winner() -> None:
    stage = Stage()
    stage.grant(0, 1, 2, 3)
    assert stage.running() == ["0", "1", "2", "3"]
    assert stage.asked[0].program.argv[1].startswith("--lr=0.0")
    quality = losses(stage)
    for job in stage.running():
        stage.finish(job, quality[job])
    assert stage.phase == 1
    assert stage.running() == ["0", "1"]
    for job in stage.running():
        stage.finish(job, quality[job])
    assert stage.running() == ["0"]
    stage.finish(JobId("0"), quality[JobId("0")])
    assert stage.end == EndApp("finished", JobId("0"))
    assert [each.limit for each in stage.asked if each.job == "0"][-1] == 12.0


def test_higher_metric_wins_under_a_maximizing_goal() -> None:
    stage = Stage(metric={"goal": "maximize"})
    stage.grant(0, 1, 2, 3)
    quality = losses(stage)
    while stage.end is None:
        for job in stage.running():
            stage.finish(job, quality[job])
    assert stage.end.best == "3"


@pytest.mark.parametrize("moment", range(12))
def test_agent_restarted_at_any_moment_reaches_the_same_end(moment: int) -> None:
    stage = Stage()
    stage.grant(0, 1)
    quality = losses(stage)
    steps = 0
    while stage.end is None and steps < 50:
        for job in stage.running():
            if steps == moment:
                before = dict(stage.live)
                stage.begin()
                assert stage.live == before, "what runs goes on"
            steps += 1
            if job in stage.live:
                stage.finish(job, quality[job])
    assert stage.end == EndApp("finished", JobId("0"))
    seen = [(each.job, each.iterations) for each in stage.reached]
    assert len(seen) == len(set(seen)), "no phase of a job was told twice"


def test_end_without_a_listener_is_noticed_by_the_next_one() -> None:
    stage = Stage()
    stage.grant(0, 1, 2, 3)
    stage.done[JobId("2")] = 4.0
    stage.curves[JobId("2")] = [(4.0, 0.7)]
    run = stage.live.pop(JobId("2"))
    stage.ended[JobId("2")] = RunNews(run.run, run.job, run.gpus, run.key, RunState.EXITED, 0, 4.0)
    stage.begin()
    assert [(each.job, each.metric) for each in stage.reached] == [("2", 0.7)]


def test_end_reported_after_a_new_start_is_processed() -> None:
    """As long as an agent has not heard all points of a run, it is told that the run is going."""
    stage = Stage()
    stage.grant(0, 1, 2, 3)
    run = stage.live[JobId("2")]
    stage.live[JobId("2")] = replace(run, state=RunState.STOPPING)
    before = len(stage.asked)
    stage.begin()
    assert len(stage.asked) == before, "whether it has to run again is not known yet"
    stage.finish(JobId("2"), 0.7)
    assert [(each.job, each.metric) for each in stage.reached] == [("2", 0.7)]


def test_finished_job_that_is_asked_to_stop_counts_as_done() -> None:
    stage = Stage()
    stage.grant(0, 1, 2, 3)
    (job,) = [job for job, run in stage.live.items() if run.gpus == (0,)]
    stage.report(job, 3.0, 0.7)
    stage.revoke(0)
    gone = stage.live.pop(job)
    stage.grant(5)
    again = stage.live[job]
    assert again.gpus == (5,)
    stage.hear(replace(gone, state=RunState.EXITED, code=0, iterations=3.0))
    assert [(each.job, each.metric) for each in stage.reached] == [(job, 0.7)]
    assert again.key in stage.stopped
    stage.hear(replace(again, state=RunState.EXITED, code=0, iterations=3.0))
    assert len(stage.reached) == 1


def test_phase_decided_and_perhaps_not_received_is_announced_again() -> None:
    stage = Stage()
    stage.grant(0, 1, 2, 3)
    for job, loss in losses(stage).items():
        stage.finish(job, loss)
    stage.phase = 0
    stage.begin()
    assert stage.phase == 1


def test_a_job_whose_gpu_is_taken_stops_and_goes_on_elsewhere() -> None:
    stage = Stage()
    stage.grant(0, 1, 2, 3)
    stage.revoke(0)
    (job,) = [job for job, run in stage.live.items() if run.gpus == (0,)]
    stage.exit(job, RESUMABLE)
    assert job not in stage.live
    stage.grant(5)
    assert stage.live[job].gpus == (5,)
    assert not stage.session.over


def test_a_process_that_its_node_ends_with_its_lease_has_not_failed() -> None:
    stage = Stage(retries=0)
    stage.grant(0)
    (job,) = stage.running()
    stage.at = 700.0
    stage.exit(job, -15)
    assert not stage.reached


def test_failed_job_backs_off_is_retried_and_then_fails() -> None:
    stage = Stage()
    stage.grant(0, 1, 2, 3)
    stage.exit(JobId("0"), 1)
    assert JobId("0") not in stage.live
    assert stage.session.next_wake == pytest.approx(stage.at + FIRST_BACKOFF)
    stage.grant(4)
    assert JobId("0") not in stage.live
    stage.wake(stage.session.next_wake)
    stage.grant(6)
    assert JobId("0") in stage.live
    stage.exit(JobId("0"), 1)
    (given_up,) = stage.reached
    assert given_up.failed == "boom"
    for job in ("1", "2", "3"):
        stage.finish(JobId(job), 1.0)
    assert JobId("0") not in stage.running()


def test_an_app_all_of_whose_jobs_fail_has_failed() -> None:
    stage = Stage(retries=0)
    stage.grant(0, 1, 2, 3)
    for job in stage.running():
        stage.exit(job, 3)
    assert stage.end is not None
    assert stage.end.outcome.startswith("failed")
    assert stage.end.best is None


@pytest.mark.parametrize("restarts", [False, True], ids=["undisturbed", "with restarts"])
def test_failed_jobs_stay_failed_in_later_phases(restarts: bool) -> None:
    stage = Stage(retries=0)
    stage.grant(0, 1, 2, 3)
    for job in ("1", "2", "3"):
        stage.exit(JobId(job), 3)
    for phase in range(3):
        if restarts:
            stage.begin()
        assert (stage.phase, stage.running()) == (phase, ["0"])
        stage.finish(JobId("0"), 1.0)
    assert stage.end == EndApp("finished", JobId("0"))
    assert sorted({each.job for each in stage.asked[4:]}) == ["0"]


@pytest.mark.parametrize("restarts", [False, True], ids=["undisturbed", "with restarts"])
def test_a_bracket_all_of_whose_jobs_fail_does_not_end_the_sweep(restarts: bool) -> None:
    search = {"params": {"lr": [0.1, 0.2]}}
    stage = Stage(search=search, stop={"method": "hyperband", "max_iterations": 4}, retries=0)
    stage.grant(0, 1, 2, 3)
    first = stage.running()
    for job in first:
        stage.exit(job, 3)
    if restarts:
        stage.begin()
    stage.grant(*(gpu for gpu in range(4) if gpu not in stage.leases))
    assert stage.running()
    assert not set(stage.running()) & set(first)
    while stage.end is None:
        for job in stage.running():
            stage.finish(job, 1.0 + int(job))
    assert stage.end.outcome == "finished"
    assert stage.end.best not in first


def test_failed_trial_before_the_first_choice_does_not_end_the_search() -> None:
    search = {"method": "optuna", "n": 2, "params": {"lr": [0.1, 0.5]}}
    stage = Stage(search=search, stop={"max_iterations": 4}, retries=0)
    stage.grant(0)
    (first,) = stage.running()
    stage.exit(first, 3)
    assert stage.end is None
    (second,) = stage.running()
    stage.finish(second, 1.0)
    assert stage.end == EndApp("finished", second)


def test_exiting_with_0_too_early_is_a_failure() -> None:
    stage = Stage(retries=0)
    stage.grant(0, 1, 2, 3)
    stage.report(JobId("1"), 1.0, 0.5)
    stage.exit(JobId("1"), 0)
    (given_up,) = stage.reached
    assert "iteration 1 of" in given_up.failed
    assert "must report its iteration before it exits" in given_up.failed


@pytest.mark.parametrize("restarts", [False, True])
def test_job_past_its_limit_that_is_asked_to_stop_is_done(restarts: bool) -> None:
    stage = Stage(retries=0, search=None, command=["x"], stop={"max_iterations": 12})
    stage.grant(0)
    job = JobId("0")
    stage.report(job, 223.0, 0.5)
    if restarts:
        run = stage.live.pop(job)
        stage.ended[job] = replace(run, state=RunState.EXITED, code=RESUMABLE, iterations=223.0)
        stage.begin()
    else:
        stage.exit(job, RESUMABLE)
    assert stage.end == EndApp("finished", job)


def test_a_job_that_crashes_beyond_its_limit_has_failed() -> None:
    stage = Stage(retries=1, search=None, command=["x"], stop={"max_iterations": 12})
    stage.grant(0)
    job = JobId("0")
    for _ in range(2):
        assert stage.end is None
        stage.report(job, 223.0, 0.5)
        stage.exit(job, 3)
        stage.wake(stage.at + FIRST_BACKOFF)
        stage.grant(0)
    assert stage.end is not None
    assert stage.end.outcome.startswith("failed: ")


def test_resumed_job_with_no_work_left_is_done_if_progress_is_known() -> None:
    """As after a restore: the service knows less than the checkpoint."""
    stage = Stage(retries=0, search=None, command=["x"], stop={"max_iterations": 12})
    stage.grant(0)
    job = JobId("0")
    stage.report(job, 1.0, 0.5)
    stage.exit(job, RESUMABLE)
    assert stage.running() == [job]
    stage.done[job] = stage.asked[-1].limit
    stage.exit(job, 0)
    assert stage.end == EndApp("finished", job)


def test_a_job_that_never_reports_knows_itself_when_it_is_done() -> None:
    stage = Stage(search=None, command=["x"], stop=None, iteration_seconds=None)
    stage.grant(0)
    assert stage.asked[0].limit == 0.0
    stage.exit(JobId("0"), 0)
    assert stage.end == EndApp("finished", JobId("0"))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({}, id="halving"),
        pytest.param(
            {"stop": {"max_iterations": 12}, "metric": {"name": "accuracy", "goal": "maximize"}},
            id="no rule, but a metric to compare by",
        ),
        pytest.param(
            {
                "stop": {"max_iterations": 12},
                "search": {"method": "optuna", "n": 4, "params": {"lr": [0.1]}},
            },
            id="a search that goes by the metric",
        ),
    ],
)
def test_trials_that_never_report_their_metric_fail_without_a_best(change: Any) -> None:
    stage = Stage(retries=0, **change)
    stage.grant(0, 1, 2, 3)
    while stage.end is None:
        stage.exit(stage.running()[0], 0)
    assert stage.end.outcome.startswith("failed: ")
    assert "never reported its metric" in stage.end.outcome
    assert stage.end.best is None


def test_trial_that_never_reports_its_metric_fails_at_once() -> None:
    stage = Stage(metric={"name": "accuracy", "goal": "maximize"}, retries=3)
    stage.grant(0, 1, 2, 3)
    job = stage.running()[0]
    stage.finish(job, 0.5)  # Its loss.
    (given_up,) = stage.reached
    assert "'accuracy'" in given_up.failed


def test_trials_without_comparison_need_no_reports_and_have_no_best() -> None:
    stage = Stage(stop={"max_iterations": 12})
    stage.grant(0, 1, 2, 3)
    for job in stage.running():
        stage.exit(job, 0)
    assert stage.end == EndApp("finished", None)


@pytest.mark.parametrize("restarts", [False, True])
def test_best_reporting_trial_wins_among_trials_without_comparison(restarts: bool) -> None:
    stage = Stage(stop={"max_iterations": 12})
    stage.grant(0, 1, 2, 3)
    first, second, *others = stage.running()
    stage.finish(first, 2.0)
    stage.finish(second, 1.0)
    for job in others:
        stage.exit(job, 0)
    if restarts:
        stage.end = None
        stage.begin()
    assert stage.end == EndApp("finished", second)


def test_job_without_limit_runs_until_it_exits_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []
    handle = Agent.handle

    def listen(agent: Agent, event: Any) -> Any:
        if isinstance(event, Progressed):
            told.extend(done for _, done in event.iterations)
        return handle(agent, event)

    monkeypatch.setattr(Agent, "handle", listen)
    stage = Stage(search=None, command=["x"], stop=None, iteration_seconds=None)
    stage.grant(0)
    job = JobId("0")
    for iteration in (1.0, 2.0, 59.0):
        stage.report(job, iteration, 0.5)
    stage.exit(job, RESUMABLE, interrupted=True)
    assert stage.running() == [job], "it goes on"
    assert set(told) <= {0.0}, "its iterations are no part of the one whole that it has to do"
    stage.report(job, 60.0, 0.5)
    stage.exit(job, 0)
    assert stage.end == EndApp("finished", job)
    assert stage.reached[-1].iterations == 60.0


def test_job_that_saves_and_exits_without_progress_fails() -> None:
    stage = Stage(retries=0)
    stage.grant(0)
    (job,) = stage.running()
    stage.exit(job, RESUMABLE)
    assert [each.job for each in stage.reached if each.failed] == [job]


def test_job_without_reports_may_save_and_exit_when_asked() -> None:
    stage = Stage(retries=0)
    stage.grant(0)
    (job,) = stage.running()
    # A round was late: its lease is renewed, and its node told it to go all the same.
    stage.exit(job, RESUMABLE, interrupted=True)
    assert not stage.reached, "it is not given up"
    stage.grant(1, 2, 3)
    assert job in stage.live


def test_a_job_that_got_somewhere_may_save_and_go() -> None:
    stage = Stage(retries=0)
    stage.grant(0)
    (job,) = stage.running()
    stage.report(job, 1.0, 0.3)
    stage.exit(job, RESUMABLE)
    assert not stage.reached, "it is not given up"
    stage.grant(1, 2, 3)
    assert job in stage.live


def test_run_that_never_started_is_retried_later_and_then_fails() -> None:
    stage = Stage(retries=1)
    stage.grant(0, 1, 2, 3)
    job = JobId("2")
    stage.exit(job, None, RunState.LOST)
    assert job not in stage.live
    stage.wake(stage.session.next_wake)
    stage.grant(5)
    stage.exit(job, None, RunState.LOST)
    assert [each.failed for each in stage.reached] == ["boom"]


def test_a_run_that_is_lost_is_started_again() -> None:
    stage = Stage(retries=0)
    stage.grant(0)
    (job,) = stage.running()
    run = stage.live[job]
    stage.hear(RunNews(run.run, job, run.gpus, run.key, RunState.RUNNING))
    stage.exit(job, None, RunState.LOST)
    assert job in stage.live


def test_a_job_that_runs_for_too_long_is_ended() -> None:
    stage = Stage(max_runtime=100.0, retries=5)
    stage.grant(0)
    (job,) = stage.running()
    assert stage.session.next_wake == pytest.approx(100.0, abs=1.0)
    stage.wake(stage.session.next_wake)
    assert stage.stopped
    assert "max_runtime" in stage.reached[0].failed
    assert stage.reached[0].job == job


def test_time_counts_over_moves_and_over_restarts_of_the_agent() -> None:
    stage = Stage(search=None, command=["x"], stop={"max_iterations": 9}, max_runtime=100.0)
    stage.grant(0)
    (job,) = stage.running()
    stage.at = 30.0
    stage.revoke(0)
    stage.exit(job, 75)
    stage.at = 50.0
    stage.grant(1)
    assert stage.session.next_wake == pytest.approx(120.0, abs=1.0), "30 s are spent, at 50 s"
    stage.past = (JobPast(job, 40.0, 0),)
    stage.at = 60.0
    stage.begin()
    assert stage.session.next_wake == pytest.approx(120.0, abs=1.0), "40 s are spent, at 60 s"


def test_failures_count_over_restarts_of_the_agent() -> None:
    stage = Stage(search=None, command=["x"], stop={"max_iterations": 9}, retries=1)
    stage.grant(0)
    (job,) = stage.running()
    stage.past = (JobPast(job, 1.0, 1),)
    stage.begin()
    stage.exit(job, 3)
    assert stage.end is not None
    assert stage.end.outcome == "failed: boom"


def test_a_refused_run_is_asked_for_again_after_a_while() -> None:
    stage = Stage()
    stage.grant(0)
    (job,) = stage.running()
    key = stage.live.pop(job).key
    stage.hear(RefusalNews(key, "it does not hold these GPUs"))
    asked = len(stage.asked)
    stage.wake(stage.session.next_wake)
    stage.grant(7)
    assert len(stage.asked) > asked
    assert stage.asked[-1].key != key


def test_run_that_is_always_refused_fails_with_the_reason() -> None:
    stage = Stage()
    stage.grant(0)
    (job,) = stage.running()
    key = stage.live.pop(job).key
    stage.hear(RefusalNews(key, "metric.pattern: got '('", final=True))
    (reached,) = stage.reached
    assert (reached.job, reached.failed) == (job, "metric.pattern: got '('")


def test_run_is_stopped_by_key_while_its_number_is_unknown() -> None:
    stage = Stage()
    stage.grant(0)
    (run,) = stage.live.values()
    stage.revoke(0)
    assert stage.stopped == [run.key]


def test_parameters_are_chosen_when_a_trial_begins_and_are_kept() -> None:
    search = {"method": "optuna", "n": 4, "params": {"lr": [0.1, 0.5]}}
    stage = Stage(search=search)
    stage.grant(0)
    (trial,) = stage.trials
    assert json.loads(trial.params) == {"lr": 0.5}
    assert stage.asked[0].program.argv == ("train", "--lr=0.5")
    stage.begin()
    assert len(stage.trials) == 1


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
@pytest.mark.parametrize("restarts", [False, True], ids=["undisturbed", "with a restart"])
def test_a_trial_that_diverges_cannot_win_by_what_it_was_before(goal: str, restarts: bool) -> None:
    stage = Stage(metric={"goal": goal})
    stage.grant(0, 1, 2, 3)
    best = JobId("0")
    stage.report(best, 1.0, 1e-3 if goal == "minimize" else 99.0)
    if restarts:
        stage.report(best, 2.0, NOT_FINITE)
        stage.begin()
    stage.finish(best, NOT_FINITE)
    for job in ("1", "2", "3"):
        stage.finish(JobId(job), 1.0)
    assert stage.reached[0].metric is None
    assert best not in stage.running()


def test_a_curve_that_breaks_is_stopped() -> None:
    stage = Stage(stop={"method": "curve", "max_iterations": 1000})
    stage.grant(0, 1, 2, 3)
    job = JobId("1")
    stage.report(job, 10.0, 0.001)
    for step in range(2, 5):
        stage.report(job, 10.0 * step, NOT_FINITE)
    assert [(each.job, each.metric) for each in stage.reached] == [(job, None)]
    assert stage.stopped


def test_curves_stop_where_they_flatten_and_the_arbiter_is_informed() -> None:
    stage = Stage(stop={"method": "curve", "max_iterations": 1000})
    stage.grant(0, 1, 2, 3)
    job = JobId("1")
    said: list[AgentRequest] = []
    for step in range(1, 200):
        if job not in stage.live or stage.reached:
            break
        said += stage.report(job, 10.0 * step, 0.5 + math.exp(-step))
    assert [each.job for each in stage.reached] == [job]
    assert any(isinstance(each, TargetChange) for each in said)
    assert stage.stopped


def test_points_that_come_twice_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    monkeypatch.setattr(Curves, "observe", lambda _, job, iteration, loss: seen.append(iteration))
    stage = Stage(stop={"method": "curve", "max_iterations": 1000})
    stage.grant(0)
    (job,) = stage.running()
    points = tuple(Point(float(i), float(i), (("loss", 1.0 / i),)) for i in (1, 2, 3))
    stage.hear(PointsNews(stage.live[job].run, job, 1, points[:2]))
    stage.hear(PointsNews(stage.live[job].run, job, 1, points))
    assert seen == [1.0, 2.0, 3.0]


def test_ended_app_sends_nothing() -> None:
    stage = Stage()
    stage.grant(0)
    stage.hear(AppEndNews("cancelled"))
    assert stage.grant(1) == []
    assert stage.session.over


def moves(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float | None, float | None]]:
    """What the agent is told of the costs of moves, from now on."""
    told: list[tuple[float | None, float | None]] = []

    def note(_: Agent, event: MoveTimed) -> None:
        told.append((event.checkpoint, event.restart))

    monkeypatch.setattr(Agent, "_on_move", note)
    return told


def test_job_without_its_checkpoints_starts_from_the_beginning() -> None:
    stage = Stage(search=None, command=["train"], stop={"max_iterations": 100})
    stage.grant(0)
    (job,) = stage.running()
    stage.hear(replace(stage.live[job], state=RunState.RUNNING))
    stage.report(job, 100.0, 1.0)
    stage.exit(job, None, RunState.LOST)  # Before it had saved: its machine is gone.
    assert stage.running() == [job], "it is tried again"
    run = replace(stage.live[job], state=RunState.RUNNING)
    stage.hear(run)
    points = tuple(Point(n, None, (("loss", 2.0),)) for n in (1.0, 5.0))
    stage.hear(PointsNews(run.run, job, 1, points))
    stage.done[job] = 5.0
    stage.exit(job, 0)
    assert not stage.reached, "5 iterations are not 100"
    assert stage.end is None


def test_training_start_time_of_a_job_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    told = moves(monkeypatch)
    stage = Stage()
    stage.grant(0)
    (job,) = stage.running()
    run = stage.live[job]
    stage.hear(replace(run, state=RunState.RUNNING))
    stage.at += 20.0
    # Its first three iterations come together, a second after the first of them.
    points = tuple(Point(1.0 + n, 70.0 + n / 2) for n in range(3))
    stage.hear(PointsNews(run.run, job, 1, points))
    stage.hear(PointsNews(run.run, job, 4, (Point(4.0, 80.0),)))
    [(_, restart)] = told
    assert restart == pytest.approx(19.01)


def test_save_time_of_a_job_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    told = moves(monkeypatch)
    stage = Stage()
    stage.grant(0)
    (job,) = stage.running()
    stage.report(job, 1.0, 0.5)
    stage.revoke(0)
    stage.at += 6.0
    stage.exit(job, RESUMABLE)
    [(checkpoint, _)] = told
    assert checkpoint == pytest.approx(6.01)
    stage.grant(1)
    (job,) = stage.running()
    stage.revoke(1)
    stage.exit(job, RESUMABLE)
    assert len(told) == 1, "one that had done nothing had nothing to save"


def test_job_that_can_resume_on_one_machine_only_waits_for_it() -> None:
    stage = Stage(search={"n": 1, "params": {"lr": [0.1]}}, stop={"max_iterations": 12})
    stage.grant(15)
    (job,) = stage.running()
    key, home = stage.asked[-1].key, TOPOLOGY.machines[0].name
    del stage.live[job]
    stage.hear(RefusalNews(key, "its checkpoints are there alone", home=home))
    assert stage.released == [15]
    assert len(stage.asked) == 1
    first = TOPOLOGY.gpus_of[0][0]
    stage.grant(first)
    assert stage.asked[-1].gpus == (first,)


def test_job_that_waited_long_for_one_machine_asks_for_another() -> None:
    stage = Stage(search={"n": 1, "params": {"lr": [0.1]}}, stop={"max_iterations": 12})
    stage.grant(15)
    (job,) = stage.running()
    del stage.live[job]
    stage.hear(RefusalNews(stage.asked[-1].key, "why", home=TOPOLOGY.machines[0].name))
    stage.grant(14)
    assert len(stage.asked) == 1
    stage.wake(stage.session.next_wake)
    stage.grant(13)
    assert stage.asked[-1].gpus == (13,)


def test_jobs_that_run_on_are_not_moved_where_one_could_not() -> None:
    stage = Stage()
    stage.grant(0, 15)
    stays, moves = sorted(stage.live, key=lambda job: stage.live[job].gpus)
    refused = next(said for said in stage.asked if said.job == moves)
    del stage.live[moves]
    stage.hear(RefusalNews(refused.key, "why", home=TOPOLOGY.machines[1].name))
    stage.report(stays, 1.0, 0.5)
    stage.revoke(0)
    stage.exit(stays, RESUMABLE)
    count = len(stage.asked)
    other = TOPOLOGY.gpus_of[2][0]
    stage.grant(other)
    assert all(said.job != stays for said in stage.asked[count:]), "its checkpoints are elsewhere"


def _progress(stage: Stage) -> float:
    """How far the one job is, as its agent was last told."""
    told = [event for event in stage.events if isinstance(event, Progressed)]
    return told[-1].iterations[0][1]


ONE_LONG_JOB: dict[str, Any] = {
    "search": None,
    "stop": {"max_iterations": 4000},
    "command": ["train"],
}


def test_an_agent_reckons_how_far_jobs_are_that_report_rarely() -> None:
    stage = Stage(**ONE_LONG_JOB)
    stage.grant(0, 1)
    (run,) = stage.live.values()
    # People's clocks are an hour ahead, and the second point was 30 s on its way.
    stage.session.set_clock_offset(-3600.0)
    for at, time, iteration in ((100.0, 3700.0, 100.0), (230.0, 3800.0, 200.0)):
        stage.at = at
        point = Point(iteration, time, (("loss", 1.0),))
        stage.hear(PointsNews(run.run, run.job, int(iteration // 100), (point,)))
    stage.at = 260.0
    stage.grant(1, 2)
    # One GPU, an iteration a second: it was at 200 a minute ago.
    assert _progress(stage) == pytest.approx(260.0, abs=0.1)
    stage.at = 10_000.0
    stage.grant(2, 3)
    # So long it never was silent: something is wrong with it.
    assert _progress(stage) == pytest.approx(500.0, abs=0.1)


def test_job_without_reports_is_assumed_to_train_after_its_start() -> None:
    stage = Stage(**ONE_LONG_JOB)
    stage.grant(0, 1)
    (run,) = stage.live.values()
    core = stage.agents[-1]
    assert core.start_seconds > 1.0
    stage.hear(replace(run, state=RunState.RUNNING))

    def after(seconds: float, gpu: int) -> float:
        stage.at = seconds
        stage.grant(gpu, gpu + 1)
        return _progress(stage)

    assert after(core.start_seconds - 1.0, 1) == 0.0
    assert after(core.start_seconds + 20.0, 2) == pytest.approx(20.0, abs=0.1)
    # By then it should have said something.
    assert after(core.start_seconds + 500.0, 3) == pytest.approx(FIRST_SILENCE)


def test_job_is_assumed_to_keep_training_for_a_while_after_a_report() -> None:
    stage = Stage(**ONE_LONG_JOB)
    stage.grant(0, 1)
    (run,) = stage.live.values()
    stage.at = 50.0
    stage.hear(PointsNews(run.run, run.job, 1, (Point(10.0, None, (("loss", 1.0),)),)))
    stage.at = 70.0
    stage.grant(1, 2)
    assert _progress(stage) == pytest.approx(30.0, abs=0.1)
    stage.at = 1000.0
    stage.grant(2, 3)
    assert _progress(stage) == pytest.approx(10.0 + FIRST_SILENCE)
