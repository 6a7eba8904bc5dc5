"""Split an aggregation over one stream, so that unchanged blocks are aggregated only once and the results are merged.

`mark_splittable_aggregations` finds the aggregations in the resolved tree that can be split. Such an aggregation is a
SELECT that groups the events of one stream by expressions of the event and of parameters. All of its other columns are
aggregates that can be merged exactly. `split_aggregation` makes the trees of a `PartialAnswerPlan` from the lowered
tree.

A partial answer must not depend on the time of the call. Therefore the call's time and sub-queries may occur only in
time bounds. A time bound is a conjunct of WHERE that compares the event's time with a value that does not depend on the
event. It is true for all events of an hour if it is true for the first and the last moment of the hour.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.engines.duckdb.query.scan_planning import EventTable, ScanSource
from cordwood.model.datatype import Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import inherit_metadata, kind_of
from cordwood.sql.lowering import (
    fragment_node,
    identifier_node,
    join_fragments,
    partial_rows_node,
    uncovered_blocks_node,
)
from cordwood.sql.nodes import NOW_SLOT_NAME, constant_int, non_recursive_cte, relations_of, split_and_conditions
from cordwood.sql.plan import EventRange, MergeAggregate, TimeComparison
from cordwood.sql.stages import PartialAnswerTrees, VariantTree

# Keys in the `meta` of nodes. A SELECT that can be split has the first two: how each of its columns is merged, and how
# many conjuncts of WHERE are time bounds. Each conjunct that is a time bound has the third key.
_MERGE_AGGREGATES_METADATA_KEY: Final = "merges"
_TIME_BOUND_COUNT_METADATA_KEY: Final = "time_bounds"
_TIME_BOUND_METADATA_KEY: Final = "time_bound"
_TIME_COLUMN: Final = "timestamp"
# The alias of the union from which the merging SELECT reads.
_PARTIAL_ROWS_ALIAS: Final = "partial"
# An hour in microseconds. Each block is aggregated by hour, so that a block that is only partly within the time bounds
# can be used, too. For the hours that are wholly within the bounds, partial answers are used. The query reads the
# block's other events.
HOUR_US: Final = 3_600_000_000
# Statements with more nodes than this are not split, because the copies of their trees count towards the limits of
# compilation.
_MAX_SPLITTABLE_TREE_NODES: Final = 3_000

_SPLITTABLE_SELECT_CLAUSES: Final = frozenset(
    {"expressions", "from_", "joins", "where", "group", "order", "limit", "offset", "with_"}
)
_GROUP_KEY_KINDS: Final = frozenset({Kind.STRING, Kind.INT64, Kind.BOOL, Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE})
_MIN_MAX_KINDS: Final = frozenset({Kind.STRING, Kind.INT64, Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE})
_ALL_KINDS: Final = frozenset(Kind)
# The classes of aggregates that can be merged, each with the way to merge its results, and with the kinds of argument
# for which merging is exact.
_MERGEABLE_AGGREGATES: Final[Mapping[type[exp.Expr], tuple[MergeAggregate, frozenset[Kind]]]] = {
    exp.Count: (MergeAggregate.SUM, _ALL_KINDS),
    exp.CountIf: (MergeAggregate.SUM, _ALL_KINDS),
    exp.Sum: (MergeAggregate.SUM, frozenset({Kind.INT64})),
    exp.Min: (MergeAggregate.MIN, _MIN_MAX_KINDS),
    exp.Max: (MergeAggregate.MAX, _MIN_MAX_KINDS),
    exp.LogicalAnd: (MergeAggregate.BOOL_AND, frozenset({Kind.BOOL})),
    exp.LogicalOr: (MergeAggregate.BOOL_OR, frozenset({Kind.BOOL})),
    exp.BitwiseAndAgg: (MergeAggregate.BIT_AND, frozenset({Kind.INT64})),
    exp.BitwiseOrAgg: (MergeAggregate.BIT_OR, frozenset({Kind.INT64})),
    exp.BitwiseXorAgg: (MergeAggregate.BIT_XOR, frozenset({Kind.INT64})),
}
# Modifiers of an aggregate's argument, which change the values that are aggregated or their order.
_ARGUMENT_MODIFIERS: Final = (exp.Distinct, exp.Order, exp.Limit, exp.HavingMax, exp.IgnoreNulls, exp.RespectNulls)
_TIME_COMPARISON_BY_NODE_CLASS: Final[Mapping[type[exp.Expr], TimeComparison]] = {
    exp.GT: TimeComparison.AFTER,
    exp.GTE: TimeComparison.AT_OR_AFTER,
    exp.LT: TimeComparison.BEFORE,
    exp.LTE: TimeComparison.AT_OR_BEFORE,
}
_MIRRORED_TIME_COMPARISONS: Final = {
    TimeComparison.AFTER: TimeComparison.BEFORE,
    TimeComparison.AT_OR_AFTER: TimeComparison.AT_OR_BEFORE,
    TimeComparison.BEFORE: TimeComparison.AFTER,
    TimeComparison.AT_OR_BEFORE: TimeComparison.AT_OR_AFTER,
}


def mark_splittable_aggregations(tree: exp.Expr) -> None:
    """Mark the aggregations of a resolved tree that can be split."""
    if sum(1 for _ in tree.walk()) > _MAX_SPLITTABLE_TREE_NODES:
        return
    for select in tree.find_all(exp.Select):
        merges = _merge_aggregates_of(select)
        if merges is not None:
            bounds = _time_bound_conditions_of(select)
            for bound in bounds:
                bound.meta[_TIME_BOUND_METADATA_KEY] = True
            select.meta[_MERGE_AGGREGATES_METADATA_KEY], select.meta[_TIME_BOUND_COUNT_METADATA_KEY] = (
                merges,
                len(bounds),
            )


def _merge_aggregates_of(select: exp.Select) -> tuple[MergeAggregate, ...] | None:
    """Return for each column how its partial results are merged, or None if the SELECT cannot be split."""
    clauses = {key for key, value in select.args.items() if value}
    aliases = _relation_aliases(select)
    if not clauses <= _SPLITTABLE_SELECT_CLAUSES or aliases is None or not _is_ordered_by_position(select):
        return None
    keys = _group_key_positions(select)
    if keys is None:
        return None
    merges = tuple(
        _merge_of_group_key(item.unalias()) if position in keys else _merge_of_aggregate(item.unalias())
        for position, item in enumerate(select.expressions, 1)
    )
    mergeable = tuple(merge for merge in merges if merge is not None)
    if len(mergeable) < len(merges) or not all(
        _depends_only_on_event(part, aliases) for part in _find_expressions_outside_time_bounds(select)
    ):
        return None
    return mergeable


def _relation_aliases(select: exp.Select) -> frozenset[str] | None:
    """Return the aliases in FROM, or None if FROM has relations other than one stream and unnested arrays."""
    from_ = select.args.get("from_")
    table = from_.this if from_ is not None else None
    if not isinstance(table, exp.Table) or not table.meta_get("stream") or table.args.get("joins"):
        return None
    relations = list(relations_of(select))
    if not all(relation is table or isinstance(relation, exp.Unnest) for relation in relations):
        return None
    return frozenset(relation.alias_or_name for relation in relations)


def _is_ordered_by_position(select: exp.Select) -> bool:
    order = select.args.get("order")
    return order is None or all(constant_int(key.this) is not None for key in order.expressions)


def _group_key_positions(select: exp.Select) -> frozenset[int] | None:
    """Return the positions of the columns by which a SELECT groups, or None if GROUP BY has anything but positions."""
    group = select.args.get("group")
    if group is None:
        return frozenset()
    if any(value for name, value in group.args.items() if name != "expressions"):
        return None
    positions = [constant_int(key) for key in group.expressions]
    found = frozenset(position for position in positions if position is not None)
    return found if len(found) == len(group.expressions) else None


def _merge_of_group_key(value: exp.Expr) -> MergeAggregate | None:
    return MergeAggregate.GROUP_KEY if kind_of(value) in _GROUP_KEY_KINDS else None


def _merge_of_aggregate(value: exp.Expr) -> MergeAggregate | None:
    """Return how the results of the aggregate `value` are merged, or None if they cannot be merged exactly."""
    merge, kinds = _MERGEABLE_AGGREGATES.get(type(value), (None, _ALL_KINDS))
    argument = value.this
    if merge is None or value.expressions or isinstance(argument, _ARGUMENT_MODIFIERS):
        return None
    if kinds is _ALL_KINDS:
        return merge
    return merge if isinstance(argument, exp.Expr) and kind_of(argument) in kinds else None


def _find_expressions_outside_time_bounds(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the parts of a SELECT that must be independent of the time of the call: columns, joins and conditions.

    The conditions that are time bounds are left out.
    """
    yield from select.expressions
    yield from select.args.get("joins") or ()
    bounds = set(map(id, _time_bound_conditions_of(select)))
    yield from (
        condition for condition in split_and_conditions(select.args.get("where")) if id(condition) not in bounds
    )


