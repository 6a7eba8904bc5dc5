"""Checks of grouped SELECTs: columns that are read without being grouped, and ordinals out of range."""

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from cordwood.sql.nodes import is_event_path, joined_relations, path_steps, path_value

_SETS: Final = (exp.Rollup, exp.Cube, exp.GroupingSets, exp.Tuple, exp.Paren)


def ungrouped(select: exp.Expr) -> tuple[exp.Expr, str] | None:
    """Return the first ungrouped column and its name; None if there is none, or it cannot be decided."""
    group, having = select.args.get("group"), select.args.get("having")
    read = [*select.expressions, *([having.this] if having is not None else []), *_order_keys(select)]
    is_grouped = group is not None or having is not None or any(map(_has_aggregate, read))
    if not is_grouped or _is_unknown(select, group):
        return None
    return _first_ungrouped(select, group, read)


def _first_ungrouped(select: exp.Expr, group: exp.Expr | None, read: list[exp.Expr]) -> tuple[exp.Expr, str] | None:
    sources = list(_sources(select))
    own = frozenset(source.alias_or_name.lower() for source in sources if source.alias_or_name)
    keys = list(_keys(select, group)) if group is not None else []
    return next((found for item in read for found in _offenders(item, keys, own)), None)


def _is_unknown(select: exp.Expr, group: exp.Expr | None) -> bool:
    """Return whether a star may expand to any columns, or GROUP BY ALL to any keys."""
    return any(item.is_star for item in select.expressions) or bool(group is not None and group.args.get("all"))


def out_of_range(select: exp.Expr) -> exp.Expr | None:
    """Return the first ordinal of GROUP BY or ORDER BY that exceeds the number of columns."""
    if any(item.is_star for item in select.expressions) or select.args.get("kind"):
        return None
    group = select.args.get("group")
    ordinals = [*(group.iter_expressions() if group is not None else ()), *_order_keys(select)]
    return next((key for key in ordinals if _ordinal(key) > len(select.expressions)), None)


def _ordinal(key: exp.Expr) -> int:
    return int(key.this) if isinstance(key, exp.Literal) and not key.is_string and str(key.this).isdigit() else 0


def _order_keys(select: exp.Expr) -> list[exp.Expr]:
    order = select.args.get("order")
    return [ordered.this for ordered in order.expressions] if order is not None else []


def _sources(select: exp.Expr) -> Iterator[exp.Expr]:
    from_ = select.args.get("from_")
    for source in ([from_.this] if from_ is not None else []) + [join.this for join in select.args.get("joins") or ()]:
        yield from joined_relations(source)


def _keys(select: exp.Expr, group: exp.Expr) -> Iterator[exp.Expr]:
    waiting = list(group.iter_expressions())
    while waiting:
        key = waiting.pop()
        place = _ordinal(key)
        if isinstance(key, _SETS):
            waiting += key.iter_expressions()
        elif 0 < place <= len(select.expressions):
            yield select.expressions[place - 1].unalias()
        else:
            yield key.unnest()


def _has_aggregate(node: exp.Expr) -> bool:
    """Return whether the expression aggregates rows, outside of sub-queries and windows."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, exp.AggFunc) and not _is_windowed(one):
            return True
        if not isinstance(one, exp.Query):
            waiting += one.iter_expressions()
    return False


def _is_windowed(node: exp.Expr) -> bool:
    around = node.parent
    while isinstance(around, (exp.IgnoreNulls, exp.RespectNulls)):
        around = around.parent
    return isinstance(around, exp.Window)


def _offenders(item: exp.Expr, keys: list[exp.Expr], own: frozenset[str]) -> Iterator[tuple[exp.Expr, str]]:
    waiting = [item.unalias()]
    while waiting:
        node = waiting.pop()
        if node in keys or node.unnest() in keys or isinstance(node, exp.Query):
            continue
        if isinstance(node, exp.AggFunc) and not _is_windowed(node):
            continue
        if is_event_path(node):
            value = path_value(node)
            if value not in keys and _is_own(value, own):
                yield node, ".".join([value.name, *path_steps(node)])
        elif _is_own(node, own):
            yield node, node.name
        elif not isinstance(node, exp.Anonymous):
            # Aggregates for which sqlglot has no class are Anonymous nodes, so these are not descended into.
            waiting += reversed(list(node.iter_expressions()))


def _is_own(node: exp.Expr, own: frozenset[str]) -> bool:
    return isinstance(node, exp.Column) and node.table.lower() in own
