"""The app file: what somebody who trains models writes down about a sweep.

written = read_app(Path("app.yaml"))     # or: app.yaml:5: stop.eta: got 1, allowed: ...
plain_app(written)                       # as JSON, to be sent and read again by parse_app
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from themis.apps.search_space import Choice, Parameter, Space, number, parse_space
from themis.core.model.ids import check_count, check_name, check_number, check_weight
from themis.core.model.zoo import entry
from themis.errors import ConfigError, unknown_name
from themis.recording.written_values import seconds
from themis.recording.yaml_documents import FilePosition, read_document

MOST_ARGUMENTS = 1000
MOST_TEXT = 4096
MOST_VARIABLES = 200
MOST_VALUE = 32768
LONGEST_GRACE = 3600.0
"""Seconds that nodes give a job to save."""
TUNE_SEAT = "themis.integrations.ray_tune.seat"
"""What the jobs of Ray Tune run. Its trials save where Ray is told to, which we do not see."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_MEMORY = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) ?(|M|G|T)(?:i?B)?\Z")
_GIGABYTES = {"": 1.0, "M": 1e-3, "G": 1.0, "T": 1e3}


class Method(StrEnum):
    """How trials are chosen."""

    RANDOM = "random"
    GRID = "grid"
    OPTUNA = "optuna"


class StopRule(StrEnum):
    """How trials are stopped early."""

    HALVING = "halving"
    HYPERBAND = "hyperband"
    CURVE = "curve"
    NONE = "none"


class Minder(StrEnum):
    """Whose process decides which trials go on."""

    SERVICE = "service"
    OWN = "own"


class Goal(StrEnum):
    """Which way is better."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class MetricSource(StrEnum):
    """Where a job's metrics are read from."""

    JSONL = "jsonl"
    TENSORBOARD = "tensorboard"
    REGEX = "regex"


