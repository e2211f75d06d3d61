"""The store's disk: full, damaged, brought back from a backup, brought back without one."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.grpc_service import until
from tests.support.requirements import only_chaos, require_tool
from tests.support.scripted_world import simple_app
from tests.support.service_processes import OWNER, SHORT, Stage, open_stage
from tests.support.toy_agent import ToyAgent
from themis.errors import UnavailableError
from themis.service.persistence.store import open_store

pytestmark = [pytest.mark.chaos, pytest.mark.slow]
LONG = 120.0
MEGABYTES = 200
"""Of the small disk: the store wants twice its reserve of 64, and more."""


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 600.0))


def app(name: str) -> Any:
    return simple_app(name, iterations=10**6, seconds=1.0, owner=OWNER)


async def submit(stage: Stage, name: str) -> ToyAgent:
    await stage.submit(app(name))
    return await stage.agent(app(name))


def renewed(agent: ToyAgent, ends: float) -> Callable[[], bool]:
    return lambda: min((lease.end for lease in agent.held.values()), default=0.0) > ends


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    require_tool("mount", package="mount")
    folder.mkdir()
    size = f"size={MEGABYTES}m,mode=0700"
    command = ["mount", "-t", "tmpfs", "-o", size, "themis-test", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        # Also if a test that failed has left somebody in there.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    """Leave no room at all."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            while True:
                try:
                    file.write(bytes(size))
                except OSError:
                    break


def test_with_a_full_disk_training_goes_on_and_new_apps_are_refused(place: Path) -> None:
    async def scene(disk: Path) -> None:
        flags = ("--store", f"sqlite:///{disk / 'themis.db'}")
        # Nothing is to end here: a busy machine has 11 s from a round to the end of its leases.
        terms = {**SHORT, "lease": 16.0, "solve_budget": 8.0}
        stage_of = open_stage(
            place, {"m0": 2}, policy="fifo", flags=flags, settings=terms, node_ttl=30.0
        )
        async with stage_of as stage:
            agent = await submit(stage, "first")
            await until(lambda: agent.running == 1 and stage.starts())
            before = stage.starts()
            fill(disk / "filler")
            with pytest.raises(UnavailableError, match="the disk is nearly full"):
                await stage.submit(app("more"), tries=1)
            # Leases are renewed, twice over.
            for _ in range(2):
                ends = max(lease.end for lease in agent.held.values())
                await until(renewed(agent, ends), LONG)
            assert stage.starts() == before, "training was started again"
            with pytest.raises(UnavailableError, match="full"):
                await stage.submit(app("still-full"), tries=1)
            (disk / "filler").unlink()
            second = await submit(stage, "second")
            await until(lambda: second.running == 1 or second.standings, LONG)
            assert agent.running == 1
            stage.check()
            # A restart finds all of it.
            await stage.kill()
            await stage.start()
            apps = (await asyncio.to_thread(stage.client().apps))["apps"]
            assert {"first", "second"} <= {line["app"] for line in apps}

    with small_disk(place / "disk") as disk:
        play(scene(disk))


def damage(path: Path) -> None:
    """Turn over every byte in the middle of a file."""
    with path.open("r+b") as file:
        size = path.stat().st_size
        for at in range(4096, size - 512, 8192):
            file.seek(at)
            some = file.read(512)
            file.seek(at)
            file.write(bytes(byte ^ 0xFF for byte in some))


async def themis(stage: Stage, *words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "themis", *words, "--state-dir", str(stage.state)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=stage.environment,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()


def move_away(stage: Stage, to: str) -> None:
    folder = stage.folder / to
    folder.mkdir()
    for file in stage.state.glob("themis.db*"):
        shutil.move(file, folder / file.name)


def epoch(stage: Stage) -> int:
    with open_store(f"sqlite:///{stage.state / 'themis.db'}", read_only=True) as store:
        return store.epochs()[-1].number


def test_a_damaged_store_is_refused_and_a_backup_takes_its_place(place: Path) -> None:
    async def scene() -> None:
        async with open_stage(place, {"m0": 2}, policy="fifo") as stage:
            first = await submit(stage, "first")
            await until(lambda: first.running == 1 and stage.starts())
            await themis(stage, "backup", str(place / "backup.db"))
            second = await submit(stage, "second")
            await until(lambda: second.running == 1 and "second/j0" in stage.starts().values())
            await stage.kill(15)
            last = epoch(stage)
            damage(stage.state / "themis.db")
            await stage.start(wait=False)
            assert await stage.ended() != 0
            await stage.kill()
            said = stage.log()[-1500:]
            print(said)
            assert "Traceback" not in said
            assert "themis.db" in said
            assert "restore" in said
            move_away(stage, "damaged")
            await themis(stage, "restore", str(place / "backup.db"))
            await stage.start()
            assert epoch(stage) > last
            # What came after the backup is forgotten, and the node ends it; the others go on, if
            # their leases have not ended meanwhile, or begin anew.
            await until(lambda: second.over, LONG)
            await until(lambda: first.running == 1, LONG)
            old = max(line.token for lines in stage.lines().values() for line in lines)
            third = await submit(stage, "third")
            await until(lambda: third.running == 1, LONG)
            await until(lambda: "third/j0" in stage.starts().values())
            assert min(lease.token for lease in third.held.values()) > old
            stage.check()

    play(scene())


@only_chaos
def test_no_node_obeys_a_service_on_an_old_store_copy(place: Path) -> None:
    async def scene() -> None:
        async with open_stage(place, {"m0": 1}, policy="fifo") as stage:
            await stage.kill(15)
            shutil.copytree(stage.state, place / "copy")
            for _ in range(2):
                await stage.start()
                await stage.joined()
                await until(lambda: f"epoch {epoch(stage)}" in stage.node_log("m0"))
                await stage.kill(15)
            # Not a restore, which would raise the epoch, but files put back by hand.
            move_away(stage, "newer")
            for file in (place / "copy").glob("themis.db*"):
                shutil.copy(file, stage.state / file.name)
            await stage.start()
            agent = await submit(stage, "first")
            await until(lambda: "does not obey a service of epoch 2" in stage.node_log("m0"), LONG)
            await until(lambda: agent.held, LONG)
            assert not stage.starts()
            assert not agent.running

    play(scene())
