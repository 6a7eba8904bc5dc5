"""Rules for comparisons, CASE and other conditional expressions, ERROR and SAFE.

Both sides of a comparison, and all branches of a conditional expression, are converted to their common type. IN is NULL
if no element of the list is equal and an element is NULL. SAFE.f(…) is NULL if f fails. An error in an argument of f is
still raised.
"""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import (
    COMMON_SQL,
    EVENT_NUMBER_RULES,
    IS_NULL_METADATA_KEY,
    convert_implicitly,
    event_value_as_text,
    fill_template,
    type_name_node,
    typed_null,
)
from cordwood.model.datatype import DATE_AND_TIME_KINDS, EXACT_NUMERIC_KINDS, Datatype, Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import datatype_of, inherit_metadata, is_event_number, kind_of, set_datatype
from cordwood.sql.lowering import (
    RAISED_ERROR_PREFIX,
    RuleSet,
    fragment_node,
    placeholders_text,
    quoted_literal_sql,
    returns_null_on_error,
)
from cordwood.sql.nodes import COMPARISON_OPERATORS, constant_python_value, constant_text, is_null
from cordwood.sql.rules.conversions import ConditionRules, comparison_kind_with_event_value, mark_argument_null_on_error
from cordwood.sql.rules.event_numbers import conditional_number

_CONDITION_RULES: Final = ConditionRules(COMMON_SQL)


def _comparison_kind(kinds: list[Kind | None]) -> Kind | None:
    """Return the kind to which a comparison converts values of these kinds; None if it compares them unchanged."""
    known_kinds = list(dict.fromkeys(filter(None, kinds)))
    if Kind.VARIANT in known_kinds:
        known_kinds.remove(Kind.VARIANT)
        return comparison_kind_with_event_value(known_kinds[0]) if known_kinds else Kind.STRING
    if len(known_kinds) < 2:
        return None
    return next((kind for kind in DATE_AND_TIME_KINDS if kind in known_kinds), None) or _float_kind_if_mixed(
        set(known_kinds)
    )


def _float_kind_if_mixed(kinds: set[Kind]) -> Kind | None:
    return Kind.FLOAT64 if Kind.FLOAT64 in kinds and not kinds.isdisjoint(EXACT_NUMERIC_KINDS) else None


def _translate_comparison(node: exp.Expr) -> exp.Expr:
    if type(node) in (exp.EQ, exp.NEQ) and _compares_structs(node):
        equality = _fields_equal_sql("{0}", "{1}", datatype_of(node.this), datatype_of(node.expression))
        return fragment_node(equality if isinstance(node, exp.EQ) else f"(NOT {equality})", node.this, node.expression)
    compared = EVENT_NUMBER_RULES.compare(type(node), node.this, node.expression)
    if compared is not None:
        return compared
    left, right = _convert_to_common_kind([node.this, node.expression])
    if kind_of(left) is Kind.INTERVAL is kind_of(right):
        left, right = _interval_length_micros(left), _interval_length_micros(right)
    return fragment_node(f"({{0}} {COMPARISON_OPERATORS[type(node)]} {{1}})", left, right)


def _interval_length_micros(interval: exp.Expr) -> exp.Expr:
    """Return an interval's length in microseconds, for comparisons: a month has 30 days, and a day has 24 hours."""
    return fill_template("((@a.1 * 30 + @a.2) * toInt128(86400000000) + @a.3)", interval)


def _compares_structs(node: exp.Expr) -> bool:
    sides = (datatype_of(node.this), datatype_of(node.expression))
    return all(side is not None and side.kind is Kind.STRUCT and side.fields for side in sides)


def _convert_to_common_kind(parts: list[exp.Expr]) -> list[exp.Expr]:
    """Return the operands of a comparison converted to their common type."""
    kind = _comparison_kind([kind_of(part) for part in parts])
    return [_convert_operand(part, kind) for part in parts] if kind else parts


