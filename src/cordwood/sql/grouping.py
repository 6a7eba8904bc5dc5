"""GROUP BY keys, and checks for ungrouped columns and for ordinals out of range."""

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from cordwood.sql.nodes import constant_int, is_event_path, path_root, path_steps, relations_of

_GROUPING_SET_CLASSES: Final = (exp.Tuple, exp.Paren, exp.Rollup, exp.Cube, exp.GroupingSets)


def grouping_keys(group: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the keys of a GROUP BY, including those within grouping sets."""
    for key in group.iter_expressions():
        if isinstance(key, _GROUPING_SET_CLASSES):
            yield from grouping_keys(key)
        else:
            yield key


def resolve_group_ordinal(select: exp.Expr, key: exp.Expr) -> exp.Expr:
    """Return the selected expression that an ordinal in GROUP BY refers to; return any other key unchanged."""
    position = constant_int(key)
    if position is None or not 0 < position <= len(select.expressions):
        return key
    value: exp.Expr = select.expressions[position - 1]
    return value.unalias()


def find_ungrouped_column(select: exp.Expr) -> tuple[exp.Expr, str] | None:
    """Return the first ungrouped column and its name; None if there is none or if grouping cannot be checked."""
    group, having = select.args.get("group"), select.args.get("having")
    expressions = [*select.expressions, *([having.this] if having is not None else []), *_order_keys(select)]
    is_grouped = group is not None or having is not None or any(map(has_aggregate, expressions))
    if not is_grouped or _is_grouping_undecidable(select, group):
        return None
    return _find_first_ungrouped_column(select, group, expressions)


def _find_first_ungrouped_column(
    select: exp.Expr, group: exp.Expr | None, expressions: list[exp.Expr]
) -> tuple[exp.Expr, str] | None:
    sources = list(relations_of(select))
    source_names = frozenset(source.alias_or_name.lower() for source in sources if source.alias_or_name)
    keys = list(_resolved_grouping_keys(select, group)) if group is not None else []
    return next((found for item in expressions for found in _find_ungrouped_columns(item, keys, source_names)), None)


def _is_grouping_undecidable(select: exp.Expr, group: exp.Expr | None) -> bool:
    """Return whether grouping cannot be checked, because a star or GROUP BY ALL does not name its columns."""
    return any(item.is_star for item in select.expressions) or bool(group is not None and group.args.get("all"))


def find_invalid_ordinal(select: exp.Expr) -> exp.Expr | None:
    """Return the first ordinal of GROUP BY or ORDER BY that exceeds the number of columns."""
    if any(item.is_star for item in select.expressions) or select.args.get("kind"):
        return None
    group = select.args.get("group")
    ordinals = [*(group.iter_expressions() if group is not None else ()), *_order_keys(select)]
    return next((key for key in ordinals if _ordinal_or_zero(key) > len(select.expressions)), None)


def _ordinal_or_zero(key: exp.Expr) -> int:
    return int(key.this) if isinstance(key, exp.Literal) and not key.is_string and str(key.this).isdigit() else 0


def _order_keys(select: exp.Expr) -> list[exp.Expr]:
    order = select.args.get("order")
    return [ordered.this for ordered in order.expressions] if order is not None else []


def _resolved_grouping_keys(select: exp.Expr, group: exp.Expr) -> Iterator[exp.Expr]:
    pending = list(group.iter_expressions())
    while pending:
        key = pending.pop()
        position = _ordinal_or_zero(key)
        if isinstance(key, _GROUPING_SET_CLASSES):
            pending += key.iter_expressions()
        elif 0 < position <= len(select.expressions):
            yield select.expressions[position - 1].unalias()
        else:
            yield key.unnest()


def has_aggregate(node: exp.Expr) -> bool:
    """Return whether the expression aggregates rows; aggregates in sub-queries or with OVER do not count."""
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, exp.AggFunc) and not _is_windowed(current):
            return True
        if not isinstance(current, exp.Query):
            pending += current.iter_expressions()
    return False


def _is_windowed(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, (exp.IgnoreNulls, exp.RespectNulls)):
        parent = parent.parent
    return isinstance(parent, exp.Window)


def _find_ungrouped_columns(
    item: exp.Expr, keys: list[exp.Expr], source_names: frozenset[str]
) -> Iterator[tuple[exp.Expr, str]]:
    pending = [item.unalias()]
    while pending:
        node = pending.pop()
        if node in keys or node.unnest() in keys or isinstance(node, exp.Query):
            continue
        if isinstance(node, exp.AggFunc) and not _is_windowed(node):
            continue
        if is_event_path(node):
            value = path_root(node)
            if value not in keys and _is_column_of_sources(value, source_names):
                yield node, ".".join([value.name, *path_steps(node)])
        elif _is_column_of_sources(node, source_names):
            yield node, node.name
        elif not isinstance(node, exp.Anonymous):
            # If sqlglot has no class for an aggregate, the aggregate is an Anonymous node. Columns inside it need not
            # be grouped, so the search does not enter Anonymous nodes.
            pending += reversed(list(node.iter_expressions()))


def _is_column_of_sources(node: exp.Expr, source_names: frozenset[str]) -> bool:
    return isinstance(node, exp.Column) and node.table.lower() in source_names
