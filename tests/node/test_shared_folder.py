"""Marks in a shared folder: who sees the same storage says the same, and nobody else does."""

import asyncio
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.grpc_service import until
from themis.node.core import events as ev
from themis.node.health import Health
from themis.node.runs import EventAt
from themis.node.shared_folder import MARKS, SharedFolder, marked_by


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


def test_nodes_with_the_same_folder_see_the_same_mark(root: Path) -> None:
    first, second = SharedFolder(root, "m1"), SharedFolder(root, "m0")
    mark = first.look("aa")
    assert mark.startswith("aa.m1.")
    # One that joins later changes nothing, whatever its name is.
    os.utime(root / MARKS / "aa.m1", ns=(1, 1))
    assert second.look("aa") == mark
    assert first.look("aa") == mark
    assert marked_by(root) == ["m0", "m1"]


def test_another_folder_has_another_mark(root: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = SharedFolder(tmp_path / "other", "m0")
    assert SharedFolder(root, "m0").look("aa") != other.look("aa")


def test_copied_or_unmounted_folder_is_another_one(root: Path, tmp_path: Path) -> None:
    node, other = SharedFolder(root, "m0"), SharedFolder(root, "m1")
    before = node.look("aa")
    os.utime(root / MARKS / "aa.m0", ns=(1, 1))
    assert other.look("aa") == before
    # The mount of m0 is gone: below is an empty folder of its own disk.
    node.root = tmp_path / "below"
    node.root.mkdir()
    assert node.look("aa") != other.look("aa")
    # Also if somebody had copied everything there.
    copied = SharedFolder(tmp_path / "copy", "m0")
    shutil.copytree(root, copied.root)
    assert copied.look("aa") != other.look("aa")


def test_marks_of_an_earlier_service_do_not_count(root: Path) -> None:
    old = SharedFolder(root, "m0").look("aa")
    new = SharedFolder(root, "m1").look("bb")
    assert new.startswith("bb.m1.")
    assert SharedFolder(root, "m0").look("bb") != old
    assert sorted(path.name for path in (root / MARKS).iterdir()) == ["bb.m0", "bb.m1"]


def test_invalid_mark_is_skipped(root: Path) -> None:
    (root / MARKS).mkdir()
    (root / MARKS / "aa.evil").symlink_to("/etc/passwd")
    (root / MARKS / "aa.full").write_text("x" * 100)
    os.mkfifo(root / MARKS / "aa.pipe")
    assert SharedFolder(root, "m0").look("aa").startswith("aa.m0.")


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is it mounted"):
        SharedFolder(tmp_path / "gone", "m0").look("aa")
    assert marked_by(tmp_path / "gone") == []
    assert not (tmp_path / "gone").exists()


class Stuck(SharedFolder):
    """A folder on a server that is down."""

    def __init__(self) -> None:
        super().__init__(Path("/shared"), "m0")
        self.up = threading.Event()
        self.looks = 0

    def look(self, nonce: str) -> str:
        self.looks += 1
        self.up.wait(60.0)
        return f"{nonce}.m0.aa"


def test_unresponsive_folder_is_reported_and_blocks_nothing() -> None:
    storage, told = Stuck(), list[tuple[str, str]]()

    def put(happened: EventAt) -> None:
        event = happened(0.0)
        assert isinstance(event, ev.StorageSeen)
        told.append((event.mark, event.trouble))

    async def scene(then: int) -> None:
        engine: Any = None
        health = Health(engine, storage, put, every=0.01, patience=0.01)
        health.expect("aa")
        watching = asyncio.create_task(health.watch_storage())
        await until(lambda: len(told) == 1)
        if then > 1:
            storage.up.set()
            await until(lambda: len(told) == then)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    asyncio.run(scene(1))
    assert not storage.up.is_set(), "the end did not wait for it"
    assert told == [("", "it does not answer; is its file server down? (/shared)")]
    assert storage.looks == 1, "one look waits, not one after the other"
    told.clear()
    asyncio.run(scene(2))
    assert told[1] == ("aa.m0.aa", "")
