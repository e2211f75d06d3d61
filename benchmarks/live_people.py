"""Cases of benchmarks/live.py about what people wait for, and what their jobs report."""

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from live_lab import ENVIRONMENT, MARK, THEMIS, Agent, Lab, apps_of, open_folder, wait

from tests.support.scripted_world import simple_app
from themis.client import Client, job_app
from themis.protocol.agent_messages import PointsNews

_PATIENCE = 120.0
"""Seconds after which something will not happen any more."""
_QUIET = 6.0
"""Seconds in which a service has got ready for whoever comes next."""
_RATE = 10
"""Lines a second of each job."""


def submit(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Apps on an empty cluster, each of an owner of its own; then more of the last one."""
    marks = open_folder(folder / "marks")
    owners = [f"owner-{number}" for number in range(args.changes)]
    lab = Lab(folder, {})
    lab.fill([], nodes=1, gpus=4, owners=owners)
    with lab.service() as service, lab.real_node(4) as node:
        first = []
        for owner in owners:
            wait(_QUIET, service, node)
            first.append(_submitted(lab, owner, marks / f"first-{owner}"))
        following = [
            _submitted(lab, owners[-1], marks / f"next-{number}") for number in range(args.changes)
        ]
    return {
        "submit_s": statistics.median(first),
        "worst_s": max(first),
        "next_s": statistics.median(following),
    }


def _submitted(lab: Lab, owner: str, mark: Path) -> float:
    """Seconds from a submission to the process."""
    token = lab.token_file(owner).read_text(encoding="ascii").strip()
    client = Client(lab.http, token)
    app = job_app(["sh", "-c", MARK, str(mark)], name=mark.name)
    began = time.time()
    client.submit(app)
    _until(mark.exists)
    took = float(mark.read_text(encoding="ascii")) - began
    # The next one is to find nobody else.
    client.wait(mark.name, timeout=_PATIENCE)
    time.sleep(1.0)
    return took


def verbs(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Commands, with many apps in the service."""
    lab = Lab(folder, {})
    lab.fill(apps_of(args.agents or 1000), nodes=16, tenants=False)
    found: dict[str, float] = {}
    with lab.service() as service:
        wait(5.0, service)
        token = {"THEMIS_TOKEN_FILE": str(folder / "admin.token"), "THEMIS_SERVER": lab.http}
        environment = {**ENVIRONMENT, **token}
        for name, words in {"ls": ["ls"], "status": ["status", "app-7"]}.items():
            _command(words, environment)  # The first one compiles.
            times = [_command(words, environment) for _ in range(args.changes)]
            found[f"{name}_s"] = statistics.median(took for took, _ in times)
            found[f"{name}_cpu_s"] = statistics.median(cpu for _, cpu in times)
    return found


def _command(words: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds that a whole command takes, by the clock and of the processor."""
    before, began = _children_cpu(), time.perf_counter()
    subprocess.run([*THEMIS, *words], env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began, _children_cpu() - before


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def reading(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Many jobs that report."""
    return asyncio.run(_reading(folder, args.agents or 100, args.seconds))


async def _reading(folder: Path, jobs: int, seconds: float) -> dict[str, float]:
    marks = open_folder(folder / "marks")
    lab = Lab(folder, {"idle_after": 0}, "equal-share")
    spec = simple_app("sweep", gpus=1, jobs=jobs, iterations=10**6, owner="vision")
    lab.fill([spec], nodes=1, gpus=jobs)
    # They do nothing: what they would write is written for them, by one process for all.
    line = ': > "$THEMIS_METRICS"; echo "$THEMIS_METRICS" > "$0.new" && mv "$0.new" "$0"'
    with lab.service(), lab.real_node(jobs) as node:
        agent = Reader(lab, spec, f"{line} && exec sleep 6000", marks)
        async with asyncio.timeout(_PATIENCE):
            while len(agent.marks()) < jobs:  # noqa: ASYNC110 - other processes write them
                await asyncio.sleep(0.5)
        files = [text.strip() for text in agent.marks()]
        writing = asyncio.create_task(_write(files))
        await asyncio.sleep(5.0)
        used, began, heard = node.own_cpu_s(), time.monotonic(), agent.points
        await asyncio.sleep(seconds)
        took = time.monotonic() - began
        share, heard = (node.own_cpu_s() - used) / took, agent.points - heard
        for task in (writing, agent.task):
            task.cancel()
        memory = node.memory_mb()
    return {
        "cpu_percent": 100.0 * share,
        "lines": float(_RATE * jobs),
        "heard": heard / took,
        "rss_mb": memory,
    }


class Reader(Agent):
    """Counts what it hears of its jobs."""

    points = 0

    def hear(self, item: object) -> None:
        """News of any kind."""
        if isinstance(item, PointsNews):
            self.points += len(item.points)


async def _write(files: list[str]) -> None:
    """Let every job report so many lines a second."""
    iteration = 0
    began = time.monotonic()
    opened = [os.open(path, os.O_WRONLY | os.O_APPEND) for path in files]
    try:
        while True:
            iteration += 1
            told = {"it": iteration, "loss": 1.0 / iteration, "t": time.time(), "accuracy": 0.5}
            text = json.dumps(told).encode() + b"\n"
            for file in opened:
                os.write(file, text)
            await asyncio.sleep(began + iteration / _RATE - time.monotonic())
    finally:
        for file in opened:
            os.close(file)


def _until(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + _PATIENCE
    while not happened():
        if time.monotonic() > until:
            raise RuntimeError(f"nothing has happened within {_PATIENCE:g} s")
        time.sleep(0.005)
