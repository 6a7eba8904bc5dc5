"""Reads whole events late: the newest few are found by their narrow columns, and only they are put together.

DuckDB does so by itself for one table, but not over sealed events and those in memory together. So where a query
takes its first few rows in an order, a copy of it that tells only where their events lie runs first, and the query
reads no other events. It filters, orders and cuts again, and what was among the first few of all is among the
first few of these.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from cordwood.engines.duckdb.reach import Source, cte_of
from cordwood.engines.duckdb.tables import COLUMNS, StreamTables, quoted
from cordwood.sql.fragment import AT_SIGN, OPEN_BRACE, fragment

# Of more rows than this, every part of the file is likely to hold one.
_MOST_ROWS = 2000

# No column and no sub-query can be called so: such names are not admitted.
_PLACE = "place of the event"
_NEWEST = "newest events"

_WIDE = frozenset(name for name, kind in COLUMNS.items() if kind == "VARIANT")

# A row of a query with one of these depends on other events, too, or is not the same twice.
_BEYOND_ROWS = (
    exp.Window,
    exp.Group,
    exp.Having,
    exp.Distinct,
    exp.Qualify,
    exp.SetOperation,
    exp.Pivot,
    exp.TableSample,
    exp.Limit,
    exp.Offset,
    exp.Fetch,
    exp.Rand,
    exp.Uuid,
)


@dataclass(frozen=True, slots=True)
class _Step:
    """A SELECT between the events and the answer, and its name for the relation that the events come from."""

    select: exp.Select
    alias: str


def place_events(tree: exp.Expr, sources: Sequence[Source]) -> exp.Expr:
    """Put the streams' events where they are read; uses up the tree."""
    if len(sources) == 1 and isinstance(tree, exp.Select) and _gains(tree, sources[0]):
        _read_late(tree, sources[0])
    else:
        for source in sources:
            source.table.replace(_relation(source, _both(source)))
    return tree


def _read_late(tree: exp.Select, source: Source) -> None:
    finding = tree.copy()
    twin = Source(_only_table(finding, source), source.columns)
    for step in _way(finding, twin.table):
        step.select.append("expressions", exp.alias_(_column(_PLACE, step.alias), _PLACE, quoted=True))
    finding.set("limit", exp.Limit(expression=exp.Literal.number(_rows_wanted(tree))))
    finding.set("offset", None)
    twin.table.replace(_relation(twin, _both(twin, with_place=True)))
    source.table.replace(_relation(source, _only_newest(source)))
    _put_first(tree, exp.select(_column(_PLACE, "found")).from_(finding.subquery("found")))


def _put_first(tree: exp.Select, places: exp.Select) -> None:
    alias = exp.TableAlias(this=exp.to_identifier(_NEWEST, quoted=True))
    newest = exp.CTE(this=places, alias=alias, materialized=True)
    with_ = tree.args.get("with_")
    tree.set("with_", exp.With(expressions=[newest, *(with_.expressions if with_ else ())]))


# Whether it may, and pays


def _gains(tree: exp.Select, source: Source) -> bool:
    """Whether the first few rows are wanted, each made of its event alone, with a wide column of it as it is."""
    if tree.args.get("order") is None or not 0 < _rows_wanted(tree) <= _MOST_ROWS or _is_beyond_rows(tree):
        return False
    way = _way(tree, source.table)
    return bool(way) and _hands_on_wide(way)


def _rows_wanted(tree: exp.Select) -> int:
    """How many rows are taken or passed over; 0 where that is not said in numbers."""
    counts = [tree.args[key].expression for key in ("limit", "offset") if tree.args.get(key) is not None]
    if tree.args.get("limit") is None or not all(isinstance(one, exp.Literal) and one.is_int for one in counts):
        return 0
    return sum(int(one.this) for one in counts)


