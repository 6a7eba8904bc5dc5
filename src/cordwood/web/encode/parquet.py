"""Encode rows as a Parquet file, with plain encoding and zstd. A row group has one page for each column.

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
    BinaryValue,
    BinaryValueType,
    TypedColumn,
    distinct_names,
    pack_bits,
    typed_columns,
    validity_bitmap,
)

_TRUE, _FALSE, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 2, 5, 6, 8, 9, 12


class ThriftInt32(msgspec.Struct, frozen=True):
    value: int


class ThriftInt64(msgspec.Struct, frozen=True):
    value: int


class ThriftStruct(msgspec.Struct, frozen=True):
    """A Thrift struct, as a mapping from field numbers to fields. An absent field is None."""

    fields: "Mapping[int, ThriftField | None]"


ThriftField = (
    bool
    | ThriftInt32
    | ThriftInt64
    | str
    | ThriftStruct
    | Sequence[ThriftInt32]
    | Sequence[str]
    | Sequence[ThriftStruct]
)


def encode_thrift_struct(struct: ThriftStruct) -> bytes:
    out, last = bytearray(), 0
    for number, field in struct.fields.items():
        if field is None:
            continue
        kind = _TRUE if field is True else _thrift_type_code(field)
        step = number - last
        out += bytes([step << 4 | kind]) if step < 16 else bytes([kind]) + encode_varint(_encode_zigzag(number))
        out += b"" if isinstance(field, bool) else _encode_field(field)
        last = number
    return bytes(out) + b"\0"


def encode_varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _thrift_type_code(field: ThriftField) -> int:
    match field:
        case bool():
            return _FALSE
        case ThriftInt32():
            return _I32
        case ThriftInt64():
            return _I64
        case str():
            return _BINARY
        case ThriftStruct():
            return _STRUCT
    return _LIST


def _encode_field(field: ThriftField) -> bytes:
    match field:
        case ThriftInt32() | ThriftInt64():
            return encode_varint(_encode_zigzag(field.value))
        case str():
            encoded = field.encode()
            return encode_varint(len(encoded)) + encoded
        case ThriftStruct():
            return encode_thrift_struct(field)
        case bool():
            return b""
    return _encode_list(field)


def _encode_list(items: Sequence[ThriftInt32] | Sequence[str] | Sequence[ThriftStruct]) -> bytes:
    kind = _thrift_type_code(items[0]) if items else _STRUCT
    head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind]) + encode_varint(len(items))
    return head + b"".join([_encode_field(item) for item in items])


def _encode_zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"PAR1"
MIN_ROWS_PER_ROW_GROUP = 20_000
# Let zstd add a checksum to each page, so that readers detect a damaged file.
_PAGE_COMPRESSION_OPTIONS: Mapping[int, int] = {zstd.CompressionParameter.checksum_flag: 1}

# Constants from parquet.thrift.
_BOOLEAN, _INT32, _INT64, _DOUBLE, _BYTE_ARRAY, _FIXED = 0, 1, 2, 5, 6, 7
_PLAIN, _RLE = 0, 3
_ZSTD_CODEC = 6
_OPTIONAL_REPETITION = 1
_DATA_PAGE_TYPE = 0
_MICROSECONDS_UNIT = ThriftStruct({2: ThriftStruct({})})


class _ColumnStorage(msgspec.Struct, frozen=True):
    """How Parquet stores the values of one `BinaryValueType`: physical type, logical type, and encoder of values.

    The encoder gets only values that are not null.
    """

    physical_type: int
    logical_type: Mapping[int, ThriftField | None]
    encode_values: Callable[[Sequence[BinaryValue]], bytes]


def _encode_int64s(values: Sequence[BinaryValue]) -> bytes:
    return array("q", [int(value or 0) for value in values]).tobytes()


def _encode_int32s(values: Sequence[BinaryValue]) -> bytes:
    return array("i", [int(value or 0) for value in values]).tobytes()


def _encode_floats(values: Sequence[BinaryValue]) -> bytes:
    return array("d", [float(value or 0) for value in values]).tobytes()


def _encode_bools(values: Sequence[BinaryValue]) -> bytes:
    return pack_bits([bool(value) for value in values])


def _encode_byte_arrays(values: Sequence[BinaryValue]) -> bytes:
    return b"".join([struct.pack("<I", len(value)) + value for value in values if isinstance(value, bytes)])


def _encode_decimals(values: Sequence[BinaryValue]) -> bytes:
    return b"".join([int(value or 0).to_bytes(16, "big", signed=True) for value in values])


def _logical_type_fields(number: int, of: ThriftStruct, converted: int | None = None) -> dict[int, ThriftField | None]:
    """Return the fields of a schema element that declare a logical type.

    Older readers know only the `converted` type, which is declared as well if it is given.
    """
    return {6: None if converted is None else ThriftInt32(converted), 10: ThriftStruct({number: of})}


_DECIMAL_LOGICAL_TYPE_FIELDS: Mapping[int, ThriftField | None] = {
    2: ThriftInt32(16),
    6: ThriftInt32(5),
    7: ThriftInt32(NUMERIC_SCALE),
    8: ThriftInt32(NUMERIC_PRECISION),
    10: ThriftStruct({5: ThriftStruct({1: ThriftInt32(NUMERIC_SCALE), 2: ThriftInt32(NUMERIC_PRECISION)})}),
}
_STORAGE_BY_VALUE_TYPE: Mapping[BinaryValueType, _ColumnStorage] = {
    BinaryValueType.BOOL: _ColumnStorage(_BOOLEAN, {}, _encode_bools),
    BinaryValueType.INT64: _ColumnStorage(_INT64, {}, _encode_int64s),
    BinaryValueType.FLOAT64: _ColumnStorage(_DOUBLE, {}, _encode_floats),
    BinaryValueType.NUMERIC: _ColumnStorage(_FIXED, _DECIMAL_LOGICAL_TYPE_FIELDS, _encode_decimals),
    BinaryValueType.TIMESTAMP: _ColumnStorage(
        _INT64, _logical_type_fields(8, ThriftStruct({1: True, 2: _MICROSECONDS_UNIT}), converted=10), _encode_int64s
    ),
    BinaryValueType.DATETIME: _ColumnStorage(
        _INT64, _logical_type_fields(8, ThriftStruct({1: False, 2: _MICROSECONDS_UNIT})), _encode_int64s
    ),
    BinaryValueType.DATE: _ColumnStorage(
        _INT32, _logical_type_fields(6, ThriftStruct({}), converted=6), _encode_int32s
    ),
    BinaryValueType.TIME: _ColumnStorage(
        _INT64, _logical_type_fields(7, ThriftStruct({1: False, 2: _MICROSECONDS_UNIT}), converted=8), _encode_int64s
    ),
    BinaryValueType.BYTES: _ColumnStorage(_BYTE_ARRAY, {}, _encode_byte_arrays),
    BinaryValueType.TEXT: _ColumnStorage(
        _BYTE_ARRAY, _logical_type_fields(1, ThriftStruct({}), converted=0), _encode_byte_arrays
    ),
}


def encode_parquet(rows: Rows) -> Iterator[bytes]:
    columns = typed_columns(rows.columns, distinct_names(rows.columns))
    file = _ParquetFile(columns)
    yield MAGIC
    for group in _row_groups(rows):
        yield file.encode_row_group(group)
    yield file.encode_footer()


def _row_groups(rows: Rows) -> Iterator[list[Row]]:
    group: list[Row] = []
    for batch in rows.batches:
        group += batch
        if len(group) >= MIN_ROWS_PER_ROW_GROUP:
            yield group
            group = []
    if group:
        yield group


class _ParquetFile:
    """A Parquet file that is being written. It collects the descriptions of row groups, which the footer needs."""

    def __init__(self, columns: Sequence[TypedColumn]) -> None:
        self._columns = columns
        self._next_row_group_offset = len(MAGIC)
        self._row_groups: list[ThriftStruct] = []
        self._row_count = 0

    def encode_row_group(self, rows: Sequence[Row]) -> bytes:
        out, chunks = bytearray(), []
        for column, cells in zip(self._columns, zip(*rows, strict=True), strict=True):
            page, raw_bytes = _data_page(column, column.convert_cells(cells))
            chunks.append(
                _column_chunk(column, len(rows), self._next_row_group_offset + len(out), (len(page), raw_bytes))
            )
            out += page
        self._row_groups.append(ThriftStruct({1: chunks, 2: ThriftInt64(len(out)), 3: ThriftInt64(len(rows))}))
        self._next_row_group_offset += len(out)
        self._row_count += len(rows)
        return bytes(out)

    def encode_footer(self) -> bytes:
        root = ThriftStruct({4: "schema", 5: ThriftInt32(len(self._columns))})
        schema = [root, *(_schema_element(column) for column in self._columns)]
        about = ThriftStruct(
            {1: ThriftInt32(2), 2: schema, 3: ThriftInt64(self._row_count), 4: self._row_groups, 6: "cordwood"}
        )
        metadata = encode_thrift_struct(about)
        return metadata + struct.pack("<I", len(metadata)) + MAGIC


def _schema_element(column: TypedColumn) -> ThriftStruct:
    stored = _STORAGE_BY_VALUE_TYPE[column.value_type]
    fields: dict[int, ThriftField | None] = {
        1: ThriftInt32(stored.physical_type),
        3: ThriftInt32(_OPTIONAL_REPETITION),
        4: column.name,
        **stored.logical_type,
    }
    return ThriftStruct(dict(sorted(fields.items())))


def _data_page(column: TypedColumn, values: Sequence[BinaryValue]) -> tuple[bytes, int]:
    """Return a page with its header as bytes, and the size that they would have without compression."""
    there = [value for value in values if value is not None]
    content = _definition_levels(values) + _STORAGE_BY_VALUE_TYPE[column.value_type].encode_values(there)
    compressed = zstd.compress(content, options=_PAGE_COMPRESSION_OPTIONS)
    about = ThriftStruct(
        {1: ThriftInt32(len(values)), 2: ThriftInt32(_PLAIN), 3: ThriftInt32(_RLE), 4: ThriftInt32(_RLE)}
    )
    header = encode_thrift_struct(
        ThriftStruct(
            {1: ThriftInt32(_DATA_PAGE_TYPE), 2: ThriftInt32(len(content)), 3: ThriftInt32(len(compressed)), 5: about}
        ),
    )
    return header + compressed, len(header) + len(content)


def _definition_levels(values: Sequence[BinaryValue]) -> bytes:
    """Return the definition levels, which tell for each value whether it is null, as one bit-packed run."""
    packed = validity_bitmap(values)
    run = encode_varint(len(packed) << 1 | 1) + packed
    return struct.pack("<I", len(run)) + run


def _column_chunk(column: TypedColumn, count: int, offset: int, sizes: tuple[int, int]) -> ThriftStruct:
    compressed_bytes, raw_bytes = sizes
    about = ThriftStruct(
        {
            1: ThriftInt32(_STORAGE_BY_VALUE_TYPE[column.value_type].physical_type),
            2: [ThriftInt32(_PLAIN), ThriftInt32(_RLE)],
            3: [column.name],
            4: ThriftInt32(_ZSTD_CODEC),
            5: ThriftInt64(count),
            6: ThriftInt64(raw_bytes),
            7: ThriftInt64(compressed_bytes),
            9: ThriftInt64(offset),
        }
    )
    return ThriftStruct({2: ThriftInt64(offset), 3: about})
