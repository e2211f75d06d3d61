"""What engines have in common whose supervisors are spoken to through pages in folders.

A start of a job is an `Attempt`: a folder with its task, the page `lease` that the engine writes
and the page `status` that the supervisor writes. How supervisors are started, and how one hears of
their pages and of their deaths, is for the engines: `local` and `remote`.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, cast

from themis.engines.attempt.attempt import Attempt, Page
from themis.engines.attempt.layout import StateFolder
from themis.engines.attempt.lease_timing import CHECKPOINT, FINISHED, KILL, RUN, LeaseTimer
from themis.engines.base import CouldNotKill, Event, LogPiece, ProgramStarted, check_task
from themis.engines.host import boottime
from themis.engines.host.accounts import Owners
from themis.engines.host.batched_thread import Together
from themis.engines.host.detached_thread import aside
from themis.engines.metrics.jsonl import MetricSample, Stretch
from themis.engines.metrics.progress_file import keep_sample, recall_sample
from themis.engines.metrics.sources import check_source, reader_for
from themis.engines.supervisor.bounded_log import piece_of, tail
from themis.engines.supervisor.gpu_locks import highest_token
from themis.engines.supervisor.supervisor import EXITED, STUCK
from themis.engines.task import TENSORBOARD, Task
from themis.errors import RefusedError, ThemisError, UnavailableError

_LOG = logging.getLogger(__name__)

_FRESH = 0.5
"""Seconds for which what was read ahead is as good as read now."""


class WatchedStart:
    """A start of a job that an engine follows."""

    def __init__(self, attempt: Attempt, lease: LeaseTimer, near: Together | None) -> None:
        """Begin to follow it.

        Args:
            attempt: Which.
            lease: As this engine knows it, on its own clock.
            near: Goes to its files together with those of others; None if its folder is on a file
                server, which may be down.
        """
        self.attempt = attempt
        self.lease = lease
        self.reader = reader_for(attempt.task, attempt.log)
        self.points = reader_for(attempt.task, attempt.log)
        """Not the one that measures progress, which never waits for anybody."""
        self.asked: tuple[int, int] | None = None
        """From where, and how many points at most, somebody will probably want next."""
        self.ahead: tuple[int, Stretch, float] | None = None
        """Points read ahead: from where, what was found, and when."""
        self.reading = asyncio.Lock()
        # Event files are always on storage that may be a file server's.
        self.aloof = aside if near is None or attempt.task.source.kind == TENSORBOARD else near
        self.handle = -1
        self.pid = 0
        self.started_told = False
        self.stuck_told = False
        self.over = False
        self.said: MetricSample | None = None
        """The last that it reported,"""
        self.kept: MetricSample | None = None
        """and that was written down for later starts."""
        self.past: tuple[MetricSample, ...] | None = None
        """What an earlier start said last, once somebody has looked."""
        self.follow_up: asyncio.Task[None] | None = None

    def look(self) -> tuple[MetricSample, ...]:
        """Measure, and read ahead: to go to another thread and back takes longer than to read."""
        samples, self.ahead = self.reader.read(), None
        if samples and self.asked is not None:
            since, most = self.asked
            self.ahead = since, self.points.stretch(since, most), boottime.now()
        return samples

    def take_ahead(self, since: int, most: int) -> Stretch | None:
        """What was read ahead just now, if it is what is wanted."""
        ahead, self.ahead = self.ahead, None
        if ahead is None or ahead[0] != since or boottime.now() > ahead[2] + _FRESH:
            return None
        return ahead[1] if len(ahead[1].samples) <= most else None


class PagedEngine:
    """Follows starts of jobs. `_gpus` is how many its machine has."""

    def __init__(
        self, folder: StateFolder, owners: Owners, now: Callable[[], float] = boottime.now
    ) -> None:
        self._folder = folder
        self._owners = owners
        self._now = now
        self._gpus = 0
        self._watched: dict[str, WatchedStart] = {}
        self._starting: dict[str, tuple[int, ...]] = {}
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    # For each engine to say

    async def _tell(self, watched: WatchedStart) -> None:
        """Let its supervisor know its lease, and what is wanted of it."""
        raise NotImplementedError

    async def _insist(self, watched: WatchedStart) -> None:
        """Kill without the supervisor if that does not do it, because it is stopped or hangs."""
        raise NotImplementedError

    # The interface

    def change(self, owners: Owners) -> None:
        """Run later jobs as these say; what runs already goes on."""
        self._owners = owners

    async def renew(self, job: str, token: int, end: float, grace: float | None = None) -> None:
        """Move the end of its lease."""
        watched = self._find(job, token)
        watched.lease.end = end
        if grace is not None:
            watched.lease.grace = grace
        await self._tell(watched)

    async def checkpoint(self, job: str, token: int) -> None:
        """Ask for a checkpoint."""
        watched = self._find(job, token)
        if watched.lease.stop == RUN:
            await self._want(watched, CHECKPOINT)

    async def kill(self, job: str, token: int) -> None:
        """Kill it, by its supervisor or without."""
        watched = self._find(job, token)
        await self._want(watched, KILL)
        if watched.follow_up is None:
            watched.follow_up = self._begin(self._insist(watched))

    async def watch(self) -> AsyncIterator[Event]:
        """Events, in the order in which they were noticed."""
        while (event := await self._events.get()) is not None:
            yield event

    async def measure(self, job: str) -> tuple[MetricSample, ...]:
        """New samples of its latest start."""
        watched = self._watched.get(job)
        if watched is None:
            return ()
        async with watched.reading:
            samples = await watched.aloof(watched.look)
            if samples:
                watched.said = samples[-1]
            if watched.over and watched.said is None:
                return await self._recall(watched)
            if watched.over and watched.said is not watched.kept:
                watched.kept = watched.said
                self._begin(self._keep(watched.attempt.task, watched.said))
            return samples

    async def points(self, job: str, since: int, most: int) -> Stretch:
        """Samples of its latest start from a place on, as long as it is not forgotten."""
        watched = self._watched.get(job)
        if watched is None:
            return Stretch((), since, more=False)
        async with watched.reading:
            found = watched.take_ahead(since, most)
            if found is None:
                found = await watched.aloof(watched.points.stretch, since, most)
            if watched.over and not since and not found.samples:
                past = await self._recall(watched)
                found = Stretch(past, past[-1].end, more=False) if past else found
            watched.asked = (found.end, most)
            return found

    async def tail(self, job: str, limit: int = 4096) -> str:
        """The end of its output, whole lines if there are any."""
        watched = self._watched.get(job)
        log = watched.attempt.folder / "log" if watched else None
        return await asyncio.to_thread(self._tail, job, log, limit)

    async def output(self, tag: str, offset: int, most: int) -> LogPiece | None:
        """Part of the output of a start, by its tag."""
        return await asyncio.to_thread(self._log, tag, offset, most)

    async def forget(self, job: str, token: int) -> None:
        """Keep only its log."""
        watched = self._watched.get(job)
        if watched is not None and watched.over and watched.attempt.task.token <= token:
            del self._watched[job]
            await asyncio.to_thread(self._folder.retire, watched.attempt)

    # Parts

    async def _want(self, watched: WatchedStart, stop: str) -> None:
        watched.lease.stop = stop
        await self._tell(watched)

    def _check(self, task: Task) -> None:
        check_task(task)
        if self._closed:
            raise UnavailableError("the engine is closed")
        running = {job: item for job, item in self._watched.items() if not item.over}
        if task.job in running or task.job in self._starting:
            raise RefusedError(task.job, "it runs already")
        check_source(task.source)
        if task.end <= self._now():
            raise RefusedError(task.job, "its lease is over")
        in_use = {gpu: job for job, item in running.items() for gpu in item.attempt.task.gpus}
        in_use |= {gpu: job for job, gpus in self._starting.items() for gpu in gpus}
        for gpu in task.gpus:
            if gpu >= self._gpus:
                raise RefusedError(task.job, f"there is no GPU {gpu} here")
            if gpu in in_use:
                raise RefusedError(task.job, f"GPU {gpu} is in use by {in_use[gpu]}")

    def _check_tokens(self, task: Task) -> None:
        tokens = task.tokens or (task.token,) * len(task.gpus)
        for gpu, token in zip(task.gpus, tokens, strict=True):
            highest = highest_token(str(self._folder.gpus), str(gpu))
            if token < highest:
                raise RefusedError(
                    task.job, f"token {token} for GPU {gpu} is stale: it has seen {highest}"
                )

    def _take(self, watched: WatchedStart, page: Page) -> None:
        """Tell what is new in its status page."""
        task, state = watched.attempt.task, page.get("state")
        if watched.over:
            return
        # A short job may be over before anybody looks; it did run.
        if page.get("began") is not None and not watched.started_told:
            watched.started_told = True
            gpus = cast("list[str]", page.get("gpus", []))
            self._events.put_nowait(ProgramStarted(task.job, task.token, tuple(gpus)))
        if state == STUCK and not watched.stuck_told:
            watched.stuck_told = True
            reason = str(page.get("reason", ""))
            self._events.put_nowait(CouldNotKill(task.job, task.token, reason))
        if state == EXITED:
            watched.over = True
            self._events.put_nowait(watched.attempt.exited(page))

    async def _keep(self, task: Task, said: MetricSample | None) -> None:
        """Write down how far a job is, for a start of it that will find nothing left to do."""
        # Of parts on several machines only the first speaks for the job.
        if said is not None and task.checkpoint_dir and not task.rank:
            await aside(keep_sample, task.checkpoint_dir, said, task.user)

    async def _recall(self, watched: WatchedStart) -> tuple[MetricSample, ...]:
        """What an earlier start of a job said last, if this one ended well without a word."""
        task, page = watched.attempt.task, watched.attempt.status or {}
        # Of parts on several machines only the first speaks for the job.
        if task.rank or not task.checkpoint_dir or page.get("outcome") != FINISHED:
            return ()
        if watched.past is None:
            watched.past = ()
            # Nobody waits for a file server that is down: other jobs want to be heard too.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._folder.limits.patience):
                    found = await aside(
                        recall_sample,
                        task.checkpoint_dir,
                        task.user,
                        task.source.name,
                    )
                    watched.past = (found,) if found is not None else ()
        return watched.past

    def _find(self, job: str, token: int) -> WatchedStart:
        watched = self._watched.get(job)
        if watched is None or watched.over:
            raise RefusedError(job, "it does not run here")
        if (held := watched.attempt.task.token) != token:
            raise RefusedError(job, f"token {token} is not its: it has {held}")
        return watched

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        # Most of them nobody waits for, so nobody else would say so.
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            level = logging.DEBUG if isinstance(error, ThemisError) else logging.ERROR
            _LOG.log(level, "%s failed", task.get_coro(), exc_info=error)

    def _log(self, tag: str, offset: int, most: int) -> LogPiece | None:
        items = list(self._watched.values())
        watched = next((item for item in items if item.attempt.task.tag == tag), None)
        if watched is not None:
            # Before the file: what is over by now has all that it will ever have.
            over, path = watched.over, Path(watched.attempt.log)
            piece = piece_of(str(path), offset, most, final=over)
            if not over or path.exists():
                return LogPiece(piece.offset, piece.text, piece.next, piece.size, over)
        kept = self._folder.kept_log(tag)  # It may have been moved just now.
        if kept is None:
            return None
        piece = piece_of(str(kept), offset, most, final=True)
        return LogPiece(piece.offset, piece.text, piece.next, piece.size, over=True)

    def _tail(self, job: str, log: Path | None, limit: int) -> str:
        log = log or self._folder.last_log(job)
        text = tail(str(log), limit) if log else b""
        if len(text) == limit and b"\n" in text:
            text = text.partition(b"\n")[2]
        return text.decode("utf-8", "replace")
