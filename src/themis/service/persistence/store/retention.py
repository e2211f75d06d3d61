"""Retention: what is pruned when entries are too old or the log too large."""

from collections.abc import Callable

from themis.service.persistence.store.schema import Database

_BEFORE = "total - length(body) - length(parts)"
"""Bytes of all entries before one."""


def entries_to_prune(
    database: Database,
    *,
    last: int,
    log_total: int,
    older_than: float | None,
    keep_bytes: int | None,
) -> tuple[int, int]:
    """The first entry there is, and the first one that stays.

    Times and running totals only grow along the log, so a binary search finds the place.

    Args:
        database: Inside a transaction.
        last: Nothing after this entry may go.
        log_total: Bytes of all entries ever written.
        older_than: Entries from before this time go.
        keep_bytes: How much those that stay may hold.
    """
    ((found,),) = database.rows("SELECT min(number) FROM entries")
    first = last + 1 if found is None else int(found)

    def column(what: str, number: int) -> float:
        ((value,),) = database.rows(f"SELECT {what} FROM entries WHERE number = ?", (number,))
        return float(value)

    stop = first
    if older_than is not None:
        stop = _first_that_stays(stop, last, lambda number: column("at", number) < older_than)
    if keep_bytes is not None:
        # An entry goes if it and all later ones are too much.
        before = log_total - keep_bytes
        stop = _first_that_stays(stop, last, lambda number: column(_BEFORE, number) < before)
    return first, stop


def _first_that_stays(low: int, last: int, goes: Callable[[int], bool]) -> int:
    high = last + 1
    while low < high:
        middle = (low + high) // 2
        if goes(middle):
            low = middle + 1
        else:
            high = middle
    return low


def remove_entries(database: Database, before: int) -> int:
    """Remove entries with lower numbers; how many."""
    return database.run("DELETE FROM entries WHERE number < ?", (before,))


def remove_leases(database: Database, older_than: float | None) -> int:
    """Remove leases that ended before this time; how many. The highest token is kept elsewhere."""
    if older_than is None:
        return 0
    return database.run("DELETE FROM leases WHERE state = 'ended' AND ended_at < ?", (older_than,))


def remove_audit(database: Database, older_than: float | None) -> int:
    """Remove audit rows from before this time; how many."""
    if older_than is None:
        return 0
    return database.run("DELETE FROM audit WHERE at < ?", (older_than,))
