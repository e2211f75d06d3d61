"""What every durable store offers, and the values that go in and come out.

A store holds text that it does not look into: JSON of events and of the parts of the arbiter's
state. It knows leases, because no GPU may have two holders whatever else goes wrong.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from os import PathLike
from types import TracebackType
from typing import Protocol, Self

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
    kind: str
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


class Store(Protocol):
    """Keeps what must survive the service.

    Methods block until the disk has answered, so they are called on one writer thread, one at a
    time; `backup` may run on another meanwhile.

    Every method may raise:
        FatalStoreError: What is on disk is not known, or another service took over. Exit.
        CorruptStoreError: What was read makes no sense.
        StoreFullError: There is no room; nothing was written.
        UnavailableError: It cannot be reached now; nothing was written.
    """

    @property
    def url(self) -> str:
        """Where it is, without a password."""

    def begin_epoch(
        self, version: str, seed: int, *, above_epoch: int = 0, above_token: int = 0
    ) -> Epoch:
        """Begin an epoch, which fences every service that began earlier.

        Args:
            version: Of Themis.
            seed: Of this start.
            above_epoch: The highest epoch that a node has seen, for stores that lost their end.
            above_token: Likewise.
        """

    def commit(self, batch: Batch) -> int:
        """Write a batch in one transaction; it is durable when this returns.

        Returns:
            The number of the last entry in the log.

        Raises:
            InvariantError: It gives a GPU twice, uses a token again, or changes a lease that has
                ended; nothing was written.
        """

    def load(self) -> Saved:
        """The committed state: the last snapshot, with all later changes folded in."""

    def snapshot(self) -> int:
        """Fold the log into the snapshot, so that the next load is quick; how many entries."""

    def prune(
        self,
        *,
        older_than: float | None = None,
        keep_bytes: int | None = None,
        audit_older_than: float | None = None,
        limit: int = 5000,
    ) -> Pruned:
        """Snapshot, then remove what is too old or too much, the oldest first.

        Args:
            older_than: Entries and ended leases from before this time go.
            keep_bytes: How much the entries may hold together.
            audit_older_than: Audit rows from before this time go.
            limit: Entries at a time, so that commits do not wait long; call again while there is
                `more`.
        """

    def entries(self, first: int = 1, last: int | None = None) -> Iterator[StoredEntry]:
        """The log from one number to another, as far as it is still there."""

    def leases(self, *, ended: bool = False) -> tuple[LeaseRow, ...]:
        """Leases by token: those that have not ended, or all that are still there."""

    def audit(
        self, first: int = 1, limit: int = 1000, *, newest: bool = False
    ) -> tuple[tuple[int, AuditRow], ...]:
        """Audit rows with their numbers, from a number on: the first so many, or the newest."""

    def epochs(self) -> tuple[Epoch, ...]:
        """Every start of a service."""

    def usage(self) -> StoreSize:
        """How large it is."""

    def check(self) -> None:
        """Read everything and see whether it makes sense; takes a while.

        Raises:
            CorruptStoreError: It does not.
        """

    def backup(self, path: str | PathLike[str]) -> None:
        """Write a consistent copy while the service goes on; `restore` reads it.

        Raises:
            ConfigError: There is a file already, or it cannot be written.
        """

    def close(self) -> None:
        """Let go of it. Safe to call twice."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