@dataclass(frozen=True, slots=True)
class Search:
    """Which trials there are."""

    method: Method = Method.RANDOM
    n: int = 0
    """Zero where the rest says how many."""
    params: Space = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StopConditions:
    """How far trials train."""

    method: StopRule = StopRule.NONE
    max_iterations: int = 0
    """Of the last survivor; zero for jobs that count none."""
    eta: int = 2


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """What trials are judged by."""

    name: str = "loss"
    goal: Goal = Goal.MINIMIZE
    source: MetricSource = MetricSource.JSONL
    path: str = ""
    """For tensorboard: the folder of event files, below the job's checkpoint folder."""
    pattern: str = ""
    """For regex: an RE2 pattern over the job's log with the groups `it` and the metric's name."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """What a job can use."""

    per_job_max: int = 1
    per_job_min: int = 1
    model: str = "any"
    memory: float = 0.0
    """Gigabytes."""


@dataclass(frozen=True, slots=True)
class CheckpointRules:
    """How jobs save."""

    every: float = 0.0
    """Seconds between periodic ones, told to the job; zero leaves it to the job."""
    grace: float = 60.0
    """Seconds that a job gets to save when its GPUs go."""
    save: float = 7.5
    """Seconds that saving takes,"""
    restart: float = 35.0
    """and starting again until it trains: what moving a job costs, in bids."""


@dataclass(frozen=True, slots=True, repr=False)
class AppFile:
    """A sweep, or a single job."""

    name: str
    command: tuple[str, ...]
    workdir: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    search: Search | None = None
    stop: StopConditions = field(default_factory=StopConditions)
    tuner: Minder = Minder.SERVICE
    metric: MetricSpec = field(default_factory=MetricSpec)
    gpus: Gpus = field(default_factory=Gpus)
    iteration_seconds: float = 0.0
    """On one GPU; zero if nobody knows yet."""
    duration: float = 0.0
    """Seconds on one GPU of a job that counts no iterations; zero if nobody knows."""
    model: str = ""
    checkpoint: CheckpointRules = field(default_factory=CheckpointRules)
    retries: int = 3
    max_runtime: float = 0.0
    """Seconds of running that a job gets; zero for no limit."""
    weight: float = 1.0

    def __repr__(self) -> str:
        # The environment may hold secrets.
        return f"AppFile({self.name!r})"

    @property
    def saves_elsewhere(self) -> bool:
        """Whether its jobs leave nothing in the folder that they are told to save in."""
        return TUNE_SEAT in self.command

    @property
    def counted(self) -> bool:
        """Whether its jobs count iterations."""
        return self.stop.max_iterations > 0

    @property
    def judged(self) -> bool:
        """Whether the service compares trials by their metric, so that each must report it."""
        if self.search is None or self.tuner is Minder.OWN:
            return False
        stops = self.stop.method is not StopRule.NONE
        return stops or self.search.method is Method.OPTUNA or self.metric != MetricSpec()


def read_app(path: Path) -> AppFile:
    """The app in a YAML file; a relative `workdir` is below the file's folder.

    Raises:
        ConfigError: The file, or something in it, cannot be.
    """
    data, place = read_document(path)
    return parse_app(data, place)


def parse_app(data: object, place: FilePosition | None = None) -> AppFile:
    """An app from plain data.

    Raises:
        ConfigError: Something in it cannot be.
    """
    place = place or FilePosition()
    names = {each.name for each in fields(AppFile)}
    given = place.mapped(data, names, ("name", "command"))
    values = {key: _READERS[key](value, place.at(key)) for key, value in given.items()}
    written = AppFile(**values)
    _check_whole(written, given, place)
    return written


def _check_whole(app: AppFile, given: Mapping[str, Any], place: FilePosition) -> None:
    rule, search = app.stop.method, app.search
    if rule is not StopRule.NONE and search is None:
        raise place.at("search").error(
            None, f"a search: {rule} stops trials, and there is only one"
        )
    if rule is not StopRule.NONE and not app.stop.max_iterations:
        raise place.at("stop", "max_iterations").error(None, f"iterations, for {rule}")
    if app.counted and app.duration:
        raise place.at("duration").error(
            given["duration"], "nothing: stop.max_iterations and iteration_seconds say it"
        )
    if app.iteration_seconds and not app.counted:
        raise place.at("iteration_seconds").error(
            given["iteration_seconds"], "nothing without stop.max_iterations; or say `duration`"
        )
    if search is None:
        return
    grid = search.method is Method.GRID
    if not grid and not search.n and rule is not StopRule.HYPERBAND:
        raise place.at("search", "n").error(None, "how many trials")
    if grid and search.n:
        raise place.at("search", "n").error(search.n, "nothing: a grid has as many as it has")


_Section = TypeVar("_Section")


def _section(
    kind: type[_Section], required: tuple[str, ...] = ()
) -> Callable[[Any, FilePosition], _Section]:
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]

    def read(value: Any, place: FilePosition) -> _Section:
        given = place.mapped(value, names, required)
        readers = _SECTIONS[kind.__name__]
        return kind(**{key: readers[key](each, place.at(key)) for key, each in given.items()})

    return read


def _text(value: Any, place: FilePosition) -> str:
    if not isinstance(value, str) or len(value) > MOST_TEXT or "\0" in value:
        raise place.error(value, f"a text of at most {MOST_TEXT} characters")
    return value


def _name(value: Any, place: FilePosition) -> str:
    with place.blamed():
        return check_name("name", value)


def _word(value: Any, place: FilePosition) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= 64 or not value.isprintable():
        raise place.error(value, "a word of at most 64 characters")
    return value


def _enum(kind: type[StrEnum]) -> Callable[[Any, FilePosition], StrEnum]:
    def read(value: Any, place: FilePosition) -> StrEnum:
        names = [str(each) for each in kind]
        # YAML reads none as a word and null as nothing; people mean the same.
        value = "none" if value is None and "none" in names else value
        if value not in names:
            raise unknown_name(place.key, place.written(value), names, place.where)
        return kind(value)

    return read


def _count(low: int, high: int) -> Callable[[Any, FilePosition], int]:
    def read(value: Any, place: FilePosition) -> int:
        with place.blamed():
            return check_count("value", value, low=low, high=high)

    return read


def _time(low: float = 0.0, high: float = 1e9) -> Callable[[Any, FilePosition], float]:
    def read(value: Any, place: FilePosition) -> float:
        with place.blamed():
            return check_number(
                "value", seconds(value, "value"), low=low, high=high, above=low == 0.0
            )

    return read


def _iteration_seconds(value: Any, place: FilePosition) -> float:
    given = number(value, place)
    with place.blamed():
        return check_number("value", given, above=True, high=1e9)


def _weight(value: Any, place: FilePosition) -> float:
    given = number(value, place)
    with place.blamed():
        return check_weight("value", given)


def _command(value: Any, place: FilePosition) -> tuple[str, ...]:
    if isinstance(value, str):
        raise place.error(
            value, "a list of arguments, such as [python, train.py]: no shell reads it"
        )
    listed = place.listed(value)
    if len(listed) > MOST_ARGUMENTS:
        raise place.error(value, f"at most {MOST_ARGUMENTS} arguments")
    made = []
    for index, each in enumerate(listed):
        here = place.at(index)
        made.append(_text(_as_written(each, here), here))
    if not made[0]:
        raise place.at(0).error("", "a program")
    return tuple(made)


def _env(value: Any, place: FilePosition) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > MOST_VARIABLES:
        raise place.error(None, f"a mapping of at most {MOST_VARIABLES} variables")
    made: dict[str, str] = {}
    for key, each in value.items():
        if not isinstance(key, str) or not _VARIABLE.match(key):
            raise place.error(key, "names of letters, digits and _")
        if key.startswith("THEMIS_") or key == "CUDA_VISIBLE_DEVICES":
            raise place.error(key, "other names: this one is set by Themis")
        here = place.at(key)
        text = _as_written(each, here)
        if not isinstance(text, str) or len(text) > MOST_VALUE or "\0" in text:
            # What was given may be a secret: it is not repeated.
            raise here.error("something else", f"a text of at most {MOST_VALUE} characters")
        made[key] = text
    return made


def _as_written(value: Any, place: FilePosition) -> Any:
    """A number as it stands in the file: an argument 010 is not 8."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return place.texts.get(place.steps, str(value))
    return value


