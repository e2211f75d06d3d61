"""Somebody's own tuner against a real service, with real nodes and processes, and kill -9."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.files import files_named
from tests.support.grpc_service import until
from tests.support.service_processes import Stage, open_stage

TUNER = """
import json, sys
from themis import OwnTuner

class Mine(OwnTuner):
    def should_stop(self, trial):
        return trial.params["q"] == 8 and trial.iterations >= 2

    def choose(self, ranked, count):
        print("chosen", flush=True)
        return ranked[:1]           # fewer than the file allows

    def suggest(self, trial):
        return {"q": trial.params["q"] - 1}

print(json.dumps(Mine().run(sys.argv[1], seed=7)), flush=True)
"""
TRAIN = """
cd "$THEMIS_CHECKPOINT_DIR"
n=$(cat n 2>/dev/null || echo 0)
trap 'exit 75' TERM
while [ "$n" -lt "$THEMIS_MAX_ITERATIONS" ]; do
    if [ "$1" = 8 ] && [ "$n" = 2 ]; then sleep 600 & wait $!; fi
    sleep 0.05 & wait $!
    n=$((n + 1)); echo "$n" > .n && mv .n n; echo "$n" >> ran
    echo "{\\"it\\": $n, \\"loss\\": $(($1 * 1000 / n))}" >> "$THEMIS_METRICS"
done
"""
APP = {
    "name": "mine",
    "command": ["/bin/sh", "-c", TRAIN, "train", "{q}"],
    "search": {"method": "grid", "params": {"q": [8, 4, 9, 6]}},
    "stop": {"method": "halving", "max_iterations": 60},
    "iteration_seconds": 0.05,
    "checkpoint": {"grace": "1s"},
    "workdir": "/",
}


async def start(stage: Stage) -> asyncio.subprocess.Process:
    script, app = stage.folder / "tuner.py", stage.folder / "app.yaml"
    script.write_text(TUNER)
    app.write_text(json.dumps(APP))
    token = str(await stage.tenant())
    environ = {
        **stage.environment,
        "THEMIS_SERVER": f"http://{stage.http}",
        "THEMIS_TOKEN_FILE": token,
    }
    with (stage.folder / "tuner.log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, str(script), str(app)),
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def said(stage: Stage) -> str:
    return (stage.folder / "tuner.log").read_text(encoding="utf-8")


def trained(stage: Stage) -> dict[str, list[int]]:
    """Every iteration that was ever done, by job."""
    files = files_named("ran", stage.folder)
    return {path.parent.name: [int(line) for line in path.read_text().split()] for path in files}


def total(stage: Stage) -> int:
    return sum(map(len, trained(stage).values()))


@pytest.mark.slow
def test_killed_tuner_and_service_finish_without_repeating_work(place: Path) -> None:
    async def scene() -> None:
        async with open_stage(place, {"m0": 4}) as stage:
            first = await start(stage)
            await until(lambda: total(stage) >= 12)
            first.send_signal(signal.SIGKILL)
            await first.wait()
            second = await start(stage)
            await until(lambda: "chosen" in said(stage))
            await stage.kill()
            second.send_signal(signal.SIGKILL)
            await second.wait()
            await stage.start()
            third = await start(stage)
            assert await third.wait() == 0, said(stage)
            check(stage, json.loads(said(stage).splitlines()[-1]))
            apps = await asyncio.to_thread(stage.client().apps)
            assert apps["apps"] == [], "it was one app all along"

    asyncio.run(asyncio.wait_for(scene(), 240.0))


def check(stage: Stage, found: dict[str, Any]) -> None:
    assert (found["app"], found["outcome"]) == ("mine", "finished")
    by_param = {job["params"]["q"]: job for job in found["jobs"]}
    assert sorted(by_param) == [3, 5, 7, 8], "as suggested"
    assert found["best"] == by_param[3]["job"]
    assert by_param[3]["iterations"] == 60
    assert by_param[3]["metric"] == 3 * 1000 // 60
    assert by_param[8]["iterations"] == 2, "it was stopped, and would never have ended"
    assert by_param[5]["iterations"] == by_param[7]["iterations"]
    for job in found["jobs"]:
        ran = trained(stage)[job["job"]]
        assert ran == list(range(1, len(ran) + 1)), "nothing was trained twice or left out"
        assert len(ran) == job["iterations"]
