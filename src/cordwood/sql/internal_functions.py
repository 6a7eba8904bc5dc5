"""Internal functions that BigQuery does not have: other dialects are translated to them, and engines implement them.

This module has the names and result types of these functions. It also has constants that the implementations of all
engines must share: the patterns of durations and sizes in texts, and the limits of flattening an event into attributes.
An attribute is one value within an event, as text, with a key such as `request.path`.
"""

from collections.abc import Callable, Mapping
from typing import Final

from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.nodes import internal_function_name

_STRING: Final = Datatype(Kind.STRING)
_INT64: Final = Datatype(Kind.INT64)
_FLOAT64: Final = Datatype(Kind.FLOAT64)
_BOOL: Final = Datatype(Kind.BOOL)
_JSON: Final = Datatype(Kind.JSON)
_STRING_ARRAY: Final = Datatype(Kind.ARRAY, element=_STRING)

# Result types by function name, without the prefix of internal functions.
RESULT_TYPE_BY_INTERNAL_FUNCTION: Final[dict[str, Datatype]] = {
    # The text of a value within an event, when read as an attribute; NULL for a missing value, an object or an array.
    "attribute": _STRING,
    # The text of the attribute `metadata`, for an event whose metadata is not an object.
    "attribute_scalar": _STRING,
    # The JSON text of a value within an event.
    "json_text": _STRING,
    # All attributes of an event, or only their keys or values. Arguments of each of these functions: the JSON of the
    # event's metadata, the JSON of its other keys, its project, and the number of levels to flatten.
    "attributes": _JSON,
    "attribute_keys": _STRING_ARRAY,
    "attribute_values": _STRING_ARRAY,
    # A time as ISO 8601 text with microseconds, without a time zone.
    "iso_time": _STRING,
    # A text parsed as a number: `whole_number` parses an integer, and its other arguments are the limits of the range;
    # `float_number` parses a float. NULL if the text is not such a number.
    "whole_number": _INT64,
    "float_number": _FLOAT64,
    # `duration_seconds` returns the seconds of a duration in Go's notation, such as 1h30m. `size_bytes` returns the
    # bytes of a size, such as 1.5KiB. Both return NULL for any other text.
    "duration_seconds": _FLOAT64,
    "size_bytes": _FLOAT64,
    # The text of a value in a logfmt line. A value in quotes that has a backslash is decoded as JSON; the result is NULL
    # if it is not a JSON string.
    "logfmt_text": _STRING,
    # A float; NULL if it is infinite or NaN.
    "finite": _FLOAT64,
    # A float; NULL if it is NaN.
    "not_nan": _FLOAT64,
    # Functions of floats by IEEE 754, which never fail: an overflow gives an infinity, an undefined result NaN.
    "ieee_add": _FLOAT64,
    "ieee_subtract": _FLOAT64,
    "ieee_multiply": _FLOAT64,
    "ieee_power": _FLOAT64,
    "ieee_exp": _FLOAT64,
    # The remainder of a division that is rounded toward zero. It has the sign of the dividend.
    "ieee_remainder": _FLOAT64,
    # A float in its shortest decimal form, as ClickHouse writes it.
    "float_text": _STRING,
    # A float rounded to a number of digits; halves are rounded to the even neighbour.
    "round_even": _FLOAT64,
    # A text with its letters A to Z converted to lower case (`lower`) or upper case (`upper`); other letters are
    # unchanged.
    "lower": _STRING,
    "upper": _STRING,
    # Aggregates of a number and a quantile level; `quantile` interpolates between values, `quantile_tdigest` does not.
    "quantile": _FLOAT64,
    "quantile_tdigest": _FLOAT64,
    # A JSON object from pairs of a constant key and a value.
    "json_object": _JSON,
    # The value of a key in an object of texts; the key need not be constant.
    "json_member": _STRING,
    # An array sorted in ascending order.
    "sorted_texts": _STRING_ARRAY,
    "sorted_numbers": Datatype(Kind.ARRAY, element=_INT64),
    "sorted_floats": Datatype(Kind.ARRAY, element=_FLOAT64),
    # Functions whose arguments are a JSON text and the keys of the path to a value in it.
    "json_string": _STRING,
    "json_raw": _STRING,
    "json_int": _INT64,
    "json_uint": _INT64,
    "json_float": _FLOAT64,
    "json_bool": _BOOL,
    "json_has": _BOOL,
    "json_length": _INT64,
    "json_type": _STRING,
    "json_valid": _BOOL,
    "json_keys": _STRING_ARRAY,
    "json_items": _STRING_ARRAY,
}

