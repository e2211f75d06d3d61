"""Compares documents with annotated dataclasses, by pydantic; mistakes name key and line.

    @dataclass(frozen=True, slots=True)
    class StopConditions:
        __pydantic_config__ = KNOWN_KEYS
        eta: Annotated[int, count(2, 100), Help("One trial in `eta` goes on.")] = 2

    Validator(StopConditions).read(data, place)    # or: app.yaml:5: eta: got 1, allowed: ...

The values stay plain dataclasses, which any code can make without a check. Pydantic compares a
document with them and writes their JSON Schema; this module words its errors.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property, partial
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
)
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from themis.core.model.ids import check_count, check_name, check_number
from themis.errors import ConfigError, unknown_name
from themis.recording.written_values import seconds
from themis.recording.yaml_documents import FilePosition, Steps, shown

KNOWN_KEYS = ConfigDict(extra="forbid")
"""The `__pydantic_config__` of dataclasses that stand for mappings in documents."""

_NAME = r"^[a-z0-9][a-z0-9-]{0,62}$"
_DURATION = r"^[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?\s*[smhd]?$"
_KEY = "[key]"
"""What pydantic puts at the end of the way to a key of a mapping."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Refusal:
    given: object
    allowed: str
    steps: Steps

    def __str__(self) -> str:
        # Pydantic puts it into a message that nobody reads; what was given may not be printable.
        return "refused"


def refused(given: object, allowed: str, *steps: str | int) -> PydanticCustomError:
    """The error of a check: what was given, what is allowed, and where below the checked value."""
    return PydanticCustomError("refused", "{it}", {"it": _Refusal(shown(given), allowed, steps)})


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """For `Annotated`: the function that checks a value, and what JSON Schema says of it."""

    check: Callable[[Any], Any]
    """Returns the value that is meant; raises ConfigError or `refused(...)`."""
    schema: Mapping[str, Any] = field(default_factory=dict)
    metavar: str = ""
    """What the help of a command shows for the value."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Called by pydantic."""
        return core_schema.no_info_plain_validator_function(self._checked)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: object) -> dict[str, Any]:
        """Called by pydantic."""
        return dict(self.schema)

    def _checked(self, value: Any) -> Any:
        try:
            return self.check(value)
        except ConfigError as error:
            raise refused(error.given, error.allowed) from None


@dataclass(frozen=True, slots=True)
class Help:
    """For `Annotated`: what a key means, for references, editors and the help of commands."""

    text: str
    live: bool = False
    """Whether the key may change while the service runs."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Called by pydantic."""
        return handler(core) | {"description": self.text}


FLAG = Field(strict=True)
"""For flags: true or false, and not the words and numbers that pydantic takes for them."""


def count(low: int, high: int) -> Checked:
    """A whole number."""
    check = partial(check_count, "value", low=low, high=high)
    return Checked(check, {"type": "integer", "minimum": low, "maximum": high}, "COUNT")


def number(low: float, high: float) -> Checked:
    """A number."""
    check = partial(check_number, "value", low=low, high=high)
    return Checked(check, {"type": "number", "minimum": low, "maximum": high}, "NUMBER")


def period(low: float = 0.0, high: float = 1e9) -> Checked:
    """Seconds, as a number or with a unit, from `low`, or above it where that is zero."""

    def check(value: object) -> float:
        found = seconds(shown(value), "value")
        if not low <= found <= high or found == 0.0:
            bounds = f"from {_period(low)} to {_period(high)}" if low else "above 0s"
            raise ConfigError("value", value, f"a time {bounds}")
        return found

    least = {"minimum": low, "maximum": high} if low else {"exclusiveMinimum": 0}
    forms = [{"type": "number", **least}, {"type": "string", "pattern": _DURATION}]
    return Checked(check, {"anyOf": forms}, "TIME")


def _period(value: float) -> str:
    units = (("d", 86400.0), ("h", 3600.0), ("m", 60.0))
    unit, length = next((pair for pair in units if value >= pair[1]), ("s", 1.0))
    return f"{value / length:g}{unit}"


NAME = Checked(
    lambda value: check_name("name", shown(value)), {"type": "string", "pattern": _NAME}, "NAME"
)


def _short_text(value: object) -> str:
    if not isinstance(value, str) or len(value) > 200:
        raise refused(value, "a text of at most 200 characters")
    return value


SHORT_TEXT = Checked(_short_text, {"type": "string", "maxLength": 200}, "TEXT")


@dataclass(frozen=True, slots=True)
class Mistake:
    """Something wrong in a document."""

    steps: Steps
    """The way to it."""
    key: str
    given: object
    allowed: str
    about_key: bool = False
    """Whether a key is wrong, and not the value under it."""

    def error(self, place: FilePosition) -> ConfigError:
        """The error, with the line where the mistake is."""
        at = place.at(*self.steps)
        return ConfigError(self.key, at.written(self.given), self.allowed, at.where)


