"""Late materialization: read wide columns only for the events that make the first few rows.

A copy of the query that selects only row ids runs first; the query itself then reads only those events. It filters,
orders and limits again, which gives the same rows. This is done for wide columns that are passed through unchanged, not
for columns that the copy would have to read as well.
"""

import msgspec
from sqlglot import exp

from cordwood.engines.duckdb.query.plan_path import Step, is_one_scan, way_of
from cordwood.engines.duckdb.query.scan_source import Place, Source
from cordwood.engines.duckdb.storage.tables import COLUMNS, quoted
from cordwood.sql.bigquery.grouping import selected_value
from cordwood.sql.budget import copied
from cordwood.sql.fragment import fragment

# With more rows than this, nearly every row group is likely to contain one of them.
_MOST_ROWS = 2000

# The most rows that are read from the recent table: about one page of the explorer.
_A_PAGE = 500

# The names of the generated column and CTE. A query that uses one of them is not rewritten.
_PLACE = "place of the event"
_NEWEST = "newest events"

_WIDE = frozenset(name for name, kind in COLUMNS.items() if kind == "VARIANT")
# More expensive to read than short columns, but cheap compared with wide ones.
_LONG = "event_message"

# With one of these, a row depends on other events, too, or differs between two runs.
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


def is_few(tree: exp.Select, source: Source) -> bool:
    """Return whether the query selects the first few rows of an order, each made from one event."""
    if tree.args.get("order") is None or not 0 < rows_wanted(tree) <= _MOST_ROWS or _is_beyond_rows(tree):
        return False
    if any(name.name.lower() in (_PLACE, _NEWEST) for name in tree.find_all(exp.Identifier)):
        return False
    return _hands_on(way_of(tree, source.table), frozenset(COLUMNS) | source.wide)


def is_of_newest(tree: exp.Select, source: Source) -> bool:
    """Return whether the query selects the newest events with their objects passed through unchanged."""
    if source.reads or source.narrowing or not is_few(tree, source) or rows_wanted(tree) > _A_PAGE:
        return False
    key = tree.args["order"].expressions[0]
    column = selected_value(tree, key.this)
    is_by_time = isinstance(column, exp.Column) and column.name == "timestamp" and key.args.get("desc")
    return bool(is_by_time) and _only_told(tree, source) == _WIDE


def first_of(tree: exp.Select, source: Source, place: Place, *, alone: bool = False) -> exp.Select:
    """Rewrite the query over one table; `alone` if its column types need not agree with those of another part."""
    if not _pays(tree, source, place):
        source.read(source.events(place))
        return tree
    places = _finding(tree, source, place)
    source = _found_by_now(tree, source)
    found = fragment(f"rowid IN (SELECT {quoted(_PLACE)} FROM {quoted(_NEWEST)})")  # noqa: S608 - our own names
    source.read(source.few_events(place, found, _only_told(tree, source) if alone else frozenset()))
    _put_first(tree, places)
    return tree


def _only_told(tree: exp.Select, source: Source) -> frozenset[str]:
    """Return the wide columns that are only passed through: read as texts, they are copied once less by sorting."""
    way = way_of(tree, source.table)
    if len(way) > 1 or not is_one_scan(tree, way):
        return frozenset()
    looked_at = {column.name for column in tree.find_all(exp.Column) if not _is_answered(column, tree)}
    return _WIDE - looked_at


def _is_answered(column: exp.Column, tree: exp.Select) -> bool:
    return isinstance(column.parent, exp.Alias) and column.parent.parent is tree


def _found_by_now(tree: exp.Select, source: Source) -> Source:
    """Remove the query's filters if each event makes at most one row: the row ids have passed them already."""
    way = way_of(tree, source.table)
    if not is_one_scan(tree, way):
        return source
    for step in way:
        step.select.set("where", None)
    return msgspec.structs.replace(source, matches=(), narrowing=())


