"""Typed rows: BigQuery's types, and the columns and rows of an answer."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec


class Kind(StrEnum):
    """A type of BigQuery, or VARIANT: a value of unknown type from an event, which is converted where it is used."""

    STRING = "STRING"
    BYTES = "BYTES"
    INT64 = "INT64"
    FLOAT64 = "FLOAT64"
    NUMERIC = "NUMERIC"
    BIGNUMERIC = "BIGNUMERIC"
    BOOL = "BOOL"
    TIMESTAMP = "TIMESTAMP"
    DATETIME = "DATETIME"
    DATE = "DATE"
    TIME = "TIME"
    INTERVAL = "INTERVAL"
    JSON = "JSON"
    ARRAY = "ARRAY"
    STRUCT = "STRUCT"
    VARIANT = "VARIANT"


# The number types with exact decimal fractions.
EXACT_NUMERIC_KINDS: Final = (Kind.NUMERIC, Kind.BIGNUMERIC)
NUMBER_KINDS: Final = (Kind.INT64, Kind.FLOAT64, *EXACT_NUMERIC_KINDS)
# The time types in order of precedence: values of two different time types are compared as values of the type that
# comes first in this tuple.
TIME_KINDS: Final = (Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE, Kind.TIME)


class Datatype(msgspec.Struct, frozen=True):
    kind: Kind
    element: "Datatype | None" = None
    fields: "tuple[tuple[str, Datatype | None], ...]" = ()

    def __deepcopy__(self, _memo: object) -> "Datatype":
        """Return the object itself: it is immutable, and copies would take a third of compilation time."""
        return self


# A value in the form in which answers have it. A TIMESTAMP is an int of microseconds since 1970; DATETIME, DATE and
# TIME are ISO text; BYTES is base64 text; JSON, ARRAY and STRUCT are raw JSON text. In this JSON, every object that is
# not an element of an array is wrapped in an array of one record.
Cell = str | int | float | bool | msgspec.Raw | None
Row = tuple[Cell, ...]


class Column(msgspec.Struct, frozen=True):
    name: str
    datatype: Datatype


class LastRow(msgspec.Struct, frozen=True, array_like=True):
    """The time and id of an answer's last row.

    `rows` is the number of rows at the end of the answer that have this time and id. An id that is too long for a
    cursor is cut off.
    """

    time_us: int
    id: str
    rows: int


class Rows(msgspec.Struct):
    """The columns of an answer, and its rows in batches as the engine yields them.

    `truncated`, `engine_seconds` and `last_row` (for a statement paged by time) are valid once `batches` is exhausted.
    """

    columns: tuple[Column, ...]
    batches: Iterable[list[Row]]
    truncated: bool = False
    engine_seconds: float = 0.0
    last_row: LastRow | None = None
