"""An agent that begins in the middle of its app, from what the service has kept.

A tuner that can resume is told where the app is; any other one is told of every job that was done,
in the same order as before, so that it decides the same again.
"""

import json
import math
from dataclasses import dataclass

from themis.agent_host.session.outcomes import SLACK
from themis.agent_host.session.trials import TrialTable
from themis.core.agent import Agent, MakeAgent, Profiler
from themis.core.agent.commands import AnnouncePhase, FinishApp
from themis.core.agent.events import JobReached
from themis.core.model import JobId
from themis.core.tuners import AppProgress, Known, ResumableTuner, Tuner
from themis.protocol.agent_messages import AgentStart, Reached
from themis.protocol.node_messages import finite


@dataclass(slots=True)
class Recovery:
    """An agent that has been told of the past, and what of its commands may be news."""

    agent: Agent
    resumed: bool = False
    """Whether its tuner resumed."""
    announced: AnnouncePhase | None = None
    """The last phase that it announced."""
    finished: FinishApp | None = None

    def replay(self, at: float, past: tuple[Reached, ...], trials: TrialTable) -> None:
        """Tell the agent of jobs that were done: what followed from that was done then."""
        for reached in past:
            trials[reached.job].failed = reached.failed
            cost = math.inf if reached.failed else trials.cost(reached.metric)
            job: JobId | None = reached.job
            while job is not None:
                self._tell(JobReached(at, job, cost))
                # Later phases may have chosen jobs that were given up.
                job, cost = next(filter(self.agent.trains, trials.failed), None), math.inf

    def _tell(self, event: JobReached) -> None:
        for command in self.agent.handle(event):
            if isinstance(command, AnnouncePhase):
                self.announced = command
            elif isinstance(command, FinishApp):
                self.finished = command


def recover(
    at: float, start: AgentStart, trials: TrialTable, tuner: Tuner, make_agent: MakeAgent
) -> Recovery:
    """Make the agent of an app and tell it of the past, after `trials` was restored."""
    resumed = isinstance(tuner, ResumableTuner) and bool(start.targets)
    if isinstance(tuner, ResumableTuner) and start.targets:
        tuner.resume(app_progress(start, trials))
    profiler = Profiler(start.spec.jobs, estimated=start.spec.estimated)
    recovery = Recovery(make_agent(start.spec, tuner, profiler=profiler), resumed)
    past = reached_in_phase(start) if resumed else start.reached
    for reached in start.reached:
        if reached not in past:
            trials[reached.job].failed = reached.failed
    recovery.replay(at, past, trials)
    return recovery


def app_progress(start: AgentStart, trials: TrialTable) -> AppProgress:
    """Where the app is, for a tuner that resumes."""
    curves = {curve.job: curve.points for curve in start.curves}
    chosen = {trial.job: json.loads(trial.params) for trial in start.trials}
    reached: dict[JobId, list[Reached]] = {}
    for each in start.reached:
        reached.setdefault(each.job, []).append(each)
    known = tuple(
        Known(
            job,
            tuple(each.iterations for each in reached.get(job, ())),
            tuple((at, trials.cost(finite(value))) for at, value in curves.get(job, ())),
            chosen.get(job),
            failed=any(each.failed for each in reached.get(job, ())),
        )
        for job in trials
    )
    return AppProgress(start.phase, start.targets, known)


def reached_in_phase(start: AgentStart) -> tuple[Reached, ...]:
    """The last note on each job that is done with the phase under way."""
    targets = dict(start.targets)
    found: dict[JobId, Reached] = {}
    for reached in start.reached:
        target = targets.get(reached.job)
        if target is not None and (reached.failed or reached.iterations >= target - SLACK):
            found.pop(reached.job, None)
            found[reached.job] = reached
    return tuple(found.values())
