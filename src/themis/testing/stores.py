"""What every store must keep to. A store of your own inherits the tests with one fixture.

    class TestMine(StoreContract):
        @pytest.fixture
        def url(self, tmp_path: Path) -> str:
            return f"sqlite:///{tmp_path}/store.sqlite"

Needs pytest, which `themis-scheduler[dev]` brings.
"""
# ruff: noqa: D102 -- names of tests are sentences

from dataclasses import replace
from pathlib import Path

import pytest

from themis.errors import (
    ConfigError,
    CorruptStoreError,
    FatalStoreError,
    InvariantError,
    StoreError,
    StoreLockedError,
    StoreVersionError,
)
from themis.service.persistence.store import (
    AuditRow,
    Batch,
    EndedLease,
    LeaseState,
    LogEntry,
    Store,
    open_store,
    restore,
)
from themis.testing.store_model import RICH, StoreModel, entry, lease

NOON = 1_800_000_000.0
"""A time of day for restores."""


def started(url: str) -> Store:
    """A store that is open and has begun an epoch."""
    store = open_store(url, reserve_bytes=0)
    store.begin_epoch("1.0", seed=7)
    return store


class StoreContract:
    """Subclasses supply `url`: of a store that is not there yet, another one in each test."""

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        raise NotImplementedError

    def lose_lock(self, store: Store) -> None:
        """Take the lock away from a store that is open."""
        raise NotImplementedError

    def run_sql(self, url: str, sql: str) -> None:
        """Change a store behind its back."""
        raise NotImplementedError

    # What goes in comes out

    def test_a_new_store_is_empty(self, url: str) -> None:
        with open_store(url, reserve_bytes=0) as store:
            saved = store.load()
            assert saved.epoch is None
            assert (saved.next_entry, saved.next_token, saved.last_at) == (1, 1, 0.0)
            assert StoreModel().differences(store) == []

    def test_everything_comes_back_after_the_store_was_closed(self, url: str) -> None:
        with started(url) as store:
            assert store.commit(RICH) == 2
        with open_store(url, reserve_bytes=0) as store:
            assert StoreModel.after([RICH]).differences(store) == []
            saved = store.load()
            assert saved.epoch is not None
            assert (saved.epoch.version, saved.epoch.seed) == ("1.0", 7)
            assert (saved.last_at, saved.next_token) == (2.5, 4)
            assert {stored.epoch for stored in store.entries()} == {saved.epoch.number}
            store.check()

    def test_later_changes_of_a_part_win_and_none_removes_it(self, url: str) -> None:
        batches = [
            Batch(entries=(entry(1.0, a="1", b="1"), entry(2.0, a="2"))),
            Batch(entries=(entry(3.0, b=None, c="3"),), kept={"k": "1", "gone": "1"}),
            Batch(entries=(entry(4.0, b="4", c=None),), kept={"k": "2", "gone": None}),
        ]
        with started(url) as store:
            for number, batch in enumerate(batches, start=1):
                store.commit(batch)
                assert StoreModel.after(batches[:number]).differences(store) == []
            assert store.load().parts == {"a": "2", "b": "4"}

    def test_a_snapshot_changes_nothing_but_what_the_next_load_folds(self, url: str) -> None:
        batches = [Batch(entries=(entry(1.0, a="1", b="1"),)), Batch(entries=(entry(2.0, b=None),))]
        with started(url) as store:
            store.commit(batches[0])
            assert store.snapshot() == 1
            store.commit(batches[1])
            assert StoreModel.after(batches).differences(store) == []
            assert store.usage().since_snapshot == 1
            assert store.snapshot() == 1
            assert store.snapshot() == 0
            assert store.usage().since_snapshot == 0
            assert StoreModel.after(batches).differences(store) == []

    def test_a_part_of_the_log_can_be_read(self, url: str) -> None:
        with started(url) as store:
            store.commit(Batch(entries=tuple(entry(float(n)) for n in range(1200))))
            assert [stored.number for stored in store.entries(3, 5)] == [3, 4, 5]
            assert [stored.entry.at for stored in store.entries(1199)] == [1198.0, 1199.0]
            assert sum(1 for _ in store.entries()) == 1200

    def test_an_empty_batch_is_no_entry(self, url: str) -> None:
        with started(url) as store:
            assert store.commit(Batch()) == 0

    # All or nothing

    @pytest.mark.parametrize(
        "bad",
        [
            pytest.param(Batch(leases=(lease(4),)), id="a second holder"),
            pytest.param(Batch(leases=(lease(4, state=LeaseState.FENCING),)), id="a fencing one"),
            pytest.param(
                Batch(leases=(lease(3),)), id="one that was promised and begins too early"
            ),
            pytest.param(Batch(leases=(lease(4, gpu=5), lease(5, gpu=5))), id="two at once"),
            pytest.param(Batch(leases=(replace(lease(2, gpu=1), app="other"),)), id="other app"),
            pytest.param(Batch(leases=(lease(2, gpu=7),)), id="another GPU"),
            pytest.param(Batch(ended=(EndedLease(9, 1.0),)), id="an end of nothing"),
        ],
    )
    def test_a_batch_that_cannot_be_leaves_nothing_behind(self, url: str, bad: Batch) -> None:
        with started(url) as store:
            store.commit(RICH)
            with pytest.raises(InvariantError):
                store.commit(
                    replace(
                        bad,
                        entries=(entry(9.0, a="1"),),
                        audit=(AuditRow(9.0, "bob", "submit", "x", "allowed"),),
                        kept={"x": "1"},
                    )
                )
            assert StoreModel.after([RICH]).differences(store) == []
            # And the store goes on.
            good = Batch(entries=(entry(9.0, a="1"),))
            store.commit(good)
            assert StoreModel.after([RICH, good]).differences(store) == []

    # Leases

    def test_a_gpu_goes_from_one_holder_to_the_next_in_one_batch(self, url: str) -> None:
        handover = Batch(leases=(lease(3),), ended=(EndedLease(1, 20.0, "vacated"),))
        with started(url) as store:
            store.commit(RICH)
            store.commit(handover)
            assert StoreModel.after([RICH, handover]).differences(store) == []
            assert [row.token for row in store.load().leases] == [2, 3]

    def test_a_renewal_is_the_same_token_with_a_later_end(self, url: str) -> None:
        renewal = Batch(leases=(replace(lease(1), ends=1200.0),))
        with started(url) as store:
            store.commit(RICH)
            store.commit(renewal)
            assert StoreModel.after([RICH, renewal]).differences(store) == []

    def test_a_lease_may_begin_and_end_in_one_batch(self, url: str) -> None:
        batch = Batch(leases=(lease(1), lease(2)), ended=(EndedLease(1, 5.0),))
        with started(url) as store:
            store.commit(batch)
            assert StoreModel.after([batch]).differences(store) == []
            assert [row.token for row in store.leases()] == [2]

    def test_a_lease_that_has_ended_does_not_come_back(self, url: str) -> None:
        with started(url) as store:
            store.commit(Batch(leases=(lease(1),)))
            store.commit(Batch(ended=(EndedLease(1, 5.0),)))
            with pytest.raises(InvariantError, match="lease 1 has ended"):
                store.commit(Batch(leases=(lease(1),)))

    def test_ending_twice_is_ending_once(self, url: str) -> None:
        with started(url) as store:
            store.commit(Batch(leases=(lease(1),)))
            store.commit(Batch(ended=(EndedLease(1, 5.0, "first"),)))
            store.commit(Batch(ended=(EndedLease(1, 9.0, "second"),)))
            assert store.leases() == ()
            # It ended when it ended first, which is when it may be forgotten.
            assert store.prune(older_than=6.0).leases == 1

    def test_a_token_is_never_given_again_even_when_its_lease_was_pruned(self, url: str) -> None:
        with started(url) as store:
            store.commit(Batch(leases=(lease(5),)))
            store.commit(Batch(ended=(EndedLease(5, 1.0),)))
            store.prune(older_than=10.0)
            assert store.leases(ended=True) == ()
            for token in (4, 5):
                with pytest.raises(InvariantError, match="not above all earlier ones"):
                    store.commit(Batch(leases=(lease(token),)))
            assert store.load().next_token == 6

    # Epochs

    def test_every_start_is_above_all_before(self, url: str) -> None:
        with started(url) as store:
            store.commit(RICH)
        with open_store(url, reserve_bytes=0) as store:
            second = store.begin_epoch("2.0", seed=8)
            assert (second.number, second.first_token, second.first_entry) == (2, 4, 3)
            third = store.begin_epoch("2.0", seed=9, above_epoch=40, above_token=1000)
            assert (third.number, third.first_token) == (41, 1001)
            assert store.epochs()[1:] == (second, third)
            assert store.load().epoch == third

    def test_nothing_is_written_before_an_epoch_has_begun(self, url: str) -> None:
        with open_store(url, reserve_bytes=0) as store:
            with pytest.raises(InvariantError, match="epoch"):
                store.commit(RICH)
            assert StoreModel().differences(store) == []

    def test_a_service_that_was_followed_by_another_writes_nothing_more(self, url: str) -> None:
        with started(url) as first:
            self.lose_lock(first)
            with started(url) as second:
                for _ in range(2):
                    with pytest.raises(FatalStoreError):
                        first.commit(RICH)
                with pytest.raises(FatalStoreError):
                    first.snapshot()
                second.commit(RICH)
                assert StoreModel.after([RICH]).differences(second) == []

    # One service at a time

    def test_second_service_is_refused_and_learns_the_first(self, url: str) -> None:
        with started(url) as store:
            with pytest.raises(StoreLockedError, match=r"process \d+ on") as refused:
                open_store(url, reserve_bytes=0)
            assert refused.value.store == store.url
        with open_store(url, reserve_bytes=0):
            pass

    def test_tools_read_beside_the_service_and_cannot_write(self, url: str) -> None:
        with started(url) as store, open_store(url, read_only=True) as reader:
            store.commit(RICH)
            assert StoreModel.after([RICH]).differences(reader) == []
            assert reader.usage().next_entry == 3
            reader.check()
            with pytest.raises(InvariantError, match="only to be read"):
                reader.begin_epoch("1.0", seed=1)

    def test_there_is_nothing_to_read_where_there_is_no_store(self, url: str) -> None:
        with pytest.raises(ConfigError):
            open_store(url, read_only=True)

    # Retention

    def test_what_is_too_old_goes(self, url: str) -> None:
        batches = [
            Batch(
                entries=(entry(float(n), **{f"p{n}": "x"}),),
                audit=(AuditRow(float(n), "ann", "submit", "x", "allowed"),),
            )
            for n in range(10)
        ]
        with started(url) as store:
            for batch in batches:
                store.commit(batch)
            pruned = store.prune(older_than=4.0, audit_older_than=2.0)
            assert (pruned.entries, pruned.audit, pruned.more) == (4, 2, False)
            assert [stored.number for stored in store.entries()] == [5, 6, 7, 8, 9, 10]
            assert [number for number, _ in store.audit()] == list(range(3, 11))
            assert store.load().parts == StoreModel.after(batches).parts
            assert store.usage().first_entry == 5

    def test_what_is_too_much_goes(self, url: str) -> None:
        batches = [Batch(entries=(LogEntry(float(n), "x" * n, {f"p{n}": "x"}),)) for n in range(50)]
        with started(url) as store:
            for batch in batches:
                store.commit(batch)
            before = store.usage().log_bytes
            assert store.prune(keep_bytes=before).entries == 0
            pruned = store.prune(keep_bytes=before // 2)
            assert 0 < pruned.entries < 50
            after = store.usage().log_bytes
            assert after <= before // 2
            # Not more than needed: the next entry would not have fitted.
            assert after > before // 2 - 200
            store.prune(keep_bytes=0)
            assert list(store.entries()) == []
            assert store.load().parts == StoreModel.after(batches).parts
            assert store.commit(Batch(entries=(entry(60.0),))) == 51
        with open_store(url, reserve_bytes=0) as store:
            assert store.load().next_entry == 52
            store.check()

    def test_much_goes_in_several_steps(self, url: str) -> None:
        with started(url) as store:
            store.commit(Batch(entries=tuple(entry(float(n)) for n in range(10))))
            steps = [store.prune(older_than=7.0, limit=3) for _ in range(3)]
            assert [(step.entries, step.more) for step in steps] == [
                (3, True),
                (3, True),
                (1, False),
            ]

    def test_leases_that_have_not_ended_are_never_pruned(self, url: str) -> None:
        with started(url) as store:
            store.commit(RICH)
            store.commit(Batch(ended=(EndedLease(2, 10.0),)))
            assert store.prune(older_than=1e9).leases == 1
            assert [row.token for row in store.leases(ended=True)] == [1, 3]

    # Backups

    def test_a_backup_is_of_one_moment_while_the_service_goes_on(
        self, url: str, tmp_path: Path
    ) -> None:
        more = Batch(entries=(entry(9.0, late="1"),), kept={"late": "1"})
        with started(url) as store:
            store.commit(RICH)
            store.backup(tmp_path / "backup")
            store.commit(more)
            assert StoreModel.after([RICH, more]).differences(store) == []
        with open_store(f"sqlite:///{tmp_path}/backup", read_only=True) as copy:
            assert StoreModel.after([RICH]).differences(copy) == []

    def test_a_tool_can_back_up_beside_the_service(self, url: str, tmp_path: Path) -> None:
        with started(url) as store, open_store(url, read_only=True) as tool:
            store.commit(RICH)
            tool.backup(tmp_path / "backup")
        with open_store(f"sqlite:///{tmp_path}/backup", read_only=True) as copy:
            assert StoreModel.after([RICH]).differences(copy) == []

    def test_a_backup_overwrites_nothing(self, url: str, tmp_path: Path) -> None:
        (tmp_path / "mine").write_text("mine")
        with started(url) as store, pytest.raises(ConfigError, match="mine"):
            store.backup(tmp_path / "mine")
        assert (tmp_path / "mine").read_text() == "mine"

    def test_a_service_does_not_start_on_a_backup(self, url: str, tmp_path: Path) -> None:
        with started(url) as store:
            store.backup(tmp_path / "backup")
        before = (tmp_path / "backup").read_bytes()
        with pytest.raises(StoreError, match="themis restore"):
            open_store(f"sqlite:///{tmp_path}/backup")
        assert (tmp_path / "backup").read_bytes() == before

    def test_restoring_overwrites_nothing(self, url: str, tmp_path: Path) -> None:
        with started(url) as store:
            store.commit(RICH)
            store.backup(tmp_path / "backup")
        with pytest.raises(ConfigError):
            restore(tmp_path / "backup", url, now=NOON)
        with open_store(url, reserve_bytes=0) as store:
            assert StoreModel.after([RICH]).differences(store) == []

    # Versions

    def test_a_store_of_a_newer_version_is_refused_and_left_alone(self, url: str) -> None:
        with started(url) as store:
            store.commit(RICH)
        self.run_sql(url, "UPDATE schema_version SET version = 99")
        for read_only in (False, True):
            with pytest.raises(StoreVersionError, match=r"newer Themis.*schema 99"):
                open_store(url, read_only=read_only)
        self.run_sql(url, "UPDATE schema_version SET version = 1")
        with open_store(url, reserve_bytes=0) as store:
            assert StoreModel.after([RICH]).differences(store) == []

    def test_a_missing_entry_is_noticed(self, url: str) -> None:
        with started(url) as store:
            store.commit(Batch(entries=tuple(entry(float(n)) for n in range(5))))
        self.run_sql(url, "DELETE FROM entries WHERE number = 3")
        gap = pytest.raises(CorruptStoreError, match=r"entry 3 is missing.*themis restore")
        with open_store(url, reserve_bytes=0) as store, gap:
            store.load()
