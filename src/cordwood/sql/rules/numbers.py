"""Rules of numeric functions, which must fail outside their domain, where engines would return NaN or infinity.

FLOAT64 arithmetic that overflows must also fail, as in BigQuery. Engines would return infinity.
"""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.model.datatype import EXACT_NUMERIC_KINDS, Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import INT64, inherit_metadata, is_event_number, kind_of, set_datatype
from cordwood.sql.lowering import LoweringRule, RuleSet, fragment_node, raise_unsupported
from cordwood.sql.nodes import (
    Operation,
    constant_int,
    constant_python_value,
    constant_text,
    has_operation,
    internal_function_name,
    operation_node,
)
from cordwood.sql.rules.event_numbers import EventNumberRules
from cordwood.sql.rules.vocabulary import CommonSql

_ROUNDING_MODES = ("ROUND_HALF_AWAY_FROM_ZERO", "ROUND_HALF_EVEN")


def rounds_to_even(node: exp.Expr) -> bool:
    """Return whether ROUND rounds halves to even; refuse a rounding mode unless the value is NUMERIC or BIGNUMERIC."""
    mode_argument = node.args.get("truncate")
    if mode_argument is None:
        return False
    mode = (constant_text(mode_argument) or "").upper()
    if mode not in _ROUNDING_MODES:
        raise_unsupported(node, f"ROUND other than by {' or '.join(_ROUNDING_MODES)}")
    if kind_of(node.this) not in EXACT_NUMERIC_KINDS:
        raise_unsupported(node, "ROUND by a mode of what is no NUMERIC")
    return mode == "ROUND_HALF_EVEN"


_NUMBER_WITH_COMMAS_PATTERN: Final = r"(,*\d[\d,]*(\.\d*)?|\.\d+)([eE][+-]?\d+)?"

# A number as PARSE_NUMERIC accepts it: whitespace may surround the number and its sign, the sign may follow the digits,
# and the digits before the point may contain commas.
PARSE_NUMERIC_PATTERN: Final = rf"\s*([+-]?\s*{_NUMBER_WITH_COMMAS_PATTERN}|{_NUMBER_WITH_COMMAS_PATTERN}\s*[+-])\s*"


def has_ascending_constant_numbers(array: exp.Expr) -> bool:
    """Return whether the array lists constant numbers in ascending order; equal neighbours are allowed."""
    values = [constant_python_value(item) for item in array.expressions] if isinstance(array, exp.Array) else [None]
    numbers = [value for value in values if isinstance(value, (int, float))]
    return len(numbers) == len(values) and all(low <= high for low, high in pairwise(numbers))


_ARITHMETIC_CLASSES: Final = (exp.Add, exp.Sub, exp.Mul, exp.Div)
_CLASSES_SEARCHED_FOR_INPUTS: Final = (*_ARITHMETIC_CLASSES, exp.Neg, exp.Paren)
# An input of arithmetic that contains one of these nodes must not be evaluated twice, because this would be expensive,
# or could give different results.
_NON_REPEATABLE_CLASSES: Final = (exp.Query, exp.Window, exp.Rand, exp.SafeFunc)
_MAX_OVERFLOW_CHECK_INPUTS: Final = 8

# Upper bounds of the magnitude of values of three types, as powers of ten: INT64, the exact numerics (NUMERIC and
# BIGNUMERIC), and FLOAT64.
_INT64_MAGNITUDE_LOG10: Final = 19.0
_EXACT_NUMERIC_MAGNITUDE_LOG10: Final = 40.0
_FLOAT64_MAGNITUDE_LOG10: Final = 308.3


class OverflowCheck(Operation, frozen=True):
    """An operation that computes FLOAT64 arithmetic, and fails if it overflows.

    It overflows if its result is infinite although all its inputs are finite. The first operand of the operation is the
    whole arithmetic expression; the other operands are copies of the inputs of this expression.
    """


