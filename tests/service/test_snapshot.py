"""Snapshots of the live system, held against what really became of it."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.http_service import http_service
from tests.support.small_sims import sim_app, workload_of
from themis.core.arbiter import AppRecord
from themis.core.model import AppId, OwnerId, Phase, Slowdown
from themis.core.policies import policy
from themis.core.tuners import CURVES
from themis.evaluation.rehearsal.rehearsal import rehearse
from themis.protocol.agent_messages import SubmittedApp
from themis.recording.cluster_snapshots import ProcessStage, Snapshot, dumps_snapshot, snapshot_from
from themis.recording.codec import loads
from themis.service.service import Service
from themis.service.snapshot import snapshot_of
from themis.service.submitted_apps import SubmittedApps
from themis.sim.config import PreparedRun, RunConfig, prepare
from themis.sim.snapshot_sim import Fork

VGG = Slowdown((1.0, 1.05, 1.29, 1.44))
COSTS = (7.5, 35.0)
WORKLOAD = workload_of(
    sim_app(
        "a", arrival=5.0, jobs=4, max_gpus=2, slowdown=VGG, costs=COSTS,
        phases=(Phase(4, 900), Phase(2, 700), Phase(1, 1200)),
    ),
    sim_app("b", arrival=40.0, work=7000.0, jobs=2, max_gpus=8, slowdown=VGG, costs=COSTS),
    sim_app("c", arrival=890.0, work=900.0, jobs=6, max_gpus=4, costs=COSTS),
)  # fmt: skip
MOMENTS = (60.0, 100.0, 500.0, 900.0, 1300.0, 1700.0, 2000.0)

Played = tuple[dict[AppId, AppRecord], dict[float, Snapshot]]


def prepared() -> PreparedRun:
    config = RunConfig(cluster="demo16", options={"heartbeat": 10.0, "learn": True})
    return replace(prepare(config), workload=WORKLOAD)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    taken: dict[float, Snapshot] = {}

    def look(at: float, service: Service) -> None:
        taken[at] = snapshot_from(loads(dumps_snapshot(snapshot_of(service))))

    folder: Path = tmp_path_factory.mktemp("pictured")
    looks = {at: (lambda service, at=at: look(at, service)) for at in MOMENTS}
    done = rehearse(prepared(), folder, patience=1e5, looks=looks)
    return done.apps, taken


def test_a_fork_of_the_live_state_ends_when_the_live_system_did(played: Played) -> None:
    lived, taken = played
    setup = prepared()
    truths = {app.spec.id: app for app in WORKLOAD.apps}
    for at, snapshot in taken.items():
        coming = [app for app in WORKLOAD.apps if app.arrival > at]
        rule = policy(snapshot.policy, **dict(snapshot.options))
        seed = setup.config.seed
        fork = Fork.of(snapshot, truths, coming, rule, seed=seed, costs=setup.costs)
        ended = fork.run().apps
        assert set(ended) == {app for app, record in lived.items() if record.end > at}
        for app, record in ended.items():
            taken_in_all = lived[app].end - lived[app].arrival
            assert record.end == pytest.approx(lived[app].end, abs=0.06 * taken_in_all), (at, app)


def test_a_snapshot_knows_processes_in_all_stages(played: Played) -> None:
    stages = {
        process.stage
        for snapshot in played[1].values()
        for app in snapshot.apps
        for job in app.jobs
        for process in (job.process, job.successor)
        if process is not None
    }
    assert stages >= {ProcessStage.STARTING, ProcessStage.RUNNING}


def test_whether_trials_may_end_at_any_time_is_known_without_reading_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def file(self: SubmittedApps, app: AppId) -> SubmittedApp:
        raise AssertionError(f"the file of {app} is read")

    async def work() -> None:
        async with http_service(tmp_path) as http:
            for name, method in (("ends", "curve"), ("stays", "none")):
                await http.submit("ann", name, "ann")
                body = json.dumps({"stop": {"method": method, "max_iterations": 10}})
                rows = http.service.files.add(SubmittedApp(AppId(name), OwnerId("ann"), body, 1))
                http.service.rows.keep(rows)
            monkeypatch.setattr(SubmittedApps, "file", file)
            found = {app.app: app.tuner for app in snapshot_of(http.service).apps}
            assert found == {"ends": CURVES, "stays": ""}
            again = SubmittedApps(http.service.rows, http.service.steward)
            assert again.stop_rule(AppId("ends")) == "curve"
            again.forget([AppId("ends")])
            assert again.stop_rule(AppId("ends")) == ""

    asyncio.run(work())


def test_a_snapshot_tells_neither_what_runs_nor_the_seed(played: Played) -> None:
    for snapshot in played[1].values():
        assert snapshot.seed == 0
        assert "pretend" not in json.dumps(json.loads(dumps_snapshot(snapshot)))
