"""From the store to a running steward, and from its changes to what is stored.

    state = recover(store, StartParameters("themis"), version)
    state.steward, state.clock
    state.changed()             # parts and leases that changed since it was last asked

No policy and no solver is run: the state is read, not worked out again.
"""

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from themis.core.arbiter import Arbiter, Settings
from themis.core.arbiter.events import ServiceRestarted
from themis.core.arbiter.saved_state import arbiter_from, parts, take_changed
from themis.core.arbiter.state_parts import GpuPart, Part
from themis.core.model import AppId, Topology
from themis.core.policies import Policy
from themis.core.policies import policy as make_policy
from themis.core.steward.commands import Outcome
from themis.core.steward.rows import (
    COUNT,
    TTL,
    ActiveRun,
    BestRow,
    CurveRow,
    LogsRow,
    LongestTtl,
    ReachedRow,
    Release,
    RunCount,
    RunEnd,
    SessionRow,
    StewardRow,
    TrialRow,
)
from themis.core.steward.steward import Steward
from themis.errors import CorruptLogError, RefusedError
from themis.recording.codec import decode, dumps, loads, loads_own, part_from
from themis.service.persistence.commit_queue import Changes, Rows
from themis.service.persistence.start_parameters import StartParameters, parameters_row
from themis.service.persistence.store.base import EndedLease, LeaseRow, LeaseState, Saved
from themis.service.persistence.store.sql import Store

CLUSTER = "cluster"
"""The key of what is chosen once for a store: its seed and when it was made."""

COME_BACK = 5.0
"""Seconds that agents get to come back, at most."""
_KINDS: Mapping[str, type[StewardRow]] = {
    "run": ActiveRun,
    "result": RunEnd,
    "release": Release,
    "session": SessionRow,
    "trial": TrialRow,
    "reached": ReachedRow,
    "curve": CurveRow,
    "best": BestRow,
    "logs": LogsRow,
    COUNT: RunCount,
    TTL: LongestTtl,
}
STEWARD = "steward/"
"""Keys of the steward's rows begin with this in the store."""


@dataclass(frozen=True, slots=True)
class TimeSources:
    """Where time comes from; tests have their own."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


class ClusterClock:
    """The cluster's time: seconds since its store was made. It never goes back.

    Within one start of the service it follows the monotonic clock. From one start to the next it
    goes on by as much as the wall clock did, or stands still if that was set back.
    """

    def __init__(self, zero: float, last: float, sources: TimeSources | None = None) -> None:
        self._sources = sources or TimeSources()
        self._base = max(last, self._sources.wall() - zero)
        self._began = self._sources.monotonic()

    def now(self) -> float:
        """Seconds since the store was made."""
        return self._base + self._sources.monotonic() - self._began

    def until(self, at: float) -> float:
        """Seconds from now until then; never negative."""
        return max(0.0, at - self.now())


@dataclass(slots=True)
class RecoveredState:
    """The steward with its clock, and what the store knows of it."""

    steward: Steward
    clock: ClusterClock
    parameters: StartParameters
    restart: tuple[ServiceRestarted, Outcome]
    """The start itself, to be stored and published like any other event."""
    rows: dict[str, str]
    """Rows of the service's own."""
    new_rows: Rows
    """Rows that the start adds to them."""
    absent: frozenset[AppId] = frozenset()
    """Apps whose agents were there when the last service ended: no round opens before they are back
    or have had their time."""
    _leases: dict[int, LeaseRow] = field(default_factory=dict)
    """Leases that have not ended in the store, by token."""
    _fresh: bool = False
    """Whether nothing of the arbiter is stored yet."""

    def changed(self) -> Changes:
        """Parts and leases that changed since this was last asked."""
        arbiter = self.steward.arbiter
        found: Mapping[str, Part | None] = take_changed(arbiter)
        if self._fresh:
            found, self._fresh = dict(parts(arbiter).items()), False
        texts = {key: None if part is None else dumps(part) for key, part in found.items()}
        return texts, *self._lease_changes(found)

    def _lease_changes(
        self, changed: Mapping[str, Part | None]
    ) -> tuple[tuple[LeaseRow, ...], tuple[EndedLease, ...]]:
        rows: dict[int, LeaseRow] = {}
        gpus = set()
        for key, part in changed.items():
            if isinstance(part, GpuPart):
                gpus.add(int(key.partition("/")[2]))
                rows.update((row.token, row) for row in lease_rows(part))
        over = [
            token for token, row in self._leases.items() if row.gpu in gpus and token not in rows
        ]
        now = self.steward.arbiter.now
        for token in over:
            del self._leases[token]
        new = tuple(row for token, row in sorted(rows.items()) if self._leases.get(token) != row)
        self._leases.update((row.token, row) for row in new)
        return new, tuple(EndedLease(token, now) for token in sorted(over))


def lease_rows(part: GpuPart) -> list[LeaseRow]:
    """The leases of a GPU as rows: the present one, then the promised ones."""
    rows = []
    if part.lease is not None:
        lease, state = part.lease, LeaseState.FENCING if part.leaving else LeaseState.ACTIVE
        rows.append(LeaseRow(lease.token, lease.gpu, lease.app, state, lease.start, lease.end))
    for lease in part.queue:
        promised = LeaseState.PROMISED
        rows.append(LeaseRow(lease.token, lease.gpu, lease.app, promised, lease.start, lease.end))
    return rows


