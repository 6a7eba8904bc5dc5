"""Building blocks of the rules: names, raised errors, implicit conversions of types, and DuckDB's SQL vocabulary."""

import re
from collections.abc import Sequence
from string import ascii_lowercase
from typing import Final

from sqlglot import exp

from cordwood.model.datatype import DATE_AND_TIME_KINDS, EXACT_NUMERIC_KINDS, Datatype, Kind
from cordwood.model.event import ValueKind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import Conversion, ConversionByKinds, convert_to, is_event_number, kind_of
from cordwood.sql.lowering import (
    PLACEHOLDER_PATTERN,
    RAISED_ERROR_PREFIX,
    fragment_node,
    fragment_parts,
    has_function_calls,
    identifier_node,
    is_evaluated_in_unchosen_branch,
    is_fragment,
    quoted_literal_sql,
    returns_null_on_error,
    string_literal_node,
)
from cordwood.sql.nodes import (
    PATH_KINDS_METADATA_KEY,
    EventAsText,
    RepeatableCast,
    TextAsEventValue,
    constant_text,
    has_operation,
    struct_field_name,
)
from cordwood.sql.rules.event_numbers import EventNumberRules, FloatOfEventValue, FloatOfInteger
from cordwood.sql.rules.times import (
    CANONICAL_PATTERN_BY_KIND,
    daylight_saving_shift_minutes,
    engine_spelling_of_time,
    invalid_time_message,
    is_utc,
    needs_runtime_time_validation,
    zone_offset_minutes,
)
from cordwood.sql.rules.vocabulary import CommonSql

TYPE_NAME_BY_KIND: Final = {
    Kind.STRING: "VARCHAR",
    Kind.BYTES: "BLOB",
    Kind.INT64: "BIGINT",
    Kind.FLOAT64: "DOUBLE",
    Kind.NUMERIC: "DECIMAL(38, 9)",
    Kind.BIGNUMERIC: "DECIMAL(38, 18)",
    Kind.BOOL: "BOOLEAN",
    Kind.TIMESTAMP: "TIMESTAMPTZ",
    Kind.DATETIME: "TIMESTAMP",
    Kind.DATE: "DATE",
    Kind.TIME: "TIME",
    Kind.INTERVAL: "INTERVAL",
    Kind.JSON: "JSON",
    Kind.VARIANT: "VARIANT",
}

# A private-use character that marks encoded parts of names. Empty names and NUL characters are encoded, because DuckDB
# does not accept them. Names that look like the rules' lambda variables, such as `_e`, are also encoded, because DuckDB
# would confuse a lambda variable with a relation of the same name.
_NAME_ESCAPE_CHARACTER = "\ue0ff"
_ESCAPE_BY_CHARACTER = {_NAME_ESCAPE_CHARACTER: f"{_NAME_ESCAPE_CHARACTER}s", "\0": f"{_NAME_ESCAPE_CHARACTER}0"}
_CHARACTER_BY_ESCAPE = {f"{_NAME_ESCAPE_CHARACTER}s": _NAME_ESCAPE_CHARACTER, f"{_NAME_ESCAPE_CHARACTER}0": "\0"}
_ESCAPE_PATTERN = re.compile(f"{_NAME_ESCAPE_CHARACTER}(?:[s0ev]|d[0-9]+_)")
_LAMBDA_VARIABLE_PATTERN: Final = re.compile("_[a-z][0-9]*", re.IGNORECASE)


def is_valid_engine_name(name: str) -> bool:
    """Return whether a name can be written in DuckDB's SQL without being encoded by `encode_engine_name`."""
    return (
        name != ""
        and "\0" not in name
        and _NAME_ESCAPE_CHARACTER not in name
        and not _LAMBDA_VARIABLE_PATTERN.fullmatch(name)
    )


def encode_engine_name(name: str) -> str:
    """Encode a name for DuckDB's SQL if necessary; different names have different encodings."""
    if is_valid_engine_name(name):
        return name
    if _LAMBDA_VARIABLE_PATTERN.fullmatch(name):
        return f"{_NAME_ESCAPE_CHARACTER}v{name}"
    return "".join(_ESCAPE_BY_CHARACTER.get(letter, letter) for letter in name) or f"{_NAME_ESCAPE_CHARACTER}e"


