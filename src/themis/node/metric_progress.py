"""Which points of a run the node has read, and which of them its agent has acknowledged.

    progress = MetricProgress(heard=record.heard, place=record.place)
    points = progress.take(await engine.points(job, progress.place, progress.room))
    progress.hear(12)           # and progress.mark is written to disk

The run's own file is the queue: the node reads no more than a report may have, and a node that is
restarted goes on from the last acknowledged point.
"""

import asyncio
import math
from collections import deque

from themis.engines.metrics.points import MetricSample, SampleBatch
from themis.protocol.node_messages import MOST_POINTS, NOT_FINITE, Point

MOST_TROUBLE = 200


class MetricProgress:
    """The points of one run."""

    def __init__(self, heard: int = 0, place: int = 0) -> None:
        self.place = place
        """Where the next read begins."""
        self.more = False
        """Whether the file has more points."""
        self.trouble = ""
        """Why something could not be read."""
        self.lock = asyncio.Lock()
        """Held while reading: no place must be read twice."""
        self._heard = (heard, place)
        self._read = heard
        self._unheard: deque[tuple[int, int, int]] = deque()
        """Number, end and weight of each point that was not acknowledged yet."""
        self._weight = 0

    @property
    def room(self) -> int:
        """How many more points may be read now."""
        return MOST_POINTS - self._weight

    @property
    def mark(self) -> tuple[int, int]:
        """The number of the last acknowledged point, and where the next one begins."""
        return self._heard

    def take(self, batch: SampleBatch) -> tuple[Point, ...]:
        """Number the points of a batch, as far as there is room for them."""
        self.trouble = batch.trouble[:MOST_TROUBLE]
        taken: list[Point] = []
        for sample in batch.samples:
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
        self.place, self.more = batch.end, batch.more
        return tuple(taken)

    def hear(self, number: int) -> bool:
        """The agent acknowledges points up to this number; returns whether that is new."""
        before = self._heard
        while self._unheard and self._unheard[0][0] <= number:
            known, end, weight = self._unheard.popleft()
            self._weight -= weight
            self._heard = (known, end)
        return self._heard != before


def _point(sample: MetricSample) -> Point:
    values = [(name, NOT_FINITE if math.isnan(value) else value) for name, value in sample.values]
    return Point(sample.iteration, sample.time, tuple(values))
