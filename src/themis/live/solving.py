"""Auctions solved beside the event loop, by a worker process that is killed at the deadline.

    solving = Solving("default")
    await solving.start()
    solution = await solving.solve(problem, seconds=2.0)

The worker answers twice: at once with something feasible, then with the best it has when time is
up. If it says nothing in time it is killed and the first answer counts; another worker is started.
"""

import asyncio
import logging
import sys
from collections.abc import Sequence
from typing import Any

from themis.auction import Problem, Solution
from themis.errors import UnavailableError
from themis.records.codec import decode, dumps, loads

_LOG = logging.getLogger(__name__)

SLACK = 0.1
"""Seconds after its time is up in which the worker may still answer, if nothing else is said."""
_LONGEST_LINE = 256 * 2**20
_PATIENCE = 60.0
"""Seconds in which a worker must have loaded its libraries."""


class Solving:
    """One worker; auctions are solved one after the other."""

    def __init__(self, name: str = "default", command: Sequence[str] = ()) -> None:
        self._command = tuple(command) or (
            sys.executable, "-m", "themis.live.solve_worker", name,
        )  # fmt: skip
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._count = 0
        self._replacing: asyncio.Task[None] | None = None

    @property
    def process_id(self) -> int | None:
        """Of the worker, if there is one."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the worker, and wait until it has loaded what it needs.

        Raises:
            UnavailableError: It does not start.
        """
        async with self._turn:
            await self._ready()

    async def solve(self, problem: Problem, seconds: float, slack: float = SLACK) -> Solution:
        """The best answer that is there after so many seconds.

        Args:
            problem: The auction.
            seconds: What the worker may use.
            slack: How much later its answer may be here: auctions of many bidders take time on
                their way, and so does a busy machine.

        Raises:
            UnavailableError: There is none: the worker failed, or had not even a first answer.
        """
        due = asyncio.get_running_loop().time() + seconds + slack
        reserve: Solution | None = None
        try:
            async with asyncio.timeout_at(due), self._turn:
                process = await self._ready()
                self._count += 1
                question = {"id": self._count, "seconds": seconds, "problem": problem}
                _stdin(process).write(dumps(question).encode() + b"\n")
                await _stdin(process).drain()
                while True:
                    answer = await _line(process)
                    if answer.get("id") != self._count:
                        continue
                    if "failed" in answer:
                        raise UnavailableError(f"the solver failed: {answer['failed']}")
                    reserve = decode(Solution, answer["solution"])
                    if answer["final"]:
                        return reserve
        except TimeoutError:
            _LOG.warning("the solver did not answer in time and is replaced")
            await self._replace()
        except (ConnectionError, asyncio.IncompleteReadError):
            _LOG.warning("the solver's process ended and is replaced")
            await self._replace()
        if reserve is None:
            raise UnavailableError("the solver had no answer in time")
        return reserve

    async def close(self) -> None:
        """End the worker."""
        if self._replacing is not None:
            self._replacing.cancel()
            await asyncio.gather(self._replacing, return_exceptions=True)
        await self._kill()

    async def _replace(self) -> None:
        """End the worker, and have another load its libraries before the next auction."""
        await self._kill()
        self._replacing = asyncio.create_task(self._try_start())

    async def _try_start(self) -> None:
        try:
            await self.start()
        except (UnavailableError, OSError) as error:
            _LOG.warning("%s; it is tried again with the next auction", error)

    async def _ready(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LONGEST_LINE,
            )
            try:
                async with asyncio.timeout(_PATIENCE):
                    await _line(process)
            except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
                await self._kill()
                raise UnavailableError("the solver's process does not start") from None
        return self._process

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        await process.wait()
        # Else the pipe's end is only noticed when the loop is gone.
        _stdin(process).close()


async def _line(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    line = await process.stdout.readuntil(b"\n")
    data: Any = loads(line.decode())
    return data if isinstance(data, dict) else {}


def _stdin(process: asyncio.subprocess.Process) -> asyncio.StreamWriter:
    assert process.stdin is not None
    return process.stdin
