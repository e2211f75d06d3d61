"""An app's agent behind the network: news come in, and what it has to say goes out.

    agency = Agency(written, plan, session="6f1c")
    for said in agency.hear(news.at, item):      # BidSaid, RunSaid, StopSaid, ...
        link.say(said)
    agency.wake(at)                              # at `agency.next_wake`

It begins with a `Standing`, and with another whenever service or agent start again: what the
service has kept (trials that are done, losses seen) is told to the tuner once more, in the same
order, so that it is where it was. All of this is data and functions of data; `live` has the calls.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, assert_never

from themis.agent import commands as cmd
from themis.agent import events as ev
from themis.agent.core import Agent
from themis.agent.profiler import Profiler
from themis.apps.file import AppFile, Goal
from themis.apps.plan import Plan, argv_of, environment
from themis.apps.space import Value
from themis.fleet.messages import MetricsSource, Point, Program, RunState
from themis.fleet.talk import (
    BidSaid,
    EndSaid,
    LeaseNews,
    NewsItem,
    OfferNews,
    OverNews,
    PhaseSaid,
    PointsNews,
    ProgressNews,
    Reached,
    ReachedSaid,
    RefusalNews,
    ReleaseSaid,
    RunNews,
    RunSaid,
    Said,
    Standing,
    StopSaid,
    TargetsSaid,
    TopologyNews,
    TrialSaid,
)
from themis.model import AppSpec, GpuId, JobId, Lease, Topology
from themis.tuners import Tuner, tuner_for

RESUMABLE = 75
"""The exit code of a job that has saved and can go on."""
FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
"""Seconds before a job that failed is started again, doubling with each failure."""
MOST_WINDOWS = 64
LONGEST_WAY = 60.0
"""Seconds that a word of a run is on its way to us at most; more is a clock that is wrong."""
SILENCE = 3.0
"""A run that says nothing for so many times longer than before its last word is not believed to
train on."""
_SLACK = 1e-6

Choose = Callable[[JobId], Mapping[str, Value]]
"""Chooses the parameters of a trial that is about to begin."""


class MakeAgent(Protocol):
    """Makes the agent of an app; `Agent` itself, or one that somebody listens to."""

    def __call__(self, spec: AppSpec, tuner: Tuner, *, profiler: Profiler) -> Agent:
        """An agent that knows nothing yet."""


MakeTuner = Callable[[AppSpec], Tuner]
"""Makes a tuner that knows nothing yet; it is told of the past before anything else."""


@dataclass(slots=True)
class _Run:
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


@dataclass(slots=True)
class _Trial:
    """What is known of one job."""

    params: Mapping[str, Value] | None
    done: float = 0.0
    metric: float | None = None
    """As last reported, in its own direction."""
    spoke: bool = False
    """Whether it ever reported anything."""
    failures: int = 0
    false_starts: int = 0
    """Runs in a row that ended before they ran."""
    failed: str = ""
    """Why it is given up."""
    spent: float = 0.0
    """Seconds of its runs that are over."""
    back_at: float = math.inf
    """When it may run again, if it is set aside."""


class Agency:
    """The state machine. `hear` and `wake` are its only doors."""

    def __init__(
        self,
        app: AppFile,
        plan: Plan,
        *,
        session: str,
        choose: Choose | None = None,
        make_tuner: MakeTuner | None = None,
        make_agent: MakeAgent = Agent,
    ) -> None:
        self._make_agent = make_agent
        self._app = app
        self._plan = plan
        self._session = session
        self._choose = choose
        self._make_tuner = make_tuner or (lambda spec: tuner_for(spec, plan.tuner))
        self._count = 0
        self._agent: Agent | None = None
        self._topology: Topology | None = None
        self._leases: dict[GpuId, Lease] = {}
        self._trials: dict[JobId, _Trial] = {}
        self._runs: dict[JobId, _Run] = {}
        self._going: dict[str, JobId] = {}
        """Runs told to stop whose job may already have another, by key."""
        self.behind = math.inf
        """The cluster's time less that of people's clocks, which jobs go by, if it is known."""
        self._out: list[Said] = []
        self._at = 0.0
        self.over = False

    @property
    def next_wake(self) -> float:
        """When `wake` has something to do next; infinity for not."""
        waits = [trial.back_at for trial in self._trials.values()]
        if self._app.max_runtime:
            waits += [
                self._runtime_ends(job) for job, run in self._runs.items() if not run.stopping
            ]
        return min(waits, default=math.inf)

    def hear(self, at: float, item: NewsItem) -> list[Said]:
        """Take one piece of news; returns what there is to say, in order."""
        self._out, self._at = [], at
        if isinstance(item, Standing):
            self._begin(item)
        elif self._agent is not None and not self.over:
            self._take(item)
        return self._out

    def wake(self, at: float) -> list[Said]:
        """Let jobs run again whose wait is over, and end those whose time is up."""
        self._out, self._at = [], at
        for job, trial in self._trials.items():
            if trial.back_at <= at:
                trial.back_at = math.inf
                self._tell(ev.JobBack(at, job))
        if self._app.max_runtime:
            for job, run in list(self._runs.items()):
                if not run.stopping and self._runtime_ends(job) <= at:
                    self._out_of_time(job)
        return self._out

    # News

    def _take(self, item: NewsItem) -> None:
        match item:
            case OfferNews(offer=offer):
                if self._topology is not None:
                    self._tell_progress()
                    self._tell(ev.Asked(self._at, offer, self._topology))
            case LeaseNews():
                self._on_leases(item)
            case TopologyNews(topology=topology):
                self._topology = topology
            case RunNews():
                self._on_run(item)
            case ProgressNews(iterations=iterations):
                self._tell(ev.Progressed(self._at, iterations))
            case PointsNews():
                self._on_points(item)
            case RefusalNews():
                self._on_refusal(item)
            case OverNews():
                self.over = True
            case Standing():
                raise AssertionError("taken before")
            case _:
                assert_never(item)

    def _begin(self, standing: Standing) -> None:
        """Come to be where the app is."""
        self._topology = standing.topology
        self._leases = {lease.gpu: lease for lease in standing.leases}
        self._trials = {trial.job: _Trial(trial.params) for trial in self._plan.trials}
        self._runs, self._going = {}, {}
        tuner = self._make_tuner(standing.spec)
        profiler = Profiler(standing.spec.jobs)
        self._agent = self._make_agent(standing.spec, tuner, profiler=profiler)
        for chosen in standing.trials:
            self._trials[chosen.job].params = json.loads(chosen.params)
        announced = self._relive(standing.reached)
        if announced is not None and announced.phase > standing.phase:
            self._say(PhaseSaid(announced.phase, announced.targets))  # It may not have been heard.
        for job, done in standing.iterations:
            self._trials[job].done = done
        self._tell(ev.Progressed(self._at, standing.iterations))
        for curve in standing.curves:
            for iteration, value in curve.points:
                trial = self._trials[curve.job]
                trial.spoke, trial.metric = True, value
                self._tell(ev.LossSeen(self._at, curve.job, iteration, self._cost(value)))
        self._resume(standing)

    def _relive(self, past: tuple[Reached, ...]) -> cmd.AnnouncePhase | None:
        """Tell of the past: what followed from it was done then, unless it was the last word."""
        assert self._agent is not None
        announced = None
        for reached in past:
            trial = self._trials[reached.job]
            trial.failed = reached.failed
            cost = math.inf if reached.failed else self._cost(reached.metric)
            for command in self._agent.handle(ev.JobReached(self._at, reached.job, cost)):
                if isinstance(command, cmd.AnnouncePhase):
                    announced = command
                elif isinstance(command, cmd.FinishApp):
                    self._carry_out(command)
        return announced

    def _resume(self, standing: Standing) -> None:
        ended = []
        placement = []
        alive = {run.job for run in standing.runs if not run.state.over}
        staying = {
            run.job
            for run in standing.runs
            if not run.state.over and run.state is not RunState.STOPPING
        }
        for run in standing.runs:
            if run.state.over:
                ended.append(run)
                continue
            stopping = run.state is RunState.STOPPING
            if stopping and run.job in staying:
                self._going[run.key] = run.job
                continue
            # One that goes may be done: whether its job has to go on is known when it is over.
            self._runs[run.job] = _Run(run.key, run.gpus, self._at, run.run, stopping)
            placement.append((run.job, run.gpus))
        assert self._topology is not None
        gpus = tuple(sorted(self._leases))
        self._tell(ev.Resumed(self._at, self._topology, gpus, tuple(placement)))
        for run in ended:
            # It may have ended while nobody listened.
            told = run.job in {reached.job for reached in standing.reached}
            silent = not self._trials[run.job].spoke
            if run.job not in alive and not (told and silent) and self._complete(run):
                self._stop(run.job)
                self._arrive(run.job)

    def _complete(self, run: RunNews) -> bool:
        """Whether a run ended because its job is where it had to be in this phase."""
        target, trial = self._target(run.job), self._trials[run.job]
        if target is None or run.code != 0:
            return False
        if not self._app.counted or not trial.spoke:
            return True  # It never says how far it is, and knows best when it is done.
        return max(run.iterations, trial.done) >= target - _SLACK

    def _target(self, job: JobId) -> float | None:
        """The iterations that a job trains to now; None if it does not train any more."""
        if self._agent is None or not self._agent.trains(job):
            return None
        return self._agent.target(job)

    # GPUs

    def _on_leases(self, news: LeaseNews) -> None:
        for lease in (*news.granted, *news.renewed):
            self._leases[lease.gpu] = lease
        for lease in news.revoked:
            held = self._leases.get(lease.gpu)
            if held is not None and held.token <= lease.token:
                del self._leases[lease.gpu]
        if (news.granted or news.revoked) and self._topology is not None:
            self._tell_progress()
            self._tell(
                ev.LeasesChanged(self._at, self._topology, news.granted, news.renewed, news.revoked)
            )

    # Runs

    def _on_run(self, news: RunNews) -> None:
        job = news.job
        run = self._runs.get(job)
        if run is None or run.key != news.key:
            if news.state.over:
                self._gone(news)
            return
        known, run.number = run.number, news.run
        if run.stopping and not known:
            self._say(StopSaid(news.run))
        if news.state is RunState.RUNNING:
            run.ran, self._trials[job].false_starts = True, 0
            self._note_done(news)
        if news.state.over:
            del self._runs[job]
            self._trials[job].spent += max(0.0, self._at - run.began)
            self._note_done(news)
            self._ended(news, run)

    def _gone(self, news: RunNews) -> None:
        """A run is over that was told to go; it may have been done before it heard that."""
        going = self._going.pop(news.key, None) is not None
        self._note_done(news)
        if going and self._complete(news):
            self._stop(news.job)
            self._arrive(news.job)

    def _note_done(self, news: RunNews) -> None:
        trial = self._trials[news.job]
        if news.iterations > trial.done:
            trial.done = news.iterations
            self._tell(ev.Progressed(self._at, ((news.job, trial.done),)))

    def _ended(self, news: RunNews, run: _Run) -> None:
        """A run is over that nobody told to go, or whose end crossed that."""
        job, trial = news.job, self._trials[news.job]
        target = self._target(job)
        if target is None:
            return
        if self._complete(news):
            self._arrive(job)
        elif not (run.ran or run.stopping or trial.spoke) and news.state is RunState.LOST:
            self._false_start(job, news.message or "it could not be started")
        elif self._may_go_on(news, run):
            self._tell(ev.JobLost(self._at, job, trial.done))
        elif news.code == 0:
            self._fail(job, f"it exited with 0 at iteration {trial.done:g} of {target:g}")
        else:
            self._fail(job, news.message or f"it exited with {news.code}")

    def _may_go_on(self, news: RunNews, run: _Run) -> bool:
        """Whether a job that ended did nothing wrong, and goes on where it was."""
        if run.stopping or news.state is RunState.LOST:
            return True
        leases = [self._leases.get(gpu) for gpu in run.gpus]
        if any(lease is None or lease.end <= self._at for lease in leases):
            return True  # Its node ended it with its lease.
        # One that saves and goes before it got anywhere would do so for ever.
        return news.code == RESUMABLE and run.last is not None

    def _arrive(self, job: JobId) -> None:
        self._note_reached(job, "")
        self._tell_progress()
        self._tell(ev.JobReached(self._at, job, self._cost(self._trials[job].metric)))
        self._pass_over_failed()

    def _note_reached(self, job: JobId, failed: str) -> None:
        trial = self._trials[job]
        target = self._target(job)
        if not failed and target is not None:
            trial.done = max(trial.done, target)
        self._say(ReachedSaid(Reached(job, trial.done, trial.metric, failed)))

    def _false_start(self, job: JobId, why: str) -> None:
        """A run that never ran: its machine may be gone, or the job cannot be started at all."""
        trial = self._trials[job]
        trial.false_starts += 1
        if trial.false_starts > self._app.retries:
            self._give_up(job, why)
        else:
            self._wait(job, trial.false_starts)

    def _wait(self, job: JobId, times: int) -> None:
        """Start a job again after a while, longer each time."""
        trial = self._trials[job]
        trial.back_at = self._at + min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** (times - 1))
        self._tell(ev.JobSetAside(self._at, job, trial.done))

    def _fail(self, job: JobId, why: str) -> None:
        """Try again later, or give up."""
        trial = self._trials[job]
        trial.failures += 1
        if trial.failures > self._app.retries:
            self._give_up(job, why)
            return
        self._wait(job, trial.failures)

    def _give_up(self, job: JobId, why: str) -> None:
        trial = self._trials[job]
        trial.failed, trial.metric = why, None
        self._note_reached(job, why)
        if all(each.failed for each in self._trials.values() if each.params is not None):
            self._end(f"failed: {why}")
            return
        self._tell(ev.JobReached(self._at, job, math.inf))
        self._pass_over_failed()

    def _pass_over_failed(self) -> None:
        """A phase may go on with jobs that were given up, for want of others: they stay so."""
        for job, trial in self._trials.items():
            if trial.failed and not self.over and self._target(job) is not None:
                self._tell(ev.JobReached(self._at, job, math.inf))

    def _runtime_ends(self, job: JobId) -> float:
        run = self._runs[job]
        return run.began + self._app.max_runtime - self._trials[job].spent

    def _out_of_time(self, job: JobId) -> None:
        self._stop(job)
        self._give_up(job, f"it ran for longer than max_runtime, {self._app.max_runtime:g} s")

    def _on_refusal(self, news: RefusalNews) -> None:
        """A run that was not taken: its GPUs may have gone meanwhile. Try again in a while."""
        for job, run in list(self._runs.items()):
            if run.key != news.what:
                continue
            del self._runs[job]
            trial = self._trials[job]
            if news.final:
                self._give_up(job, news.reason)
            else:
                trial.back_at = self._at + FIRST_WAIT
                self._tell(ev.JobSetAside(self._at, job, trial.done))

    # Metrics

    def _on_points(self, news: PointsNews) -> None:
        run = self._runs.get(news.job)
        ours = run is not None and run.number in {0, news.run}
        fresh = news.points
        if run is not None and ours:
            fresh = news.points[max(0, run.heard + 1 - news.first) :]
            run.heard = max(run.heard, news.first + len(news.points) - 1)
            self._note_times(run, fresh)
        windows = self._windows(news.job, run, fresh) if run is not None and ours else []
        trial = self._trials[news.job]
        for point in fresh:
            trial.spoke = True
            trial.done = max(trial.done, point.iteration)
            value = self._metric_of(point)
            if value is not None:
                trial.metric = value
                self._tell(ev.LossSeen(self._at, news.job, point.iteration, self._cost(value)))
        self._tell(ev.Progressed(self._at, ((news.job, trial.done),)))
        if windows:
            self._tell(ev.IterationsTimed(self._at, tuple(windows[-MOST_WINDOWS:])))

    def _tell_progress(self) -> None:
        """Tell the agent how far its jobs should be by now.

        A job that reports once in an epoch is not where it was then. The simulator's agents know
        how far their jobs are, and live ones should not decide on less.
        """
        if self._agent is None:
            return
        expected = []
        for job, run in self._runs.items():
            target = self._target(job)
            if target is None or run.stopping or run.last is None:
                continue
            trained = min(self._at - self._said_at(run), SILENCE * run.gap)
            done = max(run.last.iteration, self._trials[job].done)
            expected.append((job, min(target, done + trained * self._agent.pace(job))))
        if expected:
            self._tell(ev.Progressed(self._at, tuple(expected)))

    def _note_times(self, run: _Run, points: tuple[Point, ...]) -> None:
        """Note when a run said something, by its own clock if it tells."""
        before = run.last
        for point in points:
            if before is not None and before.time is not None and point.time is not None:
                run.gap = max(0.0, point.time - before.time)
            elif before is not None:
                run.gap = max(0.0, self._at - run.heard_at)
            before, run.heard_at = point, self._at

    def _said_at(self, run: _Run) -> float:
        """When a run said its last word, which was some time on its way."""
        if run.last is None or run.last.time is None:
            return run.heard_at
        # Clocks may be set wrongly: nothing is believed to be long on its way.
        said_at = max(run.last.time + self.behind, run.heard_at - LONGEST_WAY)
        return min(run.heard_at, said_at)

    def _metric_of(self, point: Point) -> float | None:
        return dict(point.values).get(self._app.metric.name)

    def _windows(self, job: JobId, run: _Run, points: tuple[Point, ...]) -> list[ev.Window]:
        windows = []
        for point in points:
            before, run.last = run.last, point
            if run.first is None:
                run.first = point.iteration
            if before is None or before.time is None or point.time is None:
                continue
            iterations, seconds = point.iteration - before.iteration, point.time - before.time
            if iterations > 0.0 and seconds > 0.0:
                first = before.iteration - run.first
                windows.append(ev.Window(job, run.gpus, first, iterations, seconds))
        return windows

    def _cost(self, metric: float | None) -> float:
        """The metric so that less is better; nothing is as bad as can be."""
        if metric is None:
            return math.inf
        return metric if self._app.metric.goal is Goal.MINIMIZE else -metric

    # What the agent wants

    def _tell(self, event: ev.AgentEvent) -> None:
        if self._agent is None or self.over:
            return
        for command in self._agent.handle(event):
            self._carry_out(command)

    def _carry_out(self, command: cmd.AgentCommand) -> None:
        match command:
            case cmd.Answer(round=number, bid=bid):
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
                self._end("finished", best)
            case _:
                assert_never(command)

    def _note_stopped(self, job: JobId) -> None:
        trial = self._trials[job]
        self._say(ReachedSaid(Reached(job, trial.done, trial.metric, "")))

    def _start(self, job: JobId, gpus: tuple[GpuId, ...], until: float) -> None:
        trial = self._trials[job]
        if trial.params is None:
            trial.params = dict(self._choose(job)) if self._choose is not None else {}
            self._say(TrialSaid(job, json.dumps(trial.params)))
        self._count += 1
        key = f"{self._session}-{self._count}"
        self._runs[job] = _Run(key, gpus, self._at)
        app = self._app
        metric = app.metric
        level = 0 if self._topology is None else self._topology.level(gpus)
        where = (("THEMIS_GPU_COUNT", str(len(gpus))), ("THEMIS_LEVEL", str(level)))
        program = Program(
            argv_of(app.command, trial.params),
            (*environment(app, trial.params), *where),
            app.workdir,
            app.checkpoint.grace,
            MetricsSource(metric.name, str(metric.source), metric.path, metric.pattern),
        )
        self._say(RunSaid(job, gpus, program, key, until if app.counted else 0.0))

    def _stop(self, job: JobId) -> None:
        run = self._runs.pop(job, None)
        if run is None:
            return
        run.stopping = True
        self._going[run.key] = job
        self._say(StopSaid(run.number, run.key))

    def _end(self, outcome: str, best: JobId | None = None) -> None:
        self.over = True
        self._say(EndSaid(outcome, best))

    def _say(self, said: Said) -> None:
        self._out.append(said)
