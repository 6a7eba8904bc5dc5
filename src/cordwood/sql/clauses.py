"""Checks for clauses that sqlglot parses but BigQuery does not have, and for clauses that BigQuery requires."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from sqlglot import exp

from cordwood.sql import analytic
from cordwood.sql.digits import whole
from cordwood.sql.permitted import PARTS

Check = Callable[[exp.Expr], str | None]


def misplaced(node: exp.Expr) -> str | None:
    """Return what is wrong with the node's clauses, as a sentence; None if nothing is."""
    return _foreign_part(node) or _shaped_wrongly(node) or analytic.shaped_wrongly(node)


def _foreign_part(node: exp.Expr) -> str | None:
    parts = PARTS.get(type(node).__name__)
    if parts is None:
        return None
    for key, value in node.args.items():
        if value not in (None, False, []) and key not in parts:
            return f"{key.strip('_').upper()} cannot stand in {type(node).__name__.upper()} here"
    return None


def _shaped_wrongly(node: exp.Expr) -> str | None:
    if isinstance(node, (exp.AggFunc, exp.Window)):
        return _NO_ARGUMENT if isinstance(node, exp.Count) and node.this is None else _aggregated(node)
    check = _CHECKS.get(type(node))
    return check(node) if check else None


def _aggregated(node: exp.Expr) -> str | None:
    """Return the error of an aggregate in WHERE, GROUP BY, JOIN or an aggregate, or of a window there or in HAVING."""
    if isinstance(node, exp.Window) or _is_windowed(node):
        return _within(node, _BEFORE_WINDOWS, "Analytic function")
    if any(isinstance(around, exp.AggFunc) and not _is_windowed(around) for around in _around(node)):
        return "Aggregations of aggregations are not allowed"
    return _within(node, _BEFORE_GROUPS, f"Aggregate function {_name_in_words(node)}")


def _within(node: exp.Expr, clauses: Mapping[type[exp.Expr], str], what: str) -> str | None:
    clause = next((clauses[type(around)] for around in _around(node) if type(around) in clauses), None)
    return f"{what} not allowed in {clause}" if clause else None


