"""Rules for the internal functions that the compiler adds to BigQuery's; most of them behave like ClickHouse's."""

from decimal import Decimal
from string import ascii_lowercase, ascii_uppercase
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import fill_template
from cordwood.sql.internal_functions import (
    BYTE_SIZE_NUMBER_PATTERN,
    BYTE_SIZE_PATTERN,
    BYTE_SIZE_UNIT_PATTERN,
    BYTES_BY_SIZE_UNIT,
    DURATION_PATTERN,
    NUMBER_PATTERNS_OF_DURATION_UNITS,
    ZERO_DURATIONS_SQL,
)
from cordwood.sql.lowering import LoweringRule, RuleSet, fragment_node, string_literal_node
from cordwood.sql.nodes import constant_python_value, constant_text, internal_function_name


def _translate_whole_number(node: exp.Expr) -> exp.Expr:
    """Parse a text as an integer within bounds; any other text gives NULL.

    DuckDB's cast also accepts texts that are not integers, so the text must match a pattern, too. Matching is slow. It
    is skipped if the integer that the cast returns is printed exactly as the text.
    """
    text, minimum, maximum = node.expressions
    number = "try_cast(@a AS BIGINT)"
    is_integer_text = f"({number}::VARCHAR = @a OR regexp_full_match(@a, '[+-]?[0-9]+'))"
    within = f"{number} BETWEEN {int(constant_text(minimum) or 0)} AND {int(constant_text(maximum) or 0)}"
    return fill_template(f"CASE WHEN {within} AND {is_integer_text} THEN {number} END", text)


def _translate_float_number(node: exp.Expr) -> exp.Expr:
    """Parse a text as a float; other texts give NULL.

    Spaces around the number and underscores in it also give NULL, although DuckDB's cast accepts them.
    """
    is_number_text = "@a > '!' AND right(@a, 1) > '!' AND NOT contains(@a, '_')"
    return fill_template(f"CASE WHEN {is_number_text} THEN try_cast(@a AS DOUBLE) END", node.expressions[0])


def _rule_from_template(template: str) -> LoweringRule:
    return lambda node: fragment_node(template, *node.expressions)


def _translate_finite_or_null(node: exp.Expr) -> exp.Expr:
    template = "nullif(nullif(nullif({0}, 'nan'::DOUBLE), 'inf'::DOUBLE), '-inf'::DOUBLE)"
    return fragment_node(template, node.expressions[0])


def _translate_duration_seconds(node: exp.Expr) -> exp.Expr:
    """Parse a text as a duration, and return the sum of its units in seconds; any other text gives NULL."""
    parts = [
        f"coalesce(try_cast(regexp_extract(@a, '{pattern}', 1) AS DOUBLE), 0) * {seconds}"
        for pattern, seconds in NUMBER_PATTERNS_OF_DURATION_UNITS
    ]
    total = f"CASE WHEN starts_with(@a, '-') THEN -1 ELSE 1 END * ({' + '.join(parts)})"
    body = f"CASE WHEN regexp_full_match(@a, '{DURATION_PATTERN}') THEN {total} WHEN @a IN {ZERO_DURATIONS_SQL} THEN 0::DOUBLE END"
    return fill_template(body, node.expressions[0])


def _translate_size_bytes(node: exp.Expr) -> exp.Expr:
    units = " ".join(f"WHEN '{unit}' THEN {size}" for unit, size in BYTES_BY_SIZE_UNIT.items())
    number = f"try_cast(regexp_extract(@a, '{BYTE_SIZE_NUMBER_PATTERN}', 1) AS DOUBLE)"
    factor = f"CASE lower(regexp_extract(@a, '{BYTE_SIZE_UNIT_PATTERN}', 1)) {units} END"
    return fill_template(
        f"CASE WHEN regexp_full_match(@a, '{BYTE_SIZE_PATTERN}') THEN {number} * {factor} END", node.expressions[0]
    )


def _translate_logfmt_text(node: exp.Expr) -> exp.Expr:
    decoded = "CASE WHEN json_valid(@a) THEN json_extract_string(@a, '$') END"
    quoted = f"WHEN contains(@a, '\\') THEN {decoded} ELSE substring(@a, 2, length(@a) - 2)"
    return fill_template(f"CASE WHEN NOT starts_with(@a, '\"') THEN @a {quoted} END", node.expressions[0])


