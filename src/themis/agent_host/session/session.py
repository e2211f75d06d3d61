"""An app's agent behind the network: news come in, and what it has to say goes out.

    agency = Agency(written, plan, session="6f1c")
    for said in agency.hear(news.at, item):      # BidSaid, RunSaid, StopSaid, ...
        link.say(said)
    agency.wake(at)                              # at `agency.next_wake`

It begins with a `AgentStart`, and with another whenever service or agent start again: what the
service has kept (trials that are done, losses seen) is told to the tuner once more, in the same
order, so that it is where it was. All of this is data and functions of data; `live` has the calls.
"""

import json
import math
from typing import assert_never

from themis.agent_host.session.outgoing import SLACK, Going, RequestedRun, TrialState
from themis.agent_host.session.run_outcomes import Minding
from themis.core.agent import commands as cmd
from themis.core.agent import events as ev
from themis.core.agent.job_assignment import Placement
from themis.core.agent.profiler import Profiler
from themis.core.model import JobId
from themis.core.tuners import AppProgress, Known, ResumableTuner
from themis.protocol.agent_messages import (
    AgentStart,
    LeaseNews,
    NewsItem,
    OfferNews,
    OverNews,
    PhaseSaid,
    PointsNews,
    ProgressNews,
    Reached,
    RefusalNews,
    RunNews,
    Said,
    TopologyNews,
)
from themis.protocol.node_messages import RunState, finite


