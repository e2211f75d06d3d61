"""The format of event files: framed records, each of them a protocol buffer message `Event`.

    for step in steps(data, ahead=len(data)):
        parse_event(step.record)        # iteration, wall time, scalars by tag

The few fields that matter are read by hand: a node need not have TensorBoard, and a job's files
there is not believed to be well formed.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

MOST_RECORD = 128 << 10
"""Scalars are tens of bytes; longer records hold pictures or graphs."""
MOST_FIELDS = 4096
"""Of one message: each costs about a microsecond."""

_HEAD, _CHECK = struct.Struct("<QI"), struct.Struct("<I")
_FRAME = _HEAD.size + _CHECK.size
_MASK = 0xA282EAD8


def _table() -> tuple[int, ...]:
    """Of the Castagnoli polynomial, its bits reversed."""
    made = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)  # noqa: PLW2901 - a register
        made.append(value)
    return tuple(made)


_TABLE = _table()


def masked_crc(data: bytes) -> int:
    """The checksum in front of and behind a record's bytes: a CRC-32C, turned and shifted."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = crc >> 8 ^ table[crc & 0xFF ^ byte]
    crc ^= 0xFFFFFFFF
    return (crc >> 15 | crc << 17 & 0xFFFFFFFF) + _MASK & 0xFFFFFFFF


class RecordsEnd(StrEnum):
    """Why the records of a piece of a file are over, if not because the file is."""

    DAMAGED = "damaged"
    CUT = "cut"
    """The piece is over, and the file is not."""


@dataclass(frozen=True, slots=True)
class Step:
    """One record."""

    length: int
    """In the file, with its frame."""
    record: bytes | None
    """None if it is too long to be of interest."""


def steps(data: bytes, ahead: int) -> Iterator[Step | RecordsEnd]:
    """The whole records at the beginning of `data`.

    Args:
        data: A piece of a file that begins where a record begins.
        ahead: Bytes in the file from there on, which may be more than the piece has.
    """
    at = 0
    while ahead - at >= _HEAD.size:
        if len(data) - at < _HEAD.size:
            yield RecordsEnd.CUT
            return
        length, check = _HEAD.unpack_from(data, at)
        if masked_crc(data[at : at + 8]) != check:
            yield RecordsEnd.DAMAGED
            return
        if ahead - at < length + _FRAME:
            return  # the rest of it is still to come
        if length > MOST_RECORD:
            yield Step(length + _FRAME, None)
        elif len(data) - at < length + _FRAME:
            yield RecordsEnd.CUT
            return
        else:
            end = at + _HEAD.size + length
            record = data[at + _HEAD.size : end]
            if masked_crc(record) != _CHECK.unpack_from(data, end)[0]:
                yield RecordsEnd.DAMAGED
                return
            yield Step(length + _FRAME, record)
        at += length + _FRAME


@dataclass(frozen=True, slots=True)
class Event:
    """The scalars of an event."""

    step: int
    wall_time: float
    scalars: tuple[tuple[str, float], ...]


class _MalformedError(Exception):
    pass


def parse_event(record: bytes) -> Event | None:
    """The event in a record; None if it is none. Values that are no scalars are left out."""
    step, wall_time = 0, math.nan
    scalars: list[tuple[str, float]] = []
    try:
        for field, value in _fields(record):
            match field, value:
                case 1, bytes() if len(value) == 8:
                    wall_time = struct.unpack("<d", value)[0]
                case 2, int():
                    step = _signed(value)
                case 5, bytes():
                    scalars += _scalars(value)
                case _:
                    pass
    except _MalformedError:
        return None
    return Event(step, wall_time, tuple(scalars))


def _scalars(summary: bytes) -> Iterator[tuple[str, float]]:
    for field, value in _fields(summary):
        if field == 1 and isinstance(value, bytes):
            tag, number = _tagged(value)
            if number is not None:
                yield tag, number


def _tagged(message: bytes) -> tuple[str, float | None]:
    """A tag and its number, if it has one: the old kind beside the tag, the new one in a tensor."""
    tag, number, tensor, plugin = "", None, None, b"scalars"
    for field, value in _fields(message):
        match field, value:
            case 1, bytes():
                tag = value.decode("utf-8", "replace")
            case 2, bytes() if len(value) == 4:
                number = struct.unpack("<f", value)[0]
            case 8, bytes():
                tensor = value
            case 9, bytes():
                plugin = _plugin(value)
            case _:
                pass
    if number is None and tensor is not None and plugin == b"scalars":
        number = _only_number(tensor)
    return tag, number


def _plugin(metadata: bytes) -> bytes:
    """The plugin that a tensor is for: `scalars`, or none."""
    for field, value in _fields(metadata):
        if field == 1 and isinstance(value, bytes):
            for inner, name in _fields(value):
                if inner == 1 and isinstance(name, bytes):
                    return name
    return b"scalars"


_FORMATS = {1: "f", 2: "d", 3: "i", 9: "q", 19: "e"}
"""How a tensor's bytes are to be read, by its type: float, double, int32, int64, half."""
_LISTS = {1: 5, 2: 6, 3: 7, 9: 10}
"""By type: the field in which values are listed one by one, integers with variable lengths."""


def _only_number(tensor: bytes) -> float | None:
    """The number in a tensor that holds only one."""
    found: dict[int, int | bytes] = {}
    for field, value in _fields(tensor):
        if field == 2 and isinstance(value, bytes) and _count(value) != 1:
            return None
        found[field] = value
    kind = found.get(1)
    if not isinstance(kind, int):
        return None
    if content := found.get(4):
        return _unpacked(_FORMATS.get(kind), content)
    listed = found.get(_LISTS.get(kind, 0))
    if isinstance(listed, bytes) and kind in {3, 9}:
        first, end = _varint(listed, 0)
        return float(_signed(first)) if end == len(listed) else None
    if isinstance(listed, int):
        return float(_signed(listed))
    return _unpacked(_FORMATS.get(kind), listed)


def _unpacked(code: str | None, content: int | bytes | None) -> float | None:
    """A number from its bytes, if they are those of one."""
    if code is None or not isinstance(content, bytes) or struct.calcsize(code) != len(content):
        return None
    return float(struct.unpack(f"<{code}", content)[0])


def _count(shape: bytes) -> int:
    """How many numbers a tensor of this shape has."""
    count = 1
    for field, dimension in _fields(shape):
        if field == 2 and isinstance(dimension, bytes):
            sizes = [size for inner, size in _fields(dimension) if inner == 1]
            # A size of zero is not written.
            count *= next((size for size in sizes if isinstance(size, int)), 0)
    return count


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: numbers of variable length as such, all others as bytes."""
    at = 0
    for _ in range(MOST_FIELDS):
        if at == len(message):
            return
        key, at = _varint(message, at)
        match key & 7:
            case 0:
                value, at = _varint(message, at)
                yield key >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, at = _varint(message, at)
            case 5:
                length = 4
            case _:
                raise _MalformedError
        if length > len(message) - at:
            raise _MalformedError
        yield key >> 3, message[at : at + length]
        at += length
    raise _MalformedError


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(10):
        if at + index >= len(message):
            break
        byte = message[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, at + index + 1
    raise _MalformedError


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
