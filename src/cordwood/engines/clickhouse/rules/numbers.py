"""Rules for arithmetic and functions of numbers.

`/` returns a fraction for numbers of any type, and fails if the divisor is zero. A NUMERIC keeps nine digits after the
point. Functions fail outside their domain, whereas ClickHouse would return NaN or infinity.
"""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import (
    COMMON_SQL,
    TYPE_NAME_BY_KIND,
    fail_if_sql,
    fill_template,
    typed_null,
)
from cordwood.model.datatype import EXACT_NUMERIC_KINDS, Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import datatype_of, is_event_number, kind_of
from cordwood.sql.lowering import (
    LoweringRule,
    RuleSet,
    fragment_node,
    mark_null_on_error,
    raise_unsupported,
    returns_null_on_error,
    string_literal_node,
)
from cordwood.sql.nodes import constant_int, constant_python_value, is_int32_constant, is_null
from cordwood.sql.rules.event_numbers import has_exact_integers
from cordwood.sql.rules.numbers import PARSE_NUMERIC_PATTERN, NumberRules, may_overflow_float64, rounds_to_even

NUMBER_RULES: Final = NumberRules(COMMON_SQL)


def _cast_to_numeric_sql(node: exp.Expr, value: str) -> str:
    return f"CAST({value}, 'Nullable({TYPE_NAME_BY_KIND[kind_of(node) or Kind.NUMERIC]})')"


def _rounding_cast_sql(node: exp.Expr, value: str) -> str:
    """Return SQL that casts a value to the node's type and rounds it, because ClickHouse's own cast truncates."""
    return _cast_to_numeric_sql(node, value if kind_of(node) is Kind.BIGNUMERIC else f"round({value}, 9)")


def _translate_division(node: exp.Expr) -> exp.Expr:
    left, right = NUMBER_RULES.to_number_operands(node)
    return _divide(node, left, right)


def _divide(node: exp.Expr, left: exp.Expr, right: exp.Expr) -> exp.Expr:
    if kind_of(node) in EXACT_NUMERIC_KINDS:
        # The dividend is cast to a type with more decimals, because ClickHouse's quotient has as many decimals as the
        # dividend.
        quotient = _rounding_cast_sql(
            node, "CAST(@a, 'Nullable(Decimal(76, 18))') / nullIf(CAST(@b, 'Nullable(Decimal(38, 9))'), 0)"
        )
    else:
        quotient = "toFloat64(@a) / toFloat64(@b)"
    if isinstance(constant_python_value(right), (int, float)) and constant_python_value(right) != 0:
        return fill_template(quotient, left, right)
    return fill_template(fail_if_sql(node, "(@b = 0 AND isNotNull(@a))", "division by zero", quotient), left, right)


def _translate_safe_division(node: exp.Expr) -> exp.Expr:
    left, right = NUMBER_RULES.to_number_operands(node)
    if may_overflow_float64(node):
        quotient = "toFloat64(@a) / nullIf(toFloat64(@b), 0)"
        return fill_template(
            f"if(isInfinite({quotient}) AND NOT isInfinite(toFloat64(@a)), NULL, {quotient})", left, right
        )
    return _divide(mark_null_on_error(node), left, right)


def _translate_integer_division(node: exp.Expr) -> exp.Expr:
    left, right = NUMBER_RULES.to_whole_number(node.this), NUMBER_RULES.to_whole_number(node.expression)
    if Kind.FLOAT64 in (kind_of(left), kind_of(right)):
        raise_unsupported(node, "DIV of a FLOAT64")
    if kind_of(left) in EXACT_NUMERIC_KINDS or kind_of(right) in EXACT_NUMERIC_KINDS:
        quotient = "trunc(CAST(@a, 'Nullable(Decimal(76, 18))') / nullIf(CAST(@b, 'Nullable(Decimal(38, 9))'), 0))"
        return fill_template(
            fail_if_sql(node, "@b = 0", "division by zero", _cast_to_numeric_sql(node, quotient)), left, right
        )
    is_invalid, message = "(@b = 0 AND isNotNull(@a))", "division by zero"
    if returns_null_on_error(node):
        is_invalid = "(@b = 0 OR @b = -1 AND @a < -9223372036854775807)"
    return fill_template(fail_if_sql(node, is_invalid, message, f"intDiv(@a, if({is_invalid}, 1, @b))"), left, right)


