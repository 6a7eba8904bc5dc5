"""Conversion of cells to typed values for binary formats and to text, and unique column names."""

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from enum import Enum, auto

import msgspec

from cordwood.errors import QueryValue
from cordwood.model.datatype import Cell, Column, Kind
from cordwood.model.timestamps import EPOCH


def distinct_names(columns: Sequence[Column]) -> list[str]:
    """Return the column names; a repeated name gets the suffix `_1`, `_2`, …, as in BigQuery."""
    taken = {column.name for column in columns}
    seen: set[str] = set()
    names = []
    for column in columns:
        name, number = column.name, 0
        while name in seen or (number and name in taken):
            number += 1
            name = f"{column.name}_{number}"
        seen.add(name)
        names.append(name)
    return names


Value = int | float | bytes | None

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_INT64 = range(-(2**63), 2**63)
# NUMERIC has 38 digits, nine of them after the decimal point. The default context would round longer values.
NUMERIC_PRECISION, NUMERIC_SCALE = 38, 9
_NUMERIC_CONTEXT = Context(prec=2 * NUMERIC_PRECISION)


class Form(Enum):
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
    """A column, and the conversion of its cells to values of one form."""

    name: str
    form: Form

    def values(self, cells: Sequence[Cell]) -> list[Value]:
        read = _READERS[self.form]
        try:
            return [None if cell is None else read(cell) for cell in cells]
        except (ValueError, TypeError, ArithmeticError):
            raise QueryValue(
                f"A value of the column {self.name} cannot be represented in this format.",
                hint="Request JSON, or cast it to STRING.",
            ) from None


def typed(columns: Sequence[Column], names: Sequence[str]) -> list[TypedColumn]:
    """Return the columns with their forms. Types without a form of their own become text, nested values as JSON."""
    return [
        TypedColumn(name, _FORMS.get(column.datatype.kind, Form.TEXT))
        for name, column in zip(names, columns, strict=True)
    ]


def text_of(cell: Cell) -> str | None:
    """Return a cell as text: a string unchanged, any other value as JSON."""
    if cell is None or isinstance(cell, str):
        return cell
    if not isinstance(cell, msgspec.Raw):
        return msgspec.json.encode(cell).decode()
    raw = bytes(cell)
    if raw[:1] == b'"':
        return msgspec.json.decode(raw, type=str)
    return None if raw == b"null" else raw.decode()


def _unchanged(cell: Cell) -> str:
    return text_of(cell) or ""


def _int64(cell: Cell) -> int:
    value = int(_unchanged(cell))
    if value not in _INT64:
        raise ValueError
    return value


def _numeric(cell: Cell) -> int:
    return int(
        Decimal(_unchanged(cell)).scaleb(NUMERIC_SCALE, _NUMERIC_CONTEXT).to_integral_value(context=_NUMERIC_CONTEXT)
    )


def _datetime(cell: Cell) -> int:
    return _microseconds(datetime.fromisoformat(_unchanged(cell)).replace(tzinfo=UTC))


def _microseconds(moment: datetime) -> int:
    passed = moment - EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


def _time(cell: Cell) -> int:
    clock = time.fromisoformat(_unchanged(cell))
    return ((clock.hour * 60 + clock.minute) * 60 + clock.second) * 1_000_000 + clock.microsecond


_FORMS: Mapping[Kind, Form] = {
    Kind.BOOL: Form.BOOL,
    Kind.INT64: Form.INT64,
    Kind.FLOAT64: Form.FLOAT64,
    Kind.NUMERIC: Form.NUMERIC,
    Kind.TIMESTAMP: Form.TIMESTAMP,
    Kind.DATETIME: Form.DATETIME,
    Kind.DATE: Form.DATE,
    Kind.TIME: Form.TIME,
    Kind.BYTES: Form.BYTES,
}

_READERS: Mapping[Form, Callable[[Cell], Value]] = {
    Form.BOOL: lambda cell: 1 if cell is True or cell == "true" else 0,
    Form.INT64: _int64,
    Form.FLOAT64: lambda cell: float(_unchanged(cell)),
    Form.NUMERIC: _numeric,
    Form.TIMESTAMP: _int64,
    Form.DATETIME: _datetime,
    Form.DATE: lambda cell: date.fromisoformat(_unchanged(cell)).toordinal() - _EPOCH_DAY,
    Form.TIME: _time,
    Form.BYTES: lambda cell: base64.b64decode(_unchanged(cell)),
    Form.TEXT: lambda cell: _unchanged(cell).encode(),
}


def bits(values: Sequence[Value]) -> bytes:
    """Return the validity bitmap of the values, lowest bit first."""
    return packed_bits([value is not None for value in values])


def packed_bits(flags: Sequence[bool]) -> bytes:
    if not flags:
        return b""
    digits = "".join("1" if flag else "0" for flag in reversed(flags))
    return int(digits, 2).to_bytes((len(flags) + 7) // 8, "little")