def _translate_float_text(node: exp.Expr) -> exp.Expr:
    """Print a float as ClickHouse does.

    The text has no `.0`. It has an exponent if the absolute value is below 1e-6 or at least 1e21.
    """
    text = "@a::VARCHAR"
    small = f"regexp_replace(regexp_replace({text}, '{_SCIENTIFIC_MANTISSA_PATTERN}e-05$', '\\10.0000\\2\\3'), '{_SCIENTIFIC_MANTISSA_PATTERN}e-06$', '\\10.00000\\2\\3')"
    exponent = f"replace(replace(replace({text}, 'e+', 'e'), 'e-0', 'e-'), '-nan', 'nan')"
    cases = (
        "WHEN abs(@a) >= 1e21 THEN " + exponent,
        "WHEN abs(@a) >= 1e16 THEN (@a::HUGEINT)::VARCHAR",
        "WHEN abs(@a) >= 1e-4 OR @a = 0 THEN regexp_replace(" + text + ", '[.]0$', '')",
        "WHEN abs(@a) >= 1e-6 THEN " + small,
    )
    return fill_template(f"CASE {' '.join(cases)} ELSE {exponent} END", node.expressions[0])


_SCIENTIFIC_MANTISSA_PATTERN: Final = "^(-?)([0-9])[.]?([0-9]*)"


def _translate_round_even(node: exp.Expr) -> exp.Expr:
    """Scale a number by a power of ten, round halves to even, and scale it back, as ClickHouse does.

    For example, the float for 2.675 is slightly less than 2.675, but scaling by 100 gives exactly 267.5, which is
    rounded to 268.
    """
    digits = int(constant_text(node.expressions[1]) or 0)
    scale = f"1e{abs(digits)}"
    scaled = f"round_even({{0}} * {scale}, 0) / {scale}" if digits >= 0 else f"round_even({{0}} / {scale}, 0) * {scale}"
    return fragment_node(scaled, node.expressions[0])


def _ascii_case_rule(name: str, letters: str, replacements: str) -> LoweringRule:
    """Return the rule that changes the case of ASCII letters; DuckDB's faster function is used for pure ASCII texts."""
    template = (
        f"CASE WHEN strlen(@a) = length(@a) THEN {name}(@a) ELSE translate(@a, '{letters}', '{replacements}') END"
    )
    return lambda node: fill_template(template, node.expressions[0])


def _quantile_rule(name: str) -> LoweringRule:
    """Return the rule of a quantile.

    The level is a decimal. DuckDB multiplies it by the number of rows; with a double, rounding could lead to the wrong
    row.
    """

    def rule(node: exp.Expr) -> exp.Expr:
        level = format(Decimal(repr(constant_python_value(node.expressions[1]))), "f")
        return fragment_node(f"{name}({{0}}, {{1}})", node.expressions[0], exp.Literal.number(level))

    return rule


def _translate_json_object(node: exp.Expr) -> exp.Expr:
    placeholders = ", ".join(f"{{{index}}}" for index in range(len(node.expressions)))
    return fragment_node(f"json_object({placeholders})", *node.expressions)


def _json_pointer(keys: list[exp.Expr]) -> str:
    """Return the JSON pointer for constant keys and positions; the positions are counted from 1."""
    constants = [constant_python_value(key) for key in keys]
    steps = [key if isinstance(key, str) else str(int(key or 1) - 1) for key in constants]
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def _json_path_rule(template: str) -> LoweringRule:
    """Return the rule that fills a template with a text as `@a` and a path as `{0}`.

    If the text is not JSON, the result is NULL.
    """

    def rule(node: exp.Expr) -> exp.Expr:
        text, *keys = node.expressions
        path = string_literal_node(_json_pointer(keys) or "$")
        return fill_template(f"CASE WHEN json_valid(@a) THEN {template} END", text, texts=[path])

    return rule


def _json_path_or_false_rule(template: str) -> LoweringRule:
    inner = _json_path_rule(template)
    return lambda node: fragment_node("coalesce({0}, false)", inner(node))


def _json_path_or_empty_rule(template: str) -> LoweringRule:
    inner = _json_path_rule(template)
    return lambda node: fragment_node("coalesce({0}, [])", inner(node))


def _translate_json_member(node: exp.Expr) -> exp.Expr:
    """Return the text under a key of a JSON object whose values are texts; the key may differ from row to row."""
    pointer = "concat('/', replace(replace({1}, '~', '~0'), '/', '~1'))"
    return fragment_node(f"json_extract_string({{0}}, {pointer})", *node.expressions)


_JSON_TYPE_SQL: Final = "json_type(@a, {0})"
_JSON_VALUE_SQL: Final = "json_extract(@a, {0})"
_JSON_STRING_SQL: Final = "json_extract_string(@a, {0})"
_JSON_NUMBER_TYPES_SQL: Final = "('BIGINT', 'UBIGINT', 'DOUBLE', 'HUGEINT')"

