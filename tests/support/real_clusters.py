"""Scenes on real clusters of other schedulers: a service there, apps, and what their jobs wrote.

with slurm_cluster(2, 1) as cluster:
    async with staged(cluster, folder) as stage:
        agent = await toys(stage, "one", 1)
        await until(lambda: agent.running == 1, LONG)
        cluster.kill(where(stage, "one"))
        check(stage)
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.support.gpu_share_audit import SWEEP, overlapping
from tests.support.grpc_service import until
from tests.support.scripted_world import simple_app
from tests.support.service_processes import OWNER, SHORT, Stage, open_stage
from tests.support.toy_agent import ToyAgent
from themis.client import Client

LONG = 900.0
"""Seconds after which something that should happen does not."""
HANGS_AFTER = 2400.0
SETTINGS = {**SHORT, "lease": 20.0, "grace": 2.0}
PATIENT = {**SETTINGS, "lease": 120.0, "bid_deadline": 30.0, "solve_budget": 15.0}
"""Rounds begin long before leases end: a service that is killed is back in time."""
TTL = 8.0
ITERATIONS = 240
"""Of the longest trial of a sweep."""


class RealCluster(Protocol):
    """A cluster of a test, and what can be done to it."""

    @property
    def engine(self) -> str:
        """What `--engine` is given."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of its machines."""

    @property
    def gpus(self) -> int:
        """How many each of them has."""

    @property
    def head(self) -> str:
        """The name of the scheduler's own program, for `kill` and `start`."""

    @property
    def environment(self) -> Mapping[str, str]:
        """By which the engine finds it."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Further words for `themis serve`."""

    @property
    def pace(self) -> float:
        """How much longer leases are here than elsewhere: what starts slowly needs them."""

    def start(self, name: str) -> None:
        """Start a machine, or the head."""

    def kill(self, name: str) -> None:
        """Cut its power."""

    def stop(self, name: str) -> None:
        """Let all of a machine hang."""

    def go_on(self, name: str) -> None:
        """Let it go on."""

    def cut(self, name: str) -> None:
        """Let the scheduler not reach a machine, whose jobs go on."""

    def mend(self, name: str) -> None:
        """Let it be reached again."""

    def until_up(self) -> None:
        """Wait until the head answers."""

    def held(self) -> str:
        """What it has given away and not got back; nothing if nothing is."""


OpenCluster = Callable[[int, int], AbstractContextManager[RealCluster]]
"""Starts a cluster of so many machines, of so many GPUs each."""
Scene = Callable[[RealCluster], Coroutine[Any, Any, None]]


def play(opening: AbstractContextManager[RealCluster], scene: Scene) -> None:
    """Play a scene on a cluster that is started for it."""
    with opening as cluster:
        asyncio.run(asyncio.wait_for(scene(cluster), HANGS_AFTER))


@asynccontextmanager
async def staged(cluster: RealCluster, place: Path, **more: Any) -> AsyncIterator[Stage]:
    """A service on a cluster."""
    machines = dict.fromkeys(cluster.nodes, cluster.gpus)
    given: dict[str, Any] = {
        "settings": SETTINGS, "engine": cluster.engine, "node_ttl": TTL, "flags": cluster.flags,
        "env": cluster.environment,
    } | more  # fmt: skip
    given["settings"] = {**given["settings"], "lease": given["settings"]["lease"] * cluster.pace}
    given["node_ttl"] *= cluster.pace
    async with open_stage(place, machines, **given) as stage:
        yield stage


async def toys(stage: Stage, name: str, jobs: int) -> ToyAgent:
    """An app of jobs of one GPU each, that train until it is told to finish."""
    # So long that they are never taken for nearly done, on a busy machine either.
    spec = simple_app(name, jobs=jobs, owner=OWNER, iterations=1_000_000)
    await stage.submit(spec)
    return await stage.agent(spec)


def sweep(stage: Stage, name: str, resumed: Path) -> dict[str, Any]:
    """An app file: four trials, of which that with 3 is the best."""
    return {
        "name": name,
        "command": ["/bin/sh", "-c", SWEEP, "train", "{q}"],
        "env": {"AUDIT": str(stage.audit), "RESUMED": str(resumed)},
        "search": {"method": "grid", "params": {"q": [7, 3, 9, 5]}},
        "stop": {"method": "halving", "max_iterations": ITERATIONS},
        "iteration_seconds": 0.1,
        "checkpoint": {"grace": "2s"},
        "workdir": "/",
    }


async def submitted(stage: Stage, tenant: str, resumed: Path) -> str:
    """A sweep of a tenant with a token of its own; its name."""
    made = await asyncio.to_thread(stage.client().create_token, "tenant", tenant)
    client = Client(f"http://{stage.http}", made["token"])
    answer = await asyncio.to_thread(client.submit, sweep(stage, f"sweep-{tenant}", resumed))
    return str(answer["app"])


async def over(stage: Stage, app: str) -> dict[str, Any]:
    """Wait for the end of an app: what came of it."""
    while True:
        found = dict(await asyncio.to_thread(stage.client().results, app))
        if found["outcome"]:
            return found
        await asyncio.sleep(0.5)


async def grows(stage: Stage, by: int = 30) -> None:
    """Wait until jobs on all GPUs in use have written so many lines more."""
    before = {gpu: len(lines) for gpu, lines in stage.lines().items()}
    await until(
        lambda: all(len(stage.lines()[gpu]) >= count + by for gpu, count in before.items()), LONG
    )


def check(stage: Stage) -> None:
    """No GPU was ever shared, and no job alive twice."""
    stage.check()
    assert not (twice := overlapping(stage.lines())), twice


def on(stage: Stage, machine: str) -> int:
    """Lines that jobs have written on a machine."""
    return sum(len(lines) for gpu, lines in stage.lines().items() if gpu.startswith(f"{machine}."))


def starts_of(stage: Stage, app: str) -> list[str]:
    """All starts of an app's jobs."""
    return [run for run, job in stage.starts().items() if job.startswith(app)]


def where(stage: Stage, app: str) -> str:
    """The machine on which something of an app wrote last."""
    written = [
        (line.at, gpu.rpartition(".")[0])
        for gpu, lines in stage.lines().items()
        for line in lines
        if line.job.startswith(app)
    ]
    return max(written)[1]


def busy(stage: Stage) -> list[str]:
    """Machines on which a job wrote a moment ago."""
    ends = {gpu: lines[-1] for gpu, lines in stage.lines().items() if lines}
    newest = max((line.at for line in ends.values()), default=0.0)
    return sorted(
        {
            gpu.rpartition(".")[0]
            for gpu, line in ends.items()
            if line.at > newest - 2.0 and line.what != "stop"
        }
    )


def holder(stage: Stage) -> int:
    """The process of the bridge; 0 if there is none."""
    text = (stage.node_folder(".bridge") / "node.lock").read_text(encoding="ascii").strip()
    return int(text) if text and Path(f"/proc/{text}").exists() else 0
