"""Messages between agents and the service.

An agent sends an `AgentReport` with all of its requests, and is answered with `News`: everything
that it has not acknowledged yet. Either may be lost or arrive twice: requests have a key or a
number, and news are sent again until they are acknowledged. After a restart on either side the
first item of the news is an `AgentStart`, the whole state of the app.

An agent opens its session with an empty report, and is given a number (its `fence`). Sessions of an
app are fenced by it, as processes are by the tokens of their leases: a report of a session that was
replaced is refused.
"""

from dataclasses import dataclass

from themis.core.model import (
    AppId,
    AppSpec,
    Bid,
    GpuId,
    JobId,
    Lease,
    Offer,
    OwnerId,
    Topology,
)
from themis.protocol.node_messages import Point, Program, RunState

MOST_BODY = 1 << 20
"""Characters of an app file as JSON."""

# From agents


@dataclass(frozen=True, slots=True)
class BidReply:
    """The bid for an offer; round 0 is the first valuation."""

    round: int
    bid: Bid


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Run a job on GPUs that the app holds or is promised."""

    job: JobId
    gpus: tuple[GpuId, ...]
    """The machine of the first has rank 0."""
    program: Program
    key: str
    """Chosen by the agent: the same request sent again has the same key."""
    limit: float = 0.0
    """Iterations, counted from the job's start, at which the run must stop; 0 for no limit."""


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Tell a run to save and exit."""

    run: int
    key: str = ""
    """The key of its request, if its number is not known yet."""


@dataclass(frozen=True, slots=True)
class ReleaseRequest:
    """Give leases back."""

    gpus: tuple[GpuId, ...]
    tokens: tuple[int, ...]
    """Of these leases, one for each GPU: leases that were granted since stay."""


@dataclass(frozen=True, slots=True)
class PhaseStart:
    """A phase begins with these jobs; iterations are counted from each job's start."""

    phase: int
    targets: tuple[tuple[JobId, float], ...]


@dataclass(frozen=True, slots=True)
class TargetChange:
    """Jobs of this phase train for fewer iterations than declared, or for more if `added`."""

    targets: tuple[tuple[JobId, float], ...]
    added: bool = False


@dataclass(frozen=True, slots=True)
class TrialParams:
    """A job begins with these parameters."""

    job: JobId
    params: str
    """A JSON object."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A job reached its target in this phase, was stopped early, or was given up.

    These are stored, and sent in the same order to an agent that begins anew.
    """

    job: JobId
    iterations: float
    """Done since its start."""
    metric: float | None = None
    """Its last value, not negated where higher is better."""
    failed: str = ""
    """Why it was given up."""


@dataclass(frozen=True, slots=True)
class EndApp:
    """End the app."""

    outcome: str = "finished"
    best: JobId | None = None
    """The job that won, if one did."""


AgentRequest = (
    BidReply
    | RunRequest
    | StopRequest
    | ReleaseRequest
    | PhaseStart
    | TargetChange
    | TrialParams
    | Reached
    | EndApp
)


@dataclass(frozen=True, slots=True)
class AgentReport:
    """All requests of an agent since its last report."""

    app: AppId
    session: str
    """Chosen at random by the agent when it starts."""
    number: int
    """Rises with every report of a session."""
    epoch: int
    """Of the last news that it has applied; 0 before the first."""
    heard: int
    """The number of their last item: it acknowledges all up to this one."""
    requests: tuple[AgentRequest, ...] = ()
    fence: int = 0
    """The number that the service gave the session; 0 opens one, and replaces the one before."""


# To agents


@dataclass(frozen=True, slots=True)
class Curve:
    """The metric of a job: iterations since its start, and values."""

    job: JobId
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class RunNews:
    """The state of a run."""

    run: int
    job: JobId
    gpus: tuple[GpuId, ...]
    key: str
    state: RunState
    code: int | None = None
    iterations: float = 0.0
    message: str = ""
    log: str = ""
    interrupted: bool = False
    """Whether it was told to stop before it ended."""


