"""Arithmetic and functions of numbers.

`/` returns a fraction for any two numbers and fails for zero; NUMERIC keeps nine digits. Functions fail outside their
domain, where ClickHouse would return NaN or infinity.
"""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import NAMES, WORDS, fail_if, null_of, once
from cordwood.model.datatype import EXACT_NUMERIC_KINDS, Kind
from cordwood.sql.datatypes import datatype_of, kind_of
from cordwood.sql.lowering import Rule, RuleSet, fragment, is_safe, mark_safe, text_part, unsupported
from cordwood.sql.nodes import constant, is_null, is_small_integer
from cordwood.sql.rules.numbers import NUMERAL, Numbers, may_overflow, rounds_to_even

NUMBER_RULES: Final = Numbers(WORDS)


def _cast_to_numeric(node: exp.Expr, value: str) -> str:
    return f"CAST({value}, 'Nullable({NAMES[kind_of(node) or Kind.NUMERIC]})')"


def _rounded(node: exp.Expr, value: str) -> str:
    """Return a cast that rounds to the digits of the type: ClickHouse's own cast truncates."""
    return _cast_to_numeric(node, value if kind_of(node) is Kind.BIGNUMERIC else f"round({value}, 9)")


def _division(node: exp.Expr) -> exp.Expr:
    left, right = NUMBER_RULES.operands(node)
    return _quotient(node, left, right)


def _quotient(node: exp.Expr, left: exp.Expr, right: exp.Expr) -> exp.Expr:
    if kind_of(node) in EXACT_NUMERIC_KINDS:
        # ClickHouse's quotient has the scale of the dividend, so the dividend is widened.
        quotient = _rounded(
            node, "CAST(@a, 'Nullable(Decimal(76, 18))') / nullIf(CAST(@b, 'Nullable(Decimal(38, 9))'), 0)"
        )
    else:
        quotient = "toFloat64(@a) / toFloat64(@b)"
    if isinstance(constant(right), (int, float)) and constant(right) != 0:
        return once(quotient, left, right)
    return once(fail_if(node, "(@b = 0 AND isNotNull(@a))", "division by zero", quotient), left, right)


def _safe_division(node: exp.Expr) -> exp.Expr:
    left, right = NUMBER_RULES.operands(node)
    if may_overflow(node):
        quotient = "toFloat64(@a) / nullIf(toFloat64(@b), 0)"
        return once(f"if(isInfinite({quotient}) AND NOT isInfinite(toFloat64(@a)), NULL, {quotient})", left, right)
    return _quotient(mark_safe(node), left, right)


def _integer_division(node: exp.Expr) -> exp.Expr:
    if Kind.FLOAT64 in (kind_of(node.this), kind_of(node.expression)):
        unsupported(node, "DIV of a FLOAT64")
    left, right = NUMBER_RULES.operands(node)
    if kind_of(left) in EXACT_NUMERIC_KINDS or kind_of(right) in EXACT_NUMERIC_KINDS:
        quotient = "trunc(CAST(@a, 'Nullable(Decimal(76, 18))') / nullIf(CAST(@b, 'Nullable(Decimal(38, 9))'), 0))"
        return once(fail_if(node, "@b = 0", "division by zero", _cast_to_numeric(node, quotient)), left, right)
    is_invalid, message = "(@b = 0 AND isNotNull(@a))", "division by zero"
    if is_safe(node):
        is_invalid = "(@b = 0 OR @b = -1 AND @a < -9223372036854775807)"
    return once(fail_if(node, is_invalid, message, f"intDiv(@a, if({is_invalid}, 1, @b))"), left, right)


def _remainder(node: exp.Expr) -> exp.Expr:
    left, right = NUMBER_RULES.operands(node)
    # ClickHouse fails for the smallest INT64 modulo -1, and truncates fractions to integers.
    remainder = "(@a % if(@b IN (0, -1), 1, @b))"
    if any(kind_of(side) in EXACT_NUMERIC_KINDS for side in (left, right)):
        divisor = "CAST(@b, 'Nullable(Decimal(38, 9))')"
        quotient = f"trunc(CAST(@a, 'Nullable(Decimal(76, 18))') / nullIf({divisor}, 0))"
        remainder = _cast_to_numeric(node, f"@a - {quotient} * {divisor}")
    return once(fail_if(node, "(@b = 0 AND isNotNull(@a))", "division by zero", remainder), left, right)