def _wrap_in_overflow_check(node: exp.Expr) -> exp.Expr:
    """Wrap FLOAT64 arithmetic that could overflow in an `OverflowCheck`, unless it is part of larger arithmetic.

    Return any other node unchanged.
    """
    if not _is_outermost_arithmetic(node) or not may_overflow_float64(node):
        return node
    inputs = list(_find_non_constant_inputs(node))
    if (
        len(inputs) > _MAX_OVERFLOW_CHECK_INPUTS
        or any(operand.find(*_NON_REPEATABLE_CLASSES) for operand in inputs)
        or not _can_repeat_inputs(node, inputs)
    ):
        return node
    # The check repeats the inputs of the arithmetic. An input and its copy become identical SQL, which the engine
    # evaluates only once.
    return inherit_metadata(
        operation_node(OverflowCheck(), copy_tree(node), *(copy_tree(operand) for operand in inputs)), node
    )


def may_overflow_float64(node: exp.Expr) -> bool:
    return kind_of(node) is Kind.FLOAT64 and _max_magnitude_log10(node) > _FLOAT64_MAGNITUDE_LOG10


def _can_repeat_inputs(node: exp.Expr, inputs: list[exp.Expr]) -> bool:
    """Return whether the overflow check may repeat the inputs of the arithmetic in the SQL.

    Inputs must not be repeated in GROUP BY. In a grouped query, outside of aggregates, inputs may be repeated only if
    each of them contains an aggregate.
    """
    ancestor = node.parent
    while ancestor is not None and not isinstance(ancestor, (exp.AggFunc, exp.Select)):
        if isinstance(ancestor, exp.Group):
            return False
        ancestor = ancestor.parent
    is_grouped = isinstance(ancestor, exp.Select) and ancestor.args.get("group") is not None
    return not is_grouped or all(operand.find(exp.AggFunc) for operand in inputs)


def _is_outermost_arithmetic(node: exp.Expr) -> bool:
    """Return whether the arithmetic is not part of larger arithmetic, whose own check would be enough for both."""
    if has_operation(node.parent, OverflowCheck):
        return False
    parent = node.parent
    while isinstance(parent, (exp.Neg, exp.Paren)):
        parent = parent.parent
    return not (isinstance(parent, _ARITHMETIC_CLASSES) and kind_of(parent) is Kind.FLOAT64)


