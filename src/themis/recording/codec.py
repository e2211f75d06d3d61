"""Events, commands and records as plain JSON, and back to equal objects.

    text = dumps(events.AppEnded(at=3.0, app=AppId("sweep")))
    text                          # {"type":"app-ended","at":3.0,"app":"sweep","outcome":"finished"}
    event_from(loads(text))       # the same event again
    part_from("gpu/3", loads(dumps(part)))    # the same part of an arbiter's state

Driven by the types alone: a new event or field needs no line here. Reading is strict: no bool for a
number, no NaN or infinity, no unknown or repeated key. A key may be missing if its field has a
default, so that logs outlive the fields that are added later.
"""

import json
import marshal
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, NewType, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from themis.core.arbiter.commands import Command
from themis.core.arbiter.events import Event
from themis.core.arbiter.state_parts import Part, kind_of
from themis.core.model import JobSpec
from themis.errors import InvariantError, RefusedError, ThemisError
from themis.recording.tags import COMMANDS, EVENTS, TAG, TAG_OF
from themis.recording.yaml_documents import shown, told

_ALIKE = frozenset({JobSpec})
"""Kinds of which the same values come again and again: the jobs of a sweep differ in little."""
_MOST_SHARED = 4096
_LONGEST_SHARED = 1000
"""Bytes of a value that is remembered: whoever sends long ones, all different, must not be
able to fill the memory with them."""

TOO_DEEP = "it is nested too deeply, allowed: some hundreds of levels"
TOO_LONG = "an integer has thousands of digits, allowed: at most 4300"
"""What Python says of neither in words that help."""

_Kind = TypeVar("_Kind")
_Decode = Callable[[Any], Any]


# Writing


def dumps(value: object) -> str:
    """One line of ASCII: fields in their order, sets sorted, mappings as they come.

    Mappings keep their order because a policy may walk through one that it is given.

    Raises:
        InvariantError: It holds something that is not plain data, a NaN or an infinity.
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvariantError(f"{type(value).__name__} cannot be written down: {error}") from error


def _simpler(value: object) -> object:
    """One step towards plain data, for what JSON does not know."""
    kind: type = type(value)
    step = _STEPS.get(kind)
    if step is None:
        step = _STEPS[kind] = _step(kind)
    return step(value)


_STEPS: dict[type, Callable[[Any], object]] = {}


def _step(kind: type) -> Callable[[Any], object]:
    """That step, for all values of a type."""
    if is_dataclass(kind):
        return _plain(kind)
    if issubclass(kind, Enum):
        return attrgetter("value")
    if issubclass(kind, frozenset | set):
        return sorted
    if issubclass(kind, Mapping):
        return dict
    if issubclass(kind, Sequence) and not issubclass(kind, bytes | bytearray | memoryview):
        return tuple
    raise TypeError(f"{kind.__name__} is not plain data")


def _plain(kind: type) -> Callable[[object], dict[str, object]]:
    """What turns values of a dataclass into objects with a key for each field."""
    entries = [f"{field.name!r}: value.{field.name}" for field in fields(kind)]
    if kind in TAG_OF:
        entries.insert(0, f"{TAG!r}: {TAG_OF[kind]!r}")
    # As dataclasses do it with their methods: half of what a log costs is here, and a display of
    # names that are known is three times as fast as any way to go through them.
    make: Callable[[object], dict[str, object]] = eval(f"lambda value: {{{', '.join(entries)}}}")
    return make


# Values are frozen and cannot contain themselves, so there is no need to look for circles.
_ENCODER = json.JSONEncoder(
    separators=(",", ":"), allow_nan=False, check_circular=False, default=_simpler
)


# Reading


def loads(text: str) -> object:
    """Plain data from JSON.

    Raises:
        RefusedError: It is not JSON, or names a key twice, a NaN or an infinity.
    """
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise RefusedError("JSON", f"{error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise RefusedError("JSON", TOO_DEEP) from None
    except _OddJsonError as error:
        raise RefusedError("JSON", str(error)) from None
    except ValueError:
        raise RefusedError("JSON", TOO_LONG) from None


def loads_own(text: str) -> object:
    """Plain data from JSON that `dumps` wrote, which names no key twice: it is not looked for.

    Raises:
        RefusedError: It is not JSON, or has a NaN or an infinity.
    """
    try:
        return _OWN_DECODER.decode(text)
    except (ValueError, RecursionError):
        return loads(text)  # Which says what is wrong with it.


class _OddJsonError(ValueError):
    """What Python's reader would take and others would not."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _OddJsonError("a key is there twice")
    return found


def _no_constant(name: str) -> float:
    raise _OddJsonError(f"{name} is not a number")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
_OWN_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def event_from(data: object) -> Event:
    """The event in plain data.

    Raises:
        RefusedError: There is none; names the field.
    """
    return cast("Event", _tagged(data, EVENTS, "event"))


