"""Building blocks of the lowering rules: names, errors, implicit conversions, and basic SQL templates."""

import re
from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from cordwood.model.datatype import DATE_AND_TIME_KINDS, EXACT_NUMERIC_KINDS, Datatype, Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import Conversion, ConversionByKinds, convert_to, inherit_metadata, is_event_number, kind_of
from cordwood.sql.lowering import (
    PLACEHOLDER_PATTERN,
    RAISED_ERROR_PREFIX,
    fragment_node,
    fragment_parts,
    is_evaluated_in_unchosen_branch,
    is_fragment,
    quoted_literal_sql,
    raise_unsupported,
    returns_null_on_error,
    string_literal_node,
)
from cordwood.sql.nodes import CONSTANT_VALUE_METADATA_KEY, constant_text, struct_field_name
from cordwood.sql.rules.event_numbers import EventNumberRules, FloatOfEventValue, FloatOfInteger
from cordwood.sql.rules.times import (
    CANONICAL_PATTERN_BY_KIND,
    engine_spelling_of_time,
    invalid_time_message,
    is_utc,
    needs_runtime_time_validation,
    zone_offset_minutes,
)
from cordwood.sql.rules.vocabulary import CommonSql, TernarySqlBuilder

# The meta key of an array that stands for NULL if it is empty. A subscript beyond the bounds of such an array is NULL
# instead of an error.
MAY_BE_NULL_METADATA_KEY: Final = "may_be_null"

# The meta key of an empty array that always stands for NULL, because ClickHouse has no NULL arrays.
IS_NULL_METADATA_KEY: Final = "is_null"

# ClickHouse's types for the kinds of BigQuery's types. The type of a TIMESTAMP has a time zone and that of a DATETIME
# has none, which distinguishes the two in an answer.
TYPE_NAME_BY_KIND: Final = {
    Kind.STRING: "String",
    Kind.BYTES: "String",
    Kind.INT64: "Int64",
    Kind.FLOAT64: "Float64",
    Kind.NUMERIC: "Decimal(38, 9)",
    Kind.BIGNUMERIC: "Decimal(76, 38)",
    Kind.BOOL: "Bool",
    Kind.TIMESTAMP: "DateTime64(6, 'UTC')",
    Kind.DATETIME: "DateTime64(6)",
    Kind.DATE: "Date32",
    Kind.TIME: "Time64(6)",
    Kind.INTERVAL: "Tuple(Int64, Int64, Int64)",
    Kind.JSON: "String",
    Kind.VARIANT: "String",
}

_NEVER_NULL_KINDS: Final = (Kind.ARRAY, Kind.INTERVAL)


def type_name_node(datatype: Datatype | None, *, has_names: bool = True) -> exp.Expr | None:
    """Return ClickHouse's name of a type as an argument of CAST; None if the type is not fully known.

    The type is nullable if ClickHouse allows it.
    """
    type_text = _type_name(datatype, has_names=has_names)
    return string_literal_node(type_text) if type_text else None


def _type_name(datatype: Datatype | None, *, has_names: bool) -> str | None:
    if datatype is None:
        return None
    if datatype.kind is Kind.ARRAY:
        element = _type_name(datatype.element, has_names=has_names) if datatype.element else "Nullable(Int64)"
        return f"Array({element})" if element else None
    if datatype.kind is Kind.STRUCT:
        return _struct_type_name(datatype, has_names=has_names)
    name = TYPE_NAME_BY_KIND[datatype.kind]
    return name if datatype.kind in _NEVER_NULL_KINDS else f"Nullable({name})"


def _struct_type_name(datatype: Datatype, *, has_names: bool) -> str | None:
    """Return ClickHouse's name of a struct's type. It must not be used as a template, because it may contain braces.

    The names of fields are optional, because cordwood reads fields by their position. The client parses the names of
    types, and supports only plain field names. Therefore, if any field has another name, all fields are left unnamed.
    """
    parts = [_type_name(field, has_names=has_names) for _, field in datatype.fields]
    if not parts or any(part is None for part in parts):
        return None
    names = _simple_field_names(datatype) if has_names else None
    fields = [f"{quote_name(name)} {part}" for name, part in zip(names, parts, strict=True)] if names else parts
    return f"Nullable(Tuple({', '.join(map(str, fields))}))"


