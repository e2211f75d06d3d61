"""Starts, restarts and ends agent hosts: one child process for each owner whose apps need agents.

    supervisor = HostSupervisor(submitted_apps, token_store, HostCommand(config, grpc))
    await supervisor.run()       # until cancelled; then the hosts are ended

A host ends with the service: its standard input is a pipe that the service never writes to, and the
host exits when that closes. Training goes on meanwhile: nodes keep what is leased, and the next
agent takes over.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from themis.config.addresses import Address
from themis.config.keys import ServiceConfig
from themis.core.model import OwnerId
from themis.errors import ThemisError
from themis.security.token_files import write_secret
from themis.security.tokens import (
    HOST_NOTE,
    Role,
    TokenStore,
    all_credentials,
    create_token,
    forget_token,
)

_LOG = logging.getLogger(__name__)

_END_TIMEOUT = 5.0
"""Seconds that a host gets to end before it is killed."""
_IDLE_TIMEOUT = 30.0
"""Seconds that a host without apps is kept."""
_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.5, 30.0
_STEADY = 60.0
"""Seconds after which a host counts as healthy: the next restart backs off from the start again."""


class HostDemand(Protocol):
    """Tells which owners need a host."""

    def hosting(self) -> Iterable[OwnerId]:
        """Owners with apps that need an agent of the service."""

    async def hosting_changed(self, seconds: float) -> None:
        """Wait until that may have changed, for this many seconds at most."""


@dataclass(frozen=True, slots=True)
class HostCommand:
    """How a host is started."""

    config: ServiceConfig
    grpc: Address
    """The service's address for its own hosts (`GrpcServer.own`)."""

    @property
    def folder(self) -> Path:
        """The folder of the hosts' tokens and logs."""
        return self.config.state_dir / "agents"

    def argv(self, token_file: Path) -> list[str]:
        """The command of a host that reads its token from this file."""
        return [
            *(sys.executable, "-m", "themis", "agents", "--server", str(self.grpc)),
            *("--token-file", str(token_file)),
            *("--log-level", self.config.log_level, "--log-format", self.config.log_format),
        ]


@dataclass(slots=True)
class _Host:
    task: asyncio.Task[None]
    idle_since: float | None = None


class HostSupervisor:
    """Keeps a host running for each owner that needs one."""

    def __init__(
        self,
        demand: HostDemand,
        token_store: TokenStore,
        command: HostCommand,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._demand = demand
        self._token_store = token_store
        self._command = command
        self._wall = wall
        self._monotonic = monotonic
        self._hosts: dict[OwnerId, _Host] = {}

    async def run(self) -> None:
        """Supervise until cancelled."""
        # Tokens that an earlier service left behind.
        for credential in all_credentials(self._token_store):
            if credential.note == HOST_NOTE:
                forget_token(self._token_store, credential.id)
        self._command.folder.mkdir(mode=0o700, exist_ok=True)
        try:
            while True:
                self._match(set(self._demand.hosting()))
                await self._demand.hosting_changed(_IDLE_TIMEOUT / 2)
        finally:
            tasks = [host.task for host in self._hosts.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _match(self, owners: set[OwnerId]) -> None:
        now = self._monotonic()
        for owner, host in list(self._hosts.items()):
            if owner in owners:
                host.idle_since = None
            elif host.idle_since is None:
                host.idle_since = now
            elif now - host.idle_since >= _IDLE_TIMEOUT:
                host.task.cancel()
                del self._hosts[owner]
        for owner in sorted(owners - set(self._hosts)):
            self._hosts[owner] = _Host(asyncio.create_task(self._keep(owner), name=f"host {owner}"))

    async def _keep(self, owner: OwnerId) -> None:
        wait = _FIRST_BACKOFF
        while True:
            started = self._monotonic()
            try:
                code = await self._run_once(owner)
                _LOG.warning("the agent host of %s exited with %s and starts again", owner, code)
            except (OSError, ThemisError) as error:
                _LOG.error("the agent host of %s cannot be started: %s", owner, error)
            if self._monotonic() - started > _STEADY:
                wait = _FIRST_BACKOFF
            await asyncio.sleep(wait)
            wait = min(_LONGEST_BACKOFF, 2.0 * wait)

    async def _run_once(self, owner: OwnerId) -> int:
        """Run one process from its start to its exit; returns its exit code."""
        issued = create_token(
            self._token_store, Role.TENANT, owner, now=self._wall(), note=HOST_NOTE
        )
        try:
            token_file = self._command.folder / f"{owner}.token"
            token_file.unlink(missing_ok=True)  # That of an earlier host is not valid any more.
            write_secret(token_file, issued.token)
            with (self._command.folder / f"{owner}.log").open("ab", 0) as log:
                process = await asyncio.create_subprocess_exec(
                    *self._command.argv(token_file),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            try:
                return await process.wait()
            finally:
                await _end(process)
        finally:
            forget_token(self._token_store, issued.credential.id)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close the pipe and terminate the process; kill it if it does not exit in time."""
    if process.returncode is not None:
        return
    if process.stdin is not None:
        process.stdin.close()
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_END_TIMEOUT):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
