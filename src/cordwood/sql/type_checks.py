"""BigQuery's compile-time type checks: of operands, arguments, ungrouped columns, and literals.

An event value, JSON or an expression of unknown type is accepted anywhere. A text literal or a parameter is also
accepted where a time is expected, if it can be converted.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from sqlglot import exp

from cordwood.errors import BadQuerySyntax, BadQueryValue, QueryFault, Span
from cordwood.model.datatype import NUMBER_KINDS, Datatype, Kind
from cordwood.sql.budget import charge_nodes
from cordwood.sql.datatypes import (
    ARGUMENT_RULES_BY_NODE_CLASS,
    DATE_AND_TIME_KINDS,
    KINDS_WITH_DATE,
    datatype_of,
    is_event_number,
)
from cordwood.sql.diagnostics import span_of, start_offset
from cordwood.sql.grouping import find_invalid_ordinal, find_ungrouped_column
from cordwood.sql.nodes import COMPARISON_OPERATORS, constant_text
from cordwood.sql.rules.strings import find_re2_pattern_error
from cordwood.sql.rules.times import normalize_time_text
from cordwood.sql.type_inference import SET_OPERATION_TYPES_METADATA_KEY

_KINDS_WITH_CHECKED_OPERANDS: Final = frozenset(
    {*NUMBER_KINDS, *DATE_AND_TIME_KINDS, Kind.STRING, Kind.BYTES, Kind.BOOL, Kind.ARRAY, Kind.STRUCT}
)
_OPERATOR_SYMBOLS: Final[Mapping[type[exp.Expr], str]] = {
    **COMPARISON_OPERATORS,
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
}


class _TypeMistakeError(Exception):
    """Error for a node that does not accept the types of its operands; `hint` says what to write instead."""

    def __init__(
        self, node: exp.Expr, message: str, hint: str | None = None, fault: type[QueryFault] = BadQuerySyntax
    ) -> None:
        super().__init__(message)
        self.node = node
        self.fault_class = fault
        self.message = message
        self.hint = hint


def check_types(tree: exp.Expr, text: str) -> None:
    """Raise an error for the first wrong type, ungrouped column or invalid literal in a tree.

    The error is BadQuerySyntax or BadQueryValue, with the position. All nodes must be annotated with types.
    """
    charge_nodes(1)
    for node in tree.walk():
        check = _CHECK_BY_NODE_CLASS.get(type(node))
        if check is None:
            continue
        try:
            check(node)
        except _TypeMistakeError as mistake:
            raise mistake.fault_class(
                mistake.message, hint=mistake.hint, span=_span_of_mistake(mistake.node, text)
            ) from mistake


def _span_of_mistake(node: exp.Expr, text: str) -> Span | None:
    """Return the node's position in `text`; None for a node of a saved sub-query, which is not in this text."""
    cte = node.find_ancestor(exp.CTE)
    is_saved = start_offset(node) is None and cte is not None and start_offset(cte) is None
    return None if is_saved else span_of(node, text) or Span(1, 1)


def _check_ordinals_and_grouping(node: exp.Expr) -> None:
    invalid = find_invalid_ordinal(node)
    if invalid is not None:
        message = f"The ordinal {invalid.this} is beyond the columns of the SELECT: there are {len(node.expressions)}."
        raise _TypeMistakeError(invalid, message, "Write a number of a column, or its name.")
    ungrouped = find_ungrouped_column(node)
    if ungrouped is not None:
        column, name = ungrouped
        message = f"SELECT list expression references column {name} which is neither grouped nor aggregated."
        raise _TypeMistakeError(column, message, f"Add {name} to GROUP BY, or aggregate it, as in ANY_VALUE({name}).")


def _check_regex_pattern(node: exp.Expr) -> None:
    pattern = constant_text(node.args.get("expression"))
    problem = (
        find_re2_pattern_error(pattern) if pattern is not None and not isinstance(node.parent, exp.SafeFunc) else None
    )
    if problem is not None:
        message = f"Cannot parse regular expression: {problem[0]}."
        raise _TypeMistakeError(node.args["expression"], message, problem[1], BadQueryValue)


def _check_regex_call(node: exp.Expr) -> None:
    _check_arguments(node)
    _check_regex_pattern(node)


