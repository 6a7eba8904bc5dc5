"""The types, columns and rows of answers."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec


class Kind(StrEnum):
    """A type of BigQuery, or VARIANT: the type of a value from an event, whose real type is known only at run time.

    A VARIANT is therefore converted where it is used.
    """

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
# The types of dates and times. To compare values of two different types, the engine converts both to the type that
# comes first in this tuple.
DATE_AND_TIME_KINDS: Final = (Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE, Kind.TIME)


class Datatype(msgspec.Struct, frozen=True):
    """A type of BigQuery with the types of its parts.

    `is_event_number` marks the FLOAT64 of a number from an event, and of what is computed from it with integers: the
    number may be an integer or a fraction. An answer has it without a fraction if it is integral.
    """

    kind: Kind
    element: "Datatype | None" = None
    fields: "tuple[tuple[str, Datatype | None], ...]" = ()
    is_event_number: bool = False

    def __deepcopy__(self, _memo: object) -> "Datatype":
        """Return the object itself, because it is immutable; real copies would take a third of compilation time."""
        return self


# A value of an answer's row. A TIMESTAMP is an int of microseconds since 1970; a DATETIME, DATE or TIME is ISO text;
# BYTES are base64 text; a JSON, ARRAY or STRUCT is raw JSON text. In this JSON, every object that is not an element of
# an array is wrapped in an array of one record.
Cell = str | int | float | bool | msgspec.Raw | None
Row = tuple[Cell, ...]


class Column(msgspec.Struct, frozen=True):
    name: str
    datatype: Datatype


class LastRow(msgspec.Struct, frozen=True, array_like=True):
    """The time and id of an answer's last row, after which the next page begins.

    `tied_row_count` is the number of rows at the end of the answer that have this time and id. An id that is too long
    for the cursor of the next page is cut off.
    """

    time_us: int
    id: str
    tied_row_count: int


class Rows(msgspec.Struct):
    """The columns of an answer, and its rows in batches as the engine yields them.

    `is_truncated`, `engine_seconds` and `last_row` are valid only after `batches` is exhausted. `last_row` is set only
    for a statement whose pages are separated by time.
    """

    columns: tuple[Column, ...]
    batches: Iterable[list[Row]]
    is_truncated: bool = False
    engine_seconds: float = 0.0
    last_row: LastRow | None = None
