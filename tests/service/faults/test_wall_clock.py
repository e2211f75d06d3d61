"""A wall clock that jumps, under a service and nodes that run for real: leases do not notice.

The machine's own clock is never set: libfaketime tells the processes of one stage another time.
"""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tests.support.grpc_service import until
from tests.support.requirements import missing, only_chaos, require_tool
from tests.support.scripted_world import simple_app
from tests.support.service_processes import OWNER, Stage, open_stage

# Every look at the clock is slow under it: a machine with much else to do takes minutes to begin.
pytestmark = [pytest.mark.chaos, pytest.mark.slow, only_chaos]
LONG = 120.0
JUMPS = ("+1d", "-1d")
"""Forward by a day, and back by two."""


def library() -> Path:
    require_tool("faketime", package="faketime")
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        missing("libfaketimeMT.so.1 is not below /usr/lib (Debian package libfaketime)")
    return found[0]


def test_wall_clock_jump_ends_no_lease_and_restarts_no_job(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = place / "clock"
    said.write_text("+0\n", encoding="ascii")
    said.chmod(0o644)
    monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", str(said))
    monkeypatch.setenv("FAKETIME_NO_CACHE", "1")
    monkeypatch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    monkeypatch.setenv("NO_FAKE_STAT", "1")  # Files keep their real times.
    monkeypatch.setenv("LD_PRELOAD", str(library()))

    async def scene() -> None:
        async with open_stage(place, {"m0": 1}) as stage:
            spec = simple_app("sweep", iterations=10**6, seconds=1.0, owner=OWNER)
            await stage.submit(spec)
            agent = await stage.agent(spec)
            await until(lambda: agent.running == 1 and written(stage))
            before = stage.starts()
            for jump in JUMPS:
                said.write_text(f"{jump}\n", encoding="ascii")
                await asyncio.to_thread(stage.client().create_token, "viewer", f"at{jump[1:]}")
                # Longer than a lease, in lines that the job itself writes ten times a second.
                await until(partial(has_written, stage, written(stage) + 100), LONG)
            assert stage.starts() == before, "training was started again"
            assert agent.running == 1
            days = {line[:10] for line in stage.log().splitlines() if line.startswith("20")}
            assert len(days) >= 3, "the service saw none of it"
            stage.check()

    asyncio.run(asyncio.wait_for(scene(), 600.0))


def has_written(stage: Stage, lines: int) -> bool:
    return written(stage) >= lines


def written(stage: Stage) -> int:
    """Lines that jobs wrote."""
    return sum(map(len, stage.lines().values()))
