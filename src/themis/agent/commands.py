"""What an agent wants done. Imperative; a driver carries them out in order."""

from dataclasses import dataclass

from themis.model import Bid, GpuId, JobId


@dataclass(frozen=True, slots=True)
class Answer:
    """Send this bid for a round."""

    round: int
    bid: Bid


@dataclass(frozen=True, slots=True)
class StartJob:
    """Run a job on these GPUs up to so many iterations, as soon as all of them are empty."""

    job: JobId
    gpus: tuple[GpuId, ...]
    until: float


@dataclass(frozen=True, slots=True)
class StopJob:
    """Checkpoint a job and end its process; or forget a start that has not happened."""

    job: JobId


@dataclass(frozen=True, slots=True)
class ReleaseGpus:
    """Give back GPUs that no job can use."""

    gpus: tuple[GpuId, ...]


@dataclass(frozen=True, slots=True)
class AnnouncePhase:
    """Tell the arbiter who goes on."""

    phase: int
    targets: tuple[tuple[JobId, float], ...]


@dataclass(frozen=True, slots=True)
class ReviseTargets:
    """Tell the arbiter that these jobs train only to so many iterations, fewer than declared."""

    targets: tuple[tuple[JobId, float], ...]


@dataclass(frozen=True, slots=True)
class FinishApp:
    """The best configuration is known; the app is over."""

    best: JobId


AgentCommand = Answer | StartJob | StopJob | ReleaseGpus | AnnouncePhase | ReviseTargets | FinishApp