def _depends_only_on_event(part: exp.Expr, aliases: frozenset[str]) -> bool:
    """Return whether the value of `part` depends only on one event and on parameters, not on the call's time."""
    return (
        part.find(exp.Query, exp.Window) is None
        and all(parameter.name != NOW_SLOT_NAME for parameter in part.find_all(exp.Parameter))
        and all(column.table in aliases for column in part.find_all(exp.Column))
    )


def _time_bound_conditions_of(select: exp.Select) -> list[exp.Expr]:
    """Return the conditions that are time bounds.

    They compare the event's time with values that do not depend on the event.
    """
    aliases = frozenset(relation.alias_or_name for relation in relations_of(select))
    found = []
    for condition in split_and_conditions(select.args.get("where")):
        values = [value for _, value in _time_bounds_in(condition, select.args["from_"].this.alias_or_name)]
        if values and all(
            kind_of(value) is Kind.TIMESTAMP and _is_independent_of_events(value, aliases) for value in values
        ):
            found.append(condition)
    return found


def _time_bounds_in(condition: exp.Expr, stream_alias: str) -> list[tuple[TimeComparison, exp.Expr]]:
    """Return the comparisons with the event's time that a condition consists of, each with the compared value.

    For any other condition, return an empty list.
    """

    def is_event_time(node: exp.Expr) -> bool:
        return isinstance(node, exp.Column) and node.name == _TIME_COLUMN and node.table == stream_alias

    if isinstance(condition, exp.Between) and is_event_time(condition.this) and not condition.args.get("symmetric"):
        return [
            (TimeComparison.AT_OR_AFTER, condition.args["low"]),
            (TimeComparison.AT_OR_BEFORE, condition.args["high"]),
        ]
    comparison = _TIME_COMPARISON_BY_NODE_CLASS.get(type(condition))
    if comparison is None:
        return []
    if is_event_time(condition.this):
        return [(comparison, condition.expression)]
    return [(_MIRRORED_TIME_COMPARISONS[comparison], condition.this)] if is_event_time(condition.expression) else []


