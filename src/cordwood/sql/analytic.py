"""BigQuery's rules for analytic functions and their windows, where engines require less."""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.sql.constants import constant, is_null

_RANKS: Final = (exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile)
_NEIGHBOURS: Final = (exp.Lag, exp.Lead)
_PERCENTILES: Final = (exp.PercentileCont, exp.PercentileDisc)
_ORDERED: Final = (*_RANKS, *_NEIGHBOURS)
_WITHOUT_FRAME: Final = (*_ORDERED, *_PERCENTILES, exp.RowNumber)
_ANALYTIC: Final = (*_WITHOUT_FRAME, exp.FirstValue, exp.LastValue, exp.NthValue)


def shaped_wrongly(node: exp.Expr) -> str | None:
    """Return what is wrong with a window, a frame or an analytic function, as a sentence; None if nothing is."""
    if isinstance(node, exp.Window):
        return _window(node)
    if isinstance(node, exp.WindowSpec):
        return _frame(node)
    if isinstance(node, _ANALYTIC):
        return _function(node)
    return None


def _window(node: exp.Expr) -> str | None:
    function = node.this
    while isinstance(function, (exp.IgnoreNulls, exp.RespectNulls)):
        function = function.this
    wrong = _clauses(node, function) if isinstance(function, _WITHOUT_FRAME) else None
    return f"Window {wrong} for analytic function {_written(function)}" if wrong else None


def _clauses(window: exp.Expr, function: exp.Expr) -> str | None:
    has_order = window.args.get("order") is not None
    if window.args.get("spec") is not None:
        return "framing clause is not allowed"
    if isinstance(function, _PERCENTILES) and has_order:
        return "ORDER BY is not allowed"
    # A named window may have an ORDER BY of its own.
    if isinstance(function, _ORDERED) and not has_order and window.args.get("alias") is None:
        return "ORDER BY is required"
    return None


def _written(function: exp.Expr) -> str:
    named = function.sql_name() if isinstance(function, exp.Func) else function.name
    return str(function.meta_get("bigquery_name") or named).upper()


def _frame(node: exp.Expr) -> str | None:
    is_rows = str(node.args.get("kind")).upper() == "ROWS"
    for bound in (node.args.get("start"), node.args.get("end")):
        # The bounds UNBOUNDED and CURRENT ROW are strings, not expressions.
        if isinstance(bound, exp.Expr) and not _is_distance(bound, is_whole=is_rows):
            return f"A window frame's bound wants a constant {'whole ' if is_rows else ''}number that is not negative"
    return None


def _is_distance(bound: exp.Expr, *, is_whole: bool) -> bool:
    while isinstance(bound, (exp.Paren, exp.Cast)):
        bound = bound.this
    value = constant(bound)
    if isinstance(bound, exp.Parameter):
        return True
    return isinstance(value, int if is_whole else (int, float)) and not isinstance(value, bool) and value >= 0


def _function(node: exp.Expr) -> str | None:
    around = node.parent
    while isinstance(around, (exp.IgnoreNulls, exp.RespectNulls)):
        around = around.parent
    if not isinstance(around, exp.Window):
        return f"Analytic function {_written(node)} cannot be called without an OVER clause"
    return _constant(node)


def _constant(node: exp.Expr) -> str | None:
    """Return what is wrong with the function's constant argument, as a sentence; None if nothing is."""
    wanted = next((wanted for kinds, wanted in _CONSTANTS.items() if isinstance(node, kinds)), None)
    if wanted is None:
        return None
    key, least, most, sentence = wanted
    given = node.args.get(key)
    value = constant(given)
    if is_null(given) or (isinstance(value, (int, float)) and not least <= value <= most):
        return f"{_written(node)} wants {sentence}"
    return None


_MOST: Final = 2**63 - 1
_CONSTANTS: Final[Mapping[tuple[type[exp.Expr], ...], tuple[str, float, float, str]]] = {
    _NEIGHBOURS: ("offset", 0, _MOST, "an offset that is not negative, nor NULL"),
    (exp.Ntile,): ("this", 1, _MOST, "a number of buckets above zero"),
    (exp.NthValue,): ("offset", 1, _MOST, "a place that counts from one"),
    _PERCENTILES: ("expression", 0, 1, "a percentile from 0 to 1"),
}
