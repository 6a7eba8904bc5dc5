"""The rows of an answer, in the form in which they are rendered."""

from collections.abc import Iterable

import msgspec

from cordwood.model.datatype import Datatype

# A cell is already in answer form: TIMESTAMP is an int of microseconds since 1970, DATETIME, DATE and TIME
# are ISO text, BYTES is base64 text, and JSON, ARRAY and STRUCT are JSON text kept raw, every object in it
# (but the elements of arrays) already wrapped in an array of one record.
Cell = str | int | float | bool | msgspec.Raw | None
Row = tuple[Cell, ...]


class Column(msgspec.Struct, frozen=True):
    name: str
    datatype: Datatype


class Rows(msgspec.Struct):
    """Columns at once, rows in batches as the engine yields them.

    `truncated` and `engine_seconds` are true once `batches` is exhausted, not before.
    """

    columns: tuple[Column, ...]
    batches: Iterable[list[Row]]
    truncated: bool = False
    engine_seconds: float = 0.0
