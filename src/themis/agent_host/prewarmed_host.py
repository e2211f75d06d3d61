"""An agent host that is ready before anybody needs one: it takes a second to load what it needs.

    spare = SpareHost(start)
    keeping = asyncio.create_task(spare.keep())
    process = await spare.take("vision")    # None if there is none yet

It is told whose apps it speaks for by one line on its standard input, and is an ordinary host then.
"""

import asyncio
import logging
import os
import sys
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from pathlib import Path

from themis.core.model import OwnerId

_LOG = logging.getLogger(__name__)

_PAUSE = 2.0
"""Seconds before one is started, so that it is not in the way of what goes on just then."""
_AGAIN = 30.0
"""Seconds before another try, when one ended by itself or could not be started."""
_LONGEST = 8192


def token_file(folder: Path, owner: OwnerId) -> Path:
    """Where the token of an owner's host is."""
    return folder / f"{owner}.token"


def log_file(folder: Path, owner: OwnerId) -> Path:
    """Where an owner's host writes."""
    return folder / f"{owner}.log"


class SpareHost:
    """Keeps one at hand. All methods belong to one event loop."""

    def __init__(self, start: Callable[[], Awaitable[Process]], pause: float = _PAUSE) -> None:
        """Begin without one.

        Args:
            start: Starts a host that waits for orders.
            pause: Seconds before one is started.
        """
        self._start = start
        self._pause = pause
        self._process: Process | None = None
        self._taken = asyncio.Event()

    @property
    def process(self) -> Process | None:
        """The one that waits, if there is one."""
        return self._process

    async def keep(self) -> None:
        """Have one again some time after the last one was taken; until cancelled."""
        pause = self._pause
        while True:
            await asyncio.sleep(pause)
            try:
                process = await self._start()
            except OSError as error:
                _LOG.warning("agents cannot be started ahead of time: %s", error)
                pause = _AGAIN
                continue
            # Who wanted one meanwhile got none: this one still waits, and must not be forgotten.
            self._taken.clear()
            self._process = process
            ended = asyncio.create_task(process.wait())
            taken = asyncio.create_task(self._taken.wait())
            try:
                await asyncio.wait({ended, taken}, return_when=asyncio.FIRST_COMPLETED)
                pause = self._pause if taken.done() else _AGAIN
            finally:
                ended.cancel()
                taken.cancel()

    async def take(self, owner: OwnerId) -> Process | None:
        """The process, which is this owner's from now on; None where one must be started."""
        process, self._process = self._process, None
        self._taken.set()
        if process is None or process.returncode is not None or process.stdin is None:
            return None
        try:
            process.stdin.write(f"{owner}\n".encode())
            await process.stdin.drain()
        except ConnectionError:
            return None  # It has just ended.
        return process


def wait_for_owner(folder: Path) -> OwnerId | None:
    """As a spare host: load everything, and wait; None if the service ends instead.

    What it writes goes to the owner's log then.
    """
    import grpc  # noqa: F401, PLC0415 - so that it is loaded, and in an extra

    line = os.read(sys.stdin.fileno(), _LONGEST)
    if not line.endswith(b"\n"):
        return None
    owner = OwnerId(line.decode().strip())
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    log = os.open(log_file(folder, owner), flags, 0o600)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(log, stream.fileno())
    os.close(log)
    return owner
