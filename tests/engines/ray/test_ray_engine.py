"""The engine of Ray against the contract, on a real Ray."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.namespaced_cluster import left_by_a_killed_test
from tests.support.ray import RayCluster, require_ray
from themis.engines.base import Engine
from themis.engines.host.accounts import Owners
from themis.engines.ray.cluster import RayCluster as Ray
from themis.engines.ray.cluster import RaySettings
from themis.engines.remote.engine import RemoteEngine
from themis.engines.supervisor import processes
from themis.testing.engines import (
    ESCAPED,
    FOREVER,
    READY,
    STUBBORN,
    EngineContract,
    EngineStage,
    OpenEngine,
    play,
    until,
)

pytestmark = pytest.mark.ray


class Whole:
    """An engine that takes its cluster with it when it is closed."""

    def __init__(self, cluster: Ray, engine: RemoteEngine) -> None:
        self._cluster = cluster
        self._engine = engine

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    async def close(self) -> None:
        await self._engine.close()
        await self._cluster.close()


class TestRay(EngineContract):
    @pytest.fixture
    def open_engine(self, state: Path, owners: Owners, ray: RayCluster) -> OpenEngine:
        async def open_one() -> Engine:
            cluster = Ray(state, settings=RaySettings(python=str(ray.python), pending=200.0))
            await cluster.look()
            return Whole(cluster, await cluster.open("n0", owners))  # type: ignore[return-value]

        return open_one


FOREIGN = """
import ray, sys
ray.init("auto", namespace="others", log_to_driver=False)
word, node, gpus = sys.argv[1:]
if word == "take":
    (number,) = [n["NodeID"] for n in ray.nodes() if n["Labels"].get("machine") == node]
    labels = [{"ray.io/node-id": number}]
    group = ray.util.placement_group(
        [{"GPU": int(gpus)}], name="foreign", lifetime="detached", bundle_label_selector=labels
    )
    assert group.wait(60)
else:
    ray.util.remove_placement_group(ray.util.get_placement_group("foreign"))
"""


@asynccontextmanager
async def foreign(ray: RayCluster, node: str, gpus: int) -> AsyncIterator[None]:
    """Somebody else's placement group."""
    await asyncio.to_thread(ray.run, FOREIGN, "take", node, str(gpus))
    try:
        yield
    finally:
        await asyncio.to_thread(ray.run, FOREIGN, "give", node, str(gpus))


@asynccontextmanager
async def opened(
    state: Path, owners: Owners, ray: RayCluster, machine: str, **settings: Any
) -> AsyncIterator[EngineStage]:
    cluster = Ray(state, settings=RaySettings(python=str(ray.python), **settings))
    await cluster.look()
    stage = EngineStage(await cluster.open(machine, owners), "ann")
    try:
        yield stage
    finally:
        await stage.clean()
        await cluster.close()


def test_gpus_used_by_others_are_avoided_and_impossible_starts_cancelled(
    state: Path, owners: Owners, tidy: RayCluster
) -> None:
    """Ray never says that a placement group has no room, or never will have."""

    async def scene() -> None:
        others = foreign(tidy, "n1", 3)
        async with others, opened(state, owners, tidy, "n1", pending=3.0) as stage:
            while True:
                (found,) = await stage.engine.discover()
                troubles = [gpu.trouble for gpu in found.gpus]
                if sum(map(bool, troubles)) == 3:
                    break
                await asyncio.sleep(0.6)
            assert not troubles[0]
            assert "not Themis's" in troubles[3]
            await stage.engine.start(stage.task("exit 0", gpus=(0, 1)))
            ending = await stage.ending()
            assert ending.outcome == "never-ran"

    play(scene())


def kill_holder(ray: RayCluster, holder: int) -> None:
    os.kill(holder, signal.SIGKILL)


def kill_actor(ray: RayCluster, holder: int) -> None:
    ray.run(KILL_ACTORS)


def kill_raylet(ray: RayCluster, holder: int) -> None:
    raylet = _parent(holder)
    assert b"raylet" in Path(f"/proc/{raylet}/cmdline").read_bytes()
    starter = _parent(raylet)
    # Or the machine goes down as a whole. With its starter gone the raylet is no zombie, which its
    # workers would take for alive.
    os.kill(_parent(starter), signal.SIGSTOP)
    os.kill(starter, signal.SIGKILL)
    os.kill(raylet, signal.SIGKILL)


KILL_ACTORS = """
import ray
ray.init("auto", namespace="themis", log_to_driver=False)
for name in ray.util.list_named_actors():
    ray.kill(ray.get_actor(name))
"""


@pytest.mark.parametrize("end", [kill_holder, kill_actor, kill_raylet])
def test_a_job_ends_with_the_process_that_holds_its_gpus(
    state: Path, owners: Owners, tidy: RayCluster, end: Callable[[RayCluster, int], None]
) -> None:
    """From then on others may have the GPUs; Ray kills the children of what it ends, no more."""

    async def scene() -> None:
        async with opened(state, owners, tidy, "n1", pending=200.0) as stage:
            await stage.start(READY + STUBBORN + ESCAPED + FOREVER)
            await stage.report()
            ours = [pid for pid in processes.all_processes() if _works_in(pid, state)]
            (holder,) = {_parent(pid) for pid in ours} - set(ours)
            await asyncio.to_thread(end, tidy, holder)
            ending = await stage.ending()
            assert ending.outcome == "resumable"
            assert "held its GPUs" in ending.reason
            assert stage.alive() == []

    try:
        play(scene())
    finally:
        if end is kill_raylet:
            tidy.kill("n1")
            tidy.start("n1")
            tidy.until_up("n1")


def _works_in(pid: int, folder: Path) -> bool:
    try:
        return bytes(folder) in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _parent(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text()
    return int(text.rpartition(")")[2].split()[1])


def test_a_cluster_of_a_test_that_is_killed_leaves_nothing_behind() -> None:
    require_ray()
    left = left_by_a_killed_test("tests.support.ray", "ray_cluster")

    async def scene() -> None:
        await until(lambda: not left())

    play(scene())
