"""Times at which the arbiter has something to do. It asks its driver to be woken for the first."""

import heapq
from dataclasses import dataclass

from themis.model import AppId, GpuId


@dataclass(frozen=True, slots=True)
class OpenBeat:
    """Open the round for the leases that end at this beat."""

    beat: float


@dataclass(frozen=True, slots=True)
class OpenFree:
    """Open a round for GPUs that came free."""


@dataclass(frozen=True, slots=True)
class CloseAnswers:
    """Stop waiting for the bids or the solver of a round."""

    round: int
    question: int


@dataclass(frozen=True, slots=True)
class CloseAdmission:
    """Stop waiting for the first valuation of an app."""

    app: AppId


@dataclass(frozen=True, slots=True)
class TellToLeave:
    """A lease that ends before its beat: its holder must checkpoint now."""

    gpu: GpuId
    token: int


@dataclass(frozen=True, slots=True)
class TakeAsEmpty:
    """The end of a revoked lease plus guard: its slot counts as empty."""

    gpu: GpuId
    token: int


@dataclass(frozen=True, slots=True)
class CheckIdle:
    """Look for GPUs that an app leased and does not use."""

    app: AppId


Alarm = OpenBeat | OpenFree | CloseAnswers | CloseAdmission | TellToLeave | TakeAsEmpty | CheckIdle


class Alarms:
    """A heap of alarms; equal times keep the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Alarm]] = []
        self._count = 0
        self._asked = float("inf")

    def set(self, at: float, alarm: Alarm) -> None:
        """Ring at this time. Alarms are never taken back: a stale one must do no harm."""
        heapq.heappush(self._heap, (at, self._count, alarm))
        self._count += 1

    def due(self, now: float) -> Alarm | None:
        """Take the next alarm that is due."""
        if self._heap and self._heap[0][0] <= now:
            return heapq.heappop(self._heap)[2]
        return None

    @property
    def first(self) -> float | None:
        """When the next one rings."""
        return self._heap[0][0] if self._heap else None

    def next_wake(self, now: float) -> float | None:
        """The time to be woken at, if it must be asked for anew."""
        if not self._heap:
            return None
        first = self._heap[0][0]
        if self._asked <= now or first < self._asked:
            self._asked = first
            return first
        return None
