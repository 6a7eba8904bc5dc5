"""Cells as typed values for the binary formats, or as text; unique column names."""

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from enum import Enum, auto

import msgspec

from cordwood.errors import QueryValue
from cordwood.model.datatype import Kind
from cordwood.model.rows import Cell, Column
from cordwood.model.timestamps import EPOCH


def distinct_names(columns: Sequence[Column]) -> list[str]:
    """Return the names; a repeated one gets the suffix `_1`, `_2`, …, as in BigQuery."""
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
# NUMERIC has 38 digits, nine of them after the decimal point.
NUMERIC_PRECISION, NUMERIC_SCALE = 38, 9
_EXACT = Context(prec=2 * NUMERIC_PRECISION)


class Form(Enum):
    """The representation of a column's values in a typed format."""

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
    """A column with the conversion of its cells to values of its form."""

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
    """Return the typed columns. Types without a counterpart, and nested types, become JSON text."""
    return [
        TypedColumn(name, _FORMS.get(column.datatype.kind, Form.TEXT))
        for name, column in zip(names, columns, strict=True)
    ]


def text_of(cell: Cell) -> str | None:
    """Return a cell as text: a string as it is, any other value as JSON."""
    if cell is None or isinstance(cell, str):
        return cell
    if not isinstance(cell, msgspec.Raw):
        return msgspec.json.encode(cell).decode()
    raw = bytes(cell)
    if raw[:1] == b'"':
        return msgspec.json.decode(raw, type=str)
    return None if raw == b"null" else raw.decode()


def _plain(cell: Cell) -> str:
    return text_of(cell) or ""


def _int64(cell: Cell) -> int:
    value = int(_plain(cell))
    if value not in _INT64:
        raise ValueError
    return value


def _numeric(cell: Cell) -> int:
    return int(Decimal(_plain(cell)).scaleb(NUMERIC_SCALE, _EXACT).to_integral_value(context=_EXACT))


def _datetime(cell: Cell) -> int:
    return _microseconds(datetime.fromisoformat(_plain(cell)).replace(tzinfo=UTC))


def _microseconds(moment: datetime) -> int:
    passed = moment - EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


def _time(cell: Cell) -> int:
    clock = time.fromisoformat(_plain(cell))
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
    Form.FLOAT64: lambda cell: float(_plain(cell)),
    Form.NUMERIC: _numeric,
    Form.TIMESTAMP: _int64,
    Form.DATETIME: _datetime,
    Form.DATE: lambda cell: date.fromisoformat(_plain(cell)).toordinal() - _EPOCH_DAY,
    Form.TIME: _time,
    Form.BYTES: lambda cell: base64.b64decode(_plain(cell)),
    Form.TEXT: lambda cell: _plain(cell).encode(),
}


def bits(values: Sequence[Value]) -> bytes:
    """Return the validity bitmap, lowest bit first."""
    return packed_bits([value is not None for value in values])


def packed_bits(flags: Sequence[bool]) -> bytes:
    if not flags:
        return b""
    digits = "".join("1" if flag else "0" for flag in reversed(flags))
    return int(digits, 2).to_bytes((len(flags) + 7) // 8, "little")