def _find_non_constant_inputs(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the inputs of the arithmetic that are not constant.

    If one of these inputs is infinite, the result may be infinite without an overflow.
    """
    for part in node.iter_expressions():
        if isinstance(part, _CLASSES_SEARCHED_FOR_INPUTS):
            yield from _find_non_constant_inputs(part)
        elif constant_python_value(part) is None:
            yield part


def _max_magnitude_log10(node: exp.Expr) -> float:
    """Return an exponent x such that the absolute value of the expression is at most 10**x.

    If computing the value may overflow, x exceeds the largest exponent of FLOAT64.
    """
    value = constant_python_value(node)
    if isinstance(value, (int, float)):
        return math.log10(abs(value)) if value else -_FLOAT64_MAGNITUDE_LOG10
    if isinstance(node, (exp.Neg, exp.Paren)):
        return _max_magnitude_log10(node.this)
    if isinstance(node, exp.Mul):
        return _max_magnitude_log10(node.this) + _max_magnitude_log10(node.expression)
    if isinstance(node, (exp.Div, exp.SafeDivide)):
        return _max_magnitude_log10(node.this) - _min_divisor_magnitude_log10(node.expression)
    if isinstance(node, (exp.Add, exp.Sub)):
        return max(_max_magnitude_log10(node.this), _max_magnitude_log10(node.expression)) + math.log10(2)
    return _max_input_magnitude_log10(node)


def _max_input_magnitude_log10(node: exp.Expr) -> float:
    """Return an upper bound of the magnitude of a value that is not arithmetic, as a power of ten.

    An average or a cast has the bound of its argument.
    """
    if isinstance(node, exp.Avg):
        return _max_input_magnitude_log10(node.this)
    if isinstance(node, (exp.Cast, exp.TryCast)) and kind_of(node) is Kind.FLOAT64:
        return _max_input_magnitude_log10(node.this)
    kind = kind_of(node)
    return (
        _INT64_MAGNITUDE_LOG10
        if kind is Kind.INT64
        else _EXACT_NUMERIC_MAGNITUDE_LOG10
        if kind in EXACT_NUMERIC_KINDS
        else _FLOAT64_MAGNITUDE_LOG10
    )


def _min_divisor_magnitude_log10(node: exp.Expr) -> float:
    """Return a lower bound of a divisor's magnitude, as a power of ten.

    The divisor is assumed not to be zero, because division by zero is refused elsewhere.
    """
    value = constant_python_value(node)
    if isinstance(value, (int, float)) and value:
        return math.log10(abs(value))
    return 0.0 if kind_of(node) is Kind.INT64 else -_FLOAT64_MAGNITUDE_LOG10


# Three tables of functions of a FLOAT64 (`@a`), in SQL that all engines understand. A function of the first table fails
# if its result is infinite or NaN although its argument is finite. A function of the second table fails if the
# condition in its entry is true. A function of the third table never fails.
_OVERFLOWING_FUNCTION_TEMPLATES: Final = {
    exp.Exp: "exp(@a)",
    exp.Cosh: "cosh(@a)",
    exp.Sinh: "sinh(@a)",
    exp.Csc: "1 / sin(@a)",
    exp.Csch: "1 / sinh(@a)",
    exp.Cot: "1 / tan(@a)",
    exp.Coth: "1 / tanh(@a)",
}
_DOMAIN_CHECKED_FUNCTIONS: Final = {
    exp.Sqrt: ("sqrt", "@a < 0"),
    exp.Ln: ("ln", "@a <= 0"),
    exp.Acos: ("acos", "{finite} AND abs(@a) > 1"),
    exp.Asin: ("asin", "{finite} AND abs(@a) > 1"),
    exp.Acosh: ("acosh", "{finite} AND @a < 1"),
    exp.Atanh: ("atanh", "{finite} AND abs(@a) >= 1"),
}
_UNCHECKED_FUNCTION_TEMPLATES: Final = {
    exp.Sec: "1 / cos(@a)",
    exp.Sech: "1 / cosh(@a)",
    **{getattr(exp, name): f"{name.lower()}(@a)" for name in ("Sin", "Cos", "Tan", "Tanh", "Atan", "Asinh")},
}

# Functions of FLOAT64 by IEEE 754, which never fail, in SQL that all engines understand. IEEE_DIVIDE is BigQuery's; the
# others are internal functions.
_IEEE_FUNCTION_TEMPLATES: Final = {
    "IEEE_DIVIDE": "({0} / {1})",
    internal_function_name("ieee_add").upper(): "({0} + {1})",
    internal_function_name("ieee_subtract").upper(): "({0} - {1})",
    internal_function_name("ieee_multiply").upper(): "({0} * {1})",
    internal_function_name("ieee_power").upper(): "power({0}, {1})",
    internal_function_name("ieee_exp").upper(): "exp({0})",
}


class NumberRules(msgspec.Struct, frozen=True):
    """The rules of numeric functions that all engines share; `common_sql` has the engine's own SQL."""

    common_sql: CommonSql

    def to_number(self, node: exp.Expr) -> exp.Expr:
        """Return an event's value as a number; return other values unchanged."""
        return self.to_float(node) if kind_of(node) is Kind.VARIANT else node

    def to_float(self, node: exp.Expr) -> exp.Expr:
        return self.common_sql.convert_implicitly(node, Kind.FLOAT64)

    def to_number_operands(self, node: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
        left, right = node.this, node.expression
        return self._to_number_operand(left, right), self._to_number_operand(right, left)

    def _to_number_operand(self, node: exp.Expr, other: exp.Expr) -> exp.Expr:
        return node if kind_of(other) is Kind.INTERVAL else self.to_number(node)

    def to_whole_number(self, node: exp.Expr) -> exp.Expr:
        """Return a number from an event without its fraction, as INT64; return other values unchanged."""
        if not is_event_number(node):
            return node
        return set_datatype(EventNumberRules(self.common_sql).without_fraction(self.to_float(node)), INT64)

    def cast_to_exact_type(self, node: exp.Expr, result: exp.Expr) -> exp.Expr:
        """Cast the result to the node's type if this is NUMERIC or BIGNUMERIC; return other results unchanged."""
        kind = kind_of(node)
        return self.common_sql.cast(result, kind) if kind in EXACT_NUMERIC_KINDS and kind else result

    def _unchecked_rule(self, template: str) -> LoweringRule:
        return lambda node: self.common_sql.fill_template(template, self.to_float(node.this))

    def _finite_checked_rule(self, template: str, name: str) -> LoweringRule:
        is_finite = self.common_sql.is_finite
        is_invalid, message = f"{is_finite('@a')} AND NOT {is_finite(template)}", _floating_point_message(name)

        def rule(node: exp.Expr) -> exp.Expr:
            checked = self.common_sql.fail_if_sql(node, is_invalid, message, template)
            return self.cast_to_exact_type(node, self.common_sql.fill_template(checked, self.to_float(node.this)))

        return rule

    def _domain_checked_rule(self, name: str, is_outside: str) -> LoweringRule:
        is_invalid = is_outside.format(finite=self.common_sql.is_finite("@a"))

        def rule(node: exp.Expr) -> exp.Expr:
            checked = self.common_sql.fail_if_sql(node, is_invalid, _out_of_domain_message(name.upper()), f"{name}(@a)")
            return self.cast_to_exact_type(node, self.common_sql.fill_template(checked, self.to_float(node.this)))

        return rule

    def _translate_power(self, node: exp.Expr) -> exp.Expr:
        words, power = self.common_sql, "power(@a, @b)"
        is_invalid = f"{words.is_finite('@a')} AND {words.is_finite('@b')} AND NOT {words.is_finite(power)}"
        checked = words.fail_if_sql(node, is_invalid, _floating_point_message("POW"), power)
        return self.cast_to_exact_type(
            node, words.fill_template(checked, self.to_float(node.this), self.to_float(node.expression))
        )

    def _translate_logarithm(self, node: exp.Expr) -> exp.Expr:
        """Translate LOG(value, base). If there is a base, the parser puts it before the value."""
        words, other = self.common_sql, node.args.get("expression")
        base, value = (node.this, other) if other is not None else (None, node.this)
        are_finite = f"{words.is_finite('@a')} AND {words.is_finite('@b')}"
        if base is None:
            is_invalid, result = "@a <= 0", "ln(@a)"
        elif constant_int(base) == 10:
            is_invalid, result = f"{words.is_finite('@a')} AND @a <= 0", "log10(@a)"
        else:
            is_invalid = f"{are_finite} AND (@a <= 0 OR @b <= 0 OR @b = 1)"
            result = words.case_when(words.is_infinite("@b"), words.nan, "ln(@a) / ln(@b)")
        parts = [value, base] if base is not None and "@b" in result else [value]
        checked = words.fail_if_sql(node, is_invalid, _out_of_domain_message("LOG"), result)
        return self.cast_to_exact_type(node, words.fill_template(checked, *map(self.to_float, parts)))

    def _ceiling_or_floor_rule(self, name: str) -> LoweringRule:
        def rule(node: exp.Expr) -> exp.Expr:
            value = node.this if kind_of(node.this) in EXACT_NUMERIC_KINDS else self.to_float(node.this)
            return self.cast_to_exact_type(node, fragment_node(f"{name}({{0}})", value))

        return rule

    def _translate_sign(self, node: exp.Expr) -> exp.Expr:
        words = self.common_sql
        if kind_of(node.this) is Kind.INT64:
            return fragment_node(words.as_integer("sign({0})"), node.this)
        value = words.as_float("@a")
        signed = words.case_when(words.is_nan(value), value, words.as_float("sign(@a)"))
        return self.cast_to_exact_type(node, words.fill_template(signed, self.to_number(node.this)))

    def _translate_is_nan(self, node: exp.Expr) -> exp.Expr:
        return fragment_node(self.common_sql.is_nan("{0}"), self.to_float(node.this))

    def _translate_is_infinite(self, node: exp.Expr) -> exp.Expr:
        value = node.this if isinstance(node.this, exp.Expr) else node.expressions[0]
        return fragment_node(self.common_sql.is_infinite("{0}"), self.to_float(value))

    def _greatest_or_least_rule(self, name: str) -> LoweringRule:
        """Return the rule of GREATEST or LEAST: NULL if any argument is NULL, else NaN if any argument is NaN.

        The rule tests for NULL because engines would ignore arguments that are NULL.
        """
        words = self.common_sql

        def rule(node: exp.Expr) -> exp.Expr:
            kind = kind_of(node)
            if kind is Kind.VARIANT:
                return self._greatest_or_least_event_value(name, [node.this, *node.expressions])
            parts = [words.convert_implicitly(part, kind) if kind else part for part in (node.this, *node.expressions)]
            letters = [f"@{chr(97 + index)}" for index in range(len(parts))]
            chosen = f"{name}({', '.join(letters)})"
            if kind is Kind.FLOAT64:
                chosen = words.case_when(" OR ".join(map(words.is_nan, letters)), words.nan, chosen)
            return words.fill_template(
                words.case_when(" OR ".join(map(words.is_null, letters)), "NULL", chosen), *parts
            )

        return rule

    def _greatest_or_least_event_value(self, name: str, values: list[exp.Expr]) -> exp.Expr:
        """Return the greatest or least of events' values: by number if all of them are numbers, otherwise by text."""
        words = self.common_sql
        texts = [f"@{chr(97 + index)}" for index in range(len(values))]
        numbers, integers = map(words.event_text_as_float, texts), map(words.text_as_exact_integer, texts)
        parts = list(numbers)
        number, integer, text = (f"{name}({', '.join(group)})" for group in (parts, integers, texts))
        number = words.case_when(" OR ".join(map(words.is_nan, parts)), words.nan, number)
        as_text = words.case_when(" OR ".join(map(words.is_null, texts)), "NULL", words.text_as_event_value(text))
        template = words.case_when(
            " AND ".join(map(words.is_not_null, parts)), words.number_as_event_value(number, integer), as_text
        )
        return words.fill_template(template, *(words.convert_implicitly(value, Kind.STRING) for value in values))

    def _translate_overflow_check(self, node: exp.Expr) -> exp.Expr:
        """Lower arithmetic to SQL that fails if the result is infinite although all operands are finite."""
        words, (result, *inputs) = self.common_sql, node.expressions
        numbers = [self.to_float(part) for part in inputs if kind_of(part) in (Kind.FLOAT64, Kind.VARIANT)]
        finite = [words.is_finite(f"{{{index}}}") for index in range(1, len(numbers) + 1)]
        is_invalid = " AND ".join([words.is_infinite("{0}"), *finite])
        return fragment_node(words.fail_if_sql(node, is_invalid, "Floating point overflow", "{0}"), result, *numbers)

    def _ieee_rule(self, template: str) -> LoweringRule:
        """Return the rule of a function of floats that never fails; `{0}` and `{1}` in `template` are its arguments."""
        sql = template.format(self.common_sql.as_float("{0}"), self.common_sql.as_float("{1}"))
        return lambda node: fragment_node(sql, *map(self.to_float, node.expressions))

    def rules(self) -> RuleSet:
        return RuleSet(
            by_node_class={
                **{node: self._unchecked_rule(template) for node, template in _UNCHECKED_FUNCTION_TEMPLATES.items()},
                **{
                    node: self._finite_checked_rule(template, node.__name__.upper())
                    for node, template in _OVERFLOWING_FUNCTION_TEMPLATES.items()
                },
                **{node: self._domain_checked_rule(*row) for node, row in _DOMAIN_CHECKED_FUNCTIONS.items()},
                exp.Pow: self._translate_power,
                exp.Log: self._translate_logarithm,
                exp.Ceil: self._ceiling_or_floor_rule("ceil"),
                exp.Floor: self._ceiling_or_floor_rule("floor"),
                exp.Sign: self._translate_sign,
                exp.IsNan: self._translate_is_nan,
                exp.IsInf: self._translate_is_infinite,
                exp.Greatest: self._greatest_or_least_rule("greatest"),
                exp.Least: self._greatest_or_least_rule("least"),
            },
            by_function_name={name: self._ieee_rule(template) for name, template in _IEEE_FUNCTION_TEMPLATES.items()},
            by_operation_class={OverflowCheck: self._translate_overflow_check},
            by_node_class_before_children=dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div), _wrap_in_overflow_check),
        )


def _floating_point_message(name: str) -> str:
    return f"Floating point error in function: {name}"


def _out_of_domain_message(name: str) -> str:
    return f"Argument of {name} is out of its domain"
