"""Forecasts beside the event loop: each question has a worker process, for a minute at most.

    number = await forecasts.ask("tenant ann", prepare)     # makes snapshot and question
    await forecasts.answer("tenant ann", number, seen=0, wait=10.0)     # (1, {"cases": ...})

Few run at a time, one for each caller; a question whose caller does not come back is dropped.
Whether there is a place is decided before anything is prepared.
"""

import asyncio
import json
import logging
import secrets
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from themis.core.model import AppId
from themis.errors import LimitError, MissingError, RefusedError, ThemisError, UnavailableError
from themis.recording.cluster_snapshots import Snapshot, dumps_snapshot
from themis.recording.codec import dumps
from themis.recording.forecast_questions import ForecastQuestion

_LOG = logging.getLogger(__name__)

MOST_AT_ONCE = 2
"""Processes: they share the machine with the service. Admins always find one more."""
EVERY = 3.0
"""Seconds between two questions of a caller: each ends a process and starts another."""
MOST_KEPT = 32
"""Answers that are kept for their callers."""
LINGER = 20.0
"""Seconds after which a question is dropped whose caller does not ask for the answer."""
_SLACK = 20.0
"""Seconds beyond its own time in which a worker must be done; it has to load its libraries."""
_LONGEST_LINE = 64 << 20
_BUSY = 5.0

Prepare = Callable[[], Awaitable[tuple[Snapshot, ForecastQuestion]]]


