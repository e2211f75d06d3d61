"""A heap of things to do at their time, and the virtual clock that it moves on.

agenda = Agenda()
agenda.at(60.0, lambda now: ...)
while (action := agenda.next()) is not None:
    action(agenda.now)
"""

import heapq
from collections.abc import Callable

from themis.sim.modelled_jobs import ProcessDue

LEAST_TO_TIDY = 1000
"""Entries of the heap up to which it is not searched for stale ones."""

Action = Callable[[float], None]


class Agenda:
    """What is to come. Of the same moment, what was put down first comes first."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Action]] = []
        self._pushed = 0
        self._tidy_at = LEAST_TO_TIDY

    def at(self, time: float, action: Action) -> None:
        """Put something down; what should have been done already is done next."""
        self._pushed += 1
        heapq.heappush(self._heap, (max(time, self.now), self._pushed, action))
        if len(self._heap) > self._tidy_at:
            self._drop_stale()

    @property
    def first(self) -> float | None:
        """When the next thing is to be done; None when nothing is left."""
        return self._heap[0][0] if self._heap else None

    def coming(self) -> list[tuple[float, Action]]:
        """All that is put down, in the order in which it will be done."""
        return [(at, action) for at, _, action in sorted(self._heap, key=lambda entry: entry[:2])]

    def next(self) -> Action | None:
        """Go to the time of the next thing, and take it off; None when nothing is left."""
        if not self._heap:
            return None
        self.now, _, action = heapq.heappop(self._heap)
        return action

    def _drop_stale(self) -> None:
        """Forget the ends of processes that were stopped, which may be far off and many."""
        self._heap = [
            entry
            for entry in self._heap
            if not (isinstance(entry[2], ProcessDue) and entry[2].stale)
        ]
        heapq.heapify(self._heap)
        self._tidy_at = max(LEAST_TO_TIDY, 2 * len(self._heap))
