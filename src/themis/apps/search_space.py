"""Search spaces: the values that parameters may take, and how trials are drawn from them.

    params: {lr: {log: [1e-5, 1e-1]}, batch: [32, 64], layers: {int: [2, 8]}}

random_trials(space, 16, seed=7)     # 16 mappings; the same for the same seed
grid_trials(space)                   # every combination, the last parameter changing fastest
"""

import itertools
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from themis.errors import ConfigError
from themis.recording.validation import Checked, refused

Value = str | int | float | bool

MOST_PARAMETERS = 100
MOST_CHOICES = 1000
MOST_TRIALS = 100_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z")
_KINDS = ("uniform", "log", "int")
_ALLOWED = "a list of values, {uniform: [low, high]}, {log: [low, high]} or {int: [low, high]}"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of these values."""

    values: tuple[Value, ...]

    def draw(self, rng: random.Random) -> Value:
        """A value."""
        return self.values[rng.randrange(len(self.values))]


@dataclass(frozen=True, slots=True)
class Range:
    """A number between two others, both included."""

    kind: str
    """uniform, log (evenly by order of magnitude) or int."""
    low: float
    high: float

    def draw(self, rng: random.Random) -> Value:
        """A number of the range."""
        if self.kind == "int":
            return rng.randint(int(self.low), int(self.high))
        if self.kind == "uniform":
            return rng.uniform(self.low, self.high)
        drawn = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return min(max(drawn, self.low), self.high)


Parameter = Choice | Range
Space = Mapping[str, Parameter]


def _parameter_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.match(name):
        raise refused(name, "names of letters, digits and _ . -, at most 64 characters")
    return name


def parse_parameter(given: object) -> Parameter:
    """A parameter from plain data."""
    if isinstance(given, list):
        if not 1 <= len(given) <= MOST_CHOICES:
            raise refused(given, f"between 1 and {MOST_CHOICES} values")
        return Choice(tuple(_value(each, index) for index, each in enumerate(given)))
    if not isinstance(given, dict) or len(given) != 1:
        raise refused(given, _ALLOWED)
    ((kind, bounds),) = given.items()
    if kind not in _KINDS:
        raise refused(kind, _ALLOWED)
    if not isinstance(bounds, list) or len(bounds) != 2:
        raise refused(bounds, "two numbers, [low, high]", kind)
    low, high = (finite(each, kind, index) for index, each in enumerate(bounds))
    if not low < high:
        raise refused(f"[{low:g}, {high:g}]", "a low below a high", kind)
    if kind == "log" and low <= 0.0:
        raise refused(bounds[0], "a low above 0 for log", kind, 0)
    if kind == "int" and not (low.is_integer() and high.is_integer() and abs(high) < 2**53):
        raise refused(f"[{low:g}, {high:g}]", "whole numbers for int", kind)
    return Range(kind, low, high)


def plain_parameter(parameter: Parameter) -> Any:
    """A parameter as plain data that `parse_parameter` reads again."""
    if isinstance(parameter, Choice):
        return list(parameter.values)
    bounds = (parameter.low, parameter.high)
    return {parameter.kind: [int(each) if parameter.kind == "int" else each for each in bounds]}


def finite(given: object, *steps: str | int) -> float:
    """A finite number; 1e-5 too, which YAML reads as a text."""
    if isinstance(given, str):
        try:
            given = float(given)
        except ValueError:
            raise refused(given, "a number", *steps) from None
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise refused(given, "a number", *steps)
    try:
        value = float(given)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise refused(given, "a finite number", *steps)
    return value


def _value(given: object, index: int) -> Value:
    if isinstance(given, str):
        # YAML reads 1e-5 as a text; people mean a number.
        if re.fullmatch(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+", given):
            return finite(given, index)
        if len(given) > 1000 or not given.isprintable():
            allowed = "at most 1000 characters, none of them control characters"
            raise refused(given, allowed, index)
        return given
    if isinstance(given, bool) or (isinstance(given, int) and abs(given) < 10**18):
        return given
    if isinstance(given, float) and math.isfinite(given):
        return given
    raise refused(given, "a text, a number, true or false", index)


_BOUNDS = {"type": "array", "items": {"type": ["number", "string"]}, "minItems": 2, "maxItems": 2}
_VALUES = {"type": "array", "items": {"type": ["string", "number", "boolean"]}, "minItems": 1}
_RANGES = [
    {
        "type": "object",
        "properties": {kind: _BOUNDS},
        "additionalProperties": False,
        "required": [kind],
    }
    for kind in _KINDS
]
PARAMETER = Checked(parse_parameter, {"anyOf": [_VALUES, *_RANGES]})
PARAMETER_NAME = Checked(_parameter_name)


def random_trials(space: Space, count: int, seed: int) -> list[dict[str, Value]]:
    """Trials drawn independently."""
    rng = random.Random(seed)
    return [{name: each.draw(rng) for name, each in space.items()} for _ in range(count)]


def grid_size(space: Space) -> int:
    """How many combinations there are.

    Raises:
        ConfigError: A range has no end of values.
    """
    size = 1
    for name, each in space.items():
        size *= len(grid_values(name, each))
    return size


def grid_values(name: str, parameter: Parameter) -> Sequence[Value]:
    """Every value of a parameter.

    Raises:
        ConfigError: A range has no end of values.
    """
    if isinstance(parameter, Choice):
        return parameter.values
    if parameter.kind == "int" and parameter.high - parameter.low < MOST_CHOICES:
        return range(int(parameter.low), int(parameter.high) + 1)
    raise ConfigError(
        f"params.{name}", parameter.kind, "a list of values, or few whole numbers, for a grid"
    )


def grid_trials(space: Space) -> list[dict[str, Value]]:
    """Every combination.

    Raises:
        ConfigError: There are too many, or no end of them.
    """
    if grid_size(space) > MOST_TRIALS:
        raise ConfigError("params", grid_size(space), f"at most {MOST_TRIALS} combinations")
    values = [grid_values(name, each) for name, each in space.items()]
    return [dict(zip(space, each, strict=True)) for each in itertools.product(*values)]


def written_value(value: Value) -> str:
    """A value as a command line has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)