def recover(
    store: Store,
    parameters: StartParameters,
    version: str,
    *,
    policy: Policy | None = None,
    seed: int = 0,
    node_ttl: float = 20.0,
    above_token: int = 0,
    sources: TimeSources | None = None,
) -> RecoveredState:
    """Begin a new epoch with everything that the store holds.

    Args:
        store: Where the state is.
        parameters: Of this start. Its settings are for a new store; another one goes on with its
            own, which change by events.
        version: Of Themis.
        policy: Instead of the one that the parameters name.
        seed: For a new store.
        node_ttl: Seconds of silence after which a node is given up.
        above_token: Tokens to come are above it, as machines may have seen it from another store.
        sources: Where time comes from.

    Raises:
        ConfigError: There is no such policy.
        CorruptLogError: What the store holds makes no sense.
        ThemisError: The store cannot be used.
    """
    policy = policy or make_policy(parameters.policy, **dict(parameters.options))
    saved = store.load()
    wall = (sources or TimeSources()).wall()
    about = _about(saved, seed, wall, store.url)
    clock = ClusterClock(about.zero, saved.last_at, sources)
    epoch = store.begin_epoch(version, about.seed, above_token=above_token)
    at = clock.now()
    if saved.parts:
        arbiter = _restored(saved, policy, about.seed, store.url, epoch.first_token - 1)
    else:
        arbiter = Arbiter(Topology(()), policy, parameters.settings, seed=about.seed)
    steward = Steward(
        arbiter,
        epoch=epoch.number,
        at=at,
        node_ttl=node_ttl,
        saved=steward_rows_in(saved, store.url),
        nonce=secrets.token_hex(8),
    )
    absent = frozenset(
        app
        for app in steward.sessions
        if app in arbiter.world.apps and not arbiter.world.apps[app].suspended
    )
    rounds_from = at + longest_hold(arbiter.settings) if absent else 0.0
    restart = ServiceRestarted(at, epoch.first_token - 1, rounds_from)
    outcome = steward.handle(restart)
    rows = {key: text for key, text in saved.kept.items() if not key.startswith(STEWARD)}
    new_rows = {CLUSTER: dumps(about), **parameters_row(rows, epoch.number, parameters)}
    return RecoveredState(
        steward,
        clock,
        parameters,
        (restart, outcome),
        rows,
        new_rows,
        absent,
        {row.token: row for row in saved.leases},
        not saved.parts,
    )


def longest_hold(settings: Settings) -> float:
    """Seconds that agents get to come back after a restart, before a round opens.

    For so long nothing has to end because there is no round.
    """
    return min(COME_BACK, settings.bid_deadline + settings.solve_budget)


def seed_of(saved: Saved, url: str) -> int:
    """The seed that was chosen for a store; 0 if it is new.

    Raises:
        CorruptLogError: It cannot be read.
    """
    return _about(saved, 0, 0.0, url).seed


@dataclass(frozen=True, slots=True)
class _About:
    """What is chosen once for a store."""

    seed: int
    zero: float
    """When it was made, by the wall clock."""


def _about(saved: Saved, seed: int, wall: float, url: str) -> _About:
    text = saved.kept.get(CLUSTER)
    if text is None:
        return _About(seed, wall)
    try:
        return decode(_About, loads(text))
    except RefusedError as error:
        raise CorruptLogError(url, 0, f"{CLUSTER}: {error}") from None


def _restored(saved: Saved, policy: Policy, seed: int, url: str, floor: int) -> Arbiter:
    # Apps that nothing was heard of yet have parts that read the same: those are read once.
    read: dict[tuple[str, str], Part] = {}
    kept: dict[str, Part] = {}
    try:
        for key, text in saved.parts.items():
            kind = key.partition("/")[0]
            part = read.get((kind, text))
            if part is None:
                part = read[kind, text] = part_from(key, loads_own(text))
            kept[key] = part
        return arbiter_from(kept, policy, seed=seed, token_floor=floor)
    except RefusedError as error:
        raise CorruptLogError(url, 0, f"{error.who}: {error.reason}") from None


def steward_rows_in(saved: Saved, url: str) -> dict[str, StewardRow]:
    """The steward's rows in a store.

    Raises:
        CorruptLogError: One cannot be read.
    """
    rows: dict[str, StewardRow] = {}
    for key, text in saved.kept.items():
        if key.startswith(STEWARD):
            name = key.removeprefix(STEWARD)
            try:
                rows[name] = decode(_KINDS[name.partition("/")[0]], loads(text))
            except (KeyError, RefusedError) as error:
                raise CorruptLogError(url, 0, f"{key}: {error}") from None
    return rows


def steward_texts(changed: Mapping[str, StewardRow | None] | None) -> dict[str, str | None]:
    """The steward's changed rows as the store takes them."""
    return {
        STEWARD + key: None if row is None else dumps(row) for key, row in (changed or {}).items()
    }
