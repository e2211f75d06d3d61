"""Times at which the arbiter has something to do. It asks its driver to be woken for the first."""

import heapq
import math
from collections.abc import Iterator, Mapping

from themis.core.model import AppId, GpuId
from themis.core.model.values import value


@value
class OpenBeat:
    """Open the round for the leases that end at this beat."""

    beat: float


@value
class OpenFree:
    """Open a round for GPUs that came free."""


@value
class CloseAnswers:
    """Stop waiting for the bids or the solver of a round."""

    round: int
    question: int


@value
class CloseAdmission:
    """Stop waiting for the first valuation of an app."""

    app: AppId


@value
class TellToLeave:
    """A lease that ends before its beat: its holder must checkpoint now."""

    gpu: GpuId
    token: int


@value
class TakeAsEmpty:
    """The end of a revoked lease plus guard: its slot counts as empty."""

    gpu: GpuId
    token: int


@value
class CheckIdle:
    """Look for GPUs that an app leased and does not use."""

    app: AppId


Alarm = OpenBeat | OpenFree | CloseAnswers | CloseAdmission | TellToLeave | TakeAsEmpty | CheckIdle


@value
class AlarmPart:
    """One alarm that has not rung."""

    at: float
    alarm: Alarm


@value
class AlarmsPart:
    """The number of the next alarm, and the wake-up that was asked for last."""

    number: int
    asked: float | None


class Alarms:
    """A heap of alarms; equal times keep the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Alarm]] = []
        self._count = 0
        self._asked = math.inf
        self._fresh: dict[int, tuple[float, Alarm]] = {}
        """Those set since they were last written down, and not rung."""
        self._rung: set[int] = set()
        """Those that rang since then."""

    def set(self, at: float, alarm: Alarm) -> None:
        """Ring at this time. Alarms are never taken back: a stale one must do no harm."""
        heapq.heappush(self._heap, (at, self._count, alarm))
        self._fresh[self._count] = (at, alarm)
        self._count += 1

    def due(self, now: float) -> Alarm | None:
        """Take the next alarm that is due."""
        if self._heap and self._heap[0][0] <= now:
            _, number, alarm = heapq.heappop(self._heap)
            if self._fresh.pop(number, None) is None:
                self._rung.add(number)
            return alarm
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

    def ask_again(self) -> None:
        """Forget what wake-up was asked for: the driver that knew of it is gone."""
        self._asked = math.inf

    def leave_early(self) -> frozenset[tuple[GpuId, int]]:
        """GPUs and tokens of leases whose holders are to be told to leave."""
        alarms = (alarm for _, _, alarm in self._heap)
        return frozenset((x.gpu, x.token) for x in alarms if isinstance(x, TellToLeave))

    # Writing down

    def parts(self, *, changed: bool) -> Iterator[tuple[str, AlarmPart | AlarmsPart | None]]:
        """All parts, or those that changed since they were last asked for."""
        yield "alarms", AlarmsPart(self._count, None if self._asked == math.inf else self._asked)
        if changed:
            for number in sorted(self._rung):
                yield f"alarm/{number}", None
            for number, (at, alarm) in self._fresh.items():
                yield f"alarm/{number}", AlarmPart(at, alarm)
            self._rung.clear()
            self._fresh.clear()
        else:
            for at, number, alarm in self._heap:
                yield f"alarm/{number}", AlarmPart(at, alarm)

    def take_back(self, state: AlarmsPart, alarms: Mapping[str, AlarmPart]) -> None:
        """Become what was written down."""
        self._count = state.number
        self._asked = math.inf if state.asked is None else state.asked
        self._heap = [(part.at, int(number), part.alarm) for number, part in alarms.items()]
        heapq.heapify(self._heap)
