"""The keys of files that people write, as tables."""

from typing import Any

from themis.apps import app_schema
from themis.config.keys import KEYS, Key
from themis.config.value_types import plain


def app_keys() -> str:
    """Every key of the app file."""
    head = ["| key | may be | default | meaning |", "|---|---|---|---|"]
    schema = app_schema()
    return "\n".join([*head, *_rows(schema, schema["$defs"]), ""])


def _rows(schema: dict[str, Any], parts: dict[str, Any], above: str = "") -> list[str]:
    """A row for every key, those of sections below their section."""
    made = []
    for name, given in schema["properties"].items():
        item = parts.get(given.get("$ref", "").removeprefix("#/$defs/"), {}) | given
        default = f"`{_plain(item['default'])}`" if "default" in item else ""
        cells = (f"`{above}{name}`", _kind(item), default, item["description"])
        made.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
        if "properties" in item:
            made += _rows(item, parts, f"{above}{name}.")
    return made


def _plain(value: Any) -> Any:
    return f"{value:g}" if isinstance(value, float) else value


def _kind(schema: dict[str, Any]) -> str:
    """What a value may be."""
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    match schema.get("type"):
        case "integer":
            return f"a whole number, {schema['minimum']} to {schema['maximum']}"
        case "number" if "minimum" in schema:
            return f"a number, {schema['minimum']:g} to {schema['maximum']:g}"
        case "number":
            return "a number above 0"
        case "array":
            return "a list"
        case "object":
            return "a mapping"
        case "string":
            return "a name" if "pattern" in schema else "a text"
        case None:
            return "a time"
        case _:
            return "a size"


def service_keys() -> str:
    """Every key of the service's configuration."""
    head = [
        "| key | variable | default | may change while it runs | meaning |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(_row(key) for key in KEYS.values()), ""])


def _row(key: Key) -> str:
    live = " yes " if key.reload else "  "
    return f"| `{key.name}` | `{key.variable}` | {_default(key)} |{live}| {key.help} |"


def _default(key: Key) -> str:
    if key.name == "state_dir":  # What it is here says nothing of elsewhere.
        return "`/var/lib/themis` as root, else `~/.local/state/themis`"
    if key.default in (None, "", (), {}):
        return ""
    value = plain(key.default)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