def _is_beyond_rows(tree: exp.Select) -> bool:
    own = (tree.args.get("limit"), tree.args.get("offset"))
    return any(all(found is not one for one in own) for found in tree.find_all(*_BEYOND_ROWS))


def _way(tree: exp.Select, table: exp.Table) -> list[_Step]:
    """From the events to the answer, where each SELECT on the way is read once and by the next; else nothing."""
    steps: list[_Step] = []
    relation: exp.Expr | None = table
    while relation is not None:
        select = _reader(relation)
        if select is None:
            return []
        steps.append(_Step(select, relation.alias_or_name))
        if select is tree:
            return steps
        relation = _only_reading(tree, select)
    return []


def _reader(relation: exp.Expr) -> exp.Select | None:
    """The SELECT that reads it in its FROM or joins it; not one that keeps rows which find no partner."""
    place = relation.parent
    select = place.parent if place is not None else None
    if not isinstance(place, exp.From | exp.Join) or not isinstance(select, exp.Select):
        return None
    return None if any(map(_keeps_or_drops, select.args.get("joins") or ())) else select


def _keeps_or_drops(join: exp.Join) -> bool:
    return bool(join.side or join.method or join.kind in ("SEMI", "ANTI"))


def _only_reading(tree: exp.Select, select: exp.Select) -> exp.Expr | None:
    holder = select.parent
    if isinstance(holder, exp.Subquery):
        return holder
    if not isinstance(holder, exp.CTE):
        return None
    named = [table for table in tree.find_all(exp.Table) if table.name == holder.alias and cte_of(table) is holder]
    return named[0] if len(named) == 1 else None


def _hands_on_wide(way: list[_Step]) -> bool:
    """Whether a wide column comes through as it is; where it does, no SELECT on the way can be an aggregate."""
    names = _WIDE
    for step in way:
        names = frozenset(item.alias for item in step.select.expressions if _is_of(item.unalias(), step.alias, names))
    return bool(names)


def _is_of(value: exp.Expr, alias: str, names: frozenset[str]) -> bool:
    return isinstance(value, exp.Column) and value.table == alias and value.name in names


# Printing


def _only_table(tree: exp.Select, source: Source) -> exp.Table:
    return next(
        table for table in tree.find_all(exp.Table) if table.name == source.table.name and cte_of(table) is None
    )


def _column(name: str, table: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(table, quoted=True))


def _relation(source: Source, sql: str) -> exp.Subquery:
    alias = exp.TableAlias(this=exp.to_identifier(source.table.alias_or_name, quoted=True))
    return exp.Subquery(this=fragment(sql.replace("{", OPEN_BRACE).replace("@", AT_SIGN)), alias=alias)


def _both(source: Source, *, with_place: bool = False) -> str:
    """Sealed events and those still in memory, with the columns that are read of them; the latter's places are below 0."""
    tables, columns = StreamTables(source.table.name), _columns(source)
    in_file, in_memory = (f", {place} AS {quoted(_PLACE)}" if with_place else "" for place in ("rowid", "-1 - rowid"))
    return (
        f"SELECT {columns}{in_file} FROM {tables.sealed} UNION ALL"  # noqa: S608 - our own names
        f" SELECT {columns}{in_memory} FROM {tables.hot}"
    )


def _only_newest(source: Source) -> str:
    tables, columns = StreamTables(source.table.name), _columns(source)
    place, newest = quoted(_PLACE), quoted(_NEWEST)
    return (
        f"SELECT {columns} FROM {tables.sealed}"  # noqa: S608 - our own names
        f" WHERE rowid IN (SELECT {place} FROM {newest} WHERE {place} >= 0)"
        f" UNION ALL SELECT {columns} FROM {tables.hot}"
        f" WHERE rowid IN (SELECT -1 - {place} FROM {newest} WHERE {place} < 0)"
    )


def _columns(source: Source) -> str:
    return ", ".join([*map(quoted, COLUMNS), *source.columns])
