"""The store in SQL that SQLite and PostgreSQL both understand.

A write is one transaction that first checks the epoch: a service that another one has followed
writes nothing more, even if it lost the lock.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from types import TracebackType
from typing import Self, TypeVar

from themis.errors import CorruptStoreError, FatalStoreError, InvariantError, StoreFullError
from themis.security.audit import AuditRow
from themis.service.persistence.store import lease_table, retention
from themis.service.persistence.store.base import (
    Batch,
    Epoch,
    LeaseRow,
    LogEntry,
    Pruned,
    Saved,
    StoredEntry,
    StoreSize,
)
from themis.service.persistence.store.schema import PAGE, TABLES, Database, packed, unpacked
from themis.service.persistence.store.snapshot_log import (
    StateRow,
    changed_parts,
    parts_from,
    parts_text,
    put_texts,
    state_of,
    texts_of,
)

_T = TypeVar("_T")

_EPOCHS = f"SELECT {', '.join(TABLES['epochs'])} FROM epochs"
_ENTRIES = f"SELECT {', '.join(TABLES['entries'])} FROM entries"


class Store(ABC):
    """Keeps what must survive the service, over one connection that subclasses open.

    Methods block until the disk has answered, so they are called on one writer thread, one at a
    time; `backup` may run on another meanwhile.

    Every method may raise:
        FatalStoreError: What is on disk is not known, or another service took over. Exit.
        CorruptStoreError: What was read makes no sense.
        StoreFullError: There is no room; nothing was written.
        UnavailableError: It cannot be reached now; nothing was written.
    """

    def __init__(self, database: Database, *, read_only: bool) -> None:
        self._database = database
        self._read_only = read_only
        self._epoch: int | None = None
        self._failure: FatalStoreError | None = None

    @property
    def url(self) -> str:
        """Where it is, without a password."""
        return self._database.name

    # Writing

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

        def write() -> Epoch:
            state = state_of(self._database)
            epoch = Epoch(
                max(state.epoch, above_epoch) + 1,
                version,
                seed,
                max(state.highest_token, above_token) + 1,
                state.last_entry + 1,
            )
            self._database.run(
                "INSERT INTO epochs (number, version, seed, first_token, first_entry) "
                "VALUES (?, ?, ?, ?, ?)",
                (epoch.number, version, seed, epoch.first_token, epoch.first_entry),
            )
            self._database.run(
                "UPDATE state SET epoch = ?, highest_token = ?",
                (epoch.number, epoch.first_token - 1),
            )
            return epoch

        epoch = self._durably(write)
        self._epoch = epoch.number
        return epoch

    def commit(self, batch: Batch) -> int:
        """Write a batch in one transaction; it is durable when this returns.

        Returns:
            The number of the last entry in the log.

        Raises:
            InvariantError: It gives a GPU twice, uses a token again, or changes a lease that has
                ended; nothing was written.
        """
        self._usable(to_write=True)
        if not batch.essential:
            self._admit()
        return self._durably(lambda: self._write(batch))

    def _write(self, batch: Batch) -> int:
        state = self._own_state()
        last_entry, total = self._write_entries(batch, state)
        highest = lease_table.write(self._database, batch, state.highest_token)
        put_texts(self._database, "kept", batch.kept)
        last_audit = self._write_audit(batch, state)
        last_at = max((state.last_at, *(entry.at for entry in batch.entries)))
        self._database.run(
            "UPDATE state SET highest_token = ?, last_entry = ?, last_at = ?, log_total = ?, "
            "last_audit = ?",
            (highest, last_entry, last_at, total, last_audit),
        )
        return last_entry

    def _own_state(self) -> StateRow:
        """The state, unless a service that began later has taken the store over."""
        state = state_of(self._database)
        if self._epoch is None:
            raise InvariantError("an epoch begins before anything is written")
        if state.epoch != self._epoch:
            raise FatalStoreError(
                self.url,
                f"another service has begun epoch {state.epoch}; ours was {self._epoch}",
            )
        return state

    def _write_entries(self, batch: Batch, state: StateRow) -> tuple[int, int]:
        rows: list[tuple[object, ...]] = []
        total = state.log_total
        for number, entry in enumerate(batch.entries, start=state.last_entry + 1):
            body = packed(entry.body)
            parts = packed(parts_text(entry.parts))
            total += len(body) + len(parts)
            rows.append((number, self._epoch, entry.at, body, parts, total))
        self._database.run_many("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", rows)
        return state.last_entry + len(rows), total

    def _write_audit(self, batch: Batch, state: StateRow) -> int:
        rows = [
            (number, row.at, row.who, row.verb, row.target, row.outcome, row.detail)
            for number, row in enumerate(batch.audit, start=state.last_audit + 1)
        ]
        self._database.run_many("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        return state.last_audit + len(rows)

    def snapshot(self) -> int:
        """Fold the log into the snapshot, so that the next load is quick; how many entries."""

        def write() -> int:
            state = self._own_state()
            put_texts(self._database, "parts", changed_parts(self._database, state))
            self._database.run("UPDATE state SET snapshot_entry = ?", (state.last_entry,))
            return state.last_entry - state.snapshot_entry

        return self._durably(write)

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
        self.snapshot()

        def write() -> Pruned:
            state = self._own_state()
            first, stop = retention.entries_to_prune(
                self._database,
                # An entry that is not in the snapshot is what the next load needs.
                last=state.snapshot_entry,
                log_total=state.log_total,
                older_than=older_than,
                keep_bytes=keep_bytes,
            )
            cut = min(stop, first + limit)
            return Pruned(
                retention.remove_entries(self._database, cut),
                retention.remove_leases(self._database, older_than),
                retention.remove_audit(self._database, audit_older_than),
                more=cut < stop,
            )

        pruned = self._durably(write)
        with self._failures_kept():
            self._shrink()
        return pruned

    # Reading

    def load(self) -> Saved:
        """The committed state: the last snapshot, with all later changes folded in."""

        def read() -> Saved:
            state = state_of(self._database)
            parts = texts_of(self._database, "parts")
            for name, text in changed_parts(self._database, state).items():
                if text is None:
                    parts.pop(name, None)
                else:
                    parts[name] = text
            began = self._database.rows(f"{_EPOCHS} ORDER BY number DESC LIMIT 1")
            return Saved(
                Epoch(*began[0]) if began else None,
                parts,
                texts_of(self._database, "kept"),
                lease_table.read(self._database, ended=False),
                state.last_entry + 1,
                state.highest_token + 1,
                state.last_at,
            )

        return self._at_once(read)

    def entries(self, first: int = 1, last: int | None = None) -> Iterator[StoredEntry]:
        """The log from one number to another, as far as it is still there."""
        number = first - 1
        while True:
            # Page by page, so that no reader stays inside a transaction while others write.
            rows = self._at_once(
                lambda after: self._database.rows(
                    f"{_ENTRIES} WHERE number > ? ORDER BY number LIMIT ?", (after, PAGE)
                ),
                number,
            )
            for number, epoch, at, body, parts, _ in rows:
                if last is not None and number > last:
                    return
                text = unpacked(body, self.url, f"entry {number}")
                changed = parts_from(parts, self.url, number)
                yield StoredEntry(number, epoch, LogEntry(at, text, changed))
            if len(rows) < PAGE:
                return

    def leases(self, *, ended: bool = False) -> tuple[LeaseRow, ...]:
        """Leases by token: those that have not ended, or all that are still there."""
        return self._at_once(lambda: lease_table.read(self._database, ended=ended))

    def audit(
        self, first: int = 1, limit: int = 1000, *, newest: bool = False
    ) -> tuple[tuple[int, AuditRow], ...]:
        """Audit rows with their numbers, from a number on: the first so many, or the newest."""
        order = "DESC" if newest else "ASC"
        rows = self._at_once(
            lambda: self._database.rows(
                f"SELECT {', '.join(TABLES['audit'])} FROM audit "
                f"WHERE number >= ? ORDER BY number {order} LIMIT ?",
                (first, limit),
            )
        )
        return tuple((number, AuditRow(*rest)) for number, *rest in sorted(rows))

    def epochs(self) -> tuple[Epoch, ...]:
        """Every start of a service."""
        rows = self._at_once(lambda: self._database.rows(f"{_EPOCHS} ORDER BY number"))
        return tuple(Epoch(*row) for row in rows)

    def usage(self) -> StoreSize:
        """How large it is."""
        free, reserve = self._room()

        def read() -> StoreSize:
            state = state_of(self._database)
            first = self._database.rows(
                "SELECT number, total - length(body) - length(parts) FROM entries "
                "ORDER BY number LIMIT 1"
            )
            first_entry, before = first[0] if first else (state.last_entry + 1, state.log_total)
            return StoreSize(
                self._size(),
                state.log_total - before,
                first_entry,
                state.last_entry + 1,
                state.last_entry - state.snapshot_entry,
                free,
                reserve,
            )

        return self._at_once(read)

    def check(self) -> None:
        """Read everything and see whether it makes sense; takes a while.

        Raises:
            CorruptStoreError: It does not.
        """
        self._check_pages()
        self.load()
        number = self.usage().first_entry
        for stored in self.entries():
            if stored.number != number:
                raise CorruptStoreError(self.url, f"entry {number} is missing")
            number += 1
        self._at_once(
            lambda: lease_table.check(self._database, state_of(self._database).highest_token)
        )

    # Around every transaction

    def _durably(self, write: Callable[[], _T]) -> _T:
        """In one transaction; once more if room can be made."""
        self._usable(to_write=True)
        try:
            return self._attempt(write)
        except StoreFullError:
            if not self._make_room():
                raise
            return self._attempt(write)

    def _attempt(self, write: Callable[[], _T]) -> _T:
        try:
            with self._failures_kept(), self._database.writing():
                return write()
        except UnicodeEncodeError as error:
            raise InvariantError(f"not a text that can be stored: {error}") from error

    @contextmanager
    def _failures_kept(self) -> Iterator[None]:
        """A fatal failure stays fatal: every later call raises it."""
        try:
            yield
        except FatalStoreError as error:
            self._failure = error
            raise

    def _at_once(self, read: Callable[..., _T], *args: object) -> _T:
        self._usable(to_write=False)
        with self._database.reading():
            return read(*args)

    def _usable(self, *, to_write: bool) -> None:
        if self._failure is not None:
            raise self._failure
        if to_write and self._read_only:
            raise InvariantError(f"{self.url} was opened only to be read")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # What differs between databases

    @abstractmethod
    def backup(self, path: str | PathLike[str]) -> None:
        """Write a consistent copy while the service goes on; `restore` reads it.

        Raises:
            ConfigError: There is a file already, or it cannot be written.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of it. Safe to call twice."""

    @abstractmethod
    def _admit(self) -> None:
        """Admit a batch that is not essential, or raise StoreFullError."""

    @abstractmethod
    def _make_room(self) -> bool:
        """Make room on a full disk; whether there is more room now."""

    @abstractmethod
    def _room(self) -> tuple[int | None, bool]:
        """Free bytes, and whether the reserve is held."""

    @abstractmethod
    def _size(self) -> int:
        """Bytes on disk."""

    @abstractmethod
    def _shrink(self) -> None:
        """Give disk space back after rows were removed."""

    @abstractmethod
    def _check_pages(self) -> None:
        """Let the database itself look for damage."""
