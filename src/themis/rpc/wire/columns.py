"""Columns of plain values, each checked as a whole; an error names the entry that does not fit.

    scalar_codec(float, place).decode([1.0, 2.5], bounds)

A column is all values of one field in a list of messages. The checks are the same in both
directions, and quick where everything fits.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, NewType

from themis.errors import InvariantError
from themis.protocol.agent_messages import MOST_BODY

_SIGNED = frozenset({("RunReport", "code"), ("RunNews", "code")})
"""Whole numbers that may be negative, after a death by a signal; all others count something."""
_MOST_ID = 255
_MOST_LONG = 128 << 10
_LONG = {
    ("Program", "argv"): _MOST_LONG,
    ("Program", "env"): _MOST_LONG,
    ("Program", "workdir"): _MOST_LONG,
    ("LogPart", "text"): _MOST_LONG,
    ("TrialParams", "params"): _MOST_LONG,
    ("SubmittedApp", "body"): MOST_BODY,
}
"""Longer texts: command lines as the kernel takes them, output of jobs, app files."""
_MOST_WHOLE = 2**62


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on a message."""

    size: int = 256 << 10
    """Bytes."""
    rows: int = 4096
    """Entries of any list."""
    text: int = 16 << 10
    """Characters of any text other than names and longer texts."""


class MisfitError(Exception):
    """An entry of a column that does not fit; callers add the steps that lead to it."""

    def __init__(self, index: int, given: object, allowed: str, reason: str = "") -> None:
        super().__init__(allowed)
        self.index = index
        self.reason = reason or f"{_shown(given)}, allowed: {allowed}"
        self.steps: list[str] = []


Column = list[Any]
Convert = Callable[[Column, Bounds], Column]


class Codec(NamedTuple):
    """Both directions for one type; each takes a column and gives one of the same length."""

    encode: Convert
    decode: Convert


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, int) and abs(value) > 10**18:
        # Python refuses to write out integers of thousands of digits.
        return "an integer of more than 18 digits"
    text = repr(value.value if isinstance(value, Enum) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class FieldContext:
    """The field of a message that a codec is for."""

    def __init__(self, message: str, name: str, descriptor: Any) -> None:
        self.key = (message, name)
        self.inner = descriptor.message_type
        """The descriptor of the message in the field, if it holds one."""


def scalar_codec(hint: Any, place: FieldContext) -> Codec:
    """The codec of a type without parts.

    Raises:
        InvariantError: Messages have no field for values of this type.
    """
    if isinstance(hint, NewType) and hint.__supertype__ is str:
        return _both(lambda column, _: _texts(column, _MOST_ID))
    if isinstance(hint, NewType):
        return scalar_codec(hint.__supertype__, place)
    if hint is str and place.key in _LONG:
        most = _LONG[place.key]
        return _both(lambda column, _: _texts(column, most))
    if hint is str:
        return _both(lambda column, bounds: _texts(column, bounds.text))
    if hint is int and place.key in _SIGNED:
        return _both(lambda column, _: _wholes(column, -_MOST_WHOLE))
    if hint is int:
        return _both(lambda column, _: _wholes(column, 0))
    if hint is float:
        return _both(_numbers)
    if hint is bool:
        return _both(_booleans)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _word_codec(hint)
    raise InvariantError(f"{'.'.join(place.key)}: values of type {hint} cannot be sent")


def _both(check: Convert) -> Codec:
    return Codec(check, check)


def _word_codec(kind: type[Enum]) -> Codec:
    members = {str(item.value): item for item in kind}

    def decode(column: Column, _: Bounds) -> Column:
        found: Column = list(map(members.get, column))
        if None in found:
            index = found.index(None)
            raise MisfitError(index, column[index], f"one of {', '.join(members)}")
        return found

    return Codec(lambda column, _: [str(kind(item).value) for item in column], decode)


def _texts(column: Column, most: int) -> Column:
    if not {str}.issuperset(map(type, column)):
        _find(column, lambda item: isinstance(item, str), "a text")
    if max(map(len, column), default=0) > most:
        index = next(index for index, item in enumerate(column) if len(item) > most)
        raise MisfitError(index, f"{len(column[index])} characters", f"at most {most}")
    if not "".join(column).isascii():
        _find(column, _is_unicode, "a text in Unicode")
    return column


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _wholes(column: Column, low: int) -> Column:
    if not {int}.issuperset(map(type, column)) or (
        column and not low <= min(column) <= max(column) <= _MOST_WHOLE
    ):
        least = "from 0" if low == 0 else "from -2^62"
        allowed = f"a whole number {least} to 2^62"
        _find(column, lambda item: type(item) is int and low <= item <= _MOST_WHOLE, allowed)
    return column


def _numbers(column: Column, _: Bounds) -> Column:
    if {float}.issuperset(map(type, column)):
        if not all(map(math.isfinite, column)):
            _find(column, math.isfinite, "a finite number")
        return column
    _find(column, lambda item: type(item) in {int, float}, "a number")
    _find(column, lambda item: abs(item) <= 1e300, "a finite number")
    return list(map(float, column))


def _booleans(column: Column, _: Bounds) -> Column:
    _find(column, lambda item: type(item) is bool, "true or false")
    return column


def _find(column: Column, fits: Callable[[Any], bool], allowed: str) -> None:
    """Refuse the first entry that does not fit, if any."""
    for index, item in enumerate(column):
        if not fits(item):
            raise MisfitError(index, item, allowed)