def decode_engine_name(name: str) -> str:
    """Decode a name that `encode_engine_name` has encoded."""
    return (
        _ESCAPE_PATTERN.sub(lambda match: _CHARACTER_BY_ESCAPE.get(match[0], ""), name)
        if _NAME_ESCAPE_CHARACTER in name
        else name
    )


def disambiguate_letter_case(name: str, index: int) -> str:
    """Return a unique name for a name that differs from an earlier one only by case; DuckDB ignores case in names."""
    return f"{encode_engine_name(name)}{_NAME_ESCAPE_CHARACTER}d{index}_"


def text_literal_node(value: str) -> exp.Expr:
    return exp.Literal.string(value)


def failure_sql(node: exp.Expr, message: str) -> str:
    """Return SQL that raises an error with the constant `message`, for insertion into a template.

    Where no error may be raised, such as inside SAFE, the SQL is NULL.
    """
    return _failure_sql_for_message(node, quoted_literal_sql(RAISED_ERROR_PREFIX + message))


def _failure_sql_for_message(node: exp.Expr, message: str) -> str:
    """Return the same as `failure_sql`, but for a message that is given as SQL or as a placeholder.

    The text of the message must begin with `RAISED_ERROR_PREFIX`.
    """
    may_fail = (
        not returns_null_on_error(node)
        and not is_evaluated_in_unchosen_branch(node)
        and not _is_partition_or_order_key(node)
    )
    return f"error({message})" if may_fail else "NULL"


def _is_partition_or_order_key(node: exp.Expr) -> bool:
    """Return whether the node is in a window's PARTITION BY or ORDER BY, where DuckDB does not accept `error`."""
    while node.parent is not None and not isinstance(node, exp.CTE):
        if isinstance(node.parent, exp.Window) and node.arg_key != "this":
            return True
        node = node.parent
    return False


def is_cheap_to_repeat(node: exp.Expr) -> bool:
    """Return whether evaluating the node twice takes hardly more time than evaluating it once."""
    if is_fragment(node):
        return (has_operation(node, RepeatableCast) or not has_function_calls(node)) and all(
            map(is_cheap_to_repeat, fragment_parts(node))
        )
    return isinstance(node, (exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Parameter, exp.Boolean)) or (
        isinstance(node, (exp.Cast, exp.Neg, exp.Paren, exp.Dot)) and is_cheap_to_repeat(node.this)
    )


def type_name_node(datatype: Datatype | None) -> exp.Expr | None:
    """Return DuckDB's name of a type as a syntax node, or None if the type is not completely known."""
    if datatype is None:
        return None
    if datatype.kind is Kind.ARRAY:
        element = type_name_node(datatype.element)
        return fragment_node("{0}[]", element) if element else None
    if datatype.kind is Kind.STRUCT:
        return _struct_type_name_node(datatype)
    return fragment_node(TYPE_NAME_BY_KIND[datatype.kind])


def _struct_type_name_node(datatype: Datatype) -> exp.Expr | None:
    types = [type_name_node(field) for _, field in datatype.fields]
    parts = [
        part
        for index, field_type in enumerate(types)
        if field_type is not None
        for part in (struct_field_name_node(datatype, index), field_type)
    ]
    if not parts or len(parts) < 2 * len(types):
        return None
    return fragment_node(
        f"STRUCT({', '.join(f'{{{2 * index}}} {{{2 * index + 1}}}' for index in range(len(types)))})", *parts
    )


def struct_field_name_node(datatype: Datatype, index: int) -> exp.Expr:
    """Return the name in DuckDB of the struct field at `index`, as a syntax node."""
    name, earlier_names = datatype.fields[index][0], [label for label, _ in datatype.fields[:index]]
    if name and name not in earlier_names and name.lower() in map(str.lower, earlier_names):
        return identifier_node(disambiguate_letter_case(name, index), is_verbatim=True)
    return identifier_node(struct_field_name(datatype, index))


_TIME_RANGE_SQL_BY_KIND: Final = {
    Kind.DATE: ("DATE '0001-01-01'", "DATE '9999-12-31'"),
    Kind.DATETIME: ("TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '9999-12-31 23:59:59.999999'"),
    Kind.TIMESTAMP: ("TIMESTAMPTZ '0001-01-01 00:00:00+00'", "TIMESTAMPTZ '9999-12-31 23:59:59.999999+00'"),
}


