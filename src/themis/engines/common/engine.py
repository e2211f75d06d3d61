"""The base of engines whose jobs run under supervisors: `local` and `remote`.

Engine and supervisor share the folder of a start (`Attempt`): the engine writes the page `lease`,
the supervisor the page `status`. How a supervisor is started, and how the engine hears of its pages
and of its death, differs from engine to engine.
"""

import abc
import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Generic, cast

from themis.engines.attempt.attempt import Page
from themis.engines.attempt.layout import StateFolder
from themis.engines.attempt.lease_timing import CHECKPOINT, KILL, RUN
from themis.engines.base import CouldNotKill, Event, LogPiece, ProgramStarted
from themis.engines.common.background import BackgroundTasks
from themis.engines.common.start_table import Start, StartTable
from themis.engines.host import boottime
from themis.engines.host.accounts import Owners
from themis.engines.metrics.points import MetricSample, SampleBatch
from themis.engines.supervisor.bounded_log import piece_of
from themis.engines.supervisor.supervisor import EXITED, STUCK
from themis.engines.task import Task
from themis.errors import UnavailableError


class SupervisedEngine(abc.ABC, Generic[Start]):
    """Follows starts of jobs and speaks to their supervisors."""

    def __init__(
        self, folder: StateFolder, owners: Owners, now: Callable[[], float] = boottime.now
    ) -> None:
        self._folder = folder
        self._owners = owners
        self._now = now
        self._starts: StartTable[Start] = StartTable(now)
        self._background = BackgroundTasks()
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._closed = False

    @abc.abstractmethod
    async def _publish_lease(self, start: Start) -> None:
        """Write the lease for the supervisor, and wake it if it has to act."""

    @abc.abstractmethod
    async def _kill_without_supervisor(self, start: Start) -> None:
        """Kill a job whose supervisor has not done so in time: it is stopped, or hangs."""

    def change(self, owners: Owners) -> None:
        """Run later jobs as these accounts; running jobs keep theirs."""
        self._owners = owners

    async def renew(self, job: str, token: int, end: float, grace: float | None = None) -> None:
        """Move the end of a lease."""
        start = self._starts.find(job, token)
        start.lease.end = end
        if grace is not None:
            start.lease.grace = grace
        await self._publish_lease(start)

    async def checkpoint(self, job: str, token: int) -> None:
        """Ask for a checkpoint."""
        start = self._starts.find(job, token)
        if start.lease.stop == RUN:
            start.lease.stop = CHECKPOINT
            await self._publish_lease(start)

    async def kill(self, job: str, token: int) -> None:
        """Kill a job, by its supervisor or without."""
        start = self._starts.find(job, token)
        start.lease.stop = KILL
        await self._publish_lease(start)
        if not start.killing:
            start.killing = True
            self._background.begin(self._kill_without_supervisor(start))

    async def watch(self) -> AsyncIterator[Event]:
        """Events, in the order in which the engine noticed them."""
        while (event := await self._events.get()) is not None:
            yield event

    async def measure(self, job: str) -> tuple[MetricSample, ...]:
        """New samples of a job's latest start."""
        start = self._starts.get(job)
        return () if start is None else await start.samples.measure(self._background)

    async def points(self, job: str, since: int, most: int) -> SampleBatch:
        """Samples of a job's latest start from a place on, until it is forgotten."""
        start = self._starts.get(job)
        if start is None:
            return SampleBatch((), since, more=False)
        return await start.samples.batch(since, most)

    async def tail(self, job: str, limit: int = 4096) -> str:
        """The end of a job's output, whole lines if there are any."""
        start = self._starts.get(job)
        log = start.attempt.folder / "log" if start else None
        return await asyncio.to_thread(self._folder.tail, job, log, limit)

    async def output(self, tag: str, offset: int, most: int) -> LogPiece | None:
        """Part of the output of a start, by its tag."""
        return await asyncio.to_thread(self._output, self._starts.with_tag(tag), tag, offset, most)

    async def forget(self, job: str, token: int) -> None:
        """Keep only the log of a job that is over."""
        start = self._starts.get(job)
        if start is not None and start.over and start.attempt.task.token <= token:
            self._starts.remove(job)
            await asyncio.to_thread(self._folder.retire, start.attempt)

    def _check(self, task: Task) -> None:
        if self._closed:
            raise UnavailableError("the engine is closed")
        self._starts.check(task)

    async def _forget_former(self, task: Task) -> None:
        # Its node knows how the former start ended, or it would not start the job again.
        if former := self._starts.get(task.job):
            await self.forget(task.job, former.attempt.task.token)

    def _take_status(self, start: Start, page: Page) -> None:
        """Put events for all that is new in a status page."""
        task, state = start.attempt.task, page.get("state")
        if start.over:
            return
        # A short job may have ended before the first look; it did run.
        if page.get("began") is not None and not start.started_told:
            start.started_told = True
            gpus = cast("list[str]", page.get("gpus", []))
            self._events.put_nowait(ProgramStarted(task.job, task.token, tuple(gpus)))
        if state == STUCK:
            self._report_stuck(start, str(page.get("reason", "")))
        if state == EXITED:
            start.over = True
            self._events.put_nowait(start.attempt.exited(page))

    def _report_stuck(self, start: Start, reason: str) -> None:
        """Put `CouldNotKill`, once for each start."""
        if not start.stuck_told:
            start.stuck_told = True
            task = start.attempt.task
            self._events.put_nowait(CouldNotKill(task.job, task.token, reason))

    def _output(self, start: Start | None, tag: str, offset: int, most: int) -> LogPiece | None:
        if start is not None:
            # Read before the file: after the end nothing is added.
            over, path = start.over, Path(start.attempt.log)
            piece = piece_of(str(path), offset, most, final=over)
            if not over or path.exists():
                return LogPiece(piece.offset, piece.text, piece.next, piece.size, over)
        kept = self._folder.kept_log(tag)  # It may have been moved just now.
        if kept is None:
            return None
        piece = piece_of(str(kept), offset, most, final=True)
        return LogPiece(piece.offset, piece.text, piece.next, piece.size, over=True)
