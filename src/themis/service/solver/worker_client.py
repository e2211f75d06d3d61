"""Auctions solved beside the event loop, by a worker process that is killed at the deadline.

    solver = SolverClient("default")
    await solver.start()
    solution = await solver.solve(problem, seconds=2.0)

The worker answers twice: at once with a feasible solution, then with the best that it has when time
is up. Without a second answer in time the first one counts. On a busy machine the worker may be a
little late: it is killed only when it is very late, and another worker is started.

A thread talks to the worker: an auction of hundreds of bidders is megabytes, and a loop that is
busy with late bids would need seconds to get them through a pipe.
"""

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from themis.core.auction import Problem, Solution
from themis.engines.host.detached_thread import in_own_thread
from themis.errors import UnavailableError
from themis.recording.codec import decode, loads
from themis.recording.packed_auctions import pack
from themis.service.solver.worker import SolveQuestion

_LOG = logging.getLogger(__name__)

SLACK = 0.1
"""Seconds beyond the deadline for the last answer, if there is a first one."""
_LONGEST_LINE = 256 * 2**20
_PATIENCE = 60.0
"""Seconds in which a worker must have loaded its libraries."""

_Worker = subprocess.Popen[bytes]


class SolverClient:
    """One worker; auctions are solved one after the other."""

    def __init__(self, name: str = "default", command: Sequence[str] = ()) -> None:
        self._command = tuple(command) or (
            sys.executable, "-m", "themis.service.solver.worker", name,
        )  # fmt: skip
        self._process: _Worker | None = None
        self._turn = asyncio.Lock()
        self._count = 0
        self._after: set[asyncio.Task[None]] = set()
        """Tasks that go on after an answer."""

    @property
    def process_id(self) -> int | None:
        """The process id of the worker, if there is one."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the worker, and wait until it has loaded what it needs.

        Raises:
            UnavailableError: It does not start.
        """
        async with self._turn:
            await self._ready()

    async def solve(self, problem: Problem, seconds: float, slack: float = SLACK) -> Solution:
        """The best answer after so many seconds.

        Args:
            problem: The auction.
            seconds: From now on; the worker may use what is left of them when it has the auction.
            slack: How much later its first answer may be here: auctions of many bidders take
                time on their way, and so does a busy machine.

        Raises:
            UnavailableError: There is none: the worker failed, or had not even a first answer.
        """
        due = time.monotonic() + seconds
        first: asyncio.Future[Solution] = asyncio.get_running_loop().create_future()
        asking = asyncio.create_task(self._asked(problem, due, first))
        either: set[asyncio.Future[Solution]] = {asking, first}
        try:
            await asyncio.wait({asking}, timeout=seconds + min(SLACK, slack))
            wait = due + slack - time.monotonic()
            await asyncio.wait(either, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            asking.cancel()
            raise
        if asking.done() or time.monotonic() >= due + slack:
            try:
                last = await self._ended(asking)
            except UnavailableError as error:
                if not first.done():
                    raise
                _LOG.warning("%s; its first answer counts", error)
            else:
                if last is not None:
                    return last
        else:
            self._spawn(self._let_finish(asking, due + slack))
        if not first.done():
            raise UnavailableError("the solver had no answer in time")
        return first.result()

    async def _asked(
        self, problem: Problem, due: float, first: "asyncio.Future[Solution]"
    ) -> Solution:
        loop = asyncio.get_running_loop()

        def hear(solution: Solution) -> None:
            loop.call_soon_threadsafe(first.set_result, solution)

        async with self._turn:
            process = await self._ready()
            self._count += 1
            return await in_own_thread(_ask, process, self._count, problem, due, hear)

    async def _let_finish(self, asking: "asyncio.Task[Solution]", end: float) -> None:
        """Let a worker finish that is late; its answer is dropped."""
        try:
            await asyncio.wait({asking}, timeout=end - time.monotonic())
            with suppress(UnavailableError):
                await self._ended(asking)
        finally:
            asking.cancel()

    async def _ended(self, asking: "asyncio.Task[Solution]") -> Solution | None:
        """The answer; without one it is None, and the worker is replaced.

        Raises:
            UnavailableError: The worker says that it failed, or there is none.
        """
        asking.cancel()
        try:
            return await asking
        except asyncio.CancelledError:
            if not asking.cancelled():
                raise
            _LOG.warning("the solver did not answer in time and is replaced")
        except (OSError, EOFError):
            _LOG.warning("the solver's process ended and is replaced")
        await self._kill()
        self._spawn(self._try_start())
        return None

    async def close(self) -> None:
        """End the worker."""
        for task in self._after:
            task.cancel()
        await asyncio.gather(*self._after, return_exceptions=True)
        await self._kill()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._after.add(task)
        task.add_done_callback(self._after.discard)

    async def _try_start(self) -> None:
        """Start another worker, so that it has loaded its libraries before the next auction."""
        try:
            await self.start()
        except (UnavailableError, OSError) as error:
            _LOG.warning("%s; it is tried again with the next auction", error)

    async def _ready(self) -> _Worker:
        if self._process is None or self._process.poll() is not None:
            await self._kill()
            self._process = process = subprocess.Popen(  # noqa: ASYNC220 - as quick as in a thread
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            try:
                async with asyncio.timeout(_PATIENCE):
                    await in_own_thread(_line, process)
            except (TimeoutError, OSError, EOFError):
                await self._kill()
                raise UnavailableError("the solver's process does not start") from None
        return self._process

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await in_own_thread(_reap, process)


def _ask(
    process: _Worker, number: int, problem: Problem, due: float, hear: Callable[[Solution], None]
) -> Solution:
    """The worker's last answer; `hear` gets the first one as soon as it comes.

    Raises:
        UnavailableError: It says that it failed.
        OSError, EOFError: It is gone.
    """
    assert process.stdin is not None
    SolveQuestion(number, due, pack(problem)).put(process.stdin)
    while True:
        answer = _line(process)
        if answer.get("id") != number:
            continue
        if "failed" in answer:
            raise UnavailableError(f"the solver failed: {answer['failed']}")
        solution = decode(Solution, answer["solution"])
        if answer["final"]:
            return solution
        hear(solution)


def _line(process: _Worker) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise EOFError
    data: Any = loads(line.decode())
    return data if isinstance(data, dict) else {}


def _reap(process: _Worker) -> None:
    """Wait until a killed worker is gone, and close its pipes."""
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # Unsent data is lost.
                pipe.close()
