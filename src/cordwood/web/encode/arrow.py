"""Arrow IPC stream encoder: a schema, then one record batch for each batch of rows.

Messages are flatbuffers: a tree of tables, written top-down.
"""

import struct
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

import msgspec

from cordwood.model.datatype import Rows
from cordwood.web.encode.cells import (
    NUMERIC_PRECISION,
    NUMERIC_SCALE,
    Form,
    TypedColumn,
    Value,
    bits,
    distinct_names,
    packed_bits,
    typed,
)

_FORMATS = {"u8": ("<B", 1), "i16": ("<h", 2), "i32": ("<i", 4), "i64": ("<q", 8)}
_OFFSET_BYTES = 4


class Scalar(msgspec.Struct, frozen=True):
    """A scalar in a table; `width` is u8, i16, i32 or i64."""

    width: str
    value: int


class Text(msgspec.Struct, frozen=True):
    value: str


class Structs(msgspec.Struct, frozen=True):
    """A vector of structs that consist of 64-bit integers."""

    rows: Sequence[tuple[int, ...]]


class Tables(msgspec.Struct, frozen=True):
    rows: "Sequence[Table]"


class Table(msgspec.Struct, frozen=True):
    """A table with its fields in the order of the schema; an absent field is None."""

    fields: "Sequence[Scalar | Text | Structs | Tables | Table | None]"


Node = Text | Structs | Tables | Table


def flatbuffer(root: Table) -> bytes:
    out = bytearray(_OFFSET_BYTES)
    _write_offset(out, 0, _write(out, root))
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
    places, size = _layout(table)
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
            _write_offset(out, begin + place, _write(out, field))
    return begin


def _layout(table: Table) -> tuple[list[int], int]:
    """Return the offset of each field from the start of the table (0 for an absent field), and the table's size."""
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
    # The count is written before the first struct, which has to be aligned.
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
        _write_offset(out, begin + 4 + _OFFSET_BYTES * number, _write(out, table))
    return begin


def _write_offset(out: bytearray, position: int, target: int) -> None:
    struct.pack_into("<I", out, position, target - position)


def _align(out: bytearray, size: int) -> None:
    out += bytes(-len(out) % size)


# Constants of Arrow's flatbuffer schemas (Schema.fbs, Message.fbs).
_METADATA_V5 = 4
_SCHEMA, _RECORD_BATCH = 1, 3
_MICROSECOND = 2
_CONTINUATION = b"\xff\xff\xff\xff"
END_OF_STREAM = _CONTINUATION + bytes(4)

# By form: the number in Arrow's `Type` union, and the table with the type's parameters.
_TYPES: Mapping[Form, tuple[int, Table]] = {
    Form.INT64: (2, Table([Scalar("i32", 64), Scalar("u8", 1)])),
    Form.FLOAT64: (3, Table([Scalar("i16", 2)])),
    Form.BYTES: (4, Table([])),
    Form.TEXT: (5, Table([])),
    Form.BOOL: (6, Table([])),
    Form.NUMERIC: (7, Table([Scalar("i32", NUMERIC_PRECISION), Scalar("i32", NUMERIC_SCALE), Scalar("i32", 128)])),
    Form.DATE: (8, Table([Scalar("i16", 0)])),
    Form.TIME: (9, Table([Scalar("i16", _MICROSECOND), Scalar("i32", 64)])),
    Form.TIMESTAMP: (10, Table([Scalar("i16", _MICROSECOND), Text("UTC")])),
    Form.DATETIME: (10, Table([Scalar("i16", _MICROSECOND)])),
}


def encode(rows: Rows) -> Iterator[bytes]:
    columns = typed(rows.columns, distinct_names(rows.columns))
    yield _message(_SCHEMA, _schema(columns), b"")
    for batch in rows.batches:
        if batch:
            yield _record_batch(columns, [list(cells) for cells in zip(*batch, strict=True)], len(batch))
    yield END_OF_STREAM


def _schema(columns: Sequence[TypedColumn]) -> Table:
    return Table([Scalar("i16", 0), Tables([_field(column) for column in columns])])


def _field(column: TypedColumn) -> Table:
    number, table = _TYPES[column.form]
    return Table([Text(column.name), Scalar("u8", 1), Scalar("u8", number), table, None, Tables([])])


def _record_batch(columns: Sequence[TypedColumn], cells: Sequence[list], count: int) -> bytes:  # type: ignore[type-arg]
    body, nodes, places = bytearray(), [], []
    for column, column_cells in zip(columns, cells, strict=True):
        values = column.values(column_cells)
        nulls = values.count(None)
        nodes.append((count, nulls))
        for buffer in (bits(values) if nulls else b"", *_buffers(column.form, values)):
            places.append((len(body), len(buffer)))
            body += buffer + bytes(-len(buffer) % 8)
    table = Table([Scalar("i64", count), Structs(nodes), Structs(places)])
    return _message(_RECORD_BATCH, table, bytes(body))


def _message(kind: int, header: Table, body: bytes) -> bytes:
    metadata = flatbuffer(Table([Scalar("i16", _METADATA_V5), Scalar("u8", kind), header, Scalar("i64", len(body))]))
    return _CONTINUATION + struct.pack("<I", len(metadata)) + metadata + body


def _buffers(form: Form, values: Sequence[Value]) -> list[bytes]:
    return _WRITERS.get(form, _int64s)(values)


def _int64s(values: Sequence[Value]) -> list[bytes]:
    return [array("q", [int(value or 0) for value in values]).tobytes()]


def _int32s(values: Sequence[Value]) -> list[bytes]:
    return [array("i", [int(value or 0) for value in values]).tobytes()]


def _floats(values: Sequence[Value]) -> list[bytes]:
    return [array("d", [float(value or 0) for value in values]).tobytes()]


def _bools(values: Sequence[Value]) -> list[bytes]:
    return [packed_bits([bool(value) for value in values])]


def _decimals(values: Sequence[Value]) -> list[bytes]:
    return [b"".join([int(value or 0).to_bytes(16, "little", signed=True) for value in values])]


def _bytes(values: Sequence[Value]) -> list[bytes]:
    pieces = [value if isinstance(value, bytes) else b"" for value in values]
    ends = accumulate((len(piece) for piece in pieces), initial=0)
    return [array("i", ends).tobytes(), b"".join(pieces)]


_WRITERS: Mapping[Form, Callable[[Sequence[Value]], list[bytes]]] = {
    Form.FLOAT64: _floats,
    Form.BOOL: _bools,
    Form.NUMERIC: _decimals,
    Form.DATE: _int32s,
    Form.BYTES: _bytes,
    Form.TEXT: _bytes,
}
