"""Exact integers among the numbers from events, which rules compute with as FLOAT64.

The type of a value in an event is known only at run time, so rules convert it to FLOAT64, which holds integers exactly
up to 2^53. Nodes of this module's operations allow later rules to find the exact integer as well.
"""

from itertools import islice
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import ARGUMENT_RULES_BY_NODE_CLASS, EVENT_NUMBER, is_event_number, kind_of, set_datatype
from cordwood.sql.lowering import fragment_node, fragment_parts, is_fragment, placeholders_text, replace_fragment_parts
from cordwood.sql.nodes import (
    COMPARISON_OPERATORS,
    Operation,
    RepeatableCast,
    constant_int,
    has_operation,
    operation_if_of_class,
    replace_node,
)
from cordwood.sql.rules.vocabulary import CommonSql, UnarySqlBuilder

# The largest integer n such that FLOAT64 represents n and -n, and no other integer is rounded to one of them.
MAX_EXACT_FLOAT_INTEGER: Final = 2**53 - 1


class FloatOfEventValue(Operation, frozen=True):
    """An event's value as FLOAT64; the operand is the value's text."""


class FloatOfInteger(RepeatableCast, frozen=True):
    """An INT64 as FLOAT64."""


class ConditionalNumber(Operation, frozen=True):
    """A conditional expression whose result is a number from an event.

    `branch_indexes` are the indexes of the operands of which one becomes the result.
    """

    branch_indexes: tuple[int, ...]


def conditional_number(template: str, parts: list[exp.Expr], branch_indexes: tuple[int, ...]) -> exp.Expr:
    return fragment_node(template, *parts, operation=ConditionalNumber(branch_indexes))


# SQL for the exact integer repeats the number. Larger numbers are not repeated, because the size of a query in which
# they are nested would grow exponentially.
_MAX_REPEATED_NODES: Final = 200


def has_exact_integers(number: exp.Expr) -> bool:
    """Return whether `EventNumberRules.exact_integer` finds more digits of the number than the FLOAT64 has.

    The number is an event's value, or a choice of numbers among which there is such a value. It is not too large to be
    repeated in the SQL.
    """
    has_too_many_nodes = next(islice(number.walk(), _MAX_REPEATED_NODES, None), None) is not None
    return not has_too_many_nodes and _has_event_value(number)


def _has_event_value(number: exp.Expr) -> bool:
    inner = number.unnest()
    conditional = operation_if_of_class(inner, ConditionalNumber)
    if conditional is not None:
        parts = fragment_parts(inner)
        return any(_has_event_value(parts[index]) for index in conditional.branch_indexes)
    return has_operation(inner, FloatOfEventValue)


def needs_exact_comparison(node: exp.Expr) -> bool:
    """Return whether comparing FLOAT64s is not enough for this operand: it is, or may be, a large integer constant.

    Other operands of type INT64, such as columns, are compared as FLOAT64, so that joins remain fast.
    """
    value = constant_int(node)
    if value is not None:
        return abs(value) > MAX_EXACT_FLOAT_INTEGER
    return kind_of(node) is Kind.INT64 and is_parameter(node)


def is_parameter(node: exp.Expr) -> bool:
    """Return whether the node is a parameter, maybe with a cast to its type."""
    while is_fragment(node) and len(fragment_parts(node)) == 1:
        node = fragment_parts(node)[0]
    return isinstance(node, exp.Parameter)


_COMPARISON_TEMPLATES: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "({number} = {rounded} AND ({is_small} OR {integer} = {constant}))",
    exp.NEQ: "(NOT ({number} = {rounded} AND ({is_small} OR {integer} = {constant})))",
    exp.LT: "({number} < {rounded} OR NOT {is_small} AND {number} = {rounded} AND {integer} < {constant})",
    exp.LTE: "({number} < {rounded} OR {number} = {rounded} AND ({is_small} OR {integer} <= {constant}))",
    exp.GT: "({number} > {rounded} OR NOT {is_small} AND {number} = {rounded} AND {integer} > {constant})",
    exp.GTE: "({number} > {rounded} OR {number} = {rounded} AND ({is_small} OR {integer} >= {constant}))",
}
_MIRRORED_OPERATORS: Final[dict[type[exp.Expr], type[exp.Expr]]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}


