"""The table of leases: no GPU twice, no token twice, and no lease that has ended comes back."""

from collections.abc import Sequence

from themis.errors import CorruptStoreError, InvariantError
from themis.service.persistence.store.base import Batch, EndedLease, LeaseRow, LeaseState
from themis.service.persistence.store.schema import Database

_READ = "SELECT token, gpu, app, state, begins, ends FROM leases"


def write(database: Database, batch: Batch, highest: int) -> int:
    """Write the leases of a batch; the highest token there is now.

    Args:
        database: Inside its transaction.
        batch: Its leases as they are at its end; one that both began and ended in it is in both.
        highest: No earlier token is above it, so a higher token is a new lease.

    Raises:
        InvariantError: See `Store.commit`.
    """
    over = {end.token: end for end in batch.ended}
    new = {row.token: row for row in batch.leases if row.token > highest}
    known = [row for row in batch.leases if row.token <= highest and row.token not in over]
    for token in over:
        if token > highest and token not in new:
            raise InvariantError(f"lease {token} ends and was never granted")
    # Ended ones first: a GPU goes from one holder to the next within a batch.
    _end(database, [end for end in batch.ended if end.token <= highest])
    database.run_many(
        "INSERT INTO leases (token, gpu, app, state, begins, ends, ended_at, reason) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [_values(row, over.get(row.token)) for row in new.values()],
    )
    _change(database, known)
    return max((highest, *new))


def _values(row: LeaseRow, end: EndedLease | None) -> tuple[object, ...]:
    state = str(row.state) if end is None else str(LeaseState.ENDED)
    ended_at, reason = (None, "") if end is None else (end.at, end.reason)
    return (row.token, row.gpu, row.app, state, row.begins, row.ends, ended_at, reason)


def _end(database: Database, ends: Sequence[EndedLease]) -> None:
    changed = database.run_many(
        "UPDATE leases SET state = 'ended', ended_at = ?, reason = ? "
        "WHERE token = ? AND state <> 'ended'",
        [(end.at, end.reason, end.token) for end in ends],
    )
    if changed != len(ends):
        for end in ends:
            if not database.rows("SELECT token FROM leases WHERE token = ?", (end.token,)):
                raise InvariantError(f"lease {end.token} ends and was never granted")


def _change(database: Database, rows: Sequence[LeaseRow]) -> None:
    changed = database.run_many(
        "UPDATE leases SET state = ?, begins = ?, ends = ? "
        "WHERE token = ? AND gpu = ? AND app = ? AND state <> 'ended'",
        [(str(row.state), row.begins, row.ends, row.token, row.gpu, row.app) for row in rows],
    )
    if changed != len(rows):
        raise InvariantError(_why_not(database, rows))


def _why_not(database: Database, rows: Sequence[LeaseRow]) -> str:
    for row in rows:
        found = database.rows(f"{_READ} WHERE token = ?", (row.token,))
        if not found:
            return f"token {row.token} is not above all earlier ones, and is no lease"
        there = _row(found[0])
        if there.state is LeaseState.ENDED:
            return f"lease {row.token} has ended and cannot become {row.state}"
        if (there.gpu, there.app) != (row.gpu, row.app):
            return (
                f"lease {row.token} is of GPU {there.gpu} for {there.app}, "
                f"not of GPU {row.gpu} for {row.app}"
            )
    return "leases changed while they were written"


def read(database: Database, *, ended: bool) -> tuple[LeaseRow, ...]:
    """Leases by token, with those that have ended or without."""
    only = "" if ended else " WHERE state <> 'ended'"
    return tuple(_row(row) for row in database.rows(f"{_READ}{only} ORDER BY token"))


def _row(row: tuple[int, int, str, str, float, float]) -> LeaseRow:
    token, gpu, app, state, begins, ends = row
    return LeaseRow(token, gpu, app, LeaseState(state), begins, ends)


def check(database: Database, highest: int) -> None:
    """Check what the index guarantees.

    Raises:
        CorruptStoreError: A GPU has two holders, or a token is higher than the highest.
    """
    twice = database.rows(
        "SELECT gpu FROM leases WHERE state IN ('active', 'fencing') "
        "GROUP BY gpu HAVING count(*) > 1 ORDER BY gpu"
    )
    if twice:
        raise CorruptStoreError(database.name, f"GPU {twice[0][0]} has two holders")
    above = database.rows("SELECT token FROM leases WHERE token > ? LIMIT 1", (highest,))
    if above:
        raise CorruptStoreError(database.name, f"lease {above[0][0]} is above the highest token")
