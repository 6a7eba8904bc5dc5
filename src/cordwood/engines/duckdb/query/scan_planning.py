"""Plan the scans of a lowered tree: the stored table of each stream, and its memtable if it has events.

DuckDB finds the first few rows of one table fast: it begins with the row groups that can have them and materializes
only those events. It does neither over a union. So a query for its first few rows runs on each table alone, and its
answer is the first few rows of both results.
"""

from collections.abc import Sequence

from sqlglot import exp

from cordwood.engines.duckdb.query.late_materialization import first_of, is_few, is_of_newest, rows_wanted
from cordwood.engines.duckdb.query.plan_path import gathers, way_of
from cordwood.engines.duckdb.query.scan_source import Place, Source
from cordwood.sql.budget import copied
from cordwood.sql.typing import inherit

# The alias of the union; the parts inside it cannot refer to it.
_BOTH = "first of each"


def plan_scans(tree: exp.Expr, sources: Sequence[Source], *, at_rest: bool = False) -> exp.Expr:
    """Replace each stream by a scan of its stored table, plus its memtable unless `at_rest`; mutates the tree."""
    if len(sources) == 1 and isinstance(tree, exp.Select) and is_few(tree, sources[0]):
        return first_of(tree, sources[0], Place.SEALED, alone=True) if at_rest else _first_of_both(tree, sources[0])
    for source in sources:
        is_gathered = gathers(way_of(tree, source.table))
        places = (Place.SEALED, Place.HOT)[: 1 if at_rest else 2]
        source.read(*[source.events(place, all_of_them=is_gathered) for place in places])
    return tree


def plan_recent_scan(tree: exp.Expr, sources: Sequence[Source]) -> exp.Expr | None:
    """Return the tree over the recent table alone, if that table may contain all rows of the answer; else None."""
    if len(sources) != 1 or not isinstance(tree, exp.Select) or not is_of_newest(tree, sources[0]):
        return None
    alone = copied(tree)
    source = sources[0].twin(alone)
    source.read(source.events(Place.NEWEST))
    return alone


def _first_of_both(tree: exp.Select, source: Source) -> exp.Select:
    merged = exp.Select(expressions=[_handed_on(place, item) for place, item in enumerate(tree.expressions)])
    merged.set("order", _order(tree))
    for name in ("limit", "offset"):
        merged.set(name, tree.args.get(name) and copied(tree.args[name]))
    tree.set("limit", exp.Limit(expression=exp.Literal.number(rows_wanted(tree))))
    tree.set("offset", None)
    twin = copied(tree)
    both = exp.Union(
        this=first_of(tree, source, Place.SEALED),
        expression=first_of(twin, source.twin(twin), Place.HOT),
        distinct=False,
    )
    names = [_identifier(f"c{place}") for place, _ in enumerate(tree.expressions)]
    alias = exp.TableAlias(this=_identifier(_BOTH), columns=names)
    return merged.from_(exp.Subquery(this=both, alias=alias), copy=False)


def _order(tree: exp.Select) -> exp.Order:
    """Return the order by column positions; add columns that are ordered by and not selected."""
    keys = []
    for key in tree.args["order"].expressions:
        keys.append(copied(key))
        keys[-1].set("this", _column(_place_of(tree, key.this)))
    return exp.Order(expressions=keys)


def _place_of(tree: exp.Select, value: exp.Expr) -> int:
    if isinstance(value, exp.Literal) and value.is_int:
        return int(value.this) - 1
    tree.append("expressions", exp.alias_(copied(value), f"key {len(tree.expressions)}", quoted=True))
    return len(tree.expressions) - 1


def _handed_on(place: int, item: exp.Expr) -> exp.Expr:
    column = _column(place)
    inherit(column, item)
    alias = exp.alias_(column, item.alias, quoted=True)
    inherit(alias, item)
    return alias


def _column(place: int) -> exp.Column:
    return exp.column(f"c{place}", _BOTH, quoted=True)


def _identifier(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)
