"""What agents say as events of the steward, and what the steward knows as news for agents."""

from typing import assert_never

from themis.core.arbiter import events as ev
from themis.core.model import AppId
from themis.core.steward.events import (
    AgentEvent,
    AppWon,
    JobNoted,
    ReleaseRequested,
    RunRequested,
    StopRequested,
    TrialChosen,
)
from themis.core.steward.rows import ActiveRun, RunEnd
from themis.protocol.agent_messages import (
    BidSaid,
    EndSaid,
    PhaseSaid,
    ReachedSaid,
    ReleaseSaid,
    RunNews,
    RunSaid,
    Said,
    StopSaid,
    TargetsSaid,
    TrialSaid,
)
from themis.protocol.node_messages import RunState


def event_of(at: float, app: AppId, said: Said) -> AgentEvent:
    """What it means for the steward that an agent says something."""
    match said:
        case BidSaid():
            return ev.BidReceived(at, app, said.round, said.bid)
        case RunSaid():
            return RunRequested(at, app, said.job, said.gpus, said.program, said.key, said.limit)
        case StopSaid():
            return StopRequested(at, app, said.run, said.key)
        case ReleaseSaid():
            return ReleaseRequested(at, app, said.gpus, said.tokens)
        case PhaseSaid():
            return ev.PhaseStarted(at, app, said.phase, said.targets)
        case TargetsSaid(added=True):
            return ev.WorkAdded(at, app, said.targets)
        case TargetsSaid():
            return ev.TargetsRevised(at, app, said.targets)
        case TrialSaid():
            return TrialChosen(at, app, said.job, said.params)
        case ReachedSaid():
            return JobNoted(at, app, said.reached)
        case EndSaid():
            return AppWon(at, app, said.outcome, said.best)
        case _:
            assert_never(said)


def run_news(run: ActiveRun | RunEnd) -> RunNews:
    """How a run is."""
    if isinstance(run, RunEnd) and run.points_on:
        # Its end is told after what it reported, which is on its way.
        return RunNews(run.run, run.job, run.gpus, run.key, RunState.STOPPING)
    return RunNews(
        run.run,
        run.job,
        run.gpus,
        run.key,
        run.state,
        run.code,
        run.iterations,
        run.message,
        run.log,
        run.interrupted,
    )
