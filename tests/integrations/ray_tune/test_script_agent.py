"""An session whose trials somebody else decides about: parked, brought back, concluded."""

from typing import Any, cast

import pytest

from themis.agent_host.own_tuner import ServiceAddress
from themis.agent_host.session.session import AgentSession
from themis.apps import parse_app, plan_app
from themis.client import Client
from themis.config.secret import Secret
from themis.core.model import AppId, GpuId, JobId, Lease, LeaseSource, OwnerId
from themis.core.model.presets import preset
from themis.errors import (
    ConfigError,
    DeniedError,
    StaleAnswerError,
    UnavailableError,
    UnknownAppError,
)
from themis.integrations.ray_tune.script_agent import FollowingTuner, ScriptAgent
from themis.protocol.agent_messages import (
    AgentRequest,
    AgentStart,
    EndApp,
    LeaseNews,
    Reached,
    ReleaseRequest,
    RunNews,
    RunRequest,
    StopRequest,
    TargetChange,
    TrialParams,
)
from themis.protocol.node_messages import RunState

APP: dict[str, Any] = {
    "name": "tuned",
    "command": ["node", "--trial", "{trial}"],
    "search": {"method": "random", "n": 4, "params": {"trial": ["-"], "lr": ["-"]}},
    "stop": {"method": "none", "max_iterations": 20},
    "tuner": "own",
    "retries": 0,
}
NONE: frozenset[JobId] = frozenset()


def jobs(*names: str) -> frozenset[JobId]:
    return frozenset(map(JobId, names))


class Played:
    """A service that grants and runs, and an session with a tuner."""

    def __init__(self, **change: Any) -> None:
        self.written = parse_app(APP | change)
        self.plan = plan_app(self.written, AppId("tuned"), OwnerId("ann"), seed=1)
        self.at = 0.0
        self.tuner = FollowingTuner(lambda job: {"trial": job, "lr": 0.1})
        self.session = self.make()
        self.runs: dict[JobId, RunRequest] = {}
        self.stopped: list[str] = []
        self.released: list[int] = []
        self.said: list[AgentRequest] = []
        self.leases: dict[int, Lease] = {}

    def make(self) -> AgentSession:
        return AgentSession(
            self.plan,
            session="s",
            own_tuner=self.tuner,
        )

    def begin(self) -> None:
        targets = tuple((job.id, 20.0) for job in self.plan.spec.jobs)
        leases, topology = tuple(self.leases.values()), preset("demo16")
        standing = AgentStart(self.plan.spec, topology, leases, (), 0, (), targets=targets)
        self.take(self.session.hear(self.at, standing))

    def take(self, said: list[AgentRequest]) -> None:
        self.said += said
        for each in said:
            if isinstance(each, RunRequest):
                self.runs[each.job] = each
            elif isinstance(each, StopRequest):
                self.stopped.append(each.key)
                self.runs = {job: run for job, run in self.runs.items() if run.key != each.key}
            elif isinstance(each, ReleaseRequest):
                self.released += each.gpus

    def grant(self, *gpus: int) -> None:
        made = [
            Lease(GpuId(gpu), AppId("tuned"), 100 + gpu, 0.0, 600.0, LeaseSource.AUCTION)
            for gpu in gpus
        ]
        self.leases |= {lease.gpu: lease for lease in made}
        self.take(self.session.hear(self.at, LeaseNews(granted=tuple(made))))

    def park(self, *names: str) -> None:
        self.take(self.session.park(self.at, jobs(*names)))

    def conclude(self, job: str, iterations: float, metric: float | None) -> None:
        self.tuner.concluded.add(job)
        self.take(self.session.conclude(self.at, JobId(job), iterations, metric))

    def of(self, kind: type) -> list[Any]:
        return [each for each in self.said if isinstance(each, kind)]


def test_only_trials_that_should_run_get_gpus() -> None:
    played = Played()
    played.park("0", "2", "3")
    played.begin()
    played.grant(0, 1, 2, 3)
    assert list(played.runs) == ["1"]
    assert len(played.released) == 3, "nobody else has a use for them"
    assert played.runs[JobId("1")].program.argv[-1] == "1"
    chosen = [each.params for each in played.of(TrialParams)]
    assert chosen == ['{"trial": "1", "lr": 0.1}'], "what the trial has is shown"


def test_a_trial_that_its_scheduler_pauses_gives_its_gpu_to_another() -> None:
    played = Played()
    played.begin()
    played.grant(0)
    (first,) = played.runs
    played.park(first)
    assert played.stopped == ["s-1"]
    (second,) = played.runs
    assert second != first
    assert played.runs[second].gpus == (GpuId(0),)
    assert played.released == []


def test_a_trial_that_is_unpaused_runs_again() -> None:
    played = Played()
    played.park("1", "2", "3")
    played.begin()
    played.grant(0)
    played.park("0", "1", "2", "3")
    assert not played.runs
    assert played.released == [0]
    played.park("1", "2", "3")
    played.leases.clear()
    played.grant(5)
    assert list(played.runs) == ["0"]


