"""Rules for sort keys that are events' values, in ORDER BY of queries, windows and aggregates.

DuckDB sorts VARIANTs by their types first, so that every integer would come before every fraction. Therefore such a key
is replaced by two keys: the number as a DOUBLE, and a key that decides between values for which the first is equal.
"""

from collections import Counter
from enum import StrEnum
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import convert_implicitly, fill_template
from cordwood.engines.duckdb.rules.relations import set_operation_branches
from cordwood.model.datatype import Kind
from cordwood.model.event import ValueKind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import datatype_of, kind_of, set_datatype
from cordwood.sql.lowering import RuleSet, fragment_node
from cordwood.sql.nodes import (
    OPERATION_ARGUMENT_KEY,
    PATH_KINDS_METADATA_KEY,
    Operation,
    constant_int,
    may_be_number,
    operation_node,
)
from cordwood.sql.rules.event_numbers import MAX_EXACT_FLOAT_INTEGER


class SortKeyPart(StrEnum):
    """The two sort keys that replace a sort key: the number, which may be rounded, and what decides between equals."""

    ROUNDED_NUMBER = "rounded number"
    EXACT_VALUE = "exact value"


class EventSortKey(Operation, frozen=True):
    """A sort key made of an event's value. If `has_only_numbers` is set, the value is known to be a number."""

    part: SortKeyPart
    has_only_numbers: bool


def _replace_event_sort_keys(order: exp.Expr) -> exp.Expr:
    """Replace each sort key that is an event's value by two keys."""
    order.set("expressions", [part for key in order.expressions for part in _replacement_sort_keys(order, key)])
    return order


def _replacement_sort_keys(order: exp.Expr, key: exp.Expr) -> list[exp.Expr]:
    value = _sorted_value(order.parent, key.this)
    if value is None or kind_of(value) is not Kind.VARIANT:
        return [key]
    if not may_be_number(value) or _sorts_distinct_texts(order):
        return [key]
    # The sort keys of a DISTINCT aggregate may read nothing but the aggregated value, and not its text from the scan.
    has_only_numbers = _is_always_number(value) and not isinstance(order.this, exp.Distinct)
    keys = []
    for part in SortKeyPart:
        keys.append(copy_tree(key))
        operation = EventSortKey(part, has_only_numbers)
        keys[-1].set("this", operation_node(operation, copy_tree(value)))
    return keys


def _sorts_distinct_texts(order: exp.Expr) -> bool:
    """Return whether the keys sort the texts of a STRING_AGG(DISTINCT …), which sorts by these texts."""
    return isinstance(order.this, exp.Distinct) and isinstance(
        order.find_ancestor(exp.GroupConcat, exp.Select), exp.GroupConcat
    )


def _is_always_number(value: exp.Expr) -> bool:
    return bool(value.meta_get(PATH_KINDS_METADATA_KEY) == frozenset({ValueKind.NUMBER}))


def _sorted_value(owner: exp.Expr | None, key: exp.Expr) -> exp.Expr | None:
    """Return the expression by which a sort key sorts; the key may be the number of a column of `owner`.

    Return None if the expression cannot be written a second time.
    """
    position = constant_int(key)
    value: exp.Expr | None
    if position is None:
        value = key
    elif isinstance(owner, exp.Select) and 0 < position <= len(owner.expressions):
        value = owner.expressions[position - 1].unalias()
    elif isinstance(owner, exp.SetOperation):
        value = _column_of_set_operation(owner, position)
    else:
        value = None
    return None if value is None or value.find(exp.Query) else value


def _column_of_set_operation(operation: exp.Expr, position: int) -> exp.Expr | None:
    """Return the column at `position` of a set operation, by its name; None if the name is not unique."""
    items = set_operation_branches(operation)[0].expressions
    names = Counter(item.alias_or_name.lower() for item in items)
    if not 0 < position <= len(items):
        return None
    item = items[position - 1]
    if names[item.alias_or_name.lower()] > 1:
        return None
    types = operation.meta_get("columns") or ()
    datatype = types[position - 1] if position <= len(types) else datatype_of(item)
    return set_datatype(exp.Column(this=exp.to_identifier(item.alias_or_name, quoted=True)), datatype)


def _translate_event_sort_key(node: exp.Expr) -> exp.Expr:
    operation: EventSortKey = node.args[OPERATION_ARGUMENT_KEY]
    return _event_sort_key_node(operation, node.expressions[0])


_NUMERIC_TYPE_CONDITION_SQL: Final = "left(variant_typeof(@a), 3) IN ('INT', 'UIN', 'DOU', 'DEC', 'FLO', 'HUG', 'UHU')"


def _event_sort_key_node(operation: EventSortKey, value: exp.Expr) -> exp.Expr:
    """Return SQL for one of the two sort keys made of an event's value.

    Numbers are sorted by their value as DOUBLE, and then exactly; NULL comes before them, and other values after them.
    """
    if operation.part is SortKeyPart.ROUNDED_NUMBER:
        return convert_implicitly(value, Kind.FLOAT64) if operation.has_only_numbers else _number_or_nan(value)
    if not operation.has_only_numbers:
        return value
    # Both keys are made of the value as text, which a scan then reads only once.
    return fragment_node(
        f"CASE WHEN abs({{0}}) > {MAX_EXACT_FLOAT_INTEGER} THEN try_cast({{1}} AS HUGEINT) END",
        convert_implicitly(value, Kind.FLOAT64),
        convert_implicitly(copy_tree(value), Kind.STRING),
    )


def _number_or_nan(value: exp.Expr) -> exp.Expr:
    return fill_template(
        f"CASE WHEN {_NUMERIC_TYPE_CONDITION_SQL} THEN @a::DOUBLE WHEN @a IS NOT NULL THEN 'nan'::DOUBLE END", value
    )


def number_of_event_value(value: exp.Expr) -> exp.Expr:
    """Return SQL for an event's value as a DOUBLE by which it is sorted; NaN, which sorts last, if it is no number."""
    return _event_sort_key_node(EventSortKey(SortKeyPart.ROUNDED_NUMBER, _is_always_number(value)), value)


RULES = RuleSet(
    by_node_class_before_children={exp.Order: _replace_event_sort_keys},
    by_operation_class={EventSortKey: _translate_event_sort_key},
)