def command_from(data: object) -> Command:
    """The command in plain data.

    Raises:
        RefusedError: There is none; names the field.
    """
    return cast("Command", _tagged(data, COMMANDS, "command"))


def part_from(key: str, data: object) -> Part:
    """The part of an arbiter's state that a key names, in plain data.

    Raises:
        RefusedError: There is none; names the key and the field.
    """
    kind: type = kind_of(key)
    try:
        return cast("Part", _decoder(kind)(data))
    except _MisfitError as error:
        raise RefusedError(key + "".join(reversed(error.steps)), error.reason) from None


def decode(kind: type[_Kind], data: object) -> _Kind:
    """The value of a known type in plain data.

    Raises:
        RefusedError: There is none; names the field.
    """
    return cast("_Kind", _decode_at_top(kind, data))


def _tagged(data: object, kinds: Mapping[str, type], what: str) -> object:
    if not isinstance(data, dict):
        raise RefusedError(what, f"{told(data)} is not an object")
    name = data.get(TAG)
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        raise RefusedError(what, f"there is no {what} of type {told(name)}")
    return _decode_at_top(kind, {key: value for key, value in data.items() if key != TAG})


def _decode_at_top(kind: type, data: object) -> object:
    try:
        return _decoder(kind)(data)
    except _MisfitError as error:
        raise RefusedError(kind.__name__ + "".join(reversed(error.steps)), error.reason) from None
    except RecursionError:
        raise RefusedError(kind.__name__, TOO_DEEP) from None