def _around(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the node's ancestors, up to its query or PIVOT."""
    around = node.parent
    while around is not None and not isinstance(around, (exp.Query, exp.Pivot)):
        yield around
        around = around.parent


def _is_windowed(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, (exp.IgnoreNulls, exp.RespectNulls)):
        parent = parent.parent
    return isinstance(parent, exp.Window)


def _name_in_words(node: exp.Expr) -> str:
    return str(node.meta_get("bigquery_name") or node.sql_name() if isinstance(node, exp.Func) else node.key).upper()


_NO_ARGUMENT: Final = "COUNT wants an argument: write COUNT(*)"
_BEFORE_GROUPS: Final[Mapping[type[exp.Expr], str]] = {
    exp.Where: "WHERE clause",
    exp.Group: "GROUP BY",
    exp.Join: "JOIN ON clause",
}
_BEFORE_WINDOWS: Final[Mapping[type[exp.Expr], str]] = {**_BEFORE_GROUPS, exp.Having: "HAVING clause"}


def _select(node: exp.Expr) -> str | None:
    if not node.expressions:
        return "SELECT list must not be empty"
    if node.args.get("offset") is not None and node.args.get("limit") is None:
        return "OFFSET stands after LIMIT only"
    for key, clause in _OF_ROWS.items():
        if node.args.get(key) is not None and node.args.get("from_") is None:
            return f"Query without FROM clause cannot have a {clause} clause"
    return None


_OF_ROWS: Final = {"where": "WHERE", "group": "GROUP BY", "having": "HAVING"}


def _set_operation(node: exp.Expr) -> str | None:
    """Return the error of different set operations without parentheses between them."""
    for side in (node.this, node.expression):
        if isinstance(side, exp.SetOperation) and (type(side), _is_distinct(side)) != (type(node), _is_distinct(node)):
            return "Different set operations stand side by side: put one of them into brackets"
    return None


def _is_distinct(node: exp.Expr) -> bool:
    return bool(node.args.get("distinct"))


def _join(node: exp.Expr) -> str | None:
    """Return the error of a join without ON or USING; CROSS JOIN, arrays and paths need neither."""
    if node.args.get("on") is not None or node.args.get("using") or isinstance(node.this, (exp.Unnest, exp.Lateral)):
        return None
    side, kind = node.args.get("side"), node.args.get("kind")
    if kind == "CROSS" or _is_path(node.this):
        return None
    return f"{side or kind or 'INNER'} JOIN must have an immediately following ON or USING clause"


def _is_path(source: exp.Expr) -> bool:
    """Return whether a source is a path such as `t.items`, which may be an array of an earlier table."""
    return isinstance(source, exp.Table) and source.args.get("db") is not None


def _count_of_rows(node: exp.Expr) -> str | None:
    rows = node.expression
    while isinstance(rows, (exp.Paren, exp.Cast)):
        rows = rows.this
    is_count = isinstance(rows, exp.Parameter) or (isinstance(rows, exp.Literal) and rows.is_int)
    return None if is_count else f"{type(node).__name__.upper()} expects a whole number that is not negative"


def _unnest(node: exp.Expr) -> str | None:
    return "WITH ORDINALITY is no clause of BigQuery's: write WITH OFFSET" if node.args.get("offset") is True else None


def _table_alias(node: exp.Expr) -> str | None:
    if node.args.get("columns") and isinstance(node.parent, (exp.Subquery, exp.Table, exp.CTE)):
        return "An alias of a table cannot name its columns: name them in its SELECT"
    return None


def _alias(node: exp.Expr) -> str | None:
    """Return the error of an alias in parentheses or before a comma, where only sqlglot accepts it."""
    return None if isinstance(node.parent, _NAMED) else "An alias cannot stand here"


# Nodes whose parts may have an alias.
_NAMED: Final = (exp.Select, exp.Star, exp.Pivot, exp.In)


def _interval(node: exp.Expr) -> str | None:
    """Return the error of an interval with an invalid count, which sqlglot converts to text."""
    count, unit = node.this if isinstance(node, exp.Interval) else node.expression, node.args.get("unit")
    if not isinstance(count, exp.Literal) or not isinstance(unit, exp.Var):
        return None
    return _counted_wrongly(count.name.lstrip("+-"), unit.name.upper())


def _counted_wrongly(count: str, unit: str) -> str | None:
    if unit == "SECOND" and _SECONDS.fullmatch(count):
        return None
    if not count.isdecimal():
        return f"INTERVAL expects a whole number of {unit}"
    most = _MOST.get(unit)
    return f"INTERVAL of more than {most} {unit}" if most and whole(count) > most else None


# A text of seconds may have a fraction.
_SECONDS: Final = re.compile(r"\d*\.\d{1,9}")
# Ten thousand years.
_MOST: Final = {"YEAR": 10_000, "QUARTER": 40_000, "MONTH": 120_000, "DAY": 3_660_000, "HOUR": 87_840_000}

# Functions for which sqlglot stores count and unit, without a node for the interval.
_MOVED: Final = (
    *(exp.DateAdd, exp.DateSub, exp.DatetimeAdd, exp.DatetimeSub),
    *(exp.TimestampAdd, exp.TimestampSub, exp.TimeAdd, exp.TimeSub),
)

_CHECKS: Final[Mapping[type[exp.Expr], Check]] = {
    exp.Select: _select,
    exp.Join: _join,
    **dict.fromkeys((exp.Union, exp.Except, exp.Intersect), _set_operation),
    exp.Limit: _count_of_rows,
    exp.Offset: _count_of_rows,
    exp.Unnest: _unnest,
    **dict.fromkeys((exp.Interval, *_MOVED), _interval),
    exp.TableAlias: _table_alias,
    exp.Alias: _alias,
}
