"""What can happen to the steward. Past tense; time rides in the event, on the cluster's clock."""

from dataclasses import dataclass

from themis.core.arbiter import events as ev
from themis.core.model import AppId, GpuId, JobId
from themis.protocol.agent_messages import Reached
from themis.protocol.node_messages import (
    LogWanted,
    NodeReport,
    Program,
)


@dataclass(frozen=True, slots=True)
class ReportCame:
    """A node reports; `at` is when the service took the message in, not before."""

    at: float
    report: NodeReport


@dataclass(frozen=True, slots=True)
class RunRequested:
    """An agent wants a job to run on GPUs that its app holds or is promised."""

    at: float
    app: AppId
    job: JobId
    gpus: tuple[GpuId, ...]
    """The machine of the first has rank 0."""
    program: Program
    key: str
    """Chosen by the agent: the same request sent again has the same key."""
    limit: float = 0.0


@dataclass(frozen=True, slots=True)
class StopRequested:
    """An agent wants a run to save and go."""

    at: float
    app: AppId
    run: int
    key: str = ""
    """What it was asked for with, where its number is not known."""


@dataclass(frozen=True, slots=True)
class ReleaseRequested:
    """An agent gives leases back: those under these tokens, one for each GPU, and no others."""

    at: float
    app: AppId
    gpus: tuple[GpuId, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PointsHeard:
    """An agent has heard the points of a run up to this number."""

    at: float
    app: AppId
    run: int
    number: int
    others: tuple[tuple[int, int], ...] = ()
    """Other runs and numbers that it said at once: a node is answered when all of them count."""


@dataclass(frozen=True, slots=True)
class TrialChosen:
    """An agent chose the parameters of a job, as JSON."""

    at: float
    app: AppId
    job: JobId
    params: str


@dataclass(frozen=True, slots=True)
class JobNoted:
    """An agent says what became of a job in its phase."""

    at: float
    app: AppId
    reached: Reached


@dataclass(frozen=True, slots=True)
class AppWon:
    """An agent ends its app, and says which job won."""

    at: float
    app: AppId
    outcome: str
    best: JobId | None = None


AgentEvent = (
    RunRequested
    | StopRequested
    | ReleaseRequested
    | TrialChosen
    | JobNoted
    | AppWon
    | PointsHeard
    | ev.BidReceived
    | ev.PhaseStarted
    | ev.TargetsRevised
    | ev.WorkAdded
    | ev.AppEnded
)


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """An agent begins to speak for an app, and nobody who spoke for it before is heard any more.

    Sent again for the same agent it is the same session. What was told of runs and not heard is
    told again: whoever begins, or lost what waited for it, does not know it.
    """

    at: float
    app: AppId
    session: str
    """Chosen at random by the agent."""


@dataclass(frozen=True, slots=True)
class AgentSpoke:
    """What an agent says, and in which session; of an old one it counts for nothing."""

    at: float
    app: AppId
    fence: int
    event: AgentEvent


@dataclass(frozen=True, slots=True)
class LogsWanted:
    """All parts of logs that people wait for on a node, in place of those before."""

    at: float
    node: str
    wanted: tuple[LogWanted, ...]


@dataclass(frozen=True, slots=True)
class AppForgotten:
    """An app was over long ago: nobody asks for its results any more."""

    at: float
    app: AppId


StewardEvent = (
    ReportCame | AgentEvent | SessionOpened | AgentSpoke | LogsWanted | AppForgotten | ev.Event
)
