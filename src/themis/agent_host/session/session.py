"""An app's agent behind a network: news from the service in, messages to the service out.

    session = AgentSession(plan, session="6f1c")
    for said in session.hear(news.at, item):      # BidReply, RunRequest, StopRequest, ...
        client.say(said)
    session.wake(at)                              # at `session.next_wake`

A session begins with an `AgentStart`, and with another one whenever the service or the agent starts
again: the tuner is told what the service has kept (trials that are done, metrics reported), in the
same order, so that it is where it was. This is data and functions of data; `agent_host.host` does
the calls.
"""

import math
from typing import assert_never

from themis.agent_host.session.homes import HomeMachines
from themis.agent_host.session.launcher import ChooseParams, JobLauncher
from themis.agent_host.session.leases import HeldLeases
from themis.agent_host.session.outcomes import RESUMABLE, EndedRun, RunVerdict
from themis.agent_host.session.recovery import recover
from themis.agent_host.session.runs import RequestedRun, RunTracker
from themis.agent_host.session.trials import FIRST_BACKOFF, TrialTable
from themis.apps.app_file import Goal, TunedBy
from themis.apps.plan import SweepPlan
from themis.core.agent import Agent, MakeAgent, Placement
from themis.core.agent import commands as cmd
from themis.core.agent import events as ev
from themis.core.model import AppSpec, JobId, Topology
from themis.core.tuners import Stepwise, Tuner, tuner_for
from themis.protocol.agent_messages import (
    AgentRequest,
    AgentStart,
    AppEndNews,
    BidReply,
    EndApp,
    LeaseNews,
    NewsItem,
    OfferNews,
    PhaseStart,
    PointsNews,
    ProgressNews,
    RefusalNews,
    RunNews,
    TargetChange,
    TopologyNews,
)
from themis.protocol.node_messages import RunState, finite, no_metric

MOST_WINDOWS = 64
"""Measured windows that the agent is told of at once."""


