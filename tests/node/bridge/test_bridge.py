"""The bridge: which machines have a node, and when."""

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.fake_scheduler import PretendCluster, PretendScheduler
from themis.config.addresses import Address
from themis.config.keys import ServiceConfig, Slurm, Tls
from themis.core.model import AppId, GpuId, JobId, LeaseSource, Machine, OwnerId
from themis.engines.base import Engine
from themis.engines.host import boottime
from themis.engines.host.accounts import Owners
from themis.engines.supervisor.gpu_locks import Fence
from themis.errors import ConfigError
from themis.node.bridge.bridge import (
    Bridge,
    BridgedNode,
    bridge_folder,
    bridge_trouble,
    reset_old_times,
    wanted_machines,
)
from themis.node.bridge.child import BridgeChild, bridge_command, check_bridge
from themis.node.bridge.process import engine_folder
from themis.node.disk import NodeDisk, NodeRunRecord
from themis.node.local_nodes import nodes_folder
from themis.protocol.node_messages import Program, RunOrder
from themis.security.token_files import read_token
from themis.security.token_store import TokenStore
from themis.security.tokens import check_token
from themis.service.persistence.recovery import recover
from themis.service.persistence.start_parameters import StartParameters
from themis.service.persistence.store import open_store
from themis.service.process import seen_there

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
    ) -> AsyncIterator[BridgedNode]:
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

    async def looked(self) -> None:
        """Wait until the bridge has asked the scheduler several times."""
        enough = self.scheduler.asked + 5
        await self.until(lambda: self.scheduler.asked >= enough)

    def play(self, work: Callable[["Scene"], object]) -> None:
        async def scene() -> None:
            running = asyncio.create_task(self.bridge.run())
            try:
                await work(self)  # type: ignore[misc]
            finally:
                self.bridge.stop()
                await running

        asyncio.run(scene())


def test_each_machine_gets_a_node_after_the_service_issued_a_token(tmp_path: Path) -> None:
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
        await scene.looked()
        assert scene.log[2:] == ["-m1"]
        scene.scheduler.absent = False
        await scene.until(lambda: scene.log[2:] == ["-m1", "+m1"])

    Scene(tmp_path).play(work)


def test_failing_node_does_not_affect_other_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("themis.node.bridge.bridge._AGAIN", 0.05)

    async def work(scene: Scene) -> None:
        scene.failing.add("m0")
        await scene.until(lambda: bool(wanted_machines(scene.folder)))
        scene.give_tokens()
        await scene.until(lambda: scene.log == ["+m1"])
        scene.failing.clear()
        await scene.until(lambda: scene.log == ["+m1", "+m0"])

    Scene(tmp_path).play(work)


def test_cluster_errors_are_left_for_the_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(scene: Scene) -> None:
        def says(words: str) -> bool:
            return words in (bridge_trouble(scene.folder) or "")

        await scene.until(lambda: bridge_trouble(scene.folder) == "")
        assert stat.S_IMODE((bridge_folder(scene.folder) / "status.json").stat().st_mode) == 0o600
        scene.scheduler.absent = True
        await scene.until(lambda: says("cannot be looked at, nothing changes"))
        # Many looks later it was logged once.
        await scene.looked()
        assert caplog.text.count("cannot be looked at") == 1
        scene.scheduler.absent = False
        scene.scheduler.down.update({"m0": "drained", "m1": "down"})
        await scene.until(lambda: says("m0: drained (and 1 others)"))
        del scene.scheduler.down["m1"]
        await scene.until(lambda: bridge_trouble(scene.folder) == "")

    Scene(tmp_path).play(work)


@pytest.mark.parametrize("text", ["", "[1]", '{"trouble": 5}', '{"trouble": "' + "x" * 100_000])
def test_unknown_bridge_message_is_none(tmp_path: Path, text: str) -> None:
    assert bridge_trouble(tmp_path) is None
    (bridge_folder(tmp_path) / "status.json").write_text(text)
    assert bridge_trouble(tmp_path) is None


def test_times_of_before_the_bridges_machine_restarted_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = RunOrder(1, AppId("a"), OwnerId("ann"), JobId("j"), (0,), (7,), Program(("true",)))
    with NodeDisk.open(tmp_path / "m0", "m0") as disk:
        reset_old_times(disk, tmp_path / "m0" / "boot")
        disk.put(NodeRunRecord(order, lease_end=500.0, early=1.0))
        reset_old_times(disk, tmp_path / "m0" / "boot")
        assert disk.runs()[0].lease_end == 500.0
        monkeypatch.setattr(boottime, "boot_id", lambda: "another")
        reset_old_times(disk, tmp_path / "m0" / "boot")
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


