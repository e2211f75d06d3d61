"""The starts of jobs that one engine has, and what may not be started beside them."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from themis.engines.attempt.attempt import Attempt
from themis.engines.attempt.lease_timing import LeaseTimer
from themis.engines.base import check_task
from themis.engines.common.samples import JobSamples
from themis.engines.host.batched_thread import BatchedThread
from themis.engines.metrics.sources import check_source
from themis.engines.task import Task
from themis.errors import RefusedError


class WatchedStart:
    """A start of a job that an engine follows."""

    def __init__(self, attempt: Attempt, lease: LeaseTimer, batched: BatchedThread | None) -> None:
        """Begin to follow it.

        Args:
            attempt: The start.
            lease: Its lease, on this engine's own clock.
            batched: See `JobSamples`.
        """
        self.attempt = attempt
        self.lease = lease
        self.samples = JobSamples(attempt, batched, lambda: self.over)
        self.started_told = False
        """Whether `ProgramStarted` was put."""
        self.stuck_told = False
        """Whether `CouldNotKill` was put."""
        self.over = False
        self.killing = False
        """Whether the engine waits to kill it without its supervisor."""


Start = TypeVar("Start", bound=WatchedStart)


class StartTable(Generic[Start]):
    """The latest start of each job."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._by_job: dict[str, Start] = {}
        self._starting: dict[str, tuple[int, ...]] = {}
        """Jobs that are about to be started, and their GPUs."""
        self.gpus = 0
        """How many GPUs the machine has."""

    def __iter__(self) -> Iterator[Start]:
        return iter(list(self._by_job.values()))

    def get(self, job: str) -> Start | None:
        """The latest start of a job."""
        return self._by_job.get(job)

    def add(self, start: Start) -> None:
        """Follow a start in place of the job's former one."""
        self._by_job[start.attempt.task.job] = start

    def remove(self, job: str) -> None:
        """Forget a job."""
        del self._by_job[job]

    @property
    def running(self) -> list[Start]:
        """Starts of which something may be alive."""
        return [start for start in self._by_job.values() if not start.over]

    @property
    def busy_gpus(self) -> set[int]:
        """GPUs of jobs that run or are about to be started."""
        return set(self._users())

    def find(self, job: str, token: int) -> Start:
        """The start of a job that runs under this token.

        Raises:
            RefusedError: There is none.
        """
        start = self._by_job.get(job)
        if start is None or start.over:
            raise RefusedError(job, "it does not run here")
        if (held := start.attempt.task.token) != token:
            raise RefusedError(job, f"token {token} is not its: it has {held}")
        return start

    def with_tag(self, tag: str) -> Start | None:
        """The start that its caller gave this tag."""
        return next((start for start in self if start.attempt.task.tag == tag), None)

    def check(self, task: Task) -> None:
        """Let a task pass that may be started now.

        Raises:
            ConfigError: The task makes no sense.
            RefusedError: The job runs already, its lease is over, or a GPU is in use.
        """
        check_task(task)
        if task.job in self._starting or task.job in {
            start.attempt.task.job for start in self.running
        }:
            raise RefusedError(task.job, "it runs already")
        check_source(task.source)
        if task.end <= self._now():
            raise RefusedError(task.job, "its lease is over")
        users = self._users()
        for gpu in task.gpus:
            if gpu >= self.gpus:
                raise RefusedError(task.job, f"there is no GPU {gpu} here")
            if gpu in users:
                raise RefusedError(task.job, f"GPU {gpu} is in use by {users[gpu]}")

    def reserve(self, task: Task) -> None:
        """Hold the job and its GPUs while it is being started."""
        self._starting[task.job] = task.gpus

    def release(self, job: str) -> None:
        """The job is followed from now on, or could not be started."""
        del self._starting[job]

    def _users(self) -> dict[int, str]:
        tasks = [start.attempt.task for start in self.running]
        users = {gpu: task.job for task in tasks for gpu in task.gpus}
        return users | {gpu: job for job, gpus in self._starting.items() for gpu in gpus}
