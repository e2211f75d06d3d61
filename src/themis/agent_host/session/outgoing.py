"""What an agent wants, as words to the service: runs, stops, bids, phases and ends.

The state of an agency is here; what is done with it is in `measuring` (what jobs report), `minding`
(how their runs begin and end) and `agency` (what is heard, and how it begins).
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, assert_never

from themis.apps.app_file import AppFile, Goal, Minder
from themis.apps.plan import SweepPlan
from themis.apps.program import program_of
from themis.apps.search_space import Value
from themis.core.agent import commands as cmd
from themis.core.agent import events as ev
from themis.core.agent.agent import Agent
from themis.core.agent.profiler import Profiler
from themis.core.model import AppSpec, GpuId, JobId, Lease, Topology
from themis.core.tuners import Tuner, tuner_for
from themis.protocol.agent_messages import (
    BidSaid,
    EndSaid,
    PhaseSaid,
    Reached,
    ReachedSaid,
    ReleaseSaid,
    RunSaid,
    Said,
    StopSaid,
    TargetsSaid,
    TrialSaid,
)
from themis.protocol.node_messages import Point

RESUMABLE = 75
"""The exit code of a job that has saved and can go on."""
FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
"""Seconds before a job that failed is started again, doubling with each failure."""
BOUND = 60.0
"""Seconds after which a job that waits for one machine asks for another all the same."""
MOST_WINDOWS = 64
LONGEST_WAY = 60.0
"""Seconds that a word of a run is on its way to us at most; more is a clock that is wrong."""
SILENCE = 3.0
"""A run that says nothing for so many times longer than before its last word is not believed to
train on."""
NEW = 60.0
"""For so many seconds a run is believed to train that has told us once, or not at all yet."""
SLACK = 1e-6

Choose = Callable[[JobId], Mapping[str, Value]]
"""Chooses the parameters of a trial that is about to begin."""


class MakeAgent(Protocol):
    """Makes the agent of an app; `Agent` itself, or one that somebody listens to."""

    def __call__(self, spec: AppSpec, tuner: Tuner, *, profiler: Profiler) -> Agent:
        """An agent that knows nothing yet."""


MakeTuner = Callable[[AppSpec], Tuner]
"""Makes a tuner that knows nothing yet; it is told of the past before anything else."""


@dataclass(slots=True)
class RequestedRun:
    """A run that was asked for and is not known to be over."""

    key: str
    gpus: tuple[GpuId, ...]
    began: float
    number: int = 0
    """Zero until the service has said it."""
    stopping: bool = False
    ran: bool = False
    """Whether its process was seen to run."""
    first: float | None = None
    """Iterations of the job at its first point."""
    last: Point | None = None
    heard: int = 0
    """The number of its last point that was heard,"""
    heard_at: float = 0.0
    """and when,"""
    gap: float = 0.0
    """and for how long it had said nothing before that."""
    running_since: float | None = None
    """When its process was heard to run, until it has done an iteration."""


@dataclass(frozen=True, slots=True)
class Going:
    """A run that was told to go."""

    job: JobId
    told_at: float | None = None
    """When, if it trained then and this agent told it."""


@dataclass(slots=True)
class TrialState:
    """What is known of one job."""

    params: Mapping[str, Value] | None
    open: bool = False
    """Whether its parameters are still to be chosen."""
    done: float = 0.0
    metric: float | None = None
    """As last reported, in its own direction."""
    spoke: bool = False
    """Whether it ever reported anything,"""
    measured: bool = False
    """and whether that was its metric, finite or not."""
    failures: int = 0
    false_starts: int = 0
    """Runs in a row that ended before they ran."""
    failed: str = ""
    """Why it is given up."""
    spent: float = 0.0
    """Seconds of its runs that are over."""
    back_at: float = math.inf
    """When it may run again, if it is set aside."""
    bound_to: int | None = None
    """The machine that has its checkpoints, where others do not see them."""
    bound_until: float = math.inf
    """When it asks for another machine all the same: its own may be gone."""


class Doing:
    """The state, and how what the agent wants is said."""

    def __init__(
        self,
        app: AppFile,
        plan: SweepPlan,
        *,
        session: str,
        choose: Choose | None = None,
        make_tuner: MakeTuner | None = None,
        choose_all: bool = False,
        make_agent: MakeAgent = Agent,
    ) -> None:
        """Begin with nothing known.

        Args:
            app: What was submitted.
            plan: What that comes to.
            session: A text that no other agent of the app has.
            choose: Chooses parameters that the plan leaves open.
            make_tuner: Another tuner than the app file names.
            choose_all: Whether `choose` is also asked where the plan has parameters.
            make_agent: Makes the core of it.
        """
        self._make_agent = make_agent
        self._app = app
        self._plan = plan
        self._session = session
        self._choose = choose
        self._choose_all = choose_all
        self._make_tuner = make_tuner or (lambda spec: tuner_for(spec, plan.tuner))
        self._count = 0
        self._agent: Agent | None = None
        self._topology: Topology | None = None
        self._leases: dict[GpuId, Lease] = {}
        self._trials: dict[JobId, TrialState] = {}
        self._runs: dict[JobId, RequestedRun] = {}
        self._going: dict[str, Going] = {}
        """Runs told to stop whose job may already have another, by key."""
        self._parked: frozenset[JobId] = frozenset()
        """Jobs that want no GPUs for now, as somebody said who tunes elsewhere."""
        self._concluded: dict[JobId, tuple[float, float | None]] = {}
        """Those that are over, with iterations and metric, as somebody said who tunes elsewhere."""
        self._keep_home = False
        """Whether jobs find their checkpoints only where they wrote them, as was seen once."""
        self.behind = math.inf
        """The cluster's time less that of people's clocks, which jobs go by, if it is known."""
        self._out: list[Said] = []
        self._at = 0.0
        self.over = False

    def _target(self, job: JobId) -> float | None:
        """The iterations that a job trains to now; None if it does not train any more."""
        if self._agent is None or not self._agent.trains(job):
            return None
        return self._agent.target(job)

    def _trained(self, job: JobId) -> float:
        """The iterations of a job that count to where it trains; none where none are counted.

        Such a job is one whole, done when it exits with 0, whatever it reports on the way.
        """
        return self._trials[job].done if self._app.counted else 0.0

    def _cost(self, metric: float | None) -> float:
        """The metric so that less is better; nothing is as bad as can be."""
        if metric is None:
            return math.inf
        return metric if self._app.metric.goal is Goal.MINIMIZE else -metric

    def _tell(self, event: ev.AgentEvent) -> None:
        if self._agent is None or self.over:
            return
        for command in self._agent.handle(event):
            self._carry_out(command)

    def _carry_out(self, command: cmd.AgentCommand) -> None:
        match command:
            case cmd.SendBid(round=number, bid=bid):
                self._say(BidSaid(number, bid))
            case cmd.StartJob(job=job, gpus=gpus, until=until):
                self._start(job, gpus, until)
            case cmd.StopJob(job=job):
                self._stop(job)
            case cmd.ReleaseGpus(gpus=gpus):
                held = [self._leases[gpu] for gpu in gpus if gpu in self._leases]
                tokens = tuple(lease.token for lease in held)
                self._say(ReleaseSaid(tuple(lease.gpu for lease in held), tokens))
            case cmd.AnnouncePhase(phase=phase, targets=targets):
                self._say(PhaseSaid(phase, targets))
            case cmd.ReviseTargets(targets=targets):
                for job, done in targets:
                    self._trials[job].done = done
                    self._note_stopped(job)
                self._say(TargetsSaid(targets))
            case cmd.FinishApp(best=best):
                self._end("finished", best if self._may_win(best) else None)
            case _:
                assert_never(command)

    def _may_win(self, best: JobId) -> bool:
        """Whether a job is the best of its app by more than want of others."""
        if self._app.search is None or self._app.tuner is Minder.OWN:
            return True
        return self._trials[best].metric is not None

    def _note_stopped(self, job: JobId) -> None:
        trial = self._trials[job]
        self._say(ReachedSaid(Reached(job, trial.done, trial.metric, "")))

    def _start(self, job: JobId, gpus: tuple[GpuId, ...], until: float) -> None:
        trial = self._trials[job]
        if trial.failed:
            return  # A phase chose it for want of others, and is about to pass over it.
        if trial.open or trial.params is None:
            trial.open = False
            trial.params = dict(self._choose(job)) if self._choose is not None else {}
            self._say(TrialSaid(job, json.dumps(trial.params)))
        self._count += 1
        key = f"{self._session}-{self._count}"
        self._runs[job] = RequestedRun(key, gpus, self._at)
        level = 0 if self._topology is None else self._topology.level(gpus)
        where = (("THEMIS_GPU_COUNT", str(len(gpus))), ("THEMIS_LEVEL", str(level)))
        program = program_of(self._app, trial.params)
        program = replace(program, env=(*program.env, *where))
        self._say(RunSaid(job, gpus, program, key, until if self._app.counted else 0.0))

    def _stop(self, job: JobId) -> None:
        run = self._runs.pop(job, None)
        if run is None:
            return
        run.stopping = True
        self._trials[job].spent += max(0.0, self._at - run.began)
        self._going[run.key] = Going(job, self._at if run.last is not None else None)
        self._say(StopSaid(run.number, run.key))

    def _end(self, outcome: str, best: JobId | None = None) -> None:
        self.over = True
        self._say(EndSaid(outcome, best))

    def _say(self, said: Said) -> None:
        self._out.append(said)

    # Machines that have what others do not see

    def _number_of(self, machine: str) -> int | None:
        return None if self._topology is None else self._topology.number_of.get(machine)

    def _bind(self, job: JobId, machine: int) -> None:
        """Let a job run on the machine that has its checkpoints and nowhere else."""
        trial = self._trials[job]
        trial.bound_to, trial.bound_until = machine, self._at + BOUND
        self._tell(ev.JobBound(self._at, job, machine))

    def _let_go(self, job: JobId) -> None:
        """Let a job that has waited try elsewhere; who is not let go there is bound again."""
        trial = self._trials[job]
        if job in self._runs:
            trial.bound_until = self._at + BOUND
            return
        trial.bound_to, trial.bound_until = None, math.inf
        self._tell(ev.JobBound(self._at, job, None))
