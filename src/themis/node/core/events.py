"""What can happen to a node. Past tense; the time rides in the event, on the node's own clock."""

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
    """How long a run may go on, on the node's clock."""

    lease_end: float
    """The first end of its leases, as the service said."""
    checkpoint_at: float
    """When it is told to save and go, unless there is news."""
    until: float
    """When it is killed, unless there is news: at the end of its leases or of liveness."""


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run from before the node was started, alive or not, as its supervisor knows it."""

    order: RunOrder
    state: RunState
    limits: RunLimits
    code: int | None = None
    iterations: float = 0.0
    seconds: float = 0.0
    message: str = ""
    heard: int = 0
    """How many of its points need not be told again."""
    more: bool = False
    """Whether it has others."""
    log: str = ""
    """The last lines of its output, once it is over,"""
    log_size: int = 0
    """and bytes of all of it."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """The node is up; always its first event."""

    at: float
    found: tuple[FoundRun, ...] = ()


@dataclass(frozen=True, slots=True)
class OrdersCame:
    """An answer of the service."""

    at: float
    orders: Orders


@dataclass(frozen=True, slots=True)
class ServiceAbsent:
    """A connection tried at `tried_at` was refused: no service was running at that time.

    Only for a refusal by the service's own machine, never for silence.
    """

    at: float
    tried_at: float


@dataclass(frozen=True, slots=True)
class Ticked:
    """A time asked for has come. A late or needless one does no harm."""

    at: float


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A process runs."""

    at: float
    run: int


@dataclass(frozen=True, slots=True)
class RunExited:
    """Nothing of a run is alive any more, or it could not be started."""

    at: float
    run: int
    code: int | None
    message: str = ""
    log: str = ""
    log_size: int = 0


@dataclass(frozen=True, slots=True)
class KillFailed:
    """Something of a run does not die."""

    at: float
    run: int
    reason: str


@dataclass(frozen=True, slots=True)
class RunMeasured:
    """How far a run is: iterations since its job began, seconds of training in this run."""

    at: float
    run: int
    iterations: float
    seconds: float


@dataclass(frozen=True, slots=True)
class PointsRead:
    """What a run reported, in order; also after its end, as long as there are more."""

    at: float
    run: int
    points: tuple[Point, ...]
    more: bool = False
    """Whether there are others, which wait until some of these have been heard."""
    trouble: str = ""
    """What of it could not be read."""


@dataclass(frozen=True, slots=True)
class LogsRead:
    """There is something of logs that are wanted; together, because each event is a report."""

    at: float
    read: tuple[tuple[LogWanted, LogPart], ...]


@dataclass(frozen=True, slots=True)
class StorageSeen:
    """What the node finds in its shared folder: the oldest mark, or why it cannot look."""

    at: float
    mark: str
    trouble: str = ""


class Fault(StrEnum):
    """Why a GPU must not be used. It is well when none of them is left."""

    HARDWARE = "hardware"
    """An error state, a foreign process."""
    ORPHAN = "orphan"
    """A process of an earlier start that there is no record of."""
    LEAVING = "leaving"
    """Its node is being stopped."""


@dataclass(frozen=True, slots=True)
class GpuFailed:
    """A GPU must not be used."""

    at: float
    gpu: int
    reason: str
    fault: Fault = Fault.HARDWARE


@dataclass(frozen=True, slots=True)
class GpuWell:
    """A fault of a GPU is over; it may have others."""

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
