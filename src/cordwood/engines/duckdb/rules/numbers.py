"""Rules for arithmetic and functions of numbers.

`/` does not round to an integer, and fails if the divisor is zero. NUMERIC keeps nine fractional digits. Functions fail
for arguments outside of their domain, whereas DuckDB would return NaN or infinity.
"""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import (
    COMMON_SQL,
    convert_implicitly,
    failure_sql,
    fill_fallible_template,
    fill_template,
)
from cordwood.model.datatype import EXACT_NUMERIC_KINDS, Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import is_event_number, kind_of
from cordwood.sql.lowering import LoweringRule, RuleSet, fragment_node, raise_unsupported
from cordwood.sql.nodes import constant_int, constant_python_value, is_null
from cordwood.sql.rules.event_numbers import has_exact_integers
from cordwood.sql.rules.numbers import NumberRules, may_overflow_float64, rounds_to_even

NUMBER_RULES: Final = NumberRules(COMMON_SQL)


def _translate_division(node: exp.Expr) -> exp.Expr:
    left, right = NUMBER_RULES.to_number_operands(node)
    if kind_of(node) is Kind.INTERVAL:
        return fragment_node("{0} / {1}", left, right)
    quotient = (
        f"CAST(@a / @b AS {_exact_numeric_type_name(node)})" if kind_of(node) in EXACT_NUMERIC_KINDS else "@a / @b"
    )
    divisor = _is_nonzero_constant(node.expression)
    if divisor:
        return fill_template(quotient, left, right)
    if is_null(left) or is_null(right):
        return fragment_node("NULL")
    return fill_template(
        f"CASE WHEN @b = 0 AND @a IS NOT NULL THEN {failure_sql(node, 'division by zero')} ELSE {quotient} END",
        left,
        right,
    )


def _exact_numeric_type_name(node: exp.Expr) -> str:
    return "DECIMAL(38, 9)" if kind_of(node) is Kind.NUMERIC else "DECIMAL(38, 18)"


def _is_nonzero_constant(node: exp.Expr) -> bool:
    """Return whether the node is a constant number other than zero."""
    value = constant_python_value(node)
    return isinstance(value, (int, float)) and value != 0


def _translate_safe_division(node: exp.Expr) -> exp.Expr:
    left, right = NUMBER_RULES.to_number_operands(node)
    if kind_of(node) in EXACT_NUMERIC_KINDS:
        return fill_template(f"CAST(@a / nullif(@b, 0) AS {_exact_numeric_type_name(node)})", left, right)
    if may_overflow_float64(node):
        quotient = "@a / nullif(@b, 0)"
        return fill_template(f"CASE WHEN NOT isinf({quotient}) OR isinf(@a::DOUBLE) THEN {quotient} END", left, right)
    return fragment_node("{0} / nullif({1}, 0)", left, right)


def _translate_integer_division(node: exp.Expr) -> exp.Expr:
    if kind_of(node.this) in EXACT_NUMERIC_KINDS or kind_of(node.expression) in EXACT_NUMERIC_KINDS:
        left, right = NUMBER_RULES.to_number_operands(node)
        return fill_fallible_template(node, "CAST(trunc(@a / @b) AS DECIMAL(38, 9))", left, right)
    left, right = NUMBER_RULES.to_whole_number(node.this), NUMBER_RULES.to_whole_number(node.expression)
    if Kind.FLOAT64 in (kind_of(left), kind_of(right)):
        raise_unsupported(node, "DIV of a FLOAT64")
    return fill_fallible_template(node, "@a // @b", left, right)


def _translate_remainder(node: exp.Expr) -> exp.Expr:
    left, right = NUMBER_RULES.to_number_operands(node)
    if kind_of(node) is Kind.INT64 and constant_python_value(right) in (None, -1):
        # Replace a divisor of -1 by 1, which gives the same remainder. DuckDB fails for the remainder of the smallest
        # INT64 by -1.
        return fill_fallible_template(node, "@a % CASE WHEN @b = -1 THEN 1 ELSE @b END", left, right)
    if is_event_number(node) and (has_exact_integers(left) or has_exact_integers(right)):
        return _remainder_of_event_numbers(node, left, right)
    return fill_fallible_template(node, "@a % @b", left, right)


