"""Query parameters, declared once: the table of routes describes them, and handlers read them.

    LIMIT = WholeNumber("limit", "rounds in one answer", default=50, least=1, most=100)
    request.read(LIMIT)        # 100 for ?limit=5000; RefusedError for ?limit=x

A number beyond the limits counts as the limit; other text is refused.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from themis.errors import RefusedError

_Value_co = TypeVar("_Value_co", covariant=True)

_MOST_TEXT = 20
_MOST_DIGITS = 15


class QueryParameter(Protocol[_Value_co]):
    """One parameter, and how its text is read."""

    @property
    def name(self) -> str:
        """What stands before the `=`."""

    @property
    def default(self) -> _Value_co:
        """The value where the caller gives none."""

    def parse(self, text: str) -> _Value_co:
        """The value of this text, or RefusedError."""

    def schema(self) -> dict[str, Any]:
        """The parameter as JSON Schema, for OpenAPI."""


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """A whole number between two limits."""

    name: str
    description: str
    default: int = 0
    least: int = 0
    most: int | None = None

    def parse(self, text: str) -> int:
        """The number, moved between the limits."""
        digits = text.removeprefix("-") if self.least < 0 else text
        if not digits.isdecimal() or len(digits) > _MOST_DIGITS:
            raise RefusedError(self.name, f"must be a whole number: {self.description}")
        number = max(self.least, int(text))
        return number if self.most is None else min(self.most, number)

    def schema(self) -> dict[str, Any]:
        """The parameter as JSON Schema."""
        limits = {"minimum": self.least, "maximum": self.most}
        return {
            "type": "integer",
            "default": self.default,
            "description": self.description,
            **{key: value for key, value in limits.items() if value is not None},
        }


@dataclass(frozen=True, slots=True)
class Seconds:
    """A duration from zero to a limit."""

    name: str
    description: str
    most: float
    default: float = 0.0

    def parse(self, text: str) -> float:
        """The seconds, at most the limit."""
        try:
            seconds = float(text) if len(text) <= _MOST_TEXT else math.nan
        except ValueError:
            seconds = math.nan
        if not 0.0 <= seconds < math.inf:
            raise RefusedError(self.name, f"must be seconds, at most {self.most:g}")
        return min(seconds, self.most)

    def schema(self) -> dict[str, Any]:
        """The parameter as JSON Schema."""
        return {
            "type": "number",
            "minimum": 0,
            "maximum": self.most,
            "default": self.default,
            "description": self.description,
        }


@dataclass(frozen=True, slots=True)
class Flag:
    """`true`, or anything else for false."""

    name: str
    description: str
    default: bool = False

    def parse(self, text: str) -> bool:
        """Whether the text is `true`."""
        return text == "true"

    def schema(self) -> dict[str, Any]:
        """The parameter as JSON Schema."""
        return {"type": "boolean", "default": self.default, "description": self.description}
