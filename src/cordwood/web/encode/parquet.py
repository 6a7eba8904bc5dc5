"""Parquet encoder: plain encoding, one page for each column and row group, compressed with zstd.

The metadata is written in Thrift's compact protocol, in which a struct is a sequence of numbered fields.
"""

import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from cordwood.model.datatype import Row, Rows
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

_TRUE, _FALSE, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 2, 5, 6, 8, 9, 12


class I32(msgspec.Struct, frozen=True):
    value: int


class I64(msgspec.Struct, frozen=True):
    value: int


class Struct(msgspec.Struct, frozen=True):
    """A Thrift struct: its fields by number; an absent field is None."""

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


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"PAR1"
ROWS_IN_A_GROUP = 20_000
# Each page has a checksum, so that readers detect corruption.
_PAGE_CHECKSUM: Mapping[int, int] = {zstd.CompressionParameter.checksum_flag: 1}

# Constants of parquet.thrift.
_BOOLEAN, _INT32, _INT64, _DOUBLE, _BYTE_ARRAY, _FIXED = 0, 1, 2, 5, 6, 7
_PLAIN, _RLE = 0, 3
_ZSTD = 6
_OPTIONAL = 1
_DATA_PAGE = 0
_MICROSECONDS = Struct({2: Struct({})})


class _Storage(msgspec.Struct, frozen=True):
    """How values of a form are stored: physical type, logical type, and the encoder of values that are not null."""

    physical: int
    logical: Mapping[int, Field | None]
    write: Callable[[Sequence[Value]], bytes]


def _int64s(values: Sequence[Value]) -> bytes:
    return array("q", [int(value or 0) for value in values]).tobytes()


def _int32s(values: Sequence[Value]) -> bytes:
    return array("i", [int(value or 0) for value in values]).tobytes()


def _floats(values: Sequence[Value]) -> bytes:
    return array("d", [float(value or 0) for value in values]).tobytes()


def _bools(values: Sequence[Value]) -> bytes:
    return packed_bits([bool(value) for value in values])


def _byte_arrays(values: Sequence[Value]) -> bytes:
    return b"".join([struct.pack("<I", len(value)) + value for value in values if isinstance(value, bytes)])


def _decimals(values: Sequence[Value]) -> bytes:
    return b"".join([int(value or 0).to_bytes(16, "big", signed=True) for value in values])


def _logical(number: int, of: Struct, converted: int | None = None) -> dict[int, Field | None]:
    """Return the logical type. Older readers know only the equivalent `converted` type."""
    return {6: None if converted is None else I32(converted), 10: Struct({number: of})}


_DECIMAL: Mapping[int, Field | None] = {
    2: I32(16),
    6: I32(5),
    7: I32(NUMERIC_SCALE),
    8: I32(NUMERIC_PRECISION),
    10: Struct({5: Struct({1: I32(NUMERIC_SCALE), 2: I32(NUMERIC_PRECISION)})}),
}
_STORAGE_BY_FORM: Mapping[Form, _Storage] = {
    Form.BOOL: _Storage(_BOOLEAN, {}, _bools),
    Form.INT64: _Storage(_INT64, {}, _int64s),
    Form.FLOAT64: _Storage(_DOUBLE, {}, _floats),
    Form.NUMERIC: _Storage(_FIXED, _DECIMAL, _decimals),
    Form.TIMESTAMP: _Storage(_INT64, _logical(8, Struct({1: True, 2: _MICROSECONDS}), converted=10), _int64s),
    Form.DATETIME: _Storage(_INT64, _logical(8, Struct({1: False, 2: _MICROSECONDS})), _int64s),
    Form.DATE: _Storage(_INT32, _logical(6, Struct({}), converted=6), _int32s),
    Form.TIME: _Storage(_INT64, _logical(7, Struct({1: False, 2: _MICROSECONDS}), converted=8), _int64s),
    Form.BYTES: _Storage(_BYTE_ARRAY, {}, _byte_arrays),
    Form.TEXT: _Storage(_BYTE_ARRAY, _logical(1, Struct({}), converted=0), _byte_arrays),
}


def encode(rows: Rows) -> Iterator[bytes]:
    columns = typed(rows.columns, distinct_names(rows.columns))
    file = _File(columns)
    yield MAGIC
    for group in _groups(rows):
        yield file.row_group(group)
    yield file.footer()


def _groups(rows: Rows) -> Iterator[list[Row]]:
    group: list[Row] = []
    for batch in rows.batches:
        group += batch
        if len(group) >= ROWS_IN_A_GROUP:
            yield group
            group = []
    if group:
        yield group


class _File:
    """The state of a file that is being written: the offsets of its row groups, for the footer."""

    def __init__(self, columns: Sequence[TypedColumn]) -> None:
        self._columns = columns
        self._offset = len(MAGIC)
        self._groups: list[Struct] = []
        self._row_count = 0

    def row_group(self, rows: Sequence[Row]) -> bytes:
        out, chunks = bytearray(), []
        for column, cells in zip(self._columns, zip(*rows, strict=True), strict=True):
            page, raw_bytes = _page(column, column.values(cells))
            chunks.append(_chunk(column, len(rows), self._offset + len(out), (len(page), raw_bytes)))
            out += page
        self._groups.append(Struct({1: chunks, 2: I64(len(out)), 3: I64(len(rows))}))
        self._offset += len(out)
        self._row_count += len(rows)
        return bytes(out)

    def footer(self) -> bytes:
        root = Struct({4: "schema", 5: I32(len(self._columns))})
        schema = [root, *(_element(column) for column in self._columns)]
        about = Struct({1: I32(2), 2: schema, 3: I64(self._row_count), 4: self._groups, 6: "cordwood"})
        metadata = compact(about)
        return metadata + struct.pack("<I", len(metadata)) + MAGIC


def _element(column: TypedColumn) -> Struct:
    stored = _STORAGE_BY_FORM[column.form]
    fields: dict[int, Field | None] = {1: I32(stored.physical), 3: I32(_OPTIONAL), 4: column.name, **stored.logical}
    return Struct(dict(sorted(fields.items())))


def _page(column: TypedColumn, values: Sequence[Value]) -> tuple[bytes, int]:
    """Return a page with its header, and its uncompressed size."""
    there = [value for value in values if value is not None]
    content = _definition_levels(values) + _STORAGE_BY_FORM[column.form].write(there)
    compressed = zstd.compress(content, options=_PAGE_CHECKSUM)
    about = Struct({1: I32(len(values)), 2: I32(_PLAIN), 3: I32(_RLE), 4: I32(_RLE)})
    header = compact(
        Struct({1: I32(_DATA_PAGE), 2: I32(len(content)), 3: I32(len(compressed)), 5: about}),
    )
    return header + compressed, len(header) + len(content)


def _definition_levels(values: Sequence[Value]) -> bytes:
    """Return the definition levels, which mark nulls, as one bit-packed run."""
    packed = bits(values)
    run = varint(len(packed) << 1 | 1) + packed
    return struct.pack("<I", len(run)) + run


def _chunk(column: TypedColumn, count: int, offset: int, sizes: tuple[int, int]) -> Struct:
    compressed_bytes, raw_bytes = sizes
    about = Struct(
        {
            1: I32(_STORAGE_BY_FORM[column.form].physical),
            2: [I32(_PLAIN), I32(_RLE)],
            3: [column.name],
            4: I32(_ZSTD),
            5: I64(count),
            6: I64(raw_bytes),
            7: I64(compressed_bytes),
            9: I64(offset),
        }
    )
    return Struct({2: I64(offset), 3: about})