def _remainder_of_event_numbers(node: exp.Expr, left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Return the remainder of numbers from events as a double, computed with all digits if both are integers."""
    whole_numbers = [NUMBER_RULES.to_whole_number(copy_tree(side)) for side in (left, right)]
    whole = "@c % CASE WHEN @d = -1 THEN 1 ELSE @d END"
    are_whole = "@c::DOUBLE = @a::DOUBLE AND @d::DOUBLE = @b::DOUBLE"
    return fill_fallible_template(
        node, f"CASE WHEN {are_whole} THEN ({whole})::DOUBLE ELSE @a::DOUBLE % @b END", left, right, *whole_numbers
    )


def _translate_multiplication(node: exp.Expr) -> exp.Expr:
    left, right = NUMBER_RULES.to_number_operands(node)
    if kind_of(node) in EXACT_NUMERIC_KINDS:
        left, right = convert_implicitly(left, Kind.NUMERIC), convert_implicitly(right, Kind.NUMERIC)
        digits = "DECIMAL(38, 9)" if kind_of(node) is Kind.NUMERIC else "DECIMAL(38, 18)"
        return fragment_node(f"CAST({{0}} * {{1}} AS {digits})", left, right)
    return type(node)(this=left, expression=right)


def _safe_arithmetic_rule(sign: str) -> LoweringRule:
    def rule(node: exp.Expr) -> exp.Expr:
        result = f"try(@a {sign} @b)"
        if kind_of(node) is Kind.FLOAT64:
            result = (
                f"CASE WHEN NOT isinf(@a {sign} @b) OR isinf(@a::DOUBLE) OR isinf(@b::DOUBLE) THEN @a {sign} @b END"
            )
        return fill_template(result, *NUMBER_RULES.to_number_operands(node))

    return rule


def _translate_safe_negation(node: exp.Expr) -> exp.Expr:
    """Translate SAFE_NEGATE, which returns NULL for the smallest INT64, because its negative is out of range."""
    if kind_of(node.this) is Kind.INT64:
        return fill_template("try((-(@a))::BIGINT)", node.this)
    return fill_template("try(-@a)", NUMBER_RULES.to_number(node.this))


def _translate_shift_left(node: exp.Expr) -> exp.Expr:
    """Translate `<<` into arithmetic on HUGEINT, which drops bits beyond the 64th; BIGINT would overflow instead."""
    shifted = "((@a::HUGEINT << @b::INT) & 18446744073709551615::HUGEINT)"
    signed = f"CASE WHEN {shifted} > 9223372036854775807 THEN {shifted} - 18446744073709551616 ELSE {shifted} END"
    template = f"CASE WHEN @b < 0 THEN {failure_sql(node, 'Bitwise shift by negative offset.')}"
    return fill_template(
        f"{template} WHEN @b > 63 THEN 0 ELSE CAST({signed} AS BIGINT) END", node.this, node.expression
    )


def _translate_shift_right(node: exp.Expr) -> exp.Expr:
    unsigned = "CASE WHEN @a < 0 AND @b > 0 THEN CAST((@a::HUGEINT + 18446744073709551616) >> @b::INT AS BIGINT)"
    template = f"CASE WHEN @b < 0 THEN {failure_sql(node, 'Bitwise shift by negative offset.')}"
    return fill_template(
        f"{template} WHEN @b > 63 THEN 0 ELSE {unsigned} ELSE @a >> @b END END", node.this, node.expression
    )


def _translate_negation(node: exp.Expr) -> exp.Expr:
    return exp.Neg(this=convert_implicitly(node.this, Kind.FLOAT64)) if kind_of(node.this) is Kind.VARIANT else node


def _translate_round(node: exp.Expr) -> exp.Expr:
    """Translate ROUND, which rounds halves away from zero by default, and converts an INT64 to a FLOAT64."""
    value, digits = node.this, node.args.get("decimals")
    if rounds_to_even(node) and digits is not None:
        return NUMBER_RULES.cast_to_exact_type(node, fragment_node("round_even({0}, {1}::INT)", value, digits))
    value = value if kind_of(value) in EXACT_NUMERIC_KINDS else NUMBER_RULES.to_float(value)
    if digits is None:
        return NUMBER_RULES.cast_to_exact_type(node, fragment_node("round({0})", value))
    if kind_of(value) not in EXACT_NUMERIC_KINDS and (constant_int(digits) or 0) > 0:
        # Doubles from 1e15 on are returned unchanged. They have hardly any fractional digits, and rounding would change
        # them, because it scales the number.
        return fill_template("CASE WHEN abs(@a) < 1e15 THEN round(@a, @b::INT) ELSE @a END", value, digits)
    return NUMBER_RULES.cast_to_exact_type(node, fragment_node("round({0}, {1}::INT)", value, digits))


def _translate_truncation(node: exp.Expr) -> exp.Expr:
    value, digits = node.this, node.args.get("decimals")
    value = value if kind_of(value) in EXACT_NUMERIC_KINDS else NUMBER_RULES.to_float(value)
    if digits is None:
        return NUMBER_RULES.cast_to_exact_type(node, fragment_node("trunc({0})", value))
    if constant_int(digits) is not None and kind_of(value) in EXACT_NUMERIC_KINDS:
        return NUMBER_RULES.cast_to_exact_type(node, fragment_node("trunc({0}, {1}::INT)", value, digits))
    # If the number of digits is below -308, it is replaced by -308, because DuckDB would ignore a lower number. The
    # result is the same, because no double has more than 309 digits before the point.
    return NUMBER_RULES.cast_to_exact_type(
        node, fragment_node("trunc({0}::DOUBLE, greatest({1}, -308)::INT)", value, digits)
    )


def _translate_absolute_value(node: exp.Expr) -> exp.Expr:
    return fill_fallible_template(node, "abs(@a)", NUMBER_RULES.to_number(node.this))


def _translate_bit_count(node: exp.Expr) -> exp.Expr:
    value = node.this
    if kind_of(value) in (Kind.BYTES, Kind.STRING):
        value = convert_implicitly(value, Kind.BYTES)
        ones = (
            "list_sum(list_transform(regexp_extract_all(hex({0}), '.'), lambda _d: bit_count(CAST('0x' || _d AS INT))))"
        )
        return fragment_node(f"coalesce({ones}, CASE WHEN {{0}} IS NOT NULL THEN 0 END)::BIGINT", value)
    return fragment_node("bit_count({0}::BIGINT)::BIGINT", value)


RULES = RuleSet(
    by_node_class={
        exp.Div: _translate_division,
        exp.SafeDivide: _translate_safe_division,
        exp.IntDiv: _translate_integer_division,
        exp.Mod: _translate_remainder,
        exp.Mul: _translate_multiplication,
        exp.SafeAdd: _safe_arithmetic_rule("+"),
        exp.SafeSubtract: _safe_arithmetic_rule("-"),
        exp.SafeMultiply: _safe_arithmetic_rule("*"),
        exp.SafeNegate: _translate_safe_negation,
        exp.BitwiseXor: lambda node: fragment_node("xor({0}, {1})", node.this, node.expression),
        # `~` is put in parentheses. DuckDB's `~` binds less tightly than `+`, and after a minus sign, it would be read
        # as part of another operator.
        exp.BitwiseNot: lambda node: fragment_node("(~{0})", node.this),
        exp.BitwiseLeftShift: _translate_shift_left,
        exp.BitwiseRightShift: _translate_shift_right,
        exp.Neg: _translate_negation,
        exp.Cbrt: lambda node: fill_template(
            "sign(@a) * round(power(abs(@a), 1.0 / 3), 15)", NUMBER_RULES.to_float(node.this)
        ),
        exp.Round: _translate_round,
        exp.Trunc: _translate_truncation,
        exp.Abs: _translate_absolute_value,
        exp.BitwiseCount: _translate_bit_count,
        exp.Rand: lambda _: fragment_node("random()"),
    }
)
