"""The JSON Schema of the service's configuration, for editors that complete and check it."""

from typing import Any

from themis.config.keys import KEYS, SECTIONS, Key
from themis.config.parsing import ENGINES, LABEL, RAY_ADDRESS, plain
from themis.core.arbiter import SETTING_NAMES

_NAME = r"^[a-z0-9][a-z0-9-]{0,62}$"
_ADDRESS = r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}$"
_DURATION = r"^[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?\s*[smhd]?$"
_SIZE = r"^[0-9]+(\.[0-9]+)? ?([kKMGTP]i?)?B?$"
_ACCOUNT = r"^([a-z_][a-z0-9_.-]{0,31}|[0-9]{1,10}(:[0-9]{1,10})?)$"


def service_schema() -> dict[str, Any]:
    """The schema, with what each key means and its default."""
    properties: dict[str, Any] = {}
    for key in KEYS.values():
        section, dot, name = key.name.rpartition(".")
        if not dot:
            properties[name] = _property(key)
    for section in SECTIONS:
        inner = {
            key.name.partition(".")[2]: _property(key)
            for key in KEYS.values()
            if key.name.startswith(f"{section}.")
        }
        properties[section] = {
            "type": "object",
            "properties": inner,
            "additionalProperties": False,
        }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Themis service",
        "description": "The configuration of `themis serve` and `themis node`.",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def _property(key: Key) -> dict[str, Any]:
    about = f"{key.help} {key.variable}, {key.flag}."
    if key.reload:
        about += " May change while the service runs."
    made: dict[str, Any] = {"description": about, **_kind(key)}
    if key.default is not None:
        made["default"] = plain(key.default)
    return made


def _kind(key: Key) -> dict[str, Any]:
    kind = key.kind
    number = {"minimum": kind.low, "maximum": kind.high}
    account = {"anyOf": [{"type": "integer", "minimum": 1}, _text(_ACCOUNT)]}
    forms: dict[str, dict[str, Any]] = {
        "address": {"type": "string", "pattern": _ADDRESS},
        "path": {"type": "string", "minLength": 1},
        "text": {"type": "string", "minLength": 1},
        "name": {"type": "string", "pattern": _NAME},
        "name or empty": {"type": "string", "maxLength": 63},
        "choice": {"enum": list(kind.choices)},
        "engine": {"anyOf": [{"enum": list(ENGINES)}, _text(RAY_ADDRESS)]},
        "plain or empty": {"type": "string", "pattern": r"^([A-Za-z0-9_][A-Za-z0-9_.,:@\[\]-]*)?$"},
        "label or empty": _text(LABEL),
        "flag": {"type": "boolean"},
        "count": {"type": "integer", "minimum": int(kind.low), "maximum": int(kind.high)},
        "number": {"type": "number", **number},
        "seconds": {"anyOf": [{"type": "number", **number}, _text(_DURATION)]},
        "bytes": {
            "anyOf": [
                {"type": "integer", "minimum": int(kind.low), "maximum": int(kind.high)},
                _text(_SIZE),
            ]
        },
        "store": {"type": "string", "pattern": "^(|sqlite:///.+|postgresql://.+)$"},
        "hosts": {"type": "array", "items": {"type": "string"}},
        "account": account,
        "accounts": {"type": "object", "propertyNames": {"pattern": _NAME}} | _values(account),
        "scalars": {
            "type": "object",
            "properties": {name: {} for name in SETTING_NAMES},
        }
        | _values({"type": ["string", "number", "boolean"]}),
    }
    return forms[kind.name]


def _text(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": pattern}


def _values(schema: dict[str, Any]) -> dict[str, Any]:
    return {"additionalProperties": schema}
