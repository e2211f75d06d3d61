"""The app file: a sweep, or a single job, as its owner writes it.

written = read_app(Path("app.yaml"))     # or: app.yaml:5: stop.eta: got 1, allowed: ...
plain_app(written)                       # as JSON, to be sent and read again by parse_app
app_schema()                             # its JSON Schema, for editors
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, ValidationInfo

from themis.apps.search_space import (
    MOST_PARAMETERS,
    PARAMETER,
    PARAMETER_NAME,
    Parameter,
    finite,
    plain_parameter,
)
from themis.core.model.ids import LEAST_WEIGHT, MOST_WEIGHT, check_number, check_weight
from themis.core.model.zoo import ZOO, entry
from themis.recording.validation import (
    KNOWN_KEYS,
    NAME,
    Checked,
    Help,
    Validator,
    count,
    period,
    refused,
)
from themis.recording.yaml_documents import FilePosition, read_document

MOST_ARGUMENTS = 1000
MOST_TEXT = 4096
MOST_VARIABLES = 200
MOST_VALUE = 32768
LONGEST_GRACE = 3600.0
"""The longest time that a node gives a job to save, in seconds."""
TRIAL_NODE_MODULE = "themis.integrations.ray_tune.trial_node"
"""The program of Ray Tune's jobs. Its trials save where Ray saves, which Themis does not see."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_MEMORY = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) ?(|M|G|T)(?:i?B)?\Z")
_GIGABYTES = {"": 1.0, "M": 1e-3, "G": 1.0, "T": 1e3}


class SearchMethod(StrEnum):
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


class TunedBy(StrEnum):
    """The process that decides which trials go on."""

    SERVICE = "service"
    OWN = "own"


class Goal(StrEnum):
    """Which way is better."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class MetricFormat(StrEnum):
    """Where a job's metrics are read from."""

    JSONL = "jsonl"
    TENSORBOARD = "tensorboard"
    REGEX = "regex"


# Checks of single values


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > MOST_TEXT or "\0" in value:
        raise refused(value, f"a text of at most {MOST_TEXT} characters")
    return value


