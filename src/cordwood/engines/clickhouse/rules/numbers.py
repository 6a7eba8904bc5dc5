"""Arithmetic and functions of numbers.

`/` returns a fraction for any two numbers and fails for zero; NUMERIC keeps nine digits. Functions fail outside their
domain, where ClickHouse would return NaN or infinity.
"""

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import NAMES, fail_if, null_of, once
from cordwood.engines.clickhouse.rules.coercions import read_as
from cordwood.model.datatype import EXACT, Kind
from cordwood.sql.bigquery.numbers import NUMERAL, OverflowCheck, check_overflow, may_overflow, rounds_to_even
from cordwood.sql.constants import constant, constant_int, is_null, is_small
from cordwood.sql.fragment import fragment, text_part
from cordwood.sql.lowering import Rule, RuleSet, is_safe, mark_safe, unsupported
from cordwood.sql.typing import datatype_of, kind_of


def operands(node: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
    left, right = node.this, node.expression
    return _as_number(left, right), _as_number(right, left)


def _as_number(node: exp.Expr, other: exp.Expr) -> exp.Expr:
    if kind_of(node) is Kind.VARIANT and kind_of(other) is not Kind.INTERVAL:
        return read_as(node, Kind.FLOAT64)
    return node


def _cast_exact(node: exp.Expr, value: str) -> str:
    return f"CAST({value}, 'Nullable({NAMES[kind_of(node) or Kind.NUMERIC]})')"


def _rounded(node: exp.Expr, value: str) -> str:
    """Return a cast that rounds to the digits of the type: ClickHouse's own cast truncates."""
    return _cast_exact(node, value if kind_of(node) is Kind.BIGNUMERIC else f"round({value}, 9)")


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
        return once(fail_if(node, "@b = 0", "division by zero", _cast_exact(node, quotient)), left, right)
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
        remainder = _cast_exact(node, f"@a - {quotient} * {divisor}")
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


def _float(node: exp.Expr) -> exp.Expr:
    return read_as(node, Kind.FLOAT64)


def _number(node: exp.Expr) -> exp.Expr:
    """Return an event's value as a number; other values unchanged."""
    return read_as(node, Kind.FLOAT64) if kind_of(node) is Kind.VARIANT else node


def _exact(node: exp.Expr, result: exp.Expr) -> exp.Expr:
    kind = kind_of(node)
    return fragment(f"CAST({{0}}, 'Nullable({NAMES[kind]})')", result) if kind in EXACT and kind else result


def _checked_finite(template: str, name: str) -> Rule:
    """Return the rule of a function that fails if finite arguments give a result that is not finite."""

    def rule(node: exp.Expr) -> exp.Expr:
        is_invalid = f"(isFinite(@a) AND NOT isFinite({template}))"
        return _exact(
            node,
            once(fail_if(node, is_invalid, f"Floating point error in function: {name}", template), _float(node.this)),
        )

    return rule


def _checked_domain(name: str, is_outside: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        message = f"Argument of {name.upper()} is out of its domain"
        return _exact(node, once(fail_if(node, f"({is_outside})", message, f"{name}(@a)"), _float(node.this)))

    return rule


def _float_function(name: str) -> Rule:
    return lambda node: fragment(f"{name}({{0}})", _float(node.this))


def _power(node: exp.Expr) -> exp.Expr:
    is_invalid = "(isFinite(@a) AND isFinite(@b) AND NOT isFinite(pow(@a, @b)))"
    body = fail_if(node, is_invalid, "Floating point error in function: POW", "pow(@a, @b)")
    return _exact(node, once(body, _float(node.this), _float(node.expression)))


def _logarithm(node: exp.Expr) -> exp.Expr:
    """Lower LOG, whose base sqlglot puts first."""
    other = node.args.get("expression")
    base, value = (node.this, other) if other is not None else (None, node.this)
    message = "Argument of LOG is out of its domain"
    if base is None or constant_int(base) == 10:
        name, is_invalid = ("log", "@a <= 0") if base is None else ("log10", "(isFinite(@a) AND @a <= 0)")
        return _exact(node, once(fail_if(node, is_invalid, message, f"{name}(@a)"), _float(value)))
    is_invalid = "(isFinite(@a) AND isFinite(@b) AND (@a <= 0 OR @b <= 0 OR @b = 1))"
    body = fail_if(node, is_invalid, message, "if(isInfinite(@b), nan, log(@a) / log(@b))")
    return _exact(node, once(body, _float(value), _float(base)))


def _round(node: exp.Expr) -> exp.Expr:
    """Lower ROUND, half away from zero, where ClickHouse rounds floats half to even; an INT64 becomes a FLOAT64."""
    value, digits = node.this, node.args.get("decimals")
    if rounds_to_even(node) and digits is not None:
        return _exact(node, fragment("roundBankers({0}, {1})", value, _as_int16(digits)))
    if kind_of(value) in EXACT:
        return _exact(
            node,
            fragment("round({0})", value) if digits is None else fragment("round({0}, {1})", value, _as_int16(digits)),
        )
    value = _float(value)
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
    value = value if kind_of(value) in EXACT else _float(value)
    if digits is None:
        return _exact(node, fragment("trunc({0})", value))
    if kind_of(value) in EXACT:
        return _exact(node, fragment("trunc({0}, {1})", value, _as_int16(digits)))
    # Scaling a number beyond its own precision would change it.
    return once("if(abs(@a) < 4503599627370496. OR @b < 0, trunc(@a, toInt16(@b)), @a)", value, digits)


def _ceiling_or_floor(name: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        value = node.this if kind_of(node.this) in EXACT else _float(node.this)
        return _exact(node, fragment(f"{name}({{0}})", value))

    return rule


def _absolute(node: exp.Expr) -> exp.Expr:
    value = _number(node.this)
    if kind_of(value) is Kind.INT64:
        return once(fail_if(node, "@a = -9223372036854775808", "int64 overflow", "toInt64(abs(@a))"), value)
    return fragment("abs({0})", value)


def _sign(node: exp.Expr) -> exp.Expr:
    if kind_of(node.this) is Kind.INT64:
        return fragment("toInt64(sign({0}))", node.this)
    return _exact(node, once("if(isNaN(toFloat64(@a)), toFloat64(@a), toFloat64(sign(@a)))", _number(node.this)))


def _is_nan(node: exp.Expr) -> exp.Expr:
    return fragment("isNaN({0})", _float(node.this))


def _is_infinite(node: exp.Expr) -> exp.Expr:
    return fragment("isInfinite({0})", _float(node.this if isinstance(node.this, exp.Expr) else node.expressions[0]))


def _extreme(name: str) -> Rule:
    """Return the rule of GREATEST or LEAST: NULL if any argument is NULL, else NaN if any is NaN.

    ClickHouse's own functions skip NULL.
    """

    def rule(node: exp.Expr) -> exp.Expr:
        kind = kind_of(node)
        parts = [read_as(part, kind) if kind else part for part in (node.this, *node.expressions)]
        letters = [f"@{chr(97 + index)}" for index in range(len(parts))]
        is_missing = " OR ".join(f"isNull({letter})" for letter in letters)
        chosen = f"{name}({', '.join(letters)})"
        if kind is Kind.FLOAT64:
            chosen = f"if({' OR '.join(f'isNaN({letter})' for letter in letters)}, nan, {chosen})"
        return once(f"if({is_missing}, NULL, {chosen})", *parts)

    return rule


def _bit_count(node: exp.Expr) -> exp.Expr:
    if kind_of(node.this) in (Kind.BYTES, Kind.STRING):
        return fragment("toInt64(bitCount({0}))", node.this)
    return fragment("toInt64(bitCount(toInt64({0})))", node.this)


def _random(node: exp.Expr) -> exp.Expr:
    del node
    return fragment("randCanonical()")


def _reciprocal(template: str) -> Rule:
    return lambda node: once(template, _float(node.this))


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
        exp.BitwiseXor: _exclusive_or,
        exp.BitwiseAnd: _bitwise("bitAnd"),
        exp.BitwiseOr: _bitwise("bitOr"),
        exp.BitwiseNot: _complement,
        exp.BitwiseLeftShift: _shift("bitShiftLeft"),
        exp.BitwiseRightShift: _shift("bitShiftRight"),
        exp.Neg: _negation,
        exp.ParseNumeric: _parse_numeric(9),
        exp.ParseBignumeric: _parse_numeric(38),
        exp.Exp: _checked_finite("exp(@a)", "EXP"),
        exp.Cosh: _checked_finite("cosh(@a)", "COSH"),
        exp.Sinh: _checked_finite("sinh(@a)", "SINH"),
        exp.Sqrt: _checked_domain("sqrt", "@a < 0"),
        exp.Ln: _checked_domain("log", "@a <= 0"),
        exp.Acos: _checked_domain("acos", "isFinite(@a) AND abs(@a) > 1"),
        exp.Asin: _checked_domain("asin", "isFinite(@a) AND abs(@a) > 1"),
        exp.Acosh: _checked_domain("acosh", "isFinite(@a) AND @a < 1"),
        exp.Atanh: _checked_domain("atanh", "isFinite(@a) AND abs(@a) >= 1"),
        exp.Sec: _reciprocal("1 / cos(@a)"),
        exp.Csc: _checked_finite("1 / sin(@a)", "CSC"),
        exp.Sech: _reciprocal("1 / cosh(@a)"),
        exp.Csch: _checked_finite("1 / sinh(@a)", "CSCH"),
        exp.Cot: _checked_finite("1 / tan(@a)", "COT"),
        exp.Coth: _checked_finite("1 / tanh(@a)", "COTH"),
        exp.Cbrt: _float_function("cbrt"),
        exp.Sin: _float_function("sin"),
        exp.Cos: _float_function("cos"),
        exp.Tan: _float_function("tan"),
        exp.Tanh: _float_function("tanh"),
        exp.Atan: _float_function("atan"),
        exp.Asinh: _float_function("asinh"),
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
