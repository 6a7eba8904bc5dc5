"""The internal functions that the compiler adds to BigQuery's, most of them with ClickHouse's semantics."""

from decimal import Decimal
from string import ascii_lowercase, ascii_uppercase
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import once
from cordwood.sql.internal_functions import DURATION, DURATION_UNITS, SIZE, SIZE_NUMBER, SIZE_UNIT, SIZE_UNITS, ZEROS
from cordwood.sql.lowering import Rule, RuleSet, fragment, text_part
from cordwood.sql.nodes import constant, constant_text, internal_function


def _integer(node: exp.Expr) -> exp.Expr:
    """Parse an integer within bounds; return NULL for other texts.

    DuckDB's cast accepts more than digits. So the text must equal the parsed integer as text, or else match a pattern.
    """
    text, minimum, maximum = node.expressions
    number = "try_cast(@a AS BIGINT)"
    is_integer_text = f"({number}::VARCHAR = @a OR regexp_full_match(@a, '[+-]?[0-9]+'))"
    within = f"{number} BETWEEN {int(constant_text(minimum) or 0)} AND {int(constant_text(maximum) or 0)}"
    return once(f"CASE WHEN {within} AND {is_integer_text} THEN {number} END", text)


def _float_number(node: exp.Expr) -> exp.Expr:
    """Parse a float; reject the surrounding spaces and inner underscores that DuckDB's cast accepts."""
    is_number_text = "@a > '!' AND right(@a, 1) > '!' AND NOT contains(@a, '_')"
    return once(f"CASE WHEN {is_number_text} THEN try_cast(@a AS DOUBLE) END", node.expressions[0])


def _from_template(template: str) -> Rule:
    return lambda node: fragment(template, *node.expressions)


def _finite(node: exp.Expr) -> exp.Expr:
    template = "nullif(nullif(nullif({0}, 'nan'::DOUBLE), 'inf'::DOUBLE), '-inf'::DOUBLE)"
    return fragment(template, node.expressions[0])


def _duration_seconds(node: exp.Expr) -> exp.Expr:
    """Return the seconds of a duration, the sum over its units; NULL if the text is not a duration."""
    parts = [
        f"coalesce(try_cast(regexp_extract(@a, '{pattern}', 1) AS DOUBLE), 0) * {seconds}"
        for pattern, seconds in DURATION_UNITS
    ]
    total = f"CASE WHEN starts_with(@a, '-') THEN -1 ELSE 1 END * ({' + '.join(parts)})"
    body = f"CASE WHEN regexp_full_match(@a, '{DURATION}') THEN {total} WHEN @a IN {ZEROS} THEN 0::DOUBLE END"
    return once(body, node.expressions[0])


def _size_bytes(node: exp.Expr) -> exp.Expr:
    units = " ".join(f"WHEN '{unit}' THEN {size}" for unit, size in SIZE_UNITS.items())
    number = f"try_cast(regexp_extract(@a, '{SIZE_NUMBER}', 1) AS DOUBLE)"
    factor = f"CASE lower(regexp_extract(@a, '{SIZE_UNIT}', 1)) {units} END"
    return once(f"CASE WHEN regexp_full_match(@a, '{SIZE}') THEN {number} * {factor} END", node.expressions[0])


def _float_text(node: exp.Expr) -> exp.Expr:
    """Print a float as ClickHouse does: no `.0`, an exponent from 21 digits on and below 0.000001."""
    text = "@a::VARCHAR"
    small = f"regexp_replace(regexp_replace({text}, '{_SMALL}e-05$', '\\10.0000\\2\\3'), '{_SMALL}e-06$', '\\10.00000\\2\\3')"
    exponent = f"replace(replace(replace({text}, 'e+', 'e'), 'e-0', 'e-'), '-nan', 'nan')"
    cases = (
        "WHEN abs(@a) >= 1e21 THEN " + exponent,
        "WHEN abs(@a) >= 1e16 THEN (@a::HUGEINT)::VARCHAR",
        "WHEN abs(@a) >= 1e-4 OR @a = 0 THEN regexp_replace(" + text + ", '[.]0$', '')",
        "WHEN abs(@a) >= 1e-6 THEN " + small,
    )
    return once(f"CASE {' '.join(cases)} ELSE {exponent} END", node.expressions[0])


_SMALL: Final = "^(-?)([0-9])[.]?([0-9]*)"


def _round_even(node: exp.Expr) -> exp.Expr:
    """Round half to even after scaling, as ClickHouse does: 2.675 is stored as slightly less, but scales to 267.5."""
    digits = int(constant_text(node.expressions[1]) or 0)
    scale = f"1e{abs(digits)}"
    scaled = f"round_even({{0}} * {scale}, 0) / {scale}" if digits >= 0 else f"round_even({{0}} / {scale}, 0) * {scale}"
    return fragment(scaled, node.expressions[0])


def _ascii(name: str, letters: str, replacements: str) -> Rule:
    """Return the rule of upper or lower case of ASCII letters; DuckDB's faster function serves pure ASCII texts."""
    template = (
        f"CASE WHEN strlen(@a) = length(@a) THEN {name}(@a) ELSE translate(@a, '{letters}', '{replacements}') END"
    )
    return lambda node: once(template, node.expressions[0])


def _quantile(name: str) -> Rule:
    """Return the rule of a quantile; its level is a decimal, since a double could round past an integer row number."""

    def rule(node: exp.Expr) -> exp.Expr:
        level = format(Decimal(repr(constant(node.expressions[1]))), "f")
        return fragment(f"{name}({{0}}, {{1}})", node.expressions[0], exp.Literal.number(level))

    return rule