def _is_independent_of_events(value: exp.Expr, aliases: frozenset[str]) -> bool:
    """Return whether the value reads neither the relations of its SELECT (`aliases`) nor those of an outer query."""
    inner = {relation.alias_or_name for query in value.find_all(exp.Select) for relation in relations_of(query)}
    return not inner & aliases and all(column.table in inner for column in value.find_all(exp.Column))


def split_aggregation(tree: exp.Expr, source: ScanSource) -> PartialAnswerTrees | None:
    """Return the trees of a `PartialAnswerPlan` for the marked aggregation, or None if it cannot be split.

    `source` is the only scan of the lowered tree.
    """
    select = _find_marked_select(tree)
    if select is None or source.flushed_filters or source.table.find_ancestor(exp.Select) is not select:
        return None
    bounds = _find_lowered_time_bounds(select, source)
    bounds_tree = _time_bounds_query(tree, [value for _, value in bounds or ()])
    if bounds is None or bounds_tree is None:
        return None
    alternatives = ((EventRange.ALL, False), (EventRange.FLUSHED, True))
    return PartialAnswerTrees(
        source.table.name,
        select.meta[_MERGE_AGGREGATES_METADATA_KEY],
        tuple(comparison for comparison, _ in bounds),
        bounds_tree if bounds else None,
        _block_aggregation_query(select, source),
        tuple(VariantTree(_merging_query(tree, source, at_rest=at_rest), reads) for reads, at_rest in alternatives),
    )


