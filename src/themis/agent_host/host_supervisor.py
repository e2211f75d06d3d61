"""The service's side of agent hosts: one process for each owner whose apps need one.

    hosts = Hosts(service, vault, HostCommand(config, grpc))
    await hosts.run()            # until cancelled; then they are ended

A host is a child that ends with the service: it reads a pipe that nobody writes to, and goes when
that is closed. Training does not mind: nodes hold what was leased, and the next agent goes on.
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

from themis.agent_host.prewarmed_host import SpareHost, log_file, token_file
from themis.config.keys import Address, ServiceConfig
from themis.core.model import OwnerId
from themis.errors import ThemisError
from themis.security.token_files import write_secret
from themis.security.tokens import HOST_NOTE, Role, Vault, create_token, forget_token, tokens

_LOG = logging.getLogger(__name__)

_SPARE_LOG = ".spare.log"
_PATIENCE = 5.0
"""Seconds that a host gets to end."""
_LINGER = 30.0
"""Seconds that a host without apps is kept."""
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
_STEADY = 60.0
"""A host that ran for so long begins anew at once."""


class Demand(Protocol):
    """Who needs a host."""

    def hosting(self) -> Iterable[OwnerId]:
        """Owners with apps that need an agent of the service's."""

    async def hosting_changed(self, seconds: float) -> None:
        """Wait until that may have changed, so long at most."""


@dataclass(frozen=True, slots=True)
class HostCommand:
    """How a host is started."""

    config: ServiceConfig
    grpc: Address
    """The service's door for them (`GrpcServer.own`)."""

    def folder(self) -> Path:
        """Where tokens and logs of hosts are."""
        return self.config.state_dir / "agents"

    def argv(self, owner: OwnerId | None = None) -> list[str]:
        """The command of an owner's host, or of one that is told later whose it is."""
        command = [sys.executable, "-m", "themis", "agents", "--server", str(self.grpc)]
        command += ["--folder", str(self.folder())]
        if owner is not None:
            command += ["--owner", owner]
        command += ["--log-level", self.config.log_level, "--log-format", self.config.log_format]
        return command


@dataclass(slots=True)
class _Host:
    task: asyncio.Task[None]
    idle_since: float | None = None


class Hosts:
    """Starts, restarts and ends hosts."""

    def __init__(
        self,
        demand: Demand,
        vault: Vault,
        command: HostCommand,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._demand = demand
        self._vault = vault
        self._command = command
        self._wall = wall
        self._monotonic = monotonic
        self._hosts: dict[OwnerId, _Host] = {}
        self._spare = SpareHost(lambda: self._start(command.folder() / _SPARE_LOG, command.argv()))

    async def run(self) -> None:
        """Keep a host for everybody who needs one, until cancelled."""
        # Those of an earlier service.
        known = tokens(self._vault)
        self._forget(credential.id for credential in known if credential.note == HOST_NOTE)
        self._command.folder().mkdir(mode=0o700, exist_ok=True)
        keeping = asyncio.create_task(self._spare.keep())
        try:
            while True:
                self._match(set(self._demand.hosting()))
                await self._demand.hosting_changed(_LINGER / 2)
        finally:
            tasks = [keeping, *(host.task for host in self._hosts.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._spare.process is not None:
                await _end(self._spare.process)

    def _match(self, owners: set[OwnerId]) -> None:
        now = self._monotonic()
        for owner, host in list(self._hosts.items()):
            if owner in owners:
                host.idle_since = None
            elif host.idle_since is None:
                host.idle_since = now
            elif now - host.idle_since >= _LINGER:
                host.task.cancel()
                del self._hosts[owner]
        for owner in sorted(owners - set(self._hosts)):
            self._hosts[owner] = _Host(asyncio.create_task(self._keep(owner), name=f"host {owner}"))

    async def _keep(self, owner: OwnerId) -> None:
        wait = _FIRST_WAIT
        while True:
            began = self._monotonic()
            try:
                code = await self._one(owner)
                _LOG.warning("the agents of %s ended with %s and begin again", owner, code)
            except (OSError, ThemisError) as error:
                _LOG.error("the agents of %s cannot be started: %s", owner, error)
            if self._monotonic() - began > _STEADY:
                wait = _FIRST_WAIT
            await asyncio.sleep(wait)
            wait = min(_LONGEST_WAIT, 2.0 * wait)

    async def _one(self, owner: OwnerId) -> int | None:
        """One process from its start to its end."""
        issued = create_token(self._vault, Role.TENANT, owner, now=self._wall(), note=HOST_NOTE)
        folder, process = self._command.folder(), None
        try:
            secret = token_file(folder, owner)
            secret.unlink(missing_ok=True)  # Of an earlier one, which is not valid any more.
            write_secret(secret, issued.token)
            process = await self._spare.take(owner)
            if process is None:
                process = await self._start(log_file(folder, owner), self._command.argv(owner))
            return await process.wait()
        finally:
            if process is not None:
                await _end(process)
            self._forget([issued.credential.id])

    async def _start(self, log: Path, argv: list[str]) -> asyncio.subprocess.Process:
        with log.open("ab", 0) as out:
            return await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def _forget(self, numbers: Iterable[str]) -> None:
        for number in list(numbers):
            forget_token(self._vault, number)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close the pipe, and see the process go."""
    if process.returncode is not None:
        return
    if process.stdin is not None:
        process.stdin.close()
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_PATIENCE):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
