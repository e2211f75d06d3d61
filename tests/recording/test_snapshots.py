"""Snapshots are read with suspicion: they come from files that people hand around."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from themis.core.arbiter import Arbiter
from themis.core.arbiter.events import AppArrived
from themis.core.arbiter.saved_state import parts
from themis.core.model import AppId, AppSpec, JobId, JobSpec, OwnerId, Phase
from themis.core.model.presets import preset
from themis.core.policies import policy
from themis.errors import ConfigError, MissingFileError, RefusedError
from themis.recording.atomic_files import write_whole
from themis.recording.cluster_snapshots import (
    AppSnapshot,
    JobSnapshot,
    PendingEvent,
    ProcessSnapshot,
    ProcessStage,
    Snapshot,
    dumps_snapshot,
    read_snapshot,
    snapshot_from,
    write_snapshot,
)

SWEEP = AppId("sweep")
JOB = JobId("0")


def snapshot() -> Snapshot:
    arbiter = Arbiter(preset("testbed64", 4), policy("fifo"), seed=1)
    spec = AppSpec(SWEEP, OwnerId("ann"), (JobSpec(JOB, 1.0, 1),), (Phase(1, 100),))
    arbiter.handle(AppArrived(5.0, spec))
    process = ProcessSnapshot((), 100.0, ProcessStage.RUNNING, 5.0)
    picture = AppSnapshot(SWEEP, targets=((JOB, 100.0),), jobs=(JobSnapshot(JOB, process=process),))
    agenda = (PendingEvent(600.0), PendingEvent(605.0, SWEEP, JOB))
    return Snapshot(5.0, "fifo", 1, parts(arbiter), (picture,), {}, agenda, 1.7e9)


def plain() -> dict[str, Any]:
    data = json.loads(dumps_snapshot(snapshot()))
    assert isinstance(data, dict)
    return data


def test_a_snapshot_reads_back_equal_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_snapshot(snapshot(), path)
    assert read_snapshot(path) == snapshot()
    assert path.stat().st_mode & 0o077 == 0


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text("old")
    path.chmod(0o644)
    write_snapshot(snapshot(), path)
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"kind": "backup"}, "this is no snapshot", id="something else"),
        pytest.param({"version": 2}, "got 2, allowed: 1 to 1", id="a later version"),
        pytest.param({"version": True}, "got true|got True", id="a version that is no number"),
        pytest.param({"at": "now"}, "not a finite number", id="a time that is none"),
        pytest.param({"apps": []}, "says nothing of its jobs", id="an app without jobs"),
        pytest.param({"extra": 1}, "no field", id="a key that nobody knows"),
        pytest.param({"state": {"moon/1": {}}}, "no part of this name", id="an unknown part"),
    ],
)
def test_non_snapshot_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        snapshot_from(plain() | change)


def test_a_snapshot_with_unknown_apps_or_jobs_is_refused() -> None:
    data = plain()
    data["apps"][0]["jobs"][0]["job"] = "99"
    with pytest.raises(RefusedError, match="no job"):
        snapshot_from(data)
    data = plain()
    data["apps"][0]["app"] = "other"
    with pytest.raises(RefusedError, match="each of its apps once"):
        snapshot_from(data)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"kind": 1}', "\x00\x01"])
def test_foreign_file_is_reported_with_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"state\.json"):
        read_snapshot(path)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        read_snapshot(tmp_path / "nothing.json")


def test_a_snapshot_that_cannot_be_written_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    path.write_text("old")

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ConfigError, match="No space left"):
        write_snapshot(snapshot(), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_non_file_target_is_written_directly(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, b"words")
        assert os.read(reader, 10) == b"words"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
