"""Admission check: accept a single query made only of allow-listed syntax and functions; refuse everything else.

The check also covers the placement, clauses and constant arguments of aggregate and analytic functions, because engines
are less strict than BigQuery.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from sqlglot import exp

from cordwood.errors import BadQuerySyntax, QueryFault, QueryRefused, QueryUnsupported
from cordwood.sql.budget import charge_nodes
from cordwood.sql.diagnostics import most_similar_name, span_of
from cordwood.sql.nodes import constant_python_value, is_null, parse_digits
from cordwood.sql.permitted_syntax import (
    FUNCTIONS_WITHOUT_WRITTEN_NAME,
    PERMITTED_ARGUMENTS,
    PERMITTED_FUNCTIONS,
    PERMITTED_NODES,
    UNSUPPORTED_FUNCTIONS,
)
from cordwood.sql.stages import AdmittedTree, ParsedQuery

_NAMESPACE_PREFIX_BY_NODE_CLASS: Final[Mapping[type[exp.Expr], str]] = {exp.NetFunc: "NET.", exp.SafeFunc: ""}

# The only functions that accept named arguments, as in `MAKE_INTERVAL(day => 1)`.
_FUNCTIONS_WITH_NAMED_ARGUMENTS: Final = (
    *(exp.MakeInterval, exp.JSONSet, exp.JSONStripNulls, exp.JSONFormat, exp.ParseJSON, exp.Float64),
)


def admit_query(parsed: ParsedQuery, internal_functions: Collection[str] = ()) -> AdmittedTree:
    """Return the checked query; raise QueryRefused at the first node that is not allow-listed.

    The error has the node's position and says what is allowed. `internal_functions` are the names of internal functions
    that the tree may also call, if it was translated from another query language.
    """
    if not isinstance(parsed.tree, (exp.Select, exp.SetOperation, exp.Subquery)):
        kind = type(parsed.tree).__name__.upper()
        raise _refused_error(
            parsed.tree, parsed.query_text, f"{kind} is refused: only a query can be sent.", "Send one SELECT."
        )
    for node in parsed.tree.walk():
        charge_nodes()
        if not (isinstance(node, exp.Anonymous) and _anonymous_function_name(node) in internal_functions):
            _check_node(node, parsed.query_text)
        node.comments = None
    for node in parsed.tree.walk():
        _check_clauses(node, parsed.query_text)
    return AdmittedTree(parsed.tree, parsed.query_text)


def _check_node(node: exp.Expr, text: str) -> None:
    if isinstance(node, exp.Anonymous):
        _check_function_name(node, _anonymous_function_name(node), text)
    elif isinstance(node, exp.Func) and type(node).__name__ not in PERMITTED_NODES:
        _check_function_node(node, text)
    elif not _is_permitted_node(node):
        raise _unpermitted_node_error(node, text)
    elif isinstance(node, exp.Dot):
        _check_dot_member(node, text)
    elif isinstance(node, exp.Select) and node.args.get("into"):
        raise _refused_error(node, text, "SELECT INTO is refused.", "Send one SELECT.")


def _check_clauses(node: exp.Expr, text: str) -> None:
    mistake = _find_clause_mistake(node)
    if mistake:
        raise BadQuerySyntax(f"{mistake}.", span=span_of(node, text))


def _is_permitted_node(node: exp.Expr) -> bool:
    if isinstance(node, exp.Kwarg):
        return isinstance(node.parent, _FUNCTIONS_WITH_NAMED_ARGUMENTS)
    return type(node).__name__ in PERMITTED_NODES


def _check_dot_member(node: exp.Expr, text: str) -> None:
    """Check the member after a dot: a field, `*` or a call. Refuse `a.b(…)`, which calls a function of a dataset."""
    if not isinstance(node.expression, (exp.Identifier, exp.Star, exp.Anonymous, exp.Func)):
        raise _refused_error(node, text, "This cannot stand after a dot.", None)
    if isinstance(node.expression, exp.Func):
        name = ".".join(part.name for part in node.flatten() if part.name)
        raise _unknown_function_error(node, name.upper(), text)


def _anonymous_function_name(node: exp.Expr) -> str:
    name = node.this if isinstance(node.this, str) else node.this.name
    return f"{_function_namespace(node)}{name}".upper()


def _function_namespace(node: exp.Expr) -> str:
    return _NAMESPACE_PREFIX_BY_NODE_CLASS.get(type(node.parent), "") if node.parent is not None else ""


def _check_function_node(node: exp.Expr, text: str) -> None:
    written_name = node.meta.get("bigquery_name")
    if written_name:
        _check_function_name(node, f"{_function_namespace(node)}{written_name}".upper(), text)
    elif type(node).__name__ not in FUNCTIONS_WITHOUT_WRITTEN_NAME:
        _check_function_name(node, _written_function_name(node, text), text)


def _written_function_name(node: exp.Expr, text: str) -> str:
    """Return the function's name as the author wrote it, or sqlglot's name if the node has no position."""
    if "start" in node.meta and "end" in node.meta:
        return text[node.meta["start"] : node.meta["end"] + 1].strip("`").upper()
    return node.sql_name() if isinstance(node, exp.Func) else type(node).__name__.upper()


def _check_function_name(node: exp.Expr, name: str, text: str) -> None:
    if name not in PERMITTED_FUNCTIONS:
        raise _unknown_function_error(node, name, text)


def _unknown_function_error(node: exp.Expr, name: str, text: str) -> QueryFault:
    if name in UNSUPPORTED_FUNCTIONS or name.startswith("ST_"):
        return QueryUnsupported(f"The function {name} is not supported.", span=span_of(node, text))
    closest_name = most_similar_name(name, PERMITTED_FUNCTIONS)
    hint = (
        f"Did you mean {closest_name}?"
        if closest_name
        else "The functions that can be called are listed in the reference."
    )
    return _refused_error(node, text, f"The function {name} cannot be called here.", hint)


def _refused_error(node: exp.Expr, text: str, message: str, hint: str | None) -> QueryRefused:
    return QueryRefused(message, hint=hint, span=span_of(node, text))


def _unpermitted_node_error(node: exp.Expr, text: str) -> QueryFault:
    function = node.parent
    if isinstance(node, exp.Kwarg) and function is not None:
        name = str(function.meta_get("bigquery_name") or _class_name_to_words(type(function).__name__)).upper()
        return QueryUnsupported(f"{name} with {node.this.name} => is not supported.", span=span_of(node, text))
    subject = _class_name_to_words(type(node).__name__)
    return _refused_error(
        node, text, f"{subject} is refused here.", "Send one SELECT over the sub-queries of the endpoint."
    )


def _class_name_to_words(name: str) -> str:
    return "".join(f" {letter}" if letter.isupper() and index else letter for index, letter in enumerate(name)).upper()


MistakeFinder = Callable[[exp.Expr], str | None]


def _find_clause_mistake(node: exp.Expr) -> str | None:
    """Return a sentence about the first mistake in the node's clauses; None if they have no mistake."""
    return _find_unpermitted_clause(node) or _find_mistake_by_class(node) or _find_analytic_mistake(node)


