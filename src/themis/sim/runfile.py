"""A run as a YAML file: the flags of `themis sim run` as keys.

    cluster: lab.yaml          # a preset, or a file beside this one
    workload: w1
    policy: themis
    apps: 20
    lease: 5m
    set: {payment: gpus}

config = read_run(Path("run.yaml"))
check_file(Path("run.yaml"))    # also makes everything it names
"""

from pathlib import Path
from typing import Any

from themis.errors import ConfigError
from themis.records.clusters import read_cluster
from themis.records.documents import Place, read_document, shown
from themis.sim.config import RunConfig, prepare

_TEXTS = ("cluster", "workload", "policy")
_NUMBERS = ("contention", "apps", "seed", "load")
_SHORT = ("lease", "f")
KEYS = (*_TEXTS, *_NUMBERS, *_SHORT, "set")


def read_run(path: Path) -> RunConfig:
    """The run in a YAML file, checked in all that can be wrong with it.

    Raises:
        ConfigError: Names the file, the line, the key, what it got and what is allowed.
    """
    data, place = read_document(path)
    return _run(data, place, path)


def check_file(path: Path) -> str:
    """Check a file with a run or a cluster in it; a few words on what it holds.

    Raises:
        ConfigError: Names the file, the line, the key, what it got and what is allowed.
    """
    data, place = read_document(path)
    if isinstance(data, dict) and "racks" in data:
        topology = read_cluster(path)
        return f"cluster {topology.name}, {len(topology.machines)} machines, {topology.gpus} GPUs"
    config = _run(data, place, path)
    return f"{config.policy} on {config.cluster}, {config.workload}, seed {config.seed}"


def _run(data: object, place: Place, path: Path) -> RunConfig:
    given = place.mapped({} if data is None else data, KEYS)
    values: dict[str, Any] = {}
    for key in _TEXTS:
        if key in given:
            values[key] = _text(given[key], place.at(key))
    for key in ("cluster", "workload"):
        if key in values and (path.parent / values[key]).is_file():
            values[key] = str(path.parent / values[key])
    values |= {key: given[key] for key in _NUMBERS if key in given}
    options = {key: _scalar(given[key], place.at(key)) for key in _SHORT if key in given}
    options |= _set(given.get("set", {}), place.at("set"), options)
    config = RunConfig(**values, options=options)
    try:
        prepare(config)
    except ConfigError as error:
        raise _located(error, place, given) from error
    return config


def _text(value: object, place: Place) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise place.error(value, "a name")
    return value


def _scalar(value: object, place: Place) -> object:
    if not isinstance(value, str | int | float):
        raise place.error(value, "a number, true, false or a word")
    return value


def _set(value: object, place: Place, taken: dict[str, object]) -> dict[str, object]:
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


def _located(error: ConfigError, place: Place, given: dict[str, Any]) -> ConfigError:
    """The error with the line of the key that it is about."""
    if error.where:
        return error  # it is in a file that this one names
    # An unknown option is told as the value of "key for policy ...".
    for name in (error.key, str(error.given), *error.key.split()):
        if name in given:
            return ConfigError(error.key, error.given, error.allowed, place.at(name).where)
        if name in (given.get("set") or {}):
            return ConfigError(error.key, error.given, error.allowed, place.at("set", name).where)
    return ConfigError(error.key, error.given, error.allowed, place.where)
