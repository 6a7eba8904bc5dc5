"""Rules for literals, CAST and SAFE_CAST: how texts are parsed, and how values are printed and rounded."""

import re
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import (
    COMMON_SQL,
    EVENT_NUMBER_RULES,
    TYPE_NAME_BY_KIND,
    convert_implicitly,
    event_value_as_text,
    failure_sql,
    fill_fallible_template,
    fill_template,
    is_cheap_to_repeat,
    text_to_time,
    timestamp_to_utc_wall_clock,
    type_name_node,
    variant_as_text,
)
from cordwood.engines.duckdb.rules.conditions import convert_struct_by_position
from cordwood.engines.duckdb.rules.time_text import TIME_PRINTER
from cordwood.engines.duckdb.rules.times import INTERVAL_TEXT_SQL
from cordwood.model.datatype import EXACT_NUMERIC_KINDS, Datatype, Kind
from cordwood.model.event import ValueKind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import datatype_of, is_event_number, kind_of, set_datatype
from cordwood.sql.lowering import RuleSet, fragment_node, raise_unsupported, returns_null_on_error, string_literal_node
from cordwood.sql.nodes import PATH_KINDS_METADATA_KEY, constant_int, constant_text
from cordwood.sql.rules.conversions import CastRules, LiteralRules, parent_outside_sign_and_parentheses
from cordwood.sql.rules.event_numbers import has_exact_integers
from cordwood.sql.rules.numbers import PARSE_NUMERIC_PATTERN

_INT32_LIMIT: Final = 2**31
# If an integer literal is a child of one of these nodes, it needs no cast to INT64: it takes the type of another
# operand, or it is a count or a position.
_PARENTS_WITHOUT_TYPED_LITERALS: Final = (
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between),
    *(exp.Limit, exp.Offset, exp.Ordered, exp.Group, exp.WindowSpec, exp.Cube, exp.Rollup, exp.GroupingSets),
    *(exp.In, exp.Bracket, exp.Interval, exp.Round, exp.Trunc, exp.DateFromParts, exp.TimestampFromParts),
    *(exp.TimeFromParts, exp.Left, exp.Right, exp.Pad, exp.Repeat, exp.Substring, exp.ApproxQuantiles, exp.ApproxTopK),
    *(exp.Lag, exp.Lead, exp.NthValue, exp.Ntile, exp.DateAdd, exp.DateSub, exp.Order, exp.StrToDate, exp.StrToTime),
    *(exp.ParseDatetime, exp.RegexpInstr, exp.SHA2Digest, exp.TableSample),
)


def _needs_typed_integer_literal(node: exp.Expr) -> bool:
    parent = parent_outside_sign_and_parentheses(node)
    if isinstance(parent, (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.IntDiv)):
        return isinstance(parent.this, exp.Literal) or not isinstance(parent.expression, exp.Literal)
    return not isinstance(parent, _PARENTS_WITHOUT_TYPED_LITERALS)


def _integer_literal(node: exp.Expr, value: int) -> exp.Expr:
    has_type = _needs_typed_integer_literal(node) and abs(value) < _INT32_LIMIT
    return fragment_node(f"{value}::BIGINT") if has_type else exp.Literal.number(str(value))


def _float_literal(node: exp.Expr) -> exp.Expr:
    digits = str(node.this).lower()
    return fragment_node("{0}", exp.Literal.number(digits if "e" in digits else f"{digits}e0"))


LITERAL_RULES = LiteralRules(
    _integer_literal, _float_literal, bytes_literal=lambda data, _: fragment_node("{0}::BLOB", data)
).rules()


def _cast_to_parameterized_type(node: exp.Expr, to: Datatype) -> exp.Expr | None:
    """Cast to NUMERIC or BIGNUMERIC with a precision; refuse other types with a parameter, such as STRING(10)."""
    if to.kind not in TYPE_NAME_BY_KIND:
        return None
    if to.kind not in EXACT_NUMERIC_KINDS:
        raise_unsupported(node, f"A {to.kind} of limited length")
    digits = [constant_int(size.this) for size in node.args["to"].expressions]
    precision, scale = [*digits, 0][:2]
    if precision is None or scale is None or precision > _MAX_DECIMAL_PRECISION:
        raise_unsupported(node, f"{to.kind} of so many digits")
    return fill_fallible_template(
        node, f"CAST(@a AS DECIMAL({precision}, {scale}))", CAST_RULES.cast_to(node, node.this, to)
    )


_MAX_DECIMAL_PRECISION: Final = 38


