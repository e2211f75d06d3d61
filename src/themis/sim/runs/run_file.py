"""A run as a YAML file: the flags of `themis sim run` as keys.

    cluster: lab.yaml          # a preset, or a file beside this one
    workload: w1
    policy: themis
    apps: 20
    lease: 5m
    set: {payment: gpus}

config = read_run(Path("run.yaml"))
check_file(Path("run.yaml")).mistakes      # all of them, with their lines
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from themis.errors import (
    ConfigError,
    CorruptLogError,
    MissingFileError,
    NamedFileError,
    ThemisError,
)
from themis.recording.cluster_files import MAX_MISTAKES, read_cluster
from themis.recording.yaml_documents import FilePosition, Steps, read_document, shown
from themis.sim.config import RunConfig, prepare, refuse_apps_of_file

_TEXTS = ("cluster", "workload", "policy")
_NUMBERS = ("contention", "apps", "seed", "load")
_SHORT = ("lease", "f")
_FILES = ("cluster", "workload")
KEYS = (*_TEXTS, *_NUMBERS, *_SHORT, "set")
# Which options there are follows from these two: without them nothing can be said of the options.
_GOVERNED = {"policy": ("set", "f"), "workload": ("set",)}


@dataclass(frozen=True, slots=True)
class RunFileReport:
    """What is in a file, in a few words, or everything found to be wrong with it."""

    what: str
    mistakes: tuple[ThemisError, ...] = ()


def read_run(path: Path) -> RunConfig:
    """The run in a YAML file, checked in all that can be wrong with it.

    Raises:
        ConfigError: Names the file, the line, the key, what it got and what is allowed.
    """
    data, place = read_document(path)
    return _run(data, place, path)


def check_file(path: Path) -> RunFileReport:
    """Check a file with a run or a cluster in it, and everything that it names."""
    try:
        data, place = read_document(path)
    except ConfigError as error:
        return RunFileReport("", (error,))
    if isinstance(data, dict) and "racks" in data:
        return _check_cluster(path)
    mistakes: list[ThemisError] = []
    while len(mistakes) < MAX_MISTAKES:
        try:
            config = _run(data, place, path)
        except ThemisError as error:
            mistakes.append(error)
            steps = _blamed(error, data)
            if not steps:
                break
            data = _without(data, steps)
        else:
            what = f"{config.policy} on {config.cluster}, {config.workload}, seed {config.seed}"
            return RunFileReport(what, tuple(sorted(mistakes, key=_line)))
    return RunFileReport("", tuple(sorted(mistakes, key=_line)))


def _line(error: ThemisError) -> int:
    line = error.where.rpartition(":")[2] if isinstance(error, ConfigError) else ""
    return int(line) if line.isdecimal() else 0


def _check_cluster(path: Path) -> RunFileReport:
    mistakes: list[ConfigError] = []
    try:
        topology = read_cluster(path, mistakes)
    except ConfigError as error:
        return RunFileReport("", tuple(mistakes or [error]))
    machines = len(topology.machines)
    sizes = f"{_counted(machines, 'machine')}, {_counted(topology.gpus, 'GPU')}"
    return RunFileReport(f"cluster {topology.name}, {sizes}")


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _run(data: object, place: FilePosition, path: Path) -> RunConfig:
    given = place.mapped(data, KEYS)
    values: dict[str, Any] = {}
    for key in _TEXTS:
        if key in given:
            values[key] = _text(given[key], place.at(key))
    for key in _FILES:
        if key in values and (path.parent / values[key]).is_file():
            values[key] = str(path.parent / values[key])
    values |= {key: given[key] for key in _NUMBERS if key in given}
    options = {key: _scalar(given[key], place.at(key)) for key in _SHORT if key in given}
    options |= _set(given.get("set", {}), place.at("set"), options)
    config = RunConfig(**values, options=options)
    try:
        prepare(config)
        if "apps" in given:
            refuse_apps_of_file(config)
    except CorruptLogError as error:
        raise NamedFileError(
            "workload", config.workload, str(error), place.at("workload").where
        ) from error
    except ConfigError as error:
        raise _located(error, place, given, config) from error
    return config


def _text(value: object, place: FilePosition) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise place.error(value, "a name")
    return value


def _scalar(value: object, place: FilePosition) -> object:
    if not isinstance(value, str | int | float):
        raise place.error(value, "a number, true, false or a word")
    return value


def _set(value: object, place: FilePosition, taken: dict[str, object]) -> dict[str, object]:
    if not isinstance(value, dict):
        raise place.error(value, "a mapping of keys and values")
    found: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise place.error(shown(key), "keys that are words")
        if key in taken:
            raise place.at(key).error("a second time", "every key once: it is also outside of set")
        found[key] = _scalar(item, place.at(key))
    return found


def _located(
    error: ConfigError, place: FilePosition, given: dict[str, Any], config: RunConfig
) -> ConfigError:
    """The error with the line of the key that it is about."""
    for key in _FILES:
        file = getattr(config, key)
        if isinstance(error, MissingFileError) and error.given == file:
            return MissingFileError(key, file, where=place.at(key).where)
        if error.where == file or error.where.startswith(f"{file}:"):
            # It has a line of its own in a file that this one names.
            return NamedFileError(key, file, str(error), place.at(key).where)
    at = place.at(*_blamed(error, given))
    return type(error)(error.key, at.written(error.given), error.allowed, at.where)


def _blamed(error: ThemisError, data: object) -> Steps:
    """The way to the key that an error is about; empty if that cannot be told."""
    if not isinstance(error, ConfigError) or not isinstance(data, dict):
        return ()
    inner = data.get("set")
    options = inner if isinstance(inner, dict) else {}
    # An unknown option is told as the value of "key for policy ...".
    names = (error.key, str(error.given), *error.key.split())
    for name in (*names, error.key.removeprefix("set.")):
        if name in data and not error.key.startswith("set."):
            return (name,)
        if name in options:
            return ("set", name)
    return ()


def _without(data: dict[str, Any], steps: Steps) -> dict[str, Any]:
    """The rest of a document, without what cannot be judged any more."""
    if len(steps) > 1:
        inner = {key: value for key, value in data["set"].items() if key != steps[1]}
        return {**data, "set": inner}
    gone = {steps[0], *_GOVERNED.get(str(steps[0]), ())}
    return {key: value for key, value in data.items() if key not in gone}
