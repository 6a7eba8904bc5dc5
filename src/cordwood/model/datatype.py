"""BigQuery's types, used for values and columns of every engine."""

from enum import StrEnum
from typing import Final

import msgspec


class Kind(StrEnum):
    """A type. JSON is BigQuery's own type; VARIANT is a value of unknown type from an event, typed by its use."""

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
NUMBERS: Final = (Kind.INT64, Kind.FLOAT64, *EXACT_NUMERIC_KINDS)
# Time types in order of precedence: values of two different types are compared as the first of them.
MOMENTS: Final = (Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE, Kind.TIME)


class Datatype(msgspec.Struct, frozen=True):
    kind: Kind
    element: "Datatype | None" = None
    fields: "tuple[tuple[str, Datatype | None], ...]" = ()

    def __deepcopy__(self, _memo: object) -> "Datatype":
        """Return the object itself: it is immutable, and copying it took a third of compilation time."""
        return self
