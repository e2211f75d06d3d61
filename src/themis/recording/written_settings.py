"""Settings of the arbiter as people write them, in files and on command lines.

settings_for(Themis, {"lease": "10m"})
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, get_type_hints

from themis.core.arbiter import Settings
from themis.core.policies import Policy
from themis.errors import unknown_name
from themis.recording.written_values import seconds

_ENUMS: Mapping[str, type[StrEnum]] = {
    key: kind for key, kind in get_type_hints(Settings).items() if issubclass(kind, StrEnum)
}
_NOT_TIMES = {"starvation", "solve_work", "audit_tolerance"}


def settings_for(kind: type[Policy], options: Mapping[str, Any]) -> Settings:
    """The arbiter's settings: defaults, overridden by those of the policy, then by `options`.

    Raises:
        ConfigError: A value is not allowed.
    """
    values: dict[str, Any] = {}
    for key, value in (*kind.settings.items(), *options.items()):
        if key in _ENUMS:
            values[key] = _member(key, value)
        elif key in _NOT_TIMES:
            values[key] = value
        else:
            values[key] = duration(value, key)
    return Settings(**values)


def duration(value: Any, key: str) -> Any:
    """Seconds from a text. A number stays: the check of its key's range comes later."""
    if isinstance(value, str):
        return seconds(value, key)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and abs(value) <= 10**18 else value


def _member(key: str, value: object) -> StrEnum:
    names = [str(item) for item in _ENUMS[key]]
    if value not in names:
        raise unknown_name(key, value, names)
    return _ENUMS[key](value)
