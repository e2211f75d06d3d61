"""Rates of alike jobs on many shapes at once: the same search as `carving`, on arrays.

A new app of 100 jobs asks about thousands of shapes and numbers of jobs. One by one that takes tens
of milliseconds. Needs numpy; whoever has none goes shape by shape (`rates`).
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from themis.core.model import CLUSTER, LEVELS, SLOT

Real = npt.NDArray[np.float64]
Whole = npt.NDArray[np.intp]
Runs = tuple[tuple[int, int, int], ...]

_NOT_BETTER = 1.0 - 1e-9
_SURELY_WORSE = 1.0 + 1e-8


class _BatchedCut:
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


class ShapeBatch:
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
            _BatchedCut(size, top, low, slow)
            for size in range(high, low - 1, -1)
            for top in (LEVELS if size > 1 else (SLOT,))
        ]
        self._first = len(LEVELS)
        # Columns come first and shapes last: then all arithmetic runs along long rows.
        self._rates: Real = np.ones((max(len(w.rates) for w in self._ways), len(self._ways)))
        for index, way in enumerate(self._ways):
            self._rates[: len(way.rates), index] = way.rates
        self._gangs = self._count()

    def _count(self) -> Real:
        """How many gangs of each column every way makes of every shape."""
        width, ways = self._rates.shape
        turns: Real = np.zeros((width, ways, len(self._chunks)))
        leaves: Real = np.zeros((ways, len(self._chunks)))
        for number, (level, count) in enumerate(self._chunks):
            for index, way in enumerate(self._ways):
                for column, many in way.gangs(level, count):
                    turns[column, index, number] += many
                leaves[index, number] = way.scattered(level, count)
        many_of = self._many.T
        gangs: Real = (turns.reshape(-1, len(self._chunks)) @ many_of).reshape(width, ways, -1)
        for index, way in enumerate(self._ways):
            if way.top == CLUSTER:
                whole, rest = np.divmod(leaves[index] @ many_of, way.size)
                gangs[way.column[CLUSTER, way.size], index] += whole
                for count in range(1, way.size):
                    where = (CLUSTER if count > 1 else SLOT, count)
                    if where in way.column:
                        gangs[way.column[where], index] += rest == count
        return gangs

    @cached_property
    def plenty(self) -> tuple[list[float], list[float]]:
        """The best rate of one job alone, and how many gangs have it in the way that gives it.

        This many jobs do best with just these: no other way is sooner.
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
        # Whole gangs at the nearest level, unless a part of one may be faster.
        partly = np.maximum(1.0, (high - 1) / slow[(there > 0.0).argmax(axis=1)])
        enough = np.where(rate * _NOT_BETTER > partly, whole[rows, home], 0.0)
        doubtful = np.flatnonzero(enough < 1.0)
        if len(doubtful):
            chosen, _ = self._best(doubtful, self._first, 1)
            gangs = self._gangs[:, chosen, doubtful]
            column = (gangs > 0.0).argmax(axis=0)
            enough[doubtful] = gangs[column, np.arange(len(doubtful))]
            rate[doubtful] = self._rates[column, chosen]
        return (enough.tolist(), rate.tolist())

    def reach(self, jobs: int, among: Sequence[int]) -> list[tuple[float, float]]:
        """The sum of rates of this many jobs and the largest of them, for some of the shapes."""
        if not among:
            return []
        rows: Whole = np.asarray(among, np.intp)
        chosen, gangs = self._best(rows, len(self._ways), jobs)
        return self._sums(rows, gangs, chosen, jobs)

    def _best(self, rows: Whole, ways: int, jobs: int) -> tuple[Whole, Real]:
        """Which of the first this many ways is best, and its gangs, one for each job at most."""
        rates = self._rates[:, :ways]
        gangs = self._gangs[:, :ways, rows]
        total = self._total[rows]
        left = np.full(gangs.shape[1:], float(jobs))
        # Where all jobs can have whole gangs, only those are looked at.
        left[self._first :, jobs * self._high <= total] = 0.0
        for column in gangs:  # The fastest first.
            np.minimum(column, left, out=column)
            left -= column
        spans = _spans(gangs, rates, jobs)
        best = np.full(len(rows), np.inf)
        chosen = np.zeros(len(rows), np.intp)
        for way, span in enumerate(spans):
            better = span < best * _NOT_BETTER
            best[better] = span[better]
            chosen[better] = way
        return chosen, gangs[:, chosen, np.arange(len(rows))]

    def _sums(
        self, rows: Whole, gangs: Real, chosen: Whole, jobs: int
    ) -> list[tuple[float, float]]:
        """The rates of the chosen ways, added up as `carving` does, to the last bit."""
        rates = self._rates[:, chosen]
        speed = np.zeros(len(rows))
        for rate, many in zip(rates, gangs, strict=True):
            speed += rate * many
        top = rates[(gangs > 0.0).argmax(axis=0), np.arange(len(rows))]
        result = list(zip(speed.tolist(), top.tolist(), strict=True))
        # Of gangs that are equally fast, the more numerous ones come first.
        some = self._gangs[:, chosen, rows] > 0.0
        tied = np.zeros(len(rows), bool)
        for apart in range(1, len(rates)):
            same = (rates[apart:] == rates[:-apart]) & some[apart:] & some[:-apart]
            tied |= same.any(axis=0)
        for index in np.flatnonzero(tied).tolist():
            way = chosen[index]
            counts = self._gangs[:, way, rows[index]].tolist()
            pairs = zip(self._rates[:, way].tolist(), counts, strict=True)
            rated = sorted([pair for pair in pairs if pair[1]], reverse=True)
            total, left = 0.0, float(jobs)
            for one, number in rated:
                total += one * min(number, left)
                left -= number
                if left <= 0.0:
                    break
            result[index] = (total, rated[0][0])
        return result


