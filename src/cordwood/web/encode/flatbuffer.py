"""A FlatBuffers writer for Arrow's messages: a tree of tables, written top-down."""

import struct
from collections.abc import Sequence

import msgspec

_FORMATS = {"u8": ("<B", 1), "i16": ("<h", 2), "i32": ("<i", 4), "i64": ("<q", 8)}
_OFFSET_BYTES = 4


class Scalar(msgspec.Struct, frozen=True):
    """A scalar in a table; `width` is u8, i16, i32 or i64."""

    width: str
    value: int


class Text(msgspec.Struct, frozen=True):
    value: str


class Structs(msgspec.Struct, frozen=True):
    """A vector of structs of 64-bit integers."""

    rows: Sequence[tuple[int, ...]]


class Tables(msgspec.Struct, frozen=True):
    rows: "Sequence[Table]"


class Table(msgspec.Struct, frozen=True):
    """A table with its fields in schema order; None for an absent one."""

    fields: "Sequence[Scalar | Text | Structs | Tables | Table | None]"


Node = Text | Structs | Tables | Table


def flatbuffer(root: Table) -> bytes:
    out = bytearray(_OFFSET_BYTES)
    _point(out, 0, _write(out, root))
    _align(out, 8)
    return bytes(out)


def _write(out: bytearray, node: Node) -> int:
    """Write the node; return its offset."""
    if isinstance(node, Table):
        return _write_table(out, node)
    if isinstance(node, Text):
        return _write_text(out, node)
    if isinstance(node, Structs):
        return _write_structs(out, node)
    return _write_tables(out, node)


def _write_table(out: bytearray, table: Table) -> int:
    places, size = _laid_out(table)
    _align(out, 2)
    vtable = len(out)
    out += struct.pack("<HH", 4 + 2 * len(places), size)
    out += struct.pack(f"<{len(places)}H", *places)
    _align(out, 8)
    begin = len(out)
    out += bytes(size)
    struct.pack_into("<i", out, begin, begin - vtable)
    for place, field in zip(places, table.fields, strict=True):
        if isinstance(field, Scalar):
            struct.pack_into(_FORMATS[field.width][0], out, begin + place, field.value)
        elif field is not None:
            _point(out, begin + place, _write(out, field))
    return begin


def _laid_out(table: Table) -> tuple[list[int], int]:
    """Return the offset of each field from the table's start (0 if absent), and the table's size."""
    places, end = [], _OFFSET_BYTES
    for field in table.fields:
        size = _FORMATS[field.width][1] if isinstance(field, Scalar) else _OFFSET_BYTES
        begin = -(-end // size) * size
        places.append(0 if field is None else begin)
        end = end if field is None else begin + size
    return places, end


def _write_text(out: bytearray, text: Text) -> int:
    encoded = text.value.encode()
    _align(out, 4)
    begin = len(out)
    out += struct.pack("<I", len(encoded)) + encoded + b"\0"
    return begin


def _write_structs(out: bytearray, structs: Structs) -> int:
    _align(out, 8)
    # The count precedes the first struct, which has to be aligned.
    out += bytes(4)
    begin = len(out)
    out += struct.pack("<I", len(structs.rows))
    for row in structs.rows:
        out += struct.pack(f"<{len(row)}q", *row)
    return begin


def _write_tables(out: bytearray, tables: Tables) -> int:
    _align(out, 4)
    begin = len(out)
    out += struct.pack("<I", len(tables.rows)) + bytes(_OFFSET_BYTES * len(tables.rows))
    for number, table in enumerate(tables.rows):
        _point(out, begin + 4 + _OFFSET_BYTES * number, _write(out, table))
    return begin


def _point(out: bytearray, place: int, target: int) -> None:
    struct.pack_into("<I", out, place, target - place)


def _align(out: bytearray, size: int) -> None:
    out += bytes(-len(out) % size)
