"""Arithmetic and functions of numbers.

`/` returns a fraction for any two numbers and fails for zero; NUMERIC keeps nine digits. Functions fail outside their
domain, where DuckDB would return NaN or infinity.
"""

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import attempt, fail, once
from cordwood.engines.duckdb.rules.coercions import read_as
from cordwood.model.datatype import EXACT, Kind
from cordwood.sql.bigquery.numbers import OverflowCheck, check_overflow, may_overflow, rounds_to_even
from cordwood.sql.constants import constant, constant_int, is_null
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Rule, RuleSet, unsupported
from cordwood.sql.typing import kind_of


def _operands(node: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
    left, right = node.this, node.expression
    return _as_number(left, right), _as_number(right, left)


def _as_number(node: exp.Expr, other: exp.Expr) -> exp.Expr:
    if kind_of(node) is Kind.VARIANT and kind_of(other) is not Kind.INTERVAL:
        return read_as(node, Kind.FLOAT64)
    return node


def _division(node: exp.Expr) -> exp.Expr:
    left, right = _operands(node)
    if kind_of(node) is Kind.INTERVAL:
        return fragment("{0} / {1}", left, right)
    quotient = f"CAST(@a / @b AS {_exact_name(node)})" if kind_of(node) in EXACT else "@a / @b"
    divisor = _is_nonzero_constant(node.expression)
    if divisor:
        return once(quotient, left, right)
    if is_null(left) or is_null(right):
        return fragment("NULL")
    return once(
        f"CASE WHEN @b = 0 AND @a IS NOT NULL THEN {fail(node, 'division by zero')} ELSE {quotient} END", left, right
    )


def _exact_name(node: exp.Expr) -> str:
    return "DECIMAL(38, 9)" if kind_of(node) is Kind.NUMERIC else "DECIMAL(38, 18)"


def _is_nonzero_constant(node: exp.Expr) -> bool:
    """Return whether the divisor is a constant other than zero."""
    value = constant(node)
    return isinstance(value, (int, float)) and value != 0


def _safe_division(node: exp.Expr) -> exp.Expr:
    left, right = _operands(node)
    if kind_of(node) in EXACT:
        return once(f"CAST(@a / nullif(@b, 0) AS {_exact_name(node)})", left, right)
    if may_overflow(node):
        quotient = "@a / nullif(@b, 0)"
        return once(f"CASE WHEN NOT isinf({quotient}) OR isinf(@a::DOUBLE) THEN {quotient} END", left, right)
    return fragment("{0} / nullif({1}, 0)", left, right)


def _ieee_division(node: exp.Expr) -> exp.Expr:
    left, right = (read_as(part, Kind.FLOAT64) for part in node.expressions)
    return fragment("{0}::DOUBLE / {1}::DOUBLE", left, right)


def _integer_division(node: exp.Expr) -> exp.Expr:
    left, right = _operands(node)
    if kind_of(node.this) in EXACT or kind_of(node.expression) in EXACT:
        return attempt(node, "CAST(trunc(@a / @b) AS DECIMAL(38, 9))", left, right)
    if Kind.FLOAT64 in (kind_of(node.this), kind_of(node.expression)):
        unsupported(node, "DIV of a FLOAT64")
    return attempt(node, "@a // @b", left, right)


def _remainder(node: exp.Expr) -> exp.Expr:
    left, right = _operands(node)
    if kind_of(node) is Kind.INT64 and constant(right) in (None, -1):
        # DuckDB fails for the remainder of the smallest INT64 by -1.
        return attempt(node, "@a % CASE WHEN @b = -1 THEN 1 ELSE @b END", left, right)
    return attempt(node, "@a % @b", left, right)


def _product(node: exp.Expr) -> exp.Expr:
    left, right = _operands(node)
    if kind_of(node) in EXACT:
        left, right = read_as(left, Kind.NUMERIC), read_as(right, Kind.NUMERIC)
        digits = "DECIMAL(38, 9)" if kind_of(node) is Kind.NUMERIC else "DECIMAL(38, 18)"
        return fragment(f"CAST({{0}} * {{1}} AS {digits})", left, right)
    return _with_operands(node, left, right)


def _with_operands(node: exp.Expr, left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return type(node)(this=left, expression=right)


def _safe(sign: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        result = f"try(@a {sign} @b)"
        if kind_of(node) is Kind.FLOAT64:
            result = (
                f"CASE WHEN NOT isinf(@a {sign} @b) OR isinf(@a::DOUBLE) OR isinf(@b::DOUBLE) THEN @a {sign} @b END"
            )
        return once(result, *_operands(node))

    return rule


def _safe_negation(node: exp.Expr) -> exp.Expr:
    """Lower SAFE_NEGATE: NULL for the smallest INT64, whose negative is out of range."""
    if kind_of(node.this) is Kind.INT64:
        return once("try((-(@a))::BIGINT)", node.this)
    return once("try(-@a)", read_as(node.this, Kind.FLOAT64) if kind_of(node.this) is Kind.VARIANT else node.this)


def _exclusive_or(node: exp.Expr) -> exp.Expr:
    return fragment("xor({0}, {1})", node.this, node.expression)


def _shift_left(node: exp.Expr) -> exp.Expr:
    """Lower `<<` as unsigned arithmetic, in which bits leave the word; DuckDB's own shift fails on overflow."""
    shifted = "((@a::HUGEINT << @b::INT) & 18446744073709551615::HUGEINT)"
    signed = f"CASE WHEN {shifted} > 9223372036854775807 THEN {shifted} - 18446744073709551616 ELSE {shifted} END"
    template = f"CASE WHEN @b < 0 THEN {fail(node, 'Bitwise shift by negative offset.')}"
    return once(f"{template} WHEN @b > 63 THEN 0 ELSE CAST({signed} AS BIGINT) END", node.this, node.expression)


def _shift_right(node: exp.Expr) -> exp.Expr:
    unsigned = "CASE WHEN @a < 0 AND @b > 0 THEN CAST((@a::HUGEINT + 18446744073709551616) >> @b::INT AS BIGINT)"
    template = f"CASE WHEN @b < 0 THEN {fail(node, 'Bitwise shift by negative offset.')}"
    return once(f"{template} WHEN @b > 63 THEN 0 ELSE {unsigned} ELSE @a >> @b END END", node.this, node.expression)


def _negation(node: exp.Expr) -> exp.Expr:
    return exp.Neg(this=read_as(node.this, Kind.FLOAT64)) if kind_of(node.this) is Kind.VARIANT else node


def _overflow_check(node: exp.Expr) -> exp.Expr:
    """Fail if the result is infinite although all operands are finite."""
    result, *operands = node.expressions
    numbers = [
        read_as(operand, Kind.FLOAT64) for operand in operands if kind_of(operand) in (Kind.FLOAT64, Kind.VARIANT)
    ]
    finite = "".join(f" AND isfinite({{{index}}})" for index in range(1, len(numbers) + 1))
    failure = fail(node, "Floating point overflow")
    return fragment(f"CASE WHEN isinf({{0}}){finite} THEN {failure} ELSE {{0}} END", result, *numbers)


def _float(node: exp.Expr) -> exp.Expr:
    return read_as(node, Kind.FLOAT64)


def _number(node: exp.Expr) -> exp.Expr:
    """Return an event's value as a number; other values unchanged."""
    return read_as(node, Kind.FLOAT64) if kind_of(node) is Kind.VARIANT else node


def _checked_finite(template: str, name: str) -> Rule:
    """Return the rule of a function that fails if finite arguments give a result that is not finite."""

    def rule(node: exp.Expr) -> exp.Expr:
        failure = fail(node, f"Floating point error in function: {name}")
        guard = f"isfinite(@a) AND NOT isfinite({template})"
        return _exact(node, once(f"CASE WHEN {guard} THEN {failure} ELSE {template} END", _float(node.this)))

    return rule


def _exact(node: exp.Expr, result: exp.Expr) -> exp.Expr:
    return fragment("{0}::DECIMAL(38, 9)", result) if kind_of(node) in EXACT else result


def _checked_domain(name: str, outside: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        failure = fail(node, f"Argument of {name.upper()} is out of its domain")
        return _exact(node, once(f"CASE WHEN {outside} THEN {failure} ELSE {name}(@a) END", _float(node.this)))

    return rule


def _power(node: exp.Expr) -> exp.Expr:
    failure = fail(node, "Floating point error in function: POW")
    guard = "isfinite(@a) AND isfinite(@b) AND NOT isfinite(power(@a, @b))"
    result = once(
        f"CASE WHEN {guard} THEN {failure} ELSE power(@a, @b) END", _float(node.this), _float(node.expression)
    )
    return _exact(node, result)


def _logarithm(node: exp.Expr) -> exp.Expr:
    """Lower LOG, whose base the parser puts first."""
    other = node.args.get("expression")
    base, value = (node.this, other) if other is not None else (None, node.this)
    failure = fail(node, "Argument of LOG is out of its domain")
    if base is None:
        return _exact(node, once(f"CASE WHEN @a <= 0 THEN {failure} ELSE ln(@a) END", _float(value)))
    if constant_int(base) == 10:
        return _exact(
            node, once(f"CASE WHEN isfinite(@a) AND @a <= 0 THEN {failure} ELSE log10(@a) END", _float(value))
        )
    guard = "isfinite(@a) AND isfinite(@b) AND (@a <= 0 OR @b <= 0 OR @b = 1)"
    body = f"CASE WHEN {guard} THEN {failure} WHEN isinf(@b) THEN 'nan'::DOUBLE ELSE ln(@a) / ln(@b) END"
    return _exact(node, once(body, _float(value), _float(base)))


def _round(node: exp.Expr) -> exp.Expr:
    """Lower ROUND, half away from zero by default; an INT64 becomes a FLOAT64."""
    value, digits = node.this, node.args.get("decimals")
    if rounds_to_even(node) and digits is not None:
        return _exact(node, fragment("round_even({0}, {1}::INT)", value, digits))
    value = value if kind_of(value) in EXACT else _float(value)
    if digits is None:
        return _exact(node, fragment("round({0})", value))
    if kind_of(value) not in EXACT and (constant_int(digits) or 0) > 0:
        # Scaling a number beyond its own precision would change it.
        return once("CASE WHEN abs(@a) < 1e15 THEN round(@a, @b::INT) ELSE @a END", value, digits)
    return _exact(node, fragment("round({0}, {1}::INT)", value, digits))


def _truncate(node: exp.Expr) -> exp.Expr:
    value, digits = node.this, node.args.get("decimals")
    value = value if kind_of(value) in EXACT else _float(value)
    if digits is None:
        return _exact(node, fragment("trunc({0})", value))
    if constant_int(digits) is not None and kind_of(value) in EXACT:
        return _exact(node, fragment("trunc({0}, {1}::INT)", value, digits))
    # DuckDB ignores a negative number of digits beyond the range of a double.
    return _exact(node, fragment("trunc({0}::DOUBLE, greatest({1}, -308)::INT)", value, digits))


def _ceiling_or_floor(name: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        value = node.this if kind_of(node.this) in EXACT else _float(node.this)
        return _exact(node, fragment(f"{name}({{0}})", value))

    return rule


def _absolute(node: exp.Expr) -> exp.Expr:
    return attempt(node, "abs(@a)", _number(node.this))


def _sign(node: exp.Expr) -> exp.Expr:
    if kind_of(node.this) is Kind.INT64:
        return fragment("sign({0})::BIGINT", node.this)
    value = _number(node.this)
    return _exact(node, once("CASE WHEN isnan(@a::DOUBLE) THEN @a ELSE sign(@a) END", value))


def _is_nan(node: exp.Expr) -> exp.Expr:
    return fragment("isnan({0})", _float(node.this))


def _is_infinite(node: exp.Expr) -> exp.Expr:
    return fragment("isinf({0})", _float(node.this if isinstance(node.this, exp.Expr) else node.expressions[0]))


def _extreme(name: str) -> Rule:
    """Return the rule of GREATEST or LEAST: NULL if any argument is NULL, which DuckDB skips, and NaN if any is NaN."""

    def rule(node: exp.Expr) -> exp.Expr:
        kind = kind_of(node)
        parts = [read_as(part, kind) if kind else part for part in (node.this, *node.expressions)]
        letters = [f"@{chr(97 + index)}" for index in range(len(parts))]
        guard = " OR ".join(f"{letter} IS NULL" for letter in letters)
        nan_branch = ""
        if kind is Kind.FLOAT64:
            nan_branch = " WHEN " + " OR ".join(f"isnan({letter})" for letter in letters) + " THEN 'nan'::DOUBLE"
        return once(f"CASE WHEN {guard} THEN NULL{nan_branch} ELSE {name}({', '.join(letters)}) END", *parts)

    return rule


def _bit_count(node: exp.Expr) -> exp.Expr:
    value = node.this
    if kind_of(value) in (Kind.BYTES, Kind.STRING):
        value = read_as(value, Kind.BYTES)
        ones = (
            "list_sum(list_transform(regexp_extract_all(hex({0}), '.'), lambda _d: bit_count(CAST('0x' || _d AS INT))))"
        )
        return fragment(f"coalesce({ones}, CASE WHEN {{0}} IS NOT NULL THEN 0 END)::BIGINT", value)
    return fragment("bit_count({0}::BIGINT)::BIGINT", value)


def _random(_: exp.Expr) -> exp.Expr:
    return fragment("random()")


def _reciprocal(template: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        return once(template, _float(node.this))

    return rule


RULES = RuleSet(
    nodes={
        exp.Div: _division,
        exp.SafeDivide: _safe_division,
        exp.IntDiv: _integer_division,
        exp.Mod: _remainder,
        exp.Mul: _product,
        exp.SafeAdd: _safe("+"),
        exp.SafeSubtract: _safe("-"),
        exp.SafeMultiply: _safe("*"),
        exp.SafeNegate: _safe_negation,
        exp.BitwiseXor: _exclusive_or,
        # DuckDB's `~` binds less tightly than `+`, and forms another operator directly after a minus.
        exp.BitwiseNot: lambda node: fragment("(~{0})", node.this),
        exp.BitwiseLeftShift: _shift_left,
        exp.BitwiseRightShift: _shift_right,
        exp.Neg: _negation,
        exp.Exp: _checked_finite("exp(@a)", "EXP"),
        exp.Cosh: _checked_finite("cosh(@a)", "COSH"),
        exp.Sinh: _checked_finite("sinh(@a)", "SINH"),
        exp.Sqrt: _checked_domain("sqrt", "@a < 0"),
        exp.Ln: _checked_domain("ln", "@a <= 0"),
        exp.Acos: _checked_domain("acos", "isfinite(@a) AND abs(@a) > 1"),
        exp.Asin: _checked_domain("asin", "isfinite(@a) AND abs(@a) > 1"),
        exp.Acosh: _checked_domain("acosh", "isfinite(@a) AND @a < 1"),
        exp.Atanh: _checked_domain("atanh", "isfinite(@a) AND abs(@a) >= 1"),
        exp.Sec: _reciprocal("1 / cos(@a)"),
        exp.Csc: _checked_finite("1 / sin(@a)", "CSC"),
        exp.Sech: _reciprocal("1 / cosh(@a)"),
        exp.Csch: _checked_finite("1 / sinh(@a)", "CSCH"),
        exp.Cot: _checked_finite("cot(@a)", "COT"),
        exp.Coth: _checked_finite("1 / tanh(@a)", "COTH"),
        exp.Cbrt: _reciprocal("sign(@a) * round(power(abs(@a), 1.0 / 3), 15)"),
        exp.Pow: _power,
        exp.Log: _logarithm,
        exp.Round: _round,
        exp.Trunc: _truncate,
        exp.Ceil: _ceiling_or_floor("ceil"),
        exp.Floor: _ceiling_or_floor("floor"),
        exp.Abs: _absolute,
        exp.Sign: _sign,
        exp.IsNan: _is_nan,
        exp.IsInf: _is_infinite,
        exp.Greatest: _extreme("greatest"),
        exp.Least: _extreme("least"),
        exp.BitwiseCount: _bit_count,
        exp.Rand: _random,
    },
    by_name={
        "IEEE_DIVIDE": _ieee_division,
    },
    operations={
        OverflowCheck: _overflow_check,
    },
    before_children={
        **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div), check_overflow),
    },
)
