"""Convert cells of rows to typed values for binary formats or to text, and make column names unique."""

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from enum import Enum, auto

import msgspec

from cordwood.errors import BadQueryValue
from cordwood.model.datatype import Cell, Column, Kind
from cordwood.model.timestamps import EPOCH


def distinct_names(columns: Sequence[Column]) -> list[str]:
    """Return the names of the columns. As in BigQuery, a repeated name gets the suffix `_1`, `_2` and so on."""
    taken = {column.name for column in columns}
    # The number of the last suffix of each name that is repeated, so that no suffix is tried twice.
    last_number_by_name: dict[str, int] = {}
    names = []
    for column in columns:
        name, number = column.name, last_number_by_name.get(column.name)
        if number is None:
            number = 0
        else:
            while name in taken:
                number += 1
                name = f"{column.name}_{number}"
            taken.add(name)
        last_number_by_name[column.name] = number
        names.append(name)
    return names


BinaryValue = int | float | bytes | None

_EPOCH_DAY_ORDINAL = date(1970, 1, 1).toordinal()
_INT64_RANGE = range(-(2**63), 2**63)
# A NUMERIC has up to 38 digits, nine of them after the decimal point. Python's default decimal context would round it
# to 28 digits.
NUMERIC_PRECISION, NUMERIC_SCALE = 38, 9
_NUMERIC_CONTEXT = Context(prec=2 * NUMERIC_PRECISION)


class BinaryValueType(Enum):
    """The representation of a column's values in a binary format."""

    BOOL = auto()
    INT64 = auto()
    FLOAT64 = auto()
    NUMERIC = auto()
    TIMESTAMP = auto()
    DATETIME = auto()
    DATE = auto()
    TIME = auto()
    BYTES = auto()
    TEXT = auto()


class TypedColumn(msgspec.Struct, frozen=True):
    """A column with the representation of its values in a binary format."""

    name: str
    value_type: BinaryValueType

    def convert_cells(self, cells: Sequence[Cell]) -> list[BinaryValue]:
        read = _PARSERS_BY_VALUE_TYPE[self.value_type]
        try:
            return [None if cell is None else read(cell) for cell in cells]
        except (ValueError, TypeError, ArithmeticError):
            raise BadQueryValue(
                f"A value of the column {self.name} cannot be represented in this format.",
                hint="Request JSON, or cast it to STRING.",
            ) from None


def typed_columns(columns: Sequence[Column], names: Sequence[str]) -> list[TypedColumn]:
    """Return the columns with the binary representations of their values: text or JSON text for types without one."""
    return [
        TypedColumn(name, _VALUE_TYPES_BY_KIND.get(column.datatype.kind, BinaryValueType.TEXT))
        for name, column in zip(names, columns, strict=True)
    ]


def cell_text(cell: Cell) -> str | None:
    """Return a cell as text: a string unchanged, null as None, and any other value as JSON."""
    if cell is None or isinstance(cell, str):
        return cell
    if not isinstance(cell, msgspec.Raw):
        return msgspec.json.encode(cell).decode()
    raw = bytes(cell)
    if raw[:1] == b'"':
        return msgspec.json.decode(raw, type=str)
    return None if raw == b"null" else raw.decode()


def _text_or_empty(cell: Cell) -> str:
    return cell_text(cell) or ""


def _parse_int64(cell: Cell) -> int:
    value = int(_text_or_empty(cell))
    if value not in _INT64_RANGE:
        raise ValueError
    return value


def _parse_numeric_to_unscaled_int(cell: Cell) -> int:
    return int(
        Decimal(_text_or_empty(cell))
        .scaleb(NUMERIC_SCALE, _NUMERIC_CONTEXT)
        .to_integral_value(context=_NUMERIC_CONTEXT)
    )


def _parse_datetime(cell: Cell) -> int:
    return _microseconds_since_epoch(datetime.fromisoformat(_text_or_empty(cell)).replace(tzinfo=UTC))


def _microseconds_since_epoch(moment: datetime) -> int:
    passed = moment - EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


def _parse_time(cell: Cell) -> int:
    clock = time.fromisoformat(_text_or_empty(cell))
    return ((clock.hour * 60 + clock.minute) * 60 + clock.second) * 1_000_000 + clock.microsecond


_VALUE_TYPES_BY_KIND: Mapping[Kind, BinaryValueType] = {
    Kind.BOOL: BinaryValueType.BOOL,
    Kind.INT64: BinaryValueType.INT64,
    Kind.FLOAT64: BinaryValueType.FLOAT64,
    Kind.NUMERIC: BinaryValueType.NUMERIC,
    Kind.TIMESTAMP: BinaryValueType.TIMESTAMP,
    Kind.DATETIME: BinaryValueType.DATETIME,
    Kind.DATE: BinaryValueType.DATE,
    Kind.TIME: BinaryValueType.TIME,
    Kind.BYTES: BinaryValueType.BYTES,
}

_PARSERS_BY_VALUE_TYPE: Mapping[BinaryValueType, Callable[[Cell], BinaryValue]] = {
    BinaryValueType.BOOL: lambda cell: 1 if cell is True or cell == "true" else 0,
    BinaryValueType.INT64: _parse_int64,
    BinaryValueType.FLOAT64: lambda cell: float(_text_or_empty(cell)),
    BinaryValueType.NUMERIC: _parse_numeric_to_unscaled_int,
    BinaryValueType.TIMESTAMP: _parse_int64,
    BinaryValueType.DATETIME: _parse_datetime,
    BinaryValueType.DATE: lambda cell: date.fromisoformat(_text_or_empty(cell)).toordinal() - _EPOCH_DAY_ORDINAL,
    BinaryValueType.TIME: _parse_time,
    BinaryValueType.BYTES: lambda cell: base64.b64decode(_text_or_empty(cell)),
    BinaryValueType.TEXT: lambda cell: _text_or_empty(cell).encode(),
}


def validity_bitmap(values: Sequence[BinaryValue]) -> bytes:
    """Return a bitmap of the values that are not null. The first value has the lowest bit of the first byte."""
    return pack_bits([value is not None for value in values])


def pack_bits(flags: Sequence[bool]) -> bytes:
    if not flags:
        return b""
    digits = "".join("1" if flag else "0" for flag in reversed(flags))
    return int(digits, 2).to_bytes((len(flags) + 7) // 8, "little")
