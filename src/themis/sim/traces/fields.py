"""Single values of a row, checked: each refusal says which field and what is wrong with it.

seconds_of("duration_s", "1e400")     # BadRowError: duration_s is above 1e+10
"""

import math
from datetime import UTC, datetime
from functools import lru_cache
from sys import intern

from themis.sim.traces.trace import BadRowError

MAX_SECONDS = 1e10
"""Three centuries. More is a mistake, and would not fit the counts of iterations."""

MAX_GPUS = 100_000
UNKNOWN_OWNER = "unknown"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_TIME = frozenset({"", "none", "unknown", "null", "n/a", "nan"})


def seconds_of(name: str, text: str) -> float:
    """Seconds from 0 to `MAX_SECONDS`.

    Raises:
        BadRowError: It is nothing of the kind.
    """
    try:
        value = float(text)
    except ValueError:
        raise _no_number(name, text) from None
    # Not a number fails every comparison. float() takes 1_000, which no other program writes.
    if 0.0 <= value <= MAX_SECONDS and "_" not in text:
        return value
    raise _odd_number(name, text, value, MAX_SECONDS)


# Rows by the million have few counts and owners; those are looked up, not parsed again.
@lru_cache(maxsize=1024)
def gpus_of(name: str, text: str) -> int:
    """A number of GPUs, which may be written as 4.0.

    Raises:
        BadRowError: It is nothing of the kind.
    """
    try:
        value = float(text)
    except ValueError:
        raise _no_number(name, text) from None
    if not (0.0 <= value <= MAX_GPUS and "_" not in text):
        raise _odd_number(name, text, value, MAX_GPUS)
    if value != int(value):
        raise BadRowError(f"{name} is not a whole number", text)
    return int(value)


def _no_number(name: str, text: str) -> BadRowError:
    return BadRowError(f"{name} is {'not a number' if text.strip() else 'missing'}", text)


def _odd_number(name: str, text: str, value: float, high: float) -> BadRowError:
    if math.isnan(value) or "_" in text:
        return _no_number(name, text)
    reason = "is negative" if value < 0.0 else f"is above {high:g}"
    return BadRowError(f"{name} {reason}", text)


def time_of(name: str, value: object) -> float | None:
    """Seconds since 1970 of a date and time; None where the trace says that there is none.

    A time without a zone is taken as UTC: only differences matter.

    Raises:
        BadRowError: It is neither.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadRowError(f"{name} is not a time", value)
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        text = value.strip()
        if text.lower() in _NO_TIME:
            return None
        if text != value:
            return time_of(name, text)
        raise BadRowError(f"{name} is not a time", value) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return (found - _EPOCH).total_seconds()


@lru_cache(maxsize=4096)
def owner_of(text: str) -> str:
    """The owner's name; one object per name, as a million rows have few owners."""
    return intern(text.strip()) or UNKNOWN_OWNER
