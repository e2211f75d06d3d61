"""Stores by their URL: `sqlite:///PATH` or `postgresql://...`."""

import time
from os import PathLike
from pathlib import Path

from themis.errors import ConfigError
from themis.service.persistence.store.base import Epoch
from themis.service.persistence.store.disk_reserve import DEFAULT_BYTES
from themis.service.persistence.store.sql import Store

SQLITE = "sqlite:///"
POSTGRES = ("postgresql://", "postgres://")
ALLOWED = "sqlite:///relative/path, sqlite:////absolute/path or postgresql://user@host/database"


def open_store(url: str, *, read_only: bool = False, reserve_bytes: int = DEFAULT_BYTES) -> Store:
    """Open a store; makes one if there is none, and migrates an older one.

    Args:
        url: Where it is.
        read_only: For tools: takes no lock and changes nothing, and may be beside a service.
        reserve_bytes: Of disk held back for what is essential; 0 for none. SQLite only.

    Raises:
        StoreLockedError: Another service has it.
        CorruptStoreError: It is damaged; it is left as it is.
        StoreVersionError: It was written by a newer Themis.
        StoreError: It is a backup.
        ConfigError: There is no such store, or it cannot be written.
    """
    path = sqlite_path(url)
    if path is not None:
        # Late: each kind of store is loaded only where it is used.
        from themis.service.persistence.store.sqlite import SqliteStore  # noqa: PLC0415

        return SqliteStore(path, read_only=read_only, reserve_bytes=reserve_bytes)
    from themis.service.persistence.store.postgres import PostgresStore  # noqa: PLC0415

    return PostgresStore(url, read_only=read_only)


def restore(backup: str | PathLike[str], url: str, *, now: float | None = None) -> Epoch:
    """Make a store of a backup, also one of the other kind or of an older version.

    Services went on after the backup was made, and used epochs and tokens that it does not know. So
    both jump to numbers made from the time of day, which no service can have reached by counting.

    Args:
        backup: A file that `Store.backup` wrote.
        url: Where to; there must be no store yet.
        now: Seconds since 1970; the clock's if not given.

    Returns:
        An epoch that no service runs: the next start is above it.

    Raises:
        ConfigError: There is a store already, or no backup.
        CorruptStoreError: The backup is damaged.
    """
    from themis.service.persistence.store import backup as copying  # noqa: PLC0415

    moment = time.time() if now is None else now
    path = sqlite_path(url)
    if path is not None:
        return copying.restore_sqlite(Path(backup), path, moment)
    from themis.service.persistence.store.postgres import restore_postgres  # noqa: PLC0415

    return restore_postgres(Path(backup), url, moment)


def sqlite_path(url: str) -> Path | None:
    """The file that a URL names; None if it names a PostgreSQL database.

    Raises:
        ConfigError: It names neither.
    """
    if url.startswith(POSTGRES):
        return None
    if not url.startswith(SQLITE) or url == SQLITE:
        raise ConfigError("store", url, ALLOWED)
    return Path(url.removeprefix(SQLITE))


def is_new(url: str) -> bool:
    """Whether opening this store would make a file.

    Raises:
        ConfigError: The URL names no store.
    """
    path = sqlite_path(url)
    return path is not None and not path.exists()
