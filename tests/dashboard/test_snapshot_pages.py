"""Snapshots in the pages: a cluster at one moment."""

import json
from pathlib import Path

import pytest

from tests.support.small_sims import sim_app, snapshot_after, workload_of
from themis.core.arbiter import Settings
from themis.core.arbiter.events import AppSuspended, MachineCordoned, MachineLeft
from themis.core.model import AppId, Machine, Topology
from themis.core.model.reasons import Reason
from themis.core.policies import policy
from themis.dashboard.run_loader import load_runs
from themis.dashboard.snapshot_pages import SnapshotPages, is_snapshot, open_snapshot
from themis.errors import ConfigError, MissingError
from themis.recording.cluster_snapshots import dumps_snapshot, write_snapshot
from themis.recording.codec import dumps
from themis.sim.modelled_jobs import NO_COSTS
from themis.sim.snapshot_sim import Fork


@pytest.fixture
def path(tmp_path: Path) -> Path:
    machines = [Machine(f"m{number}", "r0", (2, 2)) for number in range(5)]
    apps = (
        sim_app("big", work=2e5, max_gpus=8),
        sim_app("paused", work=2e5, max_gpus=4),
        sim_app("small", work=2e5, max_gpus=2),
    )
    topology, workload = Topology(tuple(machines)), workload_of(*apps)
    fork = Fork(topology, workload, policy("equal-share"), Settings(), seed=1, costs=NO_COSTS)
    fork.advance(1000.0)
    fork.look(1000.0)
    taken = snapshot_after(
        fork,
        workload,
        AppSuspended(1000.0, AppId("paused"), Reason.PAUSED_BY_USER),
        MachineCordoned(1000.0, "m3"),
        MachineLeft(1000.0, "m4"),
    )
    where = tmp_path / "monday.json"
    write_snapshot(taken, where)
    return where


def test_a_snapshot_is_shown_as_it_was(path: Path) -> None:
    (still,) = load_runs([path])
    board = still.board(("monday.json",))
    assert (board.origin.kind, board.origin.title) == ("snapshot", "monday.json")
    assert board.origin.policy == "equal-share"
    assert board.now == 1000.0
    rows = {row.app: row for row in board.apps}
    assert set(rows) == {"big", "paused", "small"}
    assert rows["paused"].state == "suspended"
    assert rows["paused"].reason == "PAUSED_BY_USER"
    assert rows["small"].state == "running"
    assert rows["small"].held == 2
    assert rows["small"].rho is not None
    assert [machine.state for machine in board.machines] == [
        "present", "present", "present", "cordoned", "silent",
    ]  # fmt: skip
    assert [machine.number for machine in board.machines] == [0, 1, 2, 3, 4]
    assert board.gpus["absent"] == 4
    assert sum(board.gpus.values()) == 20
    line = still.timeline()
    held = {line.names[place] for place in line.open.app}
    assert {"big", "small"} <= held
    assert json.loads(dumps(board))


def test_the_page_of_an_app_has_its_jobs_and_leases(path: Path) -> None:
    still = open_snapshot(path)
    page = still.app("small")
    assert page.jobs is not None
    assert {job.state for job in page.jobs} == {"running"}
    assert all(lease.open and lease.machine.startswith("m") for lease in page.leases)
    assert len(page.leases) == 2
    assert [phase.state for phase in page.phases] == ["now"]
    with pytest.raises(MissingError):
        still.app("nobody")
    assert still.rounds(None, 50).rounds == ()
    with pytest.raises(MissingError):
        still.round(1)
    assert set(still.compared().measures.values()) == {None}


def test_two_snapshots_of_one_name_are_distinguished(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "later" / "monday.json"
    other.parent.mkdir()
    other.write_bytes(path.read_bytes())
    titles = [each.origin.title for each in load_runs([path, other])]
    assert len(set(titles)) == 2


def test_damaged_snapshot_is_reported(path: Path) -> None:
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    assert is_snapshot(path)
    with pytest.raises(ConfigError, match=r"monday\.json"):
        open_snapshot(path)
    data = json.loads(text)
    del data["state"]["settings"]
    path.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match="contradicts itself"):
        open_snapshot(path)


def test_a_snapshot_of_somebodys_own_policy_imports_nothing(path: Path) -> None:
    data = json.loads(path.read_text()) | {"policy": "os.path:join"}
    path.write_text(json.dumps(data))
    assert isinstance(load_runs([path])[0], SnapshotPages)
    assert open_snapshot(path).origin.policy == "os.path:join"


def test_state_without_apps_can_be_displayed(tmp_path: Path) -> None:
    fork = Fork(Topology(()), workload_of(), policy("fifo"), Settings(), seed=1, costs=NO_COSTS)
    where = tmp_path / "empty.json"
    where.write_text(dumps_snapshot(fork.snapshot("fifo")))
    board = open_snapshot(where).board()
    assert (board.apps, board.machines, dict(board.gpus)) == ((), (), {})
