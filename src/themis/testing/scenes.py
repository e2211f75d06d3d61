"""What tests of a service on a cluster of another scheduler do: sweeps, toys, and looks at both.

async with open_stage(place, machines, engine="ray", settings=PATIENT) as stage:
    agent = await toys(stage, "sweep", 3)
    await grows(stage)
"""

import asyncio
from pathlib import Path
from typing import Any

from themis.client import Client
from themis.model import AppSpec
from themis.testing.doors import until
from themis.testing.staging import OWNER, SHORT, Stage
from themis.testing.toys import ToyAgent
from themis.testing.world import simple_app

LONG = 600.0
"""Seconds that a wait for what has to happen may take; then the test hangs."""
PATIENT = {
    **SHORT, "lease": 300.0, "grace": 2.0, "bid_deadline": 30.0, "solve_budget": 15.0,
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
"""A trial: of those with less to lose, 3 is the best."""


def sweep(name: str) -> dict[str, Any]:
    """An app that halves four trials to one."""
    return {
        "name": name,
        "command": ["/bin/sh", "-c", TRAIN, "train", "{q}"],
        "search": {"method": "grid", "params": {"q": [7, 3, 9, 5]}},
        "stop": {"method": "halving", "max_iterations": 36},
        "iteration_seconds": 0.1,
        "checkpoint": {"grace": "1s"},
        "workdir": "/",
    }


async def sweep_for(stage: Stage, tenants: list[str]) -> None:
    """Let each of them submit a sweep; all end well, with the right winner."""
    apps = []
    for name in tenants:
        made = await asyncio.to_thread(stage.client().create_token, "tenant", name)
        tenant = Client(f"http://{stage.http}", made["token"])
        answer = await asyncio.to_thread(tenant.submit, sweep(f"sweep-{name}"))
        apps.append(str(answer["app"]))
    for app_name in apps:
        found = await over(stage, app_name)
        assert found["outcome"] == "finished", found
        by_param = {job["params"]["q"]: job for job in found["jobs"]}
        assert found["best"] == by_param[3]["job"]
        assert by_param[3]["iterations"] == 36


async def toys(stage: Stage, name: str, jobs: int) -> ToyAgent:
    """An app whose jobs write about themselves for ever, with an agent of the test's."""
    spec: AppSpec = simple_app(name, jobs=jobs, owner=OWNER)
    await stage.submit(spec)
    return await stage.agent(spec)


async def over(stage: Stage, app: str) -> dict[str, Any]:
    """Wait until an app is over; its results."""
    while True:
        found = dict(await asyncio.to_thread(stage.client().results, app))
        if found["outcome"]:
            return found
        await asyncio.sleep(0.5)


def lines_on(stage: Stage, machine: str) -> int:
    """Lines that jobs have written on a machine."""
    return sum(len(lines) for gpu, lines in stage.lines().items() if gpu.startswith(f"{machine}."))


def machines_of(stage: Stage) -> set[str]:
    """Machines on which jobs have written."""
    return {gpu.partition(".")[0] for gpu in stage.lines()}


async def grows(stage: Stage, by: int = 30) -> None:
    """Wait until jobs on all GPUs in use have written so many lines more."""
    before = {gpu: len(lines) for gpu, lines in stage.lines().items()}
    await until(
        lambda: all(len(stage.lines()[gpu]) >= count + by for gpu, count in before.items()), LONG
    )


def bridge_of(stage: Stage) -> int:
    """The process of the bridge; 0 if it is gone."""
    text = (stage.node_folder(".bridge") / "node.lock").read_text(encoding="ascii").strip()
    return int(text) if text and Path(f"/proc/{text}").exists() else 0