class EventNumberRules(msgspec.Struct, frozen=True):
    """The rules that use the exact integers of numbers from events; `common_sql` has the engine's own SQL."""

    common_sql: CommonSql

    def exact_integer(self, node: exp.Expr) -> exp.Expr:
        """Return SQL for the number as INT64 if it is an integer; the SQL is arbitrary for any other number.

        The SQL contains parts of the number, so the caller passes a copy.
        """
        words, inner = self.common_sql, node.unnest()
        conditional = operation_if_of_class(inner, ConditionalNumber)
        if isinstance(inner, exp.Null):
            return inner
        if conditional is not None:
            parts = enumerate(fragment_parts(inner))
            return replace_fragment_parts(
                inner,
                [self.exact_integer(part) if index in conditional.branch_indexes else part for index, part in parts],
            )
        if has_operation(inner, FloatOfInteger):
            return fragment_parts(inner)[0]
        if has_operation(inner, FloatOfEventValue):
            return fragment_node(words.text_as_exact_integer("{0}"), fragment_parts(inner)[0])
        return fragment_node(words.float_as_exact_integer("{0}"), inner)

    def as_event_value(self, number: exp.Expr) -> exp.Expr:
        """Convert a number from an event back to an event's value, with all digits of a large integer."""
        words = self.common_sql
        if not has_exact_integers(number):
            template = words.number_as_event_value("@a", words.float_as_exact_integer("@a"))
            return words.fill_template(template, number)
        integer = self.exact_integer(copy_tree(number))
        return fragment_node(words.number_as_event_value("{0}", "{1}"), number, integer)

    def to_integer(self, number: exp.Expr) -> exp.Expr:
        """Convert a number from an event to INT64; round a fraction, halves away from zero."""
        return self._exact_or_converted(number, self.common_sql.round_to_integer)

    def without_fraction(self, number: exp.Expr) -> exp.Expr:
        """Convert a number from an event to INT64 by removing its fraction."""
        return self._exact_or_converted(number, self.common_sql.truncate_to_integer)

    def _exact_or_converted(self, number: exp.Expr, conversion_sql: UnarySqlBuilder) -> exp.Expr:
        """Return SQL for the exact integer if the number is one, otherwise for the number converted to INT64."""
        words = self.common_sql
        if not has_exact_integers(number):
            return words.fill_template(conversion_sql("@a"), number)
        template = words.case_when(f"{words.as_float('{1}')} = {{0}}", "{1}", conversion_sql("{0}"))
        return fragment_node(template, number, self.exact_integer(copy_tree(number)))

    def compare(self, operator: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> exp.Expr | None:
        """Compare a number from an event with an integer constant exactly.

        Return None if this is no such comparison, or if comparing FLOAT64s is exact.
        """
        if operator not in _COMPARISON_TEMPLATES:
            return None
        if is_event_number(right) and needs_exact_comparison(left):
            left, right, operator = right, left, _MIRRORED_OPERATORS[operator]
        if not is_event_number(left) or not needs_exact_comparison(right):
            return None
        words, number = self.common_sql, self.common_sql.convert_implicitly(left, Kind.FLOAT64)
        if not has_exact_integers(number):
            return None
        is_small = "false" if constant_int(right) is not None else words.is_between("{2}", *_SMALL_INTEGER_BOUNDS)
        template = _COMPARISON_TEMPLATES[operator].format(
            number="{0}", integer="{1}", constant="{2}", rounded=words.as_float("{2}"), is_small=is_small
        )
        return fragment_node(template, number, self.exact_integer(copy_tree(number)), right)

    def is_in(self, value: exp.Expr, items: list[exp.Expr]) -> exp.Expr | None:
        """Translate IN over integer constants of which one is large; return None for any other IN."""
        if not is_event_number(value) or not any(map(needs_exact_comparison, items)):
            return None
        number = self.common_sql.convert_implicitly(value, Kind.FLOAT64)
        if not has_exact_integers(number) or any(kind_of(item) is not Kind.INT64 for item in items):
            return None
        floats = ", ".join(self.common_sql.as_float(f"{{{index}}}") for index in range(2, len(items) + 2))
        integers = placeholders_text(len(items), 2)
        template = f"({{0}} IN ({floats}) AND {{1}} IN ({integers}))"
        return fragment_node(template, number, self.exact_integer(copy_tree(number)), *items)

    def is_between(self, value: exp.Expr, low: exp.Expr, high: exp.Expr) -> exp.Expr | None:
        """Translate BETWEEN of which a bound is a large integer constant; return None for any other BETWEEN."""
        if not is_event_number(value) or not (needs_exact_comparison(low) or needs_exact_comparison(high)):
            return None
        sides = (
            self._compare_with_bound(exp.GTE, value, low),
            self._compare_with_bound(exp.LTE, copy_tree(value), high),
        )
        return fragment_node("({0} AND {1})", *sides)

    def _compare_with_bound(self, operator: type[exp.Expr], value: exp.Expr, bound: exp.Expr) -> exp.Expr:
        compared = self.compare(operator, value, bound)
        if compared is not None:
            return compared
        number = self.common_sql.convert_implicitly(value, Kind.FLOAT64)
        return fragment_node(f"({{0}} {COMPARISON_OPERATORS[operator]} {{1}})", number, bound)

    def translate_result_column(self, alias: exp.Expr) -> None:
        """Make the answer's column have all digits of large integers, if it chooses among numbers from events.

        A column by which the query groups or sorts stays a FLOAT64, because rows would be sorted as values of events.
        """
        value = alias.this.unnest()
        if not has_operation(value, ConditionalNumber) or not has_exact_integers(value) or not _is_only_answered(alias):
            return
        alias.set("this", set_datatype(self.as_event_value(copy_tree(value)), EVENT_NUMBER))


# Arguments that must be INT64, by the class of the call's node and the argument's key in the node. An argument may be a
# list.
_INTEGER_ARGUMENT_KEYS: Final[dict[type[exp.Expr], tuple[str, ...]]] = {
    **{
        node_class: tuple(rule.argument_key for rule in rules if rule.accepted_kinds <= {Kind.INT64, Kind.BYTES})
        for node_class, rules in ARGUMENT_RULES_BY_NODE_CLASS.items()
    },
    exp.BitwiseNot: ("this",),
    exp.StrPosition: ("position", "occurrence"),
    **dict.fromkeys((exp.RegexpInstr, exp.RegexpExtract), ("position", "occurrence")),
    exp.ArraySlice: ("start", "end"),
    exp.Chr: ("expressions",),
    exp.DateFromUnixDate: ("this",),
    **dict.fromkeys(
        (exp.DateFromParts, exp.TimestampFromParts, exp.TimeFromParts), ("year", "month", "day", "hour", "min", "sec")
    ),
}


class IntegerArguments(msgspec.Struct, frozen=True):
    """The conversion of numbers from events to INT64 where a function or an operator takes an INT64."""

    common_sql: CommonSql

    def convert(self, node: exp.Expr) -> None:
        """Convert the arguments of a call whose children are lowered."""
        if isinstance(node, (exp.Add, exp.Sub)):
            self._convert_day_count(node)
        elif isinstance(node, exp.Bracket):
            if kind_of(node.this) in (Kind.ARRAY, Kind.VARIANT):
                self._convert_argument(node, "expressions")
        else:
            for key in _INTEGER_ARGUMENT_KEYS.get(type(node), ()):
                self._convert_argument(node, key)

    def _convert_day_count(self, node: exp.Expr) -> None:
        """Convert the number of days that is added to a DATE."""
        kinds = kind_of(node.this), kind_of(node.expression)
        if Kind.DATE in kinds:
            for key in ("this", "expression"):
                self._convert_argument(node, key)

    def _convert_argument(self, node: exp.Expr, key: str) -> None:
        argument = node.args.get(key)
        for value in argument if isinstance(argument, list) else [argument]:
            if isinstance(value, exp.Expr) and is_event_number(value):
                replace_node(value, self.common_sql.convert_implicitly(copy_tree(value), Kind.INT64))


_SMALL_INTEGER_BOUNDS: Final = (str(-MAX_EXACT_FLOAT_INTEGER), str(MAX_EXACT_FLOAT_INTEGER))


def _is_only_answered(alias: exp.Expr) -> bool:
    """Return whether a column is part of the answer, and no other clause of the query refers to it."""
    select = alias.parent
    if not isinstance(select, exp.Select) or select.parent is not None:
        return False
    if any(select.args.get(key) for key in ("distinct", "group", "kind")):
        return False
    order = select.args.get("order")
    position = (alias.index or 0) + 1
    return order is None or all(constant_int(key.this) != position for key in order.expressions)
