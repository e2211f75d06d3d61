"""Sums that forget nothing, however many terms come and go.

Arbiters add and remove weights for weeks. A float that did so would drift; these do not, at a
constant cost per change.
"""

from dataclasses import dataclass
from typing import NamedTuple

from themis.errors import InvariantError

# Every finite float is a whole number of these.
_BITS = 1074
_ONE = 1 << _BITS


class ExactSum:
    """A sum of floats, exact under any history of additions and removals."""

    __slots__ = ("_units", "value")

    value: float
    """The sum, rounded once."""

    def __init__(self) -> None:
        self._units = 0
        self.value = 0.0

    def change(self, added: float = 0.0, removed: float = 0.0) -> None:
        """Put one term in and take another out."""
        self._units += _units(added) - _units(removed)
        self.value = self._units / _ONE


class Area(NamedTuple):
    """A point of an integral, in two parts so that differences keep their digits."""

    high: float
    low: float

    def since(self, earlier: "Area") -> float:
        """The area between two points."""
        return (self.high - earlier.high) + (self.low - earlier.low)


NO_AREA = Area(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class IntegralState:
    """A step integral written down: all that its later values depend on."""

    value: float
    now: float
    high: float
    low: float


class StepIntegral:
    """The integral over time of a value that stays constant between changes."""

    __slots__ = ("_area", "_asked", "_asked_at", "now", "value")

    def __init__(self, value: float = 0.0, at: float = 0.0) -> None:
        self.value = value
        self.now = at
        self._area = NO_AREA
        self._asked, self._asked_at = NO_AREA, at

    def at(self, time: float) -> Area:
        """The integral up to a time not before the last change.

        Raises:
            InvariantError: Time would run backwards.
        """
        if time == self._asked_at:
            return self._asked  # Every app asks about the moment when a round opens.
        if time < self.now:
            raise InvariantError(f"time runs backwards: {time} after {self.now}")
        # Neumaier's sum: what the large part rounds away, the small part keeps.
        step = self.value * (time - self.now)
        high = self._area.high + step
        small, large = self._area.high, step
        if abs(small) > abs(large):
            small, large = large, small
        self._asked_at = time
        self._asked = Area(high, self._area.low + ((large - high) + small))
        return self._asked

    def change(self, value: float, time: float) -> None:
        """Let the value be another one from now on."""
        self._area = self._asked = self.at(time)
        self._asked_at = time
        self.now = time
        self.value = value

    def state(self) -> IntegralState:
        """Write it down."""
        return IntegralState(self.value, self.now, self._area.high, self._area.low)

    @staticmethod
    def restored(state: IntegralState) -> "StepIntegral":
        """The integral that was written down."""
        integral = StepIntegral(state.value, state.now)
        integral._area = integral._asked = Area(state.high, state.low)
        return integral


def _units(term: float) -> int:
    numerator, denominator = term.as_integer_ratio()
    return numerator << (_BITS + 1 - denominator.bit_length())
