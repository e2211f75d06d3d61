"""What a store must hold after some batches: the same thing without a disk.

Model.after(batches).differences(store)      # [] if all is well
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from themis.service.persistence.store import (
    AuditRow,
    Batch,
    LeaseRow,
    LeaseState,
    LogEntry,
    Store,
)

HOLDING = (LeaseState.ACTIVE, LeaseState.FENCING)


@dataclass(slots=True)
class StoreModel:
    """What a store must hold, by the simplest means."""

    parts: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    leases: dict[int, LeaseRow] = field(default_factory=dict)
    """All, by token."""
    entries: list[LogEntry] = field(default_factory=list)
    audit: list[AuditRow] = field(default_factory=list)

    @classmethod
    def after(cls, batches: Iterable[Batch]) -> "StoreModel":
        """What must be there when all of these were committed to a new store."""
        model = cls()
        for batch in batches:
            model.take(batch)
        return model

    def take(self, batch: Batch) -> None:
        """Commit a batch."""
        self.entries += batch.entries
        self.audit += batch.audit
        for entry in batch.entries:
            _change(self.parts, entry.parts.items())
        _change(self.kept, batch.kept.items())
        self.leases |= {row.token: row for row in batch.leases}
        for end in batch.ended:
            self.leases[end.token] = replace(self.leases[end.token], state=LeaseState.ENDED)

    def differences(self, store: Store) -> list[str]:
        """What is not as it must be, in words; empty if all is well."""
        saved = store.load()
        everything = tuple(row for _, row in sorted(self.leases.items()))
        pairs: dict[str, tuple[object, object]] = {
            "parts": (saved.parts, self.parts),
            "kept": (saved.kept, self.kept),
            "leases": (store.leases(ended=True), everything),
            "open leases": (saved.leases, tuple(filter(_is_open, everything))),
            "next entry": (saved.next_entry, len(self.entries) + 1),
            "audit": ([row for _, row in store.audit(limit=10**6)], self.audit),
        }
        found = [f"{what}: {a!r}, not {b!r}" for what, (a, b) in pairs.items() if a != b]
        for stored in store.entries():
            expected = self.entries[stored.number - 1 : stored.number]
            if [stored.entry] != expected:
                found.append(f"entry {stored.number}: {stored.entry!r}, not {expected!r}")
        return found + holders_twice(store.leases())


def holders_twice(leases: Iterable[LeaseRow]) -> list[str]:
    """GPUs that have two holders, in words."""
    held = [row.gpu for row in leases if row.state in HOLDING]
    return [f"GPU {gpu} has two holders" for gpu in sorted(set(held)) if held.count(gpu) > 1]


def _is_open(row: LeaseRow) -> bool:
    return row.state is not LeaseState.ENDED


def _change(texts: dict[str, str], changes: Iterable[tuple[str, str | None]]) -> None:
    for name, text in changes:
        if text is None:
            texts.pop(name, None)
        else:
            texts[name] = text


def entry(at: float = 0.0, **parts: str | None) -> LogEntry:
    """An entry that changes parts."""
    return LogEntry(at, json.dumps({"at": at}), parts)


def lease(
    token: int, gpu: int = 0, app: str = "sweep", state: LeaseState = LeaseState.ACTIVE
) -> LeaseRow:
    """A lease of ten minutes."""
    return LeaseRow(token, gpu, app, state, 0.0, 600.0)


RICH = Batch(
    entries=(
        LogEntry(1.5, '{"app":"sweep","name":"\u00fc\u2603\\u0000"}', {"app/sweep": "{}"}),
        LogEntry(2.5, "x" * 100_000, {"app/sweep": '{"n":1}', "gpu/0": "[1]"}),
    ),
    leases=(lease(1), lease(2, gpu=1), lease(3, state=LeaseState.PROMISED)),
    audit=(AuditRow(1.5, "ann", "submit", "sweep", "allowed", "from 127.0.0.1"),),
    kept={"token/ann": "hash", "command/sweep": '["python","train.py"]'},
)
"""Something of everything."""
