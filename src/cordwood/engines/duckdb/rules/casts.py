"""CAST and SAFE_CAST: which texts are numbers and booleans, how values are printed, rounding half away from zero."""

import re
from collections.abc import Callable
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import NAMES, attempt, fail, once, type_part, variant_text
from cordwood.engines.duckdb.rules.coercions import read_as, text_to_time
from cordwood.engines.duckdb.rules.conditions import positional
from cordwood.engines.duckdb.rules.time_text import cast_text, strftime_parts
from cordwood.engines.duckdb.rules.times import INTERVAL_TEXT
from cordwood.model.datatype import EXACT, MOMENTS, Datatype, Kind
from cordwood.model.shape import ValueKind
from cordwood.sql.bigquery.numbers import NUMERAL
from cordwood.sql.bigquery.time_literals import without_leap_second
from cordwood.sql.constants import constant_int, constant_text
from cordwood.sql.fragment import fragment, text_part
from cordwood.sql.lowering import RuleSet, is_safe, mark_safe, unsupported
from cordwood.sql.nodes import KINDS
from cordwood.sql.typing import datatype_of, kind_of, typed_as
from cordwood.sql.typing.datatypes import STRING, type_in_tree

Caster = Callable[[exp.Expr, exp.Expr], exp.Expr]


def _cast(node: exp.Expr) -> exp.Expr:
    to = type_in_tree(node.args["to"])
    if to is None:
        unsupported(node, f"The type {node.args['to'].sql('bigquery')}")
    if node.args.get("format"):
        return _cast_with_format(node, to)
    node.set("this", without_leap_second(node.this, to.kind))
    return (
        _cast_to_sized(node, to) if node.args["to"].expressions and to.kind in NAMES else cast_to(node, node.this, to)
    )


def _cast_to_sized(node: exp.Expr, to: Datatype) -> exp.Expr:
    """Cast to a parameterized type: NUMERIC with precision; texts of limited length are not supported."""
    if to.kind not in EXACT:
        unsupported(node, f"A {to.kind} of limited length")
    digits = [constant_int(size.this) for size in node.args["to"].expressions]
    precision, scale = [*digits, 0][:2]
    if precision is None or scale is None or precision > _MAX_DIGITS:
        unsupported(node, f"{to.kind} of so many digits")
    return attempt(node, f"CAST(@a AS DECIMAL({precision}, {scale}))", cast_to(node, node.this, to))


_MAX_DIGITS: Final = 38


def _safe_cast(node: exp.Expr) -> exp.Expr:
    return _cast(mark_safe(node))


def cast_to(node: exp.Expr, value: exp.Expr, to: Datatype) -> exp.Expr:
    """Cast `value` to a type; `node` tells whether a failure is NULL."""
    source_kind = kind_of(value)
    if to.kind in (Kind.ARRAY, Kind.STRUCT):
        return _cast_composite(node, value, to)
    caster = _CASTERS.get((source_kind, to.kind)) if source_kind else None
    if caster is not None:
        return caster(node, value)
    if source_kind in _TIME_KINDS and to.kind in _TIME_KINDS:
        return read_as(value, to.kind)
    return attempt(node, f"CAST(@a AS {NAMES[to.kind]})", value)


_TIME_KINDS: Final = (Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE)


def _cast_composite(node: exp.Expr, value: exp.Expr, to: Datatype) -> exp.Expr:
    name = type_part(to)
    if name is None:
        return value
    if to.kind is Kind.STRUCT:
        return positional(value, to)
    array_type = datatype_of(value)
    element = array_type.element if array_type else None
    if element is None or to.element is None or element == to.element or element.kind is Kind.ARRAY:
        return fragment("CAST({0} AS {1})", value, name)
    item = typed_as(fragment("_e"), element)
    return fragment("list_transform({0}, lambda _e: {1})", value, cast_to(node, item, to.element))


