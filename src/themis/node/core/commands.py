"""What a node wants done. Imperative; a driver carries the commands out in order."""

from dataclasses import dataclass

from themis.node.core.events import RunLimits
from themis.protocol.node_messages import (
    LeaseTerms,
    LogWanted,
    NodeReport,
    RunOrder,
)


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """What a node keeps on its own disk, as a whole."""

    boot: int = 0
    epoch: int = 0
    tokens: tuple[int, ...] = ()
    """The highest token that each GPU has run under."""
    terms: LeaseTerms | None = None
    """Of the last orders taken: what the service goes by, as far as is known."""


@dataclass(frozen=True, slots=True)
class Remember:
    """Write this to disk, durably, before the next command is carried out."""

    memory: NodeMemory


@dataclass(frozen=True, slots=True)
class Send:
    """Send a report. An earlier one still under way may be dropped: its answer counts no more.

    When a connection breaks, the same report may be sent again at once.
    """

    report: NodeReport


@dataclass(frozen=True, slots=True)
class StartRun:
    """Start a run under a supervisor that holds its limits."""

    order: RunOrder
    limits: RunLimits


@dataclass(frozen=True, slots=True)
class Renew:
    """Tell a run's supervisor other limits."""

    run: int
    limits: RunLimits


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Ask a run to save and go."""

    run: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill all of a run, and say `Exited` once nothing of it is alive."""

    run: int


@dataclass(frozen=True, slots=True)
class Forget:
    """The service has the result of a run: its record may go."""

    run: int


@dataclass(frozen=True, slots=True)
class Advance:
    """The points of a run up to this number have been heard: they need not be read again."""

    run: int
    heard: int


@dataclass(frozen=True, slots=True)
class ReadLogs:
    """Say `LogsRead` once there is something of these, for each once; earlier wishes are void."""

    wanted: tuple[LogWanted, ...]


@dataclass(frozen=True, slots=True)
class LookAtStorage:
    """Leave a mark that begins so in the shared folder and say `StorageSeen`, now and often."""

    nonce: str


@dataclass(frozen=True, slots=True)
class TickMe:
    """Send `Ticked` at this time or later, on the node's clock; an earlier wish is void."""

    at: float


NodeCommand = (
    Remember
    | Send
    | StartRun
    | Renew
    | Checkpoint
    | Kill
    | Forget
    | Advance
    | ReadLogs
    | LookAtStorage
    | TickMe
)
