"""Rules for the internal functions that the compiler adds to BigQuery's functions; most are functions of ClickHouse."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import fill_template
from cordwood.sql.internal_functions import (
    BYTE_SIZE_NUMBER_PATTERN,
    BYTE_SIZE_PATTERN,
    BYTE_SIZE_UNIT_PATTERN,
    BYTES_BY_SIZE_UNIT,
    DURATION_PATTERN,
    NUMBER_PATTERNS_OF_DURATION_UNITS,
    ZERO_DURATIONS_SQL,
)
from cordwood.sql.lowering import LoweringRule, RuleSet, fragment_node
from cordwood.sql.nodes import constant_python_value, constant_text, internal_function_name


def _translate_whole_number(node: exp.Expr) -> exp.Expr:
    text, minimum, maximum = node.expressions
    is_in_range = f"@a >= {int(constant_text(minimum) or 0)} AND @a <= {int(constant_text(maximum) or 0)}"
    return fill_template(f"if({is_in_range}, @a, NULL)", fragment_node("toInt64OrNull({0})", text))


def _quantile_rule(template: str) -> LoweringRule:
    """Return the rule of a quantile; its level must be a literal, because ClickHouse takes it as a parameter."""

    def rule(node: exp.Expr) -> exp.Expr:
        level = exp.Literal.number(repr(constant_python_value(node.expressions[1])))
        return fragment_node(template, node.expressions[0], level)

    return rule


def _translate_round_even(node: exp.Expr) -> exp.Expr:
    return fragment_node(f"round({{0}}, {int(constant_text(node.expressions[1]) or 0)})", node.expressions[0])


def _rule_from_template(template: str) -> LoweringRule:
    return lambda node: fragment_node(template, *node.expressions)


def _translate_duration_seconds(node: exp.Expr) -> exp.Expr:
    """Translate a duration such as `1h30m` to its number of seconds; the result for any other text is NULL."""
    parts = [
        f"toFloat64OrZero(extract(@a, '{pattern}')) * {seconds}"
        for pattern, seconds in NUMBER_PATTERNS_OF_DURATION_UNITS
    ]
    total = f"if(startsWith(@a, '-'), -1, 1) * ({' + '.join(parts)})"
    is_duration = f"match(@a, '^(?:{DURATION_PATTERN})$')"
    return fill_template(f"multiIf({is_duration}, {total}, @a IN {ZERO_DURATIONS_SQL}, 0., NULL)", node.expressions[0])


def _translate_size_bytes(node: exp.Expr) -> exp.Expr:
    number = f"toFloat64OrNull(extract(@a, '{BYTE_SIZE_NUMBER_PATTERN}'))"
    unit = f"lower(extract(@a, '{BYTE_SIZE_UNIT_PATTERN}'))"
    names, sizes = (
        ", ".join(f"'{name}'" for name in BYTES_BY_SIZE_UNIT),
        ", ".join(f"{size}." for size in BYTES_BY_SIZE_UNIT.values()),
    )
    factor = f"nullIf(transform({unit}, [{names}], [{sizes}], 0.), 0.)"
    return fill_template(f"if(match(@a, '^(?:{BYTE_SIZE_PATTERN})$'), {number} * {factor}, NULL)", node.expressions[0])


def _translate_logfmt_text(node: exp.Expr) -> exp.Expr:
    decoded = "if(isValidJSON(@a), JSONExtractString(@a), NULL)"
    unquoted = "substringUTF8(@a, 2, lengthUTF8(@a) - 2)"
    template = f"multiIf(NOT startsWith(@a, '\"'), @a, position(@a, '\\\\') > 0, {decoded}, {unquoted})"
    return fill_template(template, node.expressions[0])


def _translate_finite_or_null(node: exp.Expr) -> exp.Expr:
    return fill_template("if(isFinite(@a), @a, NULL)", node.expressions[0])


def _translate_json_object(node: exp.Expr) -> exp.Expr:
    """Build a JSON object as a text, because ClickHouse has no function for members of different types."""
    pairs = [
        f"toJSONString({{{index}}}), ':', ifNull(toJSONString({{{index + 1}}}), 'null')"
        for index in range(0, len(node.expressions), 2)
    ]
    members = ", ',', ".join(pairs)
    return fragment_node(f"concat('{{', {members}, '}}')" if pairs else "'{}'", *node.expressions)


def _json_key_node(node: exp.Expr) -> exp.Expr:
    constant_key = constant_python_value(node)
    return exp.Literal.number(constant_key) if isinstance(constant_key, int) else node


def _json_path_rule(name: str, *, default: str = "") -> LoweringRule:
    """Return the rule that calls ClickHouse's function `name` with a JSON text and keys; NULL counts as empty text."""

    def rule(node: exp.Expr) -> exp.Expr:
        text, *keys = node.expressions
        parts = [_json_key_node(key) for key in keys]
        placeholders = "".join(f", {{{index}}}" for index in range(1, len(parts) + 1))
        return fragment_node(f"{name}(ifNull({{0}}, ''){placeholders}){default}", text, *parts)

    return rule


_RULE_BY_NAME: Final[dict[str, LoweringRule]] = {
    "whole_number": _translate_whole_number,
    "float_number": _rule_from_template("toFloat64OrNull({0})"),
    "duration_seconds": _translate_duration_seconds,
    "size_bytes": _translate_size_bytes,
    "logfmt_text": _translate_logfmt_text,
    "finite": _translate_finite_or_null,
    "not_nan": lambda node: fill_template("if(isNaN(@a), NULL, @a)", node.expressions[0]),
    # ClickHouse returns NaN for an infinite divisor.
    "ieee_remainder": lambda node: fill_template("if(isFinite(@a) AND isInfinite(@b), @a, @a % @b)", *node.expressions),
    "float_text": _rule_from_template("toString({0})"),
    "round_even": _translate_round_even,
    "lower": _rule_from_template("lower({0})"),
    "upper": _rule_from_template("upper({0})"),
    "quantile": _quantile_rule("quantileExactInclusiveOrNull({1})({0})"),
    "quantile_tdigest": _quantile_rule("CAST(quantileTDigestOrNull({1})({0}), 'Nullable(Float64)')"),
    "json_object": _translate_json_object,
    **dict.fromkeys(("sorted_texts", "sorted_numbers", "sorted_floats"), _rule_from_template("arraySort({0})")),
    "json_member": _rule_from_template("JSONExtractString({0}, {1})"),
    "json_string": _json_path_rule("JSONExtractString"),
    "json_raw": _json_path_rule("JSONExtractRaw"),
    "json_int": _json_path_rule("JSONExtractInt"),
    "json_uint": _json_path_rule("JSONExtractUInt"),
    "json_float": _json_path_rule("JSONExtractFloat"),
    "json_bool": _json_path_rule("JSONExtractBool", default=" = 1"),
    "json_has": _json_path_rule("JSONHas", default=" = 1"),
    "json_length": _json_path_rule("JSONLength"),
    "json_type": _json_path_rule("JSONType"),
    "json_valid": _json_path_rule("isValidJSON", default=" = 1"),
    "json_keys": _json_path_rule("JSONExtractKeys"),
    "json_items": _json_path_rule("JSONExtractArrayRaw"),
}

RULES = RuleSet(by_function_name={internal_function_name(name).upper(): rule for name, rule in _RULE_BY_NAME.items()})
