"""Query parameters, declared once: the table of routes describes them, and handlers read them.

    LIMIT = whole_number("limit", "Rounds in one answer.", default=50, least=1, most=100)
    request.read(LIMIT)        # 100 for ?limit=5000; RefusedError for ?limit=x

A number beyond the limits counts as the limit; other text is refused.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from themis.errors import RefusedError

_Value = TypeVar("_Value")

_MOST_TEXT = 20
_MOST_DIGITS = 15


@dataclass(frozen=True, slots=True)
class QueryParameter(Generic[_Value]):
    """One parameter: its name, its default, how its text is read, and its JSON Schema."""

    name: str
    default: _Value
    parse: Callable[[str], _Value]
    schema: dict[str, Any]


def whole_number(
    name: str, description: str, *, default: int = 0, least: int = 0, most: int | None = None
) -> QueryParameter[int]:
    """A whole number between two limits."""

    def parse(text: str) -> int:
        digits = text.removeprefix("-") if least < 0 else text
        if not digits.isdecimal() or len(digits) > _MOST_DIGITS:
            raise RefusedError(name, f"must be a whole number: {description}")
        number = max(least, int(text))
        return number if most is None else min(most, number)

    limits = {"minimum": least} | ({} if most is None else {"maximum": most})
    return QueryParameter(name, default, parse, _schema("integer", default, description) | limits)


def seconds(name: str, description: str, *, most: float) -> QueryParameter[float]:
    """A duration from zero to a limit."""

    def parse(text: str) -> float:
        value = math.nan
        if len(text) <= _MOST_TEXT:
            with suppress(ValueError):
                value = float(text)
        if not 0.0 <= value < math.inf:
            raise RefusedError(name, f"must be seconds, at most {most:g}")
        return min(value, most)

    limits = {"minimum": 0, "maximum": most}
    return QueryParameter(name, 0.0, parse, _schema("number", 0, description) | limits)


def flag(name: str, description: str) -> QueryParameter[bool]:
    """`true`, or anything else for false."""
    schema = _schema("boolean", False, description)
    return QueryParameter(name, False, lambda text: text == "true", schema)


def _schema(kind: str, default: object, description: str) -> dict[str, Any]:
    return {"type": kind, "default": default, "description": description}
