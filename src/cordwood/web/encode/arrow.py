"""Encode rows as an Arrow IPC stream: a schema, then one record batch for each batch of rows.

The metadata of each message is a flatbuffer, which consists of nested tables. A table is written before the tables that
it contains.
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
    BinaryValue,
    BinaryValueType,
    TypedColumn,
    distinct_names,
    pack_bits,
    typed_columns,
    validity_bitmap,
)

_STRUCT_CODE_AND_SIZE_BY_FORMAT = {"u8": ("<B", 1), "i16": ("<h", 2), "i32": ("<i", 4), "i64": ("<q", 8)}
_OFFSET_BYTES = 4


class FlatScalar(msgspec.Struct, frozen=True):
    """A scalar value in a flatbuffer table. Its `format_name` is u8, i16, i32 or i64."""

    format_name: str
    value: int


class FlatString(msgspec.Struct, frozen=True):
    value: str


class StructVector(msgspec.Struct, frozen=True):
    """A vector of structs in a flatbuffer. All members of the structs are 64-bit integers."""

    rows: Sequence[tuple[int, ...]]


class TableVector(msgspec.Struct, frozen=True):
    rows: "Sequence[FlatTable]"


class FlatTable(msgspec.Struct, frozen=True):
    """A flatbuffer table. Its fields are in the order of the schema; an absent field is None."""

    fields: "Sequence[FlatScalar | FlatString | StructVector | TableVector | FlatTable | None]"


FlatNode = FlatString | StructVector | TableVector | FlatTable


def encode_flatbuffer(root: FlatTable) -> bytes:
    out = bytearray(_OFFSET_BYTES)
    _write_offset(out, 0, _write_node(out, root))
    _pad_to_multiple(out, 8)
    return bytes(out)


def _write_node(out: bytearray, node: FlatNode) -> int:
    """Append a node of the flatbuffer to `out`; return its offset in `out`."""
    if isinstance(node, FlatTable):
        return _write_table(out, node)
    if isinstance(node, FlatString):
        return _write_string(out, node)
    if isinstance(node, StructVector):
        return _write_struct_vector(out, node)
    return _write_table_vector(out, node)


def _write_table(out: bytearray, table: FlatTable) -> int:
    places, size = _table_layout(table)
    _pad_to_multiple(out, 2)
    vtable = len(out)
    out += struct.pack("<HH", 4 + 2 * len(places), size)
    out += struct.pack(f"<{len(places)}H", *places)
    _pad_to_multiple(out, 8)
    begin = len(out)
    out += bytes(size)
    struct.pack_into("<i", out, begin, begin - vtable)
    for place, field in zip(places, table.fields, strict=True):
        if isinstance(field, FlatScalar):
            struct.pack_into(_STRUCT_CODE_AND_SIZE_BY_FORMAT[field.format_name][0], out, begin + place, field.value)
        elif field is not None:
            _write_offset(out, begin + place, _write_node(out, field))
    return begin


def _table_layout(table: FlatTable) -> tuple[list[int], int]:
    """Return the offset of each field from the start of the table, and the size of the table.

    The offset of an absent field is 0.
    """
    places, end = [], _OFFSET_BYTES
    for field in table.fields:
        size = _STRUCT_CODE_AND_SIZE_BY_FORMAT[field.format_name][1] if isinstance(field, FlatScalar) else _OFFSET_BYTES
        begin = -(-end // size) * size
        places.append(0 if field is None else begin)
        end = end if field is None else begin + size
    return places, end


def _write_string(out: bytearray, text: FlatString) -> int:
    encoded = text.value.encode()
    _pad_to_multiple(out, 4)
    begin = len(out)
    out += struct.pack("<I", len(encoded)) + encoded + b"\0"
    return begin


def _write_struct_vector(out: bytearray, structs: StructVector) -> int:
    _pad_to_multiple(out, 8)
    # The structs have to start at a multiple of 8 bytes. Their number takes the 4 bytes before them, so 4 bytes of
    # padding come first.
    out += bytes(4)
    begin = len(out)
    out += struct.pack("<I", len(structs.rows))
    for row in structs.rows:
        out += struct.pack(f"<{len(row)}q", *row)
    return begin


def _write_table_vector(out: bytearray, tables: TableVector) -> int:
    _pad_to_multiple(out, 4)
    begin = len(out)
    out += struct.pack("<I", len(tables.rows)) + bytes(_OFFSET_BYTES * len(tables.rows))
    for number, table in enumerate(tables.rows):
        _write_offset(out, begin + 4 + _OFFSET_BYTES * number, _write_node(out, table))
    return begin


def _write_offset(out: bytearray, position: int, target: int) -> None:
    struct.pack_into("<I", out, position, target - position)


def _pad_to_multiple(out: bytearray, size: int) -> None:
    out += bytes(-len(out) % size)


# Constants from Arrow's flatbuffer schemas (Schema.fbs, Message.fbs).
_METADATA_VERSION_V5 = 4
_SCHEMA, _RECORD_BATCH = 1, 3
_MICROSECOND_UNIT = 2
_CONTINUATION_MARKER = b"\xff\xff\xff\xff"
END_OF_STREAM = _CONTINUATION_MARKER + bytes(4)

# For each representation of values: the number of its type in Arrow's union `Type`, and the table with the parameters
# of this type.
_ARROW_TYPES: Mapping[BinaryValueType, tuple[int, FlatTable]] = {
    BinaryValueType.INT64: (2, FlatTable([FlatScalar("i32", 64), FlatScalar("u8", 1)])),
    BinaryValueType.FLOAT64: (3, FlatTable([FlatScalar("i16", 2)])),
    BinaryValueType.BYTES: (4, FlatTable([])),
    BinaryValueType.TEXT: (5, FlatTable([])),
    BinaryValueType.BOOL: (6, FlatTable([])),
    BinaryValueType.NUMERIC: (
        7,
        FlatTable([FlatScalar("i32", NUMERIC_PRECISION), FlatScalar("i32", NUMERIC_SCALE), FlatScalar("i32", 128)]),
    ),
    BinaryValueType.DATE: (8, FlatTable([FlatScalar("i16", 0)])),
    BinaryValueType.TIME: (9, FlatTable([FlatScalar("i16", _MICROSECOND_UNIT), FlatScalar("i32", 64)])),
    BinaryValueType.TIMESTAMP: (10, FlatTable([FlatScalar("i16", _MICROSECOND_UNIT), FlatString("UTC")])),
    BinaryValueType.DATETIME: (10, FlatTable([FlatScalar("i16", _MICROSECOND_UNIT)])),
}


def encode_arrow(rows: Rows) -> Iterator[bytes]:
    columns = typed_columns(rows.columns, distinct_names(rows.columns))
    yield _encode_ipc_message(_SCHEMA, _schema_table(columns), b"")
    for batch in rows.batches:
        if batch:
            yield _record_batch_message(columns, [list(cells) for cells in zip(*batch, strict=True)], len(batch))
    yield END_OF_STREAM


def _schema_table(columns: Sequence[TypedColumn]) -> FlatTable:
    return FlatTable([FlatScalar("i16", 0), TableVector([_field_table(column) for column in columns])])


def _field_table(column: TypedColumn) -> FlatTable:
    number, table = _ARROW_TYPES[column.value_type]
    return FlatTable(
        [FlatString(column.name), FlatScalar("u8", 1), FlatScalar("u8", number), table, None, TableVector([])]
    )


def _record_batch_message(columns: Sequence[TypedColumn], cells: Sequence[list], count: int) -> bytes:  # type: ignore[type-arg]
    body, nodes, places = bytearray(), [], []
    for column, column_cells in zip(columns, cells, strict=True):
        values = column.convert_cells(column_cells)
        nulls = values.count(None)
        nodes.append((count, nulls))
        for buffer in (validity_bitmap(values) if nulls else b"", *_column_buffers(column.value_type, values)):
            places.append((len(body), len(buffer)))
            body += buffer + bytes(-len(buffer) % 8)
    table = FlatTable([FlatScalar("i64", count), StructVector(nodes), StructVector(places)])
    return _encode_ipc_message(_RECORD_BATCH, table, bytes(body))


def _encode_ipc_message(kind: int, header: FlatTable, body: bytes) -> bytes:
    metadata = encode_flatbuffer(
        FlatTable(
            [FlatScalar("i16", _METADATA_VERSION_V5), FlatScalar("u8", kind), header, FlatScalar("i64", len(body))]
        )
    )
    return _CONTINUATION_MARKER + struct.pack("<I", len(metadata)) + metadata + body


def _column_buffers(form: BinaryValueType, values: Sequence[BinaryValue]) -> list[bytes]:
    return _BUFFER_ENCODERS_BY_VALUE_TYPE.get(form, _int64_buffers)(values)


def _int64_buffers(values: Sequence[BinaryValue]) -> list[bytes]:
    return [array("q", [int(value or 0) for value in values]).tobytes()]


def _int32_buffers(values: Sequence[BinaryValue]) -> list[bytes]:
    return [array("i", [int(value or 0) for value in values]).tobytes()]


def _float_buffers(values: Sequence[BinaryValue]) -> list[bytes]:
    return [array("d", [float(value or 0) for value in values]).tobytes()]


def _bool_buffers(values: Sequence[BinaryValue]) -> list[bytes]:
    return [pack_bits([bool(value) for value in values])]


def _decimal_buffers(values: Sequence[BinaryValue]) -> list[bytes]:
    return [b"".join([int(value or 0).to_bytes(16, "little", signed=True) for value in values])]


def _bytes_buffers(values: Sequence[BinaryValue]) -> list[bytes]:
    pieces = [value if isinstance(value, bytes) else b"" for value in values]
    ends = accumulate((len(piece) for piece in pieces), initial=0)
    return [array("i", ends).tobytes(), b"".join(pieces)]


_BUFFER_ENCODERS_BY_VALUE_TYPE: Mapping[BinaryValueType, Callable[[Sequence[BinaryValue]], list[bytes]]] = {
    BinaryValueType.FLOAT64: _float_buffers,
    BinaryValueType.BOOL: _bool_buffers,
    BinaryValueType.NUMERIC: _decimal_buffers,
    BinaryValueType.DATE: _int32_buffers,
    BinaryValueType.BYTES: _bytes_buffers,
    BinaryValueType.TEXT: _bytes_buffers,
}
