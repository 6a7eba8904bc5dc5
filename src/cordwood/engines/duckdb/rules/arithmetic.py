"""Arithmetic: `/` returns a fraction for any two numbers and fails for zero; NUMERIC keeps nine digits."""

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import attempt, fail, once
from cordwood.engines.duckdb.rules.coercions import read_as
from cordwood.model.datatype import EXACT, Kind
from cordwood.sql.constants import constant, is_null
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Rule, RuleSet, unsupported
from cordwood.sql.overflow import OverflowCheck, check_overflow, may_overflow
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
    },
    by_name={"IEEE_DIVIDE": _ieee_division},
    operations={OverflowCheck: _overflow_check},
    before_children=dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div), check_overflow),
)