class Validator(Generic[T]):
    """Compares documents with an annotated dataclass."""

    def __init__(self, kind: type[T], document: str = "document") -> None:
        """`document` is what errors about keys call the whole document."""
        self.kind, self._document = kind, document

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        # Made when it is first needed: commands read the fields without any document.
        return TypeAdapter(self.kind)

    def read(self, data: object, place: FilePosition) -> T:
        """The value that a document stands for.

        Raises:
            ConfigError: The first mistake in it.
        """
        found = self.examine(data, place)
        if isinstance(found, list):
            errors = [mistake.error(place) for mistake in found]
            raise min(errors, key=line_of)
        return found

    def examine(self, data: object, place: FilePosition | None = None) -> T | list[Mistake]:
        """The value that a document stands for, or all that is wrong with it."""
        try:
            return self._adapter.validate_python(data, context=place or FilePosition())
        except ValidationError as error:
            return [self._mistake(each) for each in error.errors(include_url=False)]

    def plain(self, value: T) -> dict[str, Any]:
        """The value as plain data, to be read again; defaults are left out."""
        made: dict[str, Any] = self._adapter.dump_python(value, mode="json", exclude_defaults=True)
        return made

    def schema(self, title: str, description: str) -> dict[str, Any]:
        """The JSON Schema of documents."""
        made = self._adapter.json_schema(schema_generator=_PlainSchema)
        about = {"title": title, "description": description}
        return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | made | about

    @staticmethod
    def component_schemas(
        validators: Sequence["Validator[Any]"], folder: str
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """A schema for each, and the definitions below `folder` that they refer to."""
        found, definitions = TypeAdapter.json_schemas(
            [(index, "validation", each._adapter) for index, each in enumerate(validators)],
            ref_template=f"{folder}/{{model}}",
            schema_generator=_PlainSchema,
        )
        schemas = [found[index, "validation"] for index in range(len(validators))]
        return schemas, definitions.get("$defs", {})

    def _mistake(self, error: ErrorDetails) -> Mistake:
        steps, given, context = error["loc"], error["input"], error.get("ctx", {})
        if error["type"] == "refused":
            refusal = context["it"]
            given, allowed, steps = refusal.given, refusal.allowed, (*steps, *refusal.steps)
        elif error["type"] == "missing":
            given, allowed = None, "a value: it has no default"
        elif error["type"] in {"unexpected_keyword_argument", "invalid_key"}:
            given = steps[-1] if isinstance(steps[-1], str) else given
            allowed = unknown_name("", shown(given), _names(self.kind, steps[:-1])).allowed
            steps = (*steps, _KEY)
        elif error["type"] == "dataclass_type":
            given = "an empty file" if given is None and not steps else given
            allowed = f"a mapping of {', '.join(sorted(_names(self.kind, steps)))}"
        elif error["type"] in {"enum", "literal_error"}:
            names = re.findall("'([^']+)'", context["expected"])
            allowed = unknown_name("", shown(given), names).allowed
        else:
            allowed = _WORDS.get(error["type"], "{msg}").format(**context, msg=error["msg"])
        if steps and steps[-1] == _KEY:
            allowed = "keys that are words" if error["type"] == "string_type" else allowed
            parent = FilePosition(steps=steps[:-2]).key if steps[:-2] else self._document
            return Mistake(steps[:-1], f"key in {parent}", shown(given), allowed, about_key=True)
        return Mistake(steps, FilePosition(steps=steps).key, shown(given), allowed)


_WORDS = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "list_type": "a list",
    "mapping_type": "a mapping",
    "string_unicode": "text in Unicode",
    "too_long": "at most {max_length} entries",
    "too_short": "at least one entry",
    "tuple_type": "a list",
}
"""What is allowed, by pydantic's names of errors."""


class _PlainSchema(GenerateJsonSchema):
    """Without titles that repeat keys, and without values that only stand for a missing key."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def nullable_schema(self, schema: Any) -> dict[str, Any]:
        inner = self.generate_inner(schema["schema"])
        # No file says null where it could leave out a whole section.
        return inner if "$ref" in inner else super().nullable_schema(schema)

    def default_schema(self, schema: Any) -> dict[str, Any]:
        default = schema.get("default")
        if isinstance(default, bool) or (default and not hasattr(default, "__pydantic_config__")):
            return super().default_schema(schema)
        return self.generate_inner(schema["schema"])


def _names(kind: Any, steps: Steps) -> list[str]:
    """The keys of the mapping that these steps lead to."""
    for step in steps:
        hint = get_type_hints(kind)[str(step)]
        kind = next(each for each in (hint, *get_args(hint)) if is_dataclass(each))
    return [each.name for each in fields(kind)]


def line_of(error: ConfigError) -> int:
    """The line that an error names, or 0."""
    line = error.where.rpartition(":")[2]
    return int(line) if line.isdecimal() else 0
