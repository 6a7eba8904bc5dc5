"""A writer of Thrift's compact protocol for Parquet's metadata: structs as fields by number."""

from collections.abc import Mapping, Sequence

import msgspec

_TRUE, _FALSE, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 2, 5, 6, 8, 9, 12


class I32(msgspec.Struct, frozen=True):
    value: int


class I64(msgspec.Struct, frozen=True):
    value: int


class Struct(msgspec.Struct, frozen=True):
    """Fields by number; None for one that is left out."""

    fields: "Mapping[int, Field | None]"


Field = bool | I32 | I64 | str | Struct | Sequence[I32] | Sequence[str] | Sequence[Struct]


def compact(struct: Struct) -> bytes:
    out, last = bytearray(), 0
    for number, field in struct.fields.items():
        if field is None:
            continue
        kind = _TRUE if field is True else _kind(field)
        step = number - last
        out += bytes([step << 4 | kind]) if step < 16 else bytes([kind]) + varint(_zigzag(number))
        out += b"" if isinstance(field, bool) else _value(field)
        last = number
    return bytes(out) + b"\0"


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _kind(field: Field) -> int:
    match field:
        case bool():
            return _FALSE
        case I32():
            return _I32
        case I64():
            return _I64
        case str():
            return _BINARY
        case Struct():
            return _STRUCT
    return _LIST


def _value(field: Field) -> bytes:
    match field:
        case I32() | I64():
            return varint(_zigzag(field.value))
        case str():
            encoded = field.encode()
            return varint(len(encoded)) + encoded
        case Struct():
            return compact(field)
        case bool():
            return b""
    return _list(field)


def _list(items: Sequence[I32] | Sequence[str] | Sequence[Struct]) -> bytes:
    kind = _kind(items[0]) if items else _STRUCT
    head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind]) + varint(len(items))
    return head + b"".join([_value(item) for item in items])


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1
