"""An session with a tuner that somebody wrote: the same end whenever it is begun again."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from themis.agent_host.session.session import AgentSession
from themis.apps import parse_app, plan_app
from themis.core.model import AppId, GpuId, JobId, Lease, LeaseSource, OwnerId
from themis.core.model.presets import preset
from themis.core.tuners import Stepwise, Trial
from themis.protocol.agent_messages import (
    AgentRequest,
    AgentStart,
    Curve,
    EndApp,
    LeaseNews,
    PhaseStart,
    PointsNews,
    Reached,
    RunNews,
    RunRequest,
    StopRequest,
    TargetChange,
    TrialParams,
)
from themis.protocol.node_messages import Point, RunState

TOPOLOGY = preset("demo16")
SWEEP: dict[str, Any] = {
    "name": "sweep",
    "command": ["train", "--lr={lr}"],
    "search": {"method": "grid", "params": {"lr": [7, 3, 9, 5, 4, 8]}},
    "stop": {"method": "halving", "max_iterations": 18},
    "iteration_seconds": 1.0,
    "tuner": "own",
}


class Odd(Stepwise):
    """Stops what is far off at once, and chooses by how often it was asked."""

    suggestions = 0
    choices = 0

    def should_stop(self, trial: Trial) -> bool:
        return trial.cost > 2.5 * min(other.cost for other in self.training)

    def choose(self, ranked: Sequence[Trial], count: int) -> Iterable[Trial]:
        type(self).choices += 1
        # An answer that depends on how often it was asked: it must be asked once.
        return ranked[:count] if self.choices % 2 else ranked[-count:]

    def suggest(self, trial: Trial) -> dict[str, Any]:
        type(self).suggestions += 1
        return {"lr": trial.params["lr"] + 10 * self.suggestions}


class Service:
    """Keeps what the service keeps, and plays machines that train one iteration after the other."""

    def __init__(self, kind: type[Stepwise]) -> None:
        self.kind = kind
        self.written = parse_app(SWEEP)
        self.plan = plan_app(self.written, AppId("sweep"), OwnerId("ann"), seed=3)
        self.at = 0.0
        self.targets = {
            job.id: float(self.plan.spec.phases[0].iterations) for job in self.plan.spec.jobs
        }
        self.phase = 0
        self.done: dict[JobId, float] = {}
        self.curves: dict[JobId, list[tuple[float, float]]] = {}
        self.reached: list[Reached] = []
        self.params: dict[JobId, str] = {}
        self.runs: dict[JobId, RunNews] = {}
        self.limits: dict[JobId, float] = {}
        self.trained = 0
        self.sessions = 0
        self.numbers = 0
        self.end: EndApp | None = None
        self.leases = tuple(
            Lease(GpuId(gpu), AppId("sweep"), 100 + gpu, 0.0, 1e6, LeaseSource.AUCTION)
            for gpu in range(3)
        )
        self.begin()
        self.take(self.session.hear(self.at, LeaseNews(granted=self.leases)))

    def begin(self) -> None:
        self.sessions += 1
        self.session = AgentSession(
            self.plan,
            session=f"s{self.sessions}",
            own_tuner=self.kind(),
        )
        self.take(self.session.hear(self.at, self.standing()))

    def standing(self) -> AgentStart:
        return AgentStart(
            self.plan.spec,
            TOPOLOGY,
            self.leases if self.sessions > 1 else (),
            tuple(self.runs.values()),
            self.phase,
            tuple((job, self.done.get(job, 0.0)) for job in self.targets),
            tuple(TrialParams(job, text) for job, text in self.params.items()),
            tuple(self.reached),
            tuple(Curve(job, tuple(points)) for job, points in self.curves.items()),
            tuple(self.targets.items()),
        )

    def take(self, said: Iterable[AgentRequest]) -> None:
        for each in said:
            match each:
                case RunRequest():
                    self.numbers += 1
                    self.limits[each.job] = each.limit
                    self.runs[each.job] = RunNews(
                        self.numbers, each.job, each.gpus, each.key, RunState.RUNNING
                    )
                case StopRequest():
                    for job, run in list(self.runs.items()):
                        if each.key == run.key or each.run == run.run:
                            del self.runs[job]
                case Reached():
                    self.reached.append(each)
                case TrialParams():
                    assert each.job not in self.params, "chosen once"
                    self.params[each.job] = each.params
                case PhaseStart():
                    self.phase, self.targets = each.phase, dict(each.targets)
                case TargetChange():
                    self.targets |= dict(each.targets)
                case EndApp():
                    self.end = each
                case _:
                    pass

    def train(self, job: JobId) -> None:
        """One iteration of a job; at its limit it exits."""
        self.at += 1.0
        run = self.runs[job]
        done = self.done[job] = self.done.get(job, 0.0) + 1.0
        self.trained += 1
        loss = json.loads(self.params[job])["lr"] % 10 / done
        self.curves.setdefault(job, []).append((done, loss))
        first = len([1 for at, _ in self.curves[job]])
        point = Point(done, self.at, (("loss", loss),))
        self.take(self.session.hear(self.at, PointsNews(run.run, job, first, (point,))))
        if job in self.runs and done >= self.limits[job]:
            del self.runs[job]
            over = RunNews(run.run, job, run.gpus, run.key, RunState.EXITED, 0, done)
            self.take(self.session.hear(self.at, over))


def whole(moment: int) -> tuple[Service, list[Any]]:
    """A sweep whose tuner is killed after so many iterations; -1 for never."""
    Odd.suggestions = Odd.choices = 0
    service = Service(Odd)
    while service.end is None and service.trained < 500:
        for job in sorted(service.runs):
            if job in service.runs and service.end is None:
                service.train(job)
                if service.trained == moment and service.end is None:
                    service.begin()
    told = [(each.job, each.iterations, each.metric) for each in service.reached]
    return service, [service.end, service.trained, sorted(told), service.params]


def test_an_own_tuner_stops_chooses_and_suggests() -> None:
    service, _ = whole(-1)
    assert service.end is not None
    assert service.end.outcome == "finished"
    params = {job: json.loads(text)["lr"] for job, text in service.params.items()}
    assert len(set(params.values())) == 6
    assert all(value > 10 for value in params.values()), "as suggested, not as drawn"
    limit = first_target(service)
    stopped = [each for each in service.reached if each.iterations < limit]
    assert stopped, "somebody was stopped before the end of the first phase"
    assert service.phase == len(service.plan.spec.phases) - 1


def first_target(service: Service) -> float:
    return float(service.plan.spec.phases[0].iterations)


@pytest.mark.parametrize("moment", range(1, 40, 3))
def test_tuner_killed_at_any_moment_reaches_the_same_end(moment: int) -> None:
    _, undisturbed = whole(-1)
    _, disturbed = whole(moment)
    assert disturbed == undisturbed
    assert (Odd.suggestions, Odd.choices) == (6, 2), "nothing was asked twice"


def test_choice_that_was_not_acknowledged_is_repeated() -> None:
    service = Service(Stepwise)
    before = (0, dict(service.targets))
    while service.phase == 0:
        for job in sorted(service.runs):
            if job in service.runs and service.phase == 0:
                service.train(job)
    service.phase, service.targets = before
    service.runs = {}
    service.begin()
    assert service.phase == 1
    assert len(service.targets) == 3
