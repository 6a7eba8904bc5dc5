"""The protobuf wire format, and decoding of messages with known field numbers to their JSON structure."""

import itertools
import struct
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Final

Value = int | bytes
Message = dict[str, object]
Read = Callable[[Value], object]

# By field number: the name in JSON, the decoder, and whether the field is repeated.
Fields = dict[int, tuple[str, Read, bool]]

# How many more fields may be decoded for the current request.
_fields_left: ContextVar[Iterator[None]] = ContextVar("fields_left")
_NONE_LEFT: Final = object()

_DOUBLE_BYTES = 8
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


class BadProtobuf(ValueError):
    """The bytes are not a protobuf message, or end early."""


def decoded(data: bytes, field_types: Fields, max_fields: int) -> Message:
    """Decode a message; raise BadProtobuf for more than `max_fields` fields, including those of nested messages."""
    _fields_left.set(itertools.repeat(None, max_fields))
    return _message(data, field_types)


def message_of(field_types: Fields) -> Read:
    """Return the decoder of a nested message."""
    return lambda value: _message(octets(value), field_types)


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yield field numbers with values: integers as on the wire, and everything else as bytes."""
    position, end = 0, len(message)
    while position < end:
        key, position = _varint(message, position)
        number, wire_type = key >> 3, key & 7
        if wire_type == _VARINT and number:
            value, position = _varint(message, position)
            yield number, value
            continue
        size = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(wire_type)
        if wire_type == _LENGTH:
            size, position = _varint(message, position)
        if size is None or position + size > end or number == 0:
            raise BadProtobuf(f"not a protobuf message at byte {position}")
        yield number, message[position : position + size]
        position += size


def _message(data: bytes, field_types: Fields) -> Message:
    message: Message = {}
    left = _fields_left.get()
    for number, value in fields(data):
        if next(left, _NONE_LEFT) is _NONE_LEFT:
            raise BadProtobuf("it has too many fields")
        if number not in field_types:
            continue
        name, read, is_repeated = field_types[number]
        if is_repeated:
            found = message.setdefault(name, [])
            if isinstance(found, list):
                one = read(value)
                # A packed field contains many numbers.
                found.extend(one) if isinstance(one, list) else found.append(one)
        else:
            message[name] = read(value)
    return message


def packed(size: int, read: Read) -> Read:
    """Return a decoder for numbers of a fixed size, single or packed."""

    def numbers(value: Value) -> object:
        if isinstance(value, int) or len(value) == size:
            return read(value)
        if len(value) % size:
            raise BadProtobuf("packed numbers are truncated")
        _count(len(value) // size)
        return [read(value[position : position + size]) for position in range(0, len(value), size)]

    return numbers


def packed_varints(value: Value) -> object:
    if isinstance(value, int):
        return value
    _count(len(value))
    return list(_varints(value))


def _count(numbers: int) -> None:
    """Count packed numbers as fields, because each takes as much memory once it is decoded."""
    left = _fields_left.get()
    if any(next(left, _NONE_LEFT) is _NONE_LEFT for _ in range(numbers)):
        raise BadProtobuf("it has too many fields")


def signed(value: Value) -> int:
    """Return an int64 from its varint."""
    number = fixed(value)
    return number - 2**64 if number >= 2**63 else number


def zigzag(value: Value) -> int:
    """Return a sint32 or sint64 from its zigzag encoding."""
    number = fixed(value)
    return number >> 1 ^ -(number & 1)


def _varints(values: bytes) -> Iterator[int]:
    position = 0
    while position < len(values):
        number, position = _varint(values, position)
        yield number


def fixed(value: Value) -> int:
    return value if isinstance(value, int) else int.from_bytes(value, "little")


def double(value: Value) -> float:
    data = octets(value)
    if len(data) != _DOUBLE_BYTES:
        raise BadProtobuf("a number has the wrong length")
    number: float = struct.unpack("<d", data)[0]
    return number


def octets(value: Value) -> bytes:
    if isinstance(value, int):
        raise BadProtobuf("a number is where a message is expected")
    return value


def text(value: Value) -> str:
    return octets(value).decode("utf-8", "replace")


def written_number(number: int) -> bytes:
    pieces = bytearray()
    while number > 0x7F:
        pieces.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*pieces, number])


def written_field(number: int, value: bytes) -> bytes:
    """Encode a length-delimited field: a string or a nested message."""
    return written_number(number << 3 | _LENGTH) + written_number(len(value)) + value


def _varint(message: bytes, position: int) -> tuple[int, int]:
    number, shift = 0, 0
    while shift < 70:
        if position >= len(message):
            raise BadProtobuf("the message ends early")
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & (2**64 - 1), position
        shift += 7
    raise BadProtobuf(f"a number is too long at byte {position}")
