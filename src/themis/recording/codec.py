"""Events, commands, records and kept rows as JSON, and back to equal objects.

    text = dumps(events.AppEnded(at=3.0, app=AppId("sweep")))
    text                          # {"type":"app-ended","at":3.0,"app":"sweep","outcome":"finished"}
    event_from(loads(text))       # the same event again
    part_from("gpu/3", loads(dumps(part)))    # the same part of an arbiter's state

The types of the fields say how to read and write: a new field needs no line here. Reading is
strict: no bool for a number, no NaN or infinity, no unknown or repeated key. A key may be missing
if its field has a default, so that logs outlive fields that are added later. Decision 0016 compares
this with msgspec and cattrs.
"""

import json
import marshal
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from json.encoder import c_make_encoder, encode_basestring_ascii  # type: ignore[attr-defined]
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

_SHARED = frozenset({JobSpec})
"""Kinds of which equal values come again and again: the jobs of a sweep differ in little."""
_MOST_SHARED = 4096
_LONGEST_SHARED = 1000
"""Bytes: a client that sends long jobs, all different, must not fill the memory with them."""

TOO_DEEP = "it is nested too deeply, allowed: some hundreds of levels"
TOO_LONG = "an integer has thousands of digits, allowed: at most 4300"
"""Python's own messages for these two do not help."""

_WHOLE_KEY = re.compile("0|-?[1-9][0-9]{0,17}")

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
        return "".join(_ENCODE(value, 0))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvariantError(f"{type(value).__name__} cannot be written down: {error}") from error


def _simpler(value: object) -> object:
    """One step towards plain data, for values that JSON does not know."""
    kind: Any = type(value)
    tag = _SLOTTED.get(kind)
    if tag is None:
        return _step(kind)(value)
    # Half of the time of a log passes here, and this is the quickest way to all slots of a value.
    state: Any = object.__getstate__(value)
    return {TAG: tag, **state[1]} if tag else state[1]


_SLOTTED: dict[type, str] = {}
"""Dataclasses seen so far whose slots are their fields, with their tags; "" for no tag."""


@cache
def _step(kind: type) -> Callable[[Any], object]:
    """That step, for all values of a type."""
    if is_dataclass(kind):
        names = tuple(field.name for field in fields(kind))
        tag = TAG_OF.get(kind, "")
        if names and kind.__dict__.get("__slots__") == names:
            _SLOTTED[kind] = tag
            return _simpler
        start = {TAG: tag} if tag else {}
        return lambda value: start | {name: getattr(value, name) for name in names}
    if issubclass(kind, Enum):
        return attrgetter("value")
    if issubclass(kind, frozenset | set):
        return sorted
    if issubclass(kind, Mapping):
        return dict
    if issubclass(kind, Sequence) and not issubclass(kind, bytes | bytearray | memoryview):
        return tuple
    raise TypeError(f"{kind.__name__} is not plain data")


# The encoder that `JSONEncoder.encode` makes anew for every line, a sixth of what a log costs.
# Values are frozen and cannot contain themselves, so it need not look for circles.
_ENCODE = c_make_encoder(
    None, _simpler, encode_basestring_ascii, None, ":", ",", False, False, False
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
    """JSON that Python's reader would take and others would not."""


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
    return cast("Part", _read(kind_of(key), data, key))


def decode(kind: type[_Kind], data: object) -> _Kind:
    """The value of a known type in plain data.

    Raises:
        RefusedError: There is none; names the field.
    """
    return cast("_Kind", _read(kind, data, getattr(kind, "__name__", str(kind))))


def _tagged(data: object, kinds: Mapping[str, type], what: str) -> object:
    if not isinstance(data, dict):
        raise RefusedError(what, f"{told(data)} is not an object")
    tag = data.get(TAG)
    if not isinstance(tag, str) or tag not in kinds:
        raise RefusedError(what, f"there is no {what} of type {told(tag)}")
    return _read(kinds[tag], _untagged(data), tag)


def _untagged(data: dict[str, Any]) -> dict[str, Any]:
    rest = data.copy()
    del rest[TAG]
    return rest


def _read(kind: type, data: object, name: str) -> object:
    try:
        return _decoder(kind)(data)
    except _MisfitError as error:
        raise RefusedError(name + "".join(reversed(error.steps)), error.reason) from None
    except RecursionError:
        raise RefusedError(name, TOO_DEEP) from None


class _MisfitError(Exception):
    """Data that does not fit its type; callers add the steps that lead to it."""

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
        return _shared(_object_decoder(hint)) if hint in _SHARED else _object_decoder(hint)
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
                # As many keys as fields and each field found: no key is unknown.
                return kind(*[part(data[name]) for name, part in parts])
            except (KeyError, _MisfitError, ThemisError):
                pass  # Read again below, slowly, to say what is wrong and where.
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
    """A decoder that reads equal data once, for values that many others have in common."""
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
        return inners[name](_untagged(data))

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
    if not _WHOLE_KEY.fullmatch(data):
        raise _misfit(data, "a whole number")
    return int(data)


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
