"""Search spaces: what values parameters may take, and how trials are drawn from them.

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

from themis.errors import ConfigError
from themis.recording.yaml_documents import FilePosition

Value = str | int | float | bool

MOST_PARAMETERS = 100
MOST_CHOICES = 1000
MOST_TRIALS = 100_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z")
_KINDS = ("log", "uniform", "int")
_ALLOWED = "a list of values, {uniform: [low, high]}, {log: [low, high]} or {int: [low, high]}"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of these values."""

    values: tuple[Value, ...]

    def draw(self, rng: random.Random) -> Value:
        """One of them."""
        return self.values[rng.randrange(len(self.values))]


@dataclass(frozen=True, slots=True)
class Range:
    """A number between two others, both included."""

    kind: str
    """uniform, log (evenly by order of magnitude) or int."""
    low: float
    high: float

    def draw(self, rng: random.Random) -> Value:
        """A number of it."""
        if self.kind == "int":
            return rng.randint(int(self.low), int(self.high))
        if self.kind == "uniform":
            return rng.uniform(self.low, self.high)
        drawn = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return min(max(drawn, self.low), self.high)


Parameter = Choice | Range
Space = Mapping[str, Parameter]


def parse_space(data: object, place: FilePosition) -> dict[str, Parameter]:
    """The parameters of a search.

    Raises:
        ConfigError: Something in it cannot be.
    """
    if not isinstance(data, dict) or not data:
        raise place.error(data, "a mapping of parameters to what they may be")
    if len(data) > MOST_PARAMETERS:
        raise place.error(data, f"at most {MOST_PARAMETERS} parameters")
    space: dict[str, Parameter] = {}
    for name, given in data.items():
        if not isinstance(name, str) or not _NAME.match(name):
            raise place.error(name, "names of letters, digits and _ . -, at most 64 characters")
        space[name] = _parameter(given, place.at(name))
    return space


def _parameter(given: object, place: FilePosition) -> Parameter:
    if isinstance(given, list):
        if not 1 <= len(given) <= MOST_CHOICES:
            raise place.error(given, f"between 1 and {MOST_CHOICES} values")
        return Choice(tuple(_value(each, place.at(i)) for i, each in enumerate(given)))
    if not isinstance(given, dict) or len(given) != 1:
        raise place.error(given, _ALLOWED)
    ((kind, bounds),) = given.items()
    if kind not in _KINDS:
        raise place.error(kind, _ALLOWED)
    inner = place.at(kind)
    if not isinstance(bounds, list) or len(bounds) != 2:
        raise inner.error(bounds, "two numbers, [low, high]")
    low, high = (number(each, inner.at(i)) for i, each in enumerate(bounds))
    if not low < high:
        raise inner.error(f"[{low:g}, {high:g}]", "a low below a high")
    if kind == "log" and low <= 0.0:
        raise inner.at(0).error(bounds[0], "a low above 0 for log")
    if kind == "int" and not (low.is_integer() and high.is_integer() and abs(high) < 2**53):
        raise inner.error(f"[{low:g}, {high:g}]", "whole numbers for int")
    return Range(kind, low, high)


def number(given: object, place: FilePosition) -> float:
    """A finite number; 1e-5 too, which YAML reads as a text."""
    if isinstance(given, str):
        try:
            given = float(given)
        except ValueError:
            raise place.error(given, "a number") from None
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise place.error(given, "a number")
    try:
        value = float(given)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise place.error(given, "a finite number")
    return value


def _value(given: object, place: FilePosition) -> Value:
    if isinstance(given, str):
        return _text(given, place)
    if isinstance(given, bool) or (isinstance(given, int) and abs(given) < 10**18):
        return given
    if isinstance(given, float) and math.isfinite(given):
        return given
    raise place.error(given, "a text, a number, true or false")


def _text(given: str, place: FilePosition) -> Value:
    # 1e-5 is a number to everybody but YAML.
    if re.fullmatch(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+", given):
        return number(given, place)
    if len(given) > 1000 or not given.isprintable():
        raise place.error(given, "at most 1000 characters, none of them control characters")
    return given


def random_trials(space: Space, count: int, seed: int) -> list[dict[str, Value]]:
    """So many trials, drawn independently."""
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
    """A value as it stands in a command line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)
