"""The default store: one SQLite file, with a lock and a reserve beside it.

WAL and `synchronous=FULL`: a commit that returned is on the disk. Others may read while a service
writes; a second service is refused.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from urllib.parse import quote

from themis.errors import (
    ConfigError,
    CorruptStoreError,
    FatalStoreError,
    InvariantError,
    MissingFileError,
    StoreError,
    StoreFullError,
    ThemisError,
    UnavailableError,
)
from themis.service.persistence.store import schema
from themis.service.persistence.store.disk_reserve import DEFAULT_BYTES, Reserve
from themis.service.persistence.store.lock import FileLock
from themis.service.persistence.store.schema import Row
from themis.service.persistence.store.snapshot_log import state_of
from themis.service.persistence.store.sql import Store

QUICK_CHECK_BYTES = 256 * 2**20
"""Up to this size all of a file is checked when it is opened; of a larger one not the old log."""

_OLDEST_SQLITE = (3, 37)
"""The first with strict tables."""
_BUSY_SECONDS = 5.0
_PAGES_TO_SHRINK = 2000


class SqliteDatabase:
    """A connection to a file, with SQLite's errors as those of Themis."""

    types = {"integer": "INTEGER", "real": "REAL", "blob": "BLOB", "table": " STRICT"}  # noqa: RUF012 -- read-only by the protocol

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self.name = f"sqlite:///{path}"
        mode = "ro" if read_only else "rw"
        with self._mapped_errors():
            self.connection = sqlite3.connect(
                f"file:{quote(str(path))}?mode={mode}",
                uri=True,
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                # Opened on one thread, used on another; never on two at a time.
                check_same_thread=False,
            )

    def run(self, sql: str, values: Sequence[object] = ()) -> int:
        """See `Database.run`."""
        with self._mapped_errors():
            return self.connection.execute(sql, values).rowcount

    def run_many(self, sql: str, rows: Sequence[Sequence[object]]) -> int:
        """See `Database.run_many`."""
        if not rows:
            return 0
        with self._mapped_errors():
            return self.connection.executemany(sql, rows).rowcount

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """See `Database.rows`."""
        with self._mapped_errors():
            return self.connection.execute(sql, values).fetchall()

    def has_table(self, name: str) -> bool:
        """See `Database.has_table`."""
        return name in self.tables()

    def tables(self) -> set[str]:
        """Names of all tables."""
        return {name for (name,) in self.rows("SELECT name FROM sqlite_schema")}

    @contextmanager
    def writing(self) -> Iterator[None]:
        """See `Database.writing`."""
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            self._undo()
            raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        """See `Database.reading`."""
        self.run("BEGIN")
        try:
            yield
        finally:
            self._undo()

    def _undo(self) -> None:
        # SQLite undoes by itself after some errors.
        if self.connection.in_transaction:
            self.run("ROLLBACK")

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _mapped(error, self.name) from error

    def copy_to(self, other: "SqliteDatabase") -> None:
        """Copy every page, as of one moment, while others write."""
        with other._mapped_errors():
            self.connection.backup(other.connection)

    def give_back(self, pages: int) -> None:
        """Make the file shorter by so many unused pages; outside a transaction."""
        with self._mapped_errors():
            # `execute` would take one step of a statement without columns, and that is one page.
            self.connection.executescript(f"PRAGMA incremental_vacuum({pages})")

    def check(self, pragma: str) -> None:
        """Ask SQLite about damage, with `quick_check` or `integrity_check`.

        Raises:
            CorruptStoreError: It found some.
        """
        found = [line for (line,) in self.rows(f"PRAGMA {pragma}")]
        if found != ["ok"]:
            raise CorruptStoreError(self.name, str(found[0]).replace("\n", " "))

    def close(self) -> None:
        """Close the file."""
        with suppress(sqlite3.Error):
            self.connection.close()


def _mapped(error: sqlite3.Error, name: str) -> ThemisError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    # The wal-index grows in a file of its own, and that has no error code for a full disk.
    if code == sqlite3.SQLITE_IOERR_SHMSIZE:
        code = sqlite3.SQLITE_FULL
    match code & 0xFF:
        case sqlite3.SQLITE_FULL:
            return StoreFullError(name, "the disk is full")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return CorruptStoreError(name, str(error))
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return UnavailableError(f"{name}: another program writes to it ({error})")
        case sqlite3.SQLITE_CONSTRAINT:
            return InvariantError(f"{name}: {error}")
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return ConfigError("store", name, f"a file that can be written ({error})")
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_NOMEM:
            # After a failed fsync the kernel may have dropped what was to be written, and a second
            # fsync would say that all is well.
            named = getattr(error, "sqlite_errorname", "")
            return FatalStoreError(name, f"{error} ({named}); what is on disk is not known")
        case _:
            return InvariantError(f"{name}: {error}")