def _spans(gangs: Real, rates: Real, jobs: int) -> Real:
    """When the last of this many jobs of one unit of work ends, by way and shape.

    Infinite where another way is surely sooner.
    """
    speed = np.zeros(gangs.shape[1:])
    number = np.zeros(gangs.shape[1:])
    kinds = np.zeros(gangs.shape[1:])
    for rate, many in zip(rates, gangs, strict=True):
        speed += rate[:, None] * many
        number += many
        kinds += many > 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        least = jobs / speed
        # Gangs of one rate only: this many waves.
        spans = np.where(kinds == 1.0, np.ceil(jobs / number) * number / speed, np.inf)
    limit = spans.min(axis=0) * _SURELY_WORSE
    ways, shapes = np.nonzero((kinds > 1.0) & (least <= limit))
    if len(ways):
        spans[ways, shapes] = _walk(
            gangs[:, ways, shapes], rates[:, ways], least[ways, shapes], limit[shapes], float(jobs)
        )
    return spans


def _walk(gangs: Real, rates: Real, least: Real, limit: Real, jobs: float) -> Real:
    """The same where rates differ: from job to job, beginning where all gangs were always busy."""
    spans = np.full(len(least), np.inf)
    waves = np.floor(least * (1.0 - 1e-12) * rates)
    left = jobs - (gangs * waves).sum(axis=0)
    waves += 1.0
    ends = np.where(gangs > 0.0, waves / rates, np.inf)
    rows = np.arange(len(least))
    while len(rows):
        every = np.arange(len(rows))
        first = ends.argmin(axis=0)
        last = ends[first, every]
        left -= gangs[first, every]
        waves[first, every] += 1.0
        ends[first, every] = waves[first, every] / rates[first, every]
        done = left <= 0.0
        spans[rows[done]] = last[done]
        go_on = ~done & (last <= limit)
        rows, left, limit = rows[go_on], left[go_on], limit[go_on]
        gangs, rates = gangs[:, go_on], rates[:, go_on]
        waves, ends = waves[:, go_on], ends[:, go_on]
    return spans
