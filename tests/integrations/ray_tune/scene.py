"""Scenes with a real service and real Rays; run in namespaces of their own by the tests."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.service_processes import Stage, open_stage
from themis.engines.supervisor import processes

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[2] / "examples" / "ray-tune" / "tune_lr.py"
SETTINGS = {
    "grace": 8.0, "heartbeat": 0.5, "bid_deadline": 2.0, "solve_budget": 1.0,
    "guard": 5.0, "pooling": 1.0,
}  # fmt: skip
PATIENCE = 600.0


class Script:
    """One that was started."""

    def __init__(self, stage: Stage, name: str, process: asyncio.subprocess.Process) -> None:
        self.name, self.process = name, process
        self._folder = stage.folder / "results" / name

    def results(self) -> dict[float, list[dict[str, Any]]]:
        """All results of each trial, in the order Tune had them."""
        found: dict[float, list[dict[str, Any]]] = {}
        for path in self._folder.glob("*/result.json"):
            lines = [json.loads(line) for line in path.read_text().splitlines() if line]
            if lines:
                config = lines[0]["config"]
                found[config.get("quality", config.get("lr"))] = lines
        return found

    def steps(self) -> list[int]:
        """How far each trial is."""
        return [lines[-1]["step"] for lines in self.results().values()]


async def start(stage: Stage, name: str, *words: str, alone: bool = False) -> Script:
    """Run a script of somebody, with Tune's results below `results/NAME`."""
    environ = {
        **stage.environment,
        "HOME": str(stage.folder),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_USAGE_STATS_REPORT_URL": "http://127.0.0.1:9/",
        # Else workers are of the least importance, and starve on a machine that is busy.
        "RAY_worker_niceness": "0",
    }
    if not alone:
        token = str(await stage.tenant())
        environ |= {"THEMIS_SERVER": f"http://{stage.http}", "THEMIS_TOKEN_FILE": token}
    with (stage.folder / f"{name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *words, "--storage", str(stage.folder / "results")),
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    return Script(stage, name, process)


async def until(true: Callable[[], object], script: Script) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():
            assert script.process.returncode is None, f"{script.name} has ended"
            await asyncio.sleep(0.2)


async def ended(stage: Stage, *scripts: Script) -> dict[str, Any]:
    """Wait for scripts; what came of them and of their apps."""
    async with asyncio.timeout(PATIENCE):
        codes = {script.name: await script.process.wait() for script in scripts}
    client = stage.client()
    sheets = {name: await asyncio.to_thread(client.wait, name, timeout=30.0) for name in codes}
    return {
        "codes": codes,
        "outcomes": {name: sheet.get("outcome") for name, sheet in sheets.items()},
        "shown": {name: await asyncio.to_thread(client.results, name) for name in codes},
        "results": {script.name: script.results() for script in scripts},
    }


def nodes() -> list[int]:
    """Processes in leases."""
    pids = [
        pid
        for pid in processes.all_processes()
        if b"themis.integrations.ray_tune.trial_node" in words(pid)
    ]
    return [pid for pid in pids if b"exec" not in words(pid)]


def words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def tuned(scheduler: str, name: str, trials: int, last: int, *more: str) -> tuple[str, ...]:
    """The words of a script that writes down what its trials did."""
    told = ("--trials", str(trials), "--last", str(last), "--seconds", "0.5")
    return (name, str(HERE / "tuned.py"), scheduler, name, *told, *more)


async def quick(stage: Stage) -> dict[str, Any]:
    """The example, with one trial: a Ray node takes many seconds of CPU, each worker some more."""
    words = ("--trials", "1", "--iterations", "2", "--pause", "0", "--pretend", "0")
    return await ended(stage, await start(stage, "tune-lr", str(EXAMPLE), *words))


async def sharing(stage: Stage) -> dict[str, Any]:
    """Two scripts share three GPUs, and one of them runs once more on a Ray of its own."""
    first = await start(stage, *tuned("hyperband", "brackets", 8, 9))
    second = await start(stage, *tuned("asha", "rungs", 5, 4))
    told = await ended(stage, first, second)
    alone = await start(stage, *tuned("hyperband", "alone", 8, 9, "--gpus", "3"), alone=True)
    async with asyncio.timeout(PATIENCE):
        told["codes"]["alone"] = await alone.process.wait()
    told["alone"] = alone.results()
    told["said"] = (stage.folder / "alone.log").read_text(errors="replace")
    return told


async def shrinking(stage: Stage) -> dict[str, Any]:
    """GPUs go and come: to another app, with a kill -9, and while the service is away."""
    script = await start(stage, *tuned("fifo", "shrinks", 2, 400))
    await until(lambda: len(script.steps()) == 2 and min(script.steps()) >= 3, script)
    client = stage.client()
    # A short one, which is soon worse off than a long one.
    short = {"name": "other", "command": ["/bin/sleep", "5"], "duration": 5, "workdir": "/"}
    await asyncio.to_thread(client.submit, short)
    await asyncio.to_thread(client.wait, "other", timeout=PATIENCE)
    await both_train(script)
    told: dict[str, Any] = {"graceful": script.results()}

    os.kill(nodes()[0], signal.SIGKILL)
    await until(lambda: len(nodes()) < 2, script)
    await both_train(script)

    await stage.kill()
    await until(lambda: not nodes(), script)  # Their leases are over.
    told["away"] = script.results()
    await stage.start()
    await both_train(script)
    (stage.folder / "results" / "hurry").touch()
    return {**told, **await ended(stage, script)}


async def both_train(script: Script) -> None:
    """Wait until each trial has come further, and so is on a GPU."""
    before = script.results()
    await until(
        lambda: (
            all(
                lines[-1]["step"] >= before[quality][-1]["step"] + 2
                for quality, lines in script.results().items()
            )
            and len(nodes()) == 2
        ),
        script,
    )


SCENES = {
    "quick": (quick, {"m0": 1}, 30.0),
    # Longer than a Ray node takes to start on a machine with much else to do.
    "sharing": (sharing, {"m0": 2, "m1": 1}, 90.0),
    "shrinking": (shrinking, {"m0": 2}, 30.0),
}


async def main(folder: Path, name: str) -> None:
    scene, machines, lease = SCENES[name]
    settings = {**SETTINGS, "lease": lease}
    async with open_stage(folder, machines, settings=settings, node_ttl=20.0) as stage:
        try:
            told = await scene(stage)
        except BaseException:
            for path in folder.glob("*.log"):
                tail = path.read_text(errors="replace")[-6000:]
                sys.stderr.write(f"--- {path.name}\n{tail}\n")
            raise
    (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