def _simple_field_names(datatype: Datatype) -> list[str] | None:
    names = [struct_field_name(datatype, index) for index in range(len(datatype.fields))]
    return (
        names
        if all(_SIMPLE_NAME_PATTERN.fullmatch(name) and encode_engine_name(name) == name for name in names)
        else None
    )


_SIMPLE_NAME_PATTERN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


# The escape character of `encode_engine_name`, which is one of Unicode's characters for private use.
_NAME_ESCAPE_CHARACTER: Final = "\ue0ff"
# Matches names that ClickHouse resolves to subcolumns, which columns of some types have.
_SUBCOLUMN_NAME_PATTERN: Final = re.compile(r"null|size[0-9]+")


def encode_engine_name(name: str) -> str:
    """Return a spelling of the name that ClickHouse accepts; different names have different spellings.

    ClickHouse does not accept an empty name, and resolves some names to subcolumns. Such a name gets one escape
    character in front. In all other names, escape characters are doubled.
    """
    if name == "" or _SUBCOLUMN_NAME_PATTERN.fullmatch(name):
        return _NAME_ESCAPE_CHARACTER + name
    return name.replace(_NAME_ESCAPE_CHARACTER, _NAME_ESCAPE_CHARACTER * 2)


def quote_name(name: str) -> str:
    """Quote a name for a ClickHouse statement or for the name of a ClickHouse type."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\0", "\\0") + '"'


def native_cast(node: exp.Expr, kind: Kind) -> exp.Expr:
    """Return ClickHouse's own cast to the type of `kind`; it fails for values that do not fit, and keeps NULL."""
    return fragment_node(f"CAST({{0}}, {quoted_literal_sql(f'Nullable({TYPE_NAME_BY_KIND[kind]})')})", node)


def typed_null(datatype: Datatype | None) -> exp.Expr:
    name = type_name_node(datatype)
    if datatype is None or name is None:
        return exp.Null()
    if datatype.kind is not Kind.ARRAY:
        return fragment_node("CAST(NULL, {0})", name)
    null_array = fragment_node("CAST([], {0})", name)
    null_array.meta[IS_NULL_METADATA_KEY] = True
    return null_array


def fail_if_sql(node: exp.Expr, is_invalid: str, message: str, value: str) -> str:
    """Return template text that raises an error if `is_invalid` is true, and otherwise has the value `value`.

    `message` must be a constant of cordwood. If the operation `node` is inside SAFE, the text is NULL instead of an
    error. It is also NULL if `node` is in a branch that ClickHouse evaluates even if it does not choose the branch. If
    `is_invalid` is NULL, it counts as false. It is then replaced by false explicitly, because `throwIf` would test the
    hidden value that ClickHouse stores for a NULL.
    """
    return _fail_with_computed_message_sql(node, is_invalid, quoted_literal_sql(RAISED_ERROR_PREFIX + message), value)


def _fail_with_computed_message_sql(node: exp.Expr, is_invalid: str, message: str, value: str) -> str:
    """Return the same template text as `fail_if_sql`, for a message that is itself template text.

    The text of the message must begin with `RAISED_ERROR_PREFIX`.
    """
    if returns_null_on_error(node) or is_evaluated_in_unchosen_branch(node):
        return f"if({is_invalid}, NULL, {value})"
    return f"if(throwIf(ifNull({is_invalid}, false), {message}) = 1, NULL, {value})"


def is_cheap_to_repeat(node: exp.Expr) -> bool:
    """Return whether the node can be evaluated twice without considerable cost."""
    if is_fragment(node):
        return node.meta_get(CONSTANT_VALUE_METADATA_KEY) is not None or all(
            isinstance(part, exp.Literal) for part in fragment_parts(node)
        )
    return isinstance(node, (exp.Column, exp.Literal, exp.Null, exp.Parameter, exp.Boolean, exp.Dot)) or (
        isinstance(node, (exp.Cast, exp.Neg, exp.Paren)) and is_cheap_to_repeat(node.this)
    )


