"""`themis serve --engine slurm` for real: sweeps, kills, power cuts, a Slurm that is away."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from themis.client import Client
from themis.model import AppSpec
from themis.testing.doors import until
from themis.testing.slurm import SlurmCluster, require_slurm, slurm_cluster
from themis.testing.staging import OWNER, SHORT, Stage, open_stage
from themis.testing.tools import only_engines
from themis.testing.toys import ToyAgent
from themis.testing.world import simple_app

pytestmark = [pytest.mark.slurm, only_engines, pytest.mark.slow]

LONG = 120.0
SETTINGS = {**SHORT, "lease": 20.0}
PATIENT = {
    **SHORT, "lease": 120.0, "grace": 2.0, "bid_deadline": 30.0, "solve_budget": 15.0,
}  # fmt: skip
"""Rounds begin long before leases end: a service that is killed is back in time."""

TRAIN = """
cd "$THEMIS_CHECKPOINT_DIR"
save() { echo "$n" > .n && mv .n n; }
n=$(cat n 2>/dev/null || echo 0)
trap 'save; exit 75' TERM
while [ "$n" -lt "$THEMIS_MAX_ITERATIONS" ]; do
    sleep 0.1 & wait $!
    n=$((n + 1)); save
    echo "{\\"it\\": $n, \\"loss\\": $(($1 * 1000 / n))}" >> "$THEMIS_METRICS"
