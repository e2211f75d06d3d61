"""`themis serve --engine ray` for real: sweeps, kills, power cuts, a Ray that is away."""

import asyncio
import json
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from themis.testing.doors import until
from themis.testing.ray import RayCluster, ray_cluster, require_ray
from themis.testing.scenes import (
    LONG,
    PATIENT,
    bridge_of,
    grows,
    lines_on,
    machines_of,
    sweep_for,
    toys,
)
from themis.testing.staging import Stage, open_stage
from themis.testing.tools import only_engines

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="themis-stage-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 2 * LONG))


@asynccontextmanager
async def staged(cluster: RayCluster, place: Path, **more: Any) -> AsyncIterator[Stage]:
    machines = dict.fromkeys(cluster.nodes, cluster.gpus)
    given = {
        "settings": PATIENT, "engine": "ray", "node_ttl": 20.0, "policy": "fifo",
        "flags": ("--ray-pending", "300s"),
    } | more  # fmt: skip
    os.environ |= cluster.environment
    try:
        async with open_stage(place, machines, **given) as stage:
            yield stage
    finally:
        for name in cluster.environment:
            del os.environ[name]


def held(cluster: RayCluster) -> list[str]:
    """Placement groups that are not removed."""
    script = """
import json, ray
ray.init("auto", namespace="themis", log_to_driver=False)
groups = ray.util.placement_group_table().values()
print(json.dumps([group["name"] for group in groups if group["state"] != "REMOVED"]))
"""
    found = json.loads(cluster.run(script).splitlines()[-1])
    return [str(name) for name in found]


@pytest.mark.parametrize(
    "door",
    [
        pytest.param("ray", marks=pytest.mark.engines_quick, id="on a machine of the cluster"),
        pytest.param("ray://", marks=only_engines, id="by the door for clients"),
    ],
)
def test_a_gang_on_two_machines_runs_on_both_and_is_given_back(door: str, place: Path) -> None:
    require_ray()
    train = """
        echo "$THEMIS_RANK of $THEMIS_WORLD_SIZE at $THEMIS_RENDEZVOUS on $CUDA_VISIBLE_DEVICES" \
            > "$AUDIT/$THEMIS_RANK.new" && mv "$AUDIT/$THEMIS_RANK.new" "$AUDIT/$THEMIS_RANK.x"
        trap 'exit 75' TERM; sleep 600 & wait $!
    """

    async def scene(cluster: RayCluster) -> None:
        engine = cluster.address if door == "ray://" else door
        async with staged(cluster, place, engine=engine) as stage:
            nodes = (await asyncio.to_thread(stage.client().nodes))["nodes"]
            assert {node["rack"] for node in nodes} == {"r0", "r1"}
            app = {
                "name": "wide", "command": ["/bin/sh", "-c", train],
                "env": {"AUDIT": str(stage.audit)}, "workdir": "/",
                "gpus": {"per_job_min": 4, "per_job_max": 4}, "duration": "1h",
            }  # fmt: skip
            await asyncio.to_thread(stage.client().submit, app, None)
            await until(lambda: len(list(stage.audit.glob("*.x"))) == 2, LONG)
            said = {file.read_text().strip() for file in stage.audit.glob("*.x")}
            ends = {line.partition(" at ")[2].partition(" on ")[0] for line in said}
            assert len(ends) == 1, "all meet at one place"
            assert {line.partition(" at ")[0] for line in said} == {"0 of 2", "1 of 2"}
            assert {line.partition(" on ")[2] for line in said} == {"0,1"}
            await asyncio.to_thread(stage.client().cancel, "wide")
            await until(lambda: not stage.jobs_alive(), LONG)
            while await asyncio.to_thread(held, cluster):
                await asyncio.sleep(0.5)

    with ray_cluster(nodes=2, gpus=2) as cluster:
        play(scene(cluster))


