"""The durable store: the state that survives the service, in SQLite or PostgreSQL.

    with open_store("sqlite:////var/lib/themis/store.sqlite") as store:
        saved = store.load()
        store.begin_epoch(themis.__version__, seed=1)
        store.commit(Batch(entries=(LogEntry(at, body, {"app/sweep": part}),)))

Commit before telling anyone: a batch is on disk when `commit` returns, and not at all if it raises.
"""

from themis.security.audit import AuditRow
from themis.service.persistence.store.base import (
    Batch,
    EndedLease,
    Epoch,
    LeaseRow,
    LeaseState,
    LogEntry,
    Pruned,
    Saved,
    StoredEntry,
    StoreSize,
)
from themis.service.persistence.store.sql import Store
from themis.service.persistence.store.urls import is_new, open_store, restore

__all__ = [
    "AuditRow",
    "Batch",
    "EndedLease",
    "Epoch",
    "LeaseRow",
    "LeaseState",
    "LogEntry",
    "Pruned",
    "Saved",
    "Store",
    "StoreSize",
    "StoredEntry",
    "is_new",
    "open_store",
    "restore",
]
