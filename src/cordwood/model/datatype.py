"""The types of BigQuery that values and columns have, whatever engine holds them."""

from enum import StrEnum
from typing import Final

import msgspec


class Kind(StrEnum):
    """JSON is BigQuery's own type; VARIANT is a value of any kind read from an event: it is typed by use."""

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


# Those that a decimal fraction is kept in.
EXACT: Final = (Kind.NUMERIC, Kind.BIGNUMERIC)
NUMBERS: Final = (Kind.INT64, Kind.FLOAT64, *EXACT)
# The first of two is what both are compared as.
MOMENTS: Final = (Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE, Kind.TIME)


class Datatype(msgspec.Struct, frozen=True):
    kind: Kind
    element: "Datatype | None" = None
    fields: "tuple[tuple[str, Datatype | None], ...]" = ()

    def __deepcopy__(self, _memo: object) -> "Datatype":
        """Copies of a node share its type: to copy that was a third of what it takes to compile."""
        return self
