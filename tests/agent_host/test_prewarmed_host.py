"""A host that waits to be told whose it is."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.support.memory_token_store import MemoryVault
from themis.agent_host.host_supervisor import HostCommand, Hosts
from themis.agent_host.prewarmed_host import SpareHost, log_file, wait_for_owner
from themis.config.keys import GRPC, ServiceConfig
from themis.core.model import OwnerId
from themis.security.tokens import tokens

VISION = OwnerId("vision")


class Starts:
    """Starts shells in place of hosts, and says when one was started."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.count = 0
        self.started = asyncio.Event()

    async def start(self) -> Process:
        """Another one."""
        process = await asyncio.create_subprocess_exec("sh", "-c", self.line, stdin=PIPE)
        self.count += 1
        self.started.set()
        return process


def _kept(line: str, check: Callable[[SpareHost, Starts], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        starts = Starts(line)
        spare = SpareHost(starts.start, pause=0.0)
        keeping = asyncio.create_task(spare.keep())
        try:
            async with asyncio.timeout(30):
                await starts.started.wait()
                await check(spare, starts)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            if spare.process is not None:
                spare.process.kill()
                await spare.process.wait()

    asyncio.run(run())


def test_who_is_taken_is_told_whose_it_is_and_another_takes_its_place(tmp_path: Path) -> None:
    told = tmp_path / "told"

    async def check(spare: SpareHost, starts: Starts) -> None:
        starts.started.clear()
        process = await spare.take(VISION)
        assert process is not None
        assert await process.wait() == 0
        assert told.read_text(encoding="ascii") == "vision\n"
        await starts.started.wait()
        assert starts.count == 2

    _kept(f'read line && echo "$line" > {told}', check)


def test_one_that_is_wanted_while_it_is_started_waits_for_the_next_who_comes() -> None:
    async def run() -> None:
        starts, begun, go = Starts("cat"), asyncio.Event(), asyncio.Event()

        async def start() -> Process:
            begun.set()
            await go.wait()
            return await starts.start()

        spare = SpareHost(start, pause=0.0)
        keeping = asyncio.create_task(spare.keep())
        process = None
        try:
            async with asyncio.timeout(30):
                await begun.wait()
                assert await spare.take(VISION) is None
                begun.clear()
                go.set()
                await starts.started.wait()
                for _ in range(20):  # Of which one is enough to begin with another.
                    await asyncio.sleep(0)
                assert not begun.is_set(), "one that waits is enough"
                process = spare.process
                assert process is not None
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            if process is not None:
                process.kill()
                await process.wait()

    asyncio.run(run())


def test_one_that_has_ended_is_given_to_nobody() -> None:
    async def check(spare: SpareHost, starts: Starts) -> None:
        assert spare.process is not None
        await spare.process.wait()
        assert await spare.take(VISION) is None

    _kept("exit 0", check)


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        pytest.param(True, True, id="it goes by what it is told"),
        pytest.param(False, False, id="a service that ends before has nothing to tell"),
    ],
)
def test_a_spare_host_waits_for_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bool, heard: bool
) -> None:
    ours, theirs = os.pipe()
    if said:
        os.write(theirs, b"vision\n")
    os.close(theirs)
    with os.fdopen(ours) as stdin, (tmp_path / "spare.log").open("w") as out:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", out)
        assert wait_for_owner(tmp_path) == (VISION if heard else None)
        os.write(out.fileno(), b"hello")
    log = log_file(tmp_path, VISION)
    assert log.exists() == heard
    if heard:
        assert log.read_text(encoding="ascii") == "hello"


class _Needed:
    """Somebody needs a host, and goes on needing it."""

    def __init__(self) -> None:
        self.asked = 0

    def hosting(self) -> list[OwnerId]:
        """One owner."""
        return [VISION]

    async def hosting_changed(self, seconds: float) -> None:
        """Come again at once, for some time."""
        self.asked += 1
        if self.asked > 100:
            raise TimeoutError
        await asyncio.sleep(0)


def test_a_host_that_cannot_be_started_leaves_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    async def refuse(*argv: str, **_: object) -> Process:
        started.append(argv)
        raise OSError("too many processes")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    vault = MemoryVault()
    hosts = Hosts(_Needed(), vault, HostCommand(ServiceConfig(state_dir=tmp_path), GRPC))
    with pytest.raises(TimeoutError):
        asyncio.run(hosts.run())
    assert started
    assert not list(tokens(vault))
