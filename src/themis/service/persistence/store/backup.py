"""Backups and restores: the backup of any store is one SQLite file.

So any SQLite tool can read a backup, and it can be restored without the database that it came from,
or from SQLite to PostgreSQL and back.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from themis.errors import (
    ConfigError,
    CorruptStoreError,
    FatalStoreError,
    MissingFileError,
    UnavailableError,
)
from themis.service.persistence.store import schema
from themis.service.persistence.store.base import Epoch
from themis.service.persistence.store.lock import FileLock
from themis.service.persistence.store.schema import PAGE, TABLES, Database
from themis.service.persistence.store.snapshot_log import state_of
from themis.service.persistence.store.sqlite import SqliteDatabase, SqliteStore, beside, sync_folder

TOKENS_A_SECOND = 2**20
"""No service grants as many, so tokens made from the time of a restore are above all tokens before
it. They stay below 2^53, which every reader of JSON can hold, for 200 years."""

_EARLIEST = 1_600_000_000
"""In 2020, before there were stores. A clock that says less is wrong."""

_COMPANIONS = ("-wal", "-shm", "-journal")


# Backups


def back_up_sqlite(source: Path, target: Path) -> None:
    """Copy a store that may be in use.

    Raises:
        ConfigError: There is a file already, or it cannot be written.
        CorruptStoreError: The store is damaged; there is no backup.
        UnavailableError: The disk is full or fails; there is no backup.
    """

    def fill(draft: SqliteDatabase) -> None:
        with closing(SqliteDatabase(source, read_only=True)) as database:
            database.copy_to(draft)

    _back_up(fill, target)


def back_up_rows(source: Database, target: Path) -> None:
    """Copy a store of another kind, row by row, as of one moment; raises as the other one."""

    def fill(draft: SqliteDatabase) -> None:
        schema.migrate(draft)
        with source.reading(), draft.writing():
            copy_tables(source, draft)

    _back_up(fill, target)


def _back_up(fill: Callable[[SqliteDatabase], None], target: Path) -> None:
    if target.exists():
        raise ConfigError("backup", str(target), "a file that is not there")
    with _draft(beside(target, ".partial")) as path:
        with closing(SqliteDatabase(path)) as draft:
            fill(draft)
            # One file, without companions that could be forgotten in a copy.
            draft.rows("PRAGMA journal_mode = DELETE")
            draft.run("UPDATE state SET is_backup = 1")
        with SqliteStore(path, read_only=True) as written:
            written.check()
        _publish(path, target, "backup")


@contextmanager
def _draft(path: Path) -> Iterator[Path]:
    """An empty file for a copy; it is removed afterwards in any case."""
    _remove(path)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise ConfigError("backup", str(path), f"a writable file ({error.strerror})") from error
    try:
        yield path
    except FatalStoreError as error:
        # A failure of the copy only: the service and its store go on.
        raise UnavailableError(f"copying failed: {error}") from error
    finally:
        _remove(path)


def _remove(path: Path) -> None:
    for file in (path, *(beside(path, suffix) for suffix in _COMPANIONS)):
        file.unlink(missing_ok=True)


def _publish(draft: Path, target: Path, key: str) -> None:
    """Give a finished copy its name, unless there is a file of that name by now."""
    with draft.open("rb+") as file:
        os.fsync(file.fileno())
    try:
        os.link(draft, target)
    except FileExistsError:
        raise ConfigError(key, str(target), "a file that is not there") from None
    except OSError:
        # A disk without links. The lock keeps two restores apart.
        draft.rename(target)
    sync_folder(target.parent)


# Restoring


def restore_sqlite(backup: Path, path: Path, now: float) -> Epoch:
    """See `restore`."""
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise ConfigError("store", str(path), f"a file in a folder that is there ({path.parent})")
    lock = FileLock.take(beside(path, ".lock"), f"sqlite:///{path}")
    try:
        _refuse_to_overwrite(path)
        with _draft(beside(path, ".restoring")) as draft:
            epoch = copy_of_backup(backup, draft, now)
            _publish(draft, path, "store")
    finally:
        lock.release()
    return epoch


def _refuse_to_overwrite(path: Path) -> None:
    # SQLite would apply a log that another file left behind.
    for file in (path, *(beside(path, suffix) for suffix in _COMPANIONS)):
        if file.exists():
            raise ConfigError("store", str(file), "a file that is not there; move it away first")


def copy_of_backup(backup: Path, draft: Path, now: float) -> Epoch:
    """Fill an empty file with a backup that is checked, migrated and fenced.

    Raises:
        ConfigError: It is no backup.
        CorruptStoreError: It is damaged.
        StoreVersionError: It is of a newer Themis.
    """
    if not backup.is_file():
        raise MissingFileError("backup", str(backup))
    if now < _EARLIEST:
        raise ConfigError("clock", now, "the time of day: tokens after a restore are made from it")
    try:
        # Through SQLite and not as bytes: it may be a copy of a store with its log.
        with (
            closing(SqliteDatabase(backup, read_only=True)) as source,
            closing(SqliteDatabase(draft)) as copy,
        ):
            source.copy_to(copy)
        return _made_a_store(draft, backup, now)
    except CorruptStoreError as error:
        raise CorruptStoreError(str(backup), error.damage, "take another backup") from error


def _made_a_store(draft: Path, backup: Path, now: float) -> Epoch:
    with closing(SqliteDatabase(draft)) as database:
        database.check("integrity_check")
        if schema.version_of(database) == 0:
            raise ConfigError("backup", str(backup), "a backup of a store of Themis")
        database.rows("PRAGMA journal_mode = DELETE")
        database.run("PRAGMA synchronous = FULL")
        schema.migrate(database)
        epoch = _fence(database, now)
    with SqliteStore(draft, read_only=True) as store:
        store.check()
    return epoch


def _fence(database: Database, now: float) -> Epoch:
    """Raise epoch and tokens above all that a service can have used since."""
    with database.writing():
        state = state_of(database)
        number = max(state.epoch, int(now)) + 1
        first_token = max(state.highest_token, int(now) * TOKENS_A_SECOND) + 1
        epoch = Epoch(number, "restore", 0, first_token, state.last_entry + 1)
        database.run(
            "INSERT INTO epochs VALUES (?, ?, ?, ?, ?)",
            (number, epoch.version, epoch.seed, first_token, epoch.first_entry),
        )
        database.run(
            "UPDATE state SET epoch = ?, highest_token = ?, last_audit = last_audit + 1, "
            "is_backup = 0",
            (number, first_token - 1),
        )
        database.run(
            "INSERT INTO audit VALUES (?, ?, 'themis', 'restore', 'store', 'done', ?)",
            (state.last_audit + 1, state.last_at, f"from epoch {state.epoch} to {number}"),
        )
    return epoch


def copy_tables(source: Database, target: Database) -> None:
    """Copy all rows into tables that are empty; both inside transactions."""
    target.run("DELETE FROM state")
    for table, columns in TABLES.items():
        names, key = ", ".join(columns), columns[0]
        marks = ", ".join("?" * len(columns))
        rows = source.rows(f"SELECT {names} FROM {table} ORDER BY {key} LIMIT ?", (PAGE,))
        while rows:
            target.run_many(f"INSERT INTO {table} ({names}) VALUES ({marks})", rows)
            rows = source.rows(
                f"SELECT {names} FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT ?",
                (rows[-1][0], PAGE),
            )
