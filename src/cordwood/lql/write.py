"""Translation of a query to the equivalent SELECT."""

from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import QuerySyntax
from cordwood.lql.chart import write_chart
from cordwood.lql.filters import TIMESTAMP, Conditions
from cordwood.lql.known import Known
from cordwood.lql.query import Order, Path, Query, Selected
from cordwood.lql.records import Records
from cordwood.sql.query_templates import alias, fill, identifier, number, ordered, table

DEFAULT_COLUMNS: Final = ("id", TIMESTAMP, "event_message")


class Written(msgspec.Struct, frozen=True):
    """A SELECT, and notices about its answer."""

    tree: exp.Select
    notices: tuple[str, ...] = ()


def write(query: Query, known: Known, zone: str) -> Written:
    """Translate a query; raise UnknownName, QueryValue or QuerySyntax if the sub-query does not have what it reads."""
    conditions = Conditions(known, zone, Records(known))
    if query.is_chart:
        if query.selected:
            raise QuerySyntax(
                "s: and c: cannot be said together.",
                hint="A chart has its own columns: leave s: out, or group by the path with c:group_by(…).",
                span=known.span(query.selected[0].at),
            )
        tree, notices = write_chart(query, known, conditions)
    else:
        tree, notices = _rows(query, known, conditions), ()
    if query.limit:
        tree = tree.limit(number(str(query.limit.rows), query.limit.at), copy=False)
    return Written(tree, notices)


def _rows(query: Query, known: Known, conditions: Conditions) -> exp.Select:
    columns = _columns(query, known, conditions.records)
    tree = exp.Select(expressions=columns).from_(table(known.sub_query), copy=False)
    kept = conditions.all(query.filter)
    orders = [_ordered(order, conditions.records) for order in _orders(query, known)]
    conditions.records.join_into(tree)
    if kept is not None:
        tree.where(kept, copy=False)
    return tree.order_by(*orders, copy=False) if orders else tree


def _orders(query: Query, known: Known) -> tuple[Order, ...]:
    """Return the requested order, or by default the newest events first."""
    if query.orders or not known.has(TIMESTAMP):
        return query.orders
    return (Order(Path((TIMESTAMP,)), is_descending=True),)


def _ordered(order: Order, records: Records) -> exp.Expr:
    return ordered(records.column(order.path), order.is_descending)


def _columns(query: Query, known: Known, records: Records) -> list[exp.Expr]:
    if query.selected:
        return _selected(query.selected, known, records)
    if all(known.has(name) for name in DEFAULT_COLUMNS):
        return [records.column(Path((name,))) for name in DEFAULT_COLUMNS]
    return [_everything(known, 0)]


def _everything(known: Known, at: int) -> exp.Expr:
    """Return a star over the sub-query's columns, without the records that are unnested."""
    star = fill("*", at)
    return exp.Column(this=star, table=identifier(known.sub_query, at))


def _selected(selected: tuple[Selected, ...], known: Known, records: Records) -> list[exp.Expr]:
    names: dict[str, int] = {}
    columns: list[exp.Expr] = []
    already: set[Selected] = set()
    for wanted in selected:
        if wanted.path is None:
            columns.append(_everything(known, wanted.at))
            continue
        if wanted in already:
            continue
        already.add(wanted)
        name = wanted.alias or wanted.path.last
        _check_new(name, names, wanted, known)
        made = records.column(wanted.path)
        columns.append(made if made.name == name else alias(made, name, wanted.at))
    return columns


def _check_new(name: str, names: dict[str, int], wanted: Selected, known: Known) -> None:
    if name.lower() in names:
        raise QuerySyntax(
            f"Two columns are called {name}.",
            hint=f"Name one of them, as in s:{name}@other.",
            span=known.span(wanted.at),
        )
    names[name.lower()] = wanted.at
