"""App files on their way to the service: read, changed by flags, checked, made absolute.

written = read_written(Path("app.yaml"), ["search.n=8"], name="quick")
client.submit(plain_app(written))
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from themis.cli.common.output import note
from themis.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from themis.apps import AppFile
    from themis.recording.yaml_documents import FilePosition

STANDARD_INPUT = "-"
_WHOLE = ("env.", "search.params.")
"""What follows these is one name, with dots or without."""

_SPOTS: dict[str, tuple[str, ...]] = {
    "trials": ("search",),
    "min_gpus": ("gpus", "per_job_min"),
    "max_gpus": ("gpus", "per_job_max"),
}
"""Where in a file stands what a plan finds wrong."""


class KeyOverride(NamedTuple):
    """A key that --set gives another value."""

    key: str
    steps: tuple[str, ...]
    value: Any
    texts: dict[tuple[str | int, ...], str]


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
    """The app in plain data, after all that can be said about it here has been said.

    Raises:
        ConfigError: Something in it cannot be; says where.
    """
    from themis.apps import parse_app  # noqa: PLC0415 - late, so that --help is quick

    made = [_change(text) for text in changes]
    if name is not None:
        made.append(KeyOverride("name", ("name",), name, {}))
    given = (data, place)
    data, place = _changed(data, place, made)
    try:
        written = parse_app(data, place)
        _lay_out(written, place, seed)
    except ConfigError as error:
        blamed = _blamed(error, made)
        if blamed is error and made and _is_sound(*given, seed):
            blamed = ConfigError(error.key, error.given, error.allowed, "--set")
        raise blamed from None
    return replace(written, workdir=_workdir(written.workdir, folder))


def _is_sound(data: Any, place: FilePosition, seed: int | None) -> bool:
    """Whether an app is one as it stands, so that what is wrong comes from flags."""
    from themis.apps import parse_app  # noqa: PLC0415 - late, so that --help is quick

    try:
        _lay_out(parse_app(data, place), place, seed)
    except ConfigError:
        return False
    return True


def _lay_out(written: AppFile, place: FilePosition, seed: int | None) -> None:
    """See that it comes to something: the service would say the same, without the line."""
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


def _change(text: str) -> KeyOverride:
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError("--set", text, "KEY=VALUE, for example stop.max_iterations=50")
    steps = _steps(key)
    if "" in steps:
        raise ConfigError("--set", key, "a key of the app file, for example stop.max_iterations")
    if key.startswith("env."):
        # As it stands: a variable is a text, and may be a secret that no message repeats.
        return KeyOverride(key, steps, value, {})
    from themis.recording.yaml_documents import parse_document  # noqa: PLC0415 - for a quick --help

    try:
        data, place = parse_document(value, "")
    except ConfigError as error:
        raise ConfigError(key, error.given, "a value as in the app file", "--set") from None
    return KeyOverride(key, steps, data, {(*steps, *at): word for at, word in place.texts.items()})


def _steps(key: str) -> tuple[str, ...]:
    for start in _WHOLE:
        if key.startswith(start):
            return (*start.rstrip(".").split("."), key.removeprefix(start))
    return tuple(key.split("."))


def _changed(
    data: Any, place: FilePosition, changes: Sequence[KeyOverride]
) -> tuple[Any, FilePosition]:
    """Data with other values, and what is known about its places without that about the old."""
    if not changes or not isinstance(data, dict):
        return data, place
    lines, texts = dict(place.lines), dict(place.texts)
    for change in changes:
        data = _with(data, change.steps, change)
        for known in (lines, texts):
            depth = len(change.steps)
            for steps in [steps for steps in known if steps[:depth] == change.steps]:
                del known[steps]
        texts |= change.texts
    return data, replace(place, lines=lines, texts=texts)


def _with(data: Any, steps: tuple[str, ...], change: KeyOverride) -> Any:
    if not steps:
        return change.value
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(change.key, "a key", "keys only where the file has a mapping", "--set")
    first, *rest = steps
    return {**data, first: _with(data.get(first), tuple(rest), change)}


def _blamed(error: ConfigError, changes: Sequence[KeyOverride]) -> ConfigError:
    """The error, told about a flag if it is about what a flag gave."""
    for change in changes:
        *above, last = change.steps
        unknown = f"key in {'.'.join(above) or 'document'}"
        below = error.key.removeprefix(change.key)
        about = below != error.key and (not below or below[0] in ".[")
        if about or (error.key, error.given) == (unknown, last):
            flag = "--name" if change.steps == ("name",) and not change.texts else "--set"
            return ConfigError(error.key, error.given, error.allowed, flag)
    return error
