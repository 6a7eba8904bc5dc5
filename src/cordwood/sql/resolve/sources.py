"""Name resolution in FROM and joins: tables are looked up, and UNNEST of an object is replaced by a path.

USING becomes ON with merged columns. The condition of an inner join whose right side was removed moves to WHERE.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.model.event import ValueKind
from cordwood.sql.budget import copy_tree
from cordwood.sql.nodes import add_condition, is_object_test_node, is_same_or_nested_value, object_test_node
from cordwood.sql.resolve import tables
from cordwood.sql.resolve.expressions import (
    NameContext,
    constant_relation,
    may_be_group_keys,
    replace_event_value_by_elements,
    resolve_expression,
    strip_empty_array_default,
)
from cordwood.sql.resolve.names import UNNEST_ALIAS, CteScope, NameResolution, ambiguous_name_error, unknown_name_error
from cordwood.sql.scope import Lineage, MergedColumn, NamedExpression, Relation, Scope, copy_value, lineage_of


class _FromResolver(msgspec.Struct):
    """The state of reading one FROM from left to right.

    A join with an UNNEST that yields only objects is removed, and `filters_replacing_joins` collects the conditions
    that take its place. `may_filter_in_where` is set if such a condition may be put in WHERE, because no later outer
    join adds rows with NULL, which the condition would drop. `first_relation_index` is the index in `scope` of the
    first relation of the current chain of joins.
    """

    resolution: NameResolution
    ctes: CteScope
    scope: Scope
    filters_replacing_joins: list[exp.Expr]
    may_filter_in_where: bool = True
    first_relation_index: int = 0

    @property
    def context(self) -> NameContext:
        return NameContext(self.resolution, self.ctes, self.scope)


def resolve_from_clause(select: exp.Expr, resolution: NameResolution, ctes: CteScope, parent: Scope | None) -> Scope:
    """Resolve the FROM of a SELECT. The filters that replace removed joins are added to the WHERE of the SELECT."""
    reader = _FromResolver(resolution, ctes, Scope(parent=parent), [])
    from_ = select.args.get("from_")
    if from_ is None:
        return reader.scope
    joins = select.args.get("joins") or []
    constant_row = None if joins else _constant_row_columns(reader, select)
    if constant_row is not None:
        reader.scope.relations.append(constant_relation(from_.this.alias or from_.this.name, constant_row))
        select.set("from_", None)
        return reader.scope
    _resolve_join_chain(reader, from_.this, joins)
    select.set("joins", [join for join in joins if join.args.get("this") is not None])
    for filter_ in reader.filters_replacing_joins:
        add_condition(select, filter_)
    return reader.scope


def _constant_row_columns(reader: _FromResolver, select: exp.Expr) -> dict[str, exp.Expr] | None:
    """Return the columns if the whole FROM is one constant row; None for any other FROM, or if there is a GROUP BY."""
    if select.args.get("group"):
        return None
    return tables.constant_table_columns(reader.resolution, reader.ctes, select.args["from_"].this)


def _resolve_join_chain(reader: _FromResolver, first: exp.Expr, joins: Sequence[exp.Expr]) -> None:
    _resolve_from_item(msgspec.structs.replace(reader, may_filter_in_where=_may_filter_in_where(reader, joins)), first)
    _resolve_joins(reader, joins)


def _resolve_joins(reader: _FromResolver, joins: Sequence[exp.Expr]) -> None:
    for index, join in enumerate(joins):
        _resolve_join(
            msgspec.structs.replace(reader, may_filter_in_where=_may_filter_in_where(reader, joins[index + 1 :])), join
        )


def _may_filter_in_where(reader: _FromResolver, later: Sequence[exp.Expr]) -> bool:
    return reader.may_filter_in_where and not any(_adds_null_left_rows(join) for join in later)


def _adds_null_left_rows(join: exp.Expr) -> bool:
    """Return whether the join adds rows whose left side is NULL; such rows must not be filtered afterwards."""
    return join.args.get("side") in ("RIGHT", "FULL")


def _resolve_join(reader: _FromResolver, join: exp.Expr) -> None:
    _refuse_unsupported_join(reader.resolution, join)
    source = join.this
    _, unnest = _source_and_equivalent_unnest(reader, source)
    if unnest is not None:
        _resolve_unnest_join(reader, unnest, join)
        return
    if _replace_constant_join(reader, join, source):
        return
    side = join.args.get("side")
    paths_are_safe = side == "LEFT" or (reader.may_filter_in_where and side != "FULL")
    inner = msgspec.structs.replace(reader, filters_replacing_joins=[], may_filter_in_where=paths_are_safe)
    relation_count = len(reader.scope.relations)
    _resolve_from_item(inner, source)
    if join.args.get("using"):
        _rewrite_using_as_on(reader.resolution, join, reader.scope, (reader.first_relation_index, relation_count))
    elif join.args.get("on") is not None:
        resolve_expression(join.args["on"], reader.context)
    _attach_filters(reader, join, inner.filters_replacing_joins)


def _replace_constant_join(reader: _FromResolver, join: exp.Expr, source: exp.Expr) -> bool:
    """Remove a cross join whose right side is a constant row; return whether the join was removed.

    References to the row's columns then become the row's values.
    """
    if any(join.args.get(key) for key in ("side", "on", "using")):
        return False
    columns = tables.constant_table_columns(reader.resolution, reader.ctes, source)
    if columns is None or may_be_group_keys(columns, join.parent_select):
        return False
    reader.scope.relations.append(constant_relation(source.alias or source.name, columns))
    join.set("this", None)
    return True


def _refuse_unsupported_join(resolution: NameResolution, join: exp.Expr) -> None:
    if join.args.get("method") or join.args.get("kind") in ("SEMI", "ANTI", "STRAIGHT_JOIN"):
        raise resolution.unsupported_error(join, f"A {join.args.get('method') or join.args.get('kind')} JOIN")


def _attach_filters(reader: _FromResolver, join: exp.Expr, filters: list[exp.Expr]) -> None:
    """Add the filters of a parenthesised join to WHERE, or to the ON of the LEFT JOIN that contains it."""
    if join.args.get("side") != "LEFT":
        reader.filters_replacing_joins.extend(filters)
        return
    if filters:
        join.set("on", exp.and_(join.args.get("on"), *filters, copy=False))


def _is_always_true(on: exp.Expr | None) -> bool:
    return on is None or (isinstance(on, exp.Boolean) and bool(on.this))


def _add_join_filter(filters: list[exp.Expr], join: exp.Expr, context: NameContext) -> None:
    """Add the ON condition of an inner join to `filters`, because the join itself is removed from FROM."""
    on = join.args.get("on")
    if on is None or _is_always_true(on):
        return
    holder = exp.Paren(this=copy_tree(on))
    resolve_expression(holder.this, context)
    filters.append(holder)


def _rewrite_using_as_on(resolution: NameResolution, join: exp.Expr, scope: Scope, sides: tuple[int, int]) -> None:
    """Rewrite USING as ON.

    `sides` has two indexes of relations in `scope`: of the first relation on the join's left side, and of the first on
    its right side.
    """
    using: list[exp.Expr] = join.args["using"]
    left, right = _scope_of_relations(scope, *sides), _scope_of_relations(scope, sides[1], len(scope.relations))
    pairs = [_find_using_pair(resolution, name, left, right) for name in using]
    join.set(
        "on",
        exp.and_(*(exp.EQ(this=a.column.copy_expression(), expression=b.column.copy_expression()) for a, b in pairs)),
    )
    join.set("using", None)
    merged_columns = [
        _merge_columns(left_column, right_column, join.args.get("side") or "", sides[0])
        for left_column, right_column in pairs
    ]
    parts = [part for pair in pairs for part in pair]
    scope.merged_columns = [*merged_columns, *(merged for merged in scope.merged_columns if merged not in parts)]


def _scope_of_relations(scope: Scope, first: int, end: int) -> Scope:
    return Scope(
        relations=scope.relations[first:end],
        merged_columns=[merged for merged in scope.merged_columns if first <= merged.following_relation_index < end],
    )


def _find_using_pair(
    resolution: NameResolution, name: exp.Expr, left: Scope, right: Scope
) -> tuple[MergedColumn, MergedColumn]:
    identifier = name if isinstance(name, exp.Identifier) else name.this
    return _find_column(resolution, identifier, left), _find_column(resolution, identifier, right)


def _find_column(resolution: NameResolution, name: exp.Identifier, scope: Scope) -> MergedColumn:
    found = scope.find_columns(name.name)
    if not found:
        raise unknown_name_error(resolution, [name], scope)
    if len(found) > 1:
        raise ambiguous_name_error(resolution, name, found)
    relation, column = found[0]
    return scope.find_merged_column(relation, name.name) or MergedColumn(column, frozenset([relation.name.lower()]), 0)


_RIGHT_JOIN_SIDE: Final = "RIGHT"
_FULL_JOIN_SIDE: Final = "FULL"


def _merge_columns(left: MergedColumn, right: MergedColumn, side: str, first_relation: int) -> MergedColumn:
    column = right.column if side == _RIGHT_JOIN_SIDE else left.column
    if side == _FULL_JOIN_SIDE:
        merged_value = exp.Coalesce(this=left.column.copy_expression(), expressions=[right.column.copy_expression()])
        column = NamedExpression(left.column.name, merged_value, left.column.lineage)
    return MergedColumn(column, left.merged_relation_names | right.merged_relation_names, first_relation)


def _resolve_from_item(reader: _FromResolver, source: exp.Expr) -> None:
    original, unnest = _source_and_equivalent_unnest(reader, source)
    if unnest is not None:
        reader.scope.relations.append(_resolve_first_unnest(reader, unnest))
        if original is not unnest:
            source.replace(unnest)
    elif (
        isinstance(source, exp.Table)
        and (query_source := tables.pivot_as_query(reader.resolution, reader.ctes, source)) is not None
    ):
        _resolve_parentheses(reader, query_source)
    elif isinstance(source, exp.Table):
        inner_joins = source.args.get("joins")
        inner = msgspec.structs.replace(reader, first_relation_index=len(reader.scope.relations))
        tables.resolve_table(reader.resolution, reader.ctes, reader.scope, source)
        if inner_joins:
            _resolve_inner_joins(inner, source, inner_joins)
            _parenthesise(source)
    elif isinstance(source, exp.Subquery):
        _resolve_parentheses(reader, source)
    else:
        raise reader.resolution.refused_error(
            source, "This cannot stand in FROM.", "Read a sub-query, a SELECT in brackets or UNNEST."
        )


def _resolve_inner_joins(reader: _FromResolver, source: exp.Expr, joins: list[exp.Expr]) -> None:
    _resolve_joins(reader, joins)
    source.set("joins", [join for join in joins if join.args.get("this") is not None])


def _parenthesise(source: exp.Expr) -> None:
    """Parenthesise `b JOIN c ON …` in `a JOIN b JOIN c ON … ON …`, because some engines cannot parse it otherwise."""
    if source.args.get("joins") and isinstance(source.parent, exp.Join):
        source.replace(exp.Subquery(this=copy_tree(source)))


def _resolve_parentheses(reader: _FromResolver, source: exp.Expr) -> None:
    """Resolve parentheses in FROM: around a SELECT, they form a table; around tables, they form a nested join."""
    inner = source.this
    if isinstance(inner, (exp.Table, exp.Subquery)) and not source.alias and not _is_query(inner):
        _resolve_parenthesised_join(reader, source, inner)
        return
    joins = source.args.get("joins") or []
    inner_reader = msgspec.structs.replace(reader, first_relation_index=len(reader.scope.relations))
    source.set("joins", None)
    tables.resolve_derived_table(reader.resolution, reader.ctes, reader.scope, source)
    if joins:
        source.set("joins", joins)
        _resolve_inner_joins(inner_reader, source, joins)
        _parenthesise(source)


def _resolve_parenthesised_join(reader: _FromResolver, source: exp.Expr, inner: exp.Expr) -> None:
    group = msgspec.structs.replace(reader, scope=Scope(parent=reader.scope), first_relation_index=0)
    relation_count = len(reader.scope.relations)
    _resolve_from_item(group, inner)
    _resolve_inner_joins(group, source, source.args.get("joins") or [])
    reader.scope.relations.extend(group.scope.relations)
    reader.scope.merged_columns.extend(
        msgspec.structs.replace(merged, following_relation_index=merged.following_relation_index + relation_count)
        for merged in group.scope.merged_columns
    )
    table = source.this
    if not table.args.get("joins"):
        # The parentheses never contained a join, or all of their joins have been removed. DuckDB does not allow
        # parentheses around a single table.
        table.set("joins", source.args.get("joins"))
        source.replace(table)
        _parenthesise(table)


def _is_query(node: exp.Expr) -> bool:
    """Return whether a node is a query, possibly in parentheses that contain no alias and no join."""
    while isinstance(node, exp.Subquery) and not node.alias and not node.args.get("joins"):
        node = node.this
    return isinstance(node, exp.Query) and not isinstance(node, exp.Table | exp.Subquery)


def _source_and_equivalent_unnest(reader: _FromResolver, source: exp.Expr) -> tuple[exp.Expr, exp.Expr | None]:
    """Return the source in FROM, and the UNNEST to which it is equivalent; None as the UNNEST if there is none.

    An UNNEST is equivalent to itself. A path into a relation to its left, as in `FROM t, t.metadata`, is equivalent to
    an UNNEST of the path.
    """
    if isinstance(source, exp.Unnest):
        return source, source
    if isinstance(source, exp.Table) and source.args.get("db") is not None:
        parts = [part for part in source.parts if isinstance(part, exp.Identifier)]
        if not source.meta.get("quoted_table") and tables.is_relation_in_scope(reader.scope, parts[0].name):
            column = exp.Column(**dict(zip(("this", "table", "db", "catalog"), reversed(parts), strict=False)))
            alias = source.alias or parts[-1].name
            unnest = exp.Unnest(
                expressions=[column], alias=exp.TableAlias(columns=[exp.to_identifier(alias)]), offset=False
            )
            return source, unnest
    return source, None


def _resolve_unnest_join(reader: _FromResolver, unnest: exp.Expr, join: exp.Expr) -> None:
    """Resolve a join with an UNNEST; if it yields only objects, replace the join by reads of the objects' path."""
    if unnest is not join.this:
        join.set("this", unnest)
    resolve_expression(unnest.expressions[0], reader.context)
    value = strip_empty_array_default(unnest.expressions[0])
    if _unnests_only_objects(reader, value, join):
        _resolve_object_unnest(reader, unnest, value, join)
        return
    reader.scope.relations.append(_unnest_relation(reader, unnest))
    if join.args.get("on") is not None:
        resolve_expression(join.args["on"], reader.context)


