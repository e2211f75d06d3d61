"""Values as people write them, in files and on command lines.

seconds("10m", "lease")      # 600.0
parse_value("0.5")           # a number, true, false, or a word
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from themis.arbiter import AddedWork, BidderKind, Inputs, Settings
from themis.errors import ConfigError, unknown_name
from themis.fairness.ideal import Convention
from themis.model.ids import check_number
from themis.policies import Policy

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*([smhd]?)\Z")
_ENUMS: dict[str, type[StrEnum]] = {
    "bidder": BidderKind,
    "convention": Convention,
    "inputs": Inputs,
    "added_work": AddedWork,
}


def seconds(value: object, key: str) -> float:
    """Seconds from a number or from 90s, 10m, 1.5h, 2d.

    Raises:
        ConfigError: It is neither.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return check_number(key, value, high=1e18)
    text = value.strip() if isinstance(value, str) else ""
    match = _DURATION.match(text)
    if match is None:
        forms = "seconds, or a number with s, m, h or d: 90s, 10m, 1.5h, 2d"
        negative = text.startswith("-") and _DURATION.match(text[1:])
        raise ConfigError(key, value, f"a positive time: {forms}" if negative else forms)
    return float(match[1]) * _UNITS[match[2]]


def parse_value(text: str) -> Any:
    """A value as written on a command line: a number, true, false, or a word."""
    lowered = text.strip().lower()
    if lowered in {"true", "false"}:
        return lowered == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip()


def settings_for(kind: type[Policy], options: Mapping[str, Any]) -> Settings:
    """The arbiter's settings: defaults, then what goes with the policy, then what was asked for.

    Raises:
        ConfigError: A value that cannot be.
    """
    values: dict[str, Any] = {}
    for key, value in (*kind.settings.items(), *options.items()):
        if key in _ENUMS:
            values[key] = _member(key, value)
        elif key in {"starvation", "solve_work", "audit_tolerance"}:
            values[key] = value
        else:
            values[key] = duration(value, key)
    return Settings(**values)


def duration(value: Any, key: str) -> Any:
    """Seconds from a text. A number is left to what checks it against the range of its key."""
    if isinstance(value, str):
        return seconds(value, key)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and abs(value) <= 10**18 else value


def _member(key: str, value: object) -> StrEnum:
    names = [str(item) for item in _ENUMS[key]]
    if value not in names:
        raise unknown_name(key, value, names)
    return _ENUMS[key](value)
