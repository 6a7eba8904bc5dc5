"""The rows of an answer, in the form that encoders receive."""

from collections.abc import Iterable

import msgspec

from cordwood.model.datatype import Datatype

# A value in answer form: TIMESTAMP is an int of microseconds since 1970; DATETIME, DATE and TIME are ISO text; BYTES is
# base64 text; JSON, ARRAY and STRUCT are raw JSON text, in which every object (except elements of arrays) is wrapped in
# an array of one record.
Cell = str | int | float | bool | msgspec.Raw | None
Row = tuple[Cell, ...]


class Column(msgspec.Struct, frozen=True):
    name: str
    datatype: Datatype


class LastRow(msgspec.Struct, frozen=True, array_like=True):
    """The time and id of an answer's last row, and how many of the last rows have both.

    A long id is cut off.
    """

    time_us: int
    id: str
    rows: int


class Rows(msgspec.Struct):
    """Columns, and rows in batches as the engine yields them.

    `truncated`, `engine_seconds` and `last_row` (for a statement paged by time) are valid once `batches` is exhausted.
    """

    columns: tuple[Column, ...]
    batches: Iterable[list[Row]]
    truncated: bool = False
    engine_seconds: float = 0.0
    last_row: LastRow | None = None