def _memory(value: Any, place: FilePosition) -> float:
    found = _MEMORY.match(str(value).strip()) if not isinstance(value, bool) else None
    if found is None:
        raise place.error(value, "gigabytes, such as 16 or 16G")
    return float(found[1]) * _GIGABYTES[found[2]]


def _zoo(value: Any, place: FilePosition) -> str:
    with place.blamed():
        try:
            return entry(_text(value, place)).name
        except ConfigError as error:
            raise ConfigError("model", value, error.allowed) from None


def _pattern(value: Any, place: FilePosition) -> str:
    text = _text(value, place)
    if not text:
        raise place.error(value, "a pattern")
    return text


def _path(value: Any, place: FilePosition) -> str:
    text = _text(value, place)
    if text.startswith("/") or ".." in text.split("/"):
        raise place.error(value, "a path below the checkpoint folder")
    return text


_SECTIONS: dict[str, Mapping[str, Callable[[Any, FilePosition], Any]]] = {
    "Search": {"method": _enum(Method), "n": _count(1, 10_000), "params": parse_space},
    "StopConditions": {
        "method": _enum(StopRule),
        "max_iterations": _count(1, 10**12),
        "eta": _count(2, 100),
    },
    "MetricSpec": {
        "name": _word,
        "goal": _enum(Goal),
        "source": _enum(MetricSource),
        "path": _path,
        "pattern": _pattern,
    },
    "Gpus": {
        "per_job_max": _count(1, 100_000),
        "per_job_min": _count(1, 100_000),
        "model": _name,
        "memory": _memory,
    },
    "CheckpointRules": {
        "every": _time(1.0),
        "grace": _time(1.0, LONGEST_GRACE),
        "save": _time(),
        "restart": _time(),
    },
}
_READERS: Mapping[str, Callable[[Any, FilePosition], Any]] = {
    "name": _name,
    "command": _command,
    "workdir": _text,
    "env": _env,
    "search": _section(Search, ("params",)),
    "stop": _section(StopConditions),
    "tuner": _enum(Minder),
    "metric": _section(MetricSpec),
    "gpus": _section(Gpus),
    "iteration_seconds": _iteration_seconds,
    "duration": _time(),
    "model": _zoo,
    "checkpoint": _section(CheckpointRules),
    "retries": _count(0, 1000),
    "max_runtime": _time(1.0),
    "weight": _weight,
}


def plain_app(app: AppFile) -> dict[str, Any]:
    """An app as plain data that `parse_app` reads again; what is not set is left out."""
    made: dict[str, Any] = {}
    blank = AppFile("", ())
    for each in fields(AppFile):
        value = getattr(app, each.name)
        if value != getattr(blank, each.name):
            made[each.name] = _plain(value)
    return made


def _plain(value: Any) -> Any:
    match value:
        case Search():
            params = {name: _plain_parameter(each) for name, each in value.params.items()}
            made = {"method": str(value.method), "params": params}
            return made | ({"n": value.n} if value.n else {})
        case StopConditions() | MetricSpec() | Gpus() | CheckpointRules():
            blank = type(value)()
            return {
                each.name: _plain(getattr(value, each.name))
                for each in fields(value)
                if getattr(value, each.name) != getattr(blank, each.name)
            }
        case tuple():
            return [_plain(each) for each in value]
        case Mapping():
            return dict(value)
        case StrEnum():
            return str(value)
        case _:
            return value


def _plain_parameter(parameter: Parameter) -> Any:
    if isinstance(parameter, Choice):
        return list(parameter.values)
    whole = parameter.kind == "int"
    return {
        parameter.kind: [int(each) if whole else each for each in (parameter.low, parameter.high)]
    }
