"""What agents and the service say to each other.

An agent sends an `AgentReport` with everything it has to say, and is answered with `News`: what its
app should know and has not yet said it heard. Both may come twice or not at all: what is said has
a key or a number, and news come again until they are heard. After a restart on either side the
first news is a `AgentStart`, the whole of it.

An agent begins with a report that says nothing, and is given a number (its `fence`). Agents of an
app are fenced by it like processes by the tokens of their leases: a word of an older one that is
late, or that does not know that it was replaced, is refused.
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
class BidSaid:
    """The answer to an offer; round 0 is the first valuation."""

    round: int
    bid: Bid


@dataclass(frozen=True, slots=True)
class RunSaid:
    """A job shall run on GPUs that the app holds or is promised, up to so many iterations."""

    job: JobId
    gpus: tuple[GpuId, ...]
    """The machine of the first has rank 0."""
    program: Program
    key: str
    limit: float = 0.0


@dataclass(frozen=True, slots=True)
class StopSaid:
    """A run shall save and go."""

    run: int
    key: str = ""
    """For one whose number is not known yet: what it was asked for with."""


@dataclass(frozen=True, slots=True)
class ReleaseSaid:
    """The app has no use for these GPUs."""

    gpus: tuple[GpuId, ...]
    tokens: tuple[int, ...]
    """Of the leases that are meant, one for each GPU: one that was given since is not."""


@dataclass(frozen=True, slots=True)
class PhaseSaid:
    """The tuner chose who goes on; iterations are counted from each job's start."""

    phase: int
    targets: tuple[tuple[JobId, float], ...]


@dataclass(frozen=True, slots=True)
class TargetsSaid:
    """Jobs of this phase train to fewer iterations than declared, or with `added` to more."""

    targets: tuple[tuple[JobId, float], ...]
    added: bool = False


@dataclass(frozen=True, slots=True)
class TrialSaid:
    """A job begins with these parameters, chosen just now."""

    job: JobId
    params: str
    """A JSON object."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A job is where it had to be in its phase, was stopped before that, or was given up."""

    job: JobId
    iterations: float
    """Done since its start."""
    metric: float | None = None
    """As it was last reported, in its own direction."""
    failed: str = ""
    """Why it was given up."""


@dataclass(frozen=True, slots=True)
class ReachedSaid:
    """A job is done for now. Kept, and told again in the same order to whoever begins anew."""

    reached: Reached


@dataclass(frozen=True, slots=True)
class EndSaid:
    """The app is over."""

    outcome: str = "finished"
    best: JobId | None = None
    """The job that won, if one did."""


Said = (
    BidSaid
    | RunSaid
    | StopSaid
    | ReleaseSaid
    | PhaseSaid
    | TargetsSaid
    | TrialSaid
    | ReachedSaid
    | EndSaid
)


@dataclass(frozen=True, slots=True)
class AgentReport:
    """Everything that an agent has to say since its last report."""

    app: AppId
    session: str
    """Chosen at random by the agent when it starts."""
    number: int
    """Rises with every report of a session."""
    epoch: int
    """Of the last news that it has taken in; 0 before the first."""
    heard: int
    """The number of the last item of them."""
    said: tuple[Said, ...] = ()
    fence: int = 0
    """The number that the service gave the session. 0 opens one, and says nothing else: whoever
    spoke for the app before is not heard any more."""


# To agents


@dataclass(frozen=True, slots=True)
class Curve:
    """How a job's metric went: iterations since its start, and values."""

    job: JobId
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class RunNews:
    """How a run is."""

    run: int
    job: JobId
    gpus: tuple[GpuId, ...]
    key: str
    state: RunState
    code: int | None = None
    iterations: float = 0.0
    message: str = ""
    log: str = ""
    told: bool = False
    """Whether it was told to go, and did not end by itself before."""


@dataclass(frozen=True, slots=True)
class JobPast:
    """What counts of a job's runs, whoever spoke for its app then."""

    job: JobId
    seconds: float
    """That they lasted in all, those that go on up to now."""
    failures: int


@dataclass(frozen=True, slots=True)
class AgentStart:
    """Everything an agent needs to begin, or to begin again."""

    spec: AppSpec
    topology: Topology
    leases: tuple[Lease, ...]
    runs: tuple[RunNews, ...]
    """Those that are not over, and of every other job how its last one ended: nobody may have heard
    of it yet. One that has ended and not told all its points is still stopping. Without logs."""
    phase: int
    iterations: tuple[tuple[JobId, float], ...]
    """Done by each job since its start."""
    trials: tuple[TrialSaid, ...] = ()
    """Parameters that were chosen on the way."""
    reached: tuple[Reached, ...] = ()
    """What was said of jobs, the oldest first."""
    curves: tuple[Curve, ...] = ()
    """Of jobs that are not given up: how the app's metric went, thinned out."""
    targets: tuple[tuple[JobId, float], ...] = ()
    """The jobs of the phase, and how far each trains in it, counted from its start."""
    past: tuple[JobPast, ...] = ()
    """Of jobs that have run."""


@dataclass(frozen=True, slots=True)
class OfferNews:
    """An offer; an answer counts until the deadline."""

    offer: Offer
    deadline: float


@dataclass(frozen=True, slots=True)
class LeaseNews:
    """What the app holds changes."""

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
    """How far jobs are, in iterations since their start."""

    iterations: tuple[tuple[JobId, float], ...]


@dataclass(frozen=True, slots=True)
class PointsNews:
    """What a run reported, in order. Its end comes as `RunNews` after the last of its points.

    After a restart on either side some may come twice; by their numbers they are told apart.
    """

    run: int
    job: JobId
    first: int
    """The number of the first of them: a run's are numbered from 1."""
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class RefusalNews:
    """Something that the agent said was not taken, and why."""

    what: str
    reason: str
    final: bool = False
    """Whether it would be refused again, however often it is said."""
    home: str = ""
    """The only machine that a job can go on on, where that is why its run was refused."""


@dataclass(frozen=True, slots=True)
class OverNews:
    """The app is over; nothing more will come."""

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
    | OverNews
)


@dataclass(frozen=True, slots=True)
class News:
    """What an app should know, the oldest first. Times are the cluster's."""

    epoch: int
    answers: int
    """The number of the report that this answers."""
    at: float
    first: int
    """The number of the first item; the others follow it."""
    items: tuple[NewsItem, ...]
    fence: int = 0
    """The number of the session, which comes with every report from now on."""


# To hosts of agents


@dataclass(frozen=True, slots=True)
class HostedAsked:
    """Which apps of its owner need an agent? Answered at once if that has changed since."""

    revision: int = 0
    """Of the last answer; 0 before the first."""


@dataclass(frozen=True, slots=True)
class Hosted:
    """The apps of an owner that need an agent of the service's."""

    revision: int
    apps: tuple[AppId, ...]


@dataclass(frozen=True, slots=True)
class SheetAsked:
    """What was submitted as this app?"""

    app: AppId


@dataclass(frozen=True, slots=True)
class SubmittedApp:
    """An app as it was written down, for its agent and nobody else: its environment is in it."""

    app: AppId
    owner: OwnerId
    body: str
    """The app file as JSON."""
    seed: int
