"""Arrow IPC stream encoder: a schema, then one record batch for each batch of rows."""

import struct
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

from cordwood.model.rows import Rows
from cordwood.web.encode.cells import (
    NUMERIC_PRECISION,
    NUMERIC_SCALE,
    Form,
    TypedColumn,
    Value,
    bits,
    packed_bits,
    typed,
)
from cordwood.web.encode.flatbuffer import Scalar, Structs, Table, Tables, Text, flatbuffer
from cordwood.web.encode.names import distinct_names

# Constants of Arrow's flatbuffer schemas (Schema.fbs, Message.fbs).
_METADATA_V5 = 4
_SCHEMA, _RECORD_BATCH = 1, 3
_MICROSECOND = 2
_CONTINUATION = b"\xff\xff\xff\xff"
END_OF_STREAM = _CONTINUATION + bytes(4)

# By form: the member of the Type union and its table.
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
