"""What an agent wants done. Imperative; a driver carries them out in order."""

from themis.core.model import Bid, GpuId, JobId
from themis.core.model.values import value


@value
class SendBid:
    """Send this bid for a round."""

    round: int
    bid: Bid


@value
class StartJob:
    """Run a job on these GPUs up to this many iterations, as soon as all of them are empty."""

    job: JobId
    gpus: tuple[GpuId, ...]
    until: float


@value
class StopJob:
    """Checkpoint a job and end its process; or forget a start that has not happened."""

    job: JobId


@value
class ReleaseGpus:
    """Give back GPUs that no job can use."""

    gpus: tuple[GpuId, ...]


@value
class AnnouncePhase:
    """Tell the arbiter who goes on."""

    phase: int
    targets: tuple[tuple[JobId, float], ...]


@value
class ReviseTargets:
    """Tell the arbiter that these jobs train only to this many iterations, fewer than declared."""

    targets: tuple[tuple[JobId, float], ...]


@value
class FinishApp:
    """The best configuration is known; the app has ended."""

    best: JobId


AgentCommand = (
    SendBid | StartJob | StopJob | ReleaseGpus | AnnouncePhase | ReviseTargets | FinishApp
)