def _fields_equal_sql(left: str, right: str, left_type: Datatype | None, right_type: Datatype | None) -> str:
    """Return SQL that compares structs field by field with three-valued logic.

    ClickHouse's own comparison of tuples treats NULL as a value.
    """
    if left_type is None or right_type is None or not (left_type.fields and right_type.fields):
        return f"({left} = {right})"
    pairs = zip(left_type.fields, right_type.fields, strict=False)
    fields = (
        _fields_equal_sql(f"tupleElement({left}, {index})", f"tupleElement({right}, {index})", a[1], b[1])
        for index, (a, b) in enumerate(pairs, 1)
    )
    return f"({' AND '.join(fields)})"


def _convert_operand(side: exp.Expr, kind: Kind) -> exp.Expr:
    if kind is Kind.FLOAT64 and kind_of(side) in (Kind.INT64, Kind.FLOAT64):
        return side
    return convert_implicitly(side, kind)


def _translate_between(node: exp.Expr) -> exp.Expr:
    parts = [node.this, node.args["low"], node.args["high"]]
    compared = EVENT_NUMBER_RULES.is_between(*parts)
    if compared is not None:
        return compared
    kind = _comparison_kind([kind_of(part) for part in parts])
    return fragment_node(
        "({0} BETWEEN {1} AND {2})", *(_convert_operand(part, kind) if kind else part for part in parts)
    )


def _translate_in(node: exp.Expr) -> exp.Expr:
    unnest = node.args.get("unnest")
    if unnest:
        return _translate_in_array(node.this, unnest.expressions[0] if isinstance(unnest, exp.Unnest) else unnest)
    if node.args.get("query"):
        return _translate_in_query(node)
    compared = EVENT_NUMBER_RULES.is_in(node.this, node.expressions)
    if compared is not None:
        return compared
    return _translate_in_list(*_convert_to_common_kind([node.this, *node.expressions]))


def _translate_in_list(value: exp.Expr, *items: exp.Expr) -> exp.Expr:
    """Translate IN over a list.

    If an element is not a constant, IN becomes a disjunction of equalities, because ClickHouse's own IN accepts only
    constants.
    """
    if all(constant_python_value(item) is not None for item in items) and constant_python_value(value) is None:
        return fragment_node(f"({{0}} IN ({placeholders_text(len(items), 1)}))", value, *items)
    value_type = datatype_of(value)
    equal = (
        _fields_equal_sql("{0}", f"{{{index}}}", value_type, datatype_of(item)) for index, item in enumerate(items, 1)
    )
    return fragment_node(f"({' OR '.join(equal)})", value, *items)


def _translate_in_array(value: exp.Expr, array: exp.Expr) -> exp.Expr:
    """Return a test of whether the array contains the value.

    If no element equals the value, but an element or the value is NULL, the test is NULL. For an empty array, it is
    false.
    """
    datatype = datatype_of(array)
    element = datatype.element if datatype else None
    if element is not None and element.kind is Kind.VARIANT:
        kind = comparison_kind_with_event_value(kind_of(value) or Kind.STRING)
        item = set_datatype(fragment_node("_e"), element)
        array = fragment_node("arrayMap(_e -> {1}, {0})", array, convert_implicitly(item, kind))
        value = convert_implicitly(value, kind)
    elif element is not None and element.kind is Kind.STRUCT and element.fields:
        return _translate_struct_in_array(value, array, _fields_equal_sql("{0}", "_e", datatype_of(value), element))
    elif element is not None:
        is_number = is_event_number(value)
        value = convert_implicitly(value, comparison_kind_with_event_value(element.kind) if is_number else element.kind)
    return fragment_node(
        "multiIf(empty({1}), false, isNull({0}), NULL, has({1}, {0}), true, has({1}, NULL), NULL, false)", value, array
    )


def _translate_struct_in_array(value: exp.Expr, array: exp.Expr, equality: str) -> exp.Expr:
    """Return a test of whether the array contains the struct.

    If no element equals the struct, but one might because a field is NULL, the test is NULL. For an empty array, it is
    false.
    """
    is_element = f"arrayExists(_e -> ifNull({equality}, false), {{1}})"
    may_be_element = f"arrayExists(_e -> isNull({equality}), {{1}})"
    return fragment_node(
        f"multiIf(empty({{1}}), false, isNull({{0}}), NULL, {is_element}, true, {may_be_element}, NULL, false)",
        value,
        array,
    )


