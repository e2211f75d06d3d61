"""What every durable store offers, and the values that go in and come out.

A store holds text that it does not look into: JSON of events and of the parts of the arbiter's
state. It knows leases, because no GPU may have two holders whatever else goes wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from themis.security.audit import AuditRow


class LeaseState(StrEnum):
    """At most one lease of a GPU is active or fencing; any number are promised or have ended."""

    PROMISED = "promised"
    """Begins when the one before it has gone."""
    ACTIVE = "active"
    FENCING = "fencing"
    """Its holder was told to leave, and the slot is not reported empty yet."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A lease as it is now. A new token is a new lease; a known one changes state or times."""

    token: int
    gpu: int
    app: str
    state: LeaseState
    begins: float
    ends: float


@dataclass(frozen=True, slots=True)
class EndedLease:
    """The end of a lease. Its row stays until it is pruned."""

    token: int
    at: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One event that was handled: the event and its commands, and the parts that it changed."""

    at: float
    body: str
    parts: Mapping[str, str | None] = field(default_factory=dict)
    """The new text of each changed part; None for one that is gone."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """A log entry with its place in the log. Numbers have no gaps."""

    number: int
    epoch: int
    entry: LogEntry


@dataclass(frozen=True, slots=True)
class Batch:
    """What becomes durable together: all of it or nothing."""

    entries: tuple[LogEntry, ...] = ()
    leases: tuple[LeaseRow, ...] = ()
    """Leases that are new or have changed."""
    ended: tuple[EndedLease, ...] = ()
    audit: tuple[AuditRow, ...] = ()
    kept: Mapping[str, str | None] = field(default_factory=dict)
    """Other durable text by name; None removes it."""
    essential: bool = True
    """Whether it may use the reserve of the disk. New submissions may not; renewals may."""

    def __bool__(self) -> bool:
        return bool(self.entries or self.leases or self.ended or self.audit or self.kept)


@dataclass(frozen=True, slots=True)
class Epoch:
    """One start of the service. Both `first_` numbers are above all that were used before."""

    number: int
    version: str
    seed: int
    first_token: int
    first_entry: int


@dataclass(frozen=True, slots=True)
class Saved:
    """All that a service needs to continue where the last one stopped."""

    epoch: Epoch | None
    """The last one that began; None in a new store."""
    parts: dict[str, str]
    kept: dict[str, str]
    leases: tuple[LeaseRow, ...]
    """Leases that have not ended, by token."""
    next_entry: int
    next_token: int
    last_at: float
    """The latest time of an entry; 0 in a new store."""


@dataclass(frozen=True, slots=True)
class StoreSize:
    """How large a store is."""

    bytes: int
    """All of it, on disk."""
    log_bytes: int
    """Bytes of the entries that are not pruned."""
    first_entry: int
    next_entry: int
    since_snapshot: int
    """Entries that the next load has to fold."""
    free_bytes: int | None
    """On its disk; None if that is not known."""
    reserve: bool
    """Whether the last of the disk is still held back."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed, and whether there is more to remove."""

    entries: int
    leases: int
    audit: int
    more: bool