def _pays(tree: exp.Select, source: Source, place: Place) -> bool:
    way = way_of(tree, source.table)
    if is_one_scan(tree, way) and place is not Place.SEALED:
        return False
    if _hands_on(way, _WIDE | source.wide) or _makes_of_whole(tree, way):
        return True
    return _hands_on(way, frozenset([_LONG])) and not _finds_few(tree, source)


def _makes_of_whole(tree: exp.Select, way: list[Step]) -> bool:
    """Return whether an answered column is computed from a whole wide one, so that computing it for few rows pays."""
    if not is_one_scan(tree, way):
        return False
    columns = (column for item in tree.expressions for column in item.find_all(exp.Column))
    return any(column.name in _WIDE and column.table == way[-1].alias for column in columns)


def _finds_few(tree: exp.Select, source: Source) -> bool:
    """Return whether a filter is on messages or on one project, whose events are stored together."""
    filters = list(tree.find_all(exp.Where))
    looks = any(column.name == _LONG for one in filters for column in one.find_all(exp.Column))
    compared = {
        column.name for one in filters for equal in one.find_all(exp.EQ) for column in equal.find_all(exp.Column)
    }
    return bool(source.matches) or looks or "project" in compared


def rows_wanted(tree: exp.Select) -> int:
    """Return LIMIT plus OFFSET; 0 if one of them is not a literal number."""
    counts = [tree.args[key].expression for key in ("limit", "offset") if tree.args.get(key) is not None]
    if tree.args.get("limit") is None or not all(isinstance(one, exp.Literal) and one.is_int for one in counts):
        return 0
    return sum(int(one.this) for one in counts)


def _finding(tree: exp.Select, source: Source, place: Place) -> exp.Select:
    """Return the query that selects the row ids of the first few rows."""
    finding = copied(tree)
    twin = source.twin(finding)
    finding.set("limit", exp.Limit(expression=exp.Literal.number(rows_wanted(tree))))
    finding.set("offset", None)
    way = way_of(finding, twin.table)
    order = _order_by_values(finding) if len(way) == 1 else None
    if order is not None:
        finding.set("order", order)
        finding.set("expressions", [])
    for step in way:
        step.select.append("expressions", exp.alias_(exp.column(_PLACE, step.alias, quoted=True), _PLACE, quoted=True))
    twin.read(twin.events(place, fragment(f"rowid AS {quoted(_PLACE)}")))
    if order is not None:
        return finding
    return exp.select(exp.column(_PLACE, "found", quoted=True)).from_(finding.subquery("found"))


def _order_by_values(tree: exp.Select) -> exp.Order | None:
    """Return the order by expressions instead of aliases; None if a name is ambiguous."""
    keys = []
    for key in tree.args["order"].expressions:
        value = selected_value(tree, key.this)
        columns = list(value.find_all(exp.Column))
        if not columns or not all(column.table for column in columns):
            return None
        keys.append(copied(key))
        keys[-1].set("this", copied(value))
    return exp.Order(expressions=keys)


def _put_first(tree: exp.Select, places: exp.Query) -> None:
    alias = exp.TableAlias(this=exp.to_identifier(_NEWEST, quoted=True))
    newest = exp.CTE(this=places, alias=alias, materialized=True)
    with_ = tree.args.get("with_")
    tree.set("with_", exp.With(expressions=[newest, *(with_.expressions if with_ else ())]))


def _is_beyond_rows(tree: exp.Select) -> bool:
    own = (tree.args.get("limit"), tree.args.get("offset"))
    return any(all(found is not one for one in own) for found in tree.find_all(*_BEYOND_ROWS))


def _hands_on(way: list[Step], names: frozenset[str]) -> bool:
    """Return whether one of the columns is passed through by every SELECT; then none of them aggregates."""
    if not way:
        return False
    for step in way:
        names = frozenset(item.alias for item in step.select.expressions if _is_of(item.unalias(), step.alias, names))
    return bool(names)


def _is_of(value: exp.Expr, alias: str, names: frozenset[str]) -> bool:
    return isinstance(value, exp.Column) and value.table == alias and value.name in names
