"""How fast alike jobs train on a shape of GPUs: what `carving.shape_rates` says, much sooner.

    rates = rates_of(1, 4, vgg)               # jobs of 1 to 4 GPUs
    rates.reach(((MACHINE, 4, 8),), jobs=20)  # twenty on eight gangs, each within a machine

A bid has hundreds of rows, and each needs this for every phase to come. So shapes are counted in
runs of equal chunks, and of the ways to cut them only those are looked at that can be better than
one before. That holds for priors, which never get faster with distance; what was measured goes the
long way.
"""

import math
from collections import Counter
from functools import lru_cache

from themis.agent.carving import Shape, gang_sizes, shape_rates
from themis.model import CLUSTER, SLOT, Slowdown

Runs = tuple[tuple[int, int, int], ...]
"""A shape as (level, count, how many such chunks), sorted."""

Reached = tuple[float, float]
"""The sum of the rates of all jobs, and the best rate of one that has the GPUs to itself."""

MOST_REMEMBERED = 1 << 14
"""Shapes, for each kind and number of jobs."""

_NOT_BETTER = 1.0 - 1e-9
"""As in `carving`: a way to cut must beat those before it by more than rounding."""


@lru_cache(maxsize=256)
def rates_of(low: int, high: int, slowdown: Slowdown) -> "Rates":
    """The rates of jobs of `low` to `high` GPUs, shared by all apps with such jobs."""
    return Rates(low, high, slowdown)


def in_runs(shape: Shape) -> Runs:
    """Equal chunks of a shape together."""
    return tuple((level, count, many) for (level, count), many in sorted(Counter(shape).items()))


def spelled_out(runs: Runs) -> Shape:
    """The same shape, chunk by chunk."""
    return tuple((level, count) for level, count, many in runs for _ in range(many))


class Rates:
    """What is known of one kind of job."""

    def __init__(self, low: int, high: int, slowdown: Slowdown) -> None:
        self._low = low
        self._high = high
        self._slowdown = slowdown
        levels = slowdown.levels
        self._plain = not slowdown.measured and list(levels) == sorted(levels)
        self._known: dict[int, dict[Runs, Reached]] = {}

    def known(self, jobs: int) -> dict[Runs, Reached]:
        """What was found for so many jobs: to be read where a call would take too long."""
        return self._known.setdefault(jobs, {})

    def reach(self, runs: Runs, jobs: int) -> Reached:
        """What so many jobs reach on a shape."""
        known = self.known(jobs)
        reached = known.get(runs)
        if reached is None:
            if len(known) >= MOST_REMEMBERED:
                known.clear()
            reached = known[runs] = self._reach(runs, jobs)
        return reached

    def _reach(self, runs: Runs, jobs: int) -> Reached:
        if not self._plain:
            return shape_rates(spelled_out(runs), jobs, self._low, self._high, self._slowdown)
        speed, best = _Cutting(runs, self._low, self._high, self._slowdown).rates(jobs)
        return (speed, best if jobs == 1 else max(best, self.reach(runs, 1)[1]))