def _check_set_operation_columns(node: exp.Expr) -> None:
    """Check that both sides of a set operation have compatible column types. A text and a time are compatible.

    The text may be a literal, which BigQuery converts to a time.
    """
    left, right = node.meta_get(SET_OPERATION_TYPES_METADATA_KEY) or ((), ())
    for position, (left_type, right_type) in enumerate(zip(left, right, strict=False), 1):
        kinds = _comparable_kind(left_type), _comparable_kind(right_type)
        if None in kinds or kinds[0] == kinds[1] or (Kind.STRING in kinds and set(kinds) & DATE_AND_TIME_KINDS):
            continue
        types = f"{_kind_if_checked(left_type)}, {_kind_if_checked(right_type)}"
        message = f"Column {position} of the set operation has incompatible types: {types}."
        raise _TypeMistakeError(node.expression, message, "Cast one side, as in CAST(x AS STRING).")


def _kind_if_checked(datatype: Datatype | None) -> Kind | None:
    return datatype.kind if datatype is not None and datatype.kind in _KINDS_WITH_CHECKED_OPERANDS else None


def _comparable_kind(datatype: Datatype | None) -> Kind | None:
    """Return a type that represents all types with which this one can be compared; None if the type is unknown.

    Numbers can be compared with each other, and so can TIMESTAMP, DATETIME and DATE.
    """
    kind = _kind_if_checked(datatype)
    if kind in NUMBER_KINDS:
        return Kind.FLOAT64
    return Kind.TIMESTAMP if kind in KINDS_WITH_DATE else kind


def _kind_of_node_if_checked(node: exp.Expr | None) -> Kind | None:
    """Return the type of a node; None for nodes whose type is not checked: ERROR(…), and the list after ANY or ALL."""
    is_error = isinstance(node, exp.Anonymous) and str(node.this).upper() == "ERROR"
    return None if is_error or isinstance(node, (exp.Any, exp.All)) else _kind_if_checked(datatype_of(node))


def _is_row_independent(node: exp.Expr) -> bool:
    """Return whether the expression is computed from constants and parameters only.

    BigQuery converts the texts of such expressions to times.
    """
    return node.find(exp.Column, exp.Anonymous, exp.Query) is None


def _are_compatible(first: exp.Expr, second: exp.Expr) -> bool:
    left, right = _comparable_kind(datatype_of(first)), _comparable_kind(datatype_of(second))
    if left is None or right is None or left == right:
        return True
    sides = (first, second) if left is Kind.STRING else (second, first)
    if _comparable_kind(datatype_of(sides[0])) is not Kind.STRING or not _is_row_independent(sides[0]):
        return False
    kind = _kind_of_node_if_checked(sides[1])
    if kind in DATE_AND_TIME_KINDS:
        _check_literal(sides[0], kind)
    return kind in DATE_AND_TIME_KINDS or kind is Kind.BYTES


def _check_literal(value: exp.Expr, kind: Kind) -> None:
    text = constant_text(value)
    if text is not None and not _is_valid_literal_text(text, kind):
        message = f'Could not cast literal "{text[:_MAX_QUOTED_LITERAL_CHARACTERS]}" to type {kind}.'
        raise _TypeMistakeError(value, message, _LITERAL_HINTS.get(kind), BadQueryValue)


def _is_valid_literal_text(text: str, kind: Kind) -> bool:
    """Return whether a text literal is a valid value of the type; True for types that are not checked."""
    if kind in DATE_AND_TIME_KINDS:
        return normalize_time_text(text.strip(), kind) is not None
    return bool(_INTEGER_PATTERN.fullmatch(text)) if kind is Kind.INT64 else True


def _type_names(nodes: Iterable[exp.Expr]) -> str:
    return ", ".join(str(_kind_of_node_if_checked(node)) for node in nodes)


def _mismatch_error(node: exp.Expr, operator: str, first: exp.Expr, second: exp.Expr) -> _TypeMistakeError:
    message = f"No matching signature for operator {operator} for argument types: {_type_names((first, second))}."
    return _TypeMistakeError(node, message, _cast_hint(first, second))


def _cast_hint(first: exp.Expr, second: exp.Expr) -> str:
    kinds = {_comparable_kind(datatype_of(first)), _comparable_kind(datatype_of(second))}
    number = next((node for node in (first, second) if isinstance(node, exp.Literal) and not node.is_string), None)
    if kinds == {Kind.STRING, Kind.FLOAT64} and number is not None:
        return f"Write '{number.this}' for the text, or CAST the other side AS INT64."
    if Kind.TIMESTAMP in kinds and number is not None:
        return f"Write TIMESTAMP_SECONDS({number.this}), or a time such as TIMESTAMP '2024-01-31 09:00:00'."
    if Kind.STRING in kinds and Kind.TIMESTAMP in kinds:
        return "Write TIMESTAMP(…) around the text."
    return "Cast one side, as in CAST(… AS STRING)."


def _check_comparison(node: exp.Expr) -> None:
    if not _are_compatible(node.this, node.expression):
        raise _mismatch_error(node, _OPERATOR_SYMBOLS[type(node)], node.this, node.expression)


def _check_in_operator(node: exp.Expr) -> None:
    for item in node.expressions:
        if not isinstance(item, exp.Query) and not _are_compatible(node.this, item):
            raise _mismatch_error(node, "IN", node.this, item)
    _check_in_sub_query_or_unnest(node)


def _check_in_sub_query_or_unnest(node: exp.Expr) -> None:
    """Check the types of IN with a sub-query or UNNEST."""
    unnest = node.args.get("unnest")
    array = unnest.expressions[0] if isinstance(unnest, exp.Unnest) else None
    if array is not None and _kind_of_node_if_checked(array) not in (None, Kind.ARRAY):
        return
    datatype = datatype_of(array) if array is not None else None
    element = datatype_of(node.args["query"]) if node.args.get("query") else datatype and datatype.element
    kinds = _comparable_kind(datatype_of(node.this)), _comparable_kind(element)
    if None in kinds or kinds[0] is kinds[1] or _is_text_converted_by_bigquery(node.this, array, kinds):
        return
    message = f"No matching signature for operator IN for argument types: {_kind_of_node_if_checked(node.this)}, {_kind_if_checked(element)}."
    raise _TypeMistakeError(node, message, "Cast one side, as in CAST(… AS STRING).")


def _is_text_converted_by_bigquery(
    value: exp.Expr, array: exp.Expr | None, kinds: tuple[Kind | None, Kind | None]
) -> bool:
    """Return whether one side of IN is a constant text, and the other side is a time or bytes.

    BigQuery converts such a text to the type of the other side.
    """
    text = value if kinds[0] is Kind.STRING else array
    other_kind = kinds[1] if kinds[0] is Kind.STRING else kinds[0]
    is_text = Kind.STRING in kinds and (other_kind in DATE_AND_TIME_KINDS or other_kind is Kind.BYTES)
    return is_text and text is not None and _is_row_independent(text)


def _check_between(node: exp.Expr) -> None:
    for bound in (node.args["low"], node.args["high"]):
        if not _are_compatible(node.this, bound):
            raise _mismatch_error(node, "BETWEEN", node.this, bound)


def _check_arithmetic(node: exp.Expr) -> None:
    """Check the types of the operands of arithmetic."""
    sides = node.this, node.expression
    kinds = [_kind_of_node_if_checked(side) for side in sides]
    if None in kinds or all(kind in NUMBER_KINDS for kind in kinds):
        return
    has_day_count = Kind.INT64 in kinds or any(map(is_event_number, sides))
    is_date_shift = isinstance(node, (exp.Add, exp.Sub)) and Kind.DATE in kinds and has_day_count
    is_difference = isinstance(node, exp.Sub) and all(kind in DATE_AND_TIME_KINDS for kind in kinds)
    if is_date_shift or is_difference:
        return
    message = (
        f"No matching signature for operator {_OPERATOR_SYMBOLS[type(node)]} for argument types: {_type_names(sides)}."
    )
    raise _TypeMistakeError(node, message, _arithmetic_hint(node, kinds))


def _arithmetic_hint(node: exp.Expr, kinds: list[Kind | None]) -> str:
    if isinstance(node, exp.Add) and Kind.STRING in kinds:
        return "Texts are put together with || or CONCAT(…); a text is read as a number with CAST(… AS INT64)."
    if KINDS_WITH_DATE.intersection(kind for kind in kinds if kind):
        verb = "ADD" if isinstance(node, exp.Add) else "SUB"
        return f"A time is moved with TIMESTAMP_{verb}(…, INTERVAL 1 HOUR)."
    return "Read a text as a number with CAST(… AS INT64)."


def _check_boolean(node: exp.Expr, subject: str) -> None:
    kind = _kind_of_node_if_checked(node)
    if kind not in (None, Kind.BOOL):
        raise _TypeMistakeError(node, f"{subject} takes a BOOL, not {kind}.", "Write a comparison, as in x = 'value'.")


def _boolean_operand_checker(subject: str) -> Callable[[exp.Expr], None]:
    return lambda node: _check_boolean(node.this, subject)


def _check_both_boolean(node: exp.Expr) -> None:
    for side in (node.this, node.expression):
        _check_boolean(side, type(node).__name__.upper())


def _check_case(node: exp.Expr) -> None:
    branches = node.args.get("ifs") or ()
    for branch in branches:
        if node.this is None:
            _check_boolean(branch.this, "WHEN")
        elif not _are_compatible(node.this, branch.this):
            raise _mismatch_error(node, "CASE", node.this, branch.this)
    _check_common_type(node, "CASE", [*(branch.args["true"] for branch in branches), node.args.get("default")])


def _check_if(node: exp.Expr) -> None:
    if isinstance(node.parent, exp.Case):
        return
    _check_boolean(node.this, "IF")
    _check_common_type(node, "IF", [node.args.get("true"), node.args.get("false")])


def _check_common_type(node: exp.Expr, subject: str, values: Iterable[exp.Expr | None]) -> None:
    typed = [value for value in values if value is not None and _kind_of_node_if_checked(value)]
    for value in typed[1:]:
        if not _are_compatible(typed[0], value):
            message = f"No matching signature for {subject} for argument types: {_type_names((typed[0], value))}."
            raise _TypeMistakeError(node, message, _cast_hint(typed[0], value))


def _common_type_checker(name: str) -> Callable[[exp.Expr], None]:
    return lambda node: _check_common_type(node, name, [node.this, *node.expressions])


def _check_nullif(node: exp.Expr) -> None:
    _check_common_type(node, "NULLIF", [node.this, node.expression])


def _check_arguments(node: exp.Expr) -> None:
    """Check the types of a function's arguments against `ARGUMENT_RULES_BY_NODE_CLASS`."""
    if isinstance(node.parent, exp.Contains):
        # Skip LOWER inside CONTAINS_SUBSTR, which accepts any type: the parser has added LOWER.
        return
    for argument in ARGUMENT_RULES_BY_NODE_CLASS[type(node)]:
        value = node.args.get(argument.argument_key)
        kind = _kind_of_node_if_checked(value) if isinstance(value, exp.Expr) else None
        if (
            kind is None
            or kind in argument.accepted_kinds
            or (Kind.INT64 in argument.accepted_kinds and is_event_number(value))
            or (kind is Kind.STRING and _is_convertible_to(value, argument.accepted_kinds))
        ):
            continue
        message = f"No matching signature for {_function_or_operator_label(node)} for argument type {kind}."
        raise _TypeMistakeError(node, message, argument.hint)


def _is_convertible_to(value: exp.Expr | None, kinds: frozenset[Kind]) -> bool:
    """Return whether BigQuery converts the constant text to one of the types.

    Any constant text is converted to a time or to bytes; a parameter is converted to any type.
    """
    if value is None or not _is_row_independent(value):
        return False
    return not kinds.isdisjoint({*DATE_AND_TIME_KINDS, Kind.BYTES}) or value.find(exp.Parameter) is not None


def _function_or_operator_label(node: exp.Expr) -> str:
    """Return the name of the function or operator as BigQuery's error messages write it."""
    operator = _OPERATOR_NAMES.get(type(node))
    if operator is not None:
        return f"operator {operator}"
    name = node.meta_get("bigquery_name") or _FUNCTION_NAMES.get(type(node)) or node.sql_name()  # type: ignore[attr-defined]
    return f"function {str(name).upper()}"


_OPERATOR_NAMES: Final[Mapping[type[exp.Expr], str]] = {
    exp.Neg: "-",
    exp.Like: "LIKE",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}
_FUNCTION_NAMES: Final[Mapping[type[exp.Expr], str]] = {exp.GroupConcat: "STRING_AGG"}


def _check_time_conversion(node: exp.Expr) -> None:
    """Refuse calls such as DATE(5) and TIMESTAMP(TRUE), whose argument cannot be converted to a time."""
    kind = _kind_of_node_if_checked(node.this) if isinstance(node.this, exp.Expr) else None
    if kind in NUMBER_KINDS or kind is Kind.BOOL:
        if node.expressions or node.meta_get("bigquery_name") is None:
            return
        raise _TypeMistakeError(
            node,
            f"No matching signature for {_function_or_operator_label(node)} for argument type {kind}.",
            _NUMBER_TO_TIME_HINT,
        )


def _check_subscript(node: exp.Expr) -> None:
    kind = _kind_of_node_if_checked(node.this)
    if kind not in (None, Kind.ARRAY, Kind.STRUCT):
        message = f"Subscript access using [] is not supported on values of type {kind}."
        raise _TypeMistakeError(node, message, "A part of a text is SUBSTR(text, start, length).")


def _check_unnest(node: exp.Expr) -> None:
    kind = _kind_of_node_if_checked(node.expressions[0])
    if kind not in (None, Kind.ARRAY):
        raise _TypeMistakeError(
            node.expressions[0], f"UNNEST takes an array, not {kind}.", "Write [x] for an array of x."
        )


def _check_join(node: exp.Expr) -> None:
    if isinstance(node.args.get("on"), exp.Expr):
        _check_boolean(node.args["on"], "ON")


def _check_array_elements(node: exp.Expr) -> None:
    if not any(isinstance(item, exp.Query) for item in node.expressions):
        _check_common_type(node, "ARRAY", node.expressions)


def _check_cast(node: exp.Expr) -> None:
    target = datatype_of(node)
    kind, target_kind = _kind_of_node_if_checked(node.this), target.kind if target else None
    if kind is None or target_kind is None or target_kind not in _KINDS_WITH_CHECKED_OPERANDS:
        return
    if kind is Kind.STRING and isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
        _check_literal(node.this, target_kind)
    hint = _HINT_BY_INVALID_CAST.get((_comparable_kind(datatype_of(node.this)), _comparable_kind(target)))
    if hint is not None:
        raise _TypeMistakeError(node, f"Invalid cast from {kind} to {target_kind}.", hint)


_MAX_QUOTED_LITERAL_CHARACTERS: Final = 40
_INTEGER_PATTERN: Final = re.compile(r"\s*[+-]?(?:\d+|0[xX][0-9a-fA-F]+)\s*", re.ASCII)
_LITERAL_HINTS: Final = {
    Kind.TIMESTAMP: "Write a time such as '2024-01-31 09:00:00'.",
    Kind.DATETIME: "Write a time such as '2024-01-31 09:00:00'.",
    Kind.DATE: "Write a date such as '2024-01-31'.",
    Kind.TIME: "Write a time such as '09:00:00'.",
    Kind.INT64: "Write a whole number; SAFE_CAST gives NULL instead.",
}
_TIME_TO_NUMBER_HINT: Final = "Write UNIX_SECONDS(…), UNIX_MILLIS(…) or EXTRACT(… FROM …)."
_NUMBER_TO_TIME_HINT: Final = "Write TIMESTAMP_SECONDS(…) or TIMESTAMP_MILLIS(…)."
_HINT_BY_INVALID_CAST: Final[Mapping[tuple[Kind | None, Kind | None], str]] = {
    (Kind.TIMESTAMP, Kind.FLOAT64): _TIME_TO_NUMBER_HINT,
    (Kind.TIMESTAMP, Kind.BOOL): "Write a comparison, as in x > TIMESTAMP '2024-01-31'.",
    (Kind.FLOAT64, Kind.TIMESTAMP): _NUMBER_TO_TIME_HINT,
    (Kind.BOOL, Kind.TIMESTAMP): "A BOOL is not a time.",
}

_CHECK_BY_NODE_CLASS: Final[Mapping[type[exp.Expr], Callable[[exp.Expr], None]]] = {
    exp.Select: _check_ordinals_and_grouping,
    **dict.fromkeys(
        (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ), _check_comparison
    ),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div), _check_arithmetic),
    **dict.fromkeys((exp.And, exp.Or), _check_both_boolean),
    exp.In: _check_in_operator,
    exp.Between: _check_between,
    exp.Not: _boolean_operand_checker("NOT"),
    exp.Where: _boolean_operand_checker("WHERE"),
    exp.Having: _boolean_operand_checker("HAVING"),
    exp.Case: _check_case,
    exp.If: _check_if,
    exp.Coalesce: _common_type_checker("COALESCE"),
    exp.Greatest: _common_type_checker("GREATEST"),
    exp.Least: _common_type_checker("LEAST"),
    exp.Nullif: _check_nullif,
    **dict.fromkeys((exp.Union, exp.Except, exp.Intersect), _check_set_operation_columns),
    exp.Cast: _check_cast,
    exp.TryCast: _check_cast,
    **dict.fromkeys(ARGUMENT_RULES_BY_NODE_CLASS, _check_arguments),
    **dict.fromkeys((exp.RegexpLike, exp.RegexpExtract, exp.RegexpReplace, exp.RegexpExtractAll), _check_regex_call),
    **dict.fromkeys((exp.Date, exp.Timestamp, exp.TsOrDsToDatetime), _check_time_conversion),
    exp.Bracket: _check_subscript,
    exp.Join: _check_join,
    exp.Unnest: _check_unnest,
    exp.Array: _check_array_elements,
}
