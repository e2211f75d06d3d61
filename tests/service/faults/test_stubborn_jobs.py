"""Jobs that will not go, through service and node: they are gone, and their GPUs are used again."""

import asyncio
from pathlib import Path

import pytest

from tests.support.files import files_below
from tests.support.grpc_service import until
from tests.support.requirements import only_chaos
from tests.support.scripted_world import simple_app
from tests.support.service_processes import OWNER, open_stage
from themis.protocol.node_messages import RunState

LONG = 120.0
STUBBORN = {
    "deaf": """
        trap '' TERM INT HUP; echo $$ > "$AUDIT/../said/deaf"
        while :; do sleep 1; done
    """,
    "forking": """
        trap '' TERM
        (setsid /bin/sh -c 'trap "" TERM HUP; echo $$ > "$AUDIT/../said/forking"
            while :; do sleep 1; done' > /dev/null 2>&1 &)
        while :; do sleep 1; done
    """,
    "orphaning": """
        (setsid /bin/sh -c 'trap "" TERM HUP; echo $$ > "$AUDIT/../said/orphaning"
            while :; do sleep 1; done' &)
        sleep 1; exit 0
    """,
    "loud": """
        trap '' TERM; echo $$ > "$AUDIT/../said/loud"
        while :; do head -c 4000000 /dev/zero | tr '\\0' x; echo; done
    """,
}
MOST_BYTES = 3 * 32 << 20
"""What a loud job may take of the disk: its log is cut at 32 MiB, and grows while that is done."""


def size_of(folder: Path) -> int:
    found = 0
    for file in files_below(folder):
        try:
            found += file.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return found


@only_chaos
@pytest.mark.chaos
@pytest.mark.slow
def test_jobs_that_will_not_go_are_gone(place: Path) -> None:
    (place / "said").mkdir()
    (place / "said").chmod(0o777)

    async def scene() -> None:
        async with open_stage(place, {"m0": len(STUBBORN)}, policy="fifo") as stage:
            agents = {}
            for name, script in STUBBORN.items():
                spec = simple_app(name, iterations=10**6, seconds=1.0, owner=OWNER)
                await stage.submit(spec)
                agents[name] = await stage.agent(spec, script=script)
            said = {name: place / "said" / name for name in STUBBORN}
            await until(lambda: all(file.exists() for file in said.values()), LONG)
            # One left somebody behind and went: whom it left goes with it.
            await until(lambda: agents["orphaning"].over, LONG)
            assert [run.code for run in agents["orphaning"].ended] == [0]
            await until(lambda: size_of(stage.node_folder("m0")) > 16 << 20, LONG)
            assert stage.jobs_alive()
            for name in ("deaf", "forking", "loud"):
                agents[name].finish()
            await until(lambda: all(agent.over for agent in agents.values()), LONG)
            await until(lambda: not stage.jobs_alive(), LONG)
            assert size_of(stage.node_folder("m0")) < MOST_BYTES
            # All GPUs are to be had again, and none is quarantined.
            spec = simple_app("after", jobs=4, iterations=10**6, seconds=1.0, owner=OWNER)
            await stage.submit(spec)
            after = await stage.agent(spec)
            await until(lambda: after.running == len(STUBBORN), LONG)
            await until(lambda: len(stage.starts()) == len(STUBBORN))
            assert {run.state for run in after.runs.values()} == {RunState.RUNNING}
            stage.check()

    asyncio.run(asyncio.wait_for(scene(), 600.0))
