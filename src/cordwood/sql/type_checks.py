"""BigQuery's compile-time type checks: operands, arguments, ungrouped columns, and literals.

Event values, JSON and expressions of unknown type may have any type, so they pass. A text literal or a parameter may be
converted to a time.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from sqlglot import exp

from cordwood.errors import QueryFault, QuerySyntax, QueryValue, Span
from cordwood.model.datatype import NUMBERS, Datatype, Kind
from cordwood.sql.argument_types import ARGUMENTS, DATES, TIMES
from cordwood.sql.bigquery.patterns import told_wrong
from cordwood.sql.bigquery.time_literals import engine_text
from cordwood.sql.budget import spend
from cordwood.sql.constants import constant_text
from cordwood.sql.grouping import out_of_range, ungrouped
from cordwood.sql.nodes import COMPARISONS
from cordwood.sql.positions import span_of, start_of
from cordwood.sql.typing import datatype_of
from cordwood.sql.typing.annotate import SIDES

_KNOWN: Final = frozenset({*NUMBERS, *TIMES, Kind.STRING, Kind.BYTES, Kind.BOOL, Kind.ARRAY, Kind.STRUCT})
_SIGNS: Final[Mapping[type[exp.Expr], str]] = {
    **COMPARISONS,
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
}


class _TypeMistakeError(Exception):
    """A node with operands of types that it does not accept; `hint` says what to write."""

    def __init__(
        self, node: exp.Expr, message: str, hint: str | None = None, fault: type[QueryFault] = QuerySyntax
    ) -> None:
        super().__init__(message)
        self.node = node
        self.fault = fault
        self.message = message
        self.hint = hint


def check_types(tree: exp.Expr, text: str) -> None:
    """Raise QuerySyntax with the position if operand types do not fit; all nodes must be typed."""
    spend(1)
    for node in tree.walk():
        found = _CHECKS.get(type(node))
        if found is None:
            continue
        try:
            found(node)
        except _TypeMistakeError as mistake:
            raise mistake.fault(mistake.message, hint=mistake.hint, span=_place(mistake.node, text)) from mistake


def _place(node: exp.Expr, text: str) -> Span | None:
    """Return the position in the text; None in a saved sub-query, which is another text."""
    around = node.find_ancestor(exp.CTE)
    is_saved = start_of(node) is None and around is not None and start_of(around) is None
    return None if is_saved else span_of(node, text) or Span(1, 1)


def _select(node: exp.Expr) -> None:
    beyond = out_of_range(node)
    if beyond is not None:
        said = f"The ordinal {beyond.this} is beyond the columns of the SELECT: there are {len(node.expressions)}."
        raise _TypeMistakeError(beyond, said, "Write a number of a column, or its name.")
    found = ungrouped(node)
    if found is not None:
        where, name = found
        said = f"SELECT list expression references column {name} which is neither grouped nor aggregated."
        raise _TypeMistakeError(where, said, f"Add {name} to GROUP BY, or aggregate it, as in ANY_VALUE({name}).")


def _pattern(node: exp.Expr) -> None:
    pattern = constant_text(node.args.get("expression"))
    wrong = told_wrong(pattern) if pattern is not None and not isinstance(node.parent, exp.SafeFunc) else None
    if wrong is not None:
        said = f"Cannot parse regular expression: {wrong[0]}."
        raise _TypeMistakeError(node.args["expression"], said, wrong[1], QueryValue)


def _matched(node: exp.Expr) -> None:
    _arguments(node)
    _pattern(node)


def _columns(node: exp.Expr) -> None:
    """Check the column types of a set operation; a text may be a literal that is converted to a time."""
    left, right = node.meta_get(SIDES) or ((), ())
    for place, (one, other) in enumerate(zip(left, right, strict=False), 1):
        kinds = _family(one), _family(other)
        if None in kinds or kinds[0] == kinds[1] or (Kind.STRING in kinds and set(kinds) & TIMES):
            continue
        said = f"Column {place} of the set operation has incompatible types: {_kind(one)}, {_kind(other)}."
        raise _TypeMistakeError(node.expression, said, "Cast one side, as in CAST(x AS STRING).")


def _kind(datatype: Datatype | None) -> Kind | None:
    return datatype.kind if datatype is not None and datatype.kind in _KNOWN else None


def _family(datatype: Datatype | None) -> Kind | None:
    """Return the type's family: all numbers are one and all dates are one; None if unknown."""
    kind = _kind(datatype)
    if kind in NUMBERS:
        return Kind.FLOAT64
    return Kind.TIMESTAMP if kind in DATES else kind


