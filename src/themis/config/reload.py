"""Another configuration while the service runs: all of the change, or none of it.

    plan = plan_reload(running, load(file, ...))
    plan.refused or apply(plan.changes)

What may change stands with each key; settings of the arbiter change at the next beat. The rest
waits for a restart, which leaves training alone.
"""

from dataclasses import dataclass

from themis.config.keys import KEYS, MAPPINGS, values_of
from themis.config.loader import Loaded, ValueOrigin
from themis.config.value_types import shown_value
from themis.core.arbiter import SETTING_NAMES
from themis.errors import ConfigError

_MISSING = object()


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One key with another value. None where there was or is none."""

    key: str
    before: object
    after: object
    origin: ValueOrigin


@dataclass(frozen=True, slots=True)
class Reload:
    """What to change; if anything is refused, nothing is changed."""

    changes: tuple[ConfigChange, ...]
    refused: tuple[ConfigError, ...] = ()


def plan_reload(running: Loaded, wanted: Loaded) -> Reload:
    """What it takes to get from one configuration to another."""
    changes: list[ConfigChange] = []
    refused: list[ConfigError] = []
    before, after = values_of(running.config), values_of(wanted.config)
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key, _MISSING), after.get(key, _MISSING)
        if old == new and type(old) is type(new):
            continue
        origin = wanted.origins.get(key, ValueOrigin("default"))
        if _may_change(key):
            changes.append(ConfigChange(key, _or_none(old), _or_none(new), origin))
        else:
            refused.append(_refusal(key, old, new, origin))
    return Reload((), tuple(refused)) if refused else Reload(tuple(changes))


def _may_change(key: str) -> bool:
    outer, _, inner = key.partition(".")
    if outer == "set":
        return inner in SETTING_NAMES
    return KEYS[outer if outer in MAPPINGS else key].reload


def _refusal(key: str, old: object, new: object, origin: ValueOrigin) -> ConfigError:
    given, kept = _told(key, new), _told(key, old)
    allowed = f"{kept} while the service runs; restart it for this (training goes on)"
    return ConfigError(key, given, allowed, origin.where)


def _told(key: str, value: object) -> str:
    if value is _MISSING:
        return "its default"
    return str(shown_value(value if isinstance(value, str) else str(value)))


def _or_none(value: object) -> object:
    return None if value is _MISSING else value
