from typing import Any

import pytest

from themis.apps import app_schema, parse_app
from themis.errors import ConfigError

SCHEMA = app_schema()


def keys(schema: dict[str, Any], above: str = "") -> dict[str, dict[str, Any]]:
    """Every key with its schema, as an editor sees it."""
    found = {}
    for name, given in schema["properties"].items():
        part = SCHEMA["$defs"].get(given.get("$ref", "").removeprefix("#/$defs/"), {}) | given
        found[above + name] = part
        if "properties" in part:
            found |= keys(part, f"{above}{name}.")
    return found


def app_with(key: str, value: Any) -> dict[str, Any]:
    app: dict[str, Any] = {"name": "a", "command": ["x"]}
    outer, dot, inner = key.partition(".")
    return app | {outer: {inner: value} if dot else value}


def test_schema_lists_the_required_keys() -> None:
    assert SCHEMA["required"] == ["name", "command"]
    assert SCHEMA["$defs"]["Search"]["required"] == ["params"]


@pytest.mark.parametrize("key", keys(SCHEMA))
def test_every_key_has_a_meaning_and_a_valid_default(key: str) -> None:
    schema = keys(SCHEMA)[key]
    assert schema["description"].endswith(".")
    if "default" in schema and not key.startswith("search."):
        assert parse_app(app_with(key, schema["default"])) == parse_app(app_with("name", "a"))


@pytest.mark.parametrize(
    "key", [key for key, schema in keys(SCHEMA).items() if schema.get("type") == "integer"]
)
def test_numbers_beyond_the_bounds_of_the_schema_are_refused(key: str) -> None:
    schema = keys(SCHEMA)[key]
    for value in (schema["minimum"] - 1, schema["maximum"] + 1):
        with pytest.raises(ConfigError, match=f"whole number from {schema['minimum']} to"):
            parse_app(app_with(key, value))