def _metric_name(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= 64 or not value.isprintable():
        raise refused(value, "a word of at most 64 characters")
    return value


def _metric_path(value: object) -> str:
    text = _text(value)
    if text.startswith("/") or ".." in text.split("/"):
        raise refused(value, "a path below the checkpoint folder")
    return text


def _metric_pattern(value: object) -> str:
    if not _text(value):
        raise refused(value, "a pattern")
    return _text(value)


def _variable(name: object) -> str:
    if not isinstance(name, str) or not _VARIABLE.match(name):
        raise refused(name, "names of letters, digits and _")
    if name.startswith("THEMIS_") or name == "CUDA_VISIBLE_DEVICES":
        raise refused(name, "other names: this one is set by Themis")
    return name


def _variable_value(value: object) -> str:
    if not isinstance(value, str) or len(value) > MOST_VALUE or "\0" in value:
        # The value may be a secret: no message repeats it.
        raise refused("something else", f"a text of at most {MOST_VALUE} characters")
    return value


def _memory(value: object) -> float:
    found = _MEMORY.match(str(value).strip()) if isinstance(value, str | int | float) else None
    if found is None or isinstance(value, bool):
        raise refused(value, "gigabytes, such as 16 or 16G")
    return float(found[1]) * _GIGABYTES[found[2]]


def _as_written(given: Any, info: ValidationInfo[FilePosition]) -> Any:
    """Arguments or variables with their numbers as they stand in the file: 010 is not 8."""
    if isinstance(given, str):
        raise refused(given, "a list of arguments, such as [python, train.py]: no shell reads it")
    place = info.context.at(str(info.field_name))
    if isinstance(given, list):
        return [place.at(index).number_text(each) for index, each in enumerate(given)]
    if isinstance(given, dict):
        return {key: place.at(key).number_text(each) for key, each in given.items()}
    return given


def _with_program(command: tuple[str, ...]) -> tuple[str, ...]:
    if not command[0]:
        raise refused("", "a program", 0)
    return command


def _null_is_none(value: object) -> object:
    """YAML reads none as a word and null as nothing; both mean no rule."""
    return "none" if value is None else value


_TEXT = Checked(_text, {"type": "string"})
_MODEL = Checked(lambda value: entry(_text(value)).name, {"enum": [each.name for each in ZOO]})
_SECONDS = Checked(
    lambda value: check_number("value", finite(value), above=True, high=1e9),
    {"type": "number", "exclusiveMinimum": 0},
)
_WEIGHT = Checked(
    lambda value: check_weight("value", finite(value)),
    {"type": "number", "minimum": LEAST_WEIGHT, "maximum": MOST_WEIGHT},
)
_TIME = period()
_VARIABLE_NAME = Checked(_variable)
_VARIABLE_VALUE = Checked(_variable_value, {"type": ["string", "number"]})
_ARGUMENT = Checked(_text, {"type": ["string", "number"]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Which trials there are."""

    __pydantic_config__ = KNOWN_KEYS

    method: Annotated[SearchMethod, Help("How trials are chosen.")] = SearchMethod.RANDOM
    n: Annotated[int, count(1, 10_000), Help("How many trials.")] = 0
    """Zero where the other keys determine the number."""
    params: Annotated[
        Mapping[Annotated[str, PARAMETER_NAME], Annotated[Parameter, PARAMETER]],
        Field(min_length=1, max_length=MOST_PARAMETERS),
        PlainSerializer(
            lambda space: {name: plain_parameter(each) for name, each in space.items()}
        ),
        Help("The values that each parameter may take."),
    ]


@dataclass(frozen=True, slots=True)
class StopConditions:
    """How far trials train."""

    __pydantic_config__ = KNOWN_KEYS

    method: Annotated[
        StopRule, BeforeValidator(_null_is_none), Help("The rule that stops trials early.")
    ] = StopRule.NONE
    max_iterations: Annotated[
        int, count(1, 10**12), Help("Of a job that is never stopped early.")
    ] = 0
    """Zero for jobs that count none."""
    eta: Annotated[int, count(2, 100), Help("One trial in `eta` goes on.")] = 2


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """The metric that trials are compared by."""

    __pydantic_config__ = KNOWN_KEYS

    name: Annotated[
        str,
        Checked(_metric_name, {"type": "string", "minLength": 1, "maxLength": 64}),
        Help("Its name where it is read from."),
    ] = "loss"
    goal: Annotated[Goal, Help("Which way is better.")] = Goal.MINIMIZE
    source: Annotated[MetricFormat, Help("Where it is read from.")] = MetricFormat.JSONL
    path: Annotated[
        str,
        Checked(_metric_path, {"type": "string"}),
        Help("For tensorboard: the folder of event files, in the checkpoint folder."),
    ] = ""
    pattern: Annotated[
        str,
        Checked(_metric_pattern, {"type": "string"}),
        Help("For regex: RE2 over the job's log, with groups `it` and the metric."),
    ] = ""


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs that a job can use."""

    __pydantic_config__ = KNOWN_KEYS

    per_job_max: Annotated[int, count(1, 100_000), Help("The most GPUs that a job can use.")] = 1
    per_job_min: Annotated[int, count(1, 100_000), Help("The fewest GPUs that a job runs on.")] = 1
    model: Annotated[str, NAME, Help("The GPU model that it needs.")] = "any"
    memory: Annotated[
        float,
        Checked(_memory, {"type": ["number", "string"]}),
        Help("The memory that each GPU must have: 16G."),
    ] = 0.0
    """Gigabytes."""


@dataclass(frozen=True, slots=True)
class CheckpointRules:
    """How jobs save."""

    __pydantic_config__ = KNOWN_KEYS

    every: Annotated[
        float,
        period(1.0),
        Help("The period of checkpoints: the job gets it as THEMIS_CHECKPOINT_EVERY."),
    ] = 0.0
    """Zero leaves it to the job."""
    grace: Annotated[
        float,
        period(1.0, LONGEST_GRACE),
        Help("How long a job may take to save when it loses its GPUs; at most 1h."),
    ] = 60.0
    save: Annotated[float, _TIME, Help("How long saving takes.")] = 7.5
    restart: Annotated[float, _TIME, Help("How long a start takes until the job trains.")] = 35.0


@dataclass(frozen=True, slots=True, repr=False)
class AppFile:
    """A sweep, or a single job."""

    __pydantic_config__ = KNOWN_KEYS

    name: Annotated[str, NAME, Help("The app's name.")]
    command: Annotated[
        tuple[Annotated[str, _ARGUMENT], ...],
        Field(min_length=1, max_length=MOST_ARGUMENTS),
        BeforeValidator(_as_written),
        AfterValidator(_with_program),
        Help("The command of each job, as a list; {lr} stands for the parameter lr."),
    ]
    workdir: Annotated[
        str, _TEXT, Help("The folder where it runs, on every machine; by default that of submit.")
    ] = ""
    env: Annotated[
        Mapping[Annotated[str, _VARIABLE_NAME], Annotated[str, _VARIABLE_VALUE]],
        Field(max_length=MOST_VARIABLES),
        BeforeValidator(_as_written),
        Help("Variables of its environment. Never shown or logged."),
    ] = field(default_factory=dict)
    search: Annotated[
        Search | None, Help("Which trials there are. Without it there is one job.")
    ] = None
    stop: Annotated[StopConditions, Help("How far trials train, and which of them go on.")] = field(
        default=StopConditions()
    )
    tuner: Annotated[
        TunedBy, Help("Decides within the limits of `stop`: the service, or a process of yours.")
    ] = TunedBy.SERVICE
    metric: Annotated[
        MetricSpec, Help("The metric that trials are compared by, and where it is read from.")
    ] = field(default=MetricSpec())
    gpus: Annotated[Gpus, Help("The GPUs that a job can use.")] = field(default=Gpus())
    iteration_seconds: Annotated[
        float, _SECONDS, Help("How long an iteration takes on one GPU, if you know.")
    ] = 0.0
    duration: Annotated[
        float,
        _TIME,
        Help("How long a job that counts no iterations takes on one GPU, if you know."),
    ] = 0.0
    model: Annotated[
        str,
        _MODEL,
        Help("A known model that yours is like: how much it dislikes distance between GPUs."),
    ] = ""
    checkpoint: Annotated[CheckpointRules, Help("How jobs save.")] = field(
        default=CheckpointRules()
    )
    retries: Annotated[int, count(0, 1000), Help("How often a job that fails is tried again.")] = 3
    max_runtime: Annotated[float, period(1.0), Help("How long a job may run in all.")] = 0.0
    """Zero for no limit."""
    weight: Annotated[float, _WEIGHT, Help("The app's share, within its owner's.")] = 1.0

    def __repr__(self) -> str:
        # The environment may hold secrets.
        return f"AppFile({self.name!r})"

    @property
    def saves_elsewhere(self) -> bool:
        """Whether its jobs save elsewhere than in the checkpoint folder of Themis."""
        return TRIAL_NODE_MODULE in self.command

    @property
    def counts_iterations(self) -> bool:
        """Whether its jobs count iterations."""
        return self.stop.max_iterations > 0

    @property
    def uses_optuna(self) -> bool:
        """Whether Optuna chooses one trial after the other."""
        return self.search is not None and self.search.method is SearchMethod.OPTUNA

    @property
    def needs_metrics(self) -> bool:
        """Whether the service compares trials by their metric, so that each must report it."""
        if self.search is None or self.tuner is TunedBy.OWN:
            return False
        stops = self.stop.method is not StopRule.NONE
        return stops or self.uses_optuna or self.metric != MetricSpec()


_VALIDATOR = Validator(AppFile)


def read_app(path: Path) -> AppFile:
    """The app in a YAML file; a relative `workdir` is below the file's folder.

    Raises:
        ConfigError: The file cannot be read, or something in it is wrong.
    """
    return parse_app(*read_document(path))


def parse_app(data: Any, place: FilePosition | None = None) -> AppFile:
    """An app from plain data.

    Raises:
        ConfigError: Something in it is wrong.
    """
    place = place or FilePosition()
    app = _VALIDATOR.read(data, place)
    _check_whole(app, data, place)
    return app


def _check_whole(app: AppFile, given: Mapping[str, Any], place: FilePosition) -> None:
    rule, search = app.stop.method, app.search
    if rule is not StopRule.NONE and search is None:
        raise place.at("search").error(
            None, f"a search: {rule} stops trials, and there is only one"
        )
    if rule is not StopRule.NONE and not app.stop.max_iterations:
        raise place.at("stop", "max_iterations").error(None, f"iterations, for {rule}")
    if app.counts_iterations and app.duration:
        raise place.at("duration").error(
            given["duration"], "nothing: stop.max_iterations and iteration_seconds say it"
        )
    if app.iteration_seconds and not app.counts_iterations:
        raise place.at("iteration_seconds").error(
            given["iteration_seconds"], "nothing without stop.max_iterations; or say `duration`"
        )
    if search is None:
        return
    grid = search.method is SearchMethod.GRID
    if not grid and not search.n and rule is not StopRule.HYPERBAND:
        raise place.at("search", "n").error(None, "how many trials")
    if grid and search.n:
        raise place.at("search", "n").error(search.n, "nothing: a grid has as many as it has")


def plain_app(app: AppFile) -> dict[str, Any]:
    """An app as plain data that `parse_app` reads again; defaults are left out."""
    return _VALIDATOR.plain(app)


def app_schema() -> dict[str, Any]:
    """The JSON Schema of the app file, for editors that complete and check it."""
    return _VALIDATOR.schema("Themis app", "A sweep, or a single job, for `themis submit`.")
