"""Counts that stay small however long a run is."""

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from themis.core.model import LeaseSource

BINS = 20


@dataclass(slots=True)
class Shares:
    """Numbers from 0 to 1: how many, their mean, and how they are spread over equal bins."""

    bins: list[int] = field(default_factory=lambda: [0] * BINS)
    """From 0 up; each holds its upper end, the first one 0 too."""
    count: int = 0
    total: float = 0.0

    def extend(self, values: Iterable[float]) -> None:
        """Count some more."""
        for value in values:
            place = math.ceil(value * BINS - 1e-9) - 1
            self.bins[min(max(place, 0), BINS - 1)] += 1
            self.count += 1
            self.total += value

    @property
    def mean(self) -> float | None:
        """None when there are none."""
        return self.total / self.count if self.count else None


@dataclass(slots=True)
class Contended:
    """GPU seconds by what gave them, counted only while apps want more GPUs than there are.

    Whether they do is looked at in every round and taken to last until the next.
    """

    seconds: dict[LeaseSource, float] = field(
        default_factory=lambda: dict.fromkeys(LeaseSource, 0.0)
    )
    _changes: list[float] = field(default_factory=list)
    """When it began, ended, began again, ..."""
    _sums: list[float] = field(default_factory=list)
    """How long it had lasted in all at each of these times."""

    def look(self, at: float, contended: bool) -> None:
        """So it is from now on."""
        if contended != bool(len(self._changes) % 2):
            self._sums.append(self._until(at))
            self._changes.append(at)

    def held(self, start: float, end: float, source: LeaseSource) -> None:
        """A GPU was held from a time to another that is past."""
        self.seconds[source] += self._until(end) - self._until(start)

    def share(self, source: LeaseSource) -> float | None:
        """What part of it came from there; None when there was no contention."""
        total = math.fsum(self.seconds.values())
        return self.seconds[source] / total if total > 0.0 else None

    def _until(self, at: float) -> float:
        """Seconds of contention up to a time."""
        place = bisect_right(self._changes, at)
        if not place:
            return 0.0
        since = at - self._changes[place - 1] if place % 2 else 0.0
        return self._sums[place - 1] + since
