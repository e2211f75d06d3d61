"""Rates of alike jobs on many shapes at once: the same search as `carving`, on arrays.

A new app of 100 jobs asks about thousands of shapes and numbers of jobs. One by one that takes tens
of milliseconds. Needs numpy; whoever has none goes shape by shape (`rates`).
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from themis.model import CLUSTER, LEVELS, SLOT

Real = npt.NDArray[np.float64]
Whole = npt.NDArray[np.intp]
Runs = tuple[tuple[int, int, int], ...]

_NOT_BETTER = 1.0 - 1e-9
_SURELY_WORSE = 1.0 + 1e-8


class _Way:
    """Gangs of one size, no farther apart than `top`: how chunks become gangs of each rate."""

    def __init__(self, size: int, top: int, low: int, slow: Sequence[float]) -> None:
        self.size = size
        self.top = top
        levels = range(min(top, CLUSTER - 1) + 1) if size > 1 else ()
        kinds = [(size / slow[level], level, size) for level in levels]
        if top == CLUSTER:
            kinds.append((size / slow[CLUSTER], CLUSTER, size))
        kinds += [(rest / slow[top], top, rest) for rest in range(max(2, low), size)]
        if low == 1:
            kinds.append((1.0, SLOT, 1))
        kinds.sort(reverse=True)
        self.rates = [rate for rate, _, _ in kinds]
        self.column = {(level, count): index for index, (_, level, count) in enumerate(kinds)}

    def gangs(self, level: int, count: int) -> list[tuple[int, int]]:
        """The columns that one chunk goes to, and how many gangs to each; the scattered aside."""
        if level > self.top or self.size == 1:
            return self._in_column(SLOT, 1, count)
        if level == CLUSTER:
            return []
        whole, rest = divmod(count, self.size)
        gangs = self._in_column(level, self.size, whole)
        if rest and self.top < CLUSTER:
            gangs += self._in_column(self.top if rest > 1 else SLOT, rest, 1)
        return gangs

    def _in_column(self, level: int, count: int, many: int) -> list[tuple[int, int]]:
        column = self.column.get((level, count))
        return [] if column is None or not many else [(column, many)]

    def scattered(self, level: int, count: int) -> int:
        """What one chunk leaves to gangs across racks."""
        if self.top < CLUSTER or self.size == 1:
            return 0
        return count if level == CLUSTER else count % self.size


class Batch:
    """Shapes of at least one whole gang, for jobs of one kind.

    Args:
        shapes: Some.
        low: The fewest GPUs of a job.
        high: The most, of those for whom every size is tried; at least two.
        slow: The slowdown of each level, never falling.
    """

    def __init__(self, shapes: Sequence[Runs], low: int, high: int, slow: Sequence[float]) -> None:
        self._high = high
        self._slow = tuple(slow)
        chunks: dict[tuple[int, int], int] = {}
        entries = []
        for row, runs in enumerate(shapes):
            for level, count, many in runs:
                where = (CLUSTER, 1) if level == CLUSTER else (level, count)
                times = count * many if level == CLUSTER else many
                entries.append((row, chunks.setdefault(where, len(chunks)), times))
        self._chunks = list(chunks)
        self._many: Real = np.zeros((len(shapes), len(chunks)))
        rows, columns, counts = zip(*entries, strict=True)
        np.add.at(self._many, (list(rows), list(columns)), counts)
        self._total: Real = self._many @ np.array([float(count) for _, count in chunks])
        self._ways = [
            _Way(size, top, low, slow)
            for size in range(high, low - 1, -1)
            for top in (LEVELS if size > 1 else (SLOT,))
        ]
        self._first = len(LEVELS)
        self._rates: Real = np.ones((len(self._ways), max(len(w.rates) for w in self._ways)))
        for index, way in enumerate(self._ways):
            self._rates[index, : len(way.rates)] = way.rates
        self._gangs = self._count()

    def _count(self) -> Real:
        """How many gangs of each column every way makes of every shape."""
        ways, width = self._rates.shape
        turns: Real = np.zeros((len(self._chunks), ways, width))
        leaves: Real = np.zeros((len(self._chunks), ways))
        for row, (level, count) in enumerate(self._chunks):
            for index, way in enumerate(self._ways):
                for column, many in way.gangs(level, count):
                    turns[row, index, column] += many
                leaves[row, index] = way.scattered(level, count)
        gangs: Real = (self._many @ turns.reshape(len(self._chunks), -1)).reshape(-1, ways, width)
        scattered = self._many @ leaves
        for index, way in enumerate(self._ways):
            if way.top == CLUSTER:
                whole, rest = np.divmod(scattered[:, index], way.size)
                gangs[:, index, way.column[CLUSTER, way.size]] += whole
                for count in range(1, way.size):
                    where = (CLUSTER if count > 1 else SLOT, count)
                    if where in way.column:
                        gangs[:, index, way.column[where]] += rest == count
        return gangs

    @cached_property
    def plenty(self) -> tuple[list[float], list[float]]:
        """For how many jobs there are whole gangs at the nearest level, and their rate.

        None where a part of a gang would be faster.
        """
        high, slow = self._high, np.array(self._slow)
        rows = np.arange(len(self._many))
        there: Real = np.zeros((len(self._many), len(LEVELS)))
        whole: Real = np.zeros((len(self._many), len(LEVELS)))
        for column, (level, count) in enumerate(self._chunks):
            there[:, level] += self._many[:, column]
            whole[:, level] += self._many[:, column] * (count // high)
        whole[:, CLUSTER] = there[:, CLUSTER] // high
        home = (whole > 0.0).argmax(axis=1)
        rate = high / slow[home]
        partly = np.maximum(1.0, (high - 1) / slow[(there > 0.0).argmax(axis=1)])
        enough = np.where(rate * _NOT_BETTER > partly, whole[rows, home], 0.0)
        return (enough.tolist(), rate.tolist())

    def reach(self, jobs: int, among: Sequence[int] | None = None) -> list[tuple[float, float]]:
        """The sum of rates of so many jobs and the largest of them, for some of the shapes."""
        rows: Whole = np.arange(len(self._many)) if among is None else np.asarray(among, np.intp)
        # Where all jobs can have whole gangs, only those are looked at.
        narrow = jobs * self._high <= self._total[rows]
        result: list[tuple[float, float]] = [(0.0, 0.0)] * len(rows)
        for few, ways in ((True, self._first), (False, len(self._ways))):
            places = np.flatnonzero(narrow == few)
            if len(places):
                found = self._best(rows[places], ways, jobs)
                for place, rates in zip(places.tolist(), found, strict=True):
                    result[place] = rates
        return result

    def _best(self, rows: Whole, ways: int, jobs: int) -> list[tuple[float, float]]:
        rates = self._rates[:ways]
        gangs = self._gangs[rows, :ways]
        if jobs < self._total[rows].max():
            # One gang for each job at most, the fastest first.
            before = np.cumsum(gangs, axis=2) - gangs
            gangs = np.minimum(gangs, np.maximum(jobs - before, 0.0))
        spans = _spans(gangs, rates, jobs)
        best = np.full(len(rows), np.inf)
        chosen = np.zeros(len(rows), np.intp)
        for way in range(ways):
            better = spans[:, way] < best * _NOT_BETTER
            best[better] = spans[better, way]
            chosen[better] = way
        return self._sums(rows, gangs[np.arange(len(rows)), chosen], chosen, jobs)

    def _sums(
        self, rows: Whole, gangs: Real, chosen: Whole, jobs: int
    ) -> list[tuple[float, float]]:
        """The rates of the chosen ways, added up as `carving` does, to the last bit."""
        rates = self._rates[chosen]
        speed = np.zeros(len(gangs))
        for column in range(gangs.shape[1]):
            speed += rates[:, column] * gangs[:, column]
        top = rates[np.arange(len(gangs)), (gangs > 0.0).argmax(axis=1)]
        result = list(zip(speed.tolist(), top.tolist(), strict=True))
        # Of gangs that are equally fast, the more numerous ones come first.
        some = self._gangs[rows, chosen] > 0.0
        tied = np.zeros(len(rows), bool)
        for apart in range(1, rates.shape[1]):
            same = rates[:, apart:] == rates[:, :-apart]
            tied |= (same & some[:, apart:] & some[:, :-apart]).any(axis=1)
        for index in np.flatnonzero(tied).tolist():
            way = chosen[index]
            counts = self._gangs[rows[index], way].tolist()
            pairs = zip(self._rates[way].tolist(), counts, strict=True)
            rated = sorted([pair for pair in pairs if pair[1]], reverse=True)
            total, left = 0.0, float(jobs)
            for rate, many in rated:
                total += rate * min(many, left)
                left -= many
                if left <= 0.0:
                    break
            result[index] = (total, rated[0][0])
        return result


def _spans(gangs: Real, rates: Real, jobs: int) -> Real:
    """When the last of so many jobs of one unit of work ends, by shape and way.

    Infinite where another way is surely sooner.
    """
    speed = (gangs * rates).sum(axis=2)
    with np.errstate(divide="ignore"):
        least = jobs / speed
    spans = np.full(speed.shape, np.inf)
    # Gangs of one rate only: so many waves.
    alike = (gangs > 0.0).sum(axis=2) == 1
    where = np.nonzero(alike)
    column = gangs[where].argmax(axis=1)
    many = gangs[where][np.arange(len(column)), column]
    spans[where] = np.ceil(jobs / many) / rates[where[1], column]
    limit = spans.min(axis=1) * _SURELY_WORSE
    open_ = np.nonzero(~alike & (speed > 0.0) & (least <= limit[:, None]))
    if len(open_[0]):
        spans[open_] = _walk(
            gangs[open_], rates[open_[1]], least[open_], limit[open_[0]], float(jobs)
        )
    return spans


def _walk(gangs: Real, rates: Real, least: Real, limit: Real, jobs: float) -> Real:
    """The same where rates differ: from job to job, beginning where all gangs were always busy."""
    spans = np.full(len(gangs), np.inf)
    waves = np.floor((least * (1.0 - 1e-12))[:, None] * rates)
    left = jobs - (gangs * waves).sum(axis=1)
    waves += 1.0
    ends = np.where(gangs > 0.0, waves / rates, np.inf)
    rows = np.arange(len(gangs))
    while len(rows):
        every = np.arange(len(rows))
        first = ends.argmin(axis=1)
        last = ends[every, first]
        left -= gangs[every, first]
        waves[every, first] += 1.0
        ends[every, first] = waves[every, first] / rates[every, first]
        done = left <= 0.0
        spans[rows[done]] = last[done]
        go_on = ~done & (last <= limit)
        rows, gangs, rates, limit = rows[go_on], gangs[go_on], rates[go_on], limit[go_on]
        waves, left, ends = waves[go_on], left[go_on], ends[go_on]
    return spans
