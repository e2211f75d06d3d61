"""The API described for programs, and bodies checked against that description."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from themis import __version__
from themis.errors import RefusedError

_KINDS: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
}


class Described(Protocol):
    """What is said of a route."""

    @property
    def method(self) -> str:
        """How it is called."""

    @property
    def path(self) -> str:
        """Where."""

    @property
    def summary(self) -> str:
        """What it does."""

    @property
    def body(self) -> Mapping[str, Any] | None:
        """What it takes."""

    @property
    def query(self) -> Mapping[str, Mapping[str, Any]]:
        """What may stand behind the question mark."""

    @property
    def kind(self) -> str:
        """What it answers with."""

    @property
    def verb(self) -> str:
        """What is decided by the table of access."""


def document(endpoints: Iterable[Described]) -> dict[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for item in endpoints:
        operation: dict[str, Any] = {
            "summary": item.summary,
            "x-themis-verb": str(item.verb),
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in re.findall(r"{(\w+)}", item.path)
            ]
            + [{"name": name, "in": "query", "schema": item.query[name]} for name in item.query],
            "responses": {
                "200": {"description": "Done", "content": {str(item.kind): {}}},
                "default": {
                    "description": "Refused",
                    "content": {
                        "application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}
                    },
                },
            },
        }
        if item.body is not None:
            operation["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": item.body}},
            }
        paths.setdefault(item.path, {})[item.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Themis", "version": __version__},
        "paths": paths,
        "security": [{"token": []}],
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Problem": {
                    "type": "object",
                    "required": ["error", "who", "reason"],
                    "properties": {
                        name: {"type": "string"} for name in ("error", "who", "reason", "reference")
                    },
                }
            },
        },
    }


def check(schema: Mapping[str, Any], value: object, where: str = "body") -> None:
    """Hold a value against the part of JSON Schema that this API uses.

    Raises:
        RefusedError: It does not fit; says where, and what is allowed.
    """
    if "enum" in schema and value not in schema["enum"]:
        raise RefusedError(where, f"allowed: {', '.join(map(str, schema['enum']))}")
    kinds = schema.get("type", ())
    names = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    allowed = tuple(kind for name in names for kind in _KINDS[name])
    wrong = isinstance(value, bool) and bool not in allowed
    if names and (wrong or not isinstance(value, allowed)):
        raise RefusedError(where, f"must be {' or '.join(names)}")
    if isinstance(value, str) and len(value) > schema.get("maxLength", len(value)):
        raise RefusedError(where, f"at most {schema['maxLength']} characters")
    if isinstance(value, int | float) and names:
        _check_number(schema, value, where)
    if isinstance(value, dict):
        _check_object(schema, value, where)
    if isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            raise RefusedError(where, f"at most {schema['maxItems']} entries")
        for index, item in enumerate(value):
            check(schema.get("items", {}), item, f"{where}[{index}]")


def _check_number(schema: Mapping[str, Any], value: float, where: str) -> None:
    # Also what is not a number at all, and integers too large to be made one.
    if not -(10**15) <= value <= 10**15:
        raise RefusedError(where, "must be a number of at most 10^15")
    if value < schema.get("minimum", value):
        raise RefusedError(where, f"at least {schema['minimum']}")
    if value > schema.get("maximum", value):
        raise RefusedError(where, f"at most {schema['maximum']}")
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        raise RefusedError(where, f"more than {schema['exclusiveMinimum']}")


def _check_object(schema: Mapping[str, Any], value: Mapping[str, object], where: str) -> None:
    known: Mapping[str, Any] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            raise RefusedError(f"{where}.{name}", "is missing")
    for name, item in value.items():
        if name in known:
            check(known[name], item, f"{where}.{name}")
        elif not schema.get("additionalProperties", True):
            told = ", ".join(known) or "none"
            raise RefusedError(f"{where}.{str(name)[:60]}", f"there is no such key; keys: {told}")