def fill_template(template: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()) -> exp.Expr:
    """Fill a template that refers to its parts by letters, such as `@a` and `@b`; evaluate expensive parts only once.

    `texts` are constants, which the template refers to by numbers, such as `{0}` and `{1}`.
    """
    expensive = [index for index, part in enumerate(parts) if not _can_inline(template, index, part)]
    template = PLACEHOLDER_PATTERN.sub(lambda placeholder: f"{{{int(placeholder[1]) + len(parts)}}}", template)
    template = _PART_PLACEHOLDER_PATTERN.sub(
        lambda match: f"_{match[1]}" if ord(match[1]) - 97 in expensive else f"{{{ord(match[1]) - 97}}}", template
    )
    if expensive:
        heads = ", ".join(f"_{chr(97 + index)}" for index in expensive)
        lists = ", ".join(f"[{{{index}}}]" for index in expensive)
        template = f"arrayMap(({heads}) -> {template}, {lists})[1]"
    return fragment_node(template, *parts, *texts)


_PART_PLACEHOLDER_PATTERN: Final = re.compile("@([a-z])")


def _can_inline(template: str, index: int, part: exp.Expr) -> bool:
    """Return whether the part may be inserted directly, because it is cheap or the template uses it only once."""
    return is_cheap_to_repeat(part) or template.count("@" + chr(97 + index)) < 2


def timestamp_to_utc_wall_clock(node: exp.Expr) -> exp.Expr:
    """Convert a TIMESTAMP to a DATETIME: the date and time in UTC."""
    return native_cast(node, Kind.DATETIME)


def _wall_clock_to_timestamp(node: exp.Expr) -> exp.Expr:
    """Convert a DATETIME, taken as a date and time in UTC, to a TIMESTAMP."""
    return native_cast(node, Kind.TIMESTAMP)