def test_parked_trial_that_failed_to_start_is_not_resumed() -> None:
    played = Played(retries=5)
    played.begin()
    played.grant(0)
    (job,) = played.runs
    run = played.runs.pop(job)
    lost = RunNews(1, job, run.gpus, run.key, RunState.LOST, None, 0.0, "no such node")
    played.take(played.session.hear(played.at, lost))
    played.park(job)
    before = len(played.of(RunRequest))
    played.take(played.session.wake(played.at + 60.0))
    played.grant(1, 2, 3)
    assert job not in [each.job for each in played.of(RunRequest)[before:]]
    played.park()
    played.grant(4)
    assert job in [each.job for each in played.of(RunRequest)[before:]]


def test_finished_trial_releases_its_gpu_and_work() -> None:
    played = Played()
    played.begin()
    played.grant(0)
    (job,) = played.runs
    played.conclude(job, 7.0, 0.3)
    assert played.stopped == ["s-1"]
    assert played.of(TargetChange)[0].targets == ((job, 7.0),)
    (reached,) = played.of(Reached)
    assert (reached.job, reached.iterations, reached.metric, reached.failed) == (job, 7.0, 0.3, "")


def test_app_ends_with_the_best_trial_after_all_trials() -> None:
    played = Played()
    played.begin()
    for job, metric in zip("0123", (0.5, 0.2, None, 0.9), strict=True):
        played.conclude(job, 5.0, metric)
    assert played.of(EndApp) == [EndApp("finished", JobId("1"))]


def test_unacknowledged_conclusion_is_sent_again() -> None:
    played = Played()
    played.begin()
    played.conclude("2", 3.0, 0.4)
    played.said.clear()
    played.begin()  # The service knows nothing of it.
    assert played.of(TargetChange) == [TargetChange(((JobId("2"), 3.0),))]
    played.grant(0, 1, 2, 3)
    assert sorted(played.runs) == ["0", "1", "3"]


def test_trial_that_could_not_start_is_recorded() -> None:
    played = Played()
    played.begin()
    played.grant(0)
    (job,) = played.runs
    run = played.runs.pop(job)
    failed = RunNews(1, job, run.gpus, run.key, RunState.EXITED, 1, 0.0, "no module named ray")
    played.take(played.session.hear(played.at, failed))
    assert played.tuner.given_up == {job}


# From its submission to its end


class Desk:
    """A service that knows somebody, and notes what is asked of it."""

    server = "http://127.0.0.1:1"

    def __init__(self, role: str) -> None:
        self.role = role
        self.asked: list[str] = []
        self.trouble: Exception | None = None

    def whoami(self) -> dict[str, Any]:
        return {"role": self.role, "subject": "ann"}

    def submit(self, app: dict[str, Any], key: str) -> dict[str, Any]:
        self.asked.append("submit")
        return {"app": app["name"]}

    def cancel(self, app: str) -> dict[str, Any]:
        self.asked.append(f"cancel {app}")
        if self.trouble is not None:
            raise self.trouble
        return {"done": True}

    def about(self) -> dict[str, Any]:
        raise DeniedError("tenant ann", "`agent poll` is not for you")  # as its door for agents


def followed(desk: Desk) -> ScriptAgent:
    client = cast("Client", desk)
    return ScriptAgent(ServiceAddress(client, Secret("hush"), None, None), APP, "key", lambda _: {})


@pytest.mark.parametrize("role", ["admin", "viewer", "node"])
def test_a_token_that_cannot_speak_for_an_app_submits_none(role: str) -> None:
    desk = Desk(role)
    with pytest.raises(ConfigError, match="themis token create --role tenant") as refused:
        followed(desk)
    assert (refused.value.key, refused.value.given) == ("token", f"{role} ann")
    assert desk.asked == []


def test_an_app_whose_agent_is_refused_is_cancelled_once() -> None:
    desk = Desk("tenant")
    agent = followed(desk)
    assert agent.over.wait(60.0)
    assert isinstance(agent.error, DeniedError)
    agent.cancel()
    agent.cancel()
    assert desk.asked == ["submit", "cancel tuned"]


def test_app_that_could_not_be_cancelled_is_cancelled_at_exit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk("tenant")
    agent = followed(desk)
    assert agent.over.wait(60.0)
    desk.trouble = UnavailableError("not now")
    agent.cancel()
    assert "tuned could not be cancelled: not now" in caplog.text
    desk.trouble = UnknownAppError("tuned", "there is no such app")
    caplog.clear()
    agent.cancel()
    assert desk.asked == ["submit", "cancel tuned", "cancel tuned"]
    assert not caplog.text, "somebody else was quicker"


def test_an_app_that_another_process_speaks_for_is_not_cancelled() -> None:
    desk = Desk("tenant")
    agent = followed(desk)
    assert agent.over.wait(60.0)
    agent.error = StaleAnswerError("tuned", "another process speaks for it")
    agent.cancel()
    assert desk.asked == ["submit"]


def test_ended_app_is_not_cancelled() -> None:
    desk = Desk("tenant")
    agent = followed(desk)
    assert agent.over.wait(60.0)
    agent.error = None  # as after a talk to the end
    agent.cancel()
    assert desk.asked == ["submit"]
