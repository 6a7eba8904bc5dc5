"""Arithmetic: `/` returns a fraction for any two numbers and fails for zero; NUMERIC keeps nine digits."""

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import NAMES, fail_if, once
from cordwood.engines.clickhouse.rules.coercions import read_as
from cordwood.model.datatype import EXACT, Kind
from cordwood.sql.constants import constant, is_small
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Rule, RuleSet, is_safe, mark_safe, unsupported
from cordwood.sql.overflow import OverflowCheck, check_overflow, may_overflow
from cordwood.sql.typing import kind_of


def operands(node: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
    left, right = node.this, node.expression
    return _as_number(left, right), _as_number(right, left)


def _as_number(node: exp.Expr, other: exp.Expr) -> exp.Expr:
    if kind_of(node) is Kind.VARIANT and kind_of(other) is not Kind.INTERVAL:
        return read_as(node, Kind.FLOAT64)
    return node


def _exact(node: exp.Expr, value: str) -> str:
    return f"CAST({value}, 'Nullable({NAMES[kind_of(node) or Kind.NUMERIC]})')"


def _rounded(node: exp.Expr, value: str) -> str:
    """Return a cast that rounds to the digits of the type: ClickHouse's own cast truncates."""
    return _exact(node, value if kind_of(node) is Kind.BIGNUMERIC else f"round({value}, 9)")


def _division(node: exp.Expr) -> exp.Expr:
    left, right = operands(node)
    return _quotient(node, left, right)


def _quotient(node: exp.Expr, left: exp.Expr, right: exp.Expr) -> exp.Expr:
    if kind_of(node) in EXACT:
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
    left, right = operands(node)
    if may_overflow(node):
        quotient = "toFloat64(@a) / nullIf(toFloat64(@b), 0)"
        return once(f"if(isInfinite({quotient}) AND NOT isInfinite(toFloat64(@a)), NULL, {quotient})", left, right)
    return _quotient(mark_safe(node), left, right)


def _ieee_division(node: exp.Expr) -> exp.Expr:
    left, right = (read_as(part, Kind.FLOAT64) for part in node.expressions)
    return fragment("(toFloat64({0}) / toFloat64({1}))", left, right)


def _integer_division(node: exp.Expr) -> exp.Expr:
    if Kind.FLOAT64 in (kind_of(node.this), kind_of(node.expression)):
        unsupported(node, "DIV of a FLOAT64")
    left, right = operands(node)
    if kind_of(left) in EXACT or kind_of(right) in EXACT:
        quotient = "trunc(CAST(@a, 'Nullable(Decimal(76, 18))') / nullIf(CAST(@b, 'Nullable(Decimal(38, 9))'), 0))"
        return once(fail_if(node, "@b = 0", "division by zero", _exact(node, quotient)), left, right)
    is_invalid, message = "(@b = 0 AND isNotNull(@a))", "division by zero"
    if is_safe(node):
        is_invalid = "(@b = 0 OR @b = -1 AND @a < -9223372036854775807)"
    return once(fail_if(node, is_invalid, message, f"intDiv(@a, if({is_invalid}, 1, @b))"), left, right)


def _remainder(node: exp.Expr) -> exp.Expr:
    left, right = operands(node)
    # ClickHouse fails for the smallest INT64 modulo -1, and truncates fractions to integers.
    remainder = "(@a % if(@b IN (0, -1), 1, @b))"
    if any(kind_of(side) in EXACT for side in (left, right)):
        divisor = "CAST(@b, 'Nullable(Decimal(38, 9))')"
        quotient = f"trunc(CAST(@a, 'Nullable(Decimal(76, 18))') / nullIf({divisor}, 0))"
        remainder = _exact(node, f"@a - {quotient} * {divisor}")
    return once(fail_if(node, "(@b = 0 AND isNotNull(@a))", "division by zero", remainder), left, right)


def _product(node: exp.Expr) -> exp.Expr:
    left, right = operands(node)
    if kind_of(node) in EXACT:
        product = _rounded(node, "CAST({0}, 'Nullable(Decimal(76, 18))') * CAST({1}, 'Nullable(Decimal(38, 9))')")
        return fragment(product, left, right)
    return checked_arithmetic(node, "*", left, right)


_INT64_MAX = "9223372036854775807"


def checked_arithmetic(node: exp.Expr, sign: str, left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Return INT64 arithmetic that fails on overflow; small constants need no check."""
    if kind_of(node) is not Kind.INT64 or (any(is_small(side) for side in (left, right)) and sign != "*"):
        return fragment(f"({{0}} {sign} {{1}})", left, right)
    if all(is_small(side) for side in (left, right)):
        return fragment(f"({{0}} {sign} {{1}})", left, right)
    widened = f"(toInt128(@a) {sign} @b)"
    is_overflow = f"({widened} > {_INT64_MAX} OR {widened} < -{_INT64_MAX} - 1)"
    return once(fail_if(node, is_overflow, "int64 overflow", f"toInt64(@a {sign} @b)"), left, right)


def _safe(sign: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        left, right = operands(node)
        if kind_of(node) is Kind.FLOAT64:
            return once(
                f"if(isFinite(toFloat64(@a) {sign} @b) OR NOT isFinite(toFloat64(@a)) OR NOT isFinite(toFloat64(@b)), (@a {sign} @b), NULL)",
                left,
                right,
            )
        widened = f"(toInt256(@a) {sign} toInt256(@b))"
        if kind_of(node) in EXACT:
            return fragment(f"({{0}} {sign} {{1}})", left, right)
        return once(f"accurateCastOrNull({widened}, 'Int64')", left, right)

    return rule


def _safe_negation(node: exp.Expr) -> exp.Expr:
    value = read_as(node.this, Kind.FLOAT64) if kind_of(node.this) is Kind.VARIANT else node.this
    if kind_of(value) is Kind.INT64:
        return fragment("accurateCastOrNull(-toInt128({0}), 'Int64')", value)
    return fragment("(-{0})", value)


def _exclusive_or(node: exp.Expr) -> exp.Expr:
    return fragment("bitXor({0}, {1})", node.this, node.expression)


def _bitwise(name: str) -> Rule:
    return lambda node: fragment(f"{name}({{0}}, {{1}})", node.this, node.expression)


def _shift(name: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        shifted = f"if(@b > 63, toInt64(0), reinterpretAsInt64({name}(reinterpretAsUInt64(toInt64(@a)), toUInt8(bitAnd(@b, 63)))))"
        return once(fail_if(node, "@b < 0", "Bitwise shift by negative offset.", shifted), node.this, node.expression)

    return rule


def _negation(node: exp.Expr) -> exp.Expr:
    value = read_as(node.this, Kind.FLOAT64) if kind_of(node.this) is Kind.VARIANT else node.this
    if kind_of(value) is Kind.INTERVAL:
        return fragment("tupleNegate({0})", value)
    return fragment("(-{0})", value)


def _complement(node: exp.Expr) -> exp.Expr:
    return fragment("bitNot(toInt64({0}))", node.this)


def _overflow_check(node: exp.Expr) -> exp.Expr:
    """Fail if the result is infinite although all operands are finite."""
    result, *operands = node.expressions
    numbers = [
        read_as(operand, Kind.FLOAT64) for operand in operands if kind_of(operand) in (Kind.FLOAT64, Kind.VARIANT)
    ]
    finite = "".join(f" AND isFinite({{{index}}})" for index in range(1, len(numbers) + 1))
    return fragment(
        fail_if(node, f"ifNull(isInfinite({{0}}){finite}, 0)", "Floating point overflow", "{0}"), result, *numbers
    )


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
        exp.BitwiseAnd: _bitwise("bitAnd"),
        exp.BitwiseOr: _bitwise("bitOr"),
        exp.BitwiseNot: _complement,
        exp.BitwiseLeftShift: _shift("bitShiftLeft"),
        exp.BitwiseRightShift: _shift("bitShiftRight"),
        exp.Neg: _negation,
    },
    by_name={"IEEE_DIVIDE": _ieee_division},
    operations={OverflowCheck: _overflow_check},
    before_children=dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div), check_overflow),
)