def to_zone_wall_clock(moment: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """Convert a TIMESTAMP to a DATETIME: the date and time that clocks in the zone show at that moment."""
    if zone is None or is_utc(zone):
        return timestamp_to_utc_wall_clock(moment)
    offset = zone_offset_minutes(zone)
    if offset is not None:
        return fragment_node(f"fromUnixTimestamp64Micro(toUnixTimestamp64Micro({{0}}) + {offset * 60_000_000})", moment)
    template = (
        "fromUnixTimestamp64Micro(toUnixTimestamp64Micro(@a) + timeZoneOffset(toTimeZone(@a, @b)) * toInt64(1000000))"
    )
    return fill_template(template, moment, _require_constant_zone(zone))


def first_timestamp_of_wall_clock(wall: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """Return the TIMESTAMP at which clocks in the zone show `wall`; if clocks are set back, the first of two."""
    if zone is None or is_utc(zone):
        return _wall_clock_to_timestamp(wall)
    offset = zone_offset_minutes(zone)
    if offset is not None:
        return fragment_node(
            f"fromUnixTimestamp64Micro(toUnixTimestamp64Micro({{0}}) - {offset * 60_000_000}, 'UTC')", wall
        )
    micros = fragment_node("toUnixTimestamp64Micro({0})", wall)
    return fill_template(_FIRST_TIMESTAMP_SQL, micros, _require_constant_zone(zone))


def _zone_offset_sql(micros: str) -> str:
    return f"toInt64(timeZoneOffset(fromUnixTimestamp64Micro({micros}, @b))) * 1000000"


# The parts of `_FIRST_TIMESTAMP_SQL`, which computes the TIMESTAMP at which clocks in the zone `@b` show the time `@a`.
# Two UTC offsets are tried: the zone's offset a day before (`_PREVIOUS_ZONE_OFFSET_SQL`), and its offset a day after
# (`_NEXT_ZONE_OFFSET_SQL`). The first one is used if it still holds at the given time, or if clocks are set forward and
# skip the given time. Otherwise, the second one is used.
_PREVIOUS_ZONE_OFFSET_SQL: Final = _zone_offset_sql("@a - 86400000000")
_NEXT_ZONE_OFFSET_SQL: Final = _zone_offset_sql("@a + 86400000000")
_PREVIOUS_OFFSET_HOLDS_SQL: Final = (
    f"{_zone_offset_sql(f'@a - {_PREVIOUS_ZONE_OFFSET_SQL}')} = {_PREVIOUS_ZONE_OFFSET_SQL}"
)
_NEXT_OFFSET_NOT_REACHED_SQL: Final = f"{_zone_offset_sql(f'@a - {_NEXT_ZONE_OFFSET_SQL}')} != {_NEXT_ZONE_OFFSET_SQL}"
_FIRST_TIMESTAMP_SQL: Final = f"fromUnixTimestamp64Micro(@a - if({_PREVIOUS_OFFSET_HOLDS_SQL} OR {_NEXT_OFFSET_NOT_REACHED_SQL}, {_PREVIOUS_ZONE_OFFSET_SQL}, {_NEXT_ZONE_OFFSET_SQL}), 'UTC')"


def _require_constant_zone(zone: exp.Expr) -> exp.Expr:
    """Return the zone; refuse a zone that is a column, because ClickHouse stores the zone in the type of a value."""
    if zone.find(exp.Column) is not None:
        raise_unsupported(zone, "A time zone that is a column")
    return copy_tree(zone)


def convert_implicitly(node: exp.Expr, kind: Kind) -> exp.Expr:
    return convert_to(_IMPLICIT_CONVERSIONS, node, kind)


def time_to_utc_wall_clock(node: exp.Expr) -> exp.Expr:
    """Convert a time of any type to a DATETIME: the date and time in UTC."""
    kind = kind_of(node)
    if kind in (Kind.TIMESTAMP, Kind.DATE):
        return timestamp_to_utc_wall_clock(node)
    if kind in (Kind.STRING, Kind.VARIANT):
        return timestamp_to_utc_wall_clock(convert_implicitly(node, Kind.TIMESTAMP))
    return node


def _cast_conversion(kind: Kind) -> Conversion:
    return lambda node: native_cast(node, kind)


def _try_cast_conversion(kind: Kind) -> Conversion:
    name = quoted_literal_sql(TYPE_NAME_BY_KIND[kind])
    return lambda node: fragment_node(f"accurateCastOrNull({{0}}, {name})", event_value_as_text(node))


def _event_value_to_time_conversion(kind: Kind) -> Conversion:
    """Return the conversion of an event's value to a time, which is NULL for values that are no times of this type.

    Texts are matched with the syntax of BigQuery, because ClickHouse would also read `7` and `12:00` as dates, and would
    not read a DATE from the text of a TIMESTAMP.
    """
    return lambda node: fill_template(
        _event_time_template(kind), event_value_as_text(node), texts=[string_literal_node(_event_time_pattern(kind))]
    )


def _event_time_pattern(kind: Kind) -> str:
    """Return the pattern of texts that are converted to `kind`; a DATE is also read from a TIMESTAMP's text."""
    return f"^({CANONICAL_PATTERN_BY_KIND[Kind.TIMESTAMP if kind in _KINDS_WITH_DATE else kind]})$"


def _event_time_template(kind: Kind) -> str:
    return f"if(match(@a, {{0}}), {_TIME_PARSER_TEMPLATE_BY_KIND[kind].replace('#', 'OrNull')}, NULL)"


_KINDS_WITH_DATE: Final = (Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE)


def _event_value_to_float(node: exp.Expr) -> exp.Expr:
    return fragment_node("accurateCastOrNull({0}, 'Float64')", event_value_as_text(node), operation=FloatOfEventValue())


def _integer_to_float(node: exp.Expr) -> exp.Expr:
    return fragment_node("CAST({0}, 'Nullable(Float64)')", node, operation=FloatOfInteger())


def _event_value_to_integer(node: exp.Expr) -> exp.Expr:
    return fill_template(EVENT_NUMBER_TEXT_TO_INTEGER_SQL, event_value_as_text(node))


def _float_to_integer(node: exp.Expr) -> exp.Expr:
    """Convert a number from an event to INT64; a FLOAT64 that is no such number is not converted implicitly."""
    return EVENT_NUMBER_RULES.to_integer(node) if is_event_number(node) else node


def _number_to_json(node: exp.Expr) -> exp.Expr:
    return EVENT_NUMBER_RULES.as_event_value(node)


def round_to_integer_sql(number: str) -> str:
    """Return SQL that rounds a float to INT64, halves away from zero; it is NULL if the float is out of range."""
    return f"accurateCastOrNull(trunc({number}) + sign({number}) * (abs({number} - trunc({number})) >= 0.5), 'Int64')"


# SQL that reads the text of a number from an event as INT64. A number with a fraction or an exponent is rounded.
EVENT_NUMBER_TEXT_TO_INTEGER_SQL: Final = f"coalesce(toInt64OrNull(@a), {round_to_integer_sql('toFloat64OrNull(@a)')})"


def number_as_json_sql(number: str, integer: str) -> str:
    """Return SQL for the JSON of the float `number`: of `integer` if both are equal."""
    return f"if(ifNull(toFloat64({integer}) = {number}, false), toString({integer}), nullIf(toJSONString({number}), 'null'))"


def event_text_sql(value: str) -> str:
    """Return an SQL template that decodes `value`, a stored value in JSON, to the text that it represents."""
    return f"JSONExtract({value}, 'Nullable(String)')"


# The meta key under which the node of an event's value has the text from which the value was made, if there is one.
_ATTACHED_TEXT_METADATA_KEY: Final = "event_text"


def attach_event_text(value: exp.Expr, text: exp.Expr) -> exp.Expr:
    """Attach to an event's value the text from which it was made, for rules that need the text instead of its JSON."""
    value.meta[_ATTACHED_TEXT_METADATA_KEY] = copy_tree(text)
    return value


def attached_event_text(node: exp.Expr) -> exp.Expr | None:
    text = node.unnest().meta_get(_ATTACHED_TEXT_METADATA_KEY) if kind_of(node) is Kind.VARIANT else None
    return copy_tree(text) if isinstance(text, exp.Expr) else None


def event_value_as_text(node: exp.Expr) -> exp.Expr:
    """Return an event's value as the text that it represents."""
    return attached_event_text(node) or fragment_node(event_text_sql("{0}"), node)


# Matches a text that ends with the name of a time zone. It is needed because ClickHouse itself parses only offsets.
_TEXT_WITH_ZONE_NAME_PATTERN: Final = re.compile(r"^(.*\d) ([A-Za-z_]+/[A-Za-z_/+-]+[0-9]*)$")


def text_to_time(node: exp.Expr, value: exp.Expr, kind: Kind) -> exp.Expr:
    """Return SQL that parses a text as a time in BigQuery's syntax.

    `node` is the operation. If it is inside SAFE, an invalid text gives NULL instead of an error.
    """
    if needs_runtime_time_validation(value, kind):
        texts = [
            string_literal_node(f"^({CANONICAL_PATTERN_BY_KIND[kind]})$"),
            string_literal_node(RAISED_ERROR_PREFIX + invalid_time_message(value, kind)),
        ]
        return fill_template(_time_parsing_template(node, kind), value, texts=texts)
    canonical = engine_spelling_of_time(value, kind)
    with_zone = (
        _TEXT_WITH_ZONE_NAME_PATTERN.match(canonical or constant_text(value) or "") if kind is Kind.TIMESTAMP else None
    )
    if with_zone:
        parsed = fill_template(
            _TIME_PARSER_TEMPLATE_BY_KIND[Kind.DATETIME].replace("#", ""), string_literal_node(with_zone[1])
        )
        return first_timestamp_of_wall_clock(parsed, exp.Literal.string(with_zone[2]))
    text = inherit_metadata(string_literal_node(canonical), value) if canonical is not None else value
    return fill_template(
        _TIME_PARSER_TEMPLATE_BY_KIND[kind].replace("#", "OrNull" if returns_null_on_error(node) else ""), text
    )


def _time_parsing_template(node: exp.Expr, kind: Kind) -> str:
    """Return the template that parses texts, in which `{0}` is the pattern of valid texts, and `{1}` the error message.

    The template uses the parser that returns NULL for invalid texts. ClickHouse also calls the parser for a NULL, with
    the hidden value that it stores for the NULL, and this must not raise an error.
    """
    parsed = _TIME_PARSER_TEMPLATE_BY_KIND[kind].replace("#", "OrNull")
    has_time = "match(@a, {0})"
    if returns_null_on_error(node):
        return f"if({has_time}, {parsed}, NULL)"
    return _fail_with_computed_message_sql(
        node, f"(NOT {has_time} OR (@a IS NOT NULL AND {parsed} IS NULL))", "{1}", parsed
    )


# The templates that parse a text as a time. The text is converted to upper case, because BigQuery also accepts t and z.
# For a DATE, only the first ten characters are parsed. `#` is replaced by `OrNull` if an invalid text is to give NULL,
# and otherwise by nothing.
_TIME_PARSER_TEMPLATE_BY_KIND: Final = {
    Kind.TIMESTAMP: "parseDateTime64BestEffort#(upper(@a), 6, 'UTC')",
    Kind.DATETIME: "parseDateTime64BestEffort#(upper(@a), 6)",
    Kind.DATE: "toDate32(parseDateTime64BestEffort#(upper(substring(@a, 1, 10)), 0, 'UTC'))",
    Kind.TIME: "CAST(parseDateTime64BestEffort#(concat('1970-01-01 ', @a), 6), 'Nullable(Time64(6))')",
}


def _text_to_time_conversion(kind: Kind) -> Conversion:
    return lambda node: text_to_time(node, node, kind)


_IMPLICIT_CONVERSIONS: Final[ConversionByKinds] = {
    **{(Kind.STRING, kind): _text_to_time_conversion(kind) for kind in DATE_AND_TIME_KINDS},
    (Kind.STRING, Kind.BYTES): lambda node: node,
    (Kind.STRING, Kind.JSON): lambda node: fragment_node("toJSONString({0})", node),
    (Kind.DATE, Kind.DATETIME): _cast_conversion(Kind.DATETIME),
    (Kind.DATE, Kind.TIMESTAMP): _cast_conversion(Kind.TIMESTAMP),
    (Kind.DATETIME, Kind.TIMESTAMP): _wall_clock_to_timestamp,
    (Kind.DATETIME, Kind.DATE): _cast_conversion(Kind.DATE),
    (Kind.TIMESTAMP, Kind.DATETIME): timestamp_to_utc_wall_clock,
    (Kind.TIMESTAMP, Kind.DATE): _cast_conversion(Kind.DATE),
    (Kind.INT64, Kind.FLOAT64): _integer_to_float,
    (Kind.INT64, Kind.VARIANT): lambda node: fragment_node("toString({0})", node),
    (Kind.FLOAT64, Kind.INT64): _float_to_integer,
    (Kind.FLOAT64, Kind.VARIANT): _number_to_json,
    (Kind.INT64, Kind.NUMERIC): _cast_conversion(Kind.NUMERIC),
    (Kind.NUMERIC, Kind.FLOAT64): _cast_conversion(Kind.FLOAT64),
    (Kind.BIGNUMERIC, Kind.FLOAT64): _cast_conversion(Kind.FLOAT64),
    (Kind.VARIANT, Kind.STRING): event_value_as_text,
    (Kind.VARIANT, Kind.BYTES): event_value_as_text,
    (Kind.VARIANT, Kind.JSON): lambda node: node,
    (Kind.VARIANT, Kind.INT64): _event_value_to_integer,
    **{(Kind.VARIANT, kind): _event_value_to_float for kind in (Kind.FLOAT64, *EXACT_NUMERIC_KINDS)},
    (Kind.VARIANT, Kind.BOOL): _try_cast_conversion(Kind.BOOL),
    **{(Kind.VARIANT, kind): _event_value_to_time_conversion(kind) for kind in DATE_AND_TIME_KINDS},
}


def _fill_fallible_template(
    node: exp.Expr, template: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()
) -> exp.Expr:
    """Fill a template whose evaluation may fail; failures do not become NULL, because ClickHouse has no general TRY."""
    del node
    return fill_template(template, *parts, texts=texts)


def conditional_sql(condition: str, then: str, otherwise: str = "NULL") -> str:
    return f"if({condition}, {then}, {otherwise})"


def _bracketed_array_text(array: exp.Expr, name: str, element_text: exp.Expr, separator: str) -> exp.Expr:
    texts = f"arrayStringConcat(arrayMap({name} -> {{1}}, {{0}}), '{separator}')"
    return fragment_node(f"concat('[', {texts}, ']')", array, element_text)


def _escape_for_literal(text: str) -> str:
    """Return a pattern or a replacement, escaped as the content of a ClickHouse literal."""
    return text.replace("\\", "\\\\")


def _text_replacement_builder(function: str) -> TernarySqlBuilder:
    return lambda text, pattern, new: (
        f"{function}({text}, '{_escape_for_literal(pattern)}', '{_escape_for_literal(new)}')"
    )


def as_json_document(value: exp.Expr) -> exp.Expr:
    """Return a value as a JSON document; the result for a text that is not JSON is NULL."""
    if kind_of(value) in (Kind.JSON, Kind.VARIANT):
        return value
    return fill_template("if(isValidJSON(@a), @a, NULL)", value)


COMMON_SQL: Final = CommonSql(
    fill_template=fill_template,
    fill_fallible_template=_fill_fallible_template,
    typed_null=typed_null,
    convert_implicitly=convert_implicitly,
    cast=native_cast,
    time_to_utc_wall_clock=time_to_utc_wall_clock,
    timestamp_to_utc_wall_clock=timestamp_to_utc_wall_clock,
    as_json_document=as_json_document,
    fail_if_sql=fail_if_sql,
    case_when=conditional_sql,
    is_null="isNull({})".format,
    is_not_null="isNotNull({})".format,
    coalesce="ifNull({}, {})".format,
    concat=lambda *texts: f"concat({', '.join(texts)})",
    as_text="toString({})".format,
    as_integer="toInt64({})".format,
    as_float="toFloat64({})".format,
    full_match=lambda text, pattern: f"match({text}, '^{_escape_for_literal(pattern)}$')",
    extract_first_match=lambda text, pattern: f"extract({text}, '{_escape_for_literal(pattern)}')",
    replace_first=_text_replacement_builder("replaceRegexpOne"),
    replace_all=_text_replacement_builder("replaceRegexpAll"),
    let_binding="arrayMap({1} -> {2}, [{0}])[1]".format,
    bracketed_array_text=_bracketed_array_text,
    struct_field="tupleElement({}, {})".format,
    text_as_exact_integer="toInt64OrNull({})".format,
    float_as_exact_integer="accurateCastOrNull({}, 'Int64')".format,
    round_to_integer=round_to_integer_sql,
    truncate_to_integer="accurateCastOrNull(trunc({}), 'Int64')".format,
    event_text_as_float="accurateCastOrNull({}, 'Float64')".format,
    number_as_event_value=number_as_json_sql,
    is_between="{} BETWEEN {} AND {}".format,
    text_as_event_value="toJSONString({})".format,
    nan="nan",
    is_finite="isFinite({})".format,
    is_infinite="isInfinite({})".format,
    is_nan="isNaN({})".format,
    integer_quotient="intDiv({}, {})".format,
    to_unix_micros="toUnixTimestamp64Micro({})".format,
    from_unix_micros="fromUnixTimestamp64Micro({}, 'UTC')".format,
)

EVENT_NUMBER_RULES: Final = EventNumberRules(COMMON_SQL)