def _find_lowered_time_bounds(select: exp.Select, source: ScanSource) -> list[tuple[TimeComparison, exp.Expr]] | None:
    """Return the time bounds of a lowered SELECT, or None if one of them is no longer recognizable after lowering."""
    marked = _find_marked_time_conditions(select)
    by_condition = [_time_bounds_in(condition, source.table.alias_or_name) for condition in marked]
    is_complete = len(marked) == select.meta[_TIME_BOUND_COUNT_METADATA_KEY] and all(by_condition)
    return [bound for bounds in by_condition for bound in bounds] if is_complete else None


def _find_marked_select(tree: exp.Expr) -> exp.Select | None:
    return next(
        (select for select in tree.find_all(exp.Select) if select.meta_get(_MERGE_AGGREGATES_METADATA_KEY)), None
    )


def _find_marked_time_conditions(select: exp.Select) -> list[exp.Expr]:
    return [
        condition
        for condition in split_and_conditions(select.args.get("where"))
        if condition.meta_get(_TIME_BOUND_METADATA_KEY)
    ]


def _time_bounds_query(tree: exp.Expr, values: Sequence[exp.Expr]) -> exp.Expr | None:
    """Return a query that computes the values of the time bounds in microseconds, or None if it would read events.

    The query may read CTEs, but only if these do not read events either.
    """
    columns = [
        exp.alias_(fragment_node("epoch_us({0})", copy_tree(value)), f"b{index}", quoted=True)
        for index, value in enumerate(values)
    ]
    query = exp.Select(expressions=columns)
    names = {table.name for value in values for table in value.find_all(exp.Table)}
    if not names:
        return query
    with_ = tree.args.get("with_")
    ctes = _ctes_without_streams(with_) if with_ is not None and not with_.args.get("recursive") else []
    if not names <= {cte.alias for cte in ctes}:
        return None
    query.set("with_", exp.With(expressions=[copy_tree(cte) for cte in ctes]))
    return query


def _ctes_without_streams(with_: exp.Expr) -> list[exp.Expr]:
    """Return the CTEs that read no stream: each reads no tables at all, or only other CTEs that are returned."""
    kept: dict[str, exp.Expr] = {}
    for cte in with_.expressions:
        tables = list(cte.find_all(exp.Table))
        if all(table.name in kept and non_recursive_cte(table) is kept[table.name] for table in tables):
            kept[cte.alias] = cte
    return list(kept.values())


def _set_flushed_filters(source: ScanSource, *filters: exp.Expr) -> ScanSource:
    return msgspec.structs.replace(source, flushed_filters=filters)


