"""What pages show, as values: filled by the live service and by finished runs alike.

Times are seconds of the cluster's clock (of the run, in a simulation); `wall` in a board says what
the time of day is at `now`. What is not known is None.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from themis.dashboard.reason_labels import REASONS, ReasonLabel

Point = tuple[float, float]
"""When, and how much; or after how many iterations."""

FAIR = 1.05
"""Up to here the sharing incentive holds: starting costs time."""
SHORT = 48
"""Points of a history in a list."""
MOST_LEASES = 2000
"""Leases on the page of an app, the newest."""
ANONYMOUS = "(another owner's)"
"""In place of every name that the viewer may not see."""


def finite(value: float | None) -> float | None:
    """The number, if it can be written down."""
    return value if value is not None and math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class DataOrigin:
    """Where all of it comes from."""

    kind: str
    """`live`, `run`, `log` or `snapshot`."""
    title: str
    policy: str = ""
    cluster: str = ""
    lease_seconds: float | None = None
    seed: int | None = None
    taken: float | None = None
    """When a snapshot was taken, in seconds of the wall clock."""


@dataclass(frozen=True, slots=True)
class ViewerInfo:
    """Who looks."""

    role: str = ""
    subject: str = ""
    sealed: bool = False
    """Whether others are left nameless."""


@dataclass(frozen=True, slots=True)
class AppRow:
    """One app in a list."""

    app: str
    owner: str
    state: str
    """`running`, `waiting`, `suspended`, `finished`, `cancelled` or `failed`."""
    reason: str | None = None
    rho: float | None = None
    held: int | None = None
    demand: int | None = None
    submitted: float | None = None
    ended: float | None = None
    elapsed: float | None = None
    ideal_seconds: float | None = None
    gpu_seconds: float | None = None
    history: tuple[Point, ...] = ()
    """Of rho, thinned."""
    sealed: bool = False


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU now."""

    gpu: int
    index: int
    """Its number on its machine."""
    slot: int
    state: str
    """`free`, `leased`, `fencing`, `quarantined` or `absent`."""
    app: str | None = None
    until: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MachineRow:
    """One machine with its GPUs."""

    machine: str
    rack: str
    gpu_model: str
    gpu_memory: float
    state: str
    """`present`, `cordoned` or `silent`."""
    gpus: tuple[GpuRow, ...]
    heard: float | None = None
    note: str = ""
    number: int | None = None
    """What bids call it; None for one that the arbiter has not met."""


@dataclass(frozen=True, slots=True)
class Board:
    """The state of everything."""

    origin: DataOrigin
    viewer: ViewerInfo
    now: float
    wall: float | None
    begin: float
    """Before this nothing is known."""
    gpus: Mapping[str, int]
    """How many are in each state."""
    apps: tuple[AppRow, ...]
    machines: tuple[MachineRow, ...]
    last_round: int | None = None
    runs: tuple[str, ...] = ()
    """Titles of all that can be looked at here, in the order of `?run=`."""
    fair: float = FAIR
    reasons: Mapping[str, ReasonLabel] = field(default_factory=lambda: dict(REASONS))


@dataclass(frozen=True, slots=True)
class Columns:
    """Who held which GPU when, a column for each field: there may be a hundred thousand."""

    gpu: Sequence[int] = ()
    app: Sequence[int] = ()
    """Places in the list of names."""
    start: Sequence[float] = ()
    end: Sequence[float] = ()
    source: Sequence[int] = ()
    """Places in the list of sources."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Who held which GPU when."""

    names: tuple[str, ...]
    sources: tuple[str, ...]
    closed: Columns
    open: Columns = Columns()
    """Held now; `end` is when the lease ends if nobody renews it."""
    cursor: int = 0
    """How many were closed so far; for asking what came since."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job of an app."""

    job: str
    state: str
    gpus: tuple[int, ...] = ()
    iterations: float | None = None
    target: float | None = None
    metric: float | None = None
    message: str = ""
    params: Mapping[str, object] = field(default_factory=dict)
    curve: tuple[Point, ...] = ()
    best: bool = False


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One phase of an app."""

    jobs: int
    iterations: int
    state: str
    """`over`, `now` or `to come`."""
    began: float | None = None


@dataclass(frozen=True, slots=True)
class LeaseSegment:
    """One GPU that an app held or holds."""

    gpu: int
    machine: str
    start: float
    end: float
    """When it ended, or will."""
    source: str
    open: bool = False


@dataclass(frozen=True, slots=True)
class AppPage:
    """One app in full."""

    row: AppRow
    now: float
    weight: float | None = None
    outcome: str = ""
    metric: str = ""
    """What its curves are of."""
    phases: tuple[PhaseRow, ...] = ()
    jobs: tuple[JobRow, ...] | None = None
    """None where nothing was kept of them."""
    leases: tuple[LeaseSegment, ...] = ()
    reasons: tuple[tuple[float, str], ...] = ()
    """From when on which one held, the oldest first."""
    history: tuple[Point, ...] = ()
    held: tuple[Point, ...] = ()
    """GPUs held, from each time on."""
    explanation: tuple[str, ...] = ()
    """Why it stands where it stands now: what, why, and what comes next."""


@dataclass(frozen=True, slots=True)
class RoundLine:
    """One round in a list."""

    round: int
    opened: float
    settled: float
    trigger: str
    offered: int
    given: int
    idle: int
    apps: int
    invited: int
    bids: int
    failed: bool
    solver: str
    exact: bool | None


@dataclass(frozen=True, slots=True)
class RoundList:
    """A page of rounds, the oldest first."""

    rounds: tuple[RoundLine, ...]
    before: int | None
    """What to ask with for earlier ones."""


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run in a comparison."""

    title: str
    policy: str
    cluster: str
    workload: str
    seed: int | None
    measures: Mapping[str, float | None]
    """By names of `MEASURES`."""
    rhos: tuple[float, ...]
    """rho_ref (fair_share) of every app where it is known, else rho; sorted."""
    completions: tuple[float, ...]
    """Hours, sorted."""
    completions_by_app: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that runs are compared by."""

    name: str
    label: str
    unit: str
    better: str
    """`low` or `high`."""


MEASURES = (
    Measure("max_rho", "max rho", "", "low"),
    Measure("p95_rho", "95 % of apps below", "", "low"),
    Measure("median_rho", "median rho", "", "low"),
    Measure("share_fair", "apps served fairly", "%", "high"),
    Measure("mean_completion_h", "mean completion", "h", "low"),
    Measure("makespan_h", "makespan", "h", "low"),
    Measure("gpu_hours", "GPU time", "GPU h", "low"),
    Measure("moves", "restarts", "", "low"),
    Measure("rounds", "rounds", "", ""),
)


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Runs side by side."""

    runs: tuple[RunLine, ...]
    measures: tuple[Measure, ...] = MEASURES
    fair: float = FAIR
