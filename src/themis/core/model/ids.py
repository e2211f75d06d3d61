"""Names of things. Strings and integers with a type, so that they are not mixed up."""

import math
import re
from typing import NewType

from themis.errors import ConfigError

AppId = NewType("AppId", str)
"""An app, unique in the cluster."""

JobId = NewType("JobId", str)
"""A job, unique within its app."""

OwnerId = NewType("OwnerId", str)
"""A team or person who submits apps."""

GpuId = NewType("GpuId", int)
"""A GPU: dense, from 0, in locality order."""

LEAST_WEIGHT, MOST_WEIGHT = 1e-6, 1e6
"""The range of weights: no app or owner vanishes beside another."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")


def check_name(key: str, value: object) -> str:
    """Return the name if it is one.

    Raises:
        ConfigError: It is not a short lower-case name.
    """
    if not isinstance(value, str) or not _NAME.match(value):
        shown = value[:80] if isinstance(value, str) else _printable(value)
        raise ConfigError(key, shown, "1 to 63 of a-z, 0-9 and '-', not starting with '-'")
    return value


def check_number(
    key: str,
    value: object,
    *,
    low: float = 0.0,
    high: float = 1e15,
    above: bool = False,
) -> float:
    """Return the number if it is finite and in [low, high] (above `low` when `above`).

    Raises:
        ConfigError: It is a bool, not a number, NaN, infinite or out of range.
    """
    if type(value) is float and low <= value <= high and (value > low or not above):
        return value
    allowed = f"a number {'above' if above else 'from'} {low:g} to {high:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(key, value, allowed)
    if isinstance(value, int) and abs(value) > 10**18:
        raise ConfigError(key, "an integer of more than 18 digits", allowed)
    number = float(value)
    if not math.isfinite(number) or number < low or number > high or (above and number <= low):
        raise ConfigError(key, value, allowed)
    return number


def check_weight(key: str, value: object) -> float:
    """Return the weight of an app or an owner if it is one that can be divided by.

    Raises:
        ConfigError: It is not a number, or out of range.
    """
    return check_number(key, value, low=LEAST_WEIGHT, high=MOST_WEIGHT)


def check_count(key: str, value: object, *, low: int = 1, high: int = 10**9) -> int:
    """Return the whole number if it is one in [low, high].

    Raises:
        ConfigError: It is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(key, _printable(value), f"a whole number from {low} to {_bound(high)}")
    return value


def _bound(high: int) -> str:
    """Long numbers are hard to read."""
    text = str(high)
    return f"10^{len(text) - 1}" if high >= 10**9 and high == 10 ** (len(text) - 1) else text


def _printable(value: object) -> object:
    # Python refuses to write out integers of thousands of digits.
    huge = isinstance(value, int) and abs(value) > 10**18
    return "an integer of more than 18 digits" if huge else value