@dataclass(slots=True, eq=False)
class _PendingForecast:
    """One question, and the answer so far."""

    who: str
    answer: dict[str, Any] = field(default_factory=dict)
    number: int = 0
    """Of the last answer."""
    failure: Exception | None = None
    done: bool = False
    heard: float = 0.0
    """When its caller last asked for the answer."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None

    @property
    def preparing(self) -> bool:
        """Whether it has a place and no worker yet."""
        return self.task is None

    def tell(self) -> None:
        """Wake the calls that wait."""
        self.news.set()
        self.news = asyncio.Event()


class Forecasts:
    """Questions that are being answered, or were a while ago."""

    def __init__(
        self, command: Sequence[str] = (), *, most: int = MOST_AT_ONCE, every: float = EVERY
    ) -> None:
        self._command = tuple(command) or (sys.executable, "-m", "themis.forecast.worker")
        self._most = most
        self._every = every
        self._asked: dict[str, _PendingForecast] = {}
        self._begun: dict[str, float] = {}
        """When the last question of each caller began, if that was not long ago."""

    @property
    def running(self) -> int:
        """How many are being answered."""
        return sum(not asked.done for asked in self._asked.values())

    async def ask(self, who: str, prepare: Prepare, *, admin: bool = False) -> str:
        """Begin to answer; an earlier question of the same caller is dropped.

        Args:
            who: The caller.
            prepare: Makes the input of the worker; called only if there is a place.
            admin: Whether the place may be the one that is kept for admins.

        Raises:
            LimitError: There are too many questions, or the same caller asked a moment ago.
        """
        loop = asyncio.get_running_loop()
        self._check_place(who, loop.time(), self._most + admin)
        # From here on the place is taken, also while this call waits.
        name, asked = secrets.token_hex(8), _PendingForecast(who)
        self._asked[name] = asked
        try:
            snapshot, question = await prepare()
            for earlier, before in list(self._asked.items()):
                if before.who == who and before is not asked:
                    await self._drop(earlier, "a newer one of yours took its place")
            while len(self._asked) > MOST_KEPT:
                over = next(key for key, each in self._asked.items() if each.done)
                await self._drop(over)
            if name not in self._asked:
                raise UnavailableError("the service is stopping")
        except BaseException:
            self._asked.pop(name, None)
            raise
        asked.heard = self._begun[who] = loop.time()
        asked.task = asyncio.create_task(self._work(asked, snapshot, question))
        return name

    def _check_place(self, who: str, now: float, most: int) -> None:
        self._begun = {key: at for key, at in self._begun.items() if now < at + self._every}
        if any(each.who == who and each.preparing for each in self._asked.values()):
            raise LimitError("whatif", "your last question is still being prepared", _BUSY)
        if who in self._begun:
            wait = self._begun[who] + self._every - now
            reason = f"one question in {self._every:g} s is allowed; the next in {wait:.1f} s"
            raise LimitError("whatif", reason, wait)
        others = sum(not each.done and each.who != who for each in self._asked.values())
        if others >= most:
            reason = f"{others} forecasts are under way, allowed: {most} at a time"
            raise LimitError("whatif", reason, _BUSY)

    async def answer(
        self, who: str, name: str, *, seen: int = 0, wait: float = 0.0
    ) -> tuple[int, dict[str, Any]]:
        """The newest answer and its number; waits for one that is newer than what was seen.

        Raises:
            MissingError: There is no such question of this caller.
            RefusedError: It cannot be answered, and why.
            UnavailableError: The worker failed.
        """
        asked = self._find(who, name)
        loop = asyncio.get_running_loop()
        due = loop.time() + wait
        while asked.number <= seen and not asked.done and loop.time() < due:
            asked.heard = loop.time()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await asked.news.wait()
        asked.heard = loop.time()
        if asked.failure is not None:
            raise asked.failure
        return asked.number, asked.answer

    async def drop(self, who: str, name: str) -> None:
        """Drop a question: its answer is not needed any more.

        Raises:
            MissingError: There is no such question of this caller.
        """
        self._find(who, name)
        await self._drop(name)

    async def close(self) -> None:
        """End all workers."""
        for name in list(self._asked):
            await self._drop(name)

    def _find(self, who: str, name: str) -> _PendingForecast:
        asked = self._asked.get(name)
        if asked is None or asked.who != who:
            raise MissingError(f"question {name[:20]}", "there is none, or it was dropped")
        return asked

    async def _drop(self, name: str, reason: str = "it was dropped") -> None:
        asked = self._asked.pop(name, None)
        if asked is None or asked.task is None:
            return
        asked.done = True
        asked.failure = asked.failure or MissingError("question", reason)
        asked.task.cancel()
        await asyncio.gather(asked.task, return_exceptions=True)
        asked.tell()

    async def _work(
        self, asked: _PendingForecast, snapshot: Snapshot, question: ForecastQuestion
    ) -> None:
        try:
            async with asyncio.timeout(question.seconds + _SLACK):
                await self._run(asked, snapshot, question)
        except RefusedError as error:
            asked.failure = error
        except TimeoutError:
            _LOG.warning("a forecast took too long and was ended")
        except UnavailableError as error:
            _LOG.warning("a forecast failed: %s", error)
            asked.failure = UnavailableError("the forecast failed; the service's log says why")
        except Exception as error:
            _LOG.exception("a forecast failed")
            asked.failure = UnavailableError(f"the forecast failed ({type(error).__name__})")
        finally:
            if not asked.answer.get("final") and asked.failure is None:
                if asked.answer:
                    asked.answer = {**asked.answer, "final": True}
                    asked.number += 1
                else:
                    asked.failure = UnavailableError("the forecast had no answer in time")
            asked.done = True
            asked.tell()

    async def _run(
        self, asked: _PendingForecast, snapshot: Snapshot, question: ForecastQuestion
    ) -> None:
        text = await asyncio.to_thread(_written, snapshot, question)
        process = await self._spawn()
        assert process.stdin is not None
        try:
            with suppress(ConnectionError):
                process.stdin.write(text)
                await process.stdin.drain()
            await self._listen(asked, process, question.cases[0].spec.id)
        finally:
            await _to_its_end(_end(process))

    async def _spawn(self) -> asyncio.subprocess.Process:
        """Start a worker; one whose start is cancelled halfway is ended here."""
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LONGEST_LINE,
                start_new_session=True,  # Ctrl-C is for the service, which ends it.
            )
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await _to_its_end(_end(await starting))
            raise

    async def _listen(
        self, asked: _PendingForecast, process: asyncio.subprocess.Process, app: AppId
    ) -> None:
        assert process.stdout is not None
        loop = asyncio.get_running_loop()
        while not asked.answer.get("final"):
            line = await process.stdout.readline()
            if not line:
                code = await process.wait()
                raise UnavailableError(f"the worker ended with {code}")
            data: Any = json.loads(line)
            if "refused" in data:
                raise _refusal(data["refused"], app)
            asked.answer = data["answer"]
            asked.number += 1
            asked.tell()
            if loop.time() - asked.heard > LINGER:
                raise MissingError("question", "it was dropped: its answer was not asked for")


def _refusal(told: dict[str, str], app: AppId) -> ThemisError:
    """The refusal of a worker: for the caller if it is about its app, else for the log.

    It may be about the apps of others.
    """
    who, reason = told["who"], told["reason"]
    return RefusedError(who, reason) if who == app else UnavailableError(f"{who}: {reason}")


async def _to_its_end(work: Coroutine[None, None, None]) -> None:
    """Finish some work even if the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a worker, and close its pipes."""
    assert process.stdin is not None
    assert process.stdout is not None
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
    process.stdin.close()
    with suppress(ConnectionError):
        await process.stdin.wait_closed()
    while await process.stdout.read(1 << 16):
        pass  # Otherwise the loop notices the end of the pipe only when it is gone itself.
    await process.wait()


def _written(snapshot: Snapshot, question: ForecastQuestion) -> bytes:
    line = f'{{"snapshot":{dumps_snapshot(snapshot)},"question":{dumps(question)}}}\n'
    return line.encode()