def _find_unpermitted_clause(node: exp.Expr) -> str | None:
    parts = PERMITTED_ARGUMENTS.get(type(node).__name__)
    if parts is None:
        return None
    for key, value in node.args.items():
        if value not in (None, False, []) and key not in parts:
            return f"{key.strip('_').upper()} cannot stand in {type(node).__name__.upper()} here"
    return None


def _find_mistake_by_class(node: exp.Expr) -> str | None:
    if isinstance(node, (exp.AggFunc, exp.Window)):
        return (
            _COUNT_WITHOUT_ARGUMENT_MESSAGE
            if isinstance(node, exp.Count) and node.this is None
            else _find_aggregate_mistake(node)
        )
    check = _MISTAKE_FINDER_BY_NODE_CLASS.get(type(node))
    return check(node) if check else None


def _find_aggregate_mistake(node: exp.Expr) -> str | None:
    """Return the error message for a misplaced aggregate or analytic function; None if its place is allowed.

    Aggregate functions are not allowed in WHERE, GROUP BY, JOIN … ON or another aggregate function. Analytic functions
    are not allowed in WHERE, GROUP BY, JOIN … ON or HAVING.
    """
    if isinstance(node, exp.Window) or _is_window_function_call(node):
        return _find_enclosing_clause_mistake(node, _CLAUSES_FORBIDDING_WINDOW_FUNCTIONS, "Analytic function")
    if any(
        isinstance(ancestor, exp.AggFunc) and not _is_window_function_call(ancestor)
        for ancestor in _ancestors_in_same_query(node)
    ):
        return "Aggregations of aggregations are not allowed"
    return _find_enclosing_clause_mistake(
        node, _CLAUSES_FORBIDDING_AGGREGATES, f"Aggregate function {_function_name(node)}"
    )


def _find_enclosing_clause_mistake(node: exp.Expr, clauses: Mapping[type[exp.Expr], str], subject: str) -> str | None:
    clause = next(
        (clauses[type(ancestor)] for ancestor in _ancestors_in_same_query(node) if type(ancestor) in clauses), None
    )
    return f"{subject} not allowed in {clause}" if clause else None


def _ancestors_in_same_query(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the ancestors of the node, from its parent up to, but not including, the nearest query or PIVOT."""
    ancestor = node.parent
    while ancestor is not None and not isinstance(ancestor, (exp.Query, exp.Pivot)):
        yield ancestor
        ancestor = ancestor.parent


def _is_window_function_call(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, (exp.IgnoreNulls, exp.RespectNulls)):
        parent = parent.parent
    return isinstance(parent, exp.Window)


def _function_name(node: exp.Expr) -> str:
    return str(node.meta_get("bigquery_name") or node.sql_name() if isinstance(node, exp.Func) else node.key).upper()


_COUNT_WITHOUT_ARGUMENT_MESSAGE: Final = "COUNT needs an argument: write COUNT(*)"
_CLAUSES_FORBIDDING_AGGREGATES: Final[Mapping[type[exp.Expr], str]] = {
    exp.Where: "WHERE clause",
    exp.Group: "GROUP BY",
    exp.Join: "JOIN ON clause",
}
_CLAUSES_FORBIDDING_WINDOW_FUNCTIONS: Final[Mapping[type[exp.Expr], str]] = {
    **_CLAUSES_FORBIDDING_AGGREGATES,
    exp.Having: "HAVING clause",
}


def _find_select_mistake(node: exp.Expr) -> str | None:
    if not node.expressions:
        return "SELECT list must not be empty"
    if node.args.get("offset") is not None and node.args.get("limit") is None:
        return "OFFSET stands after LIMIT only"
    for key, clause in _CLAUSES_THAT_NEED_FROM.items():
        if node.args.get(key) is not None and node.args.get("from_") is None:
            return f"Query without FROM clause cannot have a {clause} clause"
    return None


_CLAUSES_THAT_NEED_FROM: Final = {"where": "WHERE", "group": "GROUP BY", "having": "HAVING"}


def _find_set_operation_mistake(node: exp.Expr) -> str | None:
    """Return the error message if operations such as UNION and EXCEPT are combined without parentheses; else None."""
    for side in (node.this, node.expression):
        if isinstance(side, exp.SetOperation) and (type(side), _is_distinct(side)) != (type(node), _is_distinct(node)):
            return "Different set operations stand side by side: put one of them into brackets"
    return None


def _is_distinct(node: exp.Expr) -> bool:
    return bool(node.args.get("distinct"))


def _find_join_mistake(node: exp.Expr) -> str | None:
    """Return the error message for a join that needs ON or USING but has neither; None if there is no mistake.

    CROSS JOIN and joins with an array or a path need neither.
    """
    if node.args.get("on") is not None or node.args.get("using") or isinstance(node.this, (exp.Unnest, exp.Lateral)):
        return None
    side, kind = node.args.get("side"), node.args.get("kind")
    if kind == "CROSS" or _is_dotted_path(node.this):
        return None
    return f"{side or kind or 'INNER'} JOIN must have an immediately following ON or USING clause"


def _is_dotted_path(source: exp.Expr) -> bool:
    """Return whether a source in FROM is a path such as `t.items`, which may be an array column of an earlier table."""
    return isinstance(source, exp.Table) and source.args.get("db") is not None


def _find_limit_or_offset_mistake(node: exp.Expr) -> str | None:
    rows = node.expression
    while isinstance(rows, (exp.Paren, exp.Cast)):
        rows = rows.this
    is_count = isinstance(rows, exp.Parameter) or (isinstance(rows, exp.Literal) and rows.is_int)
    return None if is_count else f"{type(node).__name__.upper()} expects a whole number that is not negative"


def _find_unnest_mistake(node: exp.Expr) -> str | None:
    return "BigQuery has no clause WITH ORDINALITY: write WITH OFFSET" if node.args.get("offset") is True else None


def _find_table_alias_mistake(node: exp.Expr) -> str | None:
    if node.args.get("columns") and isinstance(node.parent, (exp.Subquery, exp.Table, exp.CTE)):
        return "An alias of a table cannot name its columns: name them in its SELECT"
    return None


def _find_alias_mistake(node: exp.Expr) -> str | None:
    """Return the error message for an alias where BigQuery does not accept one, as in `(a AS b)`; else None."""
    return None if isinstance(node.parent, _NODES_WITH_ALIASED_CHILDREN) else "An alias cannot stand here"


# Nodes whose children may have an alias.
_NODES_WITH_ALIASED_CHILDREN: Final = (exp.Select, exp.Star, exp.Pivot, exp.In)


def _find_interval_mistake(node: exp.Expr) -> str | None:
    """Return the error message for an interval whose constant number of units is invalid; None if it is valid.

    sqlglot accepts any literal.
    """
    count, unit = node.this if isinstance(node, exp.Interval) else node.expression, node.args.get("unit")
    if not isinstance(count, exp.Literal) or not isinstance(unit, exp.Var):
        return None
    return _find_interval_count_mistake(count.name.lstrip("+-"), unit.name.upper())


def _find_interval_count_mistake(count: str, unit: str) -> str | None:
    if unit == "SECOND" and _FRACTIONAL_SECONDS_PATTERN.fullmatch(count):
        return None
    if not count.isdecimal():
        return f"INTERVAL expects a whole number of {unit}"
    max_count = _MAX_INTERVAL_COUNT_BY_UNIT.get(unit)
    return f"INTERVAL of more than {max_count} {unit}" if max_count and parse_digits(count) > max_count else None


# The constant number of an interval in seconds may have a fraction.
_FRACTIONAL_SECONDS_PATTERN: Final = re.compile(r"\d*\.\d{1,9}")
# The largest permitted number of each unit in an interval, which is about ten thousand years. Numbers of other units
# are not limited.
_MAX_INTERVAL_COUNT_BY_UNIT: Final = {
    "YEAR": 10_000,
    "QUARTER": 40_000,
    "MONTH": 120_000,
    "DAY": 3_660_000,
    "HOUR": 87_840_000,
}

# Functions without an Interval node in sqlglot's tree: the number and the unit of the interval are arguments of the
# function's own node.
_INTERVAL_FUNCTIONS: Final = (
    *(exp.DateAdd, exp.DateSub, exp.DatetimeAdd, exp.DatetimeSub),
    *(exp.TimestampAdd, exp.TimestampSub, exp.TimeAdd, exp.TimeSub),
)

_MISTAKE_FINDER_BY_NODE_CLASS: Final[Mapping[type[exp.Expr], MistakeFinder]] = {
    exp.Select: _find_select_mistake,
    exp.Join: _find_join_mistake,
    **dict.fromkeys((exp.Union, exp.Except, exp.Intersect), _find_set_operation_mistake),
    exp.Limit: _find_limit_or_offset_mistake,
    exp.Offset: _find_limit_or_offset_mistake,
    exp.Unnest: _find_unnest_mistake,
    **dict.fromkeys((exp.Interval, *_INTERVAL_FUNCTIONS), _find_interval_mistake),
    exp.TableAlias: _find_table_alias_mistake,
    exp.Alias: _find_alias_mistake,
}


_RANK_FUNCTIONS: Final = (exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile)
_LEAD_AND_LAG: Final = (exp.Lag, exp.Lead)
_PERCENTILE_FUNCTIONS: Final = (exp.PercentileCont, exp.PercentileDisc)
_FUNCTIONS_THAT_NEED_ORDER_BY: Final = (*_RANK_FUNCTIONS, *_LEAD_AND_LAG)
_FUNCTIONS_WITHOUT_FRAME: Final = (*_FUNCTIONS_THAT_NEED_ORDER_BY, *_PERCENTILE_FUNCTIONS, exp.RowNumber)
_ANALYTIC_FUNCTIONS: Final = (*_FUNCTIONS_WITHOUT_FRAME, exp.FirstValue, exp.LastValue, exp.NthValue)


def _find_analytic_mistake(node: exp.Expr) -> str | None:
    """Return a sentence about the first mistake in a window, frame or analytic function; None if there is none."""
    if isinstance(node, exp.Window):
        return _find_window_mistake(node)
    if isinstance(node, exp.WindowSpec):
        return _find_frame_mistake(node)
    if isinstance(node, _ANALYTIC_FUNCTIONS):
        return _find_analytic_function_mistake(node)
    return None


def _find_window_mistake(node: exp.Expr) -> str | None:
    function = node.this
    while isinstance(function, (exp.IgnoreNulls, exp.RespectNulls)):
        function = function.this
    mistake = _find_window_clause_mistake(node, function) if isinstance(function, _FUNCTIONS_WITHOUT_FRAME) else None
    return f"Window {mistake} for analytic function {_analytic_function_name(function)}" if mistake else None


def _find_window_clause_mistake(window: exp.Expr, function: exp.Expr) -> str | None:
    has_order = window.args.get("order") is not None
    if window.args.get("spec") is not None:
        return "framing clause is not allowed"
    if isinstance(function, _PERCENTILE_FUNCTIONS) and has_order:
        return "ORDER BY is not allowed"
    # OVER with the name of a window is accepted without ORDER BY, because the named window may have an ORDER BY.
    if isinstance(function, _FUNCTIONS_THAT_NEED_ORDER_BY) and not has_order and window.args.get("alias") is None:
        return "ORDER BY is required"
    return None


def _analytic_function_name(function: exp.Expr) -> str:
    default_name = function.sql_name() if isinstance(function, exp.Func) else function.name
    return str(function.meta_get("bigquery_name") or default_name).upper()


def _find_frame_mistake(node: exp.Expr) -> str | None:
    is_row_frame = str(node.args.get("kind")).upper() == "ROWS"
    for bound in (node.args.get("start"), node.args.get("end")):
        # The bounds UNBOUNDED and CURRENT ROW need no check. In sqlglot's tree, they are strings and not expressions.
        if isinstance(bound, exp.Expr) and not _is_valid_frame_bound(bound, is_whole=is_row_frame):
            return f"A frame bound must be a constant {'whole ' if is_row_frame else ''}number that is not negative"
    return None


def _is_valid_frame_bound(bound: exp.Expr, *, is_whole: bool) -> bool:
    while isinstance(bound, (exp.Paren, exp.Cast)):
        bound = bound.this
    value = constant_python_value(bound)
    if isinstance(bound, exp.Parameter):
        return True
    return isinstance(value, int if is_whole else (int, float)) and not isinstance(value, bool) and value >= 0


def _find_analytic_function_mistake(node: exp.Expr) -> str | None:
    if not _is_window_function_call(node):
        return f"Analytic function {_analytic_function_name(node)} cannot be called without an OVER clause"
    return _find_constant_argument_mistake(node)


def _find_constant_argument_mistake(node: exp.Expr) -> str | None:
    """Return a sentence about the mistake in the function's constant argument; None if there is no mistake."""
    rule = next((rule for kinds, rule in _CONSTANT_ARGUMENT_RANGE_BY_FUNCTION.items() if isinstance(node, kinds)), None)
    if rule is None:
        return None
    key, minimum, maximum, sentence = rule
    argument = node.args.get(key)
    value = constant_python_value(argument)
    if is_null(argument) or (isinstance(value, (int, float)) and not minimum <= value <= maximum):
        return f"{_analytic_function_name(node)} needs {sentence}"
    return None


_MAX_INT64: Final = 2**63 - 1
_CONSTANT_ARGUMENT_RANGE_BY_FUNCTION: Final[Mapping[tuple[type[exp.Expr], ...], tuple[str, float, float, str]]] = {
    _LEAD_AND_LAG: ("offset", 0, _MAX_INT64, "an offset that is not negative, nor NULL"),
    (exp.Ntile,): ("this", 1, _MAX_INT64, "a number of buckets above zero"),
    (exp.NthValue,): ("offset", 1, _MAX_INT64, "a place that counts from one"),
    _PERCENTILE_FUNCTIONS: ("expression", 0, 1, "a percentile from 0 to 1"),
}
