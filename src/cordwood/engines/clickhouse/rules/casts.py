"""Rules for literals, CAST and SAFE_CAST: the parsing of texts, the printing of values as texts, and rounding."""

import re
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import (
    COMMON_SQL,
    EVENT_NUMBER_RULES,
    EVENT_NUMBER_TEXT_TO_INTEGER_SQL,
    TYPE_NAME_BY_KIND,
    convert_implicitly,
    event_value_as_text,
    fail_if_sql,
    fill_template,
    round_to_integer_sql,
    text_to_time,
    type_name_node,
)
from cordwood.engines.clickhouse.rules.time_text import TIME_PRINTER
from cordwood.model.datatype import EXACT_NUMERIC_KINDS, Datatype, Kind
from cordwood.model.event import ValueKind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import is_event_number
from cordwood.sql.lowering import fragment_node, quoted_literal_sql, raise_unsupported, returns_null_on_error
from cordwood.sql.nodes import CONSTANT_VALUE_METADATA_KEY, PATH_KINDS_METADATA_KEY, constant_text
from cordwood.sql.rules.conversions import Caster, CastRules, LiteralRules, parent_outside_sign_and_parentheses
from cordwood.sql.rules.event_numbers import has_exact_integers

# Directly below these nodes, for example LIMIT and GROUP BY, an integer is a position or a count. ClickHouse requires a
# plain literal there, so that the literal is not wrapped in a conversion to its type.
_PARENTS_WITHOUT_TYPED_LITERALS: Final = (
    *(exp.Limit, exp.Offset, exp.Ordered, exp.Group, exp.WindowSpec, exp.Cube, exp.Rollup, exp.GroupingSets),
    *(exp.TableSample, exp.Tuple, exp.Ntile, exp.Lag, exp.Lead, exp.NthValue),
)


def _integer_literal(node: exp.Expr, value: int) -> exp.Expr:
    is_plain = isinstance(parent_outside_sign_and_parentheses(node), _PARENTS_WITHOUT_TYPED_LITERALS)
    return exp.Literal.number(str(value)) if is_plain else fragment_node(f"toInt64({value})")


def _float_literal(node: exp.Expr) -> exp.Expr:
    return fragment_node("toFloat64({0})", copy_tree(node))


def _bytes_literal(data: exp.Expr, text: str) -> exp.Expr:
    lowered = fragment_node("{0}", data)
    lowered.meta[CONSTANT_VALUE_METADATA_KEY] = text
    return lowered


LITERAL_RULES = LiteralRules(_integer_literal, _float_literal, _bytes_literal).rules()


def _cast_directly(node: exp.Expr, value: exp.Expr, to: Kind) -> exp.Expr:
    if returns_null_on_error(node):
        return fragment_node(f"accurateCastOrNull({{0}}, {quoted_literal_sql(TYPE_NAME_BY_KIND[to])})", value)
    return fragment_node(f"CAST({{0}}, {quoted_literal_sql(f'Nullable({TYPE_NAME_BY_KIND[to]})')})", value)


def _cast_composite(_: exp.Expr, value: exp.Expr, to: Datatype) -> exp.Expr:
    """Cast a value to an ARRAY or STRUCT, matching the fields by position.

    The value is first cast to the type without field names, because ClickHouse would match the fields of named tuples
    by name.
    """
    name, nameless = type_name_node(to), type_name_node(to, has_names=False)
    if name is None or nameless is None:
        return value
    by_position = fragment_node("CAST({0}, {1})", value, nameless) if name != nameless else value
    return fragment_node("CAST({0}, {1})", by_position, name)


