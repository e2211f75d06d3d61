"""Snapshot and log: the state, folded from what was written about it.

Recovery reads outcomes and runs nothing: the snapshot holds every part of the state as of one
entry, and each later entry has the parts that it changed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from themis.errors import CorruptStoreError
from themis.service.persistence.store.schema import PAGE, TABLES, Database, packed, unpacked

_STATE = f"SELECT {', '.join(TABLES['state'][1:])} FROM state"


@dataclass(frozen=True, slots=True)
class StateRow:
    """The one row of the table `state`."""

    epoch: int
    highest_token: int
    last_entry: int
    last_at: float
    log_total: int
    """Bytes of all entries ever written."""
    snapshot_entry: int
    """The last entry that is part of the snapshot."""
    last_audit: int
    is_backup: int


def state_of(database: Database) -> StateRow:
    """Read the one row.

    Raises:
        CorruptStoreError: There is not exactly one.
    """
    found = database.rows(_STATE)
    if len(found) != 1:
        raise CorruptStoreError(database.name, f"{len(found)} rows in the table `state`, not one")
    return StateRow(*found[0])


def changed_parts(database: Database, state: StateRow) -> dict[str, str | None]:
    """The parts that the entries after the snapshot changed, as the last one left them.

    Raises:
        CorruptStoreError: An entry is missing.
    """
    changed: dict[str, str | None] = {}
    last = state.snapshot_entry
    while rows := database.rows(
        "SELECT number, parts FROM entries WHERE number > ? ORDER BY number LIMIT ?", (last, PAGE)
    ):
        for number, parts in rows:
            if number != last + 1:
                break
            last = number
            changed |= parts_from(parts, database.name, number)
        if last != rows[-1][0]:
            break
    if last != state.last_entry:
        raise CorruptStoreError(database.name, f"entry {last + 1} is missing")
    return changed


def parts_from(data: bytes, where: str, number: int) -> dict[str, str | None]:
    """The parts that an entry changed.

    Raises:
        CorruptStoreError: They cannot be read.
    """
    text = unpacked(data, where, f"parts of entry {number}")
    try:
        found: dict[str, str | None] = json.loads(text)
    except ValueError as error:
        raise CorruptStoreError(where, f"parts of entry {number}: {error}") from error
    return found


def parts_text(parts: Mapping[str, str | None]) -> str:
    """Changed parts as one text; the texts in it come back unchanged."""
    return json.dumps(dict(parts), separators=(",", ":"))


def texts_of(database: Database, table: str) -> dict[str, str]:
    """All that is in the table `parts` or `kept`, by name."""
    # Sorted here: databases disagree about the order of letters.
    rows = sorted(database.rows(f"SELECT name, body FROM {table}"))
    return {name: unpacked(body, database.name, f"{table} {name!r}") for name, body in rows}


def put_texts(database: Database, table: str, texts: Mapping[str, str | None]) -> None:
    """Write texts, or remove those that are None."""
    gone = [(name,) for name, text in texts.items() if text is None]
    database.run_many(f"DELETE FROM {table} WHERE name = ?", gone)
    new = [(name, packed(text)) for name, text in texts.items() if text is not None]
    database.run_many(
        f"INSERT INTO {table} (name, body) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET body = excluded.body",
        new,
    )
