"""What the pages show, as values; a live service and finished runs fill the same model.

Times are seconds of the cluster's clock (in a simulation, of the run); `wall` of a board is the
time of day at `now`. Unknown values are None.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from themis.dashboard.reason_labels import REASONS, ReasonLabel

Point = tuple[float, float]
"""A time and a value; in curves of trials, iterations and a metric."""

FAIR = 1.05
"""A rho up to here counts as fair: starting jobs costs some time."""
SHORT = 48
"""Points of a history in a list."""
MOST_LEASES = 2000
"""Leases on the page of an app, the newest."""
ANONYMOUS = "(another owner's)"
"""Stands for every name that the viewer may not see."""


def finite(value: float | None) -> float | None:
    """The number; None for infinity and NaN, which JSON cannot hold."""
    return value if value is not None and math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class DataOrigin:
    """Where the data comes from."""

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
    """The viewer, as the pages name it."""

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
    """Rho over time, thinned."""
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
    """Its number in bids; None if the arbiter does not know it yet."""


@dataclass(frozen=True, slots=True)
class Board:
    """The state of the cluster: apps, machines, GPU counts."""

    origin: DataOrigin
    viewer: ViewerInfo
    now: float
    wall: float | None
    begin: float
    """The earliest time that anything is known of."""
    gpus: Mapping[str, int]
    """How many GPUs are in each state."""
    apps: tuple[AppRow, ...]
    machines: tuple[MachineRow, ...]
    last_round: int | None = None
    runs: tuple[str, ...] = ()
    """Titles of all runs that are served here, in the order of `?run=`."""
    fair: float = FAIR
    reasons: Mapping[str, ReasonLabel] = field(default_factory=lambda: dict(REASONS))


@dataclass(frozen=True, slots=True)
class Columns:
    """Segments with a column for each field: there may be a hundred thousand."""

    gpu: Sequence[int] = ()
    app: Sequence[int] = ()
    """Indices into the list of names."""
    start: Sequence[float] = ()
    end: Sequence[float] = ()
    source: Sequence[int] = ()
    """Indices into the list of sources."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Which app held which GPU when."""

    names: tuple[str, ...]
    sources: tuple[str, ...]
    closed: Columns
    open: Columns = Columns()
    """Held now; `end` is when the lease ends unless it is renewed."""
    cursor: int = 0
    """How many segments have closed so far; a stream continues from there."""


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
    """The name of the metric that its curves show."""
    phases: tuple[PhaseRow, ...] = ()
    jobs: tuple[JobRow, ...] | None = None
    """None where no jobs are known."""
    leases: tuple[LeaseSegment, ...] = ()
    reasons: tuple[tuple[float, str], ...] = ()
    """Each reason with the time from which it held, the oldest first."""
    history: tuple[Point, ...] = ()
    held: tuple[Point, ...] = ()
    """GPUs held, from each time on."""
    explanation: tuple[str, ...] = ()
    """Its state in words: what, why, and what comes next."""


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
    """The `before` of the previous page; None if there is none."""


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run in a comparison."""

    title: str
    policy: str
    cluster: str
    workload: str
    seed: int | None
    measures: Mapping[str, float | None]
    """By the names in `MEASURES`."""
    rhos: tuple[float, ...]
    """Sorted; rho_ref (fair_share) of each app where it is known, else rho."""
    completions: tuple[float, ...]
    """Hours, sorted."""
    completions_by_app: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measure:
    """A number by which runs are compared."""

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
