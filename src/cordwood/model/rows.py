"""The rows of an answer, as the encoders receive them."""

from collections.abc import Iterable

import msgspec

from cordwood.model.datatype import Datatype

# A cell is already in answer form: TIMESTAMP is an int of microseconds since 1970; DATETIME, DATE and TIME are ISO
# text; BYTES is base64 text; JSON, ARRAY and STRUCT are raw JSON text, in which every object (except elements of
# arrays) is wrapped in an array of one record.
Cell = str | int | float | bool | msgspec.Raw | None
Row = tuple[Cell, ...]


class Column(msgspec.Struct, frozen=True):
    name: str
    datatype: Datatype


class Rows(msgspec.Struct):
    """Columns, and rows in batches as the engine yields them.

    `truncated` and `engine_seconds` are valid once `batches` is exhausted.
    """

    columns: tuple[Column, ...]
    batches: Iterable[list[Row]]
    truncated: bool = False
    engine_seconds: float = 0.0
