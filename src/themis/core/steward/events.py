"""The events of the steward. `at` is their time on the cluster's clock."""

from dataclasses import dataclass

from themis.core.arbiter import events as ev
from themis.core.model import AppId, GpuId, JobId
from themis.protocol.agent_messages import Reached
from themis.protocol.node_messages import LogWanted, NodeReport, Program


@dataclass(frozen=True, slots=True)
class ReportCame:
    """A node reports; `at` is when the service received the report, never earlier."""

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
    """An agent wants a run to save and exit."""

    at: float
    app: AppId
    run: int
    key: str = ""
    """The key of its request, if its number is not known yet."""


@dataclass(frozen=True, slots=True)
class ReleaseRequested:
    """An agent gives back the leases with these tokens, one for each GPU."""

    at: float
    app: AppId
    gpus: tuple[GpuId, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PointsHeard:
    """An agent acknowledges the points of a run up to this number."""

    at: float
    app: AppId
    run: int
    number: int
    others: tuple[tuple[int, int], ...] = ()
    """Other runs and numbers in the same message: a node is answered once, after all of them."""


@dataclass(frozen=True, slots=True)
class TrialChosen:
    """An agent chose the parameters of a job, as JSON."""

    at: float
    app: AppId
    job: JobId
    params: str


@dataclass(frozen=True, slots=True)
class JobNoted:
    """An agent reports what became of a job in its phase."""

    at: float
    app: AppId
    reached: Reached


@dataclass(frozen=True, slots=True)
class AppWon:
    """An agent ends its app, and names the job that won."""

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
    """An agent opens a session for an app, which replaces the session before.

    Opened again it is the same session. News of runs that were not acknowledged are sent again: an
    agent that begins, or that lost its queue, does not have them.
    """

    at: float
    app: AppId
    session: str
    """Chosen at random by the agent."""


@dataclass(frozen=True, slots=True)
class AgentSpoke:
    """A message of an agent; refused unless its fence is that of the current session."""

    at: float
    app: AppId
    fence: int
    event: AgentEvent


@dataclass(frozen=True, slots=True)
class LogsWanted:
    """All parts of logs that readers wait for on a node; replaces those of earlier events."""

    at: float
    node: str
    wanted: tuple[LogWanted, ...]


@dataclass(frozen=True, slots=True)
class AppForgotten:
    """The results of an ended app have expired."""

    at: float
    app: AppId


StewardEvent = (
    ReportCame | AgentEvent | SessionOpened | AgentSpoke | LogsWanted | AppForgotten | ev.Event
)
