"""The arbiter's state in small named parts, as they are kept by a store.

    parts(arbiter)    # {"arbiter": ArbiterPart(...), "gpu/0": GpuPart(...), ...}

A part's key is the name of its kind, alone or with the name of what it is about. Every class that
has state of its own writes its parts and takes them back; `state.py` puts them together. What can
be computed from other parts is in none.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

from themis.core.arbiter.alarms import AlarmPart, AlarmsPart
from themis.core.arbiter.iteration_time_audit import AuditPart
from themis.core.arbiter.settings import Settings
from themis.core.fairness.contention import MeterState
from themis.core.fairness.exact_sums import IntegralState
from themis.core.fairness.fluid_shares import SharesState, ShareState
from themis.core.fairness.loads import PhaseLoad
from themis.core.model import (
    AppId,
    AppSpec,
    Constraint,
    GpuId,
    JobId,
    Lease,
    LeaseSource,
    Machine,
    OwnerId,
    RhoClaim,
    TableRow,
)
from themis.core.model.reasons import Reason
from themis.errors import RefusedError


@dataclass(frozen=True, slots=True)
class ArbiterPart:
    """When the arbiter heard last, and which rounds are due."""

    now: float | None
    beat: float | None
    late_beat: float | None
    pool_at: float | None
    wants_round: bool


@dataclass(frozen=True, slots=True)
class RoundsPart:
    """How many rounds were opened, and the last beat that apps have passed."""

    count: int
    beat: float | None


@dataclass(frozen=True, slots=True)
class SettingsPart:
    """The settings in force, and those that wait for the next beat."""

    present: Settings
    pending: Settings | None


@dataclass(frozen=True, slots=True)
class ClusterPart:
    """The name of the cluster."""

    name: str


@dataclass(frozen=True, slots=True)
class MachinePart:
    """One machine; GPU ids follow from the numbers of machines."""

    number: int
    machine: Machine
    gone: bool = False
    cordoned: bool = False
    draining: bool = False


@dataclass(frozen=True, slots=True)
class OwnerPart:
    """What was set for an owner; None where nothing was."""

    quota: int | None = None
    weight: float | None = None


@dataclass(frozen=True, slots=True)
class CapacityPart:
    """The GPUs that apps with this constraint may use, over time."""

    constraint: Constraint
    integral: IntegralState


@dataclass(frozen=True, slots=True)
class ContentionPart:
    """The weight of all active apps, over time."""

    integral: IntegralState


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """The token of the next grant: every one that was ever given is below it."""

    next_token: int


@dataclass(frozen=True, slots=True)
class GpuPart:
    """One GPU: its present lease and those behind it."""

    lease: Lease | None = None
    leaving: bool = False
    queue: tuple[Lease, ...] = ()
    quarantine: str | None = None
    segment_start: float = 0.0
    busy: bool = False
    idle_since: float = 0.0


@dataclass(frozen=True, slots=True)
class AccountPart:
    """GPU-seconds of an app: all that is booked, the same by source, and what its slots add."""

    booked: float
    starts: float
    attained: tuple[tuple[LeaseSource, float], ...]


@dataclass(frozen=True, slots=True)
class AppPart:
    """An app as declared, and what changes with its phases only."""

    spec: AppSpec
    submitted: float
    arrival: float
    times: tuple[float, ...] | None
    """Serial iteration times of its jobs, where measurements are believed instead."""
    budget: float
    serial_factor: float
    past: tuple[PhaseLoad, ...]
    before: tuple[PhaseLoad, ...]
    added: bool
    added_work: float


@dataclass(frozen=True, slots=True)
class JobPart:
    """One job of the present phase."""

    job: JobId
    started_at: float
    target: float
    done: float


@dataclass(frozen=True, slots=True)
class WorkPart:
    """How far the jobs of an app have come."""

    phase: int
    jobs: tuple[JobPart, ...]
    retired: tuple[tuple[JobId, float], ...]
    """Iterations of jobs that are not in this phase."""
    left: float
    """Serial seconds of the phase; kept because a sum of differences is not the sum anew."""


@dataclass(frozen=True, slots=True)
class ClaimsPart:
    """What an app said its GPUs are worth, and what of it is believed."""

    table: tuple[TableRow, ...]
    believed: tuple[TableRow, ...] | None
    """None where it is the table as it was said."""
    work_left: float | None
    """When the table was given; None before the first one."""
    claim: RhoClaim | None
    drag: float


@dataclass(frozen=True, slots=True)
class StandingPart:
    """How an app stands: weight, suspensions, appetite, hunger, and its end."""

    weight: float
    suspended: frozenset[Reason]
    waiting_since: float | None
    """None while it holds something."""
    hungry_rounds: int
    enough: int | None
    refusals: int
    idled: int
    barred: int
    reason: Reason
    outcome: str
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class ClockPart:
    """An app's meters of contention and capacity, and what they showed when it was counted anew."""

    contention: MeterState | None
    capacity: MeterState | None
    stretches: tuple[tuple[float, float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class AwaitedPart:
    """There as long as a valuation of an app is waited for outside any round."""

    until: float


@dataclass(frozen=True, slots=True)
class WatchedPart:
    """There as long as an alarm is set that looks whether an app uses its GPUs."""


Part = (
    ArbiterPart
    | RoundsPart
    | SettingsPart
    | AlarmsPart
    | AlarmPart
    | ClusterPart
    | MachinePart
    | OwnerPart
    | CapacityPart
    | ContentionPart
    | LedgerPart
    | GpuPart
    | AccountPart
    | AppPart
    | WorkPart
    | ClaimsPart
    | AuditPart
    | StandingPart
    | ClockPart
    | SharesState
    | ShareState
    | AwaitedPart
    | WatchedPart
)

Written = Iterator[tuple[str, Part | None]]
"""Parts by key; None for one that is no longer there."""

KINDS: Mapping[str, type[Part]] = {
    "arbiter": ArbiterPart,
    "rounds": RoundsPart,
    "settings": SettingsPart,
    "alarms": AlarmsPart,
    "alarm": AlarmPart,
    "cluster": ClusterPart,
    "machine": MachinePart,
    "owner": OwnerPart,
    "capacity": CapacityPart,
    "contention": ContentionPart,
    "ledger": LedgerPart,
    "gpu": GpuPart,
    "account": AccountPart,
    "app": AppPart,
    "work": WorkPart,
    "claims": ClaimsPart,
    "audit": AuditPart,
    "standing": StandingPart,
    "clock": ClockPart,
    "shares": SharesState,
    "share": ShareState,
    "awaited": AwaitedPart,
    "watched": WatchedPart,
}
"""In the order in which they are listed."""

OF_APPS = ("app", "work", "claims", "audit", "standing", "clock")
"""Kinds of which every app has one part."""

_NAMES: Mapping[type, str] = {kind: name for name, kind in KINDS.items()}
_PLACES = {name: place for place, name in enumerate(KINDS)}
_Kind = TypeVar("_Kind", bound=Part)
_Name = TypeVar("_Name", AppId, OwnerId, GpuId, int)


def kind_of(key: str) -> type[Part]:
    """The kind of part that a key names.

    Raises:
        RefusedError: It names none.
    """
    kind = KINDS.get(key.partition("/")[0])
    if kind is None:
        raise RefusedError(key, "there is no part of this name")
    return kind


def place_of(key: str) -> tuple[int, int, str]:
    """Where a part stands in a list of all: by kind, then by number or name."""
    kind, _, name = key.partition("/")
    return _PLACES[kind], int(name) if kind in {"gpu", "alarm"} else 0, name


def take(touched: set[_Name]) -> list[_Name]:
    """What is marked, sorted; the marks are gone afterwards."""
    names = sorted(touched)
    touched.clear()
    return names


class Shelf:
    """Parts to be taken back, by kind and name."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        self._kinds: dict[type, dict[str, Part]] = {kind: {} for kind in _NAMES}
        for key, part in parts.items():
            kind = kind_of(key)
            if type(part) is not kind:
                raise RefusedError(key, f"it is a {type(part).__name__}, not a {kind.__name__}")
            self._kinds[kind][key.partition("/")[2]] = part

    def all(self, kind: type[_Kind]) -> dict[str, _Kind]:
        """All parts of a kind by the names of what they are about."""
        return cast("dict[str, _Kind]", self._kinds[kind])

    def one(self, kind: type[_Kind], name: object = "") -> _Kind:
        """The part of a kind about something.

        Raises:
            RefusedError: There is none.
        """
        part = self.all(kind).get(str(name))
        if part is None:
            key = _NAMES[kind] if name == "" else f"{_NAMES[kind]}/{name}"
            raise RefusedError(key, "this part of the arbiter's state is missing")
        return part
