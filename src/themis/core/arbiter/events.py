"""What can happen to the arbiter. Past tense; the time rides in the event.

The event log is the truth: fed to a fresh arbiter it gives the same commands.
"""

from themis.core.arbiter.settings import Settings
from themis.core.auction.solution import Solution
from themis.core.model import AppId, AppSpec, Bid, GpuId, JobId, Machine, OwnerId
from themis.core.model.reasons import Reason
from themis.core.model.values import value


@value
class AppArrived:
    """A user submitted an app."""

    at: float
    app: AppSpec


@value
class AppEnded:
    """An app ended: finished, cancelled or failed."""

    at: float
    app: AppId
    outcome: str = "finished"


@value
class PhaseStarted:
    """The tuner chose who goes on; targets are iterations counted from each job's start."""

    at: float
    app: AppId
    phase: int
    targets: tuple[tuple[JobId, float], ...]


@value
class TargetsRevised:
    """Jobs of the present phase train to fewer iterations than declared, counted from their start.

    Only downwards: for more there is `WorkAdded`.
    """

    at: float
    app: AppId
    targets: tuple[tuple[JobId, float], ...]


@value
class WorkAdded:
    """Jobs of the present phase train to more iterations than declared, counted from their start.

    Nodes stop a job at its declared limit until then.
    """

    at: float
    app: AppId
    targets: tuple[tuple[JobId, float], ...]


@value
class ProgressSample:
    """One job's progress, and what the progress since its last sample took."""

    job: JobId
    iterations: float
    """Done since the job began, in all its processes."""
    seconds: float
    """Of training since its last sample, or since it began: start-up and checkpoints do not count.

    They are those of the iterations done since, on one set of GPUs unless a `JobStarted` came
    between the samples. 0 after a process died: what it had not saved is gone, iterations may be
    fewer than before, and the two samples tell nothing about its speed.
    """


@value
class ProgressMeasured:
    """A node measured how far jobs of an app have come."""

    at: float
    app: AppId
    samples: tuple[ProgressSample, ...]


@value
class AppSuspended:
    """An app was paused, held or lost its agent; reasons add up."""

    at: float
    app: AppId
    reason: Reason


@value
class AppResumed:
    """One reason for suspension is gone."""

    at: float
    app: AppId
    reason: Reason


@value
class BidReceived:
    """An agent answered; round 0 is the first valuation of a new app."""

    at: float
    app: AppId
    round: int
    bid: Bid


@value
class Solved:
    """The solver answered."""

    at: float
    round: int
    solution: Solution


@value
class SolveFailed:
    """The solver was lost or gave up."""

    at: float
    round: int
    reason: str


@value
class GpusVacated:
    """A node reports slots empty. Stale tokens have no effect."""

    at: float
    gpus: tuple[tuple[GpuId, int], ...]
    """GPU and the token its process ran under."""


@value
class GpusReleased:
    """An app gives back GPUs it has no use for; nothing of it runs there."""

    at: float
    app: AppId
    gpus: tuple[GpuId, ...]


@value
class JobStarted:
    """A process of this job runs on these GPUs."""

    at: float
    app: AppId
    job: JobId
    gpus: tuple[GpuId, ...]


@value
class JobStopped:
    """The job's process is gone from these GPUs."""

    at: float
    app: AppId
    job: JobId
    gpus: tuple[GpuId, ...]


@value
class MachineJoined:
    """A machine is there, for the first time or again."""

    at: float
    machine: Machine


@value
class MachineLeft:
    """A machine is gone, and with it whatever ran there."""

    at: float
    machine: str


@value
class MachineCordoned:
    """No new leases on a machine; with `drain`, the present ones are not renewed either."""

    at: float
    machine: str
    drain: bool = False


@value
class MachineUncordoned:
    """A machine takes leases again."""

    at: float
    machine: str


@value
class GpuQuarantined:
    """A GPU must not be used: an error state, a foreign process, one that will not die."""

    at: float
    gpu: GpuId
    reason: str


@value
class GpuRestored:
    """A quarantined GPU is well again."""

    at: float
    gpu: GpuId


@value
class WeightChanged:
    """An app (or, as bidder, an owner) counts for more or less."""

    at: float
    weight: float
    app: AppId | None = None
    owner: OwnerId | None = None


@value
class QuotaChanged:
    """An owner may hold at most this many GPUs; None lifts the limit."""

    at: float
    owner: OwnerId
    gpus: int | None


@value
class SettingsChanged:
    """The operator changed the settings; they hold from the next round."""

    at: float
    settings: Settings


@value
class Woken:
    """A time asked for has come. A late or needless one does no harm."""

    at: float


@value
class ServiceRestarted:
    """The arbiter is back after its driver was down: the first event after its state was restored.

    A round that was open is forgotten and opens anew; leases that lapsed or are about to get the
    time that a round needs; what was asked is asked again, wake-ups too.
    """

    at: float
    token_floor: int = 0
    """Every token to come is above this one."""
    rounds_from: float = 0.0
    """No round opens before this time, as with `RoundsHeld`."""


@value
class RoundsHeld:
    """No round opens before `until`: agents come back after a restart, to bid in it.

    Leases get the time that a round needs then. A time that has passed lets rounds open.
    """

    at: float
    until: float


SlotEvent = GpusVacated | GpusReleased | JobStarted | JobStopped

HardwareEvent = (
    MachineJoined | MachineLeft | MachineCordoned | MachineUncordoned | GpuQuarantined | GpuRestored
)

Event = (
    AppArrived
    | AppEnded
    | PhaseStarted
    | TargetsRevised
    | WorkAdded
    | ProgressMeasured
    | AppSuspended
    | AppResumed
    | BidReceived
    | Solved
    | SolveFailed
    | SlotEvent
    | HardwareEvent
    | WeightChanged
    | QuotaChanged
    | SettingsChanged
    | ServiceRestarted
    | RoundsHeld
    | Woken
)
