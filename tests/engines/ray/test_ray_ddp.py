"""The example of data-parallel training moves from two machines to one and back, on a real Ray."""

import asyncio
import importlib.util
import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

import themis
from tests.support.ray import RayCluster
from tests.support.requirements import missing
from themis.engines.base import Engine, ProgramExited, ProgramStarted
from themis.engines.host import boottime
from themis.engines.host.accounts import Owners
from themis.engines.ray.cluster import RayCluster as Ray
from themis.engines.ray.cluster import RaySettings
from themis.engines.task import Task

pytestmark = [pytest.mark.ray, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[3] / "examples" / "ddp" / "train.py"
LAST = 100_000


def python_for_all() -> str:
    """A Python that jobs of another user can run, with the packages of this one."""
    own = Path(sys.executable).resolve()
    if os.geteuid() == 0 and any(not parent.stat().st_mode & 0o001 for parent in own.parents):
        found = "/usr/bin/python3"
        asked = [found, "-c", "import sys; print(*sys.version_info[:2])"]
        said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
        if tuple(map(int, said)) != sys.version_info[:2]:
            missing(f"a Python {sys.version_info[0]}.{sys.version_info[1]} for all users (python3)")
        return found
    return sys.executable


async def until_iteration(engine: Engine, job: str, more: int) -> float:
    """Wait for so many iterations of this start; the last one."""
    count, last = 0, 0.0
    while count < more:
        samples = await engine.measure(job)
        count += len(samples)
        last = samples[-1].iteration if samples else last
        await asyncio.sleep(0.05)
    return last


async def next_of(engine: Engine, kind: type) -> object:
    event = await anext(engine.watch())
    assert isinstance(event, kind), event
    return event


def test_training_moves_from_two_machines_to_one_and_back(state: Path, ray: RayCluster) -> None:
    if importlib.util.find_spec("torch") is None:
        missing("torch is not installed (Python package torch)")
    folder = state.parent / "checkpoints"
    folder.mkdir(mode=0o711)
    packages = sysconfig.get_paths()["purelib"]
    env = {
        "PYTHONPATH": f"{Path(themis.__file__).parents[1]}:{packages}",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }

    python = python_for_all()

    def part(token: int, gpus: tuple[int, ...], rank: int, world: int, most: int) -> Task:
        return Task(
            "ddp", "ann", token, gpus, (python, str(EXAMPLE), "--pause", "0.01"),
            end=boottime.now() + 1200, grace=60.0, env=env,
            max_iterations=most, rank=rank, world=world, rendezvous=f"n0:{29400 + token}",
        )  # fmt: skip

    async def run(parts: Sequence[tuple[Engine, Task]], *, to_the_end: bool = False) -> float:
        """Start all parts, let them train, and end them in good order; how far they came."""
        for engine, task in parts:
            await engine.start(task)
        for engine, _ in parts:
            await next_of(engine, ProgramStarted)
        first = parts[0][0]
        reached = await until_iteration(first, "ddp", 1 if to_the_end else 20)
        if not to_the_end:
            await asyncio.gather(*(engine.checkpoint("ddp", task.token) for engine, task in parts))
        for engine, task in parts:
            ending = await next_of(engine, ProgramExited)
            assert isinstance(ending, ProgramExited)
            wanted = ("finished", 0) if to_the_end else ("resumable", 75)
            assert (ending.outcome, ending.code) == wanted, await engine.tail("ddp")
            assert to_the_end or task.rank or "processes" in await engine.tail("ddp")
        last = await first.measure("ddp")
        for engine, task in parts:
            await engine.forget("ddp", task.token)
        return max([reached, *(sample.iteration for sample in last)])

    async def scene() -> None:
        settings = RaySettings(python=str(ray.python), pending=300.0)
        cluster = Ray(state, settings=settings, checkpoints=folder)
        await cluster.look()
        engines = [await cluster.open(name, Owners.trusting()) for name in ("n0", "n1")]
        try:
            apart = [(engine, part(1, (0,), n, 2, LAST)) for n, engine in enumerate(engines)]
            first = await run(apart)
            second = await run([(engines[0], part(2, (0, 1), 0, 1, LAST))])
            assert second > first, "it goes on where it was"
            most = int(second) + 10
            again = [(engine, part(3, (0,), n, 2, most)) for n, engine in enumerate(engines)]
            assert await run(again, to_the_end=True) == most
        finally:
            for engine in engines:
                await engine.close()
            await cluster.close()

    asyncio.run(asyncio.wait_for(scene(), 1500.0))