def _translate_in_query(node: exp.Expr) -> exp.Expr:
    query = node.args["query"]
    value_kind, query_kind = kind_of(node.this), kind_of(query)
    kind = _comparison_kind([value_kind, query_kind])
    value = _convert_operand(node.this, kind) if kind and query_kind is not Kind.VARIANT else node.this
    if query_kind is Kind.VARIANT:
        return _CONDITION_RULES.translate_in_event_subquery(node, kind or Kind.STRING)
    return _translate_in_collected_query(value, query)


def _translate_in_collected_query(value: exp.Expr, query: exp.Expr) -> exp.Expr:
    """Translate IN over a query by collecting the query's rows to an array.

    The test is then NULL if NULLs make it unknown, whereas ClickHouse's own IN returns only true or false.
    """
    collected = fragment_node(
        "arrayMap(_t -> _t.1, (SELECT groupArray(tuple(_c)) FROM (SELECT * FROM {0}) AS _q(_c)))", query
    )
    return _translate_in_array(value, collected)


def _translate_connector(node: exp.Expr) -> exp.Expr:
    boolean = _CONDITION_RULES.convert_boolean_operands(node)
    sign = "AND" if isinstance(node, exp.And) else "OR"
    return fragment_node(f"({{0}} {sign} {{1}})", boolean.this, boolean.expression)


def _translate_not(node: exp.Expr) -> exp.Expr:
    return fragment_node("(NOT {0})", _CONDITION_RULES.convert_boolean_operands(node).this)


def _translate_is(node: exp.Expr) -> exp.Expr:
    if isinstance(node.expression, exp.Boolean):
        value = convert_implicitly(node.this, Kind.BOOL)
        return fragment_node(
            f"(ifNull({{0}}, {'false' if node.expression.this else 'true'}) = {str(node.expression.this).lower()})",
            value,
        )
    if node.this.unnest().meta_get(IS_NULL_METADATA_KEY):
        return fragment_node("true")
    if kind_of(node.this) is Kind.VARIANT:
        return fragment_node("({0} IS NULL)", event_value_as_text(node.this))
    return fragment_node("({0} IS NULL)", node.this)


_KINDS_CAST_IN_BRANCHES = (Kind.STRUCT, Kind.ARRAY, *EXACT_NUMERIC_KINDS)


def convert_branch(value: exp.Expr | None, conditional: exp.Expr) -> exp.Expr:
    """Return the value of one branch of a conditional expression, converted to the expression's type."""
    datatype = datatype_of(conditional)
    if value is None or isinstance(value, exp.Null):
        return typed_null(datatype)
    return _cast_branch(value, datatype) if datatype is not None else value


def _cast_branch(value: exp.Expr, datatype: Datatype) -> exp.Expr:
    name = type_name_node(datatype)
    if name is not None and datatype.kind in _KINDS_CAST_IN_BRANCHES and datatype_of(value) != datatype:
        return fragment_node("CAST({0}, {1})", value, name)
    return convert_implicitly(value, datatype.kind)


def _translate_case(node: exp.Expr) -> exp.Expr:
    subject, branches = node.this, node.args["ifs"]
    kind = _comparison_kind([kind_of(subject), *(kind_of(branch_.this) for branch_ in branches)]) if subject else None
    parts: list[exp.Expr] = []
    for branch_ in branches:
        parts += [_branch_condition(subject, branch_.this, kind), convert_branch(branch_.args["true"], node)]
    parts.append(convert_branch(node.args.get("default"), node))
    template = f"multiIf({placeholders_text(len(parts))})"
    if is_event_number(node):
        return conditional_number(template, parts, (*range(1, len(parts), 2), len(parts) - 1))
    return fragment_node(template, *parts)


def _branch_condition(subject: exp.Expr | None, condition: exp.Expr, kind: Kind | None) -> exp.Expr:
    if subject is None:
        return _CONDITION_RULES.to_boolean(condition)
    compared = EVENT_NUMBER_RULES.compare(exp.EQ, copy_tree(subject), condition)
    if compared is not None:
        return compared
    left, right = (convert_implicitly(side, kind) if kind else side for side in (copy_tree(subject), condition))
    return fragment_node("{0} = {1}", left, right)


