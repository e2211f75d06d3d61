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
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from themis.core.agent.carving import Shape, gang_sizes, shape_rates
from themis.core.model import CLUSTER, SLOT, Slowdown

Runs = tuple[tuple[int, int, int], ...]
"""A shape as (level, count, how many such chunks), sorted."""

Reached = tuple[float, float]
"""The sum of the rates of all jobs, and the best rate of one that has the GPUs to itself."""

ByJobs = dict[int, Reached]
"""What numbers of jobs reach on one shape."""

MOST_REMEMBERED = 1 << 15
"""Answers for each kind of job, over all numbers of jobs: some 8 MB."""

MOST_COLUMNS = 256
"""Lists of such answers that are asked for together, over all numbers of jobs: a few MB."""

LEAST_IN_BATCH = 64
"""New shapes from which on arrays are sooner than one shape after the other."""

WIDEST_IN_BATCH = 8
"""Up to this many GPUs a job, every size of gangs is tried."""

_NOT_BETTER = 1.0 - 1e-9
"""As in `carving`: a way to cut must beat those before it by more than rounding."""


class Shapes:
    """Shapes that are asked about together, again and again. Known by its identity."""

    __slots__ = ("runs",)

    def __init__(self, runs: tuple[Runs, ...]) -> None:
        self.runs = runs


class _ShapeCut(NamedTuple):
    """One way to cut a shape: rates and how many gangs have each, the fastest first."""

    speed: float
    """The sum of all rates."""
    gangs: int
    rated: list[tuple[float, int]]

    @staticmethod
    def of(rated: list[tuple[float, int]]) -> "_ShapeCut":
        if len(rated) > 1:
            rated.sort(reverse=True)
        speed, gangs = 0.0, 0
        for rate, many in rated:
            speed += rate * many
            gangs += many
        return _ShapeCut(speed, gangs, rated)


_NO_WAY = _ShapeCut(0.0, 0, [])
_NOTHING: ByJobs = {}


@lru_cache(maxsize=256)
def rates_of(low: int, high: int, slowdown: Slowdown) -> "JobRates":
    """The rates of jobs of `low` to `high` GPUs, shared by all apps with such jobs."""
    return JobRates(low, high, slowdown)


def in_runs(shape: Shape) -> Runs:
    """Equal chunks of a shape together."""
    return tuple((level, count, many) for (level, count), many in sorted(Counter(shape).items()))


def spelled_out(runs: Runs) -> Shape:
    """The same shape, chunk by chunk."""
    return tuple((level, count) for level, count, many in runs for _ in range(many))


