"""Rules for the internal functions that the compiler adds to BigQuery's; most are functions of ClickHouse."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import once
from cordwood.sql.internal_functions import DURATION, DURATION_UNITS, SIZE, SIZE_NUMBER, SIZE_UNIT, SIZE_UNITS, ZEROS
from cordwood.sql.lowering import Rule, RuleSet, fragment
from cordwood.sql.nodes import constant, constant_text, internal_function


def _integer(node: exp.Expr) -> exp.Expr:
    text, minimum, maximum = node.expressions
    is_in_range = f"@a >= {int(constant_text(minimum) or 0)} AND @a <= {int(constant_text(maximum) or 0)}"
    return once(f"if({is_in_range}, @a, NULL)", fragment("toInt64OrNull({0})", text))


def _quantile_rule(template: str) -> Rule:
    """Return the rule of a quantile; its level is a parameter of the aggregate and must be a literal."""

    def rule(node: exp.Expr) -> exp.Expr:
        level = exp.Literal.number(repr(constant(node.expressions[1])))
        return fragment(template, node.expressions[0], level)

    return rule


def _round_even(node: exp.Expr) -> exp.Expr:
    return fragment(f"round({{0}}, {int(constant_text(node.expressions[1]) or 0)})", node.expressions[0])


def _from_template(template: str) -> Rule:
    return lambda node: fragment(template, *node.expressions)


def _duration_seconds(node: exp.Expr) -> exp.Expr:
    """Return the seconds of a duration text, as the sum over its units; NULL for any other text."""
    parts = [f"toFloat64OrZero(extract(@a, '{pattern}')) * {seconds}" for pattern, seconds in DURATION_UNITS]
    total = f"if(startsWith(@a, '-'), -1, 1) * ({' + '.join(parts)})"
    is_duration = f"match(@a, '^(?:{DURATION})$')"
    return once(f"multiIf({is_duration}, {total}, @a IN {ZEROS}, 0., NULL)", node.expressions[0])


def _size_bytes(node: exp.Expr) -> exp.Expr:
    number = f"toFloat64OrNull(extract(@a, '{SIZE_NUMBER}'))"
    unit = f"lower(extract(@a, '{SIZE_UNIT}'))"
    names, sizes = ", ".join(f"'{name}'" for name in SIZE_UNITS), ", ".join(f"{size}." for size in SIZE_UNITS.values())
    factor = f"nullIf(transform({unit}, [{names}], [{sizes}], 0.), 0.)"
    return once(f"if(match(@a, '^(?:{SIZE})$'), {number} * {factor}, NULL)", node.expressions[0])


def _finite(node: exp.Expr) -> exp.Expr:
    return once("if(isFinite(@a), @a, NULL)", node.expressions[0])


def _json_object(node: exp.Expr) -> exp.Expr:
    """Concatenate a JSON object from its members, because ClickHouse has no function for values of different types."""
    pairs = [
        f"toJSONString({{{index}}}), ':', toJSONString({{{index + 1}}})" for index in range(0, len(node.expressions), 2)
    ]
    members = ", ',', ".join(pairs)
    return fragment(f"concat('{{', {members}, '}}')" if pairs else "'{}'", *node.expressions)


def _key(node: exp.Expr) -> exp.Expr:
    constant_key = constant(node)
    return exp.Literal.number(constant_key) if isinstance(constant_key, int) else node


def _json(name: str, *, default: str = "") -> Rule:
    """Return the rule of a ClickHouse function of a JSON text and keys; a NULL text counts as an empty one."""

    def rule(node: exp.Expr) -> exp.Expr:
        text, *keys = node.expressions
        parts = [_key(key) for key in keys]
        placeholders = "".join(f", {{{index}}}" for index in range(1, len(parts) + 1))
        return fragment(f"{name}(ifNull({{0}}, ''){placeholders}){default}", text, *parts)

    return rule


_RULES: Final[dict[str, Rule]] = {
    "whole_number": _integer,
    "float_number": _from_template("toFloat64OrNull({0})"),
    "duration_seconds": _duration_seconds,
    "size_bytes": _size_bytes,
    "finite": _finite,
    "not_nan": lambda node: once("if(isNaN(@a), NULL, @a)", node.expressions[0]),
    "float_text": _from_template("toString({0})"),
    "round_even": _round_even,
    "lower": _from_template("lower({0})"),
    "upper": _from_template("upper({0})"),
    "quantile": _quantile_rule("quantileExactInclusiveOrNull({1})({0})"),
    "quantile_tdigest": _quantile_rule("CAST(quantileTDigestOrNull({1})({0}), 'Nullable(Float64)')"),
    "json_object": _json_object,
    **dict.fromkeys(("sorted_texts", "sorted_numbers", "sorted_floats"), _from_template("arraySort({0})")),
    "json_member": _from_template("JSONExtractString({0}, {1})"),
    "json_string": _json("JSONExtractString"),
    "json_raw": _json("JSONExtractRaw"),
    "json_int": _json("JSONExtractInt"),
    "json_uint": _json("JSONExtractUInt"),
    "json_float": _json("JSONExtractFloat"),
    "json_bool": _json("JSONExtractBool", default=" = 1"),
    "json_has": _json("JSONHas", default=" = 1"),
    "json_length": _json("JSONLength"),
    "json_type": _json("JSONType"),
    "json_valid": _json("isValidJSON", default=" = 1"),
    "json_keys": _json("JSONExtractKeys"),
    "json_items": _json("JSONExtractArrayRaw"),
}

RULES = RuleSet(by_name={internal_function(name).upper(): rule for name, rule in _RULES.items()})