class _MisfitError(Exception):
    """Data that does not fit its type; the way to it is gathered on the way out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []


def _misfit(value: object, allowed: str) -> _MisfitError:
    return _MisfitError(f"{told(value)} is not {allowed}")


# One decoder per type, made when it is first needed


@cache
def _decoder(hint: Any) -> _Decode:
    if isinstance(hint, NewType):
        return _decoder(hint.__supertype__)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if is_dataclass(hint) and isinstance(hint, type):
        return _shared(_object_decoder(hint)) if hint in _ALIKE else _object_decoder(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choice_decoder(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType} and len(arguments) == 2 and NoneType in arguments:
        return _optional_decoder(next(item for item in arguments if item is not NoneType))
    if origin in {Union, UnionType} and TAG_OF.keys() >= set(arguments):
        return _tagged_decoder({TAG_OF[kind]: kind for kind in arguments})
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _sequence_decoder(arguments[0], tuple)
    if origin is tuple:
        return _record_decoder(arguments)
    if origin is Sequence:
        return _sequence_decoder(arguments[0], tuple)
    if origin is frozenset:
        return _sequence_decoder(arguments[0], frozenset)
    if origin is Mapping:
        return _mapping_decoder(arguments[0], arguments[1])
    raise InvariantError(f"values of type {hint} cannot be read back")


def _object_decoder(kind: type) -> _Decode:
    hints = get_type_hints(kind)
    parts = tuple((field.name, _decoder(hints[field.name])) for field in fields(kind))
    known = frozenset(name for name, _ in parts)
    required = frozenset(
        field.name
        for field in fields(kind)
        if field.default is MISSING and field.default_factory is MISSING
    )

    def take(data: Any) -> Any:
        if type(data) is dict and len(data) == len(parts):
            try:
                # As many keys as fields, and each field is found: no key is odd.
                return kind(*[part(data[name]) for name, part in parts])
            except (KeyError, _MisfitError, ThemisError):
                pass  # Below it is found out what is wrong, and where.
        return look_closely(data)

    def look_closely(data: Any) -> Any:
        if type(data) is not dict:
            raise _misfit(data, "an object")
        if data.keys() != known and not required <= data.keys() <= known:
            raise _wrong_keys(data, known, required)
        values = {}
        name = ""
        try:
            for name, part in parts:
                if name in data:
                    values[name] = part(data[name])
        except _MisfitError as error:
            error.steps.append(f".{name}")
            raise
        try:
            return kind(**values)
        except ThemisError as error:
            raise _MisfitError(str(error)) from error

    return take


def _shared(decoder: _Decode) -> _Decode:
    """Read what reads the same once, for values that many others have in common."""
    known: dict[bytes, Any] = {}

    def take(data: Any) -> Any:
        # Tells 1 from 1.0 and from true, which are equal; a later version would also tell which
        # values are the same object.
        try:
            text = marshal.dumps(data, 2)
        except ValueError:  # It is nested more deeply than anything that fits.
            return decoder(data)
        if len(text) > _LONGEST_SHARED:
            return decoder(data)
        value = known.get(text)
        if value is None:
            if len(known) >= _MOST_SHARED:
                known.clear()
            value = known[text] = decoder(data)
        return value

    return take


def _tagged_decoder(kinds: Mapping[str, type]) -> _Decode:
    inners = {name: _decoder(kind) for name, kind in kinds.items()}

    def take(data: Any) -> Any:
        if type(data) is not dict:
            raise _misfit(data, "an object")
        name = data.get(TAG)
        if not isinstance(name, str) or name not in inners:
            raise _misfit(name, f"one of {', '.join(inners)}")
        return inners[name]({key: value for key, value in data.items() if key != TAG})

    return take


def _wrong_keys(
    data: dict[str, object], known: frozenset[str], required: frozenset[str]
) -> _MisfitError:
    missing = sorted(required - data.keys())
    if missing:
        return _MisfitError(f"{missing[0]} is missing")
    unknown = next(key for key in data if key not in known)
    return _MisfitError(f"it has no field {told(unknown)}")


def _choice_decoder(kind: type[Enum]) -> _Decode:
    members = {item.value: item for item in kind}

    def take(data: Any) -> Any:
        found = members.get(data) if isinstance(data, str | int) else None
        # True equals 1 and would pass as a member's value.
        if found is None or type(data) is not type(found.value):
            raise _misfit(data, f"one of {', '.join(str(value) for value in members)}")
        return found

    return take


def _optional_decoder(hint: Any) -> _Decode:
    inner = _decoder(hint)

    def take(data: Any) -> Any:
        return None if data is None else inner(data)

    return take


def _sequence_decoder(hint: Any, make: Callable[[Any], Any]) -> _Decode:
    inner = _decoder(hint)
    # Long lists are mostly GPU numbers and names, which need no more than a look at their types.
    simple = {str} if inner is _string else {int} if inner is _whole else None

    def take(data: Any) -> Any:
        if type(data) is not list:
            raise _misfit(data, "a list")
        if simple is not None and simple.issuperset(map(type, data)):
            made = make(data)
        else:
            made = make(_items(inner, data))
        if len(made) != len(data):
            raise _MisfitError("an entry is there twice")
        return made

    return take


def _record_decoder(hints: tuple[Any, ...]) -> _Decode:
    inners = tuple(_decoder(hint) for hint in hints)

    def take(data: Any) -> Any:
        if type(data) is not list or len(data) != len(inners):
            raise _misfit(data, f"a list of {len(inners)}")
        return tuple(_item(inners[index], index, item) for index, item in enumerate(data))

    return take


def _mapping_decoder(key_hint: Any, value_hint: Any) -> _Decode:
    take_key, take_value = _decoder(key_hint), _decoder(value_hint)
    if take_key is _whole:
        take_key = _whole_key

    def take(data: Any) -> Any:
        if type(data) is not dict:
            raise _misfit(data, "an object")
        return {take_key(key): _item(take_value, key, value) for key, value in data.items()}

    return take


def _items(inner: _Decode, data: list[Any]) -> list[Any]:
    """All of a list; a store of many apps is mostly lists of jobs."""
    done: list[Any] = []
    try:
        for item in data:
            done.append(inner(item))  # noqa: PERF401 - its length is the place of a misfit
    except _MisfitError as error:
        error.steps.append(f"[{len(done)}]")
        raise
    return done


def _item(inner: _Decode, step: object, data: object) -> Any:
    try:
        return inner(data)
    except _MisfitError as error:
        error.steps.append(f"[{shown(step)}]")
        raise


# Scalars


def _string(data: Any) -> Any:
    if type(data) is not str:
        raise _misfit(data, "a text")
    return data


def _whole(data: Any) -> Any:
    if type(data) is not int:
        raise _misfit(data, "a whole number")
    return data


def _whole_key(data: str) -> int:
    # JSON keys are texts; one number has one spelling.
    digits = data.removeprefix("-")
    if not (len(digits) <= 18 and digits.isascii() and digits.isdecimal()):
        raise _misfit(data, "a whole number")
    number = int(data)
    if str(number) != data:
        raise _misfit(data, "a whole number")
    return number


def _number(data: Any) -> Any:
    # A whole number stays one: it prints differently, in refusals for example.
    if type(data) is float and math.isfinite(data):
        return data
    if type(data) is int and abs(data) <= 10**300:
        return data
    raise _misfit(data, "a finite number")


def _truth(data: Any) -> Any:
    if type(data) is not bool:
        raise _misfit(data, "true or false")
    return data


def _anything(data: Any) -> Any:
    """Plain data of any shape, as in the options of a policy."""
    if type(data) is dict:
        return {key: _item(_anything, key, value) for key, value in data.items()}
    if type(data) is list:
        return [_item(_anything, index, item) for index, item in enumerate(data)]
    return data if data is None or type(data) in {str, bool} else _number(data)


_SCALARS: dict[Any, _Decode] = {
    str: _string,
    int: _whole,
    float: _number,
    bool: _truth,
    object: _anything,
    Any: _anything,
}