def _unnests_only_objects(reader: _FromResolver, value: exp.Expr, join: exp.Expr) -> bool:
    """Return whether the UNNEST yields only objects, and the join can be replaced by reading their path."""
    lineage = lineage_of(value)
    if not lineage.is_of_event_value or _adds_null_left_rows(join):
        return False
    kinds = reader.resolution.shape_reader.kinds(lineage)
    if kinds is None or ValueKind.ARRAY in kinds:
        return False
    if join.args.get("side") == "LEFT":
        return _is_always_true(join.args.get("on"))
    return reader.may_filter_in_where


def _resolve_object_unnest(reader: _FromResolver, unnest: exp.Expr, value: exp.Expr, join: exp.Expr) -> None:
    name = _unnest_alias(reader.resolution, unnest)
    lineage = lineage_of(value)
    record = NamedExpression(name, copy_value(value), lineage)
    relation = Relation(name, unnested_element=record)
    is_left = join.args.get("side") == "LEFT"
    offset = unnest.args.get("offset")
    if isinstance(offset, exp.Identifier):
        zero: exp.Expr = exp.Literal.number(0)
        offset_value = exp.If(this=object_test_node(copy_value(value)), true=zero) if is_left else zero
        relation.columns_by_name[offset.name.lower()] = NamedExpression(offset.name, offset_value)
    reader.scope.relations.append(relation)
    if not is_left:
        reader.filters_replacing_joins[:] = [
            filter_ for filter_ in reader.filters_replacing_joins if not _is_implied_by_object_test(filter_, value)
        ]
        reader.filters_replacing_joins.append(_object_test_filter(reader.resolution, value, lineage))
        _add_join_filter(reader.filters_replacing_joins, join, reader.context)
    join.set("this", None)


