"""Reads the first few rows of one table of events, and of no more events than those are made of.

A copy of the query that tells only where its events lie runs first, and the query reads no other events. It filters,
orders and cuts again, and what was among the first few of all is among the first few of these. That is done where it
pays: for what is wide and comes through as it is, not for what the copy would have to read too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from cordwood.engines.duckdb.reach import Source
from cordwood.engines.duckdb.tables import COLUMNS, StreamTables, quoted
from cordwood.engines.duckdb.way import only_reading, reader

# Of more rows than this, every part of the file is likely to hold one.
_MOST_ROWS = 2000

# No column and no sub-query can be called so: such names are not admitted.
_PLACE = "place of the event"
_NEWEST = "newest events"

_WIDE = frozenset(name for name, kind in COLUMNS.items() if kind == "VARIANT")
# Dearer to read than what is short, and cheap beside what is wide.
_LONG = "event_message"

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


def is_few(tree: exp.Select, source: Source) -> bool:
    """Whether the first few rows are wanted in an order, and each is made of its event alone."""
    if tree.args.get("order") is None or not 0 < rows_wanted(tree) <= _MOST_ROWS or _is_beyond_rows(tree):
        return False
    return _hands_on(_way(tree, source.table), frozenset(COLUMNS))


def first_of(tree: exp.Select, source: Source, table: str) -> exp.Select:
    """The tree, of which `is_few` is true, over one table."""
    if not _pays(tree, source, table):
        source.read(source.events(table))
        return tree
    places = exp.select(exp.column(_PLACE, "found", quoted=True)).from_(_finding(tree, source, table).subquery("found"))
    source = _found_by_now(tree, source)
    source.read(source.events(table, only=f"rowid IN (SELECT {quoted(_PLACE)} FROM {quoted(_NEWEST)})"))  # noqa: S608
    _put_first(tree, places)
    return tree


def _found_by_now(tree: exp.Select, source: Source) -> Source:
    """Where an event makes one row at most, those that were found pass every filter: to ask again costs a third of the time."""
    way = _way(tree, source.table)
    if not _is_one_scan(tree, way):
        return source
    for step in way:
        step.select.set("where", None)
    return replace(source, matches="", narrowing="")


def _pays(tree: exp.Select, source: Source, table: str) -> bool:
    way = _way(tree, source.table)
    if _is_one_scan(tree, way) and table != StreamTables(source.table.name).sealed:
        return False
    return _hands_on(way, _WIDE) or (_hands_on(way, frozenset([_LONG])) and not _finds_few(tree, source))


def _finds_few(tree: exp.Select, source: Source) -> bool:
    """Whether messages are looked at to find the events, or those of one project alone, which lie together."""
    filters = list(tree.find_all(exp.Where))
    looks = any(column.name == _LONG for one in filters for column in one.find_all(exp.Column))
    compared = {
        column.name for one in filters for equal in one.find_all(exp.EQ) for column in equal.find_all(exp.Column)
    }
    return bool(source.matches) or looks or "project" in compared


def rows_wanted(tree: exp.Select) -> int:
    """How many rows are taken or passed over; 0 where that is not said in numbers."""
    counts = [tree.args[key].expression for key in ("limit", "offset") if tree.args.get(key) is not None]
    if tree.args.get("limit") is None or not all(isinstance(one, exp.Literal) and one.is_int for one in counts):
        return 0
    return sum(int(one.this) for one in counts)


def _finding(tree: exp.Select, source: Source, table: str) -> exp.Select:
    """The query, telling where its first few rows come from."""
    finding = tree.copy()
    twin = source.twin(finding)
    for step in _way(finding, twin.table):
        step.select.append("expressions", exp.alias_(exp.column(_PLACE, step.alias, quoted=True), _PLACE, quoted=True))
    finding.set("limit", exp.Limit(expression=exp.Literal.number(rows_wanted(tree))))
    finding.set("offset", None)
    twin.read(twin.events(table, f"rowid AS {quoted(_PLACE)}"))
    return finding


def _put_first(tree: exp.Select, places: exp.Query) -> None:
    alias = exp.TableAlias(this=exp.to_identifier(_NEWEST, quoted=True))
    newest = exp.CTE(this=places, alias=alias, materialized=True)
    with_ = tree.args.get("with_")
    tree.set("with_", exp.With(expressions=[newest, *(with_.expressions if with_ else ())]))


def _is_one_scan(tree: exp.Select, way: Sequence[_Step]) -> bool:
    return tree.find(exp.Join) is None and len(list(tree.find_all(exp.Select))) == len(way)


def _is_beyond_rows(tree: exp.Select) -> bool:
    own = (tree.args.get("limit"), tree.args.get("offset"))
    return any(all(found is not one for one in own) for found in tree.find_all(*_BEYOND_ROWS))


def _way(tree: exp.Select, table: exp.Table) -> list[_Step]:
    """From the events to the answer, where each SELECT on the way is read once and by the next; else nothing."""
    steps: list[_Step] = []
    relation: exp.Expr | None = table
    while relation is not None:
        select = reader(relation)
        if select is None:
            return []
        steps.append(_Step(select, relation.alias_or_name))
        if select is tree:
            return steps
        relation = only_reading(tree, select)
    return []


def _hands_on(way: list[_Step], names: frozenset[str]) -> bool:
    """Whether one of the columns comes through as it is; where it does, no SELECT on the way can be an aggregate."""
    if not way:
        return False
    for step in way:
        names = frozenset(item.alias for item in step.select.expressions if _is_of(item.unalias(), step.alias, names))
    return bool(names)


def _is_of(value: exp.Expr, alias: str, names: frozenset[str]) -> bool:
    return isinstance(value, exp.Column) and value.table == alias and value.name in names
