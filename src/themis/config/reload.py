"""Another configuration while the service runs: all of the change, or none of it.

    changed_keys(running, load(file, ...))      # ["set.lease", "limits.rows"], or an error

Each key says whether it may change; settings of the arbiter change at the next beat. The others
wait for a restart, during which training goes on.
"""

from themis.config.keys import KEYS, MAPPINGS, values_of
from themis.config.loader import DEFAULT, Loaded
from themis.config.value_types import shown_value
from themis.core.arbiter import SETTING_NAMES
from themis.errors import ConfigError

_MISSING = object()


def changed_keys(running: Loaded, wanted: Loaded) -> list[str]:
    """The keys that have other values in the wanted configuration.

    Raises:
        ConfigError: One of them cannot change while the service runs.
    """
    before, after = values_of(running.config), values_of(wanted.config)
    changed = []
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key, _MISSING), after.get(key, _MISSING)
        if old == new and type(old) is type(new):
            continue
        if not _may_change(key):
            allowed = f"{_told(old)} while the service runs; restart it for this (training goes on)"
            origin = wanted.origins.get(key, DEFAULT)
            raise ConfigError(key, _told(new), allowed, "" if origin == DEFAULT else origin)
        changed.append(key)
    return changed


def _may_change(key: str) -> bool:
    outer, _, inner = key.partition(".")
    if outer == "set":
        return inner in SETTING_NAMES
    return KEYS[outer if outer in MAPPINGS else key].reload


def _told(value: object) -> str:
    if value is _MISSING:
        return "its default"
    return str(shown_value(value if isinstance(value, str) else str(value)))
