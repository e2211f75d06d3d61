"""Counts that stay small however long a run is."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

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
