"""The events of a node. `at` is their time on the node's own clock."""

from dataclasses import dataclass
from enum import StrEnum

from themis.protocol.node_messages import (
    LogPart,
    LogWanted,
    Orders,
    Point,
    RunOrder,
    RunState,
)


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits of a run, on the node's clock."""

    lease_end: float
    """When the first of its leases ends."""
    checkpoint_at: float
    """When it is told to save and exit, unless it is renewed before."""
    until: float
    """When it is killed, unless it is renewed before: when a lease or the node's liveness ends."""


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run of before the node was started, alive or not, as its supervisor knows it."""

    order: RunOrder
    state: RunState
    limits: RunLimits
    code: int | None = None
    iterations: float = 0.0
    seconds: float = 0.0
    message: str = ""
    heard: int = 0
    """How many of its points were acknowledged."""
    more: bool = False
    """Whether it has others."""
    log: str = ""
    """The last lines of its output, once it has ended."""
    log_size: int = 0
    """Bytes of all of its output, once it has ended."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """The node has started; always its first event."""

    at: float
    found: tuple[FoundRun, ...] = ()


@dataclass(frozen=True, slots=True)
class OrdersCame:
    """An answer of the service."""

    at: float
    orders: Orders


@dataclass(frozen=True, slots=True)
class ServiceAbsent:
    """The service's own machine refused a connection at `tried_at`: no service ran at that time.

    Silence is no such proof.
    """

    at: float
    tried_at: float


@dataclass(frozen=True, slots=True)
class Ticked:
    """The time of a `TickMe` has come. A late or needless tick does no harm."""

    at: float


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The process of a run was started."""

    at: float
    run: int


@dataclass(frozen=True, slots=True)
class RunExited:
    """All processes of a run have ended, or it could not be started."""

    at: float
    run: int
    code: int | None
    message: str = ""
    log: str = ""
    log_size: int = 0


@dataclass(frozen=True, slots=True)
class KillFailed:
    """A process of a run cannot be killed."""

    at: float
    run: int
    reason: str


@dataclass(frozen=True, slots=True)
class RunMeasured:
    """Iterations since the job began, and seconds of training in this run."""

    at: float
    run: int
    iterations: float
    seconds: float


@dataclass(frozen=True, slots=True)
class PointsRead:
    """Points that a run reported, in order; also after its end, as long as there are more."""

    at: float
    run: int
    points: tuple[Point, ...]
    more: bool = False
    """Whether others wait until some of these are acknowledged."""
    trouble: str = ""
    """Why some could not be read."""


@dataclass(frozen=True, slots=True)
class LogsRead:
    """Parts of wanted logs were read; in one event, because each event is followed by a report."""

    at: float
    read: tuple[tuple[LogWanted, LogPart], ...]


@dataclass(frozen=True, slots=True)
class StorageSeen:
    """The oldest mark in the shared folder, or why the node cannot use that folder."""

    at: float
    mark: str
    trouble: str = ""


class Fault(StrEnum):
    """Why a GPU must not be used. It may be used again when none of these is left."""

    HARDWARE = "hardware"
    """An error state, or a process of another program."""
    ORPHAN = "orphan"
    """A process of an earlier start of the node, without a record."""
    LEAVING = "leaving"
    """The node is being stopped."""


@dataclass(frozen=True, slots=True)
class GpuFailed:
    """A GPU must not be used."""

    at: float
    gpu: int
    reason: str
    fault: Fault = Fault.HARDWARE


@dataclass(frozen=True, slots=True)
class GpuWell:
    """One fault of a GPU is gone; it may have others."""

    at: float
    gpu: int
    fault: Fault = Fault.HARDWARE


NodeEvent = (
    Adopted
    | OrdersCame
    | ServiceAbsent
    | Ticked
    | RunStarted
    | RunExited
    | KillFailed
    | RunMeasured
    | PointsRead
    | LogsRead
    | StorageSeen
    | GpuFailed
    | GpuWell
)