def _json_object(node: exp.Expr) -> exp.Expr:
    placeholders = ", ".join(f"{{{index}}}" for index in range(len(node.expressions)))
    return fragment(f"json_object({placeholders})", *node.expressions)


def _pointer(keys: list[exp.Expr]) -> str:
    """Return a JSON pointer of keys and of positions counted from 1."""
    constants = [constant(key) for key in keys]
    steps = [key if isinstance(key, str) else str(int(key or 1) - 1) for key in constants]
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def _json(template: str) -> Rule:
    """Return the rule of a template over the text @a and the path {0}; NULL if the text is not JSON."""

    def rule(node: exp.Expr) -> exp.Expr:
        text, *keys = node.expressions
        path = text_part(_pointer(keys) or "$")
        return once(f"CASE WHEN json_valid(@a) THEN {template} END", text, texts=[path])

    return rule


def _false_unless_json(template: str) -> Rule:
    inner = _json(template)
    return lambda node: fragment("coalesce({0}, false)", inner(node))


def _empty_unless_json(template: str) -> Rule:
    inner = _json(template)
    return lambda node: fragment("coalesce({0}, [])", inner(node))


def _json_member(node: exp.Expr) -> exp.Expr:
    """Return the text under a key of an object of texts; the key need not be constant."""
    pointer = "concat('/', replace(replace({1}, '~', '~0'), '/', '~1'))"
    return fragment(f"json_extract_string({{0}}, {pointer})", *node.expressions)


_TYPE: Final = "json_type(@a, {0})"
_VALUE: Final = "json_extract(@a, {0})"
_TEXT: Final = "json_extract_string(@a, {0})"
_NUMBERS: Final = "('BIGINT', 'UBIGINT', 'DOUBLE', 'HUGEINT')"

_FLOAT: Final = f"CASE WHEN {_TYPE} IN {_NUMBERS} OR {_TYPE} = 'VARCHAR' THEN try_cast({_TEXT} AS DOUBLE) END"
_INTEGER: Final = (
    f"CASE WHEN {_TYPE} IN ('BIGINT', 'UBIGINT') THEN try_cast({_TEXT} AS BIGINT)"
    f" ELSE try_cast(trunc({_FLOAT}) AS BIGINT) END"
)
_NAMES: Final = (
    f"CASE {_TYPE} WHEN 'VARCHAR' THEN 'String' WHEN 'OBJECT' THEN 'Object' WHEN 'ARRAY' THEN 'Array' WHEN 'BOOLEAN' THEN 'Bool'"
    " WHEN 'DOUBLE' THEN 'Double' WHEN 'UBIGINT' THEN 'Int64' WHEN 'BIGINT' THEN 'Int64' ELSE 'Null' END"
)

_RULES: Final[dict[str, Rule]] = {
    "whole_number": _integer,
    "float_number": _float_number,
    "duration_seconds": _duration_seconds,
    "size_bytes": _size_bytes,
    "finite": _finite,
    "not_nan": lambda node: fragment("nullif({0}, 'nan'::DOUBLE)", node.expressions[0]),
    "float_text": _float_text,
    "round_even": _round_even,
    "lower": _ascii("lower", ascii_uppercase, ascii_lowercase),
    "upper": _ascii("upper", ascii_lowercase, ascii_uppercase),
    "quantile": _quantile("quantile_cont"),
    # An exact quantile: the function is defined as an approximation, so an exact result is allowed.
    "quantile_tdigest": _quantile("quantile_disc"),
    "json_object": _json_object,
    **dict.fromkeys(("sorted_texts", "sorted_numbers", "sorted_floats"), _from_template("list_sort({0})")),
    "json_member": _json_member,
    "json_string": _json(
        f"CASE {_TYPE} WHEN 'VARCHAR' THEN {_TEXT} WHEN 'NULL' THEN NULL ELSE ({_VALUE})::VARCHAR END"
    ),
    "json_raw": _json(f"({_VALUE})::VARCHAR"),
    "json_int": _json(_INTEGER),
    "json_uint": _json(f"nullif(greatest({_INTEGER}, 0), 0)"),
    "json_float": _json(_FLOAT),
    "json_bool": _false_unless_json(
        f"CASE WHEN {_TYPE} IN {_NUMBERS} THEN {_FLOAT} <> 0 ELSE {_TYPE} = 'BOOLEAN' AND {_TEXT} = 'true' END"
    ),
    "json_has": _false_unless_json(f"{_TYPE} IS NOT NULL"),
    "json_length": _json(
        f"CASE {_TYPE} WHEN 'ARRAY' THEN json_array_length(@a, {{0}}) WHEN 'OBJECT' THEN len(json_keys(@a, {{0}})) END"
    ),
    "json_type": _json(_NAMES),
    "json_valid": lambda node: fragment("json_valid({0})", node.expressions[0]),
    "json_keys": _empty_unless_json(f"CASE WHEN {_TYPE} = 'OBJECT' THEN json_keys(@a, {{0}}) END"),
    "json_items": _empty_unless_json(
        f"CASE WHEN {_TYPE} = 'ARRAY' THEN list_transform(CAST({_VALUE} AS JSON[]), lambda _e: _e::VARCHAR) END"
    ),
}

RULES = RuleSet(by_name={internal_function(name).upper(): rule for name, rule in _RULES.items()})
