"""By which policy and settings each start of a service went on: what a replay must know.

<<<<<<< HEAD
    parameters_row(rows, epoch, StartParameters("themis", {}, settings))
    parameters_of(saved.kept, store.url)    # by the epoch from which on they held
=======
    service.keep(parameters_row(service.kept, epoch, StartParameters("themis", {}, settings)))
    parameters_of(saved.kept)       # {1: StartParameters(...)}, by the epoch from which on they
    held
>>>>>>> f8089ae (engines, demo: plain words, and one way to kill all descendants)

A row is stored only where something changed, so that restarts leave nothing behind.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from themis.core.arbiter import Settings
from themis.errors import CorruptLogError, RefusedError
from themis.recording.codec import decode, dumps, loads

_PREFIX = "start/"


@dataclass(frozen=True, slots=True)
class StartParameters:
    """What an arbiter is made with. Settings change by events; these are those it began with."""

    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Settings = field(default=Settings())


def parameters_row(
    rows: Mapping[str, str], epoch: int, parameters: StartParameters
) -> dict[str, str | None]:
    """The row to store for a start; none if the last start had the same."""
    known = sorted(
        (int(key.removeprefix(_PREFIX)), text)
        for key, text in rows.items()
        if key.startswith(_PREFIX)
    )
    text = dumps(parameters)
    return {} if known and known[-1][1] == text else {f"{_PREFIX}{epoch}": text}


def parameters_of(rows: Mapping[str, str], where: str) -> dict[int, StartParameters]:
    """Parameters by the epoch from which on they held, the first ones first.

    Raises:
        CorruptLogError: A row cannot be read.
    """
    found: dict[int, StartParameters] = {}
    for key, text in rows.items():
        if key.startswith(_PREFIX):
            try:
                found[int(key.removeprefix(_PREFIX))] = decode(StartParameters, loads(text))
            except (ValueError, RefusedError) as error:
                raise CorruptLogError(where, 0, f"{key}: {error}") from None
    return dict(sorted(found.items()))
