"""What one start of a job reports: its progress for the node, every sample for its agent."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from themis.engines.attempt.attempt import Attempt
from themis.engines.attempt.lease_timing import FINISHED
from themis.engines.common.background import BackgroundTasks
from themis.engines.host import boottime
from themis.engines.host.batched_thread import BatchedThread
from themis.engines.host.detached_thread import in_own_thread
from themis.engines.metrics.points import MetricSample, SampleBatch
from themis.engines.metrics.progress_file import keep_sample, recall_sample
from themis.engines.metrics.sources import reader_for
from themis.engines.task import TENSORBOARD

_FRESH = 0.5
"""Seconds that a batch which was read ahead stays valid."""


class JobSamples:
    """Reads the samples of one start of a job, one read at a time."""

    def __init__(
        self, attempt: Attempt, batched: BatchedThread | None, is_over: Callable[[], bool]
    ) -> None:
        """Open two readers: progress is measured at a pace of its own.

        Args:
            attempt: The start.
            batched: Reads its files together with those of other jobs; None if its folder is on a
                file server, which may be down.
            is_over: Whether the job has ended by now.
        """
        self._is_over = is_over
        self._attempt = attempt
        self._task = attempt.task
        self._progress = reader_for(attempt.task, attempt.log)
        self._samples = reader_for(attempt.task, attempt.log)
        # Event files are on storage that may be a file server's.
        own_thread = batched is None or attempt.task.source.kind == TENSORBOARD
        self._in_thread: Callable[..., Awaitable[Any]] = (
            in_own_thread if own_thread or batched is None else batched
        )
        self._lock = asyncio.Lock()
        self._expected: tuple[int, int] | None = None
        """Where the next batch probably begins, and its size."""
        self._ahead: tuple[int, SampleBatch, float] | None = None
        """A batch that was read ahead: where it begins, the batch, and when it was read."""
        self._last: MetricSample | None = None
        self._kept: MetricSample | None = None
        """The last sample that was written down for later starts."""
        self._recalled: tuple[MetricSample, ...] | None = None
        """What an earlier start reported last, once it has been looked up."""

    async def measure(self, background: BackgroundTasks) -> tuple[MetricSample, ...]:
        """New samples. When the job is over, its last one is written down for later starts."""
        async with self._lock:
            samples: tuple[MetricSample, ...] = await self._in_thread(self.measure_and_read_ahead)
            if samples:
                self._last = samples[-1]
            if self._is_over() and self._last is None:
                return await self._recall()
            if self._is_over() and self._last is not self._kept:
                self._kept = self._last
                background.begin(self._keep())
            return samples

    async def batch(self, since: int, most: int) -> SampleBatch:
        """Samples from a place on."""
        async with self._lock:
            found = self.take_ahead(since, most)
            if found is None:
                found = await self._in_thread(self._samples.batch, since, most)
            if self._is_over() and not since and not found.samples:
                recalled = await self._recall()
                found = SampleBatch(recalled, recalled[-1].end, more=False) if recalled else found
            self._expected = (found.end, most)
            return found

    def measure_and_read_ahead(self) -> tuple[MetricSample, ...]:
        """New samples; reads the next batch too, because a trip to a thread takes longer."""
        samples, self._ahead = self._progress.read(), None
        if samples and self._expected is not None:
            since, most = self._expected
            self._ahead = since, self._samples.batch(since, most), boottime.now()
        return samples

    def expect(self, since: int, most: int) -> None:
        """Read this batch ahead with the next measurement."""
        self._expected = (since, most)

    def take_ahead(self, since: int, most: int) -> SampleBatch | None:
        """The batch that was read ahead, if it is recent and the one that is wanted."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0] != since or boottime.now() > ahead[2] + _FRESH:
            return None
        return ahead[1] if len(ahead[1].samples) <= most else None

    def _speaks_for_job(self) -> bool:
        # Of parts on several machines only the first one does.
        return bool(self._task.checkpoint_dir) and not self._task.rank

    async def _keep(self) -> None:
        """Write down the progress of a job, for a later start that finds nothing left to do."""
        task = self._task
        if self._kept is not None and self._speaks_for_job():
            await in_own_thread(keep_sample, task.checkpoint_dir, self._kept, task.user)

    async def _recall(self) -> tuple[MetricSample, ...]:
        """What an earlier start reported last, if this one finished without a sample."""
        task, page = self._task, self._attempt.status or {}
        if not self._speaks_for_job() or page.get("outcome") != FINISHED:
            return ()
        if self._recalled is None:
            self._recalled = ()
            with contextlib.suppress(TimeoutError):
                # A file server that is down must not hold up the samples of other jobs.
                async with asyncio.timeout(task.patience):
                    found = await in_own_thread(
                        recall_sample, task.checkpoint_dir, task.user, task.source.name
                    )
                    self._recalled = (found,) if found is not None else ()
        return self._recalled