def _kind_of(node: exp.Expr | None) -> Kind | None:
    """Return the type of a node; None for ERROR(…), which has any type, and for the list of ANY or ALL."""
    is_error = isinstance(node, exp.Anonymous) and str(node.this).upper() == "ERROR"
    return None if is_error or isinstance(node, (exp.Any, exp.All)) else _kind(datatype_of(node))


def _is_constant(node: exp.Expr) -> bool:
    """Return whether the expression reads no row. BigQuery converts constant texts and parameters to times."""
    return node.find(exp.Column, exp.Anonymous, exp.Query) is None


def _fit(one: exp.Expr, other: exp.Expr) -> bool:
    left, right = _family(datatype_of(one)), _family(datatype_of(other))
    if left is None or right is None or left == right:
        return True
    sides = (one, other) if left is Kind.STRING else (other, one)
    if _family(datatype_of(sides[0])) is not Kind.STRING or not _is_constant(sides[0]):
        return False
    kind = _kind_of(sides[1])
    if kind in TIMES:
        _check_literal(sides[0], kind)
    return kind in TIMES or kind is Kind.BYTES


def _check_literal(value: exp.Expr, kind: Kind) -> None:
    text = constant_text(value)
    if text is not None and not _is_literal_of(text, kind):
        said = f'Could not cast literal "{text[:_MOST_TOLD]}" to type {kind}.'
        raise _TypeMistakeError(value, said, _EXAMPLES.get(kind), QueryValue)


def _is_literal_of(text: str, kind: Kind) -> bool:
    """Return whether a text literal is a valid value of the type; True for types that are not checked."""
    if kind in TIMES:
        return engine_text(text.strip(), kind) is not None
    return bool(_WHOLE.fullmatch(text)) if kind is Kind.INT64 else True


def _types(nodes: Iterable[exp.Expr]) -> str:
    return ", ".join(str(_kind_of(node)) for node in nodes)


def _unlike(node: exp.Expr, operator: str, one: exp.Expr, other: exp.Expr) -> _TypeMistakeError:
    said = f"No matching signature for operator {operator} for argument types: {_types((one, other))}."
    return _TypeMistakeError(node, said, _cast_hint(one, other))


def _cast_hint(one: exp.Expr, other: exp.Expr) -> str:
    kinds = {_family(datatype_of(one)), _family(datatype_of(other))}
    number = next((node for node in (one, other) if isinstance(node, exp.Literal) and not node.is_string), None)
    if kinds == {Kind.STRING, Kind.FLOAT64} and number is not None:
        return f"Write '{number.this}' for the text, or CAST the other side AS INT64."
    if Kind.TIMESTAMP in kinds and number is not None:
        return f"Write TIMESTAMP_SECONDS({number.this}), or a time such as TIMESTAMP '2024-01-31 09:00:00'."
    if Kind.STRING in kinds and Kind.TIMESTAMP in kinds:
        return "Write TIMESTAMP(…) around the text."
    return "Cast one side, as in CAST(… AS STRING)."


def _compared(node: exp.Expr) -> None:
    if not _fit(node.this, node.expression):
        raise _unlike(node, _SIGNS[type(node)], node.this, node.expression)


def _in(node: exp.Expr) -> None:
    for item in node.expressions:
        if not isinstance(item, exp.Query) and not _fit(node.this, item):
            raise _unlike(node, "IN", node.this, item)
    _in_relation(node)


def _in_relation(node: exp.Expr) -> None:
    """Check IN with a sub-query or UNNEST."""
    unnest = node.args.get("unnest")
    array = unnest.expressions[0] if isinstance(unnest, exp.Unnest) else None
    if array is not None and _kind_of(array) not in (None, Kind.ARRAY):
        return
    datatype = datatype_of(array) if array is not None else None
    among = datatype_of(node.args["query"]) if node.args.get("query") else datatype and datatype.element
    kinds = _family(datatype_of(node.this)), _family(among)
    if None in kinds or kinds[0] is kinds[1] or _may_be_read(node.this, array, kinds):
        return
    said = f"No matching signature for operator IN for argument types: {_kind_of(node.this)}, {_kind(among)}."
    raise _TypeMistakeError(node, said, "Cast one side, as in CAST(… AS STRING).")


def _may_be_read(value: exp.Expr, array: exp.Expr | None, kinds: tuple[Kind | None, Kind | None]) -> bool:
    """Return whether the side that is a text is constant, so that BigQuery converts it to a time or bytes."""
    text = value if kinds[0] is Kind.STRING else array
    other = kinds[1] if kinds[0] is Kind.STRING else kinds[0]
    is_text = Kind.STRING in kinds and (other in TIMES or other is Kind.BYTES)
    return is_text and text is not None and _is_constant(text)


def _between(node: exp.Expr) -> None:
    for end in (node.args["low"], node.args["high"]):
        if not _fit(node.this, end):
            raise _unlike(node, "BETWEEN", node.this, end)


