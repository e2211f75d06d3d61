"""The events of the steward. `at` is their time on the cluster's clock."""

from dataclasses import dataclass

from themis.core.arbiter import events as ev
from themis.core.model import AppId
from themis.protocol.agent_messages import AgentRequest
from themis.protocol.node_messages import LogWanted, NodeReport


@dataclass(frozen=True, slots=True)
class ReportCame:
    """A node reports; `at` is when the service received the report, never earlier."""

    at: float
    report: NodeReport


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
    """An agent makes a request; refused unless its fence is that of the current session."""

    at: float
    app: AppId
    fence: int
    request: AgentRequest


@dataclass(frozen=True, slots=True)
class PointsAcknowledged:
    """An agent acknowledges points of runs, with the same fence as its requests."""

    at: float
    app: AppId
    fence: int
    points: tuple[tuple[int, int], ...]
    """Runs, each with the number of the last point. A node is answered once for all of them."""


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
    ReportCame
    | SessionOpened
    | AgentSpoke
    | PointsAcknowledged
    | LogsWanted
    | AppForgotten
    | ev.Event
)
