"""The floor: a value of max rho that no scheduler can beat on these apps, however clever.

    rho_floor(apps, capacity=64.0)      # 1.07: an app must end at 1.07 times its ideal time

Bisection on r with the question whether every app could be done by arrival + r * T_id. The
schedule asked for is easier than any real one, which makes the answer a lower bound:

- clairvoyant, with fractions of GPUs, moves at no cost and one start-up for each app;
- S = 1, or with `pace` the smallest S that any placement of a job has;
- a phase may begin when those before it could have ended at full speed, and must end when those
  after it can just be done at full speed; phases of one app may overlap within these windows;
- a phase is at most as fast as all its jobs together, to its end.

What is left is a flow of work from phases to the stretches of time between windows' ends.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from themis.core.fairness.loads import PhaseLoad, phase_work
from themis.core.model import AppId

PRECISION = 1e-3
"""The bound is this close to what the flow allows, below it."""

MOST_STEPS = 5_000_000
"""Steps of a search after which a schedule is taken to exist: the bound only gets lower."""

_DUST = 1e-9


@dataclass(frozen=True, slots=True)
class FloorApp:
    """An app with the work that really runs, the seconds it needs to start, and its T_id."""

    id: AppId
    arrival: float
    startup: float
    phases: tuple[PhaseLoad, ...]
    ideal_time: float
    pace: Callable[[int], float] = float
    """How many times faster than on one GPU a job can be at best that may hold this many."""


@dataclass(slots=True)
class _Task:
    """One phase: so much work within a window, at most `width` GPUs at a time."""

    work: float
    width: float
    opens: float
    closes: float
    left: float = 0.0


def rho_floor(apps: Sequence[FloorApp], capacity: float, precision: float = PRECISION) -> float:
    """A lower bound on the largest rho among these apps; 0 if none has work to do."""
    apps = [app for app in apps if app.ideal_time > 0.0]
    alone = max((seconds_alone(app, capacity) / app.ideal_time for app in apps), default=0.0)
    if not apps or _feasible(apps, capacity, alone * (1.0 + precision)):
        return alone
    low = high = alone * (1.0 + precision)
    while not _feasible(apps, capacity, high):
        low, high = high, 2.0 * high
    while high > low * (1.0 + precision):
        middle = math.sqrt(low * high)
        if _feasible(apps, capacity, middle):
            high = middle
        else:
            low = middle
    return low


def seconds_alone(app: FloorApp, capacity: float) -> float:
    """What an app needs at least, with the cluster to itself."""
    return app.startup + math.fsum(_shortest(app, phase, capacity) for phase in app.phases)


def _shortest(app: FloorApp, phase: PhaseLoad, capacity: float) -> float:
    longest = max((job.work / min(app.pace(job.max_gpus), capacity) for job in phase), default=0.0)
    return max(longest, phase_work(phase) / capacity)


def _tasks(app: FloorApp, capacity: float, r: float) -> list[_Task]:
    lengths = [_shortest(app, phase, capacity) for phase in app.phases]
    opens = app.arrival + app.startup
    # A hair of slack, so that rounding never makes a schedule impossible.
    closes = app.arrival + r * app.ideal_time * (1.0 + _DUST) - math.fsum(lengths)
    tasks = []
    for phase, length in zip(app.phases, lengths, strict=True):
        closes += length
        if length > 0.0:
            width = min(math.fsum(app.pace(job.max_gpus) for job in phase), capacity)
            tasks.append(_Task(phase_work(phase), width, opens, max(closes, opens + length)))
        opens += length
    return tasks


def _feasible(apps: Sequence[FloorApp], capacity: float, r: float) -> bool:
    """Whether the eased schedule exists with every app at most at r."""
    tasks = [task for app in apps for task in _tasks(app, capacity, r)]
    times = sorted({time for task in tasks for time in (task.opens, task.closes)})
    flow = _Flow(tasks, times, capacity)
    flow.fill()
    return flow.complete()


class _Flow:
    """Work of tasks in stretches of time; first by slack, then along augmenting paths."""

    def __init__(self, tasks: Sequence[_Task], times: Sequence[float], capacity: float) -> None:
        place = {time: number for number, time in enumerate(times)}
        self._tasks = tasks
        self._lengths = [after - before for before, after in pairwise(times)]
        self._starts = times
        self._room = [capacity * length for length in self._lengths]
        self._spans = [range(place[task.opens], place[task.closes]) for task in tasks]
        self._given: list[dict[int, float]] = [{} for _ in self._lengths]
        """By stretch: how much of which task is in it."""
        self._dust = _DUST * math.fsum(task.work for task in tasks)

    def fill(self) -> None:
        """Stretch by stretch, whoever can wait the least first."""
        arriving: list[list[int]] = [[] for _ in self._lengths]
        for number, task in enumerate(self._tasks):
            task.left = task.work
            arriving[self._spans[number].start].append(number)
        waiting: list[int] = []
        for stretch, length in enumerate(self._lengths):
            waiting.extend(arriving[stretch])
            waiting = [
                n for n in waiting if self._tasks[n].left > 0.0 and stretch in self._spans[n]
            ]
            for number in sorted(waiting, key=self._latest_start):
                task = self._tasks[number]
                part = min(task.left, task.width * length, self._room[stretch])
                if part <= 0.0:
                    continue
                self._given[stretch][number] = part
                self._room[stretch] -= part
                task.left -= part

    def _latest_start(self, number: int) -> tuple[float, int]:
        task = self._tasks[number]
        return (task.closes - task.left / task.width, number)

    def complete(self) -> bool:
        """Place what is left by moving others; False when there is no way."""
        steps = 0
        for number, task in enumerate(self._tasks):
            while task.left > self._dust:
                path, tried = self._path(number)
                steps += tried
                if steps > MOST_STEPS:
                    return True
                if not path:
                    return False
                self._push(number, path)
        return True

    def _path(self, source: int) -> tuple[list[tuple[int, int]], int]:
        """Pairs (task, stretch it grows in): the last stretch has room, the others are swaps."""
        came: dict[int, tuple[int, int]] = {}
        """Stretch -> the task that would grow there, and the stretch which that task leaves."""
        queue = deque([(source, -1)])
        seen = {source}
        steps = 0
        while queue:
            number, leaves = queue.popleft()
            width = self._tasks[number].width
            for stretch in self._spans[number]:
                steps += 1
                if stretch in came:
                    continue
                given = self._given[stretch]
                if given.get(number, 0.0) >= width * self._lengths[stretch] - self._dust:
                    continue
                came[stretch] = (number, leaves)
                if self._room[stretch] > self._dust:
                    return self._trace(stretch, came), steps
                for other, part in given.items():
                    if other not in seen and part > self._dust:
                        seen.add(other)
                        queue.append((other, stretch))
        return [], steps

    @staticmethod
    def _trace(stretch: int, came: dict[int, tuple[int, int]]) -> list[tuple[int, int]]:
        path = []
        while stretch >= 0:
            number, leaves = came[stretch]
            path.append((number, stretch))
            stretch = leaves
        return path[::-1]

    def _push(self, source: int, path: Sequence[tuple[int, int]]) -> None:
        amount = min(self._tasks[source].left, self._room[path[-1][1]])
        for place, (number, stretch) in enumerate(path):
            limit = self._tasks[number].width * self._lengths[stretch]
            amount = min(amount, limit - self._given[stretch].get(number, 0.0))
            if place:
                amount = min(amount, self._given[path[place - 1][1]][number])
        for place, (number, stretch) in enumerate(path):
            self._given[stretch][number] = self._given[stretch].get(number, 0.0) + amount
            if place:
                self._given[path[place - 1][1]][number] -= amount
        self._room[path[-1][1]] -= amount
        self._tasks[source].left -= amount
