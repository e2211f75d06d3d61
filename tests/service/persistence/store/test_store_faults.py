"""Disks that fill up, fail and lie; files that are damaged, in use, or somebody else's."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import themis
from tests.support.requirements import missing, require_tool
from tests.support.syscall_faults import Point, run_into
from themis.errors import (
    ConfigError,
    CorruptStoreError,
    InvariantError,
    StoreFullError,
    StoreLockedError,
    UnavailableError,
)
from themis.service.persistence.store import Batch, LogEntry, open_store, restore
from themis.service.persistence.store import sqlite as sqlite_module
from themis.service.persistence.store.disk_reserve import Reserve
from themis.service.persistence.store.sqlite import SqliteStore
from themis.testing.store_model import RICH, StoreModel, entry, lease
from themis.testing.stores import NOON, started

HERE = Path(__file__).parent
SRC = Path(themis.__file__).parents[1]


def faulty(folder: Path, what: str) -> list[str]:
    return [sys.executable, "-I", str(HERE / "faulty.py"), str(SRC), str(folder), what]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


# The disk is full


def on_a_small_disk(folder: Path, what: str) -> list[str]:
    unshare = require_tool("unshare", package="util-linux")
    mount = 'mount -t tmpfs -o size=24m none "$1" && shift && exec "$@"'
    command = [str(unshare), "--mount", "sh", "-c", mount, "sh", str(folder)]
    if os.geteuid() != 0:
        command[1:1] = ["--map-root-user"]
    probe = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        missing(f"a small disk cannot be mounted here: {probe.stderr.strip()}")
    done = subprocess.run(
        [*command, *faulty(folder, what)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_renewals_continue_on_a_full_disk_and_new_work_does_not(tmp_path: Path) -> None:
    lines = on_a_small_disk(tmp_path, "full")
    assert "nearly full" in lines[0]
    assert lines[1] == "reserve True"
    assert lines[2].startswith("others got No space")
    assert lines[3] == "renewals 100 reserve False"
    assert lines[4] == "new work still refused"
    assert lines[5].startswith("the end:")
    assert lines[6] == "room again; reserve True"
    assert lines[7].removeprefix("last ") == lines[8].removeprefix("stored ")


def test_a_service_that_was_killed_on_a_full_disk_starts_again(tmp_path: Path) -> None:
    lines = on_a_small_disk(tmp_path, "restart")
    assert lines[0].startswith("others got No space")
    assert lines[1:] == ["reserve False", "last 20"]


def test_new_work_is_refused_while_the_reserve_is_still_there(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqliteStore(path, reserve_bytes=4096) as store:
        store.begin_epoch("1.0", seed=1)
        monkeypatch.setattr(Reserve, "free_bytes", lambda _: 4095)
        with pytest.raises(StoreFullError, match="nearly full"):
            store.commit(Batch(entries=(entry(1.0),), essential=False))
        assert store.commit(Batch(entries=(entry(1.0),))) == 1
        assert store.usage().reserve
        monkeypatch.setattr(Reserve, "free_bytes", lambda _: 4096)
        assert store.commit(Batch(entries=(entry(1.0),), essential=False)) == 2


def test_disk_reserve_has_real_blocks_and_returns_with_double_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 256 * 1024
    reserve = Reserve(tmp_path / "reserve", size)
    assert (reserve.held, reserve.has_room(), reserve.held) == (False, True, True)
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= size
    assert reserve.release()
    assert not (tmp_path / "reserve").exists()
    assert not reserve.release()
    monkeypatch.setattr(Reserve, "free_bytes", lambda _: 2 * size - 1)
    assert not reserve.has_room()
    monkeypatch.setattr(Reserve, "free_bytes", lambda _: 2 * size)
    assert reserve.has_room()
    assert reserve.held


def test_a_sparse_file_is_no_reserve(tmp_path: Path) -> None:
    file = tmp_path / "reserve"
    file.touch()
    os.truncate(file, 256 * 1024)
    assert file.stat().st_blocks == 0
    reserve = Reserve(file, 256 * 1024)
    assert not reserve.held
    assert reserve.has_room()
    assert file.stat().st_blocks > 0


# The disk fails


@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
def test_a_disk_that_fails_ends_the_service_and_loses_nothing(tmp_path: Path, call: str) -> None:
    number = {"fdatasync": 20, "pwrite64": 100}[call]
    run = run_into(Point(call, number), faulty(tmp_path, "sync"), "error=EIO")
    assert run.code == 3, run.errors
    assert "what is on disk is not known" in run.printed[-2]
    assert run.printed[-1] == "stays fatal"
    acknowledged = len([line for line in run.printed if line.startswith("ack")])
    assert acknowledged > 0
    with SqliteStore(tmp_path / "store.sqlite", reserve_bytes=0) as store:
        store.check()
        assert acknowledged <= store.load().next_entry - 1 <= acknowledged + 1


# Damage


def test_a_damaged_file_is_refused_and_a_backup_brings_it_back(path: Path, url: str) -> None:
    backup = path.with_name("backup")
    with started(url) as store:
        store.commit(RICH)
        store.backup(backup)
    data = bytearray(path.read_bytes())
    data[4096:8192] = b"\xff" * 4096
    path.write_bytes(data)
    with pytest.raises(CorruptStoreError, match=r"store\.sqlite: damaged: .*themis restore"):
        open_store(url)
    path.rename(path.with_name("damaged"))
    epoch = restore(backup, url, now=NOON)
    with open_store(url, reserve_bytes=0) as store:
        begun = store.begin_epoch("1.0", seed=1)
        assert begun.number > epoch.number >= NOON
        with pytest.raises(InvariantError, match="token 4"):
            store.commit(Batch(leases=(lease(4, gpu=9),)))
        store.commit(Batch(leases=(lease(begun.first_token, gpu=9),)))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        pytest.param(b"not a database at all" * 100, "not a database", id="another file"),
        pytest.param(b"SQLite format 3\0" + bytes(200), "not a database", id="a header only"),
    ],
)
def test_non_store_file_is_refused_and_left_alone(
    path: Path, url: str, content: bytes, told: str
) -> None:
    path.write_bytes(content)
    with pytest.raises(CorruptStoreError, match=told):
        open_store(url)
    assert path.read_bytes() == content


def test_the_database_of_another_program_is_left_alone(path: Path, url: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(ConfigError, match="a store of Themis"):
            open_store(url, read_only=read_only)
    assert path.read_bytes() == before


@pytest.mark.parametrize("table", ["parts", "kept", "entries"])
def test_a_flipped_bit_inside_a_text_is_noticed(path: Path, url: str, table: str) -> None:
    with started(url) as store:
        store.commit(RICH)
        store.snapshot()
    key = {"entries": "number"}.get(table, "name")
    connection = sqlite3.connect(path)
    ((name, body),) = connection.execute(f"SELECT {key}, body FROM {table} LIMIT 1")
    flipped = bytes((*body[:-5], body[-5] ^ 1, *body[-4:]))
    connection.execute(f"UPDATE {table} SET body = ? WHERE {key} = ?", (flipped, name))
    connection.commit()
    connection.close()
    with open_store(url, reserve_bytes=0) as store, pytest.raises(CorruptStoreError):
        store.check()


def test_only_what_the_next_load_needs_is_checked_in_a_large_file(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(url) as store:
        store.commit(RICH)
    asked: list[str] = []
    monkeypatch.setattr(sqlite_module, "QUICK_CHECK_BYTES", 1)
    monkeypatch.setattr(
        sqlite_module.SqliteDatabase, "check", lambda _, pragma: asked.append(pragma)
    )
    with open_store(url, reserve_bytes=0):
        pass
    assert "quick_check(parts)" in asked
    assert "quick_check(entries)" not in asked


def test_a_log_without_its_file_is_refused(path: Path, url: str) -> None:
    with started(url) as store:
        store.commit(RICH)
        log = path.with_name("store.sqlite-wal").read_bytes()
    path.unlink()
    path.with_name("store.sqlite-wal").write_bytes(log)
    with pytest.raises(CorruptStoreError, match="-wal"):
        open_store(url)


# Restoring


def test_a_damaged_backup_is_refused_and_nothing_is_left_behind(path: Path, url: str) -> None:
    backup = path.with_name("backup")
    with started(f"{url}.old") as store:
        store.commit(RICH)
        store.backup(backup)
    data = bytearray(backup.read_bytes())
    data[8192:12288] = b"\xff" * 4096
    backup.write_bytes(data)
    before = sorted(file.name for file in path.parent.iterdir())
    with pytest.raises(CorruptStoreError, match=r"backup: damaged: .*take another"):
        restore(backup, url, now=NOON)
    left = {file.name for file in path.parent.iterdir()} - set(before)
    assert left == {"store.sqlite.lock"}


def test_a_log_that_another_file_left_behind_stops_a_restore(path: Path, url: str) -> None:
    with started(f"{url}.old") as store:
        store.backup(path.with_name("backup"))
    path.with_name("store.sqlite-wal").write_bytes(b"left behind")
    with pytest.raises(ConfigError, match=r"store\.sqlite-wal"):
        restore(path.with_name("backup"), url, now=NOON)


def test_restore_of_a_backup_exceeds_all_earlier_restores_of_it(tmp_path: Path) -> None:
    with started(f"sqlite:///{tmp_path}/store.sqlite") as store:
        store.commit(RICH)
        store.backup(tmp_path / "backup")
    highest_token = highest_epoch = 0
    for number in range(3):
        url = f"sqlite:///{tmp_path}/again{number}.sqlite"
        restore(tmp_path / "backup", url, now=NOON + 60 * number)
        with open_store(url, reserve_bytes=0) as store:
            for _ in range(5):
                begun = store.begin_epoch("1.0", seed=1)
                assert begun.number > highest_epoch
                assert begun.first_token > highest_token
                highest_epoch = begun.number
                highest_token = begun.first_token + 1000
                store.commit(Batch(leases=(lease(highest_token, gpu=100 + highest_epoch % 50),)))
        assert highest_token < 2**53


def test_a_restore_needs_a_clock_that_goes(tmp_path: Path) -> None:
    with started(f"sqlite:///{tmp_path}/store.sqlite") as store:
        store.backup(tmp_path / "backup")
    with pytest.raises(ConfigError, match="clock"):
        restore(tmp_path / "backup", f"sqlite:///{tmp_path}/new.sqlite", now=0.0)


def test_a_restore_while_a_service_has_the_name_is_refused(path: Path, url: str) -> None:
    with started(url) as store:
        store.backup(path.with_name("backup"))
        with pytest.raises(StoreLockedError):
            restore(path.with_name("backup"), url, now=NOON)


# Who may have it


def test_the_lock_is_gone_with_the_process_that_had_it(path: Path, url: str) -> None:
    code = (
        f"import os, sys; sys.path.insert(0, {str(SRC)!r})\n"
        "from themis.service.persistence.store.sqlite import SqliteStore\n"
        f"store = SqliteStore({str(path)!r}, reserve_bytes=0)\n"
        "print(os.getpid(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pid = process.stdout.readline().strip()
        with pytest.raises(StoreLockedError, match=f"process {pid} on"):
            open_store(url)
        process.kill()
    with open_store(url, reserve_bytes=0):
        pass


def test_a_forked_child_does_not_keep_the_lock(path: Path) -> None:
    code = (
        f"import os, sys; sys.path.insert(0, {str(SRC)!r})\n"
        "from themis.service.persistence.store.sqlite import SqliteStore\n"
        f"path = {str(path)!r}\n"
        "store = SqliteStore(path, reserve_bytes=0)\n"
        "go, told = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.read(go, 1)\n"  # lives longer than the store is open
        "    os._exit(0)\n"
        "store.close()\n"
        "SqliteStore(path, reserve_bytes=0).close()\n"
        "os.write(told, b'x'); os.wait()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_link_to_a_store_is_the_same_store(path: Path, url: str) -> None:
    link = path.with_name("link.sqlite")
    with started(url):
        link.symlink_to(path)
        with pytest.raises(StoreLockedError):
            open_store(f"sqlite:///{link}")


def test_files_of_a_store_are_for_its_owner_only(path: Path, url: str) -> None:
    with started(url) as store:
        store.commit(RICH)
        store.backup(path.with_name("backup"))
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert len(modes) >= 5
    assert set(modes.values()) == {0o600}


def test_other_writer_is_awaited_and_then_reported(
    path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "_BUSY_SECONDS", 0.01)
    with started(url) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnavailableError, match="other program"):
            store.commit(RICH)
        other.close()
        store.commit(RICH)
        assert StoreModel.after([RICH]).differences(store) == []


@pytest.mark.parametrize(
    "url", ["store.sqlite", "sqlite:///", "sqlite://x", "mysql://x/y", "postgre://x"]
)
def test_invalid_store_url_is_refused_with_valid_forms(url: str) -> None:
    with pytest.raises(ConfigError, match=r"sqlite:///relative/path.*postgresql://"):
        open_store(url)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        open_store(f"sqlite:///{tmp_path}/nowhere/store.sqlite")


def test_old_sqlite_is_reported(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(ConfigError, match=r"3\.37 or newer"):
        open_store(url)


def test_names_of_files_may_hold_anything(tmp_path: Path) -> None:
    odd = tmp_path / "a store? with #1 100%.sqlite"
    with started(f"sqlite:///{odd}") as store:
        store.commit(RICH)
    assert odd.is_file()
    with open_store(f"sqlite:///{odd}", read_only=True) as store:
        assert StoreModel.after([RICH]).differences(store) == []


# Room that comes free


def test_a_file_shrinks_again_after_much_was_pruned(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "_PAGES_TO_SHRINK", 100)
    large = tuple(LogEntry(float(n), os.urandom(20_000).hex()) for n in range(100))
    with started(url) as store:
        store.commit(Batch(entries=large))
    with started(url) as store:
        before = store.usage().bytes
        assert before > 2_000_000
        for _ in range(5):
            store.prune(keep_bytes=0)
    with open_store(url, reserve_bytes=0) as store:
        # By a part each time, so that nobody waits long.
        assert store.usage().bytes <= before - 5 * 100 * 4096


def test_an_error_in_the_middle_of_a_batch_leaves_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Callable[[], None]:
        raise KeyboardInterrupt

    with started(url) as store:
        monkeypatch.setattr(SqliteStore, "_write_audit", broken)
        with pytest.raises(KeyboardInterrupt):
            store.commit(RICH)
        monkeypatch.undo()
        assert StoreModel().differences(store) == []
        store.commit(RICH)
        assert StoreModel.after([RICH]).differences(store) == []


def test_half_a_letter_is_refused_and_leaves_nothing(url: str) -> None:
    with started(url) as store:
        with pytest.raises(InvariantError, match="text"):
            store.commit(Batch(entries=(LogEntry(1.0, "\ud800"),), kept={"a": "1"}))
        assert StoreModel().differences(store) == []