done
"""


@pytest.fixture
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="themis-stage-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 300.0))


@asynccontextmanager
async def staged(cluster: SlurmCluster, place: Path, **more: Any) -> AsyncIterator[Stage]:
    machines = dict.fromkeys(cluster.nodes, cluster.gpus)
    given = {"settings": SETTINGS, "engine": "slurm", "node_ttl": 8.0} | more
    os.environ |= {key: value for key, value in cluster.environment.items() if key != "PATH"}
    path, os.environ["PATH"] = os.environ["PATH"], cluster.environment["PATH"]
    try:
        async with open_stage(place, machines, **given) as stage:
            yield stage
    finally:
        os.environ["PATH"] = path
        del os.environ["SLURM_CONF"]


async def toys(stage: Stage, name: str, jobs: int) -> ToyAgent:
    spec: AppSpec = simple_app(name, jobs=jobs, owner=OWNER)
    await stage.submit(spec)
    return await stage.agent(spec)


def on(stage: Stage, machine: str) -> int:
    """Lines that jobs have written on a machine."""
    return sum(len(lines) for gpu, lines in stage.lines().items() if gpu.startswith(f"{machine}."))


def machines_of(stage: Stage) -> set[str]:
    return {gpu.partition(".")[0] for gpu in stage.lines()}


async def over(stage: Stage, app: str) -> dict[str, Any]:
    while True:
        found = dict(await asyncio.to_thread(stage.client().results, app))
        if found["outcome"]:
            return found
        await asyncio.sleep(0.5)


def sweep(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "command": ["/bin/sh", "-c", TRAIN, "train", "{q}"],
        "search": {"method": "grid", "params": {"q": [7, 3, 9, 5]}},
        "stop": {"method": "halving", "max_iterations": 36},
        "iteration_seconds": 0.1,
        "checkpoint": {"grace": "1s"},
        "workdir": "/",
    }


def test_three_tenants_sweep_on_sixteen_machines_to_the_end(place: Path) -> None:
    require_slurm()

    async def scene(cluster: SlurmCluster) -> None:
        async with staged(cluster, place) as stage:
            nodes = (await asyncio.to_thread(stage.client().nodes))["nodes"]
            assert {node["rack"] for node in nodes} == {"r0", "r1"}
            names = ["ann", "bob", "eve"]
            apps = []
            for name in names:
                made = await asyncio.to_thread(stage.client().create_token, "tenant", name)
                tenant = Client(f"http://{stage.http}", made["token"])
                answer = await asyncio.to_thread(tenant.submit, sweep(f"sweep-{name}"))
                apps.append(str(answer["app"]))
            for app_name in apps:
                found = await over(stage, app_name)
                assert found["outcome"] == "finished"
                by_param = {job["params"]["q"]: job for job in found["jobs"]}
                assert found["best"] == by_param[3]["job"]
                assert by_param[3]["iterations"] == 36
        await until(lambda: not cluster.run("squeue", "-h"), LONG)

    with slurm_cluster(nodes=16, gpus=2) as cluster:
        play(scene(cluster))


@only_engines
def test_nothing_is_shared_or_started_twice_whatever_is_killed(place: Path) -> None:
    """The service, the bridge, slurmctld; then a machine, whose jobs go on elsewhere."""
    require_slurm()

    async def scene(cluster: SlurmCluster) -> None:
        async with staged(cluster, place, policy="fifo", settings=PATIENT) as stage:
            agent = await toys(stage, "sweep", 3)
            await until(lambda: agent.running == 3 and len(stage.starts()) == 3, LONG)
            before = stage.starts()
            # The service.
            await stage.kill()
            await stage.start()
            await stage.joined()
            await grows(stage)
            # The bridge: the service starts another, which finds everything.
            bridge = int((stage.node_folder(".bridge") / "node.lock").read_text())
            os.kill(bridge, signal.SIGKILL)
            await until(lambda: _holder(stage) not in {0, bridge}, LONG)
            await stage.joined()
            await grows(stage)
            # Slurm's controller, for longer than a node lives unheard.
            cluster.kill("ctld")
            await grows(stage, 100)
            cluster.start("ctld")
            cluster.until_up()
            await grows(stage)
            assert stage.starts() == before, "training was started again"
            stage.check()
            # A machine with jobs on it.
            dead = min(machines_of(stage))
            count = len(stage.starts())
            cluster.kill(dead)
            written = on(stage, dead)
            await until(lambda: agent.running == 3 and len(stage.starts()) > count, LONG)
            assert on(stage, dead) == written
            await stage.joined(len(cluster.nodes) - 1)
            stage.check()
            # It comes back, and is used again.
            cluster.start(dead)
            await stage.joined()
            more = await toys(stage, "more", 6)
            await until(lambda: more.running >= 3 and on(stage, dead) > written, LONG)
            stage.check()

    with slurm_cluster(nodes=3, gpus=2) as cluster:
        play(scene(cluster))


def _holder(stage: Stage) -> int:
    text = (stage.node_folder(".bridge") / "node.lock").read_text().strip()
    return int(text) if text and Path(f"/proc/{text}").exists() else 0


async def grows(stage: Stage, by: int = 30) -> None:
    """Wait until jobs on all GPUs in use have written so many lines more."""
    before = {gpu: len(lines) for gpu, lines in stage.lines().items()}
    await until(
        lambda: all(len(stage.lines()[gpu]) >= count + by for gpu, count in before.items()), LONG
    )


def test_a_job_on_several_machines_runs_on_all_of_them_or_none(place: Path) -> None:
    require_slurm()
    train = """
        echo "$THEMIS_RANK of $THEMIS_WORLD_SIZE at $THEMIS_RENDEZVOUS" > "$AUDIT/$THEMIS_RANK.x"
        trap 'exit 75' TERM; sleep 600 & wait $!
    """

    async def scene(cluster: SlurmCluster) -> None:
        async with staged(cluster, place, policy="fifo") as stage:
            app = {
                "name": "wide", "command": ["/bin/sh", "-c", train],
                "env": {"AUDIT": str(stage.audit)}, "workdir": "/",
                "gpus": {"per_job_min": 4, "per_job_max": 4}, "duration": "1h",
            }  # fmt: skip
            await asyncio.to_thread(stage.client().submit, app, None)
            said: Callable[[], set[str]] = lambda: {  # noqa: E731 - asked again and again
                file.read_text().strip() for file in stage.audit.glob("*.x")
            }
            await until(lambda: len(said()) == 2, LONG)
            ends = {line.rpartition(" ")[2] for line in said()}
            assert len(ends) == 1, "all meet at one place"
            assert {line.partition(" at ")[0] for line in said()} == {"0 of 2", "1 of 2"}

    with slurm_cluster(nodes=2, gpus=2) as cluster:
        play(scene(cluster))
