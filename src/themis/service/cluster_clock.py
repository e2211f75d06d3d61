"""The cluster's own time: seconds since its store was made. It never goes back.

Within one start of the service it follows the monotonic clock. From one start to the next it goes
on by as much as the wall clock did, or stands still if that was set back.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sources:
    """Where time comes from; tests have their own."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


class ClusterClock:
    """Reads the cluster's time."""

    def __init__(self, zero: float, last: float, sources: Sources | None = None) -> None:
        self._sources = sources or Sources()
        self._base = max(last, self._sources.wall() - zero)
        self._began = self._sources.monotonic()

    def now(self) -> float:
        """Seconds since the store was made."""
        return self._base + self._sources.monotonic() - self._began

    def until(self, at: float) -> float:
        """Seconds from now until then; never negative."""
        return max(0.0, at - self.now())