def _cast_directly(node: exp.Expr, value: exp.Expr, to: Kind) -> exp.Expr:
    if kind_of(value) in _KINDS_WITH_CALENDAR_DATE and to in _KINDS_WITH_CALENDAR_DATE:
        return convert_implicitly(value, to)
    return fill_fallible_template(node, f"CAST(@a AS {TYPE_NAME_BY_KIND[to]})", value)


_KINDS_WITH_CALENDAR_DATE: Final = (Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE)


def _cast_composite(node: exp.Expr, value: exp.Expr, to: Datatype) -> exp.Expr:
    name = type_name_node(to)
    if name is None:
        return value
    if to.kind is Kind.STRUCT:
        return convert_struct_by_position(value, to)
    array_type = datatype_of(value)
    element = array_type.element if array_type else None
    if element is None or to.element is None or element == to.element or element.kind is Kind.ARRAY:
        return fragment_node("CAST({0} AS {1})", value, name)
    item = set_datatype(fragment_node("_e"), element)
    return fragment_node("list_transform({0}, lambda _e: {1})", value, CAST_RULES.cast_to(node, item, to.element))


def _text_to_int(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    return fill_template(_text_to_int_template(node), value)


def _text_to_int_template(node: exp.Expr) -> str:
    failure = failure_sql(node, "Bad int64 value")
    digits = r"regexp_full_match(@a, '\s*[+-]?(\d+|0[xX][0-9a-fA-F]+)\s*')"
    number = r"CASE WHEN contains(lower(@a), 'x') THEN CASE WHEN contains(@a, '-') THEN -1 ELSE 1 END * "
    number += r"CAST(regexp_replace(trim(@a), '^[+-]', '') AS BIGINT) ELSE CAST(trim(@a) AS BIGINT) END"
    parsed = f"try({number})" if returns_null_on_error(node) else number
    return f"CASE WHEN @a IS NULL THEN NULL WHEN {digits} THEN {parsed} ELSE {failure} END"


def _event_value_to_int(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    """Cast an event's value to INT64: a number is rounded, and a text must be an integer, as in the cast of a text.

    DuckDB's own cast, which rounds halves away from zero, would also round the number in a text.
    """
    kinds, text = value.meta_get(PATH_KINDS_METADATA_KEY), variant_as_text(value)
    if kinds == _ONLY_TEXT_KINDS:
        return _text_to_int(node, text)
    if kinds and ValueKind.TEXT not in kinds:
        return fill_fallible_template(node, "CAST(@a AS BIGINT)", text)
    is_number = "regexp_full_match(@a, '[+-]?[0-9]+') OR variant_typeof(@b) <> 'VARCHAR'"
    template = f"CASE WHEN {is_number} THEN CAST(@a AS BIGINT) ELSE {_text_to_int_template(node)} END"
    if is_cheap_to_repeat(value):
        return fill_fallible_template(node, template, text, copy_tree(value))
    return fill_fallible_template(node, template.replace("@a", "@a::VARCHAR").replace("@b", "@a"), value)


_ONLY_TEXT_KINDS: Final = frozenset({ValueKind.TEXT})


def _float_to_int(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    if is_event_number(value) and has_exact_integers(value):
        integer = EVENT_NUMBER_RULES.exact_integer(copy_tree(value))
        template = "CASE WHEN @b::DOUBLE = @a THEN @b ELSE CAST(round(@a) AS BIGINT) END"
        return fill_fallible_template(node, template, value, integer)
    return fill_fallible_template(node, _ROUND_TO_INTEGER_SQL, value)


def _float_to_text(_: exp.Expr, value: exp.Expr) -> exp.Expr:
    if is_event_number(value) and has_exact_integers(value):
        integer = EVENT_NUMBER_RULES.exact_integer(copy_tree(value))
        return fill_template(f"CASE WHEN @b::DOUBLE = @a THEN @b::VARCHAR ELSE {FLOAT_TEXT_SQL} END", value, integer)
    return fill_template(FLOAT_TEXT_SQL, value)


def _text_to_bool(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    failure = failure_sql(node, "Bad bool value")
    return fill_template(
        f"CASE lower(@a) WHEN 'true' THEN true WHEN 'false' THEN false ELSE CASE WHEN @a IS NOT NULL THEN {failure} END END",
        value,
    )


def _text_to_float(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    """Cast a text to FLOAT64; fail if the number is out of range, or has `_` between digits, which DuckDB accepts."""
    failure = failure_sql(node, "Bad double value")
    number = "try(CAST(@a AS DOUBLE))" if returns_null_on_error(node) else "CAST(@a AS DOUBLE)"
    is_invalid = f"contains(@a, '_') OR isinf({number}) AND regexp_matches(@a, '[0-9]')"
    return fill_template(f"CASE WHEN {is_invalid} THEN {failure} ELSE {number} END", value)


_NUMBER_DIGITS_PATTERN: Final = re.compile(r"\s*+[+-]?0*+(\d*+)\.?((?:0*+[1-9])*+)0*+\s*+", re.ASCII)
_TOO_MANY_DECIMALS_PATTERN: Final = r"\.\d{18}\d*[1-9]"


def _text_to_bignumeric(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    """Cast a text to BIGNUMERIC; fail for more than 20 digits before the point or 18 after it, instead of rounding."""
    constant_value = constant_text(value)
    digits = _NUMBER_DIGITS_PATTERN.fullmatch(constant_value) if constant_value is not None else None
    if digits and (len(digits[1]) > 20 or len(digits[2]) > 18):
        raise_unsupported(node, "A BIGNUMERIC of more than 20 digits before the point or 18 after it")
    parsed = f"CAST(@a AS {TYPE_NAME_BY_KIND[Kind.BIGNUMERIC]})"
    if constant_value is not None:
        return fill_fallible_template(node, parsed, value)
    failure = failure_sql(node, "A BIGNUMERIC of more than 18 digits after the point is not supported")
    body = f"CASE WHEN regexp_matches(@a, {{0}}) THEN {failure} ELSE {parsed} END"
    return fill_fallible_template(node, body, value, texts=[string_literal_node(_TOO_MANY_DECIMALS_PATTERN)])


# SQL that prints a float with 15 digits if this text parses to the same float, and else with 17 digits.
FLOAT_TEXT_SQL: Final = (
    "CASE WHEN @a = 0 THEN '0' WHEN isnan(@a) THEN 'nan'"
    " WHEN CAST(printf('%.15g', @a) AS DOUBLE) = @a THEN printf('%.15g', @a) ELSE printf('%.17g', @a) END"
)
_TEXT_TO_INTEGER_SQL: Final = "CAST(round(CAST(@a AS DOUBLE)) AS BIGINT)"


_INTERVAL_PATTERN: Final = (
    r"^\s*(?:([+-]?)(\d+)-(\d+))?(?:(?:^|\s+)([+-]?\d+)(?:\s+|$))?\s*(?:([+-]?)(\d+):(\d+)(?::(\d+(?:\.\d+)?))?)?\s*$"
)
_ISO_INTERVAL_PATTERN: Final = (
    r"^\s*P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)W)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.,]+)S)?)?\s*$"
)


def _text_to_interval(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    """Cast a text to INTERVAL.

    The text's format is `Y-M D H:M:S`, in which each group has its own sign, or ISO 8601's `P…T…`.
    """
    number = "CAST(coalesce(nullif({}, ''), '0') AS {})".format
    sign = "CASE WHEN {} = '-' THEN -1 ELSE 1 END".format
    canonical = (
        f"to_months(CAST(({number('_p.y', 'BIGINT')} * 12 + {number('_p.m', 'BIGINT')}) * {sign('_p.s')} AS INT))"
    )
    canonical += f" + to_days({number('_p.d', 'INT')}) + to_microseconds(CAST(({number('_p.h', 'BIGINT')} * 3600000000"
    canonical += f" + {number('_p.i', 'BIGINT')} * 60000000 + {number('_p.c', 'DECIMAL(18, 6)')} * 1000000) * {sign('_p.t')} AS BIGINT))"
    iso = f"to_months(CAST({number('_p.y', 'BIGINT')} * 12 + {number('_p.m', 'BIGINT')} AS INT))"
    iso += f" + to_days(CAST({number('_p.w', 'BIGINT')} * 7 + {number('_p.d', 'BIGINT')} AS INT))"
    seconds = number("replace(_p.c, ',', '.')", "DECIMAL(18, 6)")
    iso += f" + to_microseconds(CAST({number('_p.h', 'BIGINT')} * 3600000000 + {number('_p.i', 'BIGINT')} * 60000000"
    iso += f" + {seconds} * 1000000 AS BIGINT))"
    formats = (
        (canonical, _INTERVAL_PATTERN, "['s', 'y', 'm', 'd', 't', 'h', 'i', 'c']"),
        (iso, _ISO_INTERVAL_PATTERN, "['y', 'm', 'w', 'd', 'h', 'i', 'c']"),
    )
    parsers = [
        f"list_transform([regexp_extract(@a, '{pattern}', {names})], lambda _p: {body})[1]"
        for body, pattern, names in formats
    ]
    failure = failure_sql(node, "Invalid INTERVAL value")
    body = f"CASE WHEN @a IS NULL THEN NULL WHEN regexp_matches(@a, '{_ISO_INTERVAL_PATTERN}') THEN {parsers[1]}"
    return fill_template(
        f"{body} WHEN regexp_matches(@a, '{_INTERVAL_PATTERN}') THEN {parsers[0]} ELSE {failure} END", value
    )


def _translate_parse_numeric(node: exp.Expr) -> exp.Expr:
    """Translate PARSE_NUMERIC, which allows spaces around a number and after its sign, and commas in the number."""
    digits = r"regexp_replace(@a, '[\s,]', '', 'g')"
    trailing = f"CASE WHEN suffix({digits}, '-') THEN '-' || rtrim({digits}, '-') ELSE rtrim({digits}, '+') END"
    is_invalid = "NOT regexp_full_match(@a, {0})"
    parsed = f"CAST({trailing} AS {TYPE_NAME_BY_KIND[kind_of(node) or Kind.NUMERIC]})"
    failure = failure_sql(node, "Invalid NUMERIC value")
    body = f"CASE WHEN {is_invalid} THEN {failure} ELSE {parsed} END"
    return fill_fallible_template(
        node, body, convert_implicitly(node.this, Kind.STRING), texts=[string_literal_node(PARSE_NUMERIC_PATTERN)]
    )


_ROUND_TO_INTEGER_SQL: Final = "CAST(round(@a) AS BIGINT)"
_EXACT_NUMBER_TEXT_SQL: Final = r"regexp_replace({0}::VARCHAR, '\.?0+$', '')"

CAST_RULES: Final = CastRules(
    common_sql=COMMON_SQL,
    time_printer=TIME_PRINTER,
    casters_by_kinds={
        (Kind.STRING, Kind.INT64): _text_to_int,
        (Kind.STRING, Kind.BOOL): _text_to_bool,
        (Kind.STRING, Kind.FLOAT64): _text_to_float,
        (Kind.STRING, Kind.BIGNUMERIC): _text_to_bignumeric,
        (Kind.STRING, Kind.BYTES): "encode({0})",
        (Kind.STRING, Kind.INTERVAL): _text_to_interval,
        (Kind.FLOAT64, Kind.INT64): _float_to_int,
        (Kind.NUMERIC, Kind.INT64): _ROUND_TO_INTEGER_SQL,
        (Kind.BIGNUMERIC, Kind.INT64): _ROUND_TO_INTEGER_SQL,
        (Kind.FLOAT64, Kind.STRING): _float_to_text,
        (Kind.NUMERIC, Kind.STRING): _EXACT_NUMBER_TEXT_SQL,
        (Kind.BIGNUMERIC, Kind.STRING): _EXACT_NUMBER_TEXT_SQL,
        (Kind.BYTES, Kind.STRING): "decode(@a)",
        (Kind.INTERVAL, Kind.STRING): lambda _, value: fill_template(INTERVAL_TEXT_SQL, value),
        (Kind.DATETIME, Kind.TIME): "{0}::TIME",
        (Kind.TIMESTAMP, Kind.TIME): lambda _, value: fragment_node("{0}::TIME", timestamp_to_utc_wall_clock(value)),
        (Kind.VARIANT, Kind.STRING): lambda _, value: event_value_as_text(value),
        (Kind.VARIANT, Kind.INT64): _event_value_to_int,
    },
    cast_directly=_cast_directly,
    text_to_time=text_to_time,
    cast_to_composite=_cast_composite,
    cast_to_sized_type=_cast_to_parameterized_type,
    bytes_to_text_templates={
        "HEX": "lower(hex({0}))",
        "BASE64": "to_base64({0})",
        "ASCII": "decode({0})",
        "UTF-8": "decode({0})",
    },
    text_to_bytes_templates={"HEX": "unhex({0})", "BASE64": "from_base64({0})", "UTF-8": "encode({0})"},
)
cast_to: Final = CAST_RULES.cast_to

RULES = RuleSet(
    by_node_class={
        **CAST_RULES.rules().by_node_class,
        exp.ParseNumeric: _translate_parse_numeric,
        exp.ParseBignumeric: _translate_parse_numeric,
    }
)