class JobRates:
    """What is known about one kind of job."""

    def __init__(self, low: int, high: int, slowdown: Slowdown) -> None:
        self._low = low
        self._high = high
        self._slowdown = slowdown
        levels = slowdown.levels
        self._plain = not slowdown.measured and list(levels) == sorted(levels)
        self._known: dict[Runs, ByJobs] = {}
        self._remembered = 0
        self._columns: dict[tuple[Shapes, int], list[Reached]] = {}
        self._last_known: tuple[Shapes | None, list[ByJobs]] = (None, [])
        self._last = _Cutting((), low, high, levels)

    def known(self, shapes: Sequence[Runs]) -> list[ByJobs]:
        """What was found for each shape, by the number of jobs.

        Shapes are slow to look up: whoever asks about several numbers of jobs does it once.
        """
        known = self._known
        found = [known.get(runs) for runs in shapes]
        return [
            known.setdefault(runs, {}) if entry is None else entry
            for runs, entry in zip(shapes, found, strict=True)
        ]

    def reach(self, runs: Runs, jobs: int) -> Reached:
        """What this many jobs reach on a shape."""
        reached = self._known.get(runs, _NOTHING).get(jobs)
        if reached is None:
            reached = self._reach(runs, jobs)
            self._make_room(1)
            self._known.setdefault(runs, {})[jobs] = reached
        return reached

    def reach_on(self, shapes: Sequence[Runs], known: Sequence[ByJobs], jobs: int) -> list[Reached]:
        """The same for many shapes, of which this is known."""
        return [
            entry.get(jobs) or self.reach(runs, jobs)
            for runs, entry in zip(shapes, known, strict=True)
        ]

    def column(self, shapes: Shapes, jobs: int) -> list[Reached]:
        """What this many jobs reach on each of some shapes."""
        found = self._columns.get((shapes, jobs))
        if found is None:
            if len(self._columns) >= MOST_COLUMNS:
                self._columns.clear()
            if self._last_known[0] is not shapes:
                self._last_known = (shapes, self.known(shapes.runs))
            found = self.reach_on(shapes.runs, self._last_known[1], jobs)
            self._columns[shapes, jobs] = found
        return found

    def has_column(self, shapes: Shapes, jobs: int) -> bool:
        """Whether that is known."""
        return (shapes, jobs) in self._columns

    def _make_room(self, more: int) -> None:
        """Forget everything rather than remember too much; answers are the same when found anew."""
        if self._remembered + more > MOST_REMEMBERED:
            self._known.clear()
            self._last_known = (None, [])
            self._remembered = 0
        self._remembered += more

    def prepare(self, shapes: Sequence[Runs], numbers: Sequence[int]) -> None:
        """Find out together what these numbers of jobs reach, if much of it is new.

        Args:
            shapes: What will be asked about.
            numbers: Of jobs. What is known for the first of them is taken as a sign.
        """
        if not self._plain or not 1 < self._high <= WIDEST_IN_BATCH:
            return
        known, first = self._known, numbers[0]
        new = list(
            dict.fromkeys([runs for runs in shapes if first not in known.get(runs, _NOTHING)])
        )
        if len(new) < LEAST_IN_BATCH:
            return
        try:
            from themis.core.agent.batched_rates import ShapeBatch  # noqa: PLC0415 # numpy, which may be missing
        except ImportError:
            return
        fit = [runs for runs in new if sum([c * many for _, c, many in runs]) >= self._high]
        different = sorted({1, *numbers})
        fit = fit[: MOST_REMEMBERED // len(different)]
        # Some may be known for other numbers of jobs already; counted twice they do no harm.
        self._make_room(len(fit) * len(different))
        batch = ShapeBatch(fit, self._low, self._high, self._slowdown.levels)
        enough, alone = batch.plenty
        entries = self.known(fit)
        for jobs in different:
            lacking = []
            for index, plenty in enumerate(enough):
                if plenty < jobs:
                    lacking.append(index)
                else:
                    entries[index][jobs] = (alone[index] * jobs, alone[index])
            for index, (speed, best) in zip(lacking, batch.reach(jobs, lacking), strict=True):
                entries[index][jobs] = (speed, max(best, alone[index]))

    def _reach(self, runs: Runs, jobs: int) -> Reached:
        if self._high == 1:
            total = sum([count * many for _, count, many in runs])
            return (float(min(total, jobs)), 1.0 if total else 0.0)
        if not self._plain:
            return shape_rates(spelled_out(runs), jobs, self._low, self._high, self._slowdown)
        cutting = self._last
        if cutting.runs is not runs:
            # One shape is asked about for all phases of an app in turn.
            cutting = self._last = _Cutting(runs, self._low, self._high, self._slowdown.levels)
        if jobs <= cutting.plenty:
            return (cutting.top_rate * jobs, cutting.top_rate)
        speed, best = cutting.rates(jobs)
        return (speed, best if jobs == 1 else max(best, self.reach(runs, 1)[1]))


class _Cutting:
    """The ways to cut one shape for jobs whose slowdown never falls with distance."""

    __slots__ = ("_by_size", "_high", "_low", "_slow", "_total", "plenty", "runs", "top_rate")

    def __init__(
        self, runs: Runs, low: int, high: int, slow: tuple[float, float, float, float]
    ) -> None:
        self.runs = runs
        self._low = low
        self._high = high
        self._slow = slow
        total = whole = 0
        nearest = home = CLUSTER
        for level, count, many in runs:
            total += count * many
            nearest = min(nearest, level)
            if count >= high and level <= home:
                # Runs are sorted, so this is the nearest level with whole gangs.
                home = level
                whole += count // high * many
        self._total = total
        self._by_size: dict[int, list[_ShapeCut]] = {}
        rate = high / slow[home]
        # Where there are whole gangs enough at the nearest level, and no part of one is faster.
        partly = max(1.0, (high - 1) / slow[nearest])
        self.plenty = whole if rate * _NOT_BETTER > partly else 0
        """For how many jobs that is so."""
        self.top_rate = rate

    def rates(self, jobs: int) -> tuple[float, float]:
        """The sum of the rates of the gangs of the best way, and the largest of them."""
        total = self._total
        if total < self._low:
            return (0.0, 0.0)
        best, found = math.inf, _NO_WAY
        sizes = gang_sizes(total, jobs, self._low, self._high, measured=False)
        for size in sizes:
            if 2 * size in sizes and self._halves(2 * size):
                continue
            for way in self._by_size.get(size) or self._ways(size):
                if jobs >= best * way.speed:
                    continue  # Not even if all gangs were busy to the end.
                span = _makespan(way, jobs, best)
                if span < best * _NOT_BETTER:
                    best, found = span, way
        speed = 0.0
        for rate, many in found.rated:
            if many >= jobs:
                return (speed + rate * jobs, found.rated[0][0])
            speed += rate * many
            jobs -= many
        return (speed, found.rated[0][0] if found.rated else 0.0)

    def _halves(self, size: int) -> bool:
        """Whether gangs of half this size are just these, each in two: then never sooner done."""
        for level, count, _ in self.runs:
            rest = count % size
            if rest and (level < CLUSTER or rest > size // 2):
                return False
        return size > 2

    def _ways(self, size: int) -> list[_ShapeCut]:
        """The ways to cut gangs of one size, in the order of the carving."""
        # Gangs no farther apart than a level where there is no chunk are those of the level below,
        # with the same rests, farther apart: only levels of chunks are worth a look.
        levels = sorted({level for level, _, _ in self.runs})
        rated: list[list[tuple[float, int]]] = []
        if self._low == 1 and (size == 1 or levels[0] > SLOT):
            # Below the first chunk's level, and for gangs of one, every GPU is on its own.
            rated.append([(1.0, self._total)])
        if size > 1:
            rated += [self._apart(size, top) for top in levels if top < CLUSTER]
            rated.append(self._scattered(size))
        ways = self._by_size[size] = [_ShapeCut.of(gangs) for gangs in rated if gangs]
        return ways

    def _apart(self, size: int, top: int) -> list[tuple[float, int]]:
        """Gangs no farther apart than `top`, each rest of a chunk a gang of its own."""
        slow = self._slow
        whole = [0, 0, 0]
        rests: dict[int, int] = {}
        for level, count, many in self.runs:
            if level > top:
                rests[1] = rests.get(1, 0) + count * many
            else:
                whole[level] += count // size * many
                rest = count % size
                if rest:
                    rests[rest] = rests.get(rest, 0) + many
        rated = [(size / slow[level], many) for level, many in enumerate(whole) if many]
        for rest, many in rests.items():
            if rest >= self._low:
                rated.append((rest / slow[top] if rest > 1 else 1.0, many))
        return rated

    def _scattered(self, size: int) -> list[tuple[float, int]]:
        """Gangs across racks too, of what is left of all chunks together."""
        slow = self._slow
        whole = [0, 0, 0, 0]
        parts = scattered = 0
        for level, count, many in self.runs:
            if level == CLUSTER:
                parts += count * many
                scattered += count * many
            else:
                whole[level] += count // size * many
                rest = count % size
                if rest:
                    parts += many
                    scattered += rest * many
        if parts <= 1:
            return []  # One rest alone is better off where it is.
        whole[CLUSTER], rest = divmod(scattered, size)
        rated = [(size / slow[level], many) for level, many in enumerate(whole) if many]
        if rest >= self._low and rest:
            rated.append((rest / slow[CLUSTER] if rest > 1 else 1.0, 1))
        return rated


def _makespan(way: _ShapeCut, jobs: int, limit: float) -> float:
    """When the last of this many jobs of one unit of work ends, each on the first gang free.

    It is never before the time that all gangs together need, so the walk begins there. Past
    `limit` it does not matter any more.
    """
    rated, speed = way.rated, way.speed
    if len(rated) == 1:
        rate, many = rated[0]
        return -(-jobs // many) / rate
    if way.gangs > jobs:
        rated = _fastest(rated, jobs)
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