class Agency(Minding):
    """The state machine. `hear` and `wake` are its only doors."""

    @property
    def placement(self) -> Placement:
        """Where its jobs run or are about to."""
        return {} if self._agent is None or self.over else self._agent.placement

    @property
    def next_wake(self) -> float:
        """When `wake` has something to do next; infinity for not."""
        waits = [min(trial.back_at, trial.bound_until) for trial in self._trials.values()]
        if self._app.max_runtime:
            waits += [
                self._runtime_ends(job) for job, run in self._runs.items() if not run.stopping
            ]
        return min(waits, default=math.inf)

    def hear(self, at: float, item: NewsItem) -> list[Said]:
        """Take one piece of news; returns what there is to say, in order."""
        self._out, self._at = [], at
        if isinstance(item, AgentStart):
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
                if job not in self._parked:
                    self._tell(ev.JobBack(at, job))
            if trial.bound_until <= at:
                self._let_go(job)
        if self._app.max_runtime:
            for job, run in list(self._runs.items()):
                if not run.stopping and self._runtime_ends(job) <= at:
                    self._out_of_time(job)
        return self._out

    # What somebody decides who tunes elsewhere

    def park(self, at: float, jobs: frozenset[JobId]) -> list[Said]:
        """These jobs, and no others, want no GPUs for now; they are told to save and go."""
        self._out, self._at = [], at
        before, self._parked = self._parked, jobs
        if self._agent is None or self.over:
            return []
        for job in sorted(jobs - before):
            self._stop(job)
            self._tell(ev.JobSetAside(at, job, self._trained(job)))
        for job in sorted(before - jobs):
            if math.isinf(self._trials[job].back_at):
                self._tell(ev.JobBack(at, job))
        return self._out

    def conclude(
        self, at: float, job: JobId, iterations: float, metric: float | None
    ) -> list[Said]:
        """A job is over where it is, as its tuner is about to say when asked once more."""
        self._out, self._at = [], at
        self._concluded[job] = iterations, metric
        if self._agent is not None and not self.over:
            self._conclude(job, iterations, metric)
        return self._out

    def _conclude(self, job: JobId, iterations: float, metric: float | None) -> None:
        target = self._target(job)
        if target is None:
            return
        trial = self._trials[job]
        trial.done = max(trial.done, min(iterations, target))
        if metric is not None:
            trial.spoke, trial.measured, trial.metric = True, True, finite(metric)
        self._tell(ev.LossSeen(self._at, job, trial.done, self._cost(trial.metric)))

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
            case AgentStart():
                raise AssertionError("taken before")
            case _:
                assert_never(item)

    def _begin(self, standing: AgentStart) -> None:
        """Come to be where the app is."""
        self._topology = standing.topology
        self._leases = {lease.gpu: lease for lease in standing.leases}
        self._trials = {
            trial.job: TrialState(trial.params, open=self._choose_all or trial.params is None)
            for trial in self._plan.trials
        }
        self._runs, self._going = {}, {}
        for known in standing.past:
            trial = self._trials[known.job]
            trial.spent, trial.failures = known.seconds, known.failures
        tuner = self._make_tuner(standing.spec)
        resumed = isinstance(tuner, ResumableTuner) and bool(standing.targets)
        if isinstance(tuner, ResumableTuner) and standing.targets:
            tuner.resume(self._past(standing))
        profiler = Profiler(standing.spec.jobs, estimated=standing.spec.estimated)
        self._agent = self._make_agent(standing.spec, tuner, profiler=profiler)
        for chosen in standing.trials:
            self._trials[chosen.job].params = json.loads(chosen.params)
            self._trials[chosen.job].open = False
        past = _of_phase(standing) if resumed else standing.reached
        for reached in standing.reached:
            if reached not in past:
                self._trials[reached.job].failed = reached.failed
        for curve in standing.curves:
            trial = self._trials[curve.job]
            for _, value in curve.points[-1:]:
                trial.spoke, trial.measured, trial.metric = True, True, finite(value)
        announced = self._relive(past)
        if announced is not None and announced.phase > standing.phase:
            self._say(PhaseSaid(announced.phase, announced.targets))  # It may not have been heard.
        for job, done in standing.iterations:
            self._trials[job].done = done
        self._tell(ev.Progressed(self._at, standing.iterations))
        for curve in standing.curves:
            for iteration, value in () if resumed else curve.points:
                cost = self._cost(finite(value))
                self._tell(ev.LossSeen(self._at, curve.job, iteration, cost))
        self._resume(standing)

    def _past(self, standing: AgentStart) -> AppProgress:
        """Where the app is, for a tuner that does not live through it again."""
        curves = {curve.job: curve.points for curve in standing.curves}
        chosen = {trial.job: json.loads(trial.params) for trial in standing.trials}
        said: dict[JobId, list[Reached]] = {}
        for reached in standing.reached:
            said.setdefault(reached.job, []).append(reached)
        known = tuple(
            Known(
                job,
                tuple(each.iterations for each in said.get(job, ())),
                tuple((at, self._cost(finite(value))) for at, value in curves.get(job, ())),
                chosen.get(job),
                failed=any(each.failed for each in said.get(job, ())),
            )
            for job in self._trials
        )
        return AppProgress(standing.phase, standing.targets, known)

    def _relive(self, past: tuple[Reached, ...]) -> cmd.AnnouncePhase | None:
        """Tell of the past: what followed from it was done then, unless it was the last word."""
        assert self._agent is not None
        announced = None
        for reached in past:
            self._trials[reached.job].failed = reached.failed
            cost = math.inf if reached.failed else self._cost(reached.metric)
            next_one: JobId | None = reached.job
            while next_one is not None:
                for command in self._agent.handle(ev.JobReached(self._at, next_one, cost)):
                    if isinstance(command, cmd.AnnouncePhase):
                        announced = command
                    elif isinstance(command, cmd.FinishApp):
                        self._carry_out(command)
                next_one, cost = self._failed_in_phase(), math.inf
        return announced

    def _resume(self, standing: AgentStart) -> None:
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
                self._going[run.key] = Going(run.job)
                continue
            # One that goes may be done: whether its job has to go on is known when it is over.
            self._runs[run.job] = RequestedRun(run.key, run.gpus, self._at, run.run, stopping)
            placement.append((run.job, run.gpus))
        for job, (iterations, metric) in self._concluded.items():
            self._conclude(job, iterations, metric)  # What was said of it may not have been heard.
        for job in sorted(self._parked):
            self._tell(ev.JobSetAside(self._at, job, self._trained(job)))
        assert self._topology is not None
        gpus = tuple(sorted(self._leases))
        self._tell(ev.Resumed(self._at, self._topology, gpus, tuple(placement)))
        for run in ended:
            # It may have ended while nobody listened.
            told = run.job in {reached.job for reached in standing.reached}
            silent = not self._trials[run.job].spoke
            if run.job not in alive and not (told and silent) and self._complete(run):
                self._stop(run.job)
                self._judge(run.job)

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


def _of_phase(standing: AgentStart) -> tuple[Reached, ...]:
    """The last that was said of jobs which are done with the phase under way."""
    targets = dict(standing.targets)
    found: dict[JobId, Reached] = {}
    for reached in standing.reached:
        target = targets.get(reached.job)
        if target is not None and (reached.failed or reached.iterations >= target - SLACK):
            found.pop(reached.job, None)
            found[reached.job] = reached
    return tuple(found.values())