def _arithmetic(node: exp.Expr) -> None:
    """Check arithmetic on numbers, and on times with intervals."""
    sides = node.this, node.expression
    kinds = [_kind_of(side) for side in sides]
    if None in kinds or all(kind in NUMBERS for kind in kinds):
        return
    is_moved = isinstance(node, (exp.Add, exp.Sub)) and Kind.DATE in kinds and Kind.INT64 in kinds
    is_difference = isinstance(node, exp.Sub) and all(kind in TIMES for kind in kinds)
    if is_moved or is_difference:
        return
    said = f"No matching signature for operator {_SIGNS[type(node)]} for argument types: {_types(sides)}."
    raise _TypeMistakeError(node, said, _arithmetic_hint(node, kinds))


def _arithmetic_hint(node: exp.Expr, kinds: list[Kind | None]) -> str:
    if isinstance(node, exp.Add) and Kind.STRING in kinds:
        return "Texts are put together with || or CONCAT(…); a text is read as a number with CAST(… AS INT64)."
    if DATES.intersection(kind for kind in kinds if kind):
        verb = "ADD" if isinstance(node, exp.Add) else "SUB"
        return f"A time is moved with TIMESTAMP_{verb}(…, INTERVAL 1 HOUR)."
    return "Read a text as a number with CAST(… AS INT64)."


def _truth(node: exp.Expr, what: str) -> None:
    kind = _kind_of(node)
    if kind not in (None, Kind.BOOL):
        raise _TypeMistakeError(node, f"{what} takes a BOOL, not {kind}.", "Write a comparison, as in x = 'value'.")


def _condition(what: str) -> Callable[[exp.Expr], None]:
    return lambda node: _truth(node.this, what)


def _both_truths(node: exp.Expr) -> None:
    for side in (node.this, node.expression):
        _truth(side, type(node).__name__.upper())


def _case(node: exp.Expr) -> None:
    branches = node.args.get("ifs") or ()
    for branch in branches:
        if node.this is None:
            _truth(branch.this, "WHEN")
        elif not _fit(node.this, branch.this):
            raise _unlike(node, "CASE", node.this, branch.this)
    _alike(node, "CASE", [*(branch.args["true"] for branch in branches), node.args.get("default")])


def _if(node: exp.Expr) -> None:
    if isinstance(node.parent, exp.Case):
        return
    _truth(node.this, "IF")
    _alike(node, "IF", [node.args.get("true"), node.args.get("false")])


def _alike(node: exp.Expr, what: str, values: Iterable[exp.Expr | None]) -> None:
    known = [value for value in values if value is not None and _kind_of(value)]
    for value in known[1:]:
        if not _fit(known[0], value):
            said = f"No matching signature for {what} for argument types: {_types((known[0], value))}."
            raise _TypeMistakeError(node, said, _cast_hint(known[0], value))


def _all_alike(name: str) -> Callable[[exp.Expr], None]:
    return lambda node: _alike(node, name, [node.this, *node.expressions])


def _nullif(node: exp.Expr) -> None:
    _alike(node, "NULLIF", [node.this, node.expression])


def _arguments(node: exp.Expr) -> None:
    """Check the arguments of a function against the table of argument types."""
    if isinstance(node.parent, exp.Contains):
        # CONTAINS_SUBSTR accepts any type; the parser wraps its arguments in LOWER.
        return
    for argument in ARGUMENTS[type(node)]:
        value = node.args.get(argument.key)
        kind = _kind_of(value) if isinstance(value, exp.Expr) else None
        if kind is None or kind in argument.kinds or (kind is Kind.STRING and _becomes(value, argument.kinds)):
            continue
        said = f"No matching signature for {_called(node)} for argument type {kind}."
        raise _TypeMistakeError(node, said, argument.hint)


def _becomes(value: exp.Expr | None, kinds: frozenset[Kind]) -> bool:
    """Return whether a constant text is converted to the type: a literal to a time or bytes, a parameter to any."""
    if value is None or not _is_constant(value):
        return False
    return not kinds.isdisjoint({*TIMES, Kind.BYTES}) or value.find(exp.Parameter) is not None


def _called(node: exp.Expr) -> str:
    """Return the function or operator in BigQuery's spelling."""
    sign = _OPERATORS.get(type(node))
    if sign is not None:
        return f"operator {sign}"
    name = node.meta_get("bigquery_name") or _CALLED.get(type(node)) or node.sql_name()  # type: ignore[attr-defined]
    return f"function {str(name).upper()}"


_OPERATORS: Final[Mapping[type[exp.Expr], str]] = {
    exp.Neg: "-",
    exp.Like: "LIKE",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}