def _object_test_filter(resolution: NameResolution, value: exp.Expr, lineage: Lineage) -> exp.Expr:
    only_objects = resolution.shape_reader.kinds(lineage) == frozenset({ValueKind.OBJECT})
    return object_test_node(copy_value(value), only_objects=only_objects)


def _is_implied_by_object_test(filter_: exp.Expr, value: exp.Expr) -> bool:
    """Return whether the filter is superfluous when another filter tests that `value` is an object.

    This is so if the filter tests whether `value`, or a value that contains `value`, is an object.
    """
    return is_object_test_node(filter_) and is_same_or_nested_value(value, filter_.expressions[0])


def _resolve_first_unnest(reader: _FromResolver, unnest: exp.Expr) -> Relation:
    resolve_expression(unnest.expressions[0], reader.context)
    return _unnest_relation(reader, unnest)


def _unnest_relation(reader: _FromResolver, unnest: exp.Expr) -> Relation:
    """Return the relation of an UNNEST: the array's element is its record, and a named offset is a column."""
    if len(unnest.expressions) != 1:
        raise reader.resolution.unsupported_error(unnest, "UNNEST of several arrays")
    replace_event_value_by_elements(reader.resolution, unnest.expressions[0])
    element = lineage_of(unnest.expressions[0]).element or Lineage()
    name = _unnest_alias(reader.resolution, unnest)
    relation = Relation(name, unnested_element=NamedExpression(name, _quoted_column(name, name), element))
    offset = unnest.args.get("offset")
    if isinstance(offset, exp.Identifier):
        relation.columns_by_name[offset.name.lower()] = NamedExpression(offset.name, _quoted_column(offset.name, name))
        unnest.set("offset", exp.to_identifier(offset.name, quoted=True))
    quoted = exp.to_identifier(name, quoted=True)
    unnest.set("alias", exp.TableAlias(this=quoted, columns=[copy_tree(quoted)]))
    return relation


def _unnest_alias(resolution: NameResolution, unnest: exp.Expr) -> str:
    """Return the alias of an UNNEST. If the author gave it none, return a unique generated alias."""
    alias = unnest.args.get("alias")
    if alias is not None and alias.columns:
        return str(alias.columns[0].name)
    return unnest.alias or resolution.unique_name(UNNEST_ALIAS)


def _quoted_column(name: str, table: str) -> exp.Expr:
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(table, quoted=True))
