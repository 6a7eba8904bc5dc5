"""Internal functions that BigQuery does not have: other dialects are translated to them, and engines implement them."""

from typing import Final

from cordwood.model.datatype import Datatype
from cordwood.sql.nodes import internal_function
from cordwood.sql.typing.datatypes import BOOL, FLOAT64, INT64, JSON, STRING, array_of

# By name, without the prefix of internal functions.
RESULTS: Final[dict[str, Datatype]] = {
    # The text of a value within an event, as an attribute; NULL if it is missing, an object or an array.
    "attribute": STRING,
    # The same for metadata that is not an object.
    "attribute_scalar": STRING,
    # A value within an event as JSON.
    "json_text": STRING,
    # All attributes of an event, from the JSON of its metadata and other keys, its project, and the levels to flatten.
    "attributes": JSON,
    "attribute_keys": array_of(STRING),
    "attribute_values": array_of(STRING),
    # A time in ISO 8601 with microseconds, without a zone.
    "iso_time": STRING,
    # A text as an integer within a range, and as a float; NULL if it is not a number.
    "whole_number": INT64,
    "float_number": FLOAT64,
    # A duration in Go's notation (1h30m) in seconds, and a size (1.5KiB) in bytes; NULL if the text is none.
    "duration_seconds": FLOAT64,
    "size_bytes": FLOAT64,
    # A float, or NULL if it is infinite or NaN.
    "finite": FLOAT64,
    # A float, or NULL if it is NaN.
    "not_nan": FLOAT64,
    # A float in the shortest decimal form, as ClickHouse writes it.
    "float_text": STRING,
    # Rounded to so many digits, half to even.
    "round_even": FLOAT64,
    # A to Z in lower or upper case; other letters are unchanged.
    "lower": STRING,
    "upper": STRING,
    # Aggregates of a number and a level: with interpolation, and without.
    "quantile": FLOAT64,
    "quantile_tdigest": FLOAT64,
    # Pairs of a constant key and a value.
    "json_object": JSON,
    # The value of a key in an object of texts; the key need not be constant.
    "json_member": STRING,
    # An array in ascending order.
    "sorted_texts": array_of(STRING),
    "sorted_numbers": array_of(INT64),
    "sorted_floats": array_of(FLOAT64),
    # A JSON text, and the keys of the path to a value in it.
    "json_string": STRING,
    "json_raw": STRING,
    "json_int": INT64,
    "json_uint": INT64,
    "json_float": FLOAT64,
    "json_bool": BOOL,
    "json_has": BOOL,
    "json_length": INT64,
    "json_type": STRING,
    "json_valid": BOOL,
    "json_keys": array_of(STRING),
    "json_items": array_of(STRING),
}

INTERNAL: Final = frozenset(internal_function(name).upper() for name in RESULTS)