def _text_to_int(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    failure = fail(node, "Bad int64 value")
    digits = r"regexp_full_match(@a, '\s*[+-]?(\d+|0[xX][0-9a-fA-F]+)\s*')"
    number = r"CASE WHEN contains(lower(@a), 'x') THEN CASE WHEN contains(@a, '-') THEN -1 ELSE 1 END * "
    number += r"CAST(regexp_replace(trim(@a), '^[+-]', '') AS BIGINT) ELSE CAST(trim(@a) AS BIGINT) END"
    parsed = f"try({number})" if is_safe(node) else number
    return once(f"CASE WHEN @a IS NULL THEN NULL WHEN {digits} THEN {parsed} ELSE {failure} END", value)


def _text_to_bool(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    failure = fail(node, "Bad bool value")
    return once(
        f"CASE lower(@a) WHEN 'true' THEN true WHEN 'false' THEN false ELSE CASE WHEN @a IS NOT NULL THEN {failure} END END",
        value,
    )


def _text_to_float(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    """Cast a text to FLOAT64; fail for digits out of range and for DuckDB's own `_` between digits."""
    failure = fail(node, "Bad double value")
    number = "try(CAST(@a AS DOUBLE))" if is_safe(node) else "CAST(@a AS DOUBLE)"
    is_invalid = f"contains(@a, '_') OR isinf({number}) AND regexp_matches(@a, '[0-9]')"
    return once(f"CASE WHEN {is_invalid} THEN {failure} ELSE {number} END", value)


_DIGITS: Final = re.compile(r"\s*[+-]?0*(\d*)\.?(\d*?)0*\s*", re.ASCII)
_TOO_MANY_DECIMALS: Final = r"\.\d{18}\d*[1-9]"


def _text_to_big(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    """Cast a text to BIGNUMERIC; fail instead of rounding beyond 20 digits before the point or 18 after it."""
    constant_value = constant_text(value)
    digits = _DIGITS.fullmatch(constant_value) if constant_value is not None else None
    if digits and (len(digits[1]) > 20 or len(digits[2]) > 18):
        unsupported(node, "A BIGNUMERIC of more than 20 digits before the point or 18 after it")
    parsed = f"CAST(@a AS {NAMES[Kind.BIGNUMERIC]})"
    if constant_value is not None:
        return attempt(node, parsed, value)
    failure = fail(node, "A BIGNUMERIC of more than 18 digits after the point is not supported")
    body = f"CASE WHEN regexp_matches(@a, {{0}}) THEN {failure} ELSE {parsed} END"
    return attempt(node, body, value, texts=[text_part(_TOO_MANY_DECIMALS)])


def _float_to_int(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    return attempt(node, "CAST(round(@a) AS BIGINT)", value)


def float_text(value: exp.Expr) -> exp.Expr:
    """Return the shortest text of 15 or 17 digits that parses to the same number."""
    return once(
        "CASE WHEN @a = 0 THEN '0' WHEN isnan(@a) THEN 'nan'"
        " WHEN CAST(printf('%.15g', @a) AS DOUBLE) = @a THEN printf('%.15g', @a) ELSE printf('%.17g', @a) END",
        value,
    )


def _float_to_text(_: exp.Expr, value: exp.Expr) -> exp.Expr:
    return float_text(value)


def _numeric_to_text(_: exp.Expr, value: exp.Expr) -> exp.Expr:
    return fragment(r"regexp_replace({0}::VARCHAR, '\.?0+$', '')", value)


def _bytes_to_text(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    return attempt(node, "decode(@a)", value)


def _text_to_bytes(_: exp.Expr, value: exp.Expr) -> exp.Expr:
    return fragment("encode({0})", value)


def _time_to_text(_: exp.Expr, value: exp.Expr) -> exp.Expr:
    return cast_text(value, None)


def _text_to(kind: Kind) -> Caster:
    return lambda node, value: text_to_time(node, value, kind)


def _datetime_to_time(_: exp.Expr, value: exp.Expr) -> exp.Expr:
    return fragment("{0}::TIME", read_as(value, Kind.DATETIME))


def _event_to_text(_: exp.Expr, value: exp.Expr) -> exp.Expr:
    return event_text(value)


_COMPOSITE_KINDS: Final = frozenset({ValueKind.OBJECT, ValueKind.ARRAY})


def event_text(value: exp.Expr) -> exp.Expr:
    """Return an event's value as text: objects and arrays as JSON, scalars as they are.

    If neither was seen, the path is read as text from its shredded column, which is three times as fast.
    """
    kinds = value.meta_get(KINDS)
    if kinds and not kinds & _COMPOSITE_KINDS:
        return variant_text(value)
    is_composite = "variant_typeof(@a) LIKE 'OBJECT%' OR variant_typeof(@a) LIKE 'ARRAY%'"
    json = f"CASE WHEN {is_composite} THEN @a::JSON::VARCHAR ELSE @a::VARCHAR END"
    return once(f"CASE WHEN left(@a::VARCHAR, 1) IN ('{{', '[') THEN {json} ELSE @a::VARCHAR END", value)


def _event_to(kind: Kind) -> Caster:
    """Return the caster from an event's value by way of its text, so that an invalid value fails like any text."""

    def caster(node: exp.Expr, value: exp.Expr) -> exp.Expr:
        if kind is Kind.INT64:
            return attempt(node, "CAST(round(CAST(@a AS DOUBLE)) AS BIGINT)", variant_text(value))
        text = read_as(value, Kind.STRING)
        return cast_to(node, text, Datatype(kind))

    return caster


def _interval_to_text(_: exp.Expr, value: exp.Expr) -> exp.Expr:
    return once(INTERVAL_TEXT, value)


_INTERVAL_PARTS: Final = (
    r"^\s*(?:([+-]?)(\d+)-(\d+))?(?:(?:^|\s+)([+-]?\d+)(?:\s+|$))?\s*(?:([+-]?)(\d+):(\d+)(?::(\d+(?:\.\d+)?))?)?\s*$"
)
_ISO_PARTS: Final = (
    r"^\s*P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)W)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.,]+)S)?)?\s*$"
)


def _text_to_interval(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    """Cast a text to INTERVAL: `Y-M D H:M:S`, each group with its own sign, or ISO 8601's `P…T…`."""
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
        (canonical, _INTERVAL_PARTS, "['s', 'y', 'm', 'd', 't', 'h', 'i', 'c']"),
        (iso, _ISO_PARTS, "['y', 'm', 'w', 'd', 'h', 'i', 'c']"),
    )
    parsers = [
        f"list_transform([regexp_extract(@a, '{pattern}', {names})], lambda _p: {body})[1]"
        for body, pattern, names in formats
    ]
    failure = fail(node, "Invalid INTERVAL value")
    body = f"CASE WHEN @a IS NULL THEN NULL WHEN regexp_matches(@a, '{_ISO_PARTS}') THEN {parsers[1]}"
    return once(f"{body} WHEN regexp_matches(@a, '{_INTERVAL_PARTS}') THEN {parsers[0]} ELSE {failure} END", value)


def _cast_with_format(node: exp.Expr, to: Datatype) -> exp.Expr:
    format_text = constant_text(node.args["format"])
    if format_text is None:
        unsupported(node, "CAST with a format that is no literal")
    source_kind = kind_of(node.this)
    if to == STRING and source_kind in MOMENTS:
        return strftime_parts(node, node.this, format_text)
    if to == STRING and source_kind is Kind.BYTES:
        return _bytes_to_format(node, format_text.upper())
    if to.kind is Kind.BYTES and source_kind is Kind.STRING:
        return _bytes_from_format(node, format_text.upper())
    return unsupported(node, f"CAST to {to.kind} with a format")


def _bytes_to_format(node: exp.Expr, format_text: str) -> exp.Expr:
    templates = {"HEX": "lower(hex({0}))", "BASE64": "to_base64({0})", "ASCII": "decode({0})", "UTF-8": "decode({0})"}
    return _by_format(node, templates, format_text)


def _bytes_from_format(node: exp.Expr, format_text: str) -> exp.Expr:
    return _by_format(node, {"HEX": "unhex({0})", "BASE64": "from_base64({0})", "UTF-8": "encode({0})"}, format_text)


def _by_format(node: exp.Expr, templates: dict[str, str], format_text: str) -> exp.Expr:
    if format_text not in templates:
        unsupported(node, f"The format '{format_text}'")
    return fragment(templates[format_text], node.this)


_CASTERS: Final[dict[tuple[Kind, Kind], Caster]] = {
    (Kind.STRING, Kind.INT64): _text_to_int,
    (Kind.STRING, Kind.BOOL): _text_to_bool,
    (Kind.STRING, Kind.FLOAT64): _text_to_float,
    (Kind.STRING, Kind.BIGNUMERIC): _text_to_big,
    (Kind.STRING, Kind.BYTES): _text_to_bytes,
    (Kind.STRING, Kind.INTERVAL): _text_to_interval,
    **{(Kind.STRING, kind): _text_to(kind) for kind in MOMENTS},
    (Kind.FLOAT64, Kind.INT64): _float_to_int,
    (Kind.NUMERIC, Kind.INT64): _float_to_int,
    (Kind.BIGNUMERIC, Kind.INT64): _float_to_int,
    (Kind.FLOAT64, Kind.STRING): _float_to_text,
    (Kind.NUMERIC, Kind.STRING): _numeric_to_text,
    (Kind.BIGNUMERIC, Kind.STRING): _numeric_to_text,
    (Kind.BYTES, Kind.STRING): _bytes_to_text,
    (Kind.TIMESTAMP, Kind.STRING): _time_to_text,
    (Kind.DATETIME, Kind.STRING): _time_to_text,
    (Kind.TIME, Kind.STRING): _time_to_text,
    (Kind.INTERVAL, Kind.STRING): _interval_to_text,
    (Kind.DATETIME, Kind.TIME): _datetime_to_time,
    (Kind.TIMESTAMP, Kind.TIME): _datetime_to_time,
    (Kind.VARIANT, Kind.STRING): _event_to_text,
    **{
        (Kind.VARIANT, kind): _event_to(kind)
        for kind in (Kind.INT64, Kind.FLOAT64, Kind.BOOL, Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE, Kind.NUMERIC)
    },
}


def _parse_number(node: exp.Expr) -> exp.Expr:
    """Lower PARSE_NUMERIC: spaces around the number and after its sign are allowed, and commas within it."""
    digits = r"regexp_replace(@a, '[\s,]', '', 'g')"
    trailing = f"CASE WHEN suffix({digits}, '-') THEN '-' || rtrim({digits}, '-') ELSE rtrim({digits}, '+') END"
    is_invalid = "NOT regexp_full_match(@a, {0})"
    parsed = f"CAST({trailing} AS {NAMES[kind_of(node) or Kind.NUMERIC]})"
    failure = fail(node, "Invalid NUMERIC value")
    body = f"CASE WHEN {is_invalid} THEN {failure} ELSE {parsed} END"
    return attempt(node, body, read_as(node.this, Kind.STRING), texts=[text_part(NUMERAL)])


RULES = RuleSet(
    nodes={
        exp.Cast: _cast,
        exp.TryCast: _safe_cast,
        exp.ParseNumeric: _parse_number,
        exp.ParseBignumeric: _parse_number,
    }
)