def range_checked_time_sql(node: exp.Expr, moment: str, kind: Kind) -> str:
    """Add to `moment`, the template of a time, a check that fails before the year 1 and after 9999.

    The check is needed, because DuckDB itself allows more years.
    """
    if kind not in _TIME_RANGE_SQL_BY_KIND:
        return moment
    first, last = _TIME_RANGE_SQL_BY_KIND[kind]
    failure = failure_sql(node, f"{kind} out of range: it would be before 0001-01-01 or after 9999-12-31")
    return f"CASE WHEN {moment} < {first} OR {moment} > {last} THEN {failure} ELSE {moment} END"


# The maximum size of the result of a replacement. It is far more than any event has, but results up to it are computed
# fast.
MAX_REPLACEMENT_RESULT_BYTES: Final = 64 * 1024 * 1024


def size_checked_replacement_sql(node: exp.Expr) -> str:
    """Return the template of a replacement text, which fails if the result of the replacement could be too large.

    `@c` is the replacement text, by which matches in `@a` are replaced. DuckDB itself does not limit the result.
    """
    too_large_failure = failure_sql(node, "Output of replacing is too large")
    return f"CASE WHEN strlen(@a)::HUGEINT * strlen(@c) > {MAX_REPLACEMENT_RESULT_BYTES} THEN {too_large_failure} ELSE @c END"


def fill_template(template: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()) -> exp.Expr:
    """Fill a template that refers to `parts` as `@a`, `@b`…, so that expensive parts are evaluated only once.

    `texts` are constants, to which the template refers as `{0}`, `{1}`…
    """
    evaluated_first = _parts_to_evaluate_first(template, parts)
    template = PLACEHOLDER_PATTERN.sub(lambda placeholder: f"{{{int(placeholder[1]) + len(parts)}}}", template)
    template = _PART_PLACEHOLDER_PATTERN.sub(
        lambda match: _part_reference(ascii_lowercase.index(match[1]), evaluated_first), template
    )
    if evaluated_first:
        fields = ", ".join(f"{ascii_lowercase[index]} := {{{index}}}" for index in evaluated_first)
        template = f"list_transform([struct_pack({fields})], lambda _v: {template})[1]"
    return fragment_node(template, *parts, *texts)


_PART_PLACEHOLDER_PATTERN: Final = re.compile("@([a-z])")


def _part_reference(index: int, evaluated_first: Sequence[int]) -> str:
    return f"_v.{ascii_lowercase[index]}" if index in evaluated_first else f"{{{index}}}"


def _parts_to_evaluate_first(template: str, parts: Sequence[exp.Expr]) -> list[int]:
    """Return the indexes of the parts that must be evaluated before the template instead of inside it.

    If there is such a part and the template has a TRY, all expensive parts are evaluated before the template. Otherwise
    TRY would hide errors of the parts.
    """
    evaluated_first = [index for index, part in enumerate(parts) if not _can_inline(template, index, part)]
    if evaluated_first and "try(" in template:
        return [index for index, part in enumerate(parts) if not is_cheap_to_repeat(part)]
    return evaluated_first


def _can_inline(template: str, index: int, part: exp.Expr) -> bool:
    """Return whether the part may be inserted in the template: it is cheap, or is used only once and outside of TRY."""
    if is_cheap_to_repeat(part):
        return True
    return template.count("@" + ascii_lowercase[index]) < 2 and "try(" not in template


def fill_fallible_template(node: exp.Expr, template: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()) -> exp.Expr:
    """Fill a template of `@a`, `@b`… that may fail; inside SAFE, the result is NULL instead of an error."""
    return fill_template(f"try({template})" if returns_null_on_error(node) else template, *parts, texts=texts)


def variant_as_text(value: exp.Expr) -> exp.Expr:
    """Return SQL for an event's scalar as text; DuckDB reads it from shredded columns without assembling the value.

    An object or an array becomes a text in DuckDB's own notation, so this is only for values that are known to be
    scalars, and for texts that are parsed as scalars.
    """
    return fragment_node("{0}::VARCHAR", value, operation=EventAsText())


# The kinds of values whose JSON is not the text that DuckDB's cast to VARCHAR gives. Values whose kinds are not sure
# may be of these kinds.
_KINDS_PRINTED_AS_JSON: Final = frozenset({ValueKind.OBJECT, ValueKind.ARRAY, ValueKind.UNSURE_KINDS})