def _product(node: exp.Expr) -> exp.Expr:
    left, right = NUMBER_RULES.operands(node)
    if kind_of(node) in EXACT_NUMERIC_KINDS:
        product = _rounded(node, "CAST({0}, 'Nullable(Decimal(76, 18))') * CAST({1}, 'Nullable(Decimal(38, 9))')")
        return fragment(product, left, right)
    return checked_arithmetic(node, "*", left, right)


_INT64_MAX = "9223372036854775807"


def checked_arithmetic(node: exp.Expr, sign: str, left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Return INT64 arithmetic that fails on overflow; small constants need no check."""
    if kind_of(node) is not Kind.INT64 or (any(is_small_integer(side) for side in (left, right)) and sign != "*"):
        return fragment(f"({{0}} {sign} {{1}})", left, right)
    if all(is_small_integer(side) for side in (left, right)):
        return fragment(f"({{0}} {sign} {{1}})", left, right)
    widened = f"(toInt128(@a) {sign} @b)"
    is_overflow = f"({widened} > {_INT64_MAX} OR {widened} < -{_INT64_MAX} - 1)"
    return once(fail_if(node, is_overflow, "int64 overflow", f"toInt64(@a {sign} @b)"), left, right)


def _safe(sign: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        left, right = NUMBER_RULES.operands(node)
        if kind_of(node) is Kind.FLOAT64:
            return once(
                f"if(isFinite(toFloat64(@a) {sign} @b) OR NOT isFinite(toFloat64(@a)) OR NOT isFinite(toFloat64(@b)), (@a {sign} @b), NULL)",
                left,
                right,
            )
        widened = f"(toInt256(@a) {sign} toInt256(@b))"
        if kind_of(node) in EXACT_NUMERIC_KINDS:
            return fragment(f"({{0}} {sign} {{1}})", left, right)
        return once(f"accurateCastOrNull({widened}, 'Int64')", left, right)

    return rule


def _safe_negation(node: exp.Expr) -> exp.Expr:
    value = NUMBER_RULES.number(node.this)
    if kind_of(value) is Kind.INT64:
        return fragment("accurateCastOrNull(-toInt128({0}), 'Int64')", value)
    return fragment("(-{0})", value)


def _bitwise(name: str) -> Rule:
    return lambda node: fragment(f"{name}({{0}}, {{1}})", node.this, node.expression)


def _shift(name: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        shifted = f"if(@b > 63, toInt64(0), reinterpretAsInt64({name}(reinterpretAsUInt64(toInt64(@a)), toUInt8(bitAnd(@b, 63)))))"
        return once(fail_if(node, "@b < 0", "Bitwise shift by negative offset.", shifted), node.this, node.expression)

    return rule


def _negation(node: exp.Expr) -> exp.Expr:
    value = NUMBER_RULES.number(node.this)
    if kind_of(value) is Kind.INTERVAL:
        return fragment("tupleNegate({0})", value)
    return fragment("(-{0})", value)


def _round(node: exp.Expr) -> exp.Expr:
    """Lower ROUND, half away from zero, where ClickHouse rounds floats half to even; an INT64 becomes a FLOAT64."""
    value, digits = node.this, node.args.get("decimals")
    if rounds_to_even(node) and digits is not None:
        return NUMBER_RULES.exact(node, fragment("roundBankers({0}, {1})", value, _as_int16(digits)))
    if kind_of(value) in EXACT_NUMERIC_KINDS:
        return NUMBER_RULES.exact(
            node,
            fragment("round({0})", value) if digits is None else fragment("round({0}, {1})", value, _as_int16(digits)),
        )
    value = NUMBER_RULES.float(value)
    if is_null(digits):
        return null_of(datatype_of(node))
    # Above 2^52 a float has no fraction, so there is nothing to round.
    if digits is None:
        return once("if(abs(@a) < 4503599627370496., sign(@a) * floor(abs(@a) + 0.5), @a)", value)
    scale = "exp10(greatest(@b, -308))"
    scaled = f"if(abs(@a * {scale}) < 4503599627370496., sign(@a) * floor(abs(@a) * {scale} + 0.5) / {scale}, @a)"
    return once(f"if(isFinite(@a), {scaled}, @a) + 0 * @b", value, digits)


def _as_int16(digits: exp.Expr) -> exp.Expr:
    return fragment("toInt16({0})", digits)


def _truncate(node: exp.Expr) -> exp.Expr:
    value, digits = node.this, node.args.get("decimals")
    value = value if kind_of(value) in EXACT_NUMERIC_KINDS else NUMBER_RULES.float(value)
    if digits is None:
        return NUMBER_RULES.exact(node, fragment("trunc({0})", value))
    if kind_of(value) in EXACT_NUMERIC_KINDS:
        return NUMBER_RULES.exact(node, fragment("trunc({0}, {1})", value, _as_int16(digits)))
    # Scaling a number beyond its own precision would change it.
    return once("if(abs(@a) < 4503599627370496. OR @b < 0, trunc(@a, toInt16(@b)), @a)", value, digits)


def _absolute(node: exp.Expr) -> exp.Expr:
    value = NUMBER_RULES.number(node.this)
    if kind_of(value) is Kind.INT64:
        return once(fail_if(node, "@a = -9223372036854775808", "int64 overflow", "toInt64(abs(@a))"), value)
    return fragment("abs({0})", value)


def _bit_count(node: exp.Expr) -> exp.Expr:
    if kind_of(node.this) in (Kind.BYTES, Kind.STRING):
        return fragment("toInt64(bitCount({0}))", node.this)
    return fragment("toInt64(bitCount(toInt64({0})))", node.this)


def _parse_numeric(digits: int) -> Rule:
    """Return the rule of PARSE_NUMERIC: spaces and commas are ignored, and the sign may be at the end."""

    def rule(node: exp.Expr) -> exp.Expr:
        parser = "toDecimal128OrNull" if digits == 9 else "toDecimal256OrNull"
        without_separators = "replaceRegexpAll(@a, '[\\\\s,]', '')"
        sign_first = f"replaceRegexpOne({without_separators}, '^(.*[0-9.])([+-])$', '\\\\2\\\\1')"
        parsed = f"{parser}(replaceRegexpOne({sign_first}, '^[+]', ''), {digits})"
        is_invalid = f"(isNotNull(@a) AND (NOT match(@a, {{0}}) OR isNull({parsed})))"
        return once(
            fail_if(node, is_invalid, "Invalid NUMERIC value", parsed),
            node.this if isinstance(node.this, exp.Expr) else node.expressions[0],
            texts=[text_part(f"^({NUMERAL})$")],
        )

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
        exp.BitwiseXor: _bitwise("bitXor"),
        exp.BitwiseAnd: _bitwise("bitAnd"),
        exp.BitwiseOr: _bitwise("bitOr"),
        exp.BitwiseNot: lambda node: fragment("bitNot(toInt64({0}))", node.this),
        exp.BitwiseLeftShift: _shift("bitShiftLeft"),
        exp.BitwiseRightShift: _shift("bitShiftRight"),
        exp.Neg: _negation,
        exp.ParseNumeric: _parse_numeric(9),
        exp.ParseBignumeric: _parse_numeric(38),
        exp.Cbrt: lambda node: fragment("cbrt({0})", NUMBER_RULES.float(node.this)),
        exp.Round: _round,
        exp.Trunc: _truncate,
        exp.Abs: _absolute,
        exp.BitwiseCount: _bit_count,
        exp.Rand: lambda _: fragment("randCanonical()"),
    }
)