INTERNAL_FUNCTION_NAMES: Final = frozenset(
    internal_function_name(name).upper() for name in RESULT_TYPE_BY_INTERNAL_FUNCTION
)


# A whole duration in Go's notation: an optional sign and at least one number with a unit.
DURATION_PATTERN: Final = "[+-]?(?:[0-9]+(?:[.][0-9]+)?(?:ns|us|µs|μs|ms|s|m|h))+"
# For each unit, a pattern that captures the number before the unit, and the length of the unit in seconds. The unit `m`
# must not match the beginning of `ms`.
NUMBER_PATTERNS_OF_DURATION_UNITS: Final = (
    ("([0-9.]+)h", "3600"),
    ("([0-9.]+)m(?:[^s]|$)", "60"),
    ("([0-9.]+)s", "1"),
    ("([0-9.]+)ms", "0.001"),
    ("([0-9.]+)[uµμ]s", "0.000001"),
    ("([0-9.]+)ns", "0.000000001"),
)
# The texts that are durations although they have no unit, as an SQL list.
ZERO_DURATIONS_SQL: Final = "('0', '+0', '-0')"

BYTE_SIZE_PATTERN: Final = "[0-9]+(?:[.][0-9]+)? ?[A-Za-z]*"
BYTE_SIZE_NUMBER_PATTERN: Final = "^([0-9.]+)"
BYTE_SIZE_UNIT_PATTERN: Final = "([A-Za-z]*)$"
# The number of bytes in each unit of a size, by the unit's name in lower case. A number without a unit counts bytes.
BYTES_BY_SIZE_UNIT: Final[Mapping[str, int]] = {
    "": 1,
    "b": 1,
    **{f"{letter}{end}": 1000**power for power, letter in enumerate("kmgtp", 1) for end in ("", "b")},
    **{f"{letter}i{end}": 1024**power for power, letter in enumerate("kmgtp", 1) for end in ("", "b")},
}


# Limits of flattening an event into attributes. All engines share them, so that they find the same keys. If the JSON of
# an event has more characters or members, only its top level is flattened. An object whose flattened key is too long is
# kept as one value. Each flattened key repeats the keys of the enclosing objects: without these limits, an event of
# 16 KB takes 10 MB.
MAX_FLATTENED_JSON_CHARACTERS: Final = 16_384
MAX_FLATTENED_JSON_MEMBERS: Final = 512
MAX_FLATTENED_KEY_BYTES: Final = 128
# Compact JSON has these characters between the key and the value of each member, so engines count them to count the
# members.
JSON_KEY_VALUE_SEPARATOR: Final = '":'
# The maximum number of levels that are expanded by nested calls of functions. Nested calls hold every level in memory,
# so more levels are expanded by a loop.
_MAX_UNROLLED_NESTING_LEVELS: Final = 8


def expand_nested_objects(entries: str, levels: int, level: Callable[[str], str], repeated: str) -> str:
    """Return SQL that replaces each object in a list of entries by its own entries, `levels` times.

    `level` returns SQL that expands one level of the entries in its argument. If there are few levels, calls of `level`
    are nested. Otherwise the SQL is a loop of the engine, for which `repeated` is the template. In the template,
    `{entries}` stands for the list, `{levels}` for the number of rounds, and `{level}` for the SQL that expands one
    more level of the loop's accumulator `acc`.
    """
    if levels > _MAX_UNROLLED_NESTING_LEVELS:
        return repeated.format(levels=levels, level=level("acc"), entries=entries)
    for _ in range(levels):
        entries = level(entries)
    return entries
