"""Both stores keep the same promises."""

import importlib
import sqlite3
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.postgres import Server
from themis.errors import FatalStoreError, StoreFullError, StoreLockedError
from themis.service.persistence.store import Batch, Store, open_store, restore
from themis.service.persistence.store.postgres import SCHEMA, without_password
from themis.testing.store_model import RICH, StoreModel, entry
from themis.testing.stores import NOON, StoreContract, started


class TestSqlite(StoreContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/store.sqlite"

    def lose_lock(self, store: Store) -> None:
        # Somebody tidies up: the next one locks another file of that name.
        Path(store.url.removeprefix("sqlite:///") + ".lock").unlink()

    def run_sql(self, url: str, sql: str) -> None:
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        connection.executescript(sql)
        connection.close()


class TestPostgres(StoreContract):
    server: Server

    @pytest.fixture
    def url(self, postgres: Server) -> str:
        self.server = postgres
        return postgres.emptied()

    def lose_lock(self, store: Store) -> None:
        database = urlsplit(store.url).path[1:]
        self.server.run(
            database,
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
            f"AND database = (SELECT oid FROM pg_database WHERE datname = '{database}')",
        )

    def run_sql(self, url: str, sql: str) -> None:
        self.server.run(urlsplit(url).path[1:], f"SET search_path = {SCHEMA};\n{sql}")

    def test_a_backup_goes_to_the_other_kind_and_back(self, url: str, tmp_path: Path) -> None:
        file = f"sqlite:///{tmp_path}/store.sqlite"
        with started(url) as store:
            store.commit(RICH)
            store.backup(tmp_path / "one")
        restored = restore(tmp_path / "one", file, now=NOON)
        with open_store(file, reserve_bytes=0) as store:
            begun = store.begin_epoch("1.0", seed=1)
            assert begun.number > restored.number > NOON
            store.backup(tmp_path / "two")
        again = self.server.new_database()
        later = restore(tmp_path / "two", again, now=NOON + 100)
        assert later.number > begun.number
        assert later.first_token > begun.first_token
        with open_store(again) as store:
            differences = StoreModel.after([RICH]).differences(store)
            assert [text.partition(":")[0] for text in differences] == ["audit"]
            assert [row.verb for _, row in store.audit()] == ["submit", "restore", "restore"]
            numbers = [number for number, _ in store.audit(limit=2, newest=True)]
            assert numbers == [number for number, _ in store.audit()][1:]

    def test_a_lost_connection_is_fatal(self, url: str) -> None:
        with started(url) as store:
            store.commit(RICH)
            self.server.run(
                "postgres",
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                f"WHERE datname = '{urlsplit(url).path[1:]}'",
            )
            for _ in range(2):
                with pytest.raises(FatalStoreError, match="unknown"):
                    store.commit(RICH)
        with open_store(url) as store:
            assert StoreModel.after([RICH]).differences(store) == []

    def test_new_work_waits_while_the_disk_of_the_server_is_full(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> int:
            raise psycopg_error("DiskFull")

        new = Batch(entries=(entry(1.0),), essential=False)
        with started(url) as store:
            with monkeypatch.context() as patch:
                patch.setattr("psycopg.Cursor.executemany", full)
                with pytest.raises(StoreFullError):
                    store.commit(RICH)
            with pytest.raises(StoreFullError, match="a moment ago"):
                store.commit(new)
            assert not store.usage().reserve
            store.commit(RICH)
            store.commit(new)
            assert StoreModel.after([RICH, new]).differences(store) == []

    def test_the_lock_is_on_a_connection_of_its_own(self, url: str) -> None:
        with started(url) as store:
            store.commit(RICH)
            with pytest.raises(StoreLockedError, match="backend"):
                open_store(url)


def psycopg_error(name: str) -> Exception:
    errors = importlib.import_module("psycopg.errors")
    error: Exception = getattr(errors, name)("no space left")
    return error


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:secret@db:5432/themis", "postgresql://ann@db:5432/themis"),
        ("postgresql://db/themis?password=secret", "postgresql://db/themis"),
        ("postgresql://ann:se@cret@db/themis", "postgresql://ann@db/themis"),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown
