"""Rules for comparisons, CASE and other conditional expressions, ERROR and SAFE.

Both sides of a comparison, and all branches of a condition, are converted to their common type. Fields of structs are
compared by position, not by name. SAFE.f(…) is NULL where f fails, but an error in an argument of f remains an error.
"""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import (
    COMMON_SQL,
    EVENT_NUMBER_RULES,
    convert_implicitly,
    type_name_node,
)
from cordwood.model.datatype import DATE_AND_TIME_KINDS, NUMBER_KINDS, Datatype, Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import (
    common_type,
    datatype_of,
    inherit_metadata,
    is_event_number,
    kind_of,
    set_datatype,
)
from cordwood.sql.lowering import (
    RAISED_ERROR_PREFIX,
    RuleSet,
    fragment_node,
    is_fragment,
    is_volatile,
    placeholders_text,
    quoted_literal_sql,
    returns_null_on_error,
)
from cordwood.sql.rules.conversions import ConditionRules, comparison_kind_with_event_value, mark_argument_null_on_error
from cordwood.sql.rules.event_numbers import conditional_number, needs_exact_comparison

_CONDITION_RULES: Final = ConditionRules(COMMON_SQL)


def _comparison_kind(kinds: list[Kind | None]) -> Kind | None:
    """Return the kind to which values of `kinds` are converted for a comparison, or None if they need no conversion."""
    known_kinds = [kind for kind in kinds if kind is not None]
    if Kind.VARIANT in known_kinds:
        other_kinds = [kind for kind in known_kinds if kind is not Kind.VARIANT]
        return comparison_kind_with_event_value(other_kinds[0]) if other_kinds else Kind.STRING
    if len(set(known_kinds)) < 2:
        return None
    return next((kind for kind in (*DATE_AND_TIME_KINDS, Kind.BYTES) if kind in known_kinds), None)


def _translate_comparison(node: exp.Expr) -> exp.Expr:
    sides = [node.this, node.expression]
    compared = EVENT_NUMBER_RULES.compare(type(node), *sides)
    if compared is not None:
        return compared
    kind = _comparison_kind([kind_of(side) for side in sides])
    if kind is not None:
        return type(node)(this=_convert_operand(sides[0], kind), expression=_convert_operand(sides[1], kind))
    if kind_of(sides[0]) is kind_of(sides[1]) is Kind.STRUCT:
        return _compare_structs(node, sides)
    return node


def _compare_structs(node: exp.Expr, sides: list[exp.Expr]) -> exp.Expr:
    """Compare two structs: `=` and `<>` compare field by field, other operators convert both to a common type first."""
    shared_type = common_type(map(datatype_of, sides))
    if shared_type is not None and isinstance(node, (exp.EQ, exp.NEQ)) and shared_type.fields:
        equal = _fields_equal_sql("{0}", "{1}", shared_type)
        return fragment_node(equal if isinstance(node, exp.EQ) else f"NOT ({equal})", *sides)
    return type(node)(
        this=convert_struct_by_position(sides[0], shared_type),
        expression=convert_struct_by_position(sides[1], shared_type),
    )


def _fields_equal_sql(left: str, right: str, struct_type: Datatype) -> str:
    comparisons = []
    for index, (_, field) in enumerate(struct_type.fields):
        left_field, right_field = (f"struct_extract_at({side}, {index + 1})" for side in (left, right))
        nested = field is not None and field.kind is Kind.STRUCT and field.fields
        comparisons.append(
            _fields_equal_sql(left_field, right_field, field) if nested and field else f"{left_field} = {right_field}"
        )
    return "(" + " AND ".join(comparisons) + ")"


def _convert_operand(side: exp.Expr, kind: Kind) -> exp.Expr:
    return side if kind is Kind.FLOAT64 and kind_of(side) in NUMBER_KINDS else convert_implicitly(side, kind)


def convert_struct_by_position(node: exp.Expr, to: Datatype | None) -> exp.Expr:
    """Convert a struct to another type, matching fields by position; DuckDB's own cast would match them by name."""
    struct_type, target_type = datatype_of(node), type_name_node(to)
    if target_type is None or struct_type == to:
        return node
    return (
        fragment_node(f"CAST(row({_row_arguments_sql(struct_type, '{0}')}) AS {{1}})", node, target_type)
        if struct_type and struct_type.fields
        else node
    )


def _row_arguments_sql(struct_type: Datatype, value: str) -> str:
    parts = enumerate((field for _, field in struct_type.fields), start=1)
    return ", ".join(_remove_field_names_sql(field, f"struct_extract_at({value}, {index})") for index, field in parts)


def _remove_field_names_sql(struct_type: Datatype | None, value: str) -> str:
    """Return SQL that removes the field names of a struct or of an array of structs; other values stay unchanged."""
    if struct_type is not None and struct_type.kind is Kind.STRUCT and struct_type.fields:
        return f"CASE WHEN {value} IS NOT NULL THEN row({_row_arguments_sql(struct_type, value)}) END"
    if (
        struct_type is not None
        and struct_type.kind is Kind.ARRAY
        and struct_type.element
        and struct_type.element.kind is Kind.STRUCT
    ):
        return f"list_transform({value}, lambda _f: {_remove_field_names_sql(struct_type.element, '_f')})"
    return value


def _translate_between(node: exp.Expr) -> exp.Expr:
    parts = [node.this, node.args["low"], node.args["high"]]
    compared = EVENT_NUMBER_RULES.is_between(*parts)
    if compared is not None:
        return compared
    kind = _comparison_kind([kind_of(part) for part in parts])
    if kind is not None:
        this, low, high = (_convert_operand(part, kind) for part in parts)
        return exp.Between(this=this, low=low, high=high)
    return node


def _translate_in(node: exp.Expr) -> exp.Expr:
    if node.args.get("unnest"):
        return _translate_in_unnest(node)
    if node.args.get("query"):
        return _translate_in_query(node)
    compared = EVENT_NUMBER_RULES.is_in(node.this, node.expressions)
    if compared is not None:
        return compared
    kind = _comparison_kind([kind_of(part) for part in (node.this, *node.expressions)])
    if all(_is_struct(part) for part in (node.this, *node.expressions)):
        return _translate_in_structs(node.this, node.expressions)
    if kind is None:
        return _convert_in_structs_by_position(node.this, node.expressions)
    return exp.In(
        this=_convert_operand(node.this, kind), expressions=[_convert_operand(item, kind) for item in node.expressions]
    )


def _translate_in_structs(value: exp.Expr, items: list[exp.Expr]) -> exp.Expr:
    """Translate IN over structs by comparing field by field; DuckDB's own IN would treat two NULL fields as equal."""
    common_types = [common_type([datatype_of(value), datatype_of(item)]) for item in items]
    if not all(common_type and common_type.fields for common_type in common_types):
        return _convert_in_structs_by_position(value, items)
    equal = [
        _fields_equal_sql("{0}", f"{{{index}}}", common_type)
        for index, common_type in enumerate(common_types, 1)
        if common_type
    ]
    return fragment_node(f"({' OR '.join(equal)})", value, *items)


def _convert_in_structs_by_position(value: exp.Expr, items: list[exp.Expr]) -> exp.Expr:
    converted = [convert_struct_by_position(item, datatype_of(value)) if _is_struct(item) else item for item in items]
    return exp.In(this=value, expressions=converted)


def _is_struct(node: exp.Expr) -> bool:
    return kind_of(node) is Kind.STRUCT


def _translate_in_unnest(node: exp.Expr) -> exp.Expr:
    """Translate `IN UNNEST(…)`; the result is NULL if no element is equal, and the value or an element is NULL."""
    unnest = node.args["unnest"]
    array = unnest.expressions[0] if isinstance(unnest, exp.Unnest) else unnest
    return translate_in_array(node.this, array)


def translate_in_array(value: exp.Expr, array: exp.Expr) -> exp.Expr:
    datatype = datatype_of(array)
    element = datatype.element if datatype else None
    if element is not None and element.kind is Kind.VARIANT:
        kind = comparison_kind_with_event_value(kind_of(value) or Kind.STRING)
        element_value = set_datatype(fragment_node("_e"), element)
        array = fragment_node("list_transform({0}, lambda _e: {1})", array, convert_implicitly(element_value, kind))
        value = convert_implicitly(value, kind)
    else:
        if element is not None and element.kind is kind_of(value) is Kind.STRUCT:
            return _translate_struct_in_array(value, array, element)
        value = value if element is None else convert_implicitly(value, _element_comparison_kind(value, element))
    return fragment_node("{0} IN (SELECT unnest({1}))", value, array)


def _element_comparison_kind(value: exp.Expr, element: Datatype) -> Kind:
    """Return the kind to which a value is converted for a comparison with an array's elements."""
    return comparison_kind_with_event_value(element.kind) if is_event_number(value) else element.kind


def _translate_struct_in_array(value: exp.Expr, array: exp.Expr, element: Datatype) -> exp.Expr:
    equal = _fields_equal_sql("{0}", "_u", element)
    result = f"CASE WHEN bool_or({equal}) THEN true WHEN count(*) > count({equal}) THEN NULL ELSE false END"
    return fragment_node(f"(SELECT {result} FROM (SELECT unnest({{1}}) AS _u))", value, array)  # noqa: S608 - a template of ours


def _translate_in_query(node: exp.Expr) -> exp.Expr:
    query = node.args["query"]
    value_kind, query_kind = kind_of(node.this), kind_of(query)
    kind = _comparison_kind([value_kind, query_kind])
    if kind is not None and query_kind is not Kind.VARIANT:
        return exp.In(this=_convert_operand(node.this, kind), query=query)
    if query_kind is Kind.VARIANT:
        return _CONDITION_RULES.translate_in_event_subquery(node, Kind.STRING if kind is None else kind)
    if value_kind is Kind.STRUCT:
        return exp.In(this=convert_struct_by_position(node.this, datatype_of(query)), query=query)
    return node


def _translate_is(node: exp.Expr) -> exp.Expr:
    return _CONDITION_RULES.convert_boolean_operands(node) if isinstance(node.expression, exp.Boolean) else node


def _convert_branch(branch: exp.Expr | None, conditional: exp.Expr) -> exp.Expr | None:
    datatype = datatype_of(conditional)
    if branch is None or datatype is None:
        return branch
    if datatype.kind is Kind.STRUCT:
        return convert_struct_by_position(branch, datatype)
    return convert_implicitly(branch, datatype.kind)


def _translate_case(node: exp.Expr) -> exp.Expr:
    subject = node.this
    for branch in node.args["ifs"]:
        if subject is None:
            branch.set("this", _CONDITION_RULES.to_boolean(branch.this))
        elif kind_of(subject) is Kind.STRUCT:
            branch.set("this", convert_struct_by_position(branch.this, datatype_of(subject)))
        branch.set("true", _convert_branch(branch.args["true"], node))
    kind = (
        _comparison_kind([kind_of(subject), *(kind_of(branch.this) for branch in node.args["ifs"])])
        if subject
        else None
    )
    if is_event_number(subject) and any(needs_exact_comparison(branch.this) for branch in node.args["ifs"]):
        _compare_branches_exactly(node, subject)
        kind = None
    if kind is not None:
        node.set("this", convert_implicitly(subject, kind))
        for branch in node.args["ifs"]:
            branch.set("this", convert_implicitly(branch.this, kind))
    node.set("default", _convert_branch(node.args.get("default"), node))
    return _as_conditional_number(node) if is_event_number(node) else node


def _compare_branches_exactly(node: exp.Expr, subject: exp.Expr) -> None:
    """Replace the operands after WHEN by comparisons with the subject, if a FLOAT64 does not hold one of them."""
    for branch in node.args["ifs"]:
        branch.set("this", _translate_comparison(exp.EQ(this=copy_tree(subject), expression=branch.this)))
    node.set("this", None)


def _as_conditional_number(node: exp.Expr) -> exp.Expr:
    """Return a CASE as a fragment, of which later rules can find the exact integers."""
    subject, default = node.this, node.args.get("default")
    parts = [subject] if subject is not None else []
    text = "CASE {0}" if parts else "CASE"
    branch_indexes = []
    for branch in node.args["ifs"]:
        text += f" WHEN {{{len(parts)}}} THEN {{{len(parts) + 1}}}"
        branch_indexes.append(len(parts) + 1)
        parts += [branch.this, branch.args["true"]]
    if default is not None:
        text += f" ELSE {{{len(parts)}}}"
        branch_indexes.append(len(parts))
        parts.append(default)
    return conditional_number(f"{text} END", parts, tuple(branch_indexes))


def _translate_if(node: exp.Expr) -> exp.Expr:
    if isinstance(node.parent, exp.Case) and node.arg_key == "ifs":
        return node
    otherwise = _convert_branch(node.args.get("false"), node) or exp.Null()
    then = _convert_branch(node.args["true"], node)
    template = "CASE WHEN {0} THEN {1} ELSE {2} END"
    parts = [_CONDITION_RULES.to_boolean(node.this), then or exp.Null(), otherwise]
    return conditional_number(template, parts, (1, 2)) if is_event_number(node) else fragment_node(template, *parts)


def _translate_coalesce(node: exp.Expr) -> exp.Expr:
    parts = [_convert_branch(part, node) or part for part in (node.this, *node.expressions)]
    if is_event_number(node):
        return conditional_number(f"coalesce({placeholders_text(len(parts))})", parts, tuple(range(len(parts))))
    return exp.Coalesce(this=parts[0], expressions=parts[1:])


def _translate_nullif(node: exp.Expr) -> exp.Expr:
    left, right = node.this, node.expression
    kind = _comparison_kind([kind_of(left), kind_of(right)])
    equal = EVENT_NUMBER_RULES.compare(exp.EQ, left, right)
    if equal is not None:
        return fragment_node("CASE WHEN {0} THEN NULL ELSE {1} END", equal, copy_tree(left))
    if kind is not None and kind_of(left) is Kind.VARIANT:
        return fragment_node(
            "CASE WHEN {0} = {1} THEN NULL ELSE {2} END", convert_implicitly(left, kind), right, copy_tree(left)
        )
    return exp.Nullif(this=left, expression=convert_implicitly(right, kind) if kind else right)


def _translate_error(node: exp.Expr) -> exp.Expr:
    if returns_null_on_error(node):
        return fragment_node("NULL")
    return fragment_node(f"error({quoted_literal_sql(RAISED_ERROR_PREFIX)} || {{0}})", node.expressions[0])


def _translate_safe_call(node: exp.Expr) -> exp.Expr:
    inner: exp.Expr = node.this
    return inherit_metadata(fragment_node("try({0})", inner), node) if _can_be_in_try(inner) else inner


def _can_be_in_try(node: exp.Expr) -> bool:
    for part in node.walk():
        if isinstance(part, (exp.Query, exp.AggFunc, exp.Window)):
            return False
        if is_fragment(part) and is_volatile(part):
            return False
    return True


RULES = RuleSet(
    by_node_class={
        **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE), _translate_comparison),
        **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ), _translate_comparison),
        **dict.fromkeys((exp.And, exp.Or, exp.Not), _CONDITION_RULES.convert_boolean_operands),
        exp.Is: _translate_is,
        exp.Between: _translate_between,
        exp.In: _translate_in,
        exp.Case: _translate_case,
        exp.If: _translate_if,
        exp.Coalesce: _translate_coalesce,
        exp.Nullif: _translate_nullif,
        exp.SafeFunc: _translate_safe_call,
    },
    by_function_name={
        "ERROR": _translate_error,
    },
    by_node_class_before_children={
        exp.SafeFunc: mark_argument_null_on_error,
    },
)
