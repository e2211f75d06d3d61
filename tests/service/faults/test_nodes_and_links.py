"""Nodes that die or stop, a service that stops, links that break: GPUs are never shared."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.support.cuttable_link import Link, open_link
from tests.support.grpc_service import until
from tests.support.requirements import only_chaos
from tests.support.scripted_world import simple_app
from tests.support.service_processes import OWNER, SHORT, Stage, open_stage
from tests.support.toy_agent import ToyAgent
from themis.protocol.node_messages import RunState

pytestmark = [pytest.mark.chaos, pytest.mark.slow]
LONG = 120.0


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 600.0))


async def submit(stage: Stage, name: str, jobs: int = 1) -> ToyAgent:
    spec = simple_app(name, jobs=jobs, iterations=10**6, seconds=1.0, owner=OWNER)
    await stage.submit(spec)
    return await stage.agent(spec)


def on(stage: Stage, node: str) -> int:
    """How many lines jobs wrote about the GPUs of a node."""
    return sum(len(lines) for gpu, lines in stage.lines().items() if gpu.startswith(f"{node}."))


def written(stage: Stage, node: str, count: int) -> Callable[[], bool]:
    return lambda: on(stage, node) > count


def written_by(stage: Stage) -> set[str]:
    """The jobs that ever wrote a line."""
    return set(stage.starts().values())


def test_a_killed_node_loses_no_gpu_and_its_jobs_go_elsewhere(place: Path) -> None:
    async def scene() -> None:
        async with open_stage(place, {"m0": 1, "m1": 1}) as stage:
            agent = await submit(stage, "sweep", jobs=2)
            await until(lambda: agent.running == 2 and on(stage, "m0") and on(stage, "m1"))
            stage.signal_node("m0", signal.SIGKILL)
            # The jobs have ended by themselves when the service gives the machine up.
            await until(lambda: any(run.state is RunState.LOST for run in agent.ended), LONG)
            stage.check()
            before = on(stage, "m0")
            assert len(agent.held) < 2
            # A restart of the service brings its nodes back.
            await stage.kill()
            await stage.start()
            await stage.joined()
            await until(lambda: agent.running == 2 and on(stage, "m0") > before, LONG)
            stage.check()

    play(scene())


def test_node_stopped_beyond_its_lease_frees_the_gpu_before_reuse(place: Path) -> None:
    async def scene() -> None:
        async with open_stage(place, {"m0": 1}) as stage:
            first = await submit(stage, "first")
            await until(lambda: first.running == 1 and on(stage, "m0"))
            stage.signal_node("m0", signal.SIGSTOP)
            try:
                # The node cannot end its job; the job's supervisor does, at the end of the lease.
                await until(lambda: first.ended, LONG)
                assert not stage.jobs_alive(), "the service gave up a job that was alive"
                assert first.ended[0].state is RunState.LOST
                first.finish()
                await until(lambda: first.over, LONG)
                second = await submit(stage, "second")
            finally:
                stage.signal_node("m0", signal.SIGCONT)
            await until(lambda: second.running == 1 and "second/j0" in written_by(stage), LONG)
            stage.check()

    play(scene())


@only_chaos
def test_a_stopped_service_takes_nothing_from_nodes_that_it_did_not_hear(place: Path) -> None:
    async def scene() -> None:
        # Liveness is longer than the pause, the pause longer than the service waits for nodes'
        # heartbeats: what it did not hear while it was stopped proves nothing.
        settings = {**SHORT, "lease": 40.0}
        stage_of = open_stage(place, {"m0": 1}, settings=settings, node_ttl=12.0, policy="fifo")
        async with stage_of as stage:
            agent = await submit(stage, "sweep")
            await until(lambda: agent.running == 1 and stage.starts())
            before = stage.starts()
            for _ in range(3):
                seen = on(stage, "m0")
                os.kill(stage.pid, signal.SIGSTOP)
                try:
                    await until(written(stage, "m0", seen + 20))
                finally:
                    os.kill(stage.pid, signal.SIGCONT)
                await until(written(stage, "m0", seen + 30))
                await stage.joined()
            assert stage.starts() == before, "training was started again"
            assert agent.running == 1
            stage.check()

    play(scene())


def test_service_stopped_beyond_liveness_finds_gpus_empty_and_restarts_jobs(place: Path) -> None:
    async def scene() -> None:
        async with open_stage(place, {"m0": 1}) as stage:
            agent = await submit(stage, "sweep")
            await until(lambda: agent.running == 1 and stage.jobs_alive())
            os.kill(stage.pid, signal.SIGSTOP)
            try:
                # It accepts connections and never answers, so that the node must not hope.
                await until(lambda: not stage.jobs_alive(), LONG)
            finally:
                os.kill(stage.pid, signal.SIGCONT)
            await until(lambda: agent.running == 1 and len(stage.starts()) >= 2, LONG)
            stage.check()

    play(scene())


def test_disconnected_node_frees_its_gpu_before_reuse_and_rejoins(place: Path) -> None:
    async def scene(link: Link) -> None:
        async with open_stage(place, {}, host=link.here) as stage:
            await stage.add_node("far", 1, link.inside)
            await stage.joined()
            first = await submit(stage, "first")
            await until(lambda: first.running == 1 and on(stage, "far"), LONG)
            link.cut()
            # The service takes the run as lost, and must be right.
            await until(lambda: first.ended, LONG)
            assert not stage.jobs_alive(), "the service gave up a job that was alive"
            assert first.ended[0].state is RunState.LOST
            first.finish()
            await until(lambda: first.over, LONG)
            second = await submit(stage, "second")
            link.mend()
            await until(lambda: second.running == 1 and "second/j0" in written_by(stage), LONG)
            stage.check()

    with open_link() as link:
        play(scene(link))


@only_chaos
def test_a_link_that_is_back_soon_ends_no_training(place: Path) -> None:
    async def scene(link: Link) -> None:
        settings = {**SHORT, "lease": 60.0}
        async with open_stage(place, {}, host=link.here, settings=settings, node_ttl=15.0) as stage:
            await stage.add_node("far", 1, link.inside)
            await stage.joined()
            agent = await submit(stage, "sweep")
            await until(lambda: agent.running == 1 and stage.starts(), LONG)
            before = stage.starts()
            for _ in range(2):
                seen = on(stage, "far")
                link.cut()
                await until(written(stage, "far", seen + 30))
                link.mend()
                heard = await last_heard(stage)
                while await last_heard(stage) <= heard:
                    await asyncio.sleep(0.2)
            assert stage.starts() == before
            assert agent.running == 1
            stage.check()

    with open_link() as link:
        play(scene(link))


async def last_heard(stage: Stage) -> float:
    (node,) = (await asyncio.to_thread(stage.client().nodes))["nodes"]
    assert node["present"]
    return float(node["heard"])