_CALLED: Final[Mapping[type[exp.Expr], str]] = {exp.GroupConcat: "STRING_AGG"}


def _moment_of(node: exp.Expr) -> None:
    """Refuse DATE(5), TIMESTAMP(TRUE) and the like, whose argument cannot be converted to a time."""
    kind = _kind_of(node.this) if isinstance(node.this, exp.Expr) else None
    if kind in NUMBERS or kind is Kind.BOOL:
        if node.expressions or node.meta_get("bigquery_name") is None:
            return
        raise _TypeMistakeError(node, f"No matching signature for {_called(node)} for argument type {kind}.", _MOMENT)


def _subscript(node: exp.Expr) -> None:
    kind = _kind_of(node.this)
    if kind not in (None, Kind.ARRAY, Kind.STRUCT):
        said = f"Subscript access using [] is not supported on values of type {kind}."
        raise _TypeMistakeError(node, said, "A part of a text is SUBSTR(text, start, length).")


def _unnest(node: exp.Expr) -> None:
    kind = _kind_of(node.expressions[0])
    if kind not in (None, Kind.ARRAY):
        raise _TypeMistakeError(
            node.expressions[0], f"UNNEST takes an array, not {kind}.", "Write [x] for an array of x."
        )


def _join(node: exp.Expr) -> None:
    if isinstance(node.args.get("on"), exp.Expr):
        _truth(node.args["on"], "ON")


def _elements(node: exp.Expr) -> None:
    if not any(isinstance(item, exp.Query) for item in node.expressions):
        _alike(node, "ARRAY", node.expressions)


def _cast(node: exp.Expr) -> None:
    to = datatype_of(node)
    kind, wanted = _kind_of(node.this), to.kind if to else None
    if kind is None or wanted is None or wanted not in _KNOWN:
        return
    if kind is Kind.STRING and isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
        _check_literal(node.this, wanted)
    hint = _NO_CASTS.get((_family(datatype_of(node.this)), _family(to)))
    if hint is not None:
        raise _TypeMistakeError(node, f"Invalid cast from {kind} to {wanted}.", hint)


_MOST_TOLD: Final = 40
_WHOLE: Final = re.compile(r"\s*[+-]?(?:\d+|0[xX][0-9a-fA-F]+)\s*", re.ASCII)
_EXAMPLES: Final = {
    Kind.TIMESTAMP: "Write a time such as '2024-01-31 09:00:00'.",
    Kind.DATETIME: "Write a time such as '2024-01-31 09:00:00'.",
    Kind.DATE: "Write a date such as '2024-01-31'.",
    Kind.TIME: "Write a time such as '09:00:00'.",
    Kind.INT64: "Write a whole number; SAFE_CAST gives NULL instead.",
}
_SECONDS: Final = "Write UNIX_SECONDS(…), UNIX_MILLIS(…) or EXTRACT(… FROM …)."
_MOMENT: Final = "Write TIMESTAMP_SECONDS(…) or TIMESTAMP_MILLIS(…)."
_NO_CASTS: Final[Mapping[tuple[Kind | None, Kind | None], str]] = {
    (Kind.TIMESTAMP, Kind.FLOAT64): _SECONDS,
    (Kind.TIMESTAMP, Kind.BOOL): "Write a comparison, as in x > TIMESTAMP '2024-01-31'.",
    (Kind.FLOAT64, Kind.TIMESTAMP): _MOMENT,
    (Kind.BOOL, Kind.TIMESTAMP): "A BOOL is not a time.",
}

_CHECKS: Final[Mapping[type[exp.Expr], Callable[[exp.Expr], None]]] = {
    exp.Select: _select,
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ), _compared),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div), _arithmetic),
    **dict.fromkeys((exp.And, exp.Or), _both_truths),
    exp.In: _in,
    exp.Between: _between,
    exp.Not: _condition("NOT"),
    exp.Where: _condition("WHERE"),
    exp.Having: _condition("HAVING"),
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _all_alike("COALESCE"),
    exp.Greatest: _all_alike("GREATEST"),
    exp.Least: _all_alike("LEAST"),
    exp.Nullif: _nullif,
    **dict.fromkeys((exp.Union, exp.Except, exp.Intersect), _columns),
    exp.Cast: _cast,
    exp.TryCast: _cast,
    **dict.fromkeys(ARGUMENTS, _arguments),
    **dict.fromkeys((exp.RegexpLike, exp.RegexpExtract, exp.RegexpReplace, exp.RegexpExtractAll), _matched),
    **dict.fromkeys((exp.Date, exp.Timestamp, exp.TsOrDsToDatetime), _moment_of),
    exp.Bracket: _subscript,
    exp.Join: _join,
    exp.Unnest: _unnest,
    exp.Array: _elements,
}