class AgentSession:
    """The state machine: `hear` news, `wake` at the time asked for, `park` and `conclude` jobs."""

    def __init__(
        self,
        plan: SweepPlan,
        *,
        session: str,
        choose: ChooseParams | None = None,
        own_tuner: Stepwise | None = None,
        make_agent: MakeAgent = Agent,
    ) -> None:
        """Begin with nothing known.

        Args:
            plan: The app file, its jobs and phases.
            session: A text that no other agent of the app has.
            choose: Chooses parameters that the plan leaves open.
            own_tuner: A user's tuner, in place of the one that the app file names.
            make_agent: Makes the core agent.
        """
        app = self._app = plan.app
        self._plan = plan
        self._own_tuner = own_tuner
        self._make_agent = make_agent
        self._agent: Agent | None = None
        self._topology: Topology | None = None
        self._leases = HeldLeases()
        self._trials = TrialTable(app, plan.trials, choose_all=own_tuner is not None)
        self._runs = RunTracker(session)
        self._launcher = JobLauncher(
            app, self._trials, self._runs, choose=choose, own_tuner=own_tuner
        )
        self._homes = HomeMachines()
        self._parked: frozenset[JobId] = frozenset()
        """Jobs that want no GPUs for now, as an outside tuner decided."""
        self._concluded: dict[JobId, tuple[float, float | None]] = {}
        """Iterations and metric of jobs that an outside tuner has ended."""
        self._out: list[AgentRequest] = []
        self._at = 0.0
        self.over = False

    @property
    def placement(self) -> Placement:
        """Where its jobs run or are about to."""
        return {} if self._agent is None or self.over else self._agent.placement

    @property
    def next_wake(self) -> float:
        """When `wake` has something to do next; infinity if never."""
        return min(
            self._trials.next_retry,
            self._homes.next_expiry,
            *map(self._deadline, self._runs),
            math.inf,
        )

    def set_clock_offset(self, seconds: float) -> None:
        """Say how far the cluster's time is ahead of the wall clock that jobs report by."""
        self._runs.clock_offset = seconds

    def hear(self, at: float, item: NewsItem) -> list[AgentRequest]:
        """Take one piece of news; returns the messages that follow, in order."""
        self._out, self._at = [], at
        if isinstance(item, AgentStart):
            self._begin(item)
        elif self._agent is not None and not self.over:
            self._take(item)
        return self._out

    def wake(self, at: float) -> list[AgentRequest]:
        """Try jobs again whose backoff has ended, and end those that ran for too long."""
        self._out, self._at = [], at
        for job in self._trials:
            if self._trials.take_retry(job, at) and job not in self._parked:
                self._apply(ev.JobBack(at, job))
            self._apply(self._homes.expire(at, job, running=job in self._runs))
        for job in self._runs:
            if self._deadline(job) <= at:
                self._stop(job)
                why = f"it ran for longer than max_runtime, {self._app.max_runtime:g} s"
                self._give_up(job, why)
        return self._out

    # What an outside tuner decides

    def park(self, at: float, jobs: frozenset[JobId]) -> list[AgentRequest]:
        """Let these jobs, and no others, want no GPUs for now; they save and stop."""
        self._out, self._at = [], at
        before, self._parked = self._parked, jobs
        if self._agent is None or self.over:
            return []
        for job in sorted(jobs - before):
            self._stop(job)
            self._set_aside(job)
        for job in sorted(before - jobs):
            if not self._trials.is_backing_off(job):
                self._apply(ev.JobBack(at, job))
        return self._out

    def conclude(
        self, at: float, job: JobId, iterations: float, metric: float | None
    ) -> list[AgentRequest]:
        """End a job where it is; its tuner says so too when it is asked next."""
        self._out, self._at = [], at
        self._concluded[job] = iterations, metric
        if self._agent is not None and not self.over:
            self._conclude(job, iterations, metric)
        return self._out

    def _conclude(self, job: JobId, iterations: float, metric: float | None) -> None:
        target = self._target(job)
        if target is None:
            return
        self._trials.advance(job, min(iterations, target))
        if metric is not None:
            self._trials.measure(job, metric)
        trial = self._trials[job]
        self._apply(ev.LossSeen(self._at, job, trial.done, self._trials.cost(trial.metric)))

    # News

    def _take(self, item: NewsItem) -> None:
        match item:
            case OfferNews(offer=offer):
                if self._topology is not None:
                    self._estimate_progress()
                    self._apply(ev.Asked(self._at, offer, self._topology))
            case LeaseNews():
                self._on_leases(item)
            case TopologyNews(topology=topology):
                self._topology = topology
            case RunNews():
                self._on_run(item)
            case ProgressNews(iterations=iterations):
                self._apply(ev.Progressed(self._at, iterations))
            case PointsNews():
                self._on_points(item)
            case RefusalNews():
                self._on_refusal(item)
            case AppEndNews():
                self.over = True
            case AgentStart():
                raise AssertionError("`hear` takes it")
            case _:
                assert_never(item)

    def _on_leases(self, news: LeaseNews) -> None:
        self._leases.change(news)
        if (news.granted or news.revoked) and self._topology is not None:
            self._estimate_progress()
            self._apply(
                ev.LeasesChanged(self._at, self._topology, news.granted, news.renewed, news.revoked)
            )

    def _on_points(self, news: PointsNews) -> None:
        job, at = news.job, self._at
        report = self._runs.take_points(news, at, self._target(job))
        if report.starts_at is not None:
            self._trials.rewind(job, report.starts_at)
        if report.restart_seconds is not None:
            self._apply(ev.MoveTimed(at, restart=report.restart_seconds))
        if report.gpus and self._topology is not None:
            machine = self._topology.seats[report.gpus[0]].machine
            self._apply(self._homes.report(at, job, machine))
        for point in report.points:
            self._trials.report(job, point.iteration)
            value = dict(point.values).get(self._app.metric.name)
            if value is not None:
                cost = self._trials.measure(job, value)
                self._apply(ev.LossSeen(at, job, point.iteration, cost))
        if not self._app.counts_iterations:
            return  # How long its iterations take does not tell how long the whole takes.
        self._apply(ev.Progressed(at, ((job, self._trials[job].done),)))
        if report.windows:
            self._apply(ev.IterationsTimed(at, report.windows[-MOST_WINDOWS:]))

    def _estimate_progress(self) -> None:
        """Tell the agent how far its jobs should be by now.

        A job that reports once in an epoch has moved on since. The simulator's agents know how far
        their jobs are, and live ones should not decide on less.
        """
        if self._agent is None or not self._app.counts_iterations:
            return
        expected = []
        for job in self._runs:
            target = self._target(job)
            if target is None or self._runs.is_stopping(job):
                continue
            seconds = self._runs.seconds_trained(job, self._at, self._agent.start_seconds)
            done = self._trials[job].done + seconds * self._agent.pace(job)
            expected.append((job, min(target, done)))
        if expected:
            self._apply(ev.Progressed(self._at, tuple(expected)))

    def _on_refusal(self, news: RefusalNews) -> None:
        """Try a refused run again in a while: its GPUs may have gone meanwhile."""
        job = self._runs.job_of(news.what)
        if job is None:
            return
        self._runs.refuse(job)
        if news.final:
            self._give_up(job, news.reason)
            return
        home = None if self._topology is None else self._topology.number_of.get(news.home)
        bound = None if home is None else self._homes.refuse(self._at, job, home)
        if bound is not None:
            self._apply(bound)
        else:
            self._trials[job].retry_at = self._at + FIRST_BACKOFF
            self._set_aside(job)

    # How runs go

    def _on_run(self, news: RunNews) -> None:
        run = self._runs.match(news)
        if run is None:
            if news.state.over:
                self._on_stopped(news)
        elif news.state is RunState.RUNNING:
            self._runs.note_running(news.job, self._at)
            self._trials[news.job].false_starts = 0
            self._advance(news)
        elif news.state.over:
            self._runs.end(news.job, self._at)
            self._advance(news)
            self._on_ended(news, run)

    def _on_stopped(self, news: RunNews) -> None:
        """A run that was told to stop has ended; its job may have been done before."""
        stopped = self._runs.take_stopped(news.key)
        self._advance(news)
        if stopped is None:
            return
        if stopped.told_at is not None and news.code == RESUMABLE:
            self._apply(ev.MoveTimed(self._at, checkpoint=self._at - stopped.told_at))
        if self._is_complete(news):
            self._stop(news.job)
            self._accept(news.job)

    def _on_ended(self, news: RunNews, run: RequestedRun) -> None:
        """A run has ended by itself, or before it heard that it should."""
        job, target = news.job, self._target(news.job)
        if target is None:
            return
        ended = EndedRun(
            news,
            self._trials[job],
            target,
            self._app.counts_iterations,
            ran=run.ran,
            reported=run.last is not None,
            told=run.stopping,
            lease_ended=self._leases.any_ended(run.gpus, self._at),
        )
        verdict, why = ended.judge()
        match verdict:
            case RunVerdict.DONE:
                self._accept(job)
            case RunVerdict.CONTINUES:
                self._apply(ev.JobLost(self._at, job, self._trials.counted(job)))
            case RunVerdict.FAILED:
                self._fail(job, why)
            case RunVerdict.NEVER_STARTED:
                self._retry(job, why, again=self._trials.fail_start(job, self._at))
            case _:
                assert_never(verdict)

    def _is_complete(self, news: RunNews) -> bool:
        target = self._target(news.job)
        if target is None:
            return False
        return EndedRun(news, self._trials[news.job], target, self._app.counts_iterations).complete

    def _advance(self, news: RunNews) -> None:
        if self._trials.advance(news.job, news.iterations):
            done = self._trials.counted(news.job)
            self._apply(ev.Progressed(self._at, ((news.job, done),)))

    def _accept(self, job: JobId) -> None:
        """Take a job as done, unless it had to report its metric and did not."""
        trial = self._trials[job]
        if trial.measured or not self._app.needs_metrics:
            self._trials.advance(job, self._target(job) or 0.0)
            self._out.append(self._trials.reached(job))
            self._estimate_progress()
            self._apply(ev.JobReached(self._at, job, self._trials.cost(trial.metric)))
            self._skip_failed()
        elif trial.reported:
            self._give_up(job, no_metric(self._app.metric.name))  # It would report the same again.
        else:
            self._fail(job, no_metric(self._app.metric.name))

    def _fail(self, job: JobId, why: str) -> None:
        self._retry(job, why, again=self._trials.fail(job, self._at))

    def _retry(self, job: JobId, why: str, *, again: bool) -> None:
        if again:
            self._set_aside(job)
        else:
            self._give_up(job, why)

    def _give_up(self, job: JobId, why: str) -> None:
        self._trials.give_up(job, why)
        self._out.append(self._trials.reached(job))
        if self._trials.all_failed:
            self._end(f"failed: {why}")
            return
        self._apply(ev.JobReached(self._at, job, math.inf))
        self._skip_failed()

    def _skip_failed(self) -> None:
        """Pass over jobs that were given up and that a phase chose for want of others."""
        while not self.over and (job := self._failed_in_phase()) is not None:
            self._apply(ev.JobReached(self._at, job, math.inf))

    def _failed_in_phase(self) -> JobId | None:
        """A job that was given up and that the phase under way waits for."""
        return next((job for job in self._trials.failed if self._target(job) is not None), None)

    def _set_aside(self, job: JobId) -> None:
        self._apply(ev.JobSetAside(self._at, job, self._trials.counted(job)))

    def _deadline(self, job: JobId) -> float:
        longest = self._app.max_runtime
        return self._runs.deadline(job, longest) if longest else math.inf

    # The core agent

    def _target(self, job: JobId) -> float | None:
        """The iterations that a job trains to now; None if it does not train any more."""
        if self._agent is None or not self._agent.trains(job):
            return None
        return self._agent.target(job)

    def _apply(self, event: ev.AgentEvent | None) -> None:
        """Hand an event to the core agent, if there is one, and carry out what it wants."""
        if event is None or self._agent is None or self.over:
            return
        for command in self._agent.handle(event):
            self._carry_out(command)

    def _carry_out(self, command: cmd.AgentCommand) -> None:
        match command:
            case cmd.SendBid(round=number, bid=bid):
                self._out.append(BidReply(number, bid))
            case cmd.StartJob():
                self._start(command)
            case cmd.StopJob(job=job):
                self._stop(job)
            case cmd.ReleaseGpus(gpus=gpus):
                self._out.append(self._leases.release(gpus))
            case cmd.AnnouncePhase(phase=phase, targets=targets):
                self._out.append(PhaseStart(phase, targets))
            case cmd.ReviseTargets(targets=targets):
                for job, done in targets:
                    self._trials[job].done = done
                    self._out.append(self._trials.reached(job))
                self._out.append(TargetChange(targets))
            case cmd.FinishApp(best=best):
                self._end("finished", best if self._may_win(best) else None)
            case _:
                assert_never(command)

    def _start(self, command: cmd.StartJob) -> None:
        if self._trials[command.job].failed:
            return  # A phase chose it for want of others; `_skip_failed` follows.
        level = 0 if self._topology is None else self._topology.level(command.gpus)
        self._out += self._launcher.launch(self._at, command, level)

    def _stop(self, job: JobId) -> None:
        stop = self._runs.stop(job, self._at)
        if stop is not None:
            self._out.append(stop)

    def _may_win(self, best: JobId) -> bool:
        """Whether a job won by more than want of others."""
        if self._app.search is None or self._app.tuner is TunedBy.OWN:
            return True
        return self._trials[best].metric is not None

    def _end(self, outcome: str, best: JobId | None = None) -> None:
        self.over = True
        self._out.append(EndApp(outcome, best))

    # Beginning, and beginning again

    def _begin(self, start: AgentStart) -> None:
        """Come to be where the app is."""
        self._topology = start.topology
        self._leases = HeldLeases(start.leases)
        self._trials.restore(start)
        self._runs.restart(start.past)
        self._homes.clear()
        tuner = self._new_tuner(start.spec)
        recovery = recover(self._at, start, self._trials, tuner, self._make_agent)
        self._agent = recovery.agent
        if recovery.finished is not None:
            self._carry_out(recovery.finished)
        announced = recovery.announced
        if announced is not None and announced.phase > start.phase:
            self._carry_out(announced)  # The service may not have heard it.
        for job, done in start.iterations:
            self._trials[job].done = done
        self._apply(ev.Progressed(self._at, start.iterations))
        for curve in () if recovery.resumed else start.curves:
            for iteration, value in curve.points:
                cost = self._trials.cost(finite(value))
                self._apply(ev.LossSeen(self._at, curve.job, iteration, cost))
        self._resume(start)

    def _new_tuner(self, spec: AppSpec) -> Tuner:
        if self._own_tuner is None:
            return tuner_for(spec, self._plan.tuner)
        drawn = {trial.job: trial.params or {} for trial in self._plan.trials}
        maximize = self._app.metric.goal is Goal.MAXIMIZE
        return self._own_tuner.enter(spec, drawn, maximize=maximize)

    def _resume(self, start: AgentStart) -> None:
        """Take over the runs of the app, and judge those that ended meanwhile."""
        alive = [run for run in start.runs if not run.state.over]
        staying = {run.job for run in alive if run.state is not RunState.STOPPING}
        placement = []
        for run in alive:
            stopping = run.state is RunState.STOPPING
            if stopping and run.job in staying:
                self._runs.adopt_stopping(run)
                continue
            # One that stops may be done: its end tells whether its job has to go on.
            self._runs.adopt(run, self._at, stopping=stopping)
            placement.append((run.job, run.gpus))
        for job, (iterations, metric) in self._concluded.items():
            self._conclude(job, iterations, metric)  # The service may not have heard it.
        for job in sorted(self._parked):
            self._set_aside(job)
        assert self._topology is not None
        gpus = self._leases.gpus
        self._apply(ev.Resumed(self._at, self._topology, gpus, tuple(placement)))
        self._judge_missed(start, {run.job for run in alive})

    def _judge_missed(self, start: AgentStart, alive: set[JobId]) -> None:
        """Accept jobs whose run ended complete while no agent listened."""
        noted = {reached.job for reached in start.reached}
        for run in start.runs:
            if not run.state.over or run.job in alive:
                continue
            silent = run.job in noted and not self._trials[run.job].reported
            if not silent and self._is_complete(run):
                self._stop(run.job)
                self._accept(run.job)