class SqliteStore(Store):
    """See `Store`. Made by `open_store`."""

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        read_only: bool = False,
        reserve_bytes: int = DEFAULT_BYTES,
    ) -> None:
        # A link would give the lock another name than the file has for others.
        self._path = Path(os.path.realpath(path))
        self._lock: FileLock | None = None
        self._reserve: Reserve | None = None
        if read_only:
            self._sqlite = _opened_to_read(self._path)
        else:
            self._lock = FileLock.take(beside(self._path, ".lock"), f"sqlite:///{self._path}")
            try:
                self._reserve = Reserve(beside(self._path, ".reserve"), reserve_bytes)
                self._sqlite = self._opened_with(self._reserve)
            except BaseException:
                self._lock.release()
                raise
        super().__init__(self._sqlite, read_only=read_only)

    def _opened_with(self, reserve: Reserve) -> SqliteDatabase:
        try:
            database = _opened_to_write(self._path)
        except StoreFullError:
            # A service that was killed on a full disk starts again on it.
            if not reserve.release():
                raise
            database = _opened_to_write(self._path)
        reserve.has_room()
        return database

    def close(self) -> None:
        """See `Store.close`."""
        self._sqlite.close()
        if self._lock is not None:
            self._lock.release()

    def backup(self, path: str | PathLike[str]) -> None:
        """See `Store.backup`."""
        # Late: only backups need it.
        from themis.service.persistence.store.backup import back_up_sqlite  # noqa: PLC0415

        back_up_sqlite(self._path, Path(path))

    def _admit(self) -> None:
        if self._reserve is not None and not self._reserve.has_room():
            free, size = self._reserve.free_bytes() >> 20, self._reserve.size >> 20
            held = "besides" if self._reserve.held else "and the same again for"
            raise StoreFullError(
                self.url,
                f"the disk is nearly full ({free} MiB free); nothing new is taken below {size} MiB "
                f"{held} the reserve",
            )

    def _make_room(self) -> bool:
        return self._reserve is not None and self._reserve.release()

    def _room(self) -> tuple[int | None, bool]:
        if self._reserve is None:
            disk = os.statvfs(self._path.parent)
            return disk.f_bavail * disk.f_frsize, beside(self._path, ".reserve").exists()
        return self._reserve.free_bytes(), self._reserve.held

    def _size(self) -> int:
        files = (self._path, beside(self._path, "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def _shrink(self) -> None:
        ((unused,),) = self._sqlite.rows("PRAGMA freelist_count")
        ((pages,),) = self._sqlite.rows("PRAGMA page_count")
        if unused > max(_PAGES_TO_SHRINK, pages // 4):
            # A part of them, so that commits do not wait long; pruning comes again.
            with suppress(StoreFullError):
                self._sqlite.give_back(_PAGES_TO_SHRINK)

    def _check_pages(self) -> None:
        self._sqlite.check("integrity_check")


def beside(path: Path, suffix: str) -> Path:
    """The file with this ending that belongs to a store."""
    return path.with_name(path.name + suffix)


def _opened_to_read(path: Path) -> SqliteDatabase:
    if not path.is_file():
        raise MissingFileError("store", str(path))
    database = SqliteDatabase(path, read_only=True)
    try:
        schema.refuse_unreadable(database)
    except BaseException:
        database.close()
        raise
    return database


def _opened_to_write(path: Path) -> SqliteDatabase:
    _prepare_file(path)
    database = SqliteDatabase(path)
    try:
        _refuse_others(database)
        _check_at_start(database)
        _set_up(database)
        schema.migrate(database)
        # What an earlier process wrote to the log and not to the file is written anew.
        database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    except BaseException:
        database.close()
        raise
    return database


def _prepare_file(path: Path) -> None:
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        oldest = ".".join(map(str, _OLDEST_SQLITE))
        raise ConfigError("SQLite", sqlite3.sqlite_version, f"{oldest} or newer in this Python")
    if not path.parent.is_dir():
        raise ConfigError("store", str(path), f"a file in a folder that is there ({path.parent})")
    if path.is_file() and path.stat().st_size > 0:
        return
    log = beside(path, "-wal")
    if log.exists() and log.stat().st_size > 0:
        raise CorruptStoreError(
            f"sqlite:///{path}", f"{log.name} is there and {path.name} is not, or is empty"
        )
    try:
        # It holds secrets of tenants; SQLite gives the files beside it the same mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        sync_folder(path.parent)
    except OSError as error:
        raise ConfigError("store", str(path), f"a writable file ({error.strerror})") from error


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_others(database: SqliteDatabase) -> None:
    """Refuse a file that is no store, too new, or a backup, before anything is written."""
    found = schema.version_of(database)
    if found == 0 and database.tables():
        raise ConfigError(
            "store", str(database.path), "a store of Themis, or a file that is not there"
        )
    schema.refuse_newer(found, database.name)
    if found == schema.VERSION and state_of(database).is_backup:
        raise StoreError(
            database.name,
            "a backup, and leases may have been granted since it was made; "
            "`themis restore` makes a store of it",
        )


def _set_up(database: SqliteDatabase) -> None:
    # Counts only before there is a table, and only before WAL.
    database.run("PRAGMA auto_vacuum = INCREMENTAL")
    ((mode,),) = database.rows("PRAGMA journal_mode = WAL")
    if mode != "wal":
        raise ConfigError("store", str(database.path), f"a disk where WAL works (got {mode!r})")
    database.run("PRAGMA synchronous = FULL")
    database.run("PRAGMA foreign_keys = ON")
    database.run("PRAGMA temp_store = MEMORY")
    # A checkpoint needs room for the whole log, also when the disk is full: the log has to stay
    # small beside the reserve.
    database.run("PRAGMA wal_autocheckpoint = 250")
    database.run(f"PRAGMA journal_size_limit = {4 * 2**20}")


def _check_at_start(database: SqliteDatabase) -> None:
    small = database.path.stat().st_size <= QUICK_CHECK_BYTES
    names = [""] if small else [f"({name})" for name in schema.TABLES if name != "entries"]
    for name in names:
        database.check(f"quick_check{name}")
