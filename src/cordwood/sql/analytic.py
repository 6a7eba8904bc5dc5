"""BigQuery's rules for analytic functions and their windows, where engines require less."""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.sql.constants import constant, is_null

_RANKS: Final = (exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile)
_NEIGHBOURS: Final = (exp.Lag, exp.Lead)
_PERCENTILES: Final = (exp.PercentileCont, exp.PercentileDisc)
_NEED_ORDER: Final = (*_RANKS, *_NEIGHBOURS)
_WITHOUT_FRAME: Final = (*_NEED_ORDER, *_PERCENTILES, exp.RowNumber)
_ANALYTIC: Final = (*_WITHOUT_FRAME, exp.FirstValue, exp.LastValue, exp.NthValue)


def find_analytic_mistake(node: exp.Expr) -> str | None:
    """Return what is wrong with a window, a frame or an analytic function, as a sentence; None if nothing is."""
    if isinstance(node, exp.Window):
        return _check_window(node)
    if isinstance(node, exp.WindowSpec):
        return _check_frame(node)
    if isinstance(node, _ANALYTIC):
        return _check_function(node)
    return None


def _check_window(node: exp.Expr) -> str | None:
    function = node.this
    while isinstance(function, (exp.IgnoreNulls, exp.RespectNulls)):
        function = function.this
    mistake = _check_window_clauses(node, function) if isinstance(function, _WITHOUT_FRAME) else None
    return f"Window {mistake} for analytic function {_function_name(function)}" if mistake else None


def _check_window_clauses(window: exp.Expr, function: exp.Expr) -> str | None:
    has_order = window.args.get("order") is not None
    if window.args.get("spec") is not None:
        return "framing clause is not allowed"
    if isinstance(function, _PERCENTILES) and has_order:
        return "ORDER BY is not allowed"
    # A named window may have an ORDER BY of its own.
    if isinstance(function, _NEED_ORDER) and not has_order and window.args.get("alias") is None:
        return "ORDER BY is required"
    return None


def _function_name(function: exp.Expr) -> str:
    default_name = function.sql_name() if isinstance(function, exp.Func) else function.name
    return str(function.meta_get("bigquery_name") or default_name).upper()


def _check_frame(node: exp.Expr) -> str | None:
    is_row_frame = str(node.args.get("kind")).upper() == "ROWS"
    for bound in (node.args.get("start"), node.args.get("end")):
        # The bounds UNBOUNDED and CURRENT ROW are strings, not expressions.
        if isinstance(bound, exp.Expr) and not _is_frame_bound(bound, is_whole=is_row_frame):
            return (
                f"A window frame's bound wants a constant {'whole ' if is_row_frame else ''}number that is not negative"
            )
    return None


def _is_frame_bound(bound: exp.Expr, *, is_whole: bool) -> bool:
    while isinstance(bound, (exp.Paren, exp.Cast)):
        bound = bound.this
    value = constant(bound)
    if isinstance(bound, exp.Parameter):
        return True
    return isinstance(value, int if is_whole else (int, float)) and not isinstance(value, bool) and value >= 0


def _check_function(node: exp.Expr) -> str | None:
    parent = node.parent
    while isinstance(parent, (exp.IgnoreNulls, exp.RespectNulls)):
        parent = parent.parent
    if not isinstance(parent, exp.Window):
        return f"Analytic function {_function_name(node)} cannot be called without an OVER clause"
    return _check_constant_argument(node)


def _check_constant_argument(node: exp.Expr) -> str | None:
    """Return what is wrong with the function's constant argument, as a sentence; None if nothing is."""
    rule = next((rule for kinds, rule in _CONSTANT_ARGUMENTS.items() if isinstance(node, kinds)), None)
    if rule is None:
        return None
    key, minimum, maximum, sentence = rule
    argument = node.args.get(key)
    value = constant(argument)
    if is_null(argument) or (isinstance(value, (int, float)) and not minimum <= value <= maximum):
        return f"{_function_name(node)} wants {sentence}"
    return None


_MAX_INT64: Final = 2**63 - 1
_CONSTANT_ARGUMENTS: Final[Mapping[tuple[type[exp.Expr], ...], tuple[str, float, float, str]]] = {
    _NEIGHBOURS: ("offset", 0, _MAX_INT64, "an offset that is not negative, nor NULL"),
    (exp.Ntile,): ("this", 1, _MAX_INT64, "a number of buckets above zero"),
    (exp.NthValue,): ("offset", 1, _MAX_INT64, "a place that counts from one"),
    _PERCENTILES: ("expression", 0, 1, "a percentile from 0 to 1"),
}
