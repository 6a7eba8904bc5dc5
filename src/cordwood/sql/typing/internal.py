"""Functions that BigQuery has no word for: other dialects are translated into them, and each engine has rules for them."""

from typing import Final

from cordwood.model.datatype import Datatype
from cordwood.sql.nodes import internal_function
from cordwood.sql.typing.datatypes import BOOL, FLOAT64, INT64, JSON, STRING, array_of

# By their names without the sign.
RESULTS: Final[dict[str, Datatype]] = {
    # The text of a value within an event, as an attribute has it; NULL where the value is missing or has parts.
    "attribute": STRING,
    # The same of metadata that is no object.
    "attribute_scalar": STRING,
    # A value within an event as JSON.
    "json_text": STRING,
    # All attributes of an event, of the JSON of its metadata and other keys, its project, and the levels to take apart.
    "attributes": JSON,
    "attribute_keys": array_of(STRING),
    "attribute_values": array_of(STRING),
    # A text as a whole number from a least to a greatest, and as a float; NULL where it is none.
    "whole_number": INT64,
    "float_number": FLOAT64,
    # A float, or NULL where it is infinite or no number.
    "finite": FLOAT64,
    # A float, or NULL where it is no number.
    "not_nan": FLOAT64,
    # A float in its shortest digits, as ClickHouse writes it.
    "float_text": STRING,
    # Rounded to so many digits, a half to the even neighbour.
    "round_even": FLOAT64,
    # A to Z in small letters and in capitals; other letters stay.
    "lower": STRING,
    "upper": STRING,
    # Aggregates of a number and a level: with interpolation, and without.
    "quantile": FLOAT64,
    "quantile_tdigest": FLOAT64,
    # Pairs of a constant key and a value.
    "json_object": JSON,
    # What an object of texts has under a key, which need not be constant.
    "json_member": STRING,
    # An array from its least to its greatest element.
    "sorted_texts": array_of(STRING),
    "sorted_numbers": array_of(INT64),
    "sorted_floats": array_of(FLOAT64),
    # A JSON text, and the keys on the way to a value in it.
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