def _block_aggregation_query(select: exp.Select, source: ScanSource) -> exp.Expr:
    """Return the query that aggregates the events of each hour of each block, without the time bounds.

    The last two columns of the query are the hour and the block's number.
    """
    query = copy_tree(select)
    for clause in ("order", "limit", "offset", "with_"):
        query.set(clause, None)
    bounds = _find_marked_time_conditions(query)
    for condition in bounds:
        condition.replace(exp.true())
    scan = source.find_in_copy(query)
    alias = scan.table.alias_or_name
    hour = _hours_since_epoch(exp.column(_TIME_COLUMN, alias, quoted=True)) if bounds else fragment_node("0::BIGINT")
    query.append("expressions", exp.alias_(hour, "hour", quoted=True))
    query.append("expressions", exp.alias_(exp.column("block", alias, quoted=True), "block", quoted=True))
    keys = query.args["group"].expressions if query.args.get("group") else []
    positions = [exp.Literal.number(len(query.expressions) - before) for before in (1, 0)]
    query.set("group", exp.Group(expressions=[*keys, *positions]))
    blocks = _set_flushed_filters(scan, uncovered_blocks_node(scan.table.name))
    scan.replace_table_by_union_of(blocks.select_events(EventTable.FLUSHED, identifier_node("block"), reads_all=True))
    return query


def _hours_since_epoch(time: exp.Expr) -> exp.Expr:
    """Return SQL for the number of whole hours since 1970, rounded down; it is negative for earlier times."""
    before = f"(epoch_us({{0}}) - {HOUR_US - 1}) // {HOUR_US}"
    return fragment_node(f"CASE WHEN epoch_us({{0}}) < 0 THEN {before} ELSE epoch_us({{0}}) // {HOUR_US} END", time)


def _merging_query(tree: exp.Expr, source: ScanSource, *, at_rest: bool) -> exp.Expr:
    """Return the tree that aggregates all events not counted in partial rows, and merges the result with these rows.

    If `at_rest` is true, the tree does not read the memtable.
    """
    copy = copy_tree(tree)
    select = _find_marked_select(copy)
    if select is None:
        raise ValueError("the aggregation is gone")
    scan = source.find_in_copy(copy)
    filters = [uncovered_blocks_node(scan.table.name, at_edges=at_edges) for at_edges in (False, True)]
    selects = [
        _set_flushed_filters(scan, condition).select_events(EventTable.FLUSHED, reads_all=True) for condition in filters
    ]
    if not at_rest:
        selects.append(scan.select_events(EventTable.MEMTABLE, reads_all=True))
    scan.replace_table_by_union_of(*selects)
    merging = exp.Select()
    for clause in ("with_", "order", "limit", "offset"):
        merging.set(clause, select.args.get(clause))
        select.set(clause, None)
    parent = select.parent
    if parent is not None:
        select.replace(merging)
    names = [f"c{index}" for index, _ in enumerate(select.expressions)]
    union = join_fragments(" UNION ALL ", [select, partial_rows_node(len(names))])
    alias = exp.TableAlias(this=identifier_node(_PARTIAL_ROWS_ALIAS), columns=list(map(identifier_node, names)))
    merging.set("from_", exp.From(this=exp.Subquery(this=union, alias=alias)))
    merges: tuple[MergeAggregate, ...] = select.meta[_MERGE_AGGREGATES_METADATA_KEY]
    merging.set(
        "expressions",
        [
            inherit_metadata(exp.alias_(_merge_column_sql(merge, name), item.alias, quoted=True), item)
            for merge, name, item in zip(merges, names, select.expressions, strict=True)
        ],
    )
    group = select.args.get("group")
    if group is not None:
        merging.set("group", copy_tree(group))
    return copy if parent is not None else merging


def _merge_column_sql(merge: MergeAggregate, name: str) -> exp.Expr:
    column = exp.column(name, _PARTIAL_ROWS_ALIAS, quoted=True)
    if merge is MergeAggregate.GROUP_KEY:
        return column
    return fragment_node("sum({0})::BIGINT" if merge is MergeAggregate.SUM else f"{merge.value}({{0}})", column)
