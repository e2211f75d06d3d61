"""Agent hosts as child processes of the service: started, restarted and ended."""

import asyncio
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.memory_token_store import MemoryTokenStore
from themis.agent_host.host_supervisor import HostCommand, HostSupervisor
from themis.config.keys import GRPC, ServiceConfig
from themis.core.model import OwnerId
from themis.security.tokens import all_credentials

VISION = OwnerId("vision")


class OneOwner:
    """One owner needs a host and goes on needing it, until `until` says that the test is done."""

    def __init__(self, until: Callable[[], bool]) -> None:
        self.asked = 0
        self._until = until

    def hosting(self) -> list[OwnerId]:
        return [VISION]

    async def hosting_changed(self, seconds: float) -> None:
        self.asked += 1
        if self._until():
            raise TimeoutError
        await asyncio.sleep(0.01)


class Spawned:
    """Starts shells in place of hosts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
        self.commands: list[tuple[str, ...]] = []
        self.processes: list[Process] = []
        self._line = line
        self._spawn = asyncio.create_subprocess_exec
        monkeypatch.setattr(asyncio, "create_subprocess_exec", self._start)

    async def _start(self, *argv: str, stdin: int, stdout: Any, **_: object) -> Process:
        assert stdin == PIPE
        self.commands.append(argv)
        process = await self._spawn("sh", "-c", self._line, stdin=PIPE, stdout=stdout)
        self.processes.append(process)
        return process


def supervise(folder: Path, token_store: MemoryTokenStore, until: Callable[[], bool]) -> None:
    command = HostCommand(ServiceConfig(state_dir=folder), GRPC)
    supervisor = HostSupervisor(OneOwner(until), token_store, command)

    async def run() -> None:
        async with asyncio.timeout(30):
            with pytest.raises(TimeoutError):
                await supervisor.run()

    asyncio.run(run())


def test_host_gets_its_owners_token_file_and_ends_with_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawned, token_store = Spawned(monkeypatch, "echo hello; cat"), MemoryTokenStore()
    log = tmp_path / "agents" / "vision.log"
    supervise(tmp_path, token_store, lambda: bool(spawned.processes) and log.stat().st_size > 0)
    [argv] = spawned.commands
    token_file = Path(argv[argv.index("--token-file") + 1])
    assert token_file.read_text(encoding="ascii").strip()
    assert log.read_text(encoding="ascii") == "hello\n"
    assert spawned.processes[0].returncode is not None
    assert not list(all_credentials(token_store)), "its token outlives it"


def test_a_host_that_exits_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawned, token_store = Spawned(monkeypatch, "exit 3"), MemoryTokenStore()
    supervise(tmp_path, token_store, lambda: len(spawned.commands) > 1)
    assert not list(all_credentials(token_store))


def test_a_host_that_cannot_be_started_leaves_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    async def refuse(*argv: str, **_: object) -> Process:
        started.append(argv)
        raise OSError("too many processes")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    token_store = MemoryTokenStore()
    supervise(tmp_path, token_store, lambda: bool(started))
    assert not list(all_credentials(token_store))
