"""What can happen to an agent. Past tense; the time rides in the event."""

from themis.core.model import GpuId, JobId, Lease, Offer, Topology
from themis.core.model.values import value


@value
class Asked:
    """The arbiter shows an offer."""

    at: float
    offer: Offer
    topology: Topology


@value
class LeasesChanged:
    """The app's GPUs change."""

    at: float
    topology: Topology
    granted: tuple[Lease, ...] = ()
    renewed: tuple[Lease, ...] = ()
    revoked: tuple[Lease, ...] = ()


@value
class Progressed:
    """Jobs were seen to have done this many iterations since their start."""

    at: float
    iterations: tuple[tuple[JobId, float], ...]


@value
class Window:
    """What a process measured of itself: iterations and the seconds they took.

    Only training counts: start-up and checkpoints lie outside of windows.
    """

    job: JobId
    gpus: tuple[GpuId, ...]
    first: float
    """Iterations that this process had done when the window began."""
    iterations: float
    seconds: float


@value
class IterationsTimed:
    """Processes measured how long their iterations take."""

    at: float
    windows: tuple[Window, ...]


@value
class MoveTimed:
    """A process measured what it costs a job to move."""

    at: float
    checkpoint: float | None = None
    """Seconds from being told to go until it had saved and gone."""
    restart: float | None = None
    """Seconds from its start to its first iteration."""


@value
class JobReached:
    """A job is at its target, its process gone; lower metrics are better."""

    at: float
    job: JobId
    metric: float


@value
class LossSeen:
    """A job reported its loss at an iteration counted from its start; lower is better."""

    at: float
    job: JobId
    iteration: float
    loss: float


@value
class JobLost:
    """A job's process died; it can go on from this many iterations."""

    at: float
    job: JobId
    iterations: float


@value
class JobSetAside:
    """A job's process is gone and must not be started again for a while."""

    at: float
    job: JobId
    iterations: float


@value
class JobBound:
    """A job can go on on one machine only, or anywhere again.

    If it was about to run elsewhere, it does not: that was refused.
    """

    at: float
    job: JobId
    machine: int | None


@value
class JobBack:
    """A job that was set aside may run again."""

    at: float
    job: JobId


@value
class Resumed:
    """The agent begins again in the middle: what the app holds, and what runs there."""

    at: float
    topology: Topology
    gpus: tuple[GpuId, ...]
    placement: tuple[tuple[JobId, tuple[GpuId, ...]], ...]
    waiting: tuple[JobId, ...] | None = None
    """Jobs without GPUs, the longest last, where all is as the agent before it had left it; None
    lets it look at all of them anew."""
    content: bool = False
    """Whether freed GPUs were of no use to it."""


AgentEvent = (
    Asked
    | LeasesChanged
    | Progressed
    | IterationsTimed
    | MoveTimed
    | LossSeen
    | JobReached
    | JobLost
    | JobSetAside
    | JobBack
    | JobBound
    | Resumed
)
