"""Runs that a session has asked for: their keys, their reports, and how they train.

runs = RunTracker(session="6f1c")
key = runs.request(job, gpus, at)
report = runs.take_points(news, at, target)
runs.stop(job, at)                              # StopRequest(...), or None if it does not run
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from themis.core.agent.events import Window
from themis.core.model import GpuId, JobId
from themis.protocol.agent_messages import JobPast, PointsNews, RunNews, StopRequest
from themis.protocol.node_messages import Point

LONGEST_DELAY = 60.0
"""Seconds that a report is believed to have travelled at most; more means a wrong clock."""
SILENCE_FACTOR = 3.0
"""A run is believed to train on while it is silent for less than this many report intervals."""
FIRST_SILENCE = 60.0
"""The same in seconds, for a run that has reported less than twice."""


@dataclass(slots=True)
class RequestedRun:
    """A run that was asked for and is not known to have ended."""

    key: str
    gpus: tuple[GpuId, ...]
    requested_at: float
    number: int = 0
    """Zero until the service has told it."""
    stopping: bool = False
    """Whether it was told to stop before this session began."""
    ran: bool = False
    """Whether its process was seen to run."""
    running_since: float | None = None
    """When its process was seen to run, until its first report."""
    points: int = 0
    """The number of its last point that was heard."""
    heard_at: float = 0.0
    """When that was."""
    interval: float = 0.0
    """Seconds between its last two reports."""
    first: float | None = None
    """Iterations of the job at its first point."""
    last: Point | None = None


@dataclass(frozen=True, slots=True)
class StoppingRun:
    """A run that was told to stop."""

    job: JobId
    told_at: float | None = None
    """When, if this session told it and it had reported by then."""


@dataclass(frozen=True, slots=True)
class FreshPoints:
    """What is new in the points of a run."""

    points: tuple[Point, ...]
    gpus: tuple[GpuId, ...] = ()
    """The GPUs of the run; none if the run is not current."""
    starts_at: float | None = None
    """The iteration at which the run started, if these are its first points."""
    restart_seconds: float | None = None
    """Seconds from its start to its first iteration, if it is known."""
    windows: tuple[Window, ...] = ()


class RunTracker:
    """The current run of each job, and runs that were told to stop."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._count = 0
        self._runs: dict[JobId, RequestedRun] = {}
        self._stopping: dict[str, StoppingRun] = {}
        """By key: the job may have another run by now."""
        self._spent: dict[JobId, float] = {}
        """Seconds of the runs of a job that have ended."""
        self.clock_offset = math.inf
        """The cluster's time less the wall clock that jobs report by, if it is known."""

    def restart(self, past: Iterable[JobPast]) -> None:
        """Forget all runs; take over how long earlier ones lasted."""
        self._runs, self._stopping = {}, {}
        self._spent = {each.job: each.seconds for each in past}

    def __contains__(self, job: object) -> bool:
        return job in self._runs

    def __iter__(self) -> Iterator[JobId]:
        return iter(tuple(self._runs))

    def is_stopping(self, job: JobId) -> bool:
        """Whether the run of a job was told to stop before this session began."""
        return self._runs[job].stopping

    # From the request to the end

    def request(self, job: JobId, gpus: tuple[GpuId, ...], at: float) -> str:
        """Note a run that is asked for; returns its key."""
        self._count += 1
        key = f"{self._session}-{self._count}"
        self._runs[job] = RequestedRun(key, gpus, at)
        return key

    def adopt(self, run: RunNews, at: float, *, stopping: bool) -> None:
        """Take over a run of an earlier session."""
        self._runs[run.job] = RequestedRun(run.key, run.gpus, at, run.run, stopping)

    def adopt_stopping(self, run: RunNews) -> None:
        """Take over a run that is stopping, of a job that has another one."""
        self._stopping[run.key] = StoppingRun(run.job)

    def stop(self, job: JobId, at: float) -> StopRequest | None:
        """Tell the run of a job to stop; None if there is none."""
        run = self._runs.get(job)
        if run is None:
            return None
        self.end(job, at)
        self._stopping[run.key] = StoppingRun(job, at if run.last is not None else None)
        return StopRequest(run.number, run.key)

    def match(self, news: RunNews) -> RequestedRun | None:
        """The current run of a job, if news are about it; its number is known from then on."""
        run = self._runs.get(news.job)
        if run is None or run.key != news.key:
            return None
        run.number = news.run
        return run

    def note_running(self, job: JobId, at: float) -> None:
        """The process of a run was seen to run."""
        run = self._runs[job]
        if not run.ran:
            run.ran, run.running_since = True, at

    def job_of(self, key: str) -> JobId | None:
        """The job whose current run has this key."""
        return next((job for job, run in self._runs.items() if run.key == key), None)

    def end(self, job: JobId, at: float) -> None:
        """The current run of a job has ended."""
        run = self._runs.pop(job)
        self._spent[job] = self._spent.get(job, 0.0) + max(0.0, at - run.requested_at)

    def refuse(self, job: JobId) -> None:
        """The current run of a job was refused: it never began."""
        del self._runs[job]

    def take_stopped(self, key: str) -> StoppingRun | None:
        """Forget a run that was told to stop, and has."""
        return self._stopping.pop(key, None)

    def deadline(self, job: JobId, max_runtime: float) -> float:
        """When a job has run for its longest time; infinity if it does not run."""
        run = self._runs.get(job)
        if run is None or run.stopping:
            return math.inf
        return run.requested_at + max_runtime - self._spent.get(job, 0.0)

    # Reports

    def take_points(self, news: PointsNews, at: float, target: float | None) -> FreshPoints:
        """Take the points of a run; returns what is new.

        Args:
            news: The points.
            at: The time.
            target: The iterations that the job trains to.
        """
        run = self._runs.get(news.job)
        if run is None or run.number not in {0, news.run}:
            return FreshPoints(news.points)
        fresh = news.points[max(0, run.points + 1 - news.first) :]
        begins = bool(fresh) and not run.points and news.first == 1
        run.points = max(run.points, news.first + len(news.points) - 1)
        return FreshPoints(
            fresh,
            run.gpus,
            fresh[0].iteration if begins else None,
            _restart_seconds(run, news, at),
            tuple(_windows(news.job, run, fresh, at, target)),
        )

    def seconds_trained(self, job: JobId, at: float, start_seconds: float) -> float:
        """How long a run should have trained since its last report.

        Args:
            job: Its job.
            at: The time.
            start_seconds: How long a job takes from its start to its first iteration.
        """
        run = self._runs[job]
        if run.last is not None:
            longest = SILENCE_FACTOR * run.interval if run.interval else FIRST_SILENCE
            return min(at - self._reported_at(run), longest)
        if run.running_since is None:
            return 0.0
        return min(max(0.0, at - run.running_since - start_seconds), FIRST_SILENCE)

    def _reported_at(self, run: RequestedRun) -> float:
        """When a run made its last report, which took some time to arrive."""
        if run.last is None or run.last.time is None:
            return run.heard_at
        # Clocks may be wrong: no report is believed to have travelled for long.
        made_at = max(run.last.time + self.clock_offset, run.heard_at - LONGEST_DELAY)
        return min(run.heard_at, made_at)


def _restart_seconds(run: RequestedRun, news: PointsNews, at: float) -> float | None:
    since, run.running_since = run.running_since, None
    if since is None or news.first != 1:
        return None
    first, last = news.points[0].time, news.points[-1].time
    trained = last - first if first is not None and last is not None else 0.0
    return max(0.0, at - since - max(0.0, trained))


def _windows(
    job: JobId, run: RequestedRun, points: tuple[Point, ...], at: float, target: float | None
) -> Iterator[Window]:
    """Note the reports of a run; yields how long the iterations between them took."""
    for point in points:
        before, run.last = run.last, point
        waited, run.heard_at = at - run.heard_at, at
        if run.first is None:
            run.first = point.iteration
        if before is None:
            continue
        if before.time is None or point.time is None:
            run.interval = max(0.0, waited)
            continue
        run.interval = max(0.0, point.time - before.time)
        iterations, seconds = point.iteration - before.iteration, point.time - before.time
        # A job that ignores its limit may report any number.
        honest = target is None or point.iteration <= target
        if honest and iterations > 0.0 and seconds > 0.0:
            yield Window(job, run.gpus, before.iteration - run.first, iterations, seconds)
