"""Commit before telling: one writer thread stores batches, and callbacks wait for them.

    queue.add(entry, kept, then=tell)       # `tell` is called once the entry is on disk
    await queue.settled()                   # everything added so far is durable

While the disk is busy, entries gather and are written together, so a slow disk makes larger
transactions, not a longer queue.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from themis.security.audit import AuditRow
from themis.service.persistence.store.base import Batch, EndedLease, LeaseRow, LogEntry
from themis.service.persistence.store.sql import Store

Rows = Mapping[str, str | None]
"""Rows to store by key; None removes one."""

Changes = tuple[Rows, tuple[LeaseRow, ...], tuple[EndedLease, ...]]
"""Parts of the arbiter's state that changed, leases that did, and leases that ended."""


@dataclass(slots=True)
class _Pending:
    entries: list[LogEntry] = field(default_factory=list)
    kept: dict[str, str | None] = field(default_factory=dict)
    audit: list[AuditRow] = field(default_factory=list)
    then: list[Callable[[], None]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.entries or self.kept or self.audit or self.then)


class CommitQueue:
    """Gathers what is to be stored, and calls back in order once it is durable."""

    def __init__(
        self, store: Store, changed: Callable[[], Changes], thread: Executor | None = None
    ) -> None:
        self._store = store
        self._changed = changed
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="themis-store")
        self._pending = _Pending()
        self._busy: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        """Calls of `settled` that wait."""
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        """Set when nothing can be stored any more: the service must end."""

    def add(
        self,
        entry: LogEntry | None = None,
        kept: Mapping[str, str | None] | None = None,
        audit: AuditRow | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Store something together with the state at that time; afterwards call `then`."""
        if self._busy is None and entry is None and not kept and audit is None:
            # Everything before is durable, and this needs no disk.
            if then is not None and not self.failed.done():
                then()
            return
        pending = self._pending
        if entry is not None:
            pending.entries.append(entry)
        pending.kept.update(kept or {})
        if audit is not None:
            pending.audit.append(audit)
        if then is not None:
            pending.then.append(then)
        if self._busy is None and not self.failed.done():
            self._busy = asyncio.create_task(self._write())

    async def settled(self) -> None:
        """Wait until everything that was added before is durable.

        Raises:
            ThemisError: Nothing can be stored any more.
        """
        if self.failed.done():
            raise self.failed.result()
        if self._busy is None:
            return  # Nothing is on its way to the disk.
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(done)
        try:
            self.add(then=partial(_set, done))
            await done
        finally:
            self._waiting.discard(done)

    async def apart(self, batch: Batch) -> None:
        """Store a batch that may be refused, before anything depends on it.

        Raises:
            ThemisError: It was not stored.
        """
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._store.commit, batch)

    async def run(self, work: Callable[[], object]) -> object:
        """Use the store for something else, between batches."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        """Write what is queued; the store itself stays open."""
        while self._busy is not None and not self.failed.done():
            either: set[asyncio.Future[Any]] = {self._busy, self.failed}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        self._thread.shutdown(wait=True)

    def fail(self, error: Exception) -> None:
        """Store nothing more: memory and disk differ, and only a new start helps."""
        if not self.failed.done():
            self.failed.set_result(error)
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(error)

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._pending and not self.failed.done():
                pending, self._pending = self._pending, _Pending()
                batch = self._batch(pending)
                if batch:
                    await loop.run_in_executor(self._thread, self._store.commit, batch)
                for then in pending.then:
                    then()
        except Exception as error:  # of any kind: what is on disk, or was told, is not known
            self.fail(error)
        self._busy = None

    def _batch(self, pending: _Pending) -> Batch:
        parts, leases, ended = self._changed() if pending.entries else ({}, (), ())
        entries = pending.entries
        if parts:
            # The state is that after the last entry; no reader sees one between.
            entries[-1] = replace(entries[-1], parts=parts)
        return Batch(tuple(entries), leases, ended, tuple(pending.audit), pending.kept)


def _set(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)


class DurableRows(Mapping[str, str]):
    """The service's own rows, as they are in memory. `keep` changes them here and in the store."""

    def __init__(self, rows: dict[str, str], queue: CommitQueue) -> None:
        self._rows = rows
        self._queue = queue

    def keep(self, changes: Rows) -> None:
        """Change rows, together with the next outcome that is stored."""
        for key, text in changes.items():
            if text is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = text
        if changes:
            self._queue.add(kept=changes)

    def __getitem__(self, key: str) -> str:
        return self._rows[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
