"""What the steward wants done. Imperative; a driver carries them out in order."""

from collections.abc import Mapping
from dataclasses import dataclass

from themis.core.arbiter import commands as cmd
from themis.core.arbiter import events as ev
from themis.core.model import AppId, JobId
from themis.core.steward.rows import Kept
from themis.protocol.node_messages import (
    Orders,
    Point,
    RunState,
)


@dataclass(frozen=True, slots=True)
class AcceptRun:
    """Tell an agent under which number its request was taken, again if it was repeated."""

    app: AppId
    key: str
    run: int


@dataclass(frozen=True, slots=True)
class RefuseRun:
    """Tell an agent that its request was not taken, and why."""

    app: AppId
    key: str
    reason: str
    home: str = ""
    """The only machine that the job can go on on, if that is why."""


@dataclass(frozen=True, slots=True)
class TellRun:
    """Tell an agent how a run of its app is."""

    app: AppId
    job: JobId
    run: int
    state: RunState
    code: int | None = None
    iterations: float = 0.0
    message: str = ""
    log: str = ""
    told: bool = False


@dataclass(frozen=True, slots=True)
class AcceptSession:
    """Tell an agent the number of its session."""

    app: AppId
    session: str
    fence: int


@dataclass(frozen=True, slots=True)
class RefuseSession:
    """Tell an agent that another one speaks for its app."""

    app: AppId
    reason: str


@dataclass(frozen=True, slots=True)
class TellPoints:
    """Tell an agent what a run reported. How it ended is told after all of its points."""

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
    """Answer the report of a node that is being kept."""

    node: str
    orders: Orders


@dataclass(frozen=True, slots=True)
class DurableChanges:
    """What must be durable, all or nothing, before anything else of an outcome is let out."""

    events: tuple[ev.Event, ...] = ()
    """What the arbiter took, in order."""
    kept: Mapping[str, Kept | None] | None = None
    """Rows of the steward's own that are new, different or gone."""

    @property
    def any(self) -> bool:
        """Whether there is something to store."""
        return bool(self.events or self.kept)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What comes of one event."""

    changes: DurableChanges
    commands: tuple[StewardCommand, ...] = ()
    answers: tuple[AnswerReport, ...] = ()
    wake: float | None = None
    """When `Woken` is to be sent at the latest; an earlier wish is void."""
    refusal: cmd.Refuse | None = None
    """Why the event itself was not taken. Others among the commands are about what else was due."""
