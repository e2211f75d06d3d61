"""Bodies of requests: what each may hold, and how one is read and checked."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request

from themis.core.model.ids import LEAST_WEIGHT, MOST_WEIGHT
from themis.errors import RefusedError
from themis.recording.codec import loads
from themis.recording.forecast_questions import LONGEST, MOST_SEEDS
from themis.security.tokens import Role

Schema = Mapping[str, Any]
"""The part of JSON Schema that `check` knows."""

_EMPTY: Schema = {"type": "object", "additionalProperties": False}

_TEXT = {"type": "string", "maxLength": 200}
SUBMISSION = {
    "type": "object",
    "required": ["key"],
    "properties": {
        "app": {"type": "object"},
        "spec": {"type": "object"},
        "key": _TEXT,
        "owner": _TEXT,
        "seed": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**63 - 1},
        "dry_run": {"type": "boolean"},
    },
    "additionalProperties": False,
}
QUOTA = {
    "type": "object",
    "required": ["gpus"],
    "properties": {"gpus": {"type": ["integer", "null"], "minimum": 0}},
    "additionalProperties": False,
}
WEIGHT = {
    "type": "object",
    "required": ["weight"],
    "properties": {
        "weight": {"type": "number", "minimum": LEAST_WEIGHT, "maximum": MOST_WEIGHT},
    },
    "additionalProperties": False,
}
NEW_TOKEN = {
    "type": "object",
    "required": ["role", "subject"],
    "properties": {
        "role": {"enum": [str(role) for role in Role]},
        "subject": _TEXT,
        "days": {"type": ["number", "null"], "exclusiveMinimum": 0},
        "note": _TEXT,
    },
    "additionalProperties": False,
}
_ANY_OF = {"type": "array", "maxItems": 7}
FORECAST = {
    "type": "object",
    "required": ["app"],
    "properties": {
        "app": {"type": "object"},
        "owner": _TEXT,
        "seed": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**63 - 1},
        "gpus": {**_ANY_OF, "items": {"type": "integer", "minimum": 1}},
        "stop": {**_ANY_OF, "items": _TEXT},
        "at": {**_ANY_OF, "items": {"type": ["string", "number"]}},
        "policy": {**_ANY_OF, "items": _TEXT},
        "add_machines": {**_ANY_OF, "items": {"type": ["integer", "array"]}},
        "seeds": {"type": "integer", "minimum": 1, "maximum": MOST_SEEDS},
        "seconds": {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST},
    },
    "additionalProperties": False,
}

_KINDS: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
}


async def read_body(request: Request, schema: Schema | None, most_bytes: int) -> dict[str, Any]:
    """The JSON object that a request brings.

    Raises:
        RefusedError: It is too long, cut off, no JSON object, or does not fit its schema.
    """
    text = b""
    try:
        async for part in request.stream():
            text += part
            if len(text) > most_bytes:
                raise RefusedError("body", f"more than {most_bytes} bytes")
    except ClientDisconnect:
        raise RefusedError("body", "the connection ended before the body did") from None
    try:
        data: Any = loads(text.decode()) if text else {}
    except UnicodeDecodeError:
        raise RefusedError("body", "it is not UTF-8") from None
    if not isinstance(data, dict):
        raise RefusedError("body", "it must be a JSON object")
    check(schema or _EMPTY, data)
    return data


def check(schema: Schema, value: object, where: str = "body") -> None:
    """Check a value against a schema.

    Raises:
        RefusedError: It does not fit; names the key and what is allowed.
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


def _check_number(schema: Schema, value: float, where: str) -> None:
    # Also what is not a number at all, and integers too large to be made one.
    if not -(10**15) <= value <= 10**15:
        raise RefusedError(where, "must be a number of at most 10^15")
    if value < schema.get("minimum", value):
        raise RefusedError(where, f"at least {schema['minimum']}")
    if value > schema.get("maximum", value):
        raise RefusedError(where, f"at most {schema['maximum']}")
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        raise RefusedError(where, f"more than {schema['exclusiveMinimum']}")


def _check_object(schema: Schema, value: Mapping[str, object], where: str) -> None:
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
