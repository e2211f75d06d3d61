"""The bridge: which machines have a node, and when."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from themis.arbiter import Settings
from themis.engines import clock
from themis.engines.base import Engine
from themis.engines.fences import Fence
from themis.engines.owners import Owners
from themis.errors import ConfigError
from themis.fleet.messages import Program, RunOrder
from themis.live.bridge import Bridge, Driven, bridge_folder, forget_old_times, wanted_machines
from themis.live.bridge_child import BridgeChild, bridge_command, check_bridge
from themis.live.bridge_process import engine_folder
from themis.live.config import Address, ServiceConfig, Slurm, Tls
from themis.live.credentials import check_token
from themis.live.local_nodes import nodes_folder
from themis.live.memory import recall
from themis.live.node_disk import NodeDisk, RunRecord
from themis.live.serving import seen_there
from themis.live.store import open_store
from themis.live.tokenfile import read_token
from themis.live.vault import KeptVault
from themis.model import AppId, GpuId, JobId, Machine, OwnerId, Source
from themis.policies import policy
from themis.testing.clusters import PretendCluster, PretendScheduler

GRPC = Address("127.0.0.1", 7420)


class Stub:
    """A node that only is there."""

    def __init__(self, machine: Machine, log: list[str]) -> None:
        self.name = machine.name
        self.live: tuple[int, ...] = ()
        self._stop = asyncio.Event()
        self._log = log

    async def run(self) -> None:
        self._log.append(f"+{self.name}")
        await self._stop.wait()
        self._log.append(f"-{self.name}")

    def stop(self) -> None:
        self._stop.set()


class Scene:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "nodes"
        bridge_folder(self.folder)
        self.scheduler = PretendScheduler({"m0": 2, "m1": 2})
        self.log: list[str] = []
        self.failing: set[str] = set()
        cluster = PretendCluster(self.scheduler, folder / "engine")
        self.bridge = Bridge(cluster, self.folder, Owners.trusting("nobody"), self.make, every=0.01)

    @asynccontextmanager
    async def make(
        self, machine: Machine, engine: Engine, disk: NodeDisk, token: Path
    ) -> AsyncIterator[Driven]:
        if machine.name in self.failing:
            raise RuntimeError("broken")
        assert token.read_text() == "x"
        yield Stub(machine, self.log)

    def give_tokens(self) -> None:
        for name in wanted_machines(self.folder):
            (self.folder / name).mkdir(exist_ok=True)
            (self.folder / name / "token").write_text("x")

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():
                await asyncio.sleep(0.01)

    def play(self, work: Callable[["Scene"], object]) -> None:
        async def scene() -> None:
            running = asyncio.create_task(self.bridge.run())
            try:
                await work(self)  # type: ignore[misc]
            finally:
                self.bridge.stop()
                await running

        asyncio.run(scene())


def test_each_machine_has_a_node_once_the_service_has_given_it_a_token(tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        await scene.until(lambda: wanted_machines(scene.folder) == ("m0", "m1"))
        assert scene.bridge.nodes == ()
        scene.give_tokens()
        await scene.until(lambda: sorted(scene.log) == ["+m0", "+m1"])

    scene = Scene(tmp_path)
    scene.play(work)
    assert sorted(scene.log) == ["+m0", "+m1", "-m0", "-m1"]


def test_a_machine_that_is_unwell_has_none_until_it_is_well_again(tmp_path: Path) -> None:
    async def work(scene: Scene) -> None:
        await scene.until(lambda: bool(wanted_machines(scene.folder)))
        scene.give_tokens()
        await scene.until(lambda: len(scene.log) == 2)
        scene.scheduler.down["m1"] = "drained"
        await scene.until(lambda: scene.log[2:] == ["-m1"])
        assert scene.bridge.nodes == ("m0",)
        # A scheduler that is away says nothing about anybody.
        scene.scheduler.absent = True
        del scene.scheduler.down["m1"]
        await asyncio.sleep(0.1)
        assert scene.log[2:] == ["-m1"]
        scene.scheduler.absent = False
        await scene.until(lambda: scene.log[2:] == ["-m1", "+m1"])

    Scene(tmp_path).play(work)


def test_a_node_that_fails_is_no_other_machines_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("themis.live.bridge._AGAIN", 0.05)

    async def work(scene: Scene) -> None:
        scene.failing.add("m0")
        await scene.until(lambda: bool(wanted_machines(scene.folder)))
        scene.give_tokens()
        await scene.until(lambda: scene.log == ["+m1"])
        scene.failing.clear()
        await scene.until(lambda: scene.log == ["+m1", "+m0"])

    Scene(tmp_path).play(work)


def test_times_of_before_the_bridges_machine_restarted_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = RunOrder(1, AppId("a"), OwnerId("ann"), JobId("j"), (0,), (7,), Program(("true",)))
    with NodeDisk.open(tmp_path / "m0", "m0") as disk:
        forget_old_times(disk, tmp_path / "m0" / "boot")
        disk.put(RunRecord(order, lease_end=500.0, early=1.0))
        forget_old_times(disk, tmp_path / "m0" / "boot")
        assert disk.runs()[0].lease_end == 500.0
        monkeypatch.setattr(clock, "boot_id", lambda: "another")
        forget_old_times(disk, tmp_path / "m0" / "boot")
        assert disk.runs()[0].lease_end == 0.0


def config_in(folder: Path) -> ServiceConfig:
    (folder / "shared").mkdir()
    return ServiceConfig(
        state_dir=folder / "state",
        shared_dir=folder / "shared",
        engine="slurm",
        trust_tenants=True,
        slurm=Slurm(partition="gpu"),
    )


def test_a_bridge_is_told_what_it_goes_by_and_nothing_else(tmp_path: Path) -> None:
    command = bridge_command(config_in(tmp_path), GRPC)
    words = command[command.index("bridge") + 1 :]
    flags = dict(zip(words[::2], words[1::2], strict=False))
    assert flags["--server"] == str(GRPC)
    assert flags["--engine"] == "slurm"
    assert flags["--slurm-partition"] == "gpu"
    assert flags["--shared-dir"] == str(tmp_path / "shared")
    assert "--slurm-qos" not in words


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        pytest.param({"shared_dir": None}, "shared_dir", id="no shared storage"),
        pytest.param({"local_nodes": Path("x.yaml")}, "local_nodes", id="nodes of its own"),
        pytest.param({"tls": Tls(require_client=True)}, "require_client", id="certificates"),
    ],
)
def test_what_a_bridge_cannot_do_is_said_before_anything_is_made(
    tmp_path: Path, changes: dict[str, object], says: str
) -> None:
    config = config_in(tmp_path)
    check_bridge(config)
    with pytest.raises(ConfigError, match=says):
        check_bridge(replace(config, **changes))  # type: ignore[arg-type]


def test_the_service_starts_a_bridge_once_and_gives_tokens_to_its_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    class Child:
        returncode = 0
        over = False

        def poll(self) -> int | None:
            return 0 if self.over else None

    def spawn(command: list[str], folder: Path) -> Child:
        started.append(command)
        return child

    child = Child()
    monkeypatch.setattr("themis.live.bridge_child.spawn", spawn)
    config = config_in(tmp_path)
    rows: dict[str, str] = {}
    vault = KeptVault(rows, lambda changes: rows.update({k: v for k, v in changes.items() if v}))
    bridge = BridgeChild(config, GRPC)
    folder = nodes_folder(config)
    bridge.tend(vault, now=100.0)
    (folder / "wanted.json").write_text('["m0", "../m1"]')
    bridge.tend(vault, now=101.0)
    assert len(started) == 1
    token = read_token(folder / "m0" / "token").reveal()
    assert check_token(vault, token, now=101.0).subject == "m0"
    assert not (folder.parent / "m1").exists()
    bridge.tend(vault, now=102.0)
    assert read_token(folder / "m0" / "token").reveal() == token
    child.over = True
    bridge.tend(vault, now=103.0)
    assert len(started) == 1, "not again at once"
    bridge.tend(vault, now=110.0)
    assert len(started) == 2


def test_a_new_service_on_machines_of_an_old_one_gives_tokens_that_they_take(
    tmp_path: Path,
) -> None:
    config = config_in(tmp_path)
    gpus = engine_folder(config) / "m0" / "gpus"
    gpus.mkdir(parents=True)
    old = Fence(str(gpus))
    old.take(["0"], 41)
    old.release()
    with open_store(f"sqlite:///{tmp_path}/new.sqlite", reserve_bytes=0) as store:
        rule = policy("fifo")
        above = seen_there(config)
        memory = recall(store, rule, Settings(), "test", above_token=above)
        assert memory.epoch.first_token == 42
        ledger = memory.steward.arbiter.ledger
        ledger.add(1)
        lease = ledger.grant(GpuId(0), AppId("a"), at=0.0, end=1.0, source=Source.ARRIVAL)
        Fence(str(gpus)).take(["0"], lease.token)
    assert seen_there(replace(config, engine="local")) == 0
