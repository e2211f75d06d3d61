"""Sweeps on a real service with real nodes, agent hosts and processes."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from themis.testing.doors import until
from themis.testing.staging import Stage, open_stage

TRAIN = """
cd "$THEMIS_CHECKPOINT_DIR"
save() { echo "$n" > .n && mv .n n; }
n=$(cat n 2>/dev/null || echo 0)
trap 'save; exit 75' TERM
while [ "$n" -lt "$THEMIS_MAX_ITERATIONS" ]; do
    sleep 0.05 & wait $!
    n=$((n + 1)); save
    echo "{\\"it\\": $n, \\"loss\\": $(($1 * 1000 / n))}" >> "$THEMIS_METRICS"
done
"""
"""Saves at each iteration; its loss tells how good its parameter is."""


def sweep(**more: Any) -> dict[str, Any]:
    return {
        "name": "sweep",
        "command": ["/bin/sh", "-c", TRAIN, "train", "{q}"],
        "search": {"method": "grid", "params": {"q": [7, 3, 9, 5]}},
        "stop": {"method": "halving", "max_iterations": 36},
        "iteration_seconds": 0.05,
        "checkpoint": {"grace": "1s"},
        "workdir": "/",
        **more,
    }


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 240.0))


async def results(stage: Stage, app: str) -> dict[str, Any]:
    found = await asyncio.to_thread(stage.client().results, app)
    return dict(found)


async def submit(stage: Stage, app: dict[str, Any]) -> str:
    answer = await asyncio.to_thread(stage.client().submit, app, None)
    return str(answer["app"])


async def over(stage: Stage, app: str) -> dict[str, Any]:
    """Wait for the end of an app."""
    while True:
        found = await results(stage, app)
        if found["outcome"]:
            return found
        await asyncio.sleep(0.2)


def check_winner(found: dict[str, Any]) -> None:
    assert found["outcome"] == "finished"
    by_param = {job["params"]["q"]: job for job in found["jobs"]}
    assert found["best"] == by_param[3]["job"]
    # Halving with about the same work in every phase: 4 jobs, then 2, then 1.
    assert by_param[3]["iterations"] == 36
    assert by_param[3]["metric"] == 3 * 1000 // 36
    assert by_param[5]["iterations"] > by_param[7]["iterations"] == by_param[9]["iterations"]


@pytest.mark.slow
def test_a_sweep_ends_with_its_winner(place: Path) -> None:
    async def scene() -> None:
        async with open_stage(place, {"m0": 2, "m1": 2}) as stage:
            app = await submit(stage, sweep())
            found = await over(stage, app)
            check_winner(found)
            best = next(job for job in found["jobs"] if job["job"] == found["best"])
            saved = stage.folder / "state-nodes" / "checkpoints" / best["checkpoint"] / "n"
            assert saved.read_text() == "36\n"
            again = await submit(stage, sweep(name="sweep"))
            assert again == "sweep-2", "a name that is taken gets a number"

    play(scene())


@pytest.mark.slow
def test_a_sweep_comes_to_the_same_end_when_service_and_agents_are_killed(place: Path) -> None:
    async def scene() -> None:
        async with open_stage(place, {"m0": 2, "m1": 2}) as stage:
            app = await submit(stage, sweep(stop={"method": "halving", "max_iterations": 72}))
            await until(lambda: bool(stage.hosts()))
            await asyncio.sleep(1.0)
            for number in stage.hosts():
                os.kill(number, signal.SIGKILL)
            await asyncio.sleep(1.0)
            await stage.kill()
            await stage.start()
            found = await over(stage, app)
            by_param = {job["params"]["q"]: job for job in found["jobs"]}
            assert found["best"] == by_param[3]["job"]
            assert by_param[3]["iterations"] == 72

    play(scene())


@pytest.mark.slow
def test_a_job_that_cannot_run_gets_its_reason_and_hurts_nobody(place: Path) -> None:
    async def scene() -> None:
        async with open_stage(place, {"m0": 2}) as stage:
            bad = await submit(stage, sweep(name="bad", command=["/no/such/{q}"], retries=0))
            good = await submit(stage, sweep(name="good"))
            assert (await over(stage, bad))["outcome"].startswith("failed: ")
            check_winner(await over(stage, good))

    play(scene())
