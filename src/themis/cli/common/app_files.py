"""App files on their way to the service: read, changed by flags, checked, made absolute.

written = read_written(Path("app.yaml"), ["search.n=8"], name="quick")
client.submit(plain_app(written))
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from themis.cli.common.output import note
from themis.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from themis.apps import AppFile
    from themis.recording.yaml_documents import FilePosition, Steps

STANDARD_INPUT = "-"
_WHOLE = ("env.", "search.params.")
"""What follows these is one name, with dots or without."""

_SPOTS: dict[str, tuple[str, ...]] = {
    "trials": ("search",),
    "min_gpus": ("gpus", "per_job_min"),
    "max_gpus": ("gpus", "per_job_max"),
}
"""Where the file has what a plan finds wrong."""


def read_written(
    file: Path, changes: Sequence[str] = (), *, name: str | None = None, seed: int | None = None
) -> AppFile:
    """The app in a file, with an absolute `workdir`.

    Args:
        file: Where it is; `-` for the standard input.
        changes: As --set has them: `stop.max_iterations=50`.
        name: Its name, if not the one in the file.
        seed: What its trials are drawn from.

    Raises:
        ConfigError: Something in it cannot be; says where.
    """
    from themis.recording.yaml_documents import (  # noqa: PLC0415 - late, so that --help is quick
        MAX_BYTES,
        parse_document,
        read_document,
    )

    if str(file) == STANDARD_INPUT:
        data, place = parse_document(sys.stdin.read(MAX_BYTES + 1), "standard input")
        folder = ""
    else:
        data, place = read_document(file)
        folder = str(file.parent)
    return check_app(data, place, changes, name=name, seed=seed, folder=folder)


def check_app(
    data: Any,
    place: FilePosition,
    changes: Sequence[str] = (),
    *,
    name: str | None = None,
    seed: int | None = None,
    folder: str = "",
) -> AppFile:
    """The app in plain data, checked as far as this machine can.

    Raises:
        ConfigError: Something in it cannot be; says where.
    """
    from themis.apps import parse_app  # noqa: PLC0415 - late, so that --help is quick

    given = (data, place)
    if isinstance(data, dict):
        for text in changes:
            data, place = _with_change(data, place, text)
        if name is not None:
            data, place = data | {"name": name}, place.overridden(("name",), "--name", {})
    try:
        written = parse_app(data, place)
        _lay_out(written, place, seed)
    except ConfigError as error:
        if not changes or error.where.startswith("--") or not _is_sound(*given, seed):
            raise
        # The file alone is right: the mistake comes from a flag, wherever it shows.
        raise ConfigError(error.key, error.given, error.allowed, "--set") from None
    return replace(written, workdir=_workdir(written.workdir, folder))


def _is_sound(data: Any, place: FilePosition, seed: int | None) -> bool:
    """Whether an app is right without the flags."""
    from themis.apps import parse_app  # noqa: PLC0415 - late, so that --help is quick

    try:
        _lay_out(parse_app(data, place), place, seed)
    except ConfigError:
        return False
    return True


def _lay_out(written: AppFile, place: FilePosition, seed: int | None) -> None:
    """Plan it, to find what is wrong: the service would say the same, without the line."""
    from themis.apps import plan_app  # noqa: PLC0415 - late, so that --help is quick
    from themis.core.model import AppId, OwnerId  # noqa: PLC0415 - see above

    try:
        plan_app(written, AppId(written.name), OwnerId("me"), seed or 0)
    except ConfigError as error:
        # The core has words of its own for keys: `min_gpus of 3` for that of a job.
        first, *rest = error.key.partition(" of ")[0].split(".", 1)
        spots = {**_SPOTS, "params": ("search", "params", *rest)}
        spot = place.at(*spots.get(first, (first, *rest)))
        key = "trials" if first == "trials" else spot.key
        raise ConfigError(key, error.given, error.allowed, spot.where) from None


def _workdir(given: str, folder: str) -> str:
    from themis.client import absolute  # noqa: PLC0415 - late, so that --help is quick

    if given == "~" or given.startswith("~/"):
        path = os.path.expanduser(given)
    else:
        path = absolute(os.path.join(folder, given) if given else ".")
    if not os.path.isdir(path):
        note(f"workdir {path}: not a folder on this machine; it must be one where jobs run")
    return path


# --set


def _with_change(
    data: dict[str, Any], place: FilePosition, text: str
) -> tuple[dict[str, Any], FilePosition]:
    """The data with the value of one --set."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError("--set", text, "KEY=VALUE, for example stop.max_iterations=50")
    steps = _steps(key)
    if "" in steps:
        raise ConfigError("--set", key, "a key of the app file, for example stop.max_iterations")
    parsed, texts = _parsed(key, value)
    below = {(*steps, *at): word for at, word in texts.items()}
    return _replaced(data, steps, parsed, key), place.overridden(steps, "--set", below)


def _parsed(key: str, value: str) -> tuple[Any, Mapping[Steps, str]]:
    """A value as the app file would have it, and its plain words."""
    from themis.recording.yaml_documents import parse_document  # noqa: PLC0415 - for a quick --help

    if key.startswith("env."):
        # As it stands: a variable is a text, and may be a secret that no message repeats.
        return value, {}
    try:
        parsed, place = parse_document(value, "")
    except ConfigError as error:
        raise ConfigError(key, error.given, "a value as in the app file", "--set") from None
    return parsed, place.texts


def _steps(key: str) -> tuple[str, ...]:
    for start in _WHOLE:
        if key.startswith(start):
            return (*start.rstrip(".").split("."), key.removeprefix(start))
    return tuple(key.split("."))


def _replaced(data: Any, steps: tuple[str, ...], value: Any, key: str) -> Any:
    if not steps:
        return value
    if not isinstance(data, dict | None):
        raise ConfigError(key, "a key", "keys only where the file has a mapping", "--set")
    first, *rest = steps
    inner = (data or {}).get(first)
    return {**(data or {}), first: _replaced(inner, tuple(rest), value, key)}
