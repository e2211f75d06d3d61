"""How far a node has read what a run reports, and how much of that its agent has heard.

    trail = Trail(heard=record.heard, place=record.place)
    points = trail.take(await engine.points(job, trail.place, trail.room))
    trail.hear(12)              # and trail.mark is what to write down

The run's own file is the queue: no more is read than a report may have, the rest waits in the file,
and a node that is started again goes on from what was heard.
"""

import asyncio
import math
from collections import deque

from themis.engines.metrics.jsonl import MetricSample, SampleBatch
from themis.protocol.node_messages import MOST_POINTS, NOT_FINITE, Point

MOST_TROUBLE = 200


class MetricProgress:
    """The points of one run."""

    def __init__(self, heard: int = 0, place: int = 0) -> None:
        self.place = place
        """Where to read on."""
        self.more = False
        """Whether the file has others."""
        self.trouble = ""
        """What could not be read."""
        self.lock = asyncio.Lock()
        """For who reads: a place must not be read twice."""
        self._heard = (heard, place)
        self._read = heard
        self._unheard: deque[tuple[int, int, int]] = deque()
        """Number, place of the end and weight of each."""
        self._weight = 0

    @property
    def room(self) -> int:
        """How many more may be read now."""
        return MOST_POINTS - self._weight

    @property
    def mark(self) -> tuple[int, int]:
        """The number of the last point heard, and where the next begins."""
        return self._heard

    def take(self, stretch: SampleBatch) -> tuple[Point, ...]:
        """Number what was read, as far as there is room for it."""
        self.trouble = stretch.trouble[:MOST_TROUBLE]
        taken: list[Point] = []
        for sample in stretch.samples:
            point = _point(sample)
            weight = len(point.values) or 1
            if self._weight + weight > MOST_POINTS:
                self.more = True
                return tuple(taken)
            self._read += 1
            self._weight += weight
            self._unheard.append((self._read, sample.end, weight))
            self.place = sample.end
            taken.append(point)
        self.place, self.more = stretch.end, stretch.more
        return tuple(taken)

    def hear(self, number: int) -> bool:
        """An agent has heard the points up to this number; whether that is new."""
        before = self._heard
        while self._unheard and self._unheard[0][0] <= number:
            known, end, weight = self._unheard.popleft()
            self._weight -= weight
            self._heard = (known, end)
        return self._heard != before


def _point(sample: MetricSample) -> Point:
    values = [(name, NOT_FINITE if math.isnan(value) else value) for name, value in sample.values]
    return Point(sample.iteration, sample.time, tuple(values))