def test_bridge_gets_exactly_its_own_settings(tmp_path: Path) -> None:
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
def test_unsupported_bridge_settings_are_reported_before_any_change(
    tmp_path: Path, changes: dict[str, object], says: str
) -> None:
    config = config_in(tmp_path)
    check_bridge(config)
    with pytest.raises(ConfigError, match=says):
        check_bridge(replace(config, **changes))  # type: ignore[arg-type]


def test_everything_a_bridge_lacks_is_reported_at_once(tmp_path: Path) -> None:
    config = replace(config_in(tmp_path), shared_dir=None, trust_tenants=False)
    with pytest.raises(ConfigError, match=r"^(accounts|node\.owner): .*tenants.*; and shared_dir"):
        check_bridge(config)


class Child:
    """A process that ends when it is told."""

    returncode = 2
    over = False

    def poll(self) -> int | None:
        return self.returncode if self.over else None


def test_the_service_logs_what_a_bridge_complains_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    child = Child()
    monkeypatch.setattr("themis.node.bridge.child.spawn", lambda command, folder: child)
    config = config_in(tmp_path)
    own = bridge_folder(nodes_folder(config))
    bridge, token_store = BridgeChild(config, GRPC), TokenStore({}, lambda changes: None)

    def tends(now: float, status: str | None = None) -> list[str]:
        caplog.clear()
        if status is not None:
            (own / "status.json").write_text(json.dumps({"trouble": status}))
        bridge.tend(token_store, now=now)
        return [f"{item.levelname} {item.getMessage()}" for item in caplog.records]

    (own / "status.json").write_text('{"trouble": "of one before"}')
    assert tends(100.0) == [f"INFO started the bridge to slurm (log: {own / 'node.log'})"]
    assert (tends(100.5), bridge.trouble) == ([], "")
    told = tends(101.0, "Slurm\nis\x1b away")
    assert told == [f"WARNING engine slurm: Slurm is\ufffd away (log: {own / 'node.log'})"]
    assert (tends(101.5), tends(102.0, "Slurm\nis\x1b away")) == ([], [])
    assert bridge.trouble == "Slurm is\ufffd away"
    assert tends(103.0, "") == ["INFO engine slurm: its machines can be used again"]
    assert bridge.trouble == ""
    # One that ends again and again for the same reason is told of once, too.
    (own / "node.log").write_text("error: no `srun`\n")
    child.over = True
    (ended,) = tends(104.0)
    assert ended.startswith("ERROR engine slurm: the bridge has ended with 2: error: no `srun` (")
    for now in (106.0, 112.0, 118.0, 118.5):
        assert tends(now) == []
        assert "no `srun`" in bridge.trouble


def test_the_service_starts_a_bridge_once_and_gives_tokens_to_its_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def spawn(command: list[str], folder: Path) -> Child:
        started.append(command)
        return child

    child = Child()
    monkeypatch.setattr("themis.node.bridge.child.spawn", spawn)
    config = config_in(tmp_path)
    rows: dict[str, str] = {}
    token_store = TokenStore(
        rows, lambda changes: rows.update({k: v for k, v in changes.items() if v})
    )
    bridge = BridgeChild(config, GRPC)
    folder = nodes_folder(config)
    bridge.tend(token_store, now=100.0)
    (folder / "wanted.json").write_text('["m0", "../m1"]')
    bridge.tend(token_store, now=101.0)
    assert len(started) == 1
    token = read_token(folder / "m0" / "token").reveal()
    assert check_token(token_store, token, now=101.0).subject == "m0"
    assert not (folder.parent / "m1").exists()
    bridge.tend(token_store, now=102.0)
    assert read_token(folder / "m0" / "token").reveal() == token
    child.over = True
    bridge.tend(token_store, now=103.0)
    assert len(started) == 1, "not again at once"
    bridge.tend(token_store, now=110.0)
    assert len(started) == 2


def test_new_service_grants_lease_tokens_above_those_of_old_machines(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    gpus = engine_folder(config) / "m0" / "gpus"
    gpus.mkdir(parents=True)
    old = Fence(str(gpus))
    old.take(["0"], 41)
    old.release()
    with open_store(f"sqlite:///{tmp_path}/new.sqlite", reserve_bytes=0) as store:
        above = seen_there(config)
        state = recover(store, StartParameters("fifo"), "test", above_token=above)
        assert store.epochs()[-1].first_token == 42
        ledger = state.steward.arbiter.ledger
        ledger.add(1)
        lease = ledger.grant(GpuId(0), AppId("a"), at=0.0, end=1.0, source=LeaseSource.ARRIVAL)
        Fence(str(gpus)).take(["0"], lease.token)
    assert seen_there(replace(config, engine="local")) == 0