def event_value_as_text(value: exp.Expr) -> exp.Expr:
    """Convert a value from an event to text; objects and arrays become JSON.

    If only scalars were seen at the value's path, the value is read as text from its shredded column, which takes a
    third of the time of the general conversion. A value that was made from a text is this text.
    """
    kinds = value.meta_get(PATH_KINDS_METADATA_KEY)
    if has_operation(value.unnest(), TextAsEventValue) or (kinds and not kinds & _KINDS_PRINTED_AS_JSON):
        return variant_as_text(value)
    is_composite = "left(@a::VARCHAR, 1) IN ('{', '[') AND variant_typeof(@a) <> 'VARCHAR'"
    return fill_template(f"CASE WHEN {is_composite} THEN @a::JSON::VARCHAR ELSE @a::VARCHAR END", value)


def timestamp_to_utc_wall_clock(node: exp.Expr) -> exp.Expr:
    """Convert a TIMESTAMP to its wall-clock time in UTC, because DuckDB calculates with that ten times as fast."""
    return fragment_node("make_timestamp(epoch_us({0}))", node, operation=RepeatableCast())


def wall_clock_to_timestamp(node: exp.Expr) -> exp.Expr:
    """Convert a wall-clock time in UTC to a TIMESTAMP."""
    return fragment_node("make_timestamptz(epoch_us({0}))", node, operation=RepeatableCast())


# SQL for a time zone `@b` that is known only when the query runs. It may be an offset such as `+02:00`, but DuckDB
# accepts only names of zones. So an offset is replaced by the zone UTC, and the time is shifted by the offset.
_IS_ZONE_OFFSET_SQL: Final = "regexp_matches(@b, '^(?i:utc|gmt)?[+-]')"
_ZONE_NAME_SQL: Final = f"CASE WHEN {_IS_ZONE_OFFSET_SQL} THEN 'UTC' ELSE @b END"
_PADDED_ZONE_OFFSET_SQL: Final = r"regexp_replace(regexp_extract(@b, '[+-].*'), '^(.)(\d)(:|$)', '\10\2\3')"
_ZONE_OFFSET_MICROSECONDS_SQL: Final = (
    f"CASE WHEN {_IS_ZONE_OFFSET_SQL} THEN 946684800000000 - epoch_us(('2000-01-01 00:00' || {_PADDED_ZONE_OFFSET_SQL})::TIMESTAMPTZ)"
    " ELSE 0 END"
)


