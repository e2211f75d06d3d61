"""How far agents have been told what their runs report.

A node's report has all points of a run that its agent has not heard. The steward tells the agent
those that it has not told yet, and the node which were heard, so that nothing is kept here but
numbers: after a restart of the service the next reports have everything that is missing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from themis.core.model import AppId
from themis.protocol.node_messages import MOST_REPORTED, MOST_VALUES, Point, RunReport, weight_of


@dataclass(slots=True)
class Stream:
    """The points of one run, by their numbers."""

    app: AppId
    told: int
    heard: int
    last: int
    """Of those that its node has shown."""
    more: bool = True
    """Whether the run may report others, or has some that its node has not shown yet."""
    end_told: bool = False

    @property
    def all_told(self) -> bool:
        """Whether the end of the run may be told."""
        return not self.more and self.told >= self.last

    @property
    def all_heard(self) -> bool:
        """Whether its node need not keep any of them."""
        return not self.more and self.heard >= self.last


class MetricCursors:
    """The streams of all runs whose nodes were heard."""

    def __init__(self) -> None:
        self._streams: dict[int, Stream] = {}

    def get(self, run: int) -> Stream | None:
        """The stream of a run, if its node was heard."""
        return self._streams.get(run)

    def take(self, app: AppId, report: RunReport) -> tuple[int, tuple[Point, ...]]:
        """Note what a node says of a run; returns what is to be told, after its first number."""
        before = report.first - 1
        stream = self._streams.setdefault(report.run, Stream(app, before, before, before))
        stream.heard = max(stream.heard, before)
        first = max(stream.told, before) + 1
        stream.last = stream.told = max(stream.told, report.last)
        stream.more = report.more or not report.state.over
        return first, report.points[first - report.first :]

    def hear(self, app: AppId, run: int, number: int) -> Stream | None:
        """An agent heard the points of a run up to this number."""
        stream = self._streams.get(run)
        if stream is None or stream.app != app:
            return None
        stream.heard = max(stream.heard, min(number, stream.told))
        return stream

    def begin_again(self, app: AppId) -> Iterator[int]:
        """An agent may have lost what it did not say it heard; gives the runs of its app."""
        for run, stream in self._streams.items():
            if stream.app == app:
                stream.told, stream.end_told = stream.heard, False
                yield run

    def close(self, app: AppId) -> None:
        """An app is gone."""
        self._streams = {n: stream for n, stream in self._streams.items() if stream.app != app}

    def drop(self, run: int) -> None:
        """Nobody asks for a run any more."""
        self._streams.pop(run, None)


def shared_out(
    waiting: Sequence[tuple[Point, ...]], turn: int, most: int = MOST_REPORTED
) -> list[int]:
    """How many points of each run go into one report.

    All have the same share, and what some do not need the others get. Where there are so many runs
    that some get nothing, those come first at one of the next turns.

    Args:
        waiting: The points of each run.
        turn: The number of the report.
        most: What they may weigh together.
    """
    weights = [weight_of(points) for points in waiting]
    if sum(weights) <= most:
        return list(map(len, waiting))
    share, left = most, most
    for rank, weight in enumerate(sorted(weights)):
        share = left // (len(weights) - rank)
        if weight > share:
            break
        left -= weight
    counts = [0] * len(waiting)
    left = most
    for step in range(len(waiting)):
        place = (turn + step) % len(waiting)
        counts[place] = _fitting(waiting[place], min(left, max(share, MOST_VALUES)))
        left -= weight_of(waiting[place][: counts[place]])
    return counts


def _fitting(points: tuple[Point, ...], room: int) -> int:
    """How many of the first points there is room for."""
    for count, point in enumerate(points):
        room -= point.weight
        if room < 0:
            return count
    return len(points)
