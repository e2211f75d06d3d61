"""A store against the model of one, under any sequence of what a service does with it."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.requirements import examples
from themis.errors import InvariantError
from themis.service.persistence.store import (
    AuditRow,
    Batch,
    EndedLease,
    LeaseRow,
    LeaseState,
    LogEntry,
)
from themis.service.persistence.store.sqlite import SqliteStore
from themis.testing.store_model import HOLDING, StoreModel

GPUS = st.integers(0, 3)
NAMES = st.sampled_from(["app/a", "app/b", "gpu/0", "clock"])
# Half a surrogate pair is no text; everything else may be in a name or a body.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
CHANGES = st.dictionaries(NAMES, st.none() | TEXTS, max_size=3)


class StoreMachine(RuleBasedStateMachine):
    """What is committed is there, whatever else is done in between."""

    def __init__(self) -> None:
        super().__init__()
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = tempfile.TemporaryDirectory(dir=memory)
        self.path = Path(self.folder.name) / "store.sqlite"
        self.model = StoreModel()
        self.token = 0
        self.at = 0.0
        self.backups = 0

    @initialize()
    def open(self) -> None:
        self.store = SqliteStore(self.path, reserve_bytes=0)
        epoch = self.store.begin_epoch("1.0", seed=1)
        assert epoch.first_token == self.token + 1

    def holder(self, gpu: int) -> LeaseRow | None:
        held = [row for row in self.model.leases.values() if row.gpu == gpu]
        return next((row for row in held if row.state in HOLDING), None)

    def commit(self, batch: Batch) -> None:
        number = self.store.commit(batch)
        self.model.take(batch)
        assert number == len(self.model.entries)

    @rule(changes=st.lists(CHANGES, max_size=3), kept=CHANGES, body=TEXTS)
    def log(
        self, changes: list[dict[str, str | None]], kept: dict[str, str | None], body: str
    ) -> None:
        self.at += 1.0
        self.commit(
            Batch(
                entries=tuple(LogEntry(self.at, body, parts) for parts in changes),
                audit=(AuditRow(self.at, "ann", "submit", body, "allowed"),),
                kept=kept,
            )
        )

    @rule(gpu=GPUS, app=st.sampled_from(["a", "b"]))
    def hand_over(self, gpu: int, app: str) -> None:
        present = self.holder(gpu)
        self.token += 1
        lease = LeaseRow(self.token, gpu, app, LeaseState.ACTIVE, self.at, self.at + 600.0)
        ended = (EndedLease(present.token, self.at),) if present else ()
        self.commit(Batch(leases=(lease,), ended=ended))

    @rule(gpu=GPUS, app=st.sampled_from(["a", "b"]), state=st.sampled_from(HOLDING))
    def give_twice(self, gpu: int, app: str, state: LeaseState) -> None:
        if self.holder(gpu) is not None:
            lease = LeaseRow(self.token + 1, gpu, app, state, self.at, self.at + 600.0)
            with pytest.raises(InvariantError):
                self.store.commit(Batch(leases=(lease,), kept={"twice": "1"}))

    @rule(token=st.integers(1, 40))
    def bring_back(self, token: int) -> None:
        row = self.model.leases.get(token)
        if token <= self.token and (row is None or row.state is LeaseState.ENDED):
            lease = LeaseRow(token, 9, "a", LeaseState.ACTIVE, self.at, self.at + 600.0)
            with pytest.raises(InvariantError):
                self.store.commit(Batch(leases=(lease,), kept={"again": "1"}))

    @rule()
    def snapshot(self) -> None:
        self.store.snapshot()

    @rule(keep=st.integers(0, 500), limit=st.integers(1, 5))
    def prune(self, keep: int, limit: int) -> None:
        pruned = self.store.prune(keep_bytes=keep, limit=limit)
        assert pruned.entries <= limit
        assert pruned.more or self.store.usage().log_bytes <= keep

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.open()

    @rule()
    def back_up(self) -> None:
        self.backups += 1
        path = self.path.with_name(f"backup{self.backups}")
        self.store.backup(path)
        with SqliteStore(path, read_only=True) as copy:
            assert self.model.differences(copy) == []

    @invariant()
    def everything_is_there(self) -> None:
        if hasattr(self, "store"):
            assert self.model.differences(self.store) == []

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.check()
            self.store.close()
        self.folder.cleanup()


StoreMachine.TestCase.settings = examples(25)
TestStore = StoreMachine.TestCase
