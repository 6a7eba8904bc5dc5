"""Translation of an LQL query to the equivalent SELECT."""

from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import QuerySyntax
from cordwood.lql.chart import write_chart
from cordwood.lql.columns import RecordUnnests, SubQueryInfo
from cordwood.lql.filters import TIMESTAMP_COLUMN, Conditions
from cordwood.lql.query import Order, Path, Query, SelectedColumn
from cordwood.sql.query_templates import alias, fill, identifier, number, ordered, table

DEFAULT_COLUMNS: Final = ("id", TIMESTAMP_COLUMN, "event_message")


class Translation(msgspec.Struct, frozen=True):
    """A SELECT, and notices about its answer."""

    tree: exp.Select
    notices: tuple[str, ...] = ()


def translate_query(query: Query, info: SubQueryInfo, zone: str, *, is_ordered: bool = True) -> Translation:
    """Translate a query; raise UnknownName, QueryValue or QuerySyntax if it does not fit the sub-query's columns.

    Unless `is_ordered`, rows have only the order that the query requests.
    """
    conditions = Conditions(info, zone, RecordUnnests(info))
    if query.is_chart:
        if query.columns:
            raise QuerySyntax(
                "s: and c: cannot be said together.",
                hint="A chart has its own columns: leave s: out, or group by the path with c:group_by(…).",
                span=info.span(query.columns[0].offset),
            )
        tree, notices = write_chart(query, info, conditions)
    else:
        tree, notices = _select_rows(query, info, conditions, is_ordered=is_ordered), ()
    if query.limit:
        tree = tree.limit(number(str(query.limit.rows), query.limit.offset), copy=False)
    return Translation(tree, notices)


def _select_rows(query: Query, info: SubQueryInfo, conditions: Conditions, *, is_ordered: bool) -> exp.Select:
    columns = _output_columns(query, info, conditions.unnests)
    tree = exp.Select(expressions=columns).from_(table(info.sub_query), copy=False)
    condition = conditions.all(query.filter)
    requested = _sort_keys(query, info) if is_ordered else query.orders
    orders = [_sort_key(order, conditions.unnests) for order in requested]
    conditions.unnests.join_into(tree)
    if condition is not None:
        tree.where(condition, copy=False)
    return tree.order_by(*orders, copy=False) if orders else tree


def _sort_keys(query: Query, info: SubQueryInfo) -> tuple[Order, ...]:
    """Return the requested order, or by default the newest events first."""
    if query.orders or not info.has_column(TIMESTAMP_COLUMN):
        return query.orders
    return (Order(Path((TIMESTAMP_COLUMN,)), is_descending=True),)


def _sort_key(order: Order, unnests: RecordUnnests) -> exp.Expr:
    return ordered(unnests.column(order.path), order.is_descending)


def _output_columns(query: Query, info: SubQueryInfo, unnests: RecordUnnests) -> list[exp.Expr]:
    if query.columns:
        return _selected_columns(query.columns, info, unnests)
    if all(info.has_column(name) for name in DEFAULT_COLUMNS):
        return [unnests.column(Path((name,))) for name in DEFAULT_COLUMNS]
    return [_star_without_unnested(info, 0)]


def _star_without_unnested(info: SubQueryInfo, offset: int) -> exp.Expr:
    """Return a star over the sub-query's columns, except the records that are unnested."""
    star = fill("*", offset)
    return exp.Column(this=star, table=identifier(info.sub_query, offset))


def _selected_columns(
    selected: tuple[SelectedColumn, ...], info: SubQueryInfo, unnests: RecordUnnests
) -> list[exp.Expr]:
    names: dict[str, int] = {}
    columns: list[exp.Expr] = []
    seen_columns: set[SelectedColumn] = set()
    for selected_column in selected:
        if selected_column.path is None:
            columns.append(_star_without_unnested(info, selected_column.offset))
            continue
        if selected_column in seen_columns:
            continue
        seen_columns.add(selected_column)
        name = selected_column.alias or selected_column.path.last
        _check_unused_name(name, names, selected_column, info)
        column = unnests.column(selected_column.path)
        columns.append(column if column.name == name else alias(column, name, selected_column.offset))
    return columns


def _check_unused_name(name: str, names: dict[str, int], selected_column: SelectedColumn, info: SubQueryInfo) -> None:
    if name.lower() in names:
        raise QuerySyntax(
            f"Two columns are called {name}.",
            hint=f"Name one of them, as in s:{name}@other.",
            span=info.span(selected_column.offset),
        )
    names[name.lower()] = selected_column.offset
