"""The names that ClickHouse gives to columns without an alias: the text of the expression, written with functions."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Final

from sqlglot import exp

from cordwood.clickhouse_sql.calls import WRITTEN_NAME_METADATA_KEY, FunctionCall, call_of
from cordwood.sql.budget import charge_nodes
from cordwood.sql.diagnostics import start_offset

# A longer name is cut off.
_MAX_NAME_CHARACTERS: Final = 200


def column_name(node: exp.Expr, text: str) -> str:
    """Return the name of a column: its alias, the name of a column of the table, or the text of the expression.

    `text` is the text of the query.
    """
    if isinstance(node, exp.Alias):
        return str(node.alias)
    for part in node.walk():
        charge_nodes()
        if isinstance(part, exp.Quantile) and start_offset(part.args["quantile"]) is None:
            _restore_function_name(part, text)
    return _expression_name(node)[:_MAX_NAME_CHARACTERS]


_MEDIAN_BEFORE_ARGUMENT_PATTERN: Final = re.compile(r"(median)\s*\([\s(]*\Z", re.IGNORECASE)


def _restore_function_name(node: exp.Expr, text: str) -> None:
    """Store the written name of `quantile(x)` or `median(x)`, both of which sqlglot reads as `quantile(0.5)(x)`."""
    start = start_offset(node) or 0
    written = _MEDIAN_BEFORE_ARGUMENT_PATTERN.search(text[max(start - _MAX_NAME_CHARACTERS, 0) : start])
    node.meta[WRITTEN_NAME_METADATA_KEY] = written[1] if written else "quantile"


def _expression_name(node: exp.Expr) -> str:
    node = node.unnest()
    function = _FUNCTION_BY_OPERATOR.get(type(node))
    if function is not None:
        return _call_text(function, (node.this, node.expression))
    name_of_class = _NAME_BY_NODE_CLASS.get(type(node))
    if name_of_class is not None:
        return name_of_class(node)
    call = call_of(node)
    return node.sql("clickhouse", comments=False) if call is None else _call_name(call)


def _call_text(function: str, arguments: Iterable[exp.Expr | str]) -> str:
    parts = (part if isinstance(part, str) else _expression_name(part) for part in arguments)
    return f"{function}({', '.join(parts)})"


def _call_name(call: FunctionCall) -> str:
    """Return the text of a call with the function's name as the author wrote it.

    ClickHouse replaces the names of a few functions, for which SQL has a syntax of its own.
    """
    if isinstance(call.node, (exp.DateAdd, exp.TimestampAdd, exp.DateSub, exp.TimestampSub)):
        return _call_text("plus" if isinstance(call.node, (exp.DateAdd, exp.TimestampAdd)) else "minus", call.arguments)
    name = call.display_name if isinstance(call.node, (exp.DateDiff, exp.Extract, exp.Trim)) else call.written_name
    if call.is_distinct:
        name += "Distinct"
    if call.aggregate_parameters and not (
        isinstance(call.node, exp.Quantile) and call.node.meta_get(WRITTEN_NAME_METADATA_KEY)
    ):
        name = _call_text(name, call.aggregate_parameters)
    condition = [call.if_condition] if call.if_condition is not None else []
    zone = call.node.args.get("zone") if isinstance(call.node, (exp.TimestampTrunc, exp.DateTrunc)) else None
    return _call_text(name, [*call.arguments, *condition, *([zone] if zone is not None else [])])


_FUNCTION_BY_OPERATOR: Final[Mapping[type[exp.Expr], str]] = {
    exp.Add: "plus",
    exp.Sub: "minus",
    exp.Mul: "multiply",
    exp.Div: "divide",
    exp.Mod: "modulo",
    exp.EQ: "equals",
    exp.NEQ: "notEquals",
    exp.LT: "less",
    exp.LTE: "lessOrEquals",
    exp.GT: "greater",
    exp.GTE: "greaterOrEquals",
}


def _chain_name(function: str) -> Callable[[exp.Expr], str]:
    """Return a function that names a chain of operators, such as `a AND b AND c`, as one call."""

    def name_of(node: exp.Expr) -> str:
        operands: list[exp.Expr] = []
        left = node
        while type(left) is type(node):
            operands.append(left.expression)
            left = left.this
        return _call_text(function, [left, *reversed(operands)])

    return name_of


_NEGATED_FUNCTIONS: Final[Mapping[type[exp.Expr], str]] = {exp.In: "notIn", exp.Like: "notLike", exp.ILike: "notILike"}


def _in_name(node: exp.Expr, function: str = "in") -> str:
    choices = [_expression_name(choice) for choice in node.expressions]
    return _call_text(function, [node.this, choices[0] if len(choices) == 1 else f"({', '.join(choices)})"])


def _between_name(node: exp.Expr, *, is_negated: bool = False) -> str:
    functions = ("or", "less", "greater") if is_negated else ("and", "greaterOrEquals", "lessOrEquals")
    bounds = zip(functions[1:], (node.args["low"], node.args["high"]), strict=True)
    return _call_text(functions[0], [_call_text(function, [node.this, bound]) for function, bound in bounds])


def _not_name(node: exp.Expr) -> str:
    operand = node.this
    if isinstance(operand, exp.In):
        return _in_name(operand, "notIn")
    if isinstance(operand, exp.Between):
        return _between_name(operand, is_negated=True)
    if isinstance(operand, exp.Is) and isinstance(operand.expression, exp.Null):
        return _call_text("isNotNull", [operand.this])
    return _call_text("not", [operand])


def _like_name(node: exp.Expr) -> str:
    is_case_sensitive, is_negated = isinstance(node, exp.Like), bool(node.args.get("negate"))
    function = _NEGATED_FUNCTIONS[type(node)] if is_negated else "like" if is_case_sensitive else "ilike"
    return _call_text(function, [node.this, node.expression])


def _case_name(node: exp.Expr) -> str:
    subject, default = node.args.get("this"), node.args.get("default")
    parts = [part for branch in node.args["ifs"] for part in (branch.this, branch.args["true"])]
    ending = [default if default is not None else "NULL"]
    return _call_text(
        "multiIf" if subject is None else "caseWithExpression", [*filter(None, [subject]), *parts, *ending]
    )


def _cast_name(node: exp.Expr) -> str:
    type_ = node.args["to"]
    type_text = type_.sql("clickhouse") if isinstance(type_, exp.DataType) else str(type_.name)
    return _call_text("CAST", [node.this, _text_literal(type_text)])


def _interval_name(node: exp.Expr) -> str:
    amount, unit = node.this, node.text("unit")
    words = str(amount.this).split() if isinstance(amount, exp.Literal) else []
    if len(words) == 2 and not unit:
        words, unit = words[:1], words[1]
    function = f"toInterval{unit.lower().removesuffix('s').capitalize()}"
    return _call_text(function, words[:1] or [amount])


def _literal_name(node: exp.Expr) -> str:
    if node.is_string:
        return _text_literal(str(node.this))
    text = str(node.this)
    try:
        return text if text.isdigit() else _float_text(float(text))
    except ValueError:
        return text


_ESCAPE_BY_CHARACTER: Final = str.maketrans(
    {"\\": "\\\\", "'": "\\'", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
)


def _text_literal(text: str) -> str:
    return f"'{text.translate(_ESCAPE_BY_CHARACTER)}'"


_MIN_DECIMAL_FLOAT: Final = 1e-6
_MAX_DECIMAL_FLOAT: Final = 1e21


def _float_text(number: float) -> str:
    """Return a float as ClickHouse writes it in a name: a whole number ends with a point, as in `1000.`."""
    if not math.isfinite(number):
        return str(number)
    if number == 0 or _MIN_DECIMAL_FLOAT <= abs(number) < _MAX_DECIMAL_FLOAT:
        whole, _, decimals = format(Decimal(repr(number)), "f").partition(".")
        return f"{whole}.{decimals.rstrip('0')}"
    mantissa, _, exponent = repr(number).partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def _negative_name(node: exp.Expr) -> str:
    is_number = isinstance(node.this, exp.Literal) and not node.this.is_string
    return f"-{_expression_name(node.this)}" if is_number else _call_text("negate", [node.this])


def _is_name(node: exp.Expr) -> str:
    if isinstance(node.expression, exp.Null):
        return _call_text("isNull", [node.this])
    return node.sql("clickhouse", comments=False)


_NAME_BY_NODE_CLASS: Final[Mapping[type[exp.Expr], Callable[[exp.Expr], str]]] = {
    exp.Alias: lambda node: str(node.alias),
    exp.Column: lambda node: str(node.name),
    exp.Literal: _literal_name,
    exp.Neg: _negative_name,
    exp.Null: lambda _: "NULL",
    exp.Boolean: lambda node: "true" if node.this else "false",
    exp.And: _chain_name("and"),
    exp.Or: _chain_name("or"),
    exp.DPipe: _chain_name("concat"),
    exp.Not: _not_name,
    exp.Is: _is_name,
    exp.In: _in_name,
    exp.Between: _between_name,
    exp.Like: _like_name,
    exp.ILike: _like_name,
    exp.Case: _case_name,
    exp.Cast: _cast_name,
    exp.CastToStrType: _cast_name,
    exp.Bracket: lambda node: _call_text("arrayElement", [node.this, *node.expressions]),
    exp.Interval: _interval_name,
    exp.Array: lambda node: f"[{', '.join(map(_expression_name, node.expressions))}]",
    exp.Tuple: lambda node: f"({', '.join(map(_expression_name, node.expressions))})",
}