class _Cutting:
    """The ways to cut one shape for jobs whose slowdown never falls with distance."""

    __slots__ = ("_best", "_found", "_high", "_low", "_runs", "_slow", "_total")

    def __init__(self, runs: Runs, low: int, high: int, slowdown: Slowdown) -> None:
        self._runs = runs
        self._low = low
        self._total = sum([count * many for _, count, many in runs])
        self._high = high
        self._slow = slowdown.levels
        self._best = math.inf
        self._found: list[tuple[float, int]] = []

    def rates(self, jobs: int) -> tuple[float, float]:
        """The sum of the rates of the gangs of the best way, and the largest of them."""
        total = self._total
        if total < self._low:
            return (0.0, 0.0)
        # Gangs no farther apart than a level where there is no chunk are those of the level below,
        # with the same rests, farther apart: only levels of chunks are worth a look.
        levels = sorted({level for level, _, _ in self._runs})
        for size in gang_sizes(total, jobs, self._low, self._high, measured=False):
            if size == 1 or levels[0] > SLOT:
                # Below the first chunk's level, and for gangs of one, every GPU is on its own.
                self._try_singles(jobs)
            if size > 1:
                for top in levels:
                    if top < CLUSTER:
                        self._try_apart(size, top, jobs)
                self._try_scattered(size, jobs)
        speed = 0.0
        for rate, many in self._found:
            speed += rate * many
        return (speed, self._found[0][0] if self._found else 0.0)

    def _try_singles(self, jobs: int) -> None:
        if self._low == 1:
            waves = -(-jobs // self._total)
            if waves < self._best * _NOT_BETTER:
                self._best = float(waves)
                self._found = [(1.0, min(self._total, jobs))]

    def _try_apart(self, size: int, top: int, jobs: int) -> None:
        """Gangs no farther apart than `top`, each rest of a chunk a gang of its own."""
        low, slow = self._low, self._slow
        whole = [0, 0, 0]
        rests: dict[int, int] = {}
        for level, count, many in self._runs:
            if level > top:
                rests[1] = rests.get(1, 0) + count * many
            else:
                gangs, rest = divmod(count, size)
                whole[level] += gangs * many
                if rest:
                    rests[rest] = rests.get(rest, 0) + many
        rated = [(size / slow[level], many) for level, many in enumerate(whole) if many]
        for rest, many in rests.items():
            if rest >= low:
                rated.append((rest / slow[top] if rest > 1 else 1.0, many))
        self._judge(rated, jobs)

    def _try_scattered(self, size: int, jobs: int) -> None:
        """Gangs across racks too, of what is left of all chunks together."""
        low, slow = self._low, self._slow
        whole = [0, 0, 0, 0]
        parts = scattered = 0
        for level, count, many in self._runs:
            gangs, rest = divmod(count, size) if level < CLUSTER else (0, count)
            whole[level] += gangs * many
            scattered += rest * many
            if rest:
                parts += many if level < CLUSTER else rest * many
        if parts <= 1:
            return  # One rest alone is better off where it is.
        whole[CLUSTER], rest = divmod(scattered, size)
        rated = [(size / slow[level], many) for level, many in enumerate(whole) if many]
        if rest >= low and rest:
            rated.append((rest / slow[CLUSTER] if rest > 1 else 1.0, 1))
        self._judge(rated, jobs)

    def _judge(self, rated: list[tuple[float, int]], jobs: int) -> None:
        """Keep this way to cut if all jobs end sooner than by those before."""
        if not rated:
            return
        best = self._best
        if len(rated) == 1:
            rate, many = rated[0]
            span = -(-jobs // many) / rate
            if span < best * _NOT_BETTER:
                self._best = span
                self._found = [(rate, min(many, jobs))]
            return
        speed = 0.0
        for rate, many in rated:
            speed += rate * many
        if jobs >= best * speed:
            return  # Not even if all gangs were busy to the end.
        rated.sort(reverse=True)
        rated = _fastest(rated, jobs)
        span = _makespan(rated, jobs, best)
        if span < best * _NOT_BETTER:
            self._best = span
            self._found = rated


def _fastest(rated: list[tuple[float, int]], jobs: int) -> list[tuple[float, int]]:
    """One gang for each job at most, from a list with the fastest first."""
    kept = []
    for rate, many in rated:
        if many >= jobs:
            kept.append((rate, jobs))
            break
        kept.append((rate, many))
        jobs -= many
    return kept


def _makespan(rated: list[tuple[float, int]], jobs: int, limit: float) -> float:
    """When the last of so many jobs of one unit of work ends, each on the first gang free.

    It is never before the time that all gangs together need, so the walk begins there. Past
    `limit` it does not matter any more.
    """
    speed = 0.0
    for rate, many in rated:
        speed += rate * many
    start = jobs / speed * (1.0 - 1e-12)
    waves = []
    for rate, many in rated:
        wave = int(start * rate)
        jobs -= wave * many
        waves.append(wave + 1)
    last = start
    while jobs > 0:
        last = math.inf
        first = 0
        for index, (rate, _) in enumerate(rated):
            end = waves[index] / rate
            if end < last:
                last, first = end, index
        if last >= limit:
            break
        jobs -= rated[first][1]
        waves[first] += 1
    return last
