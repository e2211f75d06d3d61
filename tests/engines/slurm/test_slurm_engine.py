"""The engine of Slurm against the contract, on a real Slurm."""

import asyncio
from pathlib import Path

import pytest

from tests.support.namespaced_cluster import left_by_a_killed_test
from tests.support.slurm import SlurmCluster, require_slurm
from themis.engines.base import Discovered, Engine
from themis.engines.host.accounts import Owners
from themis.engines.slurm.cluster import SlurmCluster as Slurm
from themis.engines.slurm.cluster import SlurmSettings
from themis.testing.engines import (
    FOREVER,
    READY,
    EngineContract,
    EngineStage,
    OpenEngine,
    play,
    until,
)

pytestmark = pytest.mark.slurm


class TestSlurm(EngineContract):
    @pytest.fixture
    def open_engine(self, state: Path, owners: Owners, slurm: SlurmCluster) -> OpenEngine:
        async def open_one() -> Engine:
            cluster = Slurm(state)
            await cluster.look()
            return await cluster.open("n0", owners)

        return open_one


def troubles(found: Discovered) -> list[str]:
    return [gpu.trouble for gpu in found.gpus if gpu.trouble]


def test_gpus_that_others_use_are_not_used(
    state: Path, owners: Owners, slurm: SlurmCluster
) -> None:
    async def scene() -> None:
        cluster = Slurm(state)
        seen = await cluster.look()
        assert [item.machine.name for item in seen] == ["n0", "n1"]
        assert [item.machine.rack for item in seen] == ["r0", "r1"]
        engine = await cluster.open("n1", owners)
        slurm.run("salloc", "--no-shell", "--job-name=foreign", "--nodelist=n1", "--gres=gpu:3")
        try:
            found: tuple[Discovered, ...] = ()
            while len(troubles(found[0])) != 3 if found else True:
                await asyncio.sleep(0.6)
                found = await engine.discover()
            assert not found[0].gpus[0].trouble
            assert "not Themis's" in found[0].gpus[3].trouble
        finally:
            slurm.run("scancel", "--name=foreign")
            await engine.close()

    play(scene())


def test_only_machines_of_the_partition_are_used_and_charged_to_the_account(
    state: Path, owners: Owners, slurm: SlurmCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        cluster = Slurm(state, SlurmSettings(partition="last", account="ml"))
        assert [item.machine.name for item in await cluster.look()] == ["n1"]
        stage = EngineStage(await cluster.open("n1", owners), "ann")
        task = await stage.start(READY + FOREVER)
        assert slurm.run("squeue", "-h", "-o", "%P %a %N").split() == ["last", "ml", "n1"]
        # What Themis has there is not taken for others'.
        for _ in range(3):
            await asyncio.sleep(0.6)
            (found,) = await stage.engine.discover()
            assert not troubles(found)
        await stage.engine.kill(task.job, task.token)
        await stage.ending()
        await stage.clean()
        nowhere = Slurm(state, SlurmSettings(partition="none-such"))
        assert await nowhere.look() == ()
        assert "no machine with GPUs, partition none-such" in caplog.text

    play(scene())


def test_machines_that_are_reserved_for_it_are_used_by_the_reservation_alone(
    state: Path, owners: Owners, slurm: SlurmCluster
) -> None:
    async def scene() -> None:
        slurm.run(
            "scontrol", "create", "reservation", "ReservationName=ours", "Users=root",
            "Nodes=n1", "StartTime=now", "Duration=10", "Flags=IGNORE_JOBS",
        )  # fmt: skip
        try:
            # Without accounting Slurm takes any quality of service, and tells nobody of it.
            given = SlurmSettings(nodes="n1", reservation="ours", qos="high")
            cluster = Slurm(state, given)
            (found,) = await cluster.look()
            assert (found.machine.name, found.trouble) == ("n1", "")
            stage = EngineStage(await cluster.open("n1", owners), "ann")
            task = await stage.start(READY + FOREVER)
            assert slurm.run("squeue", "-h", "-o", "%v %N").split() == ["ours", "n1"]
            await stage.engine.kill(task.job, task.token)
            await stage.ending()
            await stage.clean()
        finally:
            slurm.run("scontrol", "delete", "ReservationName=ours")

    play(scene())


def test_start_that_slurm_never_runs_reports_the_reason(
    state: Path, owners: Owners, slurm: SlurmCluster
) -> None:
    async def scene() -> None:
        cluster = Slurm(state, SlurmSettings(reservation="none-such"))
        await cluster.look()
        stage = EngineStage(await cluster.open("n1", owners), "ann")
        await stage.engine.start(stage.task("exit 0"))
        ending = await stage.ending()
        assert ending.outcome == "never-ran"
        assert "reservation" in ending.reason
        await stage.clean()

    play(scene())


def test_drained_machine_starts_nothing_and_keeps_its_running_jobs(
    state: Path, owners: Owners, slurm: SlurmCluster
) -> None:
    async def scene() -> None:
        cluster = Slurm(state)
        await cluster.look()
        stage = EngineStage(await cluster.open("n1", owners), "ann")
        task = await stage.start(READY + FOREVER)
        slurm.run("scontrol", "update", "nodename=n1", "state=drain", "reason=fan broken")
        try:
            await asyncio.sleep(0.6)
            assert [item.trouble for item in await cluster.look()] == ["", ""]
            (found,) = await stage.engine.discover()
            assert [bool(gpu.trouble) for gpu in found.gpus] == [False, True, True, True]
            assert "fan broken" in found.gpus[1].trouble
            await stage.report()
            await stage.engine.kill(task.job, task.token)
            await stage.ending()
        finally:
            slurm.run("scontrol", "update", "nodename=n1", "state=resume")
            await stage.clean()

    play(scene())


def test_a_start_that_slurm_keeps_pending_is_called_off(
    state: Path, owners: Owners, slurm: SlurmCluster
) -> None:
    async def scene() -> None:
        cluster = Slurm(state, SlurmSettings(pending=2.0))
        await cluster.look()
        stage = EngineStage(await cluster.open("n1", owners), "ann")
        slurm.run("salloc", "--no-shell", "--job-name=foreign", "--nodelist=n1", "--gres=gpu:4")
        try:
            await stage.engine.start(stage.task("exit 0"))
            ending = await stage.ending()
            assert ending.outcome == "never-ran"
            await stage.engine.reattach()
            while "themis-" in slurm.run("squeue", "-h", "-o", "%j"):
                await stage.engine.discover()  # as a node does, which sweeps
                await asyncio.sleep(0.5)
        finally:
            slurm.run("scancel", "--name=foreign")
            await stage.clean()

    play(scene())


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_cluster_of_a_test_that_is_killed_leaves_nothing_behind() -> None:
    require_slurm()
    left = left_by_a_killed_test("tests.support.slurm", "slurm_cluster")

    async def scene() -> None:
        await until(lambda: not left())

    play(scene())
