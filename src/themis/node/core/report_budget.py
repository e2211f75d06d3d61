"""How the points of many runs share one report."""

from collections.abc import Sequence

from themis.protocol.node_messages import MOST_REPORTED, MOST_VALUES, Point, weight_of


def share_report(
    waiting: Sequence[tuple[Point, ...]], turn: int, most: int = MOST_REPORTED
) -> list[int]:
    """How many points of each run go into one report.

    Every run has the same share, and the others get what it does not need. Where there are more
    runs than a report has room for, those left out come first in one of the next reports.

    Args:
        waiting: The points of each run.
        turn: The number of the report.
        most: The weight of all points that it has room for.
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
    """How many of the first points fit."""
    for count, point in enumerate(points):
        room -= point.weight
        if room < 0:
            return count
    return len(points)
