"""One converter for all messages, driven by the types of the fields alone.

    to_message(EndSaid("finished"))                  # themis_pb2.EndSaid(outcome="finished")
    from_message(EndSaid, message)                   # the same again

A dataclass is the message of its name; a union is a message with a oneof; a pair is a message with
two fields; an enum is its text. A new field needs a line in the .proto and none here, and a test
looks that none is forgotten. Nothing that comes in is believed: what does not fit is refused with
its place, what was given and what is allowed.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, NewType, TypeVar, Union, cast, get_args, get_origin
from typing import get_type_hints as hints_of

from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from themis.errors import InvariantError, RefusedError, ThemisError
from themis.live.wire import themis_pb2

ONEOF = "kind"
"""The name of the oneof in messages that stand for unions."""
_SIGNED = frozenset({("RunReport", "code"), ("RunNews", "code")})
"""Whole numbers that may be negative: of what died of a signal. All others count something."""
_LONG = frozenset({("Program", "argv"), ("Program", "env"), ("Program", "workdir")})
"""Texts that may be as long as the kernel takes them."""
_MOST_ID = 255
_MOST_LONG = 128 << 10
_MOST_WHOLE = 2**62

_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is taken."""

    size: int = 256 << 10
    """Bytes of a message."""
    rows: int = 4096
    """Entries of any list in it."""
    text: int = 16 << 10
    """Characters of any text in it, but for names and command lines."""


DOWN = Bounds(size=4 << 20, rows=1 << 20)
"""For what the service says: a large cluster has many GPUs."""


def to_message(value: object) -> Message:
    """The message that says the same.

    Raises:
        RefusedError: It cannot be said: a number that is not finite, a text that is too long.
    """
    return cast("Message", _at_top(type(value), _codec_of(type(value)).encode, value, DOWN))


def from_message(kind: type[_Kind], message: Message, bounds: Bounds | None = None) -> _Kind:
    """The value that a message says.

    Raises:
        RefusedError: It makes no sense; names the field, what was given and what is allowed.
    """
    return cast("_Kind", _at_top(kind, _codec_of(kind).decode, message, bounds or Bounds()))


def to_bytes(value: object) -> bytes:
    """The message as it travels.

    Raises:
        RefusedError: It cannot be said.
    """
    return bytes(to_message(value).SerializeToString())


def from_bytes(kind: type[_Kind], raw: bytes, bounds: Bounds | None = None) -> _Kind:
    """The value in a message as it came.

    Raises:
        RefusedError: It is none, too long, or makes no sense.
    """
    bounds = bounds or Bounds()
    if len(raw) > bounds.size:
        reason = f"{len(raw)} bytes, allowed: at most {bounds.size}"
        raise RefusedError(kind.__name__, reason)
    try:
        message = message_class(kind).FromString(raw)
    except DecodeError:
        raise RefusedError(kind.__name__, "this is not such a message") from None
    return from_message(kind, message, bounds)


def message_class(kind: type) -> type[Message]:
    """The message that stands for a dataclass: the one of the same name."""
    found = getattr(themis_pb2, kind.__name__, None)
    if found is None:
        raise InvariantError(f"the .proto has no message {kind.__name__}")
    return cast("type[Message]", found)


class _MisfitError(Exception):
    """A value that does not fit; the way to it is gathered on the way out."""

    def __init__(self, given: object, allowed: str) -> None:
        super().__init__(allowed)
        self.reason = f"{_shown(given)}, allowed: {allowed}"
        self.steps: list[str] = []


class _UnfitError(_MisfitError):
    """What the value itself says when it is made."""

    def __init__(self, reason: str) -> None:
        super().__init__(None, "")
        self.reason = reason


_Convert = Callable[[Any, Bounds], Any]


class _Codec(NamedTuple):
    encode: _Convert
    decode: _Convert


