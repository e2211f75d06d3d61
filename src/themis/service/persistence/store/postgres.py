"""A store in PostgreSQL, in a schema of its own.

The lock is an advisory one on a connection that does nothing else. If it is lost with the
connection, a service that another one has followed still writes nothing: see `Store`. A lost
connection is fatal, because it is not known whether the last commit was carried out; the service
starts anew and reads.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from themis.errors import (
    ConfigError,
    CorruptStoreError,
    FatalStoreError,
    InvariantError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    ThemisError,
    UnavailableError,
)
from themis.service.persistence.store import schema
from themis.service.persistence.store.backup import back_up_rows, copy_of_backup, copy_tables
from themis.service.persistence.store.base import Epoch
from themis.service.persistence.store.schema import Row
from themis.service.persistence.store.snapshot_log import state_of
from themis.service.persistence.store.sql import Store
from themis.service.persistence.store.sqlite import SqliteDatabase

try:
    import psycopg
except ImportError:  # an extra
    _MISSING = True
else:
    _MISSING = False

_T = TypeVar("_T")

SCHEMA = "themis"
_LOCK = 0x7468656D6973
"""Advisory locks are numbers, each database has its own. This one spells the name."""
_CONNECT_SECONDS = 10
_LOCK_SECONDS = 1
_VANISHED_SECONDS = 30


class PostgresDatabase:
    """A connection, with PostgreSQL's errors as those of Themis."""

    types = {"integer": "BIGINT", "real": "DOUBLE PRECISION", "blob": "BYTEA", "table": ""}  # noqa: RUF012 -- read-only by the protocol

    def __init__(self, url: str) -> None:
        self.name = without_password(url)
        self._has_state = False
        self.connection = _connect(url, self.name)
        self.run(f"SET search_path = {SCHEMA}")
        # A server may be configured to answer before a commit is on its disk.
        self.run("SET synchronous_commit = on")

    def run(self, sql: str, values: Sequence[object] = ()) -> int:
        """See `Database.run`."""
        with self._mapped_errors():
            return int(self.connection.execute(_marked(sql), values or None).rowcount)

    def run_many(self, sql: str, rows: Sequence[Sequence[object]]) -> int:
        """See `Database.run_many`."""
        if not rows:
            return 0
        with self._mapped_errors(), self.connection.cursor() as cursor:
            cursor.executemany(_marked(sql), rows)
            return int(cursor.rowcount)

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """See `Database.rows`."""
        with self._mapped_errors():
            found: list[Row] = self.connection.execute(_marked(sql), values or None).fetchall()
            return found

    def has_table(self, name: str) -> bool:
        """See `Database.has_table`."""
        sql = "SELECT 1 FROM pg_tables WHERE schemaname = ? AND tablename = ?"
        return bool(self.rows(sql, (SCHEMA, name)))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """See `Database.writing`."""
        self.run("BEGIN")
        try:
            # Another service that begins an epoch waits, or is seen. A new store has no rows yet.
            self._has_state = self._has_state or self.has_table("state")
            if self._has_state:
                self.rows("SELECT one FROM state FOR UPDATE")
            yield
            self._commit()
        except BaseException:
            self._undo()
            raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        """See `Database.reading`."""
        self.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        finally:
            self._undo()

    def _commit(self) -> None:
        with self._mapped_errors():
            answer = self.connection.execute("COMMIT").statusmessage
        if answer != "COMMIT":
            # A server says so, without an error, where something failed before.
            raise InvariantError(f"{self.name}: a transaction was undone instead of committed")

    def _undo(self) -> None:
        if not self.connection.closed:
            self.run("ROLLBACK")

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise _mapped(error, self.name, lost=self.connection.closed) from error

    def close(self) -> None:
        """End the connection."""
        with suppress(psycopg.Error):
            self.connection.close()


def _marked(sql: str) -> str:
    return sql.replace("?", "%s")


def _connect(url: str, name: str) -> Any:
    if _MISSING:
        raise ConfigError(
            "store", name, "sqlite:///..., or install themis-scheduler[postgres] for PostgreSQL"
        )
    try:
        return psycopg.connect(
            url,
            autocommit=True,
            connect_timeout=_CONNECT_SECONDS,
            # A server that vanished is noticed instead of waited for.
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=1000 * _VANISHED_SECONDS,
            application_name=f"themis, process {os.getpid()} on {os.uname().nodename}"[:63],
        )
    except psycopg.ProgrammingError as error:
        raise ConfigError("store", name, f"a URL ({_first_line(error)})") from error
    except psycopg.OperationalError as error:
        raise UnavailableError(f"{name}: {_first_line(error)}") from error


