"""What it costs a job of an app to move: seconds to save, and to train again after a start.

costs = Costs(checkpoint=7.5, restart=35.0)
costs.saw_restart(4.2)      # True when something else is believed from now on
costs.restart               # as declared until three were measured, then their median
"""

import math
from collections import deque
from statistics import median

LEAST = 3
"""Measurements before anything is believed: the first start of a job may load everything anew."""
MEMORY = 15
STEP = 0.1
"""A change by a smaller share is noise, and not worth valuing everything anew."""
_SHORTEST = 0.1
"""Seconds; changes below are noise whatever their share."""


class MoveCosts:
    """Of one app. What is no number of seconds is ignored."""

    def __init__(self, checkpoint: float, restart: float) -> None:
        self.checkpoint = checkpoint
        self.restart = restart
        self._saves: deque[float] = deque(maxlen=MEMORY)
        self._starts: deque[float] = deque(maxlen=MEMORY)

    def saw_checkpoint(self, seconds: float) -> bool:
        """A job saved and left in this many seconds; returns whether the estimate changed."""
        before = self.checkpoint
        self.checkpoint = _believed(self._saves, seconds, before)
        return self.checkpoint != before

    def saw_restart(self, seconds: float) -> bool:
        """A job trained this many seconds after its start; returns whether the estimate changed."""
        before = self.restart
        self.restart = _believed(self._starts, seconds, before)
        return self.restart != before


def _believed(seen: deque[float], seconds: float, before: float) -> float:
    if not 0.0 <= seconds < math.inf:
        return before
    seen.append(seconds)
    if len(seen) < LEAST:
        return before
    found = median(seen)
    return before if abs(found - before) <= max(STEP * before, _SHORTEST) else found
