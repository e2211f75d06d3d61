"""The commands of the steward. A driver carries them out in order."""

from dataclasses import dataclass

from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.model import AppId, JobId
from themis.core.steward.rows import RowChanges
from themis.protocol.node_messages import Orders, Point, RunState


@dataclass(frozen=True, slots=True)
class AcceptRun:
    """Tell an agent the number of the run that it requested; again if the request is repeated."""

    app: AppId
    key: str
    run: int


@dataclass(frozen=True, slots=True)
class RefuseRun:
    """Tell an agent why its request for a run was refused."""

    app: AppId
    key: str
    reason: str
    home: str = ""
    """The only machine that the job can run on, if that is why."""


@dataclass(frozen=True, slots=True)
class TellRun:
    """Tell an agent the state of a run of its app."""

    app: AppId
    job: JobId
    run: int
    state: RunState
    code: int | None = None
    iterations: float = 0.0
    message: str = ""
    log: str = ""
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class AcceptSession:
    """Tell an agent the number of its session."""

    app: AppId
    session: str
    fence: int


@dataclass(frozen=True, slots=True)
class RefuseSession:
    """Tell an agent that its session was replaced, or that its app has ended."""

    app: AppId
    reason: str


@dataclass(frozen=True, slots=True)
class TellPoints:
    """Send an agent points that a run reported. How it ended is sent after all of them."""

    app: AppId
    job: JobId
    run: int
    first: int
    points: tuple[Point, ...]


StewardCommand = (
    AcceptRun | RefuseRun | TellRun | TellPoints | AcceptSession | RefuseSession | cmd.Command
)


@dataclass(frozen=True, slots=True)
class AnswerReport:
    """Answer the held report of a node."""

    node: str
    orders: Orders


@dataclass(frozen=True, slots=True)
class DurableChanges:
    """What must be durable, all or nothing, before any other part of an outcome takes effect."""

    events: tuple[ev.Event, ...] = ()
    """Events that the arbiter took, in order."""
    rows: RowChanges | None = None
    """The steward's own rows that changed."""

    @property
    def any(self) -> bool:
        """Whether there is something to store."""
        return bool(self.events or self.rows)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one event leads to."""

    changes: DurableChanges
    commands: tuple[StewardCommand, ...] = ()
    answers: tuple[AnswerReport, ...] = ()
    wake: float | None = None
    """When `Woken` must be sent at the latest; replaces what earlier outcomes said."""
    refusal: cmd.Refuse | None = None
    """Why the event itself was refused. Refusals among the commands may be of other events."""