def _translate_remainder(node: exp.Expr) -> exp.Expr:
    left, right = NUMBER_RULES.to_number_operands(node)
    # Replace the divisors 0 and -1 by 1: division by zero is checked for separately, and ClickHouse fails for the
    # smallest INT64 modulo -1. Compute the remainder of exact numbers from their quotient, because ClickHouse's `%`
    # truncates fractions to integers.
    remainder = "(@a % if(@b IN (0, -1), 1, @b))"
    if any(kind_of(side) in EXACT_NUMERIC_KINDS for side in (left, right)):
        divisor = "CAST(@b, 'Nullable(Decimal(38, 9))')"
        quotient = f"trunc(CAST(@a, 'Nullable(Decimal(76, 18))') / nullIf({divisor}, 0))"
        remainder = _cast_to_numeric_sql(node, f"@a - {quotient} * {divisor}")
    elif is_event_number(node) and (has_exact_integers(left) or has_exact_integers(right)):
        return _remainder_of_event_numbers(node, left, right)
    return fill_template(fail_if_sql(node, "(@b = 0 AND isNotNull(@a))", "division by zero", remainder), left, right)


def _remainder_of_event_numbers(node: exp.Expr, left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Return the remainder of numbers from events as a float, computed with all digits if both are integers."""
    whole_numbers = [NUMBER_RULES.to_whole_number(copy_tree(side)) for side in (left, right)]
    are_whole = "ifNull(toFloat64(@c) = toFloat64(@a) AND toFloat64(@d) = toFloat64(@b), false)"
    remainder = f"if({are_whole}, toFloat64(@c % if(@d IN (0, -1), 1, @d)), toFloat64(@a) % if(@b IN (0, -1), 1, @b))"
    check = fail_if_sql(node, "(@b = 0 AND isNotNull(@a))", "division by zero", remainder)
    return fill_template(check, left, right, *whole_numbers)


def _translate_multiplication(node: exp.Expr) -> exp.Expr:
    left, right = NUMBER_RULES.to_number_operands(node)
    if kind_of(node) in EXACT_NUMERIC_KINDS:
        product = _rounding_cast_sql(
            node, "CAST({0}, 'Nullable(Decimal(76, 18))') * CAST({1}, 'Nullable(Decimal(38, 9))')"
        )
        return fragment_node(product, left, right)
    return checked_arithmetic(node, "*", left, right)


_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def checked_arithmetic(node: exp.Expr, sign: str, left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Return arithmetic in which an overflow of INT64 is an error.

    Operands that are both small constants cannot overflow. If one operand of a sum or difference is a small constant,
    the other operand is compared with the bound beyond which the result overflows. Otherwise, the result is computed in
    128 bits and compared with both bounds.
    """
    are_small = is_int32_constant(left), is_int32_constant(right)
    if kind_of(node) is not Kind.INT64 or all(are_small):
        return fragment_node(f"({{0}} {sign} {{1}})", left, right)
    if any(are_small) and sign != "*":
        is_overflow = _sum_overflow_condition_sql(sign, constant_int(left), constant_int(right))
        if is_overflow is None:
            return fragment_node(f"({{0}} {sign} {{1}})", left, right)
        return fill_template(fail_if_sql(node, is_overflow, "int64 overflow", f"(@a {sign} @b)"), left, right)
    widened = f"(toInt128(@a) {sign} @b)"
    is_overflow = f"({widened} > {_INT64_MAX} OR {widened} < {_INT64_MIN})"
    return fill_template(fail_if_sql(node, is_overflow, "int64 overflow", f"toInt64(@a {sign} @b)"), left, right)


def _sum_overflow_condition_sql(sign: str, left: int | None, right: int | None) -> str | None:
    """Return the condition under which a sum or difference overflows; None if it cannot overflow.

    One operand is a small constant, which is given as `left` or `right`; the other argument is None. The result does
    not overflow if the other operand is in the range from `low` to `high`. At most one end of
    this range is within INT64, so the condition compares the operand only with this end.
    """
    variable = "@a" if left is None else "@b"
    if sign == "-" and left is not None:
        low, high = left - _INT64_MAX, left - _INT64_MIN
    else:
        added = left if left is not None else (right or 0) * (-1 if sign == "-" else 1)
        low, high = _INT64_MIN - added, _INT64_MAX - added
    if low > _INT64_MIN:
        return f"({variable} < {low})"
    return f"({variable} > {high})" if high < _INT64_MAX else None


def _safe_arithmetic_rule(sign: str) -> LoweringRule:
    def rule(node: exp.Expr) -> exp.Expr:
        left, right = NUMBER_RULES.to_number_operands(node)
        if kind_of(node) is Kind.FLOAT64:
            return fill_template(
                f"if(isFinite(toFloat64(@a) {sign} @b) OR NOT isFinite(toFloat64(@a)) OR NOT isFinite(toFloat64(@b)), (@a {sign} @b), NULL)",
                left,
                right,
            )
        widened = f"(toInt256(@a) {sign} toInt256(@b))"
        if kind_of(node) in EXACT_NUMERIC_KINDS:
            return fragment_node(f"({{0}} {sign} {{1}})", left, right)
        return fill_template(f"accurateCastOrNull({widened}, 'Int64')", left, right)

    return rule


def _translate_safe_negation(node: exp.Expr) -> exp.Expr:
    value = NUMBER_RULES.to_number(node.this)
    if kind_of(value) is Kind.INT64:
        return fragment_node("accurateCastOrNull(-toInt128({0}), 'Int64')", value)
    return fragment_node("(-{0})", value)


def _bitwise_rule(name: str) -> LoweringRule:
    return lambda node: fragment_node(f"{name}({{0}}, {{1}})", node.this, node.expression)


def _shift_rule(name: str) -> LoweringRule:
    def rule(node: exp.Expr) -> exp.Expr:
        shifted = f"if(@b > 63, toInt64(0), reinterpretAsInt64({name}(reinterpretAsUInt64(toInt64(@a)), toUInt8(bitAnd(@b, 63)))))"
        return fill_template(
            fail_if_sql(node, "@b < 0", "Bitwise shift by negative offset.", shifted), node.this, node.expression
        )

    return rule


def _translate_negation(node: exp.Expr) -> exp.Expr:
    value = NUMBER_RULES.to_number(node.this)
    if kind_of(value) is Kind.INTERVAL:
        return fragment_node("tupleNegate({0})", value)
    return fragment_node("(-{0})", value)


def _translate_round(node: exp.Expr) -> exp.Expr:
    """Translate ROUND, which rounds half away from zero and converts an INT64 to FLOAT64.

    ClickHouse's own round is not used for floats, because it rounds half to even.
    """
    value, digits = node.this, node.args.get("decimals")
    if rounds_to_even(node) and digits is not None:
        return NUMBER_RULES.cast_to_exact_type(node, fragment_node("roundBankers({0}, {1})", value, _as_int16(digits)))
    if kind_of(value) in EXACT_NUMERIC_KINDS:
        return NUMBER_RULES.cast_to_exact_type(
            node,
            fragment_node("round({0})", value)
            if digits is None
            else fragment_node("round({0}, {1})", value, _as_int16(digits)),
        )
    value = NUMBER_RULES.to_float(value)
    if is_null(digits):
        return typed_null(datatype_of(node))
    # A float whose absolute value is at least 2^52 has no fraction, and is not rounded.
    if digits is None:
        return fill_template("if(abs(@a) < 4503599627370496., sign(@a) * floor(abs(@a) + 0.5), @a)", value)
    scale = "exp10(greatest(@b, -308))"
    scaled = f"if(abs(@a * {scale}) < 4503599627370496., sign(@a) * floor(abs(@a) * {scale} + 0.5) / {scale}, @a)"
    return fill_template(f"if(isFinite(@a), {scaled}, @a) + 0 * @b", value, digits)


def _as_int16(digits: exp.Expr) -> exp.Expr:
    return fragment_node("toInt16({0})", digits)


def _translate_truncation(node: exp.Expr) -> exp.Expr:
    value, digits = node.this, node.args.get("decimals")
    value = value if kind_of(value) in EXACT_NUMERIC_KINDS else NUMBER_RULES.to_float(value)
    if digits is None:
        return NUMBER_RULES.cast_to_exact_type(node, fragment_node("trunc({0})", value))
    if kind_of(value) in EXACT_NUMERIC_KINDS:
        return NUMBER_RULES.cast_to_exact_type(node, fragment_node("trunc({0}, {1})", value, _as_int16(digits)))
    # Leave a number whose absolute value is at least 2^52 unchanged. It has no fraction, and scaling it beyond its
    # precision would change it.
    return fill_template("if(abs(@a) < 4503599627370496. OR @b < 0, trunc(@a, toInt16(@b)), @a)", value, digits)


def _translate_absolute_value(node: exp.Expr) -> exp.Expr:
    value = NUMBER_RULES.to_number(node.this)
    if kind_of(value) is Kind.INT64:
        return fill_template(
            fail_if_sql(node, "@a = -9223372036854775808", "int64 overflow", "toInt64(abs(@a))"), value
        )
    return fragment_node("abs({0})", value)


def _translate_bit_count(node: exp.Expr) -> exp.Expr:
    if kind_of(node.this) in (Kind.BYTES, Kind.STRING):
        return fragment_node("toInt64(bitCount({0}))", node.this)
    return fragment_node("toInt64(bitCount(toInt64({0})))", node.this)


def _parse_numeric_rule(digits: int) -> LoweringRule:
    """Return the rule of PARSE_NUMERIC, which ignores spaces and commas, and accepts a sign at the end of the text."""

    def rule(node: exp.Expr) -> exp.Expr:
        parser = "toDecimal128OrNull" if digits == 9 else "toDecimal256OrNull"
        without_separators = "replaceRegexpAll(@a, '[\\\\s,]', '')"
        sign_first = f"replaceRegexpOne({without_separators}, '^(.*[0-9.])([+-])$', '\\\\2\\\\1')"
        parsed = f"{parser}(replaceRegexpOne({sign_first}, '^[+]', ''), {digits})"
        is_invalid = f"(isNotNull(@a) AND (NOT match(@a, {{0}}) OR isNull({parsed})))"
        return fill_template(
            fail_if_sql(node, is_invalid, "Invalid NUMERIC value", parsed),
            node.this if isinstance(node.this, exp.Expr) else node.expressions[0],
            texts=[string_literal_node(f"^({PARSE_NUMERIC_PATTERN})$")],
        )

    return rule


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
        exp.BitwiseXor: _bitwise_rule("bitXor"),
        exp.BitwiseAnd: _bitwise_rule("bitAnd"),
        exp.BitwiseOr: _bitwise_rule("bitOr"),
        exp.BitwiseNot: lambda node: fragment_node("bitNot(toInt64({0}))", node.this),
        exp.BitwiseLeftShift: _shift_rule("bitShiftLeft"),
        exp.BitwiseRightShift: _shift_rule("bitShiftRight"),
        exp.Neg: _translate_negation,
        exp.ParseNumeric: _parse_numeric_rule(9),
        exp.ParseBignumeric: _parse_numeric_rule(38),
        exp.Cbrt: lambda node: fragment_node("cbrt({0})", NUMBER_RULES.to_float(node.this)),
        exp.Round: _translate_round,
        exp.Trunc: _translate_truncation,
        exp.Abs: _translate_absolute_value,
        exp.BitwiseCount: _translate_bit_count,
        exp.Rand: lambda _: fragment_node("randCanonical()"),
    }
)
