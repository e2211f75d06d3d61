"""The contract of stores notices stores that are broken on purpose."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from themis.errors import FatalStoreError
from themis.service.persistence.store import Batch, Store, retention, snapshot_log
from themis.service.persistence.store import sql as sql_module
from themis.testing.store_model import lease
from themis.testing.stores import StoreContract, started


class Contract(StoreContract):
    __test__ = False

    def lose_lock(self, store: Store) -> None:
        Path(store.url.removeprefix("sqlite:///") + ".lock").unlink()

    def run_sql(self, url: str, sql: str) -> None:
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        connection.executescript(sql)
        connection.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.sqlite"


def noticed(test: Callable[..., None], *args: object) -> bool:
    try:
        test(*args)
    except (AssertionError, pytest.fail.Exception, FatalStoreError):
        return True
    return False


def test_a_store_without_its_index(url: str) -> None:
    contract, twice = Contract(), Batch(leases=(lease(4),))
    with started(url):
        pass
    contract.run_sql(url, "DROP INDEX one_holder")
    assert noticed(contract.test_a_batch_that_cannot_be_leaves_nothing_behind, url, twice)


def test_store_that_ignores_owners_is_caught(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "_own_state", lambda self: snapshot_log.state_of(self._database))
    contract = Contract()
    assert noticed(contract.test_a_service_that_was_followed_by_another_writes_nothing_more, url)


def test_a_store_that_prunes_what_the_next_load_needs(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "snapshot", lambda _: 0)
    monkeypatch.setattr(retention, "entries_to_prune", lambda *_, **__: (1, 10**6))
    assert noticed(Contract().test_what_is_too_much_goes, url)


def test_a_store_that_forgets_to_remove_parts(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_removals(*args: object) -> dict[str, str]:
        changed = original(*args)
        return {name: text for name, text in changed.items() if text is not None}

    original: Callable[..., dict[str, str | None]] = snapshot_log.changed_parts
    monkeypatch.setattr(sql_module, "changed_parts", without_removals)
    contract = Contract()
    assert noticed(contract.test_a_snapshot_changes_nothing_but_what_the_next_load_folds, url)


@pytest.mark.parametrize(
    "name",
    [
        "test_a_service_that_was_followed_by_another_writes_nothing_more",
        "test_what_is_too_much_goes",
        "test_a_snapshot_changes_nothing_but_what_the_next_load_folds",
    ],
)
def test_a_store_that_is_whole_passes(url: str, name: str) -> None:
    assert not noticed(getattr(Contract(), name), url)
