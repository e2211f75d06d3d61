"""Pretend training for rehearsals: an engine whose jobs start, train and save as the model says.

    truth = Truth(workload, costs, seed=1)
    engine = PretendEngine(machine, truth)          # one for each machine

The simulator's assumptions in the place of real processes: how long a start and a checkpoint take,
and how fast a job trains on so many GPUs at a level, which its agent tells it in its environment.
Everything above the engine is the live system. A gang on several machines is one course of
training; its parts begin when all are there and end together.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from themis.core.model import AppId, JobId, JobSpec, Machine
from themis.engines.base import (
    Capabilities,
    Discovered,
    Event,
    FoundProgram,
    Gpu,
    LogPiece,
    Outcome,
    ProgramExited,
    ProgramStarted,
)
from themis.engines.metrics.points import MetricSample, SampleBatch
from themis.engines.task import Task
from themis.errors import RefusedError
from themis.sim.modelled_jobs import JobCosts, chance
from themis.sim.workloads import Workload

RAREST = 256.0
"""A job reports after 1, 2, 4, 8... seconds of training, and then so often."""
_DOUBLINGS = 9
_SAVED_CODE = 75


@dataclass(slots=True)
class ProcessOverhead:
    """What one process of a job cost besides training; seconds."""

    app: AppId
    job: JobId
    gpus: int
    asked: float
    """When its node was told to start it."""
    startup: float = 0.0
    checkpoint: float = 0.0
    """Both as they were, not as they should have been."""


@dataclass(slots=True)
class _Training:
    """A job, and what is in its checkpoint folder."""

    app: AppId
    spec: JobSpec
    quality: float
    done: float = 0.0
    starts: int = 0


class Truth:
    """What jobs really are, for all machines, whatever their agents believe."""

    def __init__(self, workload: Workload, costs: JobCosts, seed: int) -> None:
        self.costs = costs
        self.seed = seed
        self.changes: list[ProcessOverhead] = []
        """Every process so far."""
        self.killed = 0
        """Processes that had not gone by the end of their lease, or their grace."""
        self.courses: dict[str, Course] = {}
        """Those that are not over, by the tag of their tasks."""
        self._trainings = {
            f"{app.spec.id}/{job.spec.id}": _Training(app.spec.id, job.spec, job.quality)
            for app in workload.apps
            for job in app.jobs
        }

    def join(self, task: Task, left: Callable[["Part", Outcome, str], None]) -> "Part":
        """A part of a gang is here; the course begins with the last one."""
        course = self.courses.get(task.tag)
        if course is None:
            course = self.courses[task.tag] = Course(self, self._trainings[task.job], task)
        return course.join(task, left)


@dataclass(slots=True)
class Part:
    """The process of a course on one machine."""

    task: Task
    course: "Course"
    left: Callable[["Part", Outcome, str], None]
    """Called when it ends."""
    end: float
    grace: float
    alarm: asyncio.TimerHandle | None = None


class Course:
    """One start of a job, on all its machines."""

    def __init__(self, truth: Truth, training: _Training, task: Task) -> None:
        self._truth = truth
        self._training = training
        self._tag = task.tag
        self._until = math.inf if task.max_iterations is None else float(task.max_iterations)
        self._gpus = int(task.env["THEMIS_GPU_COUNT"])
        level = int(task.env["THEMIS_LEVEL"])
        spec = training.spec
        slowdown = spec.slowdown.at(level, self._gpus)
        self._rate = self._gpus / slowdown / spec.serial_iteration_time
        self._world = task.world
        self._parts: list[Part] = []
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._began = math.inf
        """When it trained first."""
        self._first = training.done
        """Iterations that it began with."""
        self._stopped = math.inf
        """When it trained last."""
        training.starts += 1
        now = self._loop.time()
        self._change = ProcessOverhead(training.app, spec.id, self._gpus, now)
        truth.changes.append(self._change)

    def join(self, task: Task, left: Callable[[Part, Outcome, str], None]) -> Part:
        """Another part of it is here."""
        part = Part(task, self, left, task.end, task.grace)
        self._parts.append(part)
        if len(self._parts) == self._world:
            cost = self._truth.costs.restart(self._chance("restart"))
            self._timer = self._loop.call_later(cost, self._train)
        return part

    def _chance(self, purpose: str) -> float:
        training, seed = self._training, self._truth.seed
        return chance(seed, purpose, training.app, training.spec.id, training.starts)

    def _train(self) -> None:
        now = self._began = self._loop.time()
        self._change.startup = now - self._change.asked
        seconds = max(0.0, self._until - self._first) / self._rate
        if seconds < math.inf:
            self._timer = self._loop.call_later(seconds, self._reach)

    def _reach(self) -> None:
        self._stopped = self._loop.time()
        self._training.done = self._until
        self._leave("finished", "done")

    def save(self) -> None:
        """Checkpoint and go; once."""
        if self._stopped < math.inf or not self._parts:
            return
        self._cancel()
        now = self._stopped = self._loop.time()
        if self._began > now:
            # Nothing new to save: it may go at once, and go on from its last checkpoint.
            self._change.startup = now - self._change.asked
            self._leave("resumable", "asked to go before it trained")
            return
        cost = self._truth.costs.checkpoint(self._chance("checkpoint"))
        self._timer = self._loop.call_later(cost, self._saved)

    def _saved(self) -> None:
        self._change.checkpoint = self._loop.time() - self._stopped
        self._training.done = self._iterations(self._stopped)
        self._leave("resumable", "saved")

    def kill(self) -> None:
        """Die; what was not saved is lost."""
        if self._parts:
            self._truth.killed += 1
            self._stopped = min(self._stopped, self._loop.time())
            self._leave("resumable", "killed")

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leave(self, outcome: Outcome, reason: str) -> None:
        self._cancel()
        self._truth.courses.pop(self._tag, None)
        parts, self._parts = self._parts, []
        for part in parts:
            if part.alarm is not None:
                part.alarm.cancel()
            part.left(part, outcome, reason)

    # What it reports

    def _iterations(self, at: float) -> float:
        return min(self._until, self._first + max(0.0, at - self._began) * self._rate)

    @property
    def lines(self) -> int:
        """How many lines it has written."""
        trained = min(self._loop.time(), self._stopped) - self._began
        if trained < 0.0:
            return 0
        count = math.floor(math.log2(trained)) + 1 if trained >= 1.0 else 0
        if trained >= RAREST:
            count = _DOUBLINGS + int((trained - RAREST) / RAREST)
        # One more when it stops, wherever that is.
        return count + (self._stopped < math.inf)

    @property
    def last(self) -> tuple[MetricSample, ...]:
        """How far it is, once it trains."""
        at = min(self._loop.time(), self._stopped)
        return (MetricSample(self._iterations(at), self._training.quality, at),) * (
            at > self._began
        )

    def line(self, number: int) -> MetricSample:
        """The line of this number, from 0."""
        trained = 2.0**number if number < _DOUBLINGS else (number - _DOUBLINGS + 2) * RAREST
        at = min(self._began + trained, self._stopped)
        return MetricSample(self._iterations(at), self._training.quality, at, end=number + 1)


@dataclass(slots=True)
class PretendEngine:
    """Satisfies `Engine`. Jobs are not there after the process that has it."""

    machine: Machine
    truth: Truth
    _parts: dict[str, Part] = field(default_factory=dict)
    """The last start of each job here, also when it is over."""
    _live: set[str] = field(default_factory=set)
    _events: "asyncio.Queue[Event]" = field(default_factory=asyncio.Queue)

    @property
    def capabilities(self) -> Capabilities:
        """It chooses GPUs, and that is all there is to choose."""
        return Capabilities("pretend", chooses_indices=True, control="pretend", outlives_node=False)

    async def discover(self) -> tuple[Discovered, ...]:
        """The machine; all its GPUs are well."""
        return (Discovered(self.machine, tuple(map(Gpu, range(self.machine.gpus)))),)

    async def reattach(self) -> tuple[FoundProgram, ...]:
        """Nothing is left of an earlier one."""
        return ()

    async def start(self, task: Task) -> None:
        """Start a job.

        Raises:
            RefusedError: It runs here already, or a GPU is in use.
        """
        used = {gpu for job in self._live for gpu in self._parts[job].task.gpus}
        if task.job in self._live or used.intersection(task.gpus):
            raise RefusedError(task.job, "runs already, or its GPUs are in use")
        part = self._parts[task.job] = self.truth.join(task, self._left)
        self._live.add(task.job)
        self._arm(part)
        self._events.put_nowait(ProgramStarted(task.job, task.token, ()))

    def _left(self, part: Part, outcome: Outcome, reason: str) -> None:
        self._live.discard(part.task.job)
        code = 0 if outcome == "finished" else _SAVED_CODE
        self._events.put_nowait(
            ProgramExited(part.task.job, part.task.token, outcome, code, reason)
        )

    def _arm(self, part: Part) -> None:
        """As a supervisor: save before the end of the lease, and die at its end."""
        loop = asyncio.get_running_loop()
        due = part.end - part.grace
        if loop.time() >= part.end:
            part.course.kill()
        elif loop.time() >= due:
            part.alarm = loop.call_at(part.end, self._arm, part)
            part.course.save()
        else:
            part.alarm = loop.call_at(due, self._arm, part)

    def _running(self, job: str, token: int) -> Part | None:
        part = self._parts.get(job)
        return part if part and job in self._live and part.task.token == token else None

    async def renew(self, job: str, token: int, end: float, grace: float | None = None) -> None:
        """Move the end of a job's lease.

        Raises:
            RefusedError: No such job runs with this token.
        """
        part = self._running(job, token)
        if part is None:
            raise RefusedError(job, f"does not run with token {token}")
        earlier = end < part.end
        part.end, part.grace = end, part.grace if grace is None else grace
        # An alarm that rings too early finds that out by itself.
        if earlier:
            if part.alarm is not None:
                part.alarm.cancel()
            self._arm(part)

    async def checkpoint(self, job: str, token: int) -> None:
        """Ask for a checkpoint."""
        part = self._running(job, token)
        if part is not None:
            part.course.save()

    async def kill(self, job: str, token: int) -> None:
        """Kill everything of it."""
        part = self._running(job, token)
        if part is not None:
            part.course.kill()

    async def watch(self) -> AsyncIterator[Event]:
        """Events as they happen."""
        while True:
            yield await self._events.get()

    async def measure(self, job: str) -> tuple[MetricSample, ...]:
        """How far it is: it tells its node at every iteration, and its agent now and then."""
        part = self._parts.get(job)
        return () if part is None or part.task.rank else part.course.last

    async def points(self, job: str, since: int, most: int) -> SampleBatch:
        """Samples of its latest start."""
        part = self._parts.get(job)
        if part is None or part.task.rank:
            return SampleBatch((), since, False)
        lines = part.course.lines
        end = min(lines, since + most)
        return SampleBatch(tuple(map(part.course.line, range(since, end))), end, end < lines)

    async def tail(self, job: str, limit: int = 4096) -> str:
        """It prints nothing."""
        return ""

    async def output(self, tag: str, offset: int, most: int) -> LogPiece | None:
        """It prints nothing."""
        return None

    async def forget(self, job: str, token: int) -> None:
        """Its end is known."""
        part = self._parts.get(job)
        if part is not None and job not in self._live and part.task.token == token:
            del self._parts[job]

    async def close(self) -> None:
        """There is nothing to let go of."""
