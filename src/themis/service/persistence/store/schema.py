"""The tables, and the steps that bring a store to them.

A new store takes all the steps, an older one those that it lacks, in one transaction.
"""

import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from themis.errors import ConfigError, CorruptStoreError, StoreVersionError

VERSION = 1
"""What this version of Themis reads and writes."""

TABLES: dict[str, tuple[str, ...]] = {
    "epochs": ("number", "version", "seed", "first_token", "first_entry"),
    "entries": ("number", "epoch", "at", "body", "parts", "total"),
    "parts": ("name", "body"),
    "kept": ("name", "body"),
    "leases": ("token", "gpu", "app", "state", "begins", "ends", "ended_at", "reason"),
    "audit": ("number", "at", "who", "verb", "target", "outcome", "detail"),
    "state": (
        *("one", "epoch", "highest_token", "last_entry", "last_at", "log_total"),
        *("snapshot_entry", "last_audit", "is_backup"),
    ),
}
"""Columns, the first of them the primary key; in an order that respects foreign keys."""

PAGE = 500
"""Rows read at a time."""

Row = tuple[Any, ...]


class Database(Protocol):
    """A connection that hides the differences between databases. Values are marked `?`."""

    @property
    def name(self) -> str:
        """Where it is, for messages."""

    @property
    def types(self) -> dict[str, str]:
        """Its names of `integer`, `real`, `blob`, and what follows a table's columns, `table`."""

    def run(self, sql: str, values: Sequence[object] = ()) -> int:
        """Run a statement; how many rows it changed."""

    def run_many(self, sql: str, rows: Sequence[Sequence[object]]) -> int:
        """Run a statement once for each row of values; how many rows it changed in all."""

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """The rows that a query finds."""

    def has_table(self, name: str) -> bool:
        """Whether there is such a table."""

    def writing(self) -> AbstractContextManager[None]:
        """An exclusive write transaction: durable after the block, or undone."""

    def reading(self) -> AbstractContextManager[None]:
        """A transaction that sees everything as of one moment."""


def packed(text: str) -> bytes:
    """Smaller, and with a checksum: a flipped bit is noticed when it is read."""
    return zlib.compress(text.encode())


def unpacked(data: bytes, where: str, what: str) -> str:
    """The text again.

    Raises:
        CorruptStoreError: It is not what was written.
    """
    try:
        return zlib.decompress(data).decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise CorruptStoreError(where, f"{what}: {error}") from error


def version_of(database: Database) -> int:
    """The version of the tables that are there; 0 if there are none."""
    if not database.has_table("schema_version"):
        return 0
    found = database.rows("SELECT version FROM schema_version")
    if len(found) != 1:
        raise CorruptStoreError(database.name, "it does not say which schema version it has")
    return int(found[0][0])


def refuse_newer(version: int, where: str) -> None:
    """Stop before anything is written to a store that this version does not know.

    Raises:
        StoreVersionError: It is newer.
    """
    if version > VERSION:
        raise StoreVersionError(
            where,
            f"written by a newer Themis (schema {version}; this one knows up to {VERSION}); "
            "use that version or a newer one",
        )


def refuse_unreadable(database: Database) -> None:
    """Stop before a store of another version is read.

    Raises:
        ConfigError: It is no store.
        StoreVersionError: It is newer.
    """
    found = version_of(database)
    if found == 0:
        raise ConfigError("store", database.name, "a store of Themis")
    refuse_newer(found, database.name)


def migrate(database: Database) -> None:
    """Bring the tables up to date, in one transaction."""
    found = version_of(database)
    refuse_newer(found, database.name)
    if found < VERSION:
        with database.writing():
            for step in _STEPS[found:]:
                step(database)
            database.run("DELETE FROM schema_version")
            database.run("INSERT INTO schema_version (version) VALUES (?)", (VERSION,))


def _create(database: Database) -> None:
    """Version 1."""
    kinds = database.types
    integer, real, blob, table = kinds["integer"], kinds["real"], kinds["blob"], kinds["table"]
    for sql in (
        f"CREATE TABLE schema_version (version {integer} NOT NULL){table}",
        f"""CREATE TABLE epochs (
            number {integer} PRIMARY KEY, version TEXT NOT NULL, seed {integer} NOT NULL,
            first_token {integer} NOT NULL, first_entry {integer} NOT NULL){table}""",
        f"""CREATE TABLE entries (
            number {integer} PRIMARY KEY, epoch {integer} NOT NULL REFERENCES epochs (number),
            at {real} NOT NULL, body {blob} NOT NULL, parts {blob} NOT NULL,
            total {integer} NOT NULL){table}""",
        f"CREATE TABLE parts (name TEXT PRIMARY KEY, body {blob} NOT NULL){table}",
        f"CREATE TABLE kept (name TEXT PRIMARY KEY, body {blob} NOT NULL){table}",
        f"""CREATE TABLE leases (
            token {integer} PRIMARY KEY, gpu {integer} NOT NULL, app TEXT NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('promised', 'active', 'fencing', 'ended')),
            begins {real} NOT NULL, ends {real} NOT NULL, ended_at {real},
            reason TEXT NOT NULL DEFAULT '',
            CHECK ((state = 'ended') = (ended_at IS NOT NULL))){table}""",
        """CREATE UNIQUE INDEX one_holder ON leases (gpu)
            WHERE state IN ('active', 'fencing')""",
        "CREATE INDEX open_leases ON leases (token) WHERE state <> 'ended'",
        "CREATE INDEX ended_leases ON leases (ended_at) WHERE state = 'ended'",
        f"""CREATE TABLE audit (
            number {integer} PRIMARY KEY, at {real} NOT NULL, who TEXT NOT NULL,
            verb TEXT NOT NULL, target TEXT NOT NULL, outcome TEXT NOT NULL,
            detail TEXT NOT NULL){table}""",
        f"""CREATE TABLE state (
            one {integer} PRIMARY KEY CHECK (one = 1), epoch {integer} NOT NULL,
            highest_token {integer} NOT NULL, last_entry {integer} NOT NULL,
            last_at {real} NOT NULL, log_total {integer} NOT NULL,
            snapshot_entry {integer} NOT NULL, last_audit {integer} NOT NULL,
            is_backup {integer} NOT NULL DEFAULT 0){table}""",
        "INSERT INTO state VALUES (1, 0, 0, 0, 0.0, 0, 0, 0, 0)",
    ):
        database.run(sql)


_STEPS: tuple[Callable[[Database], None], ...] = (_create,)
