"""The commands of a node. A driver carries them out in order."""

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
    """All that a node keeps on its own disk."""

    boot: int = 0
    epoch: int = 0
    tokens: tuple[int, ...] = ()
    """The highest token that each GPU has run under."""
    terms: LeaseTerms | None = None
    """Of the last orders obeyed: those of the service, as far as known."""


@dataclass(frozen=True, slots=True)
class Remember:
    """Write this to disk, durably, before the next command is carried out."""

    memory: NodeMemory


@dataclass(frozen=True, slots=True)
class Send:
    """Send a report; earlier ones may be dropped, because their answers no longer count.

    After a broken connection the same report may be sent again at once.
    """

    report: NodeReport


@dataclass(frozen=True, slots=True)
class StartRun:
    """Start a run under a supervisor that enforces its limits."""

    order: RunOrder
    limits: RunLimits


@dataclass(frozen=True, slots=True)
class Renew:
    """Give a run's supervisor other limits."""

    run: int
    limits: RunLimits


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Tell a run to save and exit."""

    run: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill all processes of a run, and send `RunExited` once none is left."""

    run: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Delete the record of a run: the service has stored how it ended."""

    run: int


@dataclass(frozen=True, slots=True)
class Advance:
    """The points of a run up to this number were acknowledged, and need not be read again."""

    run: int
    heard: int


@dataclass(frozen=True, slots=True)
class ReadLogs:
    """Send `LogsRead` once for each of these when there is some of it; replaces earlier ones."""

    wanted: tuple[LogWanted, ...]


@dataclass(frozen=True, slots=True)
class LookAtStorage:
    """Leave a mark with this beginning in the shared folder; send `StorageSeen` now and often."""

    nonce: str


@dataclass(frozen=True, slots=True)
class TickMe:
    """Send `Ticked` at this time or later, on the node's clock; replaces an earlier command."""

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