@only_engines
def test_three_tenants_sweep_on_four_machines_to_the_end(place: Path) -> None:
    require_ray()

    async def scene(cluster: RayCluster) -> None:
        async with staged(cluster, place, policy="themis") as stage:
            await sweep_for(stage, ["ann", "bob", "eve"])
            while await asyncio.to_thread(held, cluster):
                await asyncio.sleep(0.5)

    with ray_cluster(nodes=4, gpus=2) as cluster:
        play(scene(cluster))


@only_engines
def test_nothing_is_shared_or_started_twice_whatever_is_killed(place: Path) -> None:
    """The service, the bridge, Ray's head; then a machine, whose jobs go on elsewhere."""
    require_ray()

    async def scene(cluster: RayCluster) -> None:
        async with staged(cluster, place) as stage:
            agent = await toys(stage, "sweep", 3)
            await until(lambda: agent.running == 3 and len(stage.starts()) == 3, LONG)
            before = stage.starts()
            # The service.
            await stage.kill()
            await stage.start()
            await stage.joined()
            await grows(stage)
            # The bridge: the service starts another, which finds everything.
            bridge = bridge_of(stage)
            os.kill(bridge, signal.SIGKILL)
            await until(lambda: bridge_of(stage) not in {0, bridge}, LONG)
            await stage.joined()
            await grows(stage)
            # Ray's head, for longer than a node lives unheard. It finds what it knew on its disk.
            cluster.kill("head")
            await grows(stage, 250)
            cluster.start("head")
            cluster.until_up("head")
            await stage.joined()
            await grows(stage)
            assert stage.starts() == before, "training was started again"
            stage.check()
            # A machine with jobs on it.
            dead = min(machines_of(stage))
            count = len(stage.starts())
            cluster.kill(dead)
            written = lines_on(stage, dead)
            await until(lambda: agent.running == 3 and len(stage.starts()) > count, LONG)
            assert lines_on(stage, dead) == written
            await stage.joined(len(cluster.nodes) - 1)
            stage.check()
            # It comes back, and is used again.
            cluster.start(dead)
            await stage.joined()
            more = await toys(stage, "more", 6)
            await until(lambda: more.running >= 3 and lines_on(stage, dead) > written, LONG)
            stage.check()

    with ray_cluster(nodes=3, gpus=2, lasting=True) as cluster:
        play(scene(cluster))


@only_engines
def test_a_head_that_forgets_everything_ends_what_it_forgot_and_all_of_it_resumes(
    place: Path,
) -> None:
    require_ray()

    async def scene(cluster: RayCluster) -> None:
        async with staged(cluster, place, settings={**PATIENT, "lease": 60.0}) as stage:
            agent = await toys(stage, "sweep", 2)
            await until(lambda: agent.running == 2 and len(stage.starts()) == 2, LONG)
            for name in ("head", *cluster.nodes):
                cluster.kill(name)
            for name in ("head", *cluster.nodes):
                cluster.start(name)
                cluster.until_up(name)
            await stage.joined()
            await until(lambda: agent.running == 2 and len(stage.starts()) >= 4, LONG)
            stage.check()

    with ray_cluster(nodes=2, gpus=2) as cluster:
        play(scene(cluster))


@only_engines
def test_a_machine_that_nobody_reaches_ends_its_jobs_before_others_have_its_gpus(
    place: Path,
) -> None:
    """It lives, and Ray's head takes it for dead; its supervisors see the shared folder still."""
    require_ray()

    async def scene(cluster: RayCluster) -> None:
        async with staged(cluster, place, settings={**PATIENT, "lease": 60.0}) as stage:
            agent = await toys(stage, "sweep", 2)
            await until(lambda: agent.running == 2 and len(stage.starts()) == 2, LONG)
            far = min(machines_of(stage))
            count = len(stage.starts())
            cluster.cut(far)
            await stage.joined(len(cluster.nodes) - 1)
            await until(lambda: agent.running == 2 and len(stage.starts()) > count, LONG)
            stage.check()
            cluster.mend()
            # Ray's part of the machine has ended itself, as one that was taken for dead does.
            cluster.kill(far)
            cluster.start(far)
            await stage.joined()
            stage.check()

    with ray_cluster(nodes=2, gpus=2) as cluster:
        play(scene(cluster))