def _translate_if(node: exp.Expr) -> exp.Expr:
    if isinstance(node.parent, exp.Case) and node.arg_key == "ifs":
        return node
    parts = [
        _CONDITION_RULES.to_boolean(node.this),
        convert_branch(node.args["true"], node),
        convert_branch(node.args.get("false"), node),
    ]
    template = "if({0}, {1}, {2})"
    return conditional_number(template, parts, (1, 2)) if is_event_number(node) else fragment_node(template, *parts)


def _translate_coalesce(node: exp.Expr) -> exp.Expr:
    parts = [convert_branch(part, node) for part in (node.this, *node.expressions) if not is_null(part)]
    if not parts:
        return typed_null(datatype_of(node))
    if kind_of(node) is Kind.ARRAY:
        return parts[0]
    template = f"coalesce({placeholders_text(len(parts))})"
    if is_event_number(node):
        return conditional_number(template, parts, tuple(range(len(parts))))
    return fragment_node(template, *parts)


def _coalesce_to_case(node: exp.Expr) -> exp.Expr:
    """Rewrite a COALESCE as CASE if its last argument calls ERROR.

    ClickHouse evaluates all arguments of COALESCE, but only the chosen branch of CASE.
    """
    *parts, last = node.this, *node.expressions
    if not parts or not any(str(call.this).upper() == "ERROR" for call in last.find_all(exp.Anonymous)):
        return node
    ifs = [exp.If(this=exp.Not(this=exp.Is(this=copy_tree(part), expression=exp.Null())), true=part) for part in parts]
    return exp.Case(ifs=ifs, default=last)


def _translate_nullif(node: exp.Expr) -> exp.Expr:
    left, right = node.this, node.expression
    kind = _comparison_kind([kind_of(left), kind_of(right)])
    equal = EVENT_NUMBER_RULES.compare(exp.EQ, left, right)
    if equal is not None:
        return fragment_node("if({0}, NULL, {1})", equal, copy_tree(left))
    if kind is not None and kind_of(left) is Kind.VARIANT:
        return fragment_node("if({0} = {1}, NULL, {2})", convert_implicitly(left, kind), right, copy_tree(left))
    return fragment_node("nullIf({0}, {1})", left, convert_implicitly(right, kind) if kind else right)


def _translate_error(node: exp.Expr) -> exp.Expr:
    """Translate ERROR; replace a computed message by a general one, because ClickHouse requires a constant message."""
    if returns_null_on_error(node):
        return exp.Null()
    message = node.expressions[0]
    text = "{0}" if constant_text(message) is not None else quoted_literal_sql(_NON_CONSTANT_ERROR_MESSAGE)
    return fragment_node(
        f"throwIf(isNotNull({{0}}) OR isNull({{0}}), concat({quoted_literal_sql(RAISED_ERROR_PREFIX)}, {text}))",
        message,
    )


_NON_CONSTANT_ERROR_MESSAGE = "ERROR with a message that is not a constant"


def _remove_safe_call(node: exp.Expr) -> exp.Expr:
    """Replace SAFE.f(…) by f(…), whose rule makes failures NULL.

    This is necessary because ClickHouse has no general TRY.
    """
    inner: exp.Expr = node.this
    return inherit_metadata(inner, node)


RULES = RuleSet(
    by_node_class={
        **dict.fromkeys(COMPARISON_OPERATORS, _translate_comparison),
        **dict.fromkeys((exp.And, exp.Or), _translate_connector),
        exp.Not: _translate_not,
        exp.Is: _translate_is,
        exp.Between: _translate_between,
        exp.In: _translate_in,
        exp.Case: _translate_case,
        exp.If: _translate_if,
        exp.Coalesce: _translate_coalesce,
        exp.Nullif: _translate_nullif,
        exp.SafeFunc: _remove_safe_call,
    },
    by_function_name={
        "ERROR": _translate_error,
    },
    by_node_class_before_children={
        exp.Coalesce: _coalesce_to_case,
        exp.SafeFunc: mark_argument_null_on_error,
    },
)