def to_zone_wall_clock(moment: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """Return the wall-clock time in the time zone `zone` at the time `moment`."""
    if zone is None or is_utc(zone):
        return timestamp_to_utc_wall_clock(moment)
    offset = zone_offset_minutes(zone)
    if offset is not None:
        return fragment_node(f"make_timestamp(epoch_us({{0}}) + {offset * 60_000_000})", moment)
    name = constant_text(zone)
    if name is None:
        return fill_template(
            f"timezone({_ZONE_NAME_SQL}, make_timestamptz(epoch_us(@a) + {_ZONE_OFFSET_MICROSECONDS_SQL}))",
            moment,
            copy_tree(zone),
        )
    return fragment_node("timezone({0}, {1})", text_literal_node(name), moment)


def first_timestamp_of_wall_clock(wall: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """Return the time at which clocks in the zone show `wall`; if clocks are set back, the first of two such times."""
    if zone is None or is_utc(zone) or zone_offset_minutes(zone) is not None:
        return from_zone_wall_clock(wall, zone)
    name = constant_text(zone)
    repeated_us = daylight_saving_shift_minutes(zone) * 60_000_000
    earlier_sql = f"make_timestamptz(epoch_us(@a) - {repeated_us})"
    wall_clock = f"timezone(@c, {earlier_sql})"
    if name is None:
        zone_name, shift = (
            template.replace("@b", "@c") for template in (_ZONE_NAME_SQL, _ZONE_OFFSET_MICROSECONDS_SQL)
        )
        wall_clock = f"timezone({zone_name}, make_timestamptz(epoch_us(@a) - {repeated_us} + {shift}))"
    first = f"CASE WHEN {wall_clock} = @b THEN {earlier_sql} ELSE @a END"
    return fill_template(
        first,
        from_zone_wall_clock(wall, zone),
        copy_tree(wall),
        copy_tree(zone) if name is None else text_literal_node(name),
    )


def from_zone_wall_clock(wall: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """Return the time at which clocks in the zone show `wall`.

    The caller uses this for values of `wall` that clocks hardly ever show twice, such as the start of a day.
    """
    if zone is None or is_utc(zone):
        return wall_clock_to_timestamp(wall)
    offset = zone_offset_minutes(zone)
    if offset is not None:
        return fragment_node(f"make_timestamptz(epoch_us({{0}}) - {offset * 60_000_000})", wall)
    name = constant_text(zone)
    if name is None:
        return fill_template(
            f"make_timestamptz(epoch_us(timezone({_ZONE_NAME_SQL}, @a)) - {_ZONE_OFFSET_MICROSECONDS_SQL})",
            wall,
            copy_tree(zone),
        )
    return fragment_node("timezone({0}, {1})", text_literal_node(name), wall)


def convert_implicitly(node: exp.Expr, kind: Kind) -> exp.Expr:
    if isinstance(node, exp.Null) and kind in DATE_AND_TIME_KINDS:
        # The NULL is cast, because DuckDB chooses among its functions of times by the type of the argument.
        return fragment_node(f"NULL::{TYPE_NAME_BY_KIND[kind]}")
    return convert_to(_IMPLICIT_CONVERSIONS, node, kind)


def time_to_utc_wall_clock(node: exp.Expr) -> exp.Expr:
    """Convert a time of any type to its wall-clock time in UTC, which DuckDB's date functions accept."""
    kind = kind_of(node)
    if isinstance(node, exp.Null):
        return convert_implicitly(node, Kind.DATETIME)
    if kind is Kind.TIMESTAMP:
        return timestamp_to_utc_wall_clock(node)
    if kind is Kind.DATE:
        return fragment_node("{0}::TIMESTAMP", node)
    if kind in (Kind.STRING, Kind.VARIANT):
        return timestamp_to_utc_wall_clock(convert_implicitly(node, Kind.TIMESTAMP))
    return node


def _cast_conversion(kind: Kind) -> Conversion:
    return lambda node: fragment_node(f"{{0}}::{TYPE_NAME_BY_KIND[kind]}", node, operation=RepeatableCast())


def _try_cast_conversion(kind: Kind) -> Conversion:
    return lambda node: fragment_node(f"try_cast({{0}} AS {TYPE_NAME_BY_KIND[kind]})", variant_as_text(node))


def _event_value_to_float(node: exp.Expr) -> exp.Expr:
    return fragment_node("try_cast({0} AS DOUBLE)", variant_as_text(node), operation=FloatOfEventValue())


def _integer_to_float(node: exp.Expr) -> exp.Expr:
    return fragment_node("{0}::DOUBLE", node, operation=FloatOfInteger())


def _float_to_integer(node: exp.Expr) -> exp.Expr:
    """Convert a number from an event to INT64; a FLOAT64 that is no such number is not converted implicitly."""
    return EVENT_NUMBER_RULES.to_integer(node) if is_event_number(node) else node


def _number_to_variant(node: exp.Expr) -> exp.Expr:
    return EVENT_NUMBER_RULES.as_event_value(node)


def text_to_time(node: exp.Expr, value: exp.Expr, kind: Kind) -> exp.Expr:
    """Return SQL that parses a text as a time in BigQuery's syntax; inside SAFE, it returns NULL for invalid texts."""
    if needs_runtime_time_validation(value, kind):
        texts = [
            string_literal_node(f"^({CANONICAL_PATTERN_BY_KIND[kind]})$"),
            string_literal_node(RAISED_ERROR_PREFIX + invalid_time_message(value, kind)),
        ]
        return fill_template(_time_parsing_template(node, kind), value, texts=texts)
    canonical = engine_spelling_of_time(value, kind)
    text = exp.Literal.string(canonical) if canonical is not None else value
    return (
        fill_template(f"try(@a::{TYPE_NAME_BY_KIND[kind]})", text)
        if returns_null_on_error(node)
        else fragment_node(f"{{0}}::{TYPE_NAME_BY_KIND[kind]}", text)
    )


def _time_parsing_template(node: exp.Expr, kind: Kind) -> str:
    """Return the template that parses texts as times; `{0}` is the pattern of valid texts, `{1}` an error message.

    Most texts pass a cheap test of their form. DuckDB parses these directly, which is three times as fast as matching
    the pattern. The test is necessary, because DuckDB's parser accepts more texts than BigQuery's. The pattern is
    matched only for texts that fail the test or that DuckDB rejects.
    """
    cast = "try_cast" if returns_null_on_error(node) else "cast"
    # Convert lower-case letters and offsets with one-digit hours, which BigQuery accepts, to DuckDB's syntax.
    normalized = r"regexp_replace(upper(@a), '(:\d.*[+-])(\d)(:|$)', '\10\2\3')"
    failure = _failure_sql_for_message(node, "{1}")
    checked = f"CASE WHEN @a IS NULL THEN NULL WHEN regexp_matches(@a, {{0}}) THEN {cast}({normalized} AS {TYPE_NAME_BY_KIND[kind]}) ELSE {failure} END"
    return f"coalesce(CASE WHEN {_DIRECT_PARSE_TEST_BY_KIND[kind]} THEN try_cast(@a AS {TYPE_NAME_BY_KIND[kind]}) END, {checked})"


_HAS_FOUR_DIGIT_YEAR_SQL: Final = "@a LIKE '____-%-%' AND @a > '0001'"

# For each type, the test that a text must pass to be parsed directly. The length of a text is limited, because longer
# texts may have too many fractional digits. The length of a DATETIME is fixed, so that it cannot end in a time zone.
_DIRECT_PARSE_TEST_BY_KIND: Final = {
    Kind.TIMESTAMP: f"{_HAS_FOUR_DIGIT_YEAR_SQL} AND length(@a) <= 35",
    Kind.DATETIME: f"{_HAS_FOUR_DIGIT_YEAR_SQL} AND length(@a) IN (10, 19)",
    Kind.DATE: _HAS_FOUR_DIGIT_YEAR_SQL,
    Kind.TIME: "length(@a) = 8 AND @a < '24'",
}


def _text_to_time_conversion(kind: Kind) -> Conversion:
    return lambda node: text_to_time(node, node, kind)


def _timestamp_to_date(node: exp.Expr) -> exp.Expr:
    return fragment_node("{0}::DATE", timestamp_to_utc_wall_clock(node))


_IMPLICIT_CONVERSIONS: Final[ConversionByKinds] = {
    **{(Kind.STRING, kind): _text_to_time_conversion(kind) for kind in DATE_AND_TIME_KINDS},
    (Kind.STRING, Kind.BYTES): lambda node: fragment_node("encode({0})", node),
    (Kind.STRING, Kind.JSON): _cast_conversion(Kind.JSON),
    (Kind.DATE, Kind.DATETIME): _cast_conversion(Kind.DATETIME),
    (Kind.DATE, Kind.TIMESTAMP): lambda node: wall_clock_to_timestamp(fragment_node("{0}::TIMESTAMP", node)),
    (Kind.DATETIME, Kind.TIMESTAMP): wall_clock_to_timestamp,
    (Kind.DATETIME, Kind.DATE): _cast_conversion(Kind.DATE),
    (Kind.TIMESTAMP, Kind.DATETIME): timestamp_to_utc_wall_clock,
    (Kind.TIMESTAMP, Kind.DATE): _timestamp_to_date,
    (Kind.INT64, Kind.FLOAT64): _integer_to_float,
    (Kind.INT64, Kind.VARIANT): _cast_conversion(Kind.VARIANT),
    (Kind.FLOAT64, Kind.INT64): _float_to_integer,
    (Kind.FLOAT64, Kind.VARIANT): _number_to_variant,
    (Kind.INT64, Kind.NUMERIC): _cast_conversion(Kind.NUMERIC),
    (Kind.NUMERIC, Kind.FLOAT64): _cast_conversion(Kind.FLOAT64),
    (Kind.BIGNUMERIC, Kind.FLOAT64): _cast_conversion(Kind.FLOAT64),
    (Kind.VARIANT, Kind.STRING): event_value_as_text,
    (Kind.VARIANT, Kind.BYTES): lambda node: fragment_node("encode({0})", event_value_as_text(node)),
    # DuckDB's own cast of a text with a fraction rounds halves away from zero, as BigQuery does.
    (Kind.VARIANT, Kind.INT64): _try_cast_conversion(Kind.INT64),
    **dict.fromkeys(((Kind.VARIANT, kind) for kind in (Kind.FLOAT64, *EXACT_NUMERIC_KINDS)), _event_value_to_float),
    (Kind.VARIANT, Kind.BOOL): _try_cast_conversion(Kind.BOOL),
    (Kind.VARIANT, Kind.TIMESTAMP): _try_cast_conversion(Kind.TIMESTAMP),
    (Kind.VARIANT, Kind.DATETIME): _try_cast_conversion(Kind.DATETIME),
    (Kind.VARIANT, Kind.DATE): _try_cast_conversion(Kind.DATE),
    (Kind.VARIANT, Kind.TIME): _try_cast_conversion(Kind.TIME),
    (Kind.VARIANT, Kind.JSON): _cast_conversion(Kind.JSON),
}


def typed_null(datatype: Datatype | None) -> exp.Expr:
    name = type_name_node(datatype)
    return exp.Null() if name is None else fragment_node("NULL::{0}", name)


def _engine_cast(node: exp.Expr, kind: Kind) -> exp.Expr:
    return fragment_node(f"{{0}}::{TYPE_NAME_BY_KIND[kind]}", node)


def conditional_sql(condition: str, then: str, otherwise: str = "NULL") -> str:
    return f"CASE WHEN {condition} THEN {then}{'' if otherwise == 'NULL' else f' ELSE {otherwise}'} END"


def fail_if_sql(node: exp.Expr, is_invalid: str, message: str, value: str) -> str:
    return conditional_sql(is_invalid, failure_sql(node, message), value)


def _bracketed_array_text(array: exp.Expr, name: str, element_text: exp.Expr, separator: str) -> exp.Expr:
    texts = fragment_node(f"list_transform({{0}}, lambda {name}: {{1}})", array, element_text)
    joined = f"coalesce(array_to_string(@a, '{separator}'), '')"
    return fill_template(f"CASE WHEN @a IS NOT NULL THEN '[' || {joined} || ']' END", texts)


def as_json_document(value: exp.Expr) -> exp.Expr:
    """Convert a value to a JSON document; a text that is not valid JSON becomes NULL."""
    kind = kind_of(value)
    if kind is Kind.JSON:
        return value
    if kind is Kind.VARIANT:
        return fragment_node("{0}::JSON", value)
    return fill_template("(CASE WHEN json_valid(@a) THEN @a END)::JSON", value)


def number_as_variant_sql(number: str, integer: str) -> str:
    """Return SQL that converts the double `number` to a VARIANT: the BIGINT `integer` if both are equal."""
    return f"CASE WHEN {integer}::DOUBLE = {number} THEN {integer}::VARIANT ELSE {number}::VARIANT END"


COMMON_SQL: Final = CommonSql(
    fill_template=fill_template,
    fill_fallible_template=fill_fallible_template,
    typed_null=typed_null,
    convert_implicitly=convert_implicitly,
    cast=_engine_cast,
    time_to_utc_wall_clock=time_to_utc_wall_clock,
    timestamp_to_utc_wall_clock=timestamp_to_utc_wall_clock,
    as_json_document=as_json_document,
    fail_if_sql=fail_if_sql,
    case_when=conditional_sql,
    is_null="{} IS NULL".format,
    is_not_null="{} IS NOT NULL".format,
    coalesce="coalesce({}, {})".format,
    concat=lambda *texts: " || ".join(texts),
    as_text="{}::VARCHAR".format,
    as_integer="{}::BIGINT".format,
    as_float="{}::DOUBLE".format,
    full_match="regexp_full_match({}, '{}')".format,
    extract_first_match="regexp_extract({}, '{}')".format,
    replace_first="regexp_replace({}, '{}', '{}')".format,
    replace_all="regexp_replace({}, '{}', '{}', 'g')".format,
    let_binding="list_transform([{}], lambda {}: {})[1]".format,
    bracketed_array_text=_bracketed_array_text,
    struct_field="struct_extract_at({}, {})".format,
    text_as_exact_integer="try_cast({} AS BIGINT)".format,
    float_as_exact_integer="try_cast({} AS BIGINT)".format,
    round_to_integer="CAST(round({}) AS BIGINT)".format,
    truncate_to_integer="try_cast(trunc({}) AS BIGINT)".format,
    event_text_as_float="try_cast({} AS DOUBLE)".format,
    number_as_event_value=number_as_variant_sql,
    is_between="{} BETWEEN {} AND {}".format,
    text_as_event_value="{}::VARIANT".format,
    nan="'nan'::DOUBLE",
    is_finite="isfinite({})".format,
    is_infinite="isinf({})".format,
    is_nan="isnan({})".format,
    integer_quotient="{} // {}".format,
    to_unix_micros="epoch_us({})".format,
    from_unix_micros="make_timestamptz({})".format,
)

EVENT_NUMBER_RULES: Final = EventNumberRules(COMMON_SQL)