_JSON_FLOAT_SQL: Final = f"CASE WHEN {_JSON_TYPE_SQL} IN {_JSON_NUMBER_TYPES_SQL} OR {_JSON_TYPE_SQL} = 'VARCHAR' THEN try_cast({_JSON_STRING_SQL} AS DOUBLE) END"
_JSON_INTEGER_SQL: Final = (
    f"CASE WHEN {_JSON_TYPE_SQL} IN ('BIGINT', 'UBIGINT') THEN try_cast({_JSON_STRING_SQL} AS BIGINT)"
    f" ELSE try_cast(trunc({_JSON_FLOAT_SQL}) AS BIGINT) END"
)
_CLICKHOUSE_JSON_TYPE_SQL: Final = (
    f"CASE {_JSON_TYPE_SQL} WHEN 'VARCHAR' THEN 'String' WHEN 'OBJECT' THEN 'Object' WHEN 'ARRAY' THEN 'Array' WHEN 'BOOLEAN' THEN 'Bool'"
    " WHEN 'DOUBLE' THEN 'Double' WHEN 'UBIGINT' THEN 'Int64' WHEN 'BIGINT' THEN 'Int64' ELSE 'Null' END"
)

_RULE_BY_NAME: Final[dict[str, LoweringRule]] = {
    "whole_number": _translate_whole_number,
    "float_number": _translate_float_number,
    "duration_seconds": _translate_duration_seconds,
    "size_bytes": _translate_size_bytes,
    "logfmt_text": _translate_logfmt_text,
    "finite": _translate_finite_or_null,
    "not_nan": lambda node: fragment_node("nullif({0}, 'nan'::DOUBLE)", node.expressions[0]),
    "ieee_remainder": _rule_from_template("({0}::DOUBLE % {1}::DOUBLE)"),
    "float_text": _translate_float_text,
    "round_even": _translate_round_even,
    "lower": _ascii_case_rule("lower", ascii_uppercase, ascii_lowercase),
    "upper": _ascii_case_rule("upper", ascii_lowercase, ascii_uppercase),
    "quantile": _quantile_rule("quantile_cont"),
    # The quantile is computed exactly. This is correct, because the function is defined as an approximation.
    "quantile_tdigest": _quantile_rule("quantile_disc"),
    "json_object": _translate_json_object,
    **dict.fromkeys(("sorted_texts", "sorted_numbers", "sorted_floats"), _rule_from_template("list_sort({0})")),
    "json_member": _translate_json_member,
    "json_string": _json_path_rule(
        f"CASE {_JSON_TYPE_SQL} WHEN 'VARCHAR' THEN {_JSON_STRING_SQL} WHEN 'NULL' THEN NULL ELSE ({_JSON_VALUE_SQL})::VARCHAR END"
    ),
    "json_raw": _json_path_rule(f"({_JSON_VALUE_SQL})::VARCHAR"),
    "json_int": _json_path_rule(_JSON_INTEGER_SQL),
    "json_uint": _json_path_rule(f"nullif(greatest({_JSON_INTEGER_SQL}, 0), 0)"),
    "json_float": _json_path_rule(_JSON_FLOAT_SQL),
    "json_bool": _json_path_or_false_rule(
        f"CASE WHEN {_JSON_TYPE_SQL} IN {_JSON_NUMBER_TYPES_SQL} THEN {_JSON_FLOAT_SQL} <> 0 ELSE {_JSON_TYPE_SQL} = 'BOOLEAN' AND {_JSON_STRING_SQL} = 'true' END"
    ),
    "json_has": _json_path_or_false_rule(f"{_JSON_TYPE_SQL} IS NOT NULL"),
    "json_length": _json_path_rule(
        f"CASE {_JSON_TYPE_SQL} WHEN 'ARRAY' THEN json_array_length(@a, {{0}}) WHEN 'OBJECT' THEN len(json_keys(@a, {{0}})) END"
    ),
    "json_type": _json_path_rule(_CLICKHOUSE_JSON_TYPE_SQL),
    "json_valid": lambda node: fragment_node("json_valid({0})", node.expressions[0]),
    "json_keys": _json_path_or_empty_rule(f"CASE WHEN {_JSON_TYPE_SQL} = 'OBJECT' THEN json_keys(@a, {{0}}) END"),
    "json_items": _json_path_or_empty_rule(
        f"CASE WHEN {_JSON_TYPE_SQL} = 'ARRAY' THEN list_transform(CAST({_JSON_VALUE_SQL} AS JSON[]), lambda _e: _e::VARCHAR) END"
    ),
}

RULES = RuleSet(by_function_name={internal_function_name(name).upper(): rule for name, rule in _RULE_BY_NAME.items()})
