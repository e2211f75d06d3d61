"""Sweeps on a real service with real nodes, agent hosts and processes."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.support.grpc_service import until
from tests.support.service_processes import Stage, open_stage

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
            assert best["machine"] in {"m0", "m1"}
            assert best["checkpoint_root"] == str(stage.folder / "state-nodes" / "checkpoints")
            saved = Path(best["checkpoint_root"]) / best["checkpoint"] / "n"
            assert saved.read_text() == "36\n"
            again = await submit(stage, sweep(name="sweep"))
            assert again == "sweep-2", "a name that is taken gets a number"

    play(scene())


@pytest.mark.slow
def test_sweep_ends_the_same_when_service_and_agents_are_killed(place: Path) -> None:
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
def test_job_that_cannot_run_gets_its_reason_and_disturbs_no_other(place: Path) -> None:
    async def scene() -> None:
        async with open_stage(place, {"m0": 2}) as stage:
            bad = await submit(stage, sweep(name="bad", command=["/no/such/{q}"], retries=0))
            good = await submit(stage, sweep(name="good"))
            assert (await over(stage, bad))["outcome"].startswith("failed: ")
            check_winner(await over(stage, good))

    play(scene())


UNCOUNTED = """
cd "$THEMIS_CHECKPOINT_DIR"
n=$(cat n 2>/dev/null || echo 0)
trap 'echo "$n" > n; exit 75' TERM
while [ "$n" -lt 250 ]; do
    sleep 0.05 & wait $!
    n=$((n + 1))
    echo "{\\"it\\": $n, \\"loss\\": 0.5}" >> "$THEMIS_METRICS"
done
"""
"""Has no limit, reports its iterations all the same, and takes longer than a lease."""


@pytest.mark.slow
def test_job_without_limit_is_paused_and_resumes_to_its_own_end(place: Path) -> None:
    async def scene() -> None:
        async with open_stage(place, {"m0": 2}) as stage:
            command = ["/bin/sh", "-c", UNCOUNTED]
            app = await submit(stage, {"name": "one", "command": command, "workdir": "/"})
            client = stage.client()

            async def iterations() -> float:
                sheet = await asyncio.to_thread(client.status, app)
                return float(sheet["jobs"][0]["iterations"])

            while await iterations() < 5.0:
                await asyncio.sleep(0.2)
            await asyncio.to_thread(client.pause, app)
            while (await asyncio.to_thread(client.status, app))["runs"]:
                await asyncio.sleep(0.2)
            sheet = await asyncio.to_thread(client.status, app)
            assert sheet["jobs"][0]["state"] == "waiting"
            assert sheet["jobs"][0]["target"] is None
            await asyncio.to_thread(client.resume, app)
            found = await over(stage, app)
            assert found["outcome"] == "finished"
            assert found["jobs"][0]["iterations"] == 250.0

    play(scene())


BEYOND = """
n=0
trap 'exit 75' TERM
while true; do
    sleep 0.05 & wait $!
    n=$((n + 1))
    echo "{\\"it\\": $n, \\"loss\\": 0.5}" >> "$THEMIS_METRICS"
done
"""
"""Does not know its limit."""


@pytest.mark.slow
@pytest.mark.parametrize("saves", [True, False])
def test_a_job_that_does_not_keep_to_its_limit_is_done_there(place: Path, saves: bool) -> None:
    async def scene() -> None:
        async with open_stage(place, {"m0": 2}) as stage:
            script = BEYOND if saves else BEYOND.replace("exit 75", ":")
            one = {
                "name": "one",
                "command": ["/bin/sh", "-c", script],
                "stop": {"max_iterations": 10},
                "checkpoint": {"grace": "1s"},
                "workdir": "/",
            }
            found = await over(stage, await submit(stage, one))
            assert found["outcome"] == "finished"
            assert found["jobs"][0]["iterations"] >= 10.0

    play(scene())


@pytest.mark.slow
def test_trials_that_are_not_compared_on_their_way_all_finish(place: Path) -> None:
    async def scene() -> None:
        async with open_stage(place, {"m0": 4}) as stage:
            found = await over(stage, await submit(stage, sweep(stop={"max_iterations": 3})))
            by_param = {job["params"]["q"]: job for job in found["jobs"]}
            assert found["best"] == by_param[3]["job"]
            assert {job["state"] for job in found["jobs"]} == {"finished"}

    play(scene())