def _text_to_int(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    """Cast a text to INT64; the text has decimal digits, or hexadecimal digits after 0x."""
    return fill_template(_parse_or_fail_sql(node, _INTEGER_TEXT_SQL, "Bad int64 value"), value)


def _integer_text_sql() -> str:
    decimal = "toInt64OrNull(replaceRegexpOne(trimBoth(@a), '^\\\\+', ''))"
    hexadecimal = (
        "if(match(trimBoth(@a), '^[+-]?0[xX][0-9a-fA-F]{1,16}$'), if(startsWith(trimBoth(@a), '-'), -1, 1) *"
        " reinterpretAsInt64(reverse(unhex(leftPad(replaceRegexpOne(trimBoth(@a), '^[+-]?0[xX]', ''), 16, '0')))), NULL)"
    ).replace("{1,16}", "+")
    return f"ifNull({decimal}, {hexadecimal})"


_INTEGER_TEXT_SQL: Final = _integer_text_sql()


def _parse_or_fail_sql(node: exp.Expr, parsed: str, message: str) -> str:
    """Return template text for `parsed`, the SQL that parses a text and gives NULL for an invalid text.

    Inside SAFE, an invalid text stays NULL. Otherwise, it raises an error with `message`.
    """
    return (
        parsed
        if returns_null_on_error(node)
        else fail_if_sql(node, f"@a IS NOT NULL AND ({parsed}) IS NULL", message, parsed)
    )


def _text_to_bool(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    return fill_template(
        _parse_or_fail_sql(
            node, "multiIf(lower(@a) = 'true', true, lower(@a) = 'false', false, NULL)", "Bad bool value"
        ),
        value,
    )


def _text_to_float(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    parsed = "multiIf(match(lower(trimBoth(@a)), '^[+-]?(inf|infinity)$'), if(startsWith(trimBoth(@a), '-'), -inf, inf), lower(trimBoth(@a)) = 'nan', nan, isInfinite(toFloat64OrNull(trimBoth(@a))), NULL, toFloat64OrNull(trimBoth(@a)))"
    return fill_template(_parse_or_fail_sql(node, parsed, "Bad double value"), value)


def _text_to_exact_numeric_caster(kind: Kind) -> Caster:
    """Return the function that casts a text to NUMERIC or BIGNUMERIC and rounds it; ClickHouse's parsers truncate."""
    parsed = "toDecimal256OrNull(trimBoth(@a), 38)"
    if kind is Kind.NUMERIC:
        parsed = f"toDecimal128OrNull(toString(round({parsed}, 9)), 9)"

    def cast_text(node: exp.Expr, value: exp.Expr) -> exp.Expr:
        return fill_template(_parse_or_fail_sql(node, parsed, "Invalid NUMERIC value"), value)

    return cast_text


def _float_to_text(_: exp.Expr, value: exp.Expr) -> exp.Expr:
    if not is_event_number(value) or not has_exact_integers(value):
        return float_text(value)
    integer = EVENT_NUMBER_RULES.exact_integer(copy_tree(value))
    return fragment_node(
        "if(ifNull(toFloat64({1}) = {0}, false), toString({1}), {2})", value, integer, float_text(copy_tree(value))
    )


def _float_to_numeric(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    """Cast a FLOAT64 to NUMERIC through its text, because ClickHouse's direct cast is wrong in the last digits."""
    return _text_to_exact_numeric_caster(Kind.NUMERIC)(node, fragment_node("toString({0})", value))


def _float_to_int(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    """Cast a FLOAT64 to INT64, rounding half away from zero, whereas ClickHouse rounds half to even."""
    if is_event_number(value) and has_exact_integers(value):
        value, integer = copy_tree(value), EVENT_NUMBER_RULES.exact_integer(copy_tree(value))
        is_integer = "ifNull(toFloat64(@b) = @a, false)"
        parsed = f"if({is_integer}, @b, {round_to_integer_sql('@a')})"
        return fill_template(_parse_or_fail_sql(node, parsed, "Illegal conversion to int64"), value, integer)
    rounded_int = round_to_integer_sql("@a")
    return fill_template(
        rounded_int
        if returns_null_on_error(node)
        else fail_if_sql(node, f"@a IS NOT NULL AND {rounded_int} IS NULL", "Illegal conversion to int64", rounded_int),
        value,
    )


def float_text(value: exp.Expr) -> exp.Expr:
    """Return SQL for the text of a FLOAT64: the shortest text that parses to the same number.

    The text has an exponent if the absolute number is below 1e-4 or at least 1e15. If the number has more than fifteen
    digits, the text has an exponent only from 1e17 on.
    """
    default_text = "toString(@a + 0.)"
    is_short = "(abs(@a) >= 1e-4 AND abs(@a) < 1e15 OR @a = 0 OR NOT isFinite(@a))"
    is_long = f"(abs(@a) >= 1 AND abs(@a) < 1e17 AND match({default_text}, '^-?\\d{{15,}}[1-9]'))"
    with_exponent = f"replaceRegexpOne(replaceRegexpOne({default_text}, 'e(\\d)', 'e+\\1'), 'e-(\\d)$', 'e-0\\1')"
    # ClickHouse prints numbers between 1e-7 and 1e21 without an exponent, so the exponent is added here.
    with_point = "replaceRegexpOne(replaceRegexpOne({}, {}, '\\1\\2.\\3'), '[.]$', '')".format
    large = f"concat({with_point(default_text, _LARGE_FLOAT_TEXT_PATTERN)}, 'e+', toString(length({default_text}) - (@a < 0) - 1))"
    small = f"concat({with_point(default_text, _SMALL_FLOAT_TEXT_PATTERN)}, 'e-0', toString(length(extract({default_text}, '^-?0.(0+)')) + 1))"
    scientific = f"multiIf(position({default_text}, 'e') > 0, {with_exponent}, abs(@a) < 1, {small}, {large})"
    return fill_template(f"if({is_short} OR {is_long}, {default_text}, {scientific})", value)


_LARGE_FLOAT_TEXT_PATTERN: Final = "'^(-?)(\\d)(\\d*?)0*$'"
_SMALL_FLOAT_TEXT_PATTERN: Final = "'^(-?)0[.]0+(\\d)(\\d*)$'"


# Every interval of BigQuery is shorter.
_MAX_INTERVAL_TEXT_CHARACTERS: Final = 100
_ISO_INTERVAL_PATTERN: Final = re.compile(
    r"(-?)P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)W)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d+(?:\.\d+)?)S)?)?"
)
_CANONICAL_INTERVAL_PATTERN: Final = re.compile(r"(-?)(\d+)-(\d+) (-?\d+) (-?)(\d+):(\d+):(\d+(?:\.\d+)?)")


def _text_to_interval(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    """Cast a literal text to INTERVAL; the text has the form `Y-M D H:M:S` or a duration's form in ISO 8601."""
    literal_text = constant_text(value)
    is_short = literal_text is not None and len(literal_text) <= _MAX_INTERVAL_TEXT_CHARACTERS
    counts = _parse_interval_counts(literal_text) if literal_text is not None and is_short else None
    if counts is None:
        raise_unsupported(node, "CAST to INTERVAL of such a text")
    months, days, micros = counts
    return fragment_node(f"tuple(toInt64({months}), toInt64({days}), toInt64({micros}))")


def _parse_interval_counts(literal_text: str) -> tuple[int, int, int] | None:
    canonical, iso = _CANONICAL_INTERVAL_PATTERN.fullmatch(literal_text), _ISO_INTERVAL_PATTERN.fullmatch(literal_text)
    if canonical:
        return _canonical_interval_counts(canonical)
    return _iso_interval_counts(iso) if iso else None


def _canonical_interval_counts(match: re.Match[str]) -> tuple[int, int, int]:
    sign, time_sign = (-1 if match[index] else 1 for index in (1, 5))
    seconds = int(match[6]) * 3600 + int(match[7]) * 60 + float(match[8])
    return sign * (int(match[2]) * 12 + int(match[3])), int(match[4]), round(time_sign * seconds * 1_000_000)


def _iso_interval_counts(match: re.Match[str]) -> tuple[int, int, int]:
    sign = -1 if match[1] else 1
    years, months, weeks, days, hours, minutes = (int(match[index] or 0) for index in range(2, 8))
    seconds = hours * 3600 + minutes * 60 + float(match[8] or 0)
    return sign * (years * 12 + months), sign * (weeks * 7 + days), round(sign * seconds * 1_000_000)


def interval_text(value: exp.Expr) -> exp.Expr:
    months = "concat(if(@a.1 < 0, '-', ''), toString(intDiv(abs(@a.1), 12)), '-', toString(abs(@a.1) % 12))"
    clock = "concat(if(@a.3 < 0, '-', ''), toString(intDiv(abs(@a.3), 3600000000)), ':',"
    clock += " toString(intDiv(abs(@a.3), 60000000) % 60), ':', toString(intDiv(abs(@a.3), 1000000) % 60),"
    clock += " multiIf(@a.3 % 1000000 = 0, '', @a.3 % 1000 = 0,"
    clock += " concat('.', leftPad(toString(intDiv(abs(@a.3), 1000) % 1000), 3, '0')),"
    clock += " concat('.', leftPad(toString(abs(@a.3) % 1000000), 6, '0'))))"
    return fill_template(f"concat({months}, ' ', toString(@a.2), ' ', {clock})", value)


def _event_value_to_int(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    """Cast an event's value to INT64: a number is rounded, and a text must be an integer, as in the cast of a text."""
    kinds, text = value.meta_get(PATH_KINDS_METADATA_KEY), convert_implicitly(value, Kind.STRING)
    if kinds == _ONLY_TEXT_KINDS:
        return _text_to_int(node, text)
    if kinds and ValueKind.TEXT not in kinds:
        return fill_template(_parse_or_fail_sql(node, EVENT_NUMBER_TEXT_TO_INTEGER_SQL, "Bad int64 value"), text)
    parsed = f"if(startsWith(@b, '\"'), {_INTEGER_TEXT_SQL}, {EVENT_NUMBER_TEXT_TO_INTEGER_SQL})"
    return fill_template(_parse_or_fail_sql(node, parsed, "Bad int64 value"), text, copy_tree(value))


_ONLY_TEXT_KINDS: Final = frozenset({ValueKind.TEXT})


def _bytes_to_text(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    return fill_template(fail_if_sql(node, "NOT isValidUTF8(@a)", "Invalid UTF-8", "@a"), value)


def _keep_value(_: exp.Expr, value: exp.Expr) -> exp.Expr:
    return value


CAST_RULES: Final = CastRules(
    common_sql=COMMON_SQL,
    time_printer=TIME_PRINTER,
    casters_by_kinds={
        (Kind.STRING, Kind.INT64): _text_to_int,
        (Kind.STRING, Kind.BOOL): _text_to_bool,
        (Kind.STRING, Kind.FLOAT64): _text_to_float,
        (Kind.STRING, Kind.NUMERIC): _text_to_exact_numeric_caster(Kind.NUMERIC),
        (Kind.STRING, Kind.BIGNUMERIC): _text_to_exact_numeric_caster(Kind.BIGNUMERIC),
        # The template makes a new node, so that the result does not keep the type STRING of the value.
        (Kind.STRING, Kind.BYTES): "{0}",
        (Kind.STRING, Kind.INTERVAL): _text_to_interval,
        **{(kind, kind): _keep_value for kind in (Kind.STRING, Kind.BYTES, Kind.JSON, Kind.INTERVAL)},
        (Kind.FLOAT64, Kind.INT64): _float_to_int,
        (Kind.FLOAT64, Kind.NUMERIC): _float_to_numeric,
        (Kind.NUMERIC, Kind.INT64): "toInt64(round({0}))",
        (Kind.BIGNUMERIC, Kind.INT64): "toInt64(round({0}))",
        (Kind.INT64, Kind.BOOL): "CAST({0} != 0, 'Nullable(Bool)')",
        (Kind.BOOL, Kind.INT64): "CAST({0}, 'Nullable(Int64)')",
        (Kind.FLOAT64, Kind.STRING): _float_to_text,
        **{(kind, Kind.STRING): "toString({0})" for kind in (*EXACT_NUMERIC_KINDS, Kind.INT64, Kind.DATE)},
        # The value is cast to Bool first, because a comparison has ClickHouse's type UInt8, which is printed as 0 or 1.
        (Kind.BOOL, Kind.STRING): "toString(CAST({0}, 'Nullable(Bool)'))",
        (Kind.BYTES, Kind.STRING): _bytes_to_text,
        (Kind.INTERVAL, Kind.STRING): lambda _, value: interval_text(value),
        (Kind.VARIANT, Kind.STRING): lambda _, value: event_value_as_text(value),
        (Kind.VARIANT, Kind.INT64): _event_value_to_int,
    },
    cast_directly=_cast_directly,
    text_to_time=text_to_time,
    cast_to_composite=_cast_composite,
    cast_to_sized_type=lambda _, __: None,
    bytes_to_text_templates={"HEX": "lower(hex({0}))", "BASE64": "base64Encode({0})", "ASCII": "{0}", "UTF-8": "{0}"},
    text_to_bytes_templates={"HEX": "unhex({0})", "BASE64": "base64Decode({0})", "UTF-8": "{0}"},
)
cast_to: Final = CAST_RULES.cast_to
RULES = CAST_RULES.rules()
