"""One converter for all messages, driven by the types of the fields alone.

    to_message(EndApp("finished"))                  # themis_pb2.EndApp(outcome="finished")
    from_message(EndApp, message)                   # the same again

A dataclass is the message of its name, a union a message with a oneof, a pair a message with two
fields, an enum its text. A new field needs a line in the .proto and none here; a test fails if one
is forgotten. Incoming messages are not trusted: a value that does not fit is refused with its
place, the value and what is allowed.

Lists are converted by columns: a hundred rows are one list of a hundred counts, one of a hundred
seconds, and so on, each checked as a whole, several times as fast as row by row. A thousand agents
bid within the same second.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from itertools import accumulate, chain, islice
from operator import attrgetter, methodcaller
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin
from typing import get_type_hints as hints_of

from google.protobuf.message import DecodeError, Message

from themis.core.auction.problem import MAX_ROWS
from themis.core.model import Offer
from themis.core.model import Row as BidRow
from themis.errors import InvariantError, RefusedError, ThemisError
from themis.rpc.wire import themis_pb2
from themis.rpc.wire.columns import (
    Bounds,
    Codec,
    Column,
    Convert,
    FieldContext,
    MisfitError,
    scalar_codec,
)

ONEOF = "kind"
"""The name of the oneof in messages that stand for unions."""
_Kind = TypeVar("_Kind")
Row = dict[str, Any]
"""The fields of a message by name; Protobuf makes a message from it."""

_SHARED = frozenset({Offer})
"""Kinds whose messages are kept and used again: in a round hundreds of apps get equal offers."""
_MOST_SHARED = 64
_MOST = {BidRow: MAX_ROWS}
"""Lower limits on lists of some kinds: each row of a bid takes time in every round."""
_EASY_WHOLE, _EASY_TEXT = 2**53, 255
"""The largest whole number and the longest text that every field of its type takes."""

DOWN = Bounds(size=4 << 20, rows=1 << 20)
"""For messages of the service: a large cluster has many GPUs."""


def to_message(value: object) -> Message:
    """The message of a value.

    Raises:
        RefusedError: A field cannot be sent: a number that is not finite, a text that is too long.
    """
    kind: Any = type(value)
    row = cast("Row", _at_top(kind, _codec(kind).encode, value, DOWN))
    return message_class(kind)(**row)


def from_message(kind: type[_Kind], message: Message, bounds: Bounds | None = None) -> _Kind:
    """The value of a message.

    Raises:
        RefusedError: A field does not fit; names it, its value and what is allowed.
    """
    known: Any = kind  # mypy takes a type of any class for unhashable
    return cast("_Kind", _at_top(kind, _codec(known).decode, message, bounds or Bounds()))


def to_bytes(value: object) -> bytes:
    """The bytes of a value's message.

    Raises:
        RefusedError: A field cannot be sent.
    """
    return bytes(to_message(value).SerializeToString())


def from_bytes(kind: type[_Kind], raw: bytes, bounds: Bounds | None = None) -> _Kind:
    """The value in the bytes of a message.

    Raises:
        RefusedError: They are no such message, too long, or a field does not fit.
    """
    bounds = bounds or Bounds()
    return from_message(kind, parse(kind, raw, bounds), bounds)


def parse(kind: type, raw: bytes, bounds: Bounds) -> Message:
    """The message in these bytes, its fields not checked yet: for a look before the work.

    Raises:
        RefusedError: They are no such message, or too long.
    """
    if len(raw) > bounds.size:
        reason = f"{len(raw)} bytes, allowed: at most {bounds.size}"
        raise RefusedError(kind.__name__, reason)
    try:
        return message_class(kind).FromString(raw)
    except DecodeError:
        raise RefusedError(kind.__name__, "this is not such a message") from None


def message_class(kind: type) -> type[Message]:
    """The message of a dataclass: the one of the same name."""
    found = getattr(themis_pb2, kind.__name__, None)
    if found is None:
        raise InvariantError(f"the .proto has no message {kind.__name__}")
    return cast("type[Message]", found)


def _at_top(kind: type, convert: Convert, value: object, bounds: Bounds) -> object:
    try:
        return convert([value], bounds)[0]
    except MisfitError as error:
        place = kind.__name__ + "".join(reversed(error.steps))
        raise RefusedError(place, error.reason) from None


# Codecs, one for each type, made when it is first needed


class _Field:
    """A field of a dataclass and the one of its message."""

    def __init__(self, kind: type, field: "Field[Any]", hint: Any, descriptor: Any) -> None:
        self.name = field.name
        self.get = attrgetter(field.name)
        self.has = methodcaller("HasField", field.name)
        self.presence: bool = descriptor.has_presence
        self.codec = _field_codec(hint, FieldContext(kind.__name__, field.name, descriptor))
        base = getattr(hint, "__supertype__", hint)
        self.plain = base if base in {int, str, float, bool} else None
        self.repeated = _is_list(hint)
        self.default = field.default
        self.required = field.default is MISSING

    def encode(self, column: Column, bounds: Bounds) -> Column:
        inner = list(map(self.get, column))
        if None not in inner:
            return self._step(self.codec.encode, inner, bounds)
        there = [index for index, item in enumerate(inner) if item is not None]
        return self._some(self.codec.encode, inner, bounds, there, None)

    def encode_one(self, value: object, bounds: Bounds) -> Any:
        """The same for one value alone, which needs no columns."""
        inner = self.get(value)
        if inner is None or (type(inner) is self.plain and _is_easy(inner)):
            return inner
        return self._step(self.codec.encode, [inner], bounds)[0]

    def decode_one(self, message: Any, bounds: Bounds) -> Any:
        """The same for one message alone."""
        if self.presence and not message.HasField(self.name):
            if self.required:
                raise MisfitError(0, None, "", f"{self.name} is missing")
            return self.default
        value = getattr(message, self.name)
        if self.repeated:
            if not value:
                return ()
        elif self.plain and _is_easy(value):
            return value
        return self._step(self.codec.decode, [value], bounds)[0]

    def decode(self, column: Column, bounds: Bounds) -> Column:
        if self.presence:
            has = list(map(self.has, column))
            if not all(has):
                if self.required:
                    raise MisfitError(has.index(False), None, "", f"{self.name} is missing")
                there = [index for index, found in enumerate(has) if found]
                inner = list(map(self.get, column))
                return self._some(self.codec.decode, inner, bounds, there, self.default)
        return self._step(self.codec.decode, list(map(self.get, column)), bounds)

    def _step(self, convert: Convert, column: Column, bounds: Bounds) -> Column:
        try:
            return convert(column, bounds)
        except MisfitError as error:
            error.steps.append(f".{self.name}")
            raise

    def _some(
        self, convert: Convert, column: Column, bounds: Bounds, there: list[int], default: object
    ) -> Column:
        """Convert the entries that are there; the others get the default."""
        out = [default] * len(column)
        try:
            some = self._step(convert, [column[index] for index in there], bounds)
        except MisfitError as error:
            error.index = there[error.index]
            raise
        for index, item in zip(there, some, strict=True):
            out[index] = item
        return out


def _is_easy(value: Any) -> bool:
    """Whether every field of its type takes it."""
    kind = type(value)
    if kind is int:
        return bool(0 <= value <= _EASY_WHOLE)
    if kind is str:
        return len(value) <= _EASY_TEXT and str.isascii(value)
    return kind is bool or (kind is float and math.isfinite(value))


@cache
def _codec(kind: type) -> Codec:
    """The codec of a dataclass."""
    message = message_class(kind)
    known = message.DESCRIPTOR.fields_by_name
    hints = hints_of(kind)
    missing = [field.name for field in fields(kind) if field.name not in known]
    if missing:
        raise InvariantError(f"the message {kind.__name__} has no field {missing[0]}")
    parts = [_Field(kind, field, hints[field.name], known[field.name]) for field in fields(kind)]
    names = [part.name for part in parts]

    def encode(column: Column, bounds: Bounds) -> Column:
        if len(column) == 1:
            return [{part.name: part.encode_one(column[0], bounds) for part in parts}]
        return _rows(names, [part.encode(column, bounds) for part in parts])

    def decode(column: Column, bounds: Bounds) -> Column:
        if len(column) == 1:
            values = [[part.decode_one(column[0], bounds)] for part in parts]
        else:
            values = [part.decode(column, bounds) for part in parts]
        try:
            return list(map(kind, *values))
        except ThemisError:
            return _make_one_by_one(kind, values)

    return Codec(_remembering(message, encode) if kind in _SHARED else encode, decode)


def _rows(names: Sequence[str], columns: Sequence[Column]) -> list[Row]:
    """Mappings of the columns of their fields, from which Protobuf makes messages in one go.

    Messages that are made here would be copied once for each level above. None is left out.
    """
    rows: list[Row] = [{names[0]: value} for value in columns[0]]
    for name, column in zip(names[1:], columns[1:], strict=True):
        if None not in column:
            for row, value in zip(rows, column, strict=True):
                row[name] = value
        elif column.count(None) < len(column):
            for row, value in zip(rows, column, strict=True):
                if value is not None:
                    row[name] = value
    return rows


def _remembering(kind: type[Message], encode: Convert) -> Convert:
    """Make the message of equal values once; a message around it gets a copy."""
    known: dict[object, Message] = {}

    def run(column: Column, bounds: Bounds) -> Column:
        out: Column = []
        for index, value in enumerate(column):
            message = known.get(value)
            if message is None:
                try:
                    message = kind(**encode([value], bounds)[0])
                except MisfitError as error:
                    error.index = index
                    raise
                if len(known) >= _MOST_SHARED:
                    known.clear()
                known[value] = message
            out.append(message)
        return out

    return run


def _make_one_by_one(kind: type, values: list[Column]) -> Column:
    """Make values one by one, to find the one that its class refuses."""
    made = []
    for index, row in enumerate(zip(*values, strict=True)):
        try:
            made.append(kind(*row))
        except ThemisError as error:
            raise MisfitError(index, None, "", str(error)) from None
    return made


def _field_codec(hint: Any, place: FieldContext) -> Codec:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        kinds = [item for item in arguments if item is not NoneType]
        if len(kinds) == 1:
            return _field_codec(kinds[0], place)
        return _union_codec(kinds, place)
    if _is_list(hint):
        return _list_codec(_field_codec(arguments[0], place), most=_MOST.get(arguments[0]))
    if origin is tuple and place.inner is not None:
        return _record_codec(arguments, place)
    if origin is tuple:
        return _list_codec(_field_codec(arguments[0], place), len(arguments))
    if is_dataclass(hint) and isinstance(hint, type):
        return _codec(hint)
    return scalar_codec(hint, place)


def _is_list(hint: Any) -> bool:
    """Whether it is a list of any length."""
    origin, arguments = get_origin(hint), get_args(hint)
    return origin is Sequence or (origin is tuple and arguments[1:] == (Ellipsis,))


def _union_codec(kinds: list[type], place: FieldContext) -> Codec:
    """One of several dataclasses: a message with one field for each in a oneof."""
    names = {item.message_type.name: item.name for item in place.inner.oneofs_by_name[ONEOF].fields}
    by_kind = {kind: (names[kind.__name__], _codec(kind)) for kind in kinds}
    by_name = dict(by_kind.values())

    # Mostly a few, of different kinds: one by one.
    def encode(column: Column, bounds: Bounds) -> Column:
        out = []
        for index, value in enumerate(column):
            name, codec = by_kind[type(value)]
            out.append({name: _alone(codec.encode, value, bounds, index, name)})
        return out

    def decode(column: Column, bounds: Bounds) -> Column:
        out = []
        for index, given in enumerate(column):
            name = given.WhichOneof(ONEOF)
            if name is None:
                raise MisfitError(index, None, f"one of {', '.join(sorted(by_name))}")
            inner = getattr(given, name)
            out.append(_alone(by_name[name].decode, inner, bounds, index, name))
        return out

    return Codec(encode, decode)


def _alone(convert: Convert, value: Any, bounds: Bounds, index: int, name: str) -> Any:
    try:
        return convert([value], bounds)[0]
    except MisfitError as error:
        error.index = index
        error.steps.append(f".{name}")
        raise


def _list_codec(inner: Codec, length: int | None = None, most: int | None = None) -> Codec:
    """Lists of different lengths, joined to one column and cut apart again."""

    def through(convert: Convert, make: Callable[[Any], Any]) -> Convert:
        def run(column: Column, bounds: Bounds) -> Column:
            lengths = list(map(len, column))
            _check_lengths(lengths, bounds.rows if most is None else min(bounds.rows, most), length)
            try:
                if len(column) == 1:
                    return [make(convert(list(column[0]), bounds))]
                joined = iter(convert(list(chain.from_iterable(column)), bounds))
            except MisfitError as error:
                ends = list(accumulate(lengths))
                place = bisect_right(ends, error.index)
                error.steps.append(f"[{error.index - (ends[place] - lengths[place])}]")
                error.index = place
                raise
            return [make(islice(joined, count)) for count in lengths]

        return run

    return Codec(through(inner.encode, list), through(inner.decode, tuple))


def _check_lengths(lengths: list[int], most: int, length: int | None) -> None:
    for index, given in enumerate(lengths):
        if length is not None and given != length:
            raise MisfitError(index, given, f"{length} entries")
        if given > most:
            raise MisfitError(index, given, f"at most {most} entries")


def _record_codec(hints: tuple[Any, ...], place: FieldContext) -> Codec:
    """A tuple of different things: a message with its fields in that order."""
    names = [item.name for item in sorted(place.inner.fields, key=lambda item: item.number)]
    parts = [
        (name, attrgetter(name), scalar_codec(hint, place))
        for name, hint in zip(names, hints, strict=True)
    ]

    def encode(column: Column, bounds: Bounds) -> Column:
        columns = zip(*column, strict=True) if column else ([] for _ in parts)
        said = [
            _named(part.encode, list(inner), bounds, name)
            for (name, _, part), inner in zip(parts, columns, strict=True)
        ]
        return _rows(names, said)

    def decode(column: Column, bounds: Bounds) -> Column:
        values = [
            _named(part.decode, list(map(get, column)), bounds, name) for name, get, part in parts
        ]
        return list(zip(*values, strict=True))

    return Codec(encode, decode)


def _named(convert: Convert, column: Column, bounds: Bounds, name: str) -> Column:
    try:
        return convert(column, bounds)
    except MisfitError as error:
        error.steps.append(f".{name}")
        raise