@dataclass(frozen=True, slots=True)
class JobPast:
    """The totals of all runs of a job, of earlier sessions too."""

    job: JobId
    seconds: float
    """How long they lasted together, up to now."""
    failures: int


@dataclass(frozen=True, slots=True)
class AgentStart:
    """The whole state of an app: all that an agent needs to begin, or to begin again."""

    spec: AppSpec
    topology: Topology
    leases: tuple[Lease, ...]
    runs: tuple[RunNews, ...]
    """The active runs, and the last run of every other job, whose end may not be acknowledged. A
    run whose end must wait for its points counts as stopping. Without logs."""
    phase: int
    iterations: tuple[tuple[JobId, float], ...]
    """Done by each job since its start."""
    trials: tuple[TrialParams, ...] = ()
    """Parameters that the agent chose."""
    reached: tuple[Reached, ...] = ()
    """How jobs ended their phases, the oldest first."""
    curves: tuple[Curve, ...] = ()
    """Of jobs that are not given up: their metric, thinned out."""
    targets: tuple[tuple[JobId, float], ...] = ()
    """The jobs of the phase, and the iterations to which each trains, counted from its start."""
    past: tuple[JobPast, ...] = ()
    """Of jobs that have run."""


@dataclass(frozen=True, slots=True)
class OfferNews:
    """An offer; bids count until the deadline."""

    offer: Offer
    deadline: float


@dataclass(frozen=True, slots=True)
class LeaseNews:
    """Leases of the app that began, were renewed or ended."""

    granted: tuple[Lease, ...] = ()
    renewed: tuple[Lease, ...] = ()
    revoked: tuple[Lease, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TopologyNews:
    """A machine joined."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class ProgressNews:
    """Iterations of jobs since their start."""

    iterations: tuple[tuple[JobId, float], ...]


@dataclass(frozen=True, slots=True)
class PointsNews:
    """Points that a run reported, in order. Its end comes as `RunNews` after the last of them.

    After a restart on either side some may be sent twice, with the same numbers.
    """

    run: int
    job: JobId
    first: int
    """The number of the first of them, which count from 1 in every run."""
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class RefusalNews:
    """A request that was refused, and why."""

    what: str
    reason: str
    final: bool = False
    """Whether it would be refused however often it is sent."""
    home: str = ""
    """The only machine that the job can run on, if that is why its run was refused."""


@dataclass(frozen=True, slots=True)
class AppEndNews:
    """The app has ended; this is the last item."""

    outcome: str


NewsItem = (
    AgentStart
    | OfferNews
    | LeaseNews
    | TopologyNews
    | RunNews
    | ProgressNews
    | PointsNews
    | RefusalNews
    | AppEndNews
)


@dataclass(frozen=True, slots=True)
class News:
    """The answer to a report: all items not acknowledged. Times are on the cluster's clock."""

    epoch: int
    answers: int
    """The number of the report."""
    at: float
    first: int
    """The number of the first item; the others follow it."""
    items: tuple[NewsItem, ...]
    fence: int = 0
    """The number of the session, to be sent with every report from now on."""


# To hosts of agents


@dataclass(frozen=True, slots=True)
class HostedAppsRequest:
    """Ask which apps of an owner need an agent; answered at once if that has changed since."""

    revision: int = 0
    """Of the last answer; 0 before the first."""


@dataclass(frozen=True, slots=True)
class HostedApps:
    """The apps of an owner that need an agent which the service hosts."""

    revision: int
    apps: tuple[AppId, ...]


@dataclass(frozen=True, slots=True)
class SubmittedAppRequest:
    """Ask for the app file of an app."""

    app: AppId


@dataclass(frozen=True, slots=True)
class SubmittedApp:
    """An app as submitted, for its agent alone: its environment may hold secrets."""

    app: AppId
    owner: OwnerId
    body: str
    """The app file as JSON."""
    seed: int