def _at_top(kind: type, convert: _Convert, value: object, bounds: Bounds) -> object:
    try:
        return convert(value, bounds)
    except _MisfitError as error:
        place = kind.__name__ + "".join(reversed(error.steps))
        raise RefusedError(place, error.reason) from None


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    text = repr(value.value if isinstance(value, Enum) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# Codecs, one for each type, made when it is first needed


def _codec_of(kind: Any) -> _Codec:
    # Only so that it can be called with a type of anything, which mypy does not believe hashable.
    return _codec(kind)


@cache
def _codec(kind: type) -> _Codec:
    """Of a dataclass."""
    message = message_class(kind)
    known = message.DESCRIPTOR.fields_by_name
    hints = hints_of(kind)
    parts = []
    for field in fields(kind):
        if field.name not in known:
            raise InvariantError(f"the message {kind.__name__} has no field {field.name}")
        about = _Place(kind.__name__, field.name, known[field.name])
        required = field.default is MISSING and field.default_factory is MISSING
        parts.append((field.name, _field_codec(hints[field.name], about), about, required))

    # Thousands of these run in every round: no call that is not needed, and the way to a misfit
    # is gathered only when there is one.
    encoders = [(name, part.encode) for name, part, _, _ in parts]
    decoders = [(name, part.decode, a.has_presence, needed) for name, part, a, needed in parts]

    def encode(value: Any, bounds: Bounds) -> Message:
        said = {}
        name = ""
        try:
            for name, convert in encoders:
                inner = getattr(value, name)
                if inner is not None:
                    said[name] = convert(inner, bounds)
        except _MisfitError as error:
            error.steps.append(f".{name}")
            raise
        return message(**said)

    def decode(given: Any, bounds: Bounds) -> Any:
        values = {}
        name, missing = "", ""
        try:
            for name, convert, optional, required in decoders:
                if optional and not given.HasField(name):
                    missing = missing or (name if required else "")
                    if missing:
                        break
                    continue
                values[name] = convert(getattr(given, name), bounds)
        except _MisfitError as error:
            error.steps.append(f".{name}")
            raise
        if missing:
            raise _UnfitError(f"{missing} is missing")
        try:
            return kind(**values)
        except ThemisError as error:
            raise _UnfitError(str(error)) from None

    return _Codec(encode, decode)


class _Place:
    """The field that a codec is for."""

    def __init__(self, message: str, name: str, descriptor: Any) -> None:
        self.key = (message, name)
        self.inner = descriptor.message_type
        """The descriptor of the message in it, if it is one."""
        self.has_presence: bool = descriptor.has_presence


def _field_codec(hint: Any, place: _Place) -> _Codec:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        kinds = [item for item in arguments if item is not NoneType]
        if len(kinds) == 1:
            return _field_codec(kinds[0], place)
        return _union_codec(kinds, place)
    if origin is Sequence or (origin is tuple and arguments[1:] == (Ellipsis,)):
        return _list_codec(_field_codec(arguments[0], place))
    if origin is tuple and place.inner is not None:
        return _record_codec(arguments, place)
    if origin is tuple:
        return _list_codec(_field_codec(arguments[0], place), len(arguments))
    if is_dataclass(hint) and isinstance(hint, type):
        return _codec(hint)
    return _scalar_codec(hint, place)


def _union_codec(kinds: list[type], place: _Place) -> _Codec:
    """One of several dataclasses: a message with one field for each in a oneof."""
    message = GetMessageClass(place.inner)
    names = {item.message_type.name: item.name for item in place.inner.oneofs_by_name[ONEOF].fields}
    by_kind = {kind: (names[kind.__name__], _codec(kind)) for kind in kinds}
    by_name = dict(by_kind.values())

    def encode(value: Any, bounds: Bounds) -> Any:
        name, codec = by_kind[type(value)]
        return message(**{name: _step(codec.encode, value, bounds, f".{name}")})

    def decode(given: Any, bounds: Bounds) -> Any:
        name = given.WhichOneof(ONEOF)
        if name is None:
            raise _MisfitError(None, f"one of {', '.join(sorted(by_name))}")
        return _step(by_name[name].decode, getattr(given, name), bounds, f".{name}")

    return _Codec(encode, decode)


def _list_codec(inner: _Codec, length: int | None = None) -> _Codec:
    def check(given: Any, bounds: Bounds) -> None:
        if length is not None and len(given) != length:
            raise _MisfitError(len(given), f"{length} entries")
        if len(given) > bounds.rows:
            raise _MisfitError(len(given), f"at most {bounds.rows} entries")

    def through(convert: _Convert, make: Callable[[Any], Any]) -> _Convert:
        def run(given: Any, bounds: Bounds) -> Any:
            check(given, bounds)
            if convert is _count and _are_counts(given):
                return make(given)
            done: list[Any] = []
            try:
                for item in given:
                    done.append(convert(item, bounds))  # noqa: PERF401 - its length is the place
            except _MisfitError as error:
                error.steps.append(f"[{len(done)}]")
                raise
            return make(done)

        return run

    return _Codec(through(inner.encode, list), through(inner.decode, tuple))


def _record_codec(hints: tuple[Any, ...], place: _Place) -> _Codec:
    """A tuple of different things: a message with its fields in that order."""
    message = GetMessageClass(place.inner)
    names = [item.name for item in sorted(place.inner.fields, key=lambda item: item.number)]
    parts = [(name, _scalar_codec(hint, place)) for name, hint in zip(names, hints, strict=True)]

    def encode(value: Any, bounds: Bounds) -> Any:
        return message(
            **{
                name: _step(part.encode, item, bounds, f".{name}")
                for (name, part), item in zip(parts, value, strict=True)
            }
        )

    def decode(given: Any, bounds: Bounds) -> Any:
        return tuple(
            _step(part.decode, getattr(given, name), bounds, f".{name}") for name, part in parts
        )

    return _Codec(encode, decode)


def _step(convert: _Convert, value: Any, bounds: Bounds, step: str) -> Any:
    try:
        return convert(value, bounds)
    except _MisfitError as error:
        error.steps.append(step)
        raise


# Scalars, the same in both directions


def _scalar_codec(hint: Any, place: _Place) -> _Codec:
    if isinstance(hint, NewType) and hint.__supertype__ is str:
        return _both(lambda value, _: _text(value, _MOST_ID))
    if isinstance(hint, NewType):
        return _scalar_codec(hint.__supertype__, place)
    if hint is str and place.key in _LONG:
        return _both(lambda value, _: _text(value, _MOST_LONG))
    if hint is str:
        return _both(lambda value, bounds: _text(value, bounds.text))
    if hint is int and place.key in _SIGNED:
        return _both(lambda value, _: _whole(value, -_MOST_WHOLE))
    if hint is int:
        return _both(_count)
    if hint is float:
        return _both(_number)
    if hint is bool:
        return _both(_truth)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _word_codec(hint)
    raise InvariantError(f"{'.'.join(place.key)}: values of type {hint} do not travel")


def _both(check: _Convert) -> _Codec:
    return _Codec(check, check)


def _word_codec(kind: type[Enum]) -> _Codec:
    members = {str(item.value): item for item in kind}

    def decode(given: Any, _: Bounds) -> Any:
        found = members.get(given)
        if found is None:
            raise _MisfitError(given, f"one of {', '.join(members)}")
        return found

    return _Codec(lambda value, _: str(kind(value).value), decode)


_SURROGATE = re.compile("[\ud800-\udfff]")


def _text(value: Any, most: int) -> str:
    if type(value) is str and value.isascii() and len(value) <= most:
        return value
    if not isinstance(value, str) or _SURROGATE.search(value):
        raise _MisfitError(value, "a text in Unicode")
    if len(value) > most:
        raise _MisfitError(f"{len(value)} characters", f"at most {most}")
    return value


def _whole(value: Any, low: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= _MOST_WHOLE:
        least = "from 0" if low == 0 else "from -2^62"
        raise _MisfitError(_short(value), f"a whole number {least} to 2^62")
    return value


def _count(value: Any, _: Bounds) -> int:
    if type(value) is int and 0 <= value <= _MOST_WHOLE:
        return value
    return _whole(value, 0)


def _are_counts(values: Sequence[Any]) -> bool:
    """Whether all of a list are what `_count` takes: long ones are numbers of GPUs."""
    if not values:
        return True
    return set(map(type, values)) == {int} and min(values) >= 0 and max(values) <= _MOST_WHOLE


def _short(value: object) -> object:
    # Python refuses to write out integers of thousands of digits.
    long = isinstance(value, int) and abs(value) > 10**18
    return "an integer of more than 18 digits" if long else value


def _number(value: Any, _: Bounds) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _MisfitError(value, "a number")
    if isinstance(value, int) and abs(value) > 10**18:
        raise _MisfitError(_short(value), "a finite number")
    if not math.isfinite(value):
        raise _MisfitError(value, "a finite number")
    return float(value)


def _truth(value: Any, _: Bounds) -> bool:
    if not isinstance(value, bool):
        raise _MisfitError(value, "true or false")
    return value