def _mapped(error: Any, name: str, *, lost: bool) -> ThemisError:
    line = _first_line(error)
    if lost:
        return FatalStoreError(name, f"{line}; whether the last commit was carried out is unknown")
    match error:
        case psycopg.errors.DiskFull():
            return StoreFullError(name, f"the disk of the database is full ({line})")
        case psycopg.errors.DataCorrupted() | psycopg.errors.IndexCorrupted():
            return CorruptStoreError(name, line)
        case psycopg.errors.IntegrityError():
            return InvariantError(f"{name}: {line}")
        case psycopg.errors.InsufficientPrivilege() | psycopg.errors.ReadOnlySqlTransaction():
            return ConfigError("store", name, f"a database that can be written ({line})")
        case psycopg.errors.IoError() | psycopg.errors.InternalError_():
            return FatalStoreError(name, line)
        case psycopg.OperationalError():
            return UnavailableError(f"{name}: {line}")
        case _:
            return InvariantError(f"{name}: {line}")


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def without_password(url: str) -> str:
    """A URL that may be shown."""
    parts = urlsplit(url)
    at = parts.netloc.rpartition("@")
    user = at[0].partition(":")[0]
    # A password may also be an option; options do not say where the store is.
    return urlunsplit((parts.scheme, f"{user}{at[1]}{at[2]}", parts.path, "", ""))


class PostgresStore(Store):
    """See `Store`. Made by `open_store`."""

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self._secret_url = url
        self._lock: PostgresDatabase | None = None
        self._full = False
        if not read_only:
            self._lock = _locked(url)
        try:
            self._postgres = _opened_to_read(url) if read_only else _opened_to_write(url)
        except BaseException:
            if self._lock is not None:
                _unlock(self._lock)
            raise
        super().__init__(self._postgres, read_only=read_only)

    def close(self) -> None:
        """See `Store.close`."""
        self._postgres.close()
        if self._lock is not None:
            _unlock(self._lock)

    def backup(self, path: str | PathLike[str]) -> None:
        """See `Store.backup`."""
        # A connection of its own: the writer goes on, perhaps on another thread.
        database = PostgresDatabase(self._secret_url)
        try:
            back_up_rows(database, Path(path))
        finally:
            database.close()

    def _admit(self) -> None:
        if self._full:
            raise StoreFullError(self.url, "the disk of the database was full a moment ago")

    def _make_room(self) -> bool:
        self._full = True
        return False

    def _attempt(self, write: Callable[[], _T]) -> _T:
        result = super()._attempt(write)
        self._full = False
        return result

    def _room(self) -> tuple[int | None, bool]:
        return None, not self._full

    def _size(self) -> int:
        ((size,),) = self._postgres.rows(
            "SELECT sum(pg_total_relation_size(schemaname || '.' || tablename)) "
            "FROM pg_tables WHERE schemaname = ?",
            (SCHEMA,),
        )
        return int(size)

    def _shrink(self) -> None:
        """Do nothing: the server's autovacuum does it."""

    def _check_pages(self) -> None:
        """Do nothing: the server checks pages as they are read, and `check` reads all rows."""


def _locked(url: str) -> PostgresDatabase:
    database = PostgresDatabase(url)
    try:
        # A server takes a moment to notice that a service was killed.
        database.run(f"SET lock_timeout = {1000 * _LOCK_SECONDS}")
        database.run("SELECT pg_advisory_lock(?)", (_LOCK,))
    except UnavailableError:
        holder = _holder(database)
        database.close()
        raise StoreLockedError(database.name, holder) from None
    except BaseException:
        database.close()
        raise
    return database


def _unlock(database: PostgresDatabase) -> None:
    # Not by closing alone: the next service may come before the server has noticed that.
    with suppress(ThemisError):
        database.run("SELECT pg_advisory_unlock_all()")
    database.close()


def _holder(database: PostgresDatabase) -> str:
    found = database.rows(
        "SELECT a.application_name, a.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
        "WHERE l.locktype = 'advisory' AND l.granted AND l.database = "
        "(SELECT oid FROM pg_database WHERE datname = current_database()) "
        "AND (l.classid::bigint << 32) + l.objid::bigint = ?",
        (_LOCK,),
    )
    return f"{found[0][0]} (backend {found[0][1]})" if found else "another process"


def _opened_to_read(url: str) -> PostgresDatabase:
    database = PostgresDatabase(url)
    try:
        schema.refuse_unreadable(database)
    except BaseException:
        database.close()
        raise
    return database


def _opened_to_write(url: str) -> PostgresDatabase:
    database = PostgresDatabase(url)
    try:
        if not database.rows("SELECT 1 FROM pg_namespace WHERE nspname = ?", (SCHEMA,)):
            database.run(f"CREATE SCHEMA {SCHEMA}")
        schema.migrate(database)
        if state_of(database).is_backup:
            raise StoreError(database.name, "a backup; `themis restore` makes a store of it")
    except BaseException:
        database.close()
        raise
    return database


def restore_postgres(backup: Path, url: str, now: float) -> Epoch:
    """See `restore`."""
    lock = _locked(url)
    try:
        target = _opened_to_write(url)
        try:
            return _restore_into(target, backup, now)
        finally:
            target.close()
    finally:
        _unlock(lock)


def _restore_into(target: PostgresDatabase, backup: Path, now: float) -> Epoch:
    state = state_of(target)
    if state.epoch or state.last_entry:
        raise ConfigError(
            "store", target.name, f"a database without a store; drop schema {SCHEMA} first"
        )
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / "draft.sqlite"
        draft.touch(0o600)
        epoch = copy_of_backup(backup, draft, now)
        source = SqliteDatabase(draft, read_only=True)
        try:
            with source.reading(), target.writing():
                copy_tables(source, target)
        finally:
            source.close()
    return epoch
