"""Name resolution in the clauses of a SELECT: its list with stars expanded, grouping, filters, order and limits.

In some clauses, a name refers only to a column. In others, it refers to a select alias first, and else to a column.

Engines differ in which constant keys they treat as ordinals, that is, as positions in the select list: DuckDB accepts
`-(-1)`, and ClickHouse accepts `true` and `-1`. After name resolution, a constant key is either the plain decimal
number of a column, or has a form that no engine treats as an ordinal.

The ORDER BY of a sub-query costs a sort but does not guarantee the order of the answer, so it is removed. A query that
passes on the rows of a sub-query inherits the sub-query's ORDER BY.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sqlglot import exp

from cordwood.errors import AmbiguousName, PlanTooLarge
from cordwood.sql.budget import copy_tree
from cordwood.sql.resolve import names as of_names
from cordwood.sql.resolve.expressions import (
    FOLDED_CONSTANT_METADATA_KEY,
    NameContext,
    alias_or_last_name_part,
    name_parts,
    resolve_expression,
)
from cordwood.sql.resolve.names import OutputColumn
from cordwood.sql.scope import Lineage, NamedExpression, Relation, lineage_of

# BigQuery's limit on the number of columns of a table and of a result.
_MAX_RESULT_COLUMNS: Final = 10_000

_GROUPING_SET_CLASSES = (exp.Rollup, exp.Cube, exp.GroupingSets)


def resolve_projections(select: exp.Expr, context: NameContext) -> list[OutputColumn]:
    """Expand stars in the select list, and name every column as BigQuery does; return the columns."""
    kind = select.args.get("kind")
    items: list[exp.Expr] = []
    unnamed_count = 0
    for item in select.expressions:
        if _is_star_item(item):
            items.extend(_expand_star(item, context, len(items)))
            continue
        name = alias_or_last_name_part(item)
        if not name:
            name, unnamed_count = f"f{unnamed_count}_", unnamed_count + 1
        items.append(_resolve_and_set_alias(item, name, context))
    if kind == "VALUE":
        items = [item.unalias() for item in items]
    select.set("expressions", items)
    return [_output_column(item) for item in items]


def _output_column(item: exp.Expr) -> OutputColumn:
    name = item.alias if isinstance(item, exp.Alias) else item.name
    return OutputColumn(name, lineage_of(item))


def _resolve_and_set_alias(item: exp.Expr, name: str, context: NameContext) -> exp.Expr:
    if not isinstance(item, exp.Alias):
        alias = exp.Alias(this=item, alias=exp.to_identifier(name, quoted=True))
    else:
        alias = item
        alias.set("alias", exp.to_identifier(name, quoted=True))
    resolve_expression(alias.this, context)
    return alias


def _is_star_item(item: exp.Expr) -> bool:
    return _star_node(item) is not None


def _star_node(item: exp.Expr) -> exp.Expr | None:
    if isinstance(item, exp.Star):
        return item
    if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
        return item.this
    if isinstance(item, exp.Dot) and isinstance(item.expression, exp.Star):
        return item.expression
    return None


def _expand_star(item: exp.Expr, context: NameContext, columns_before: int) -> list[exp.Expr]:
    """Return an alias for every column of the star."""
    star = _star_node(item)
    if star is None:
        return [item]
    fields = _star_fields(item, context)
    _check_column_count(columns_before + len(fields))
    excluded = {_lower_case_name(name) for name in star.args.get("except_") or []}
    replacements = {alias.alias.lower(): alias for alias in star.args.get("replace") or []}
    _check_star_modifier_names(item, context, fields, excluded | set(replacements))
    return [
        _star_column(field, replacements.get(field.name.lower()), context)
        for field in fields
        if field.name.lower() not in excluded
    ]


def _check_column_count(count: int) -> None:
    """Refuse a number of columns that a table of BigQuery cannot have, before these columns are created."""
    if count > _MAX_RESULT_COLUMNS:
        raise PlanTooLarge(
            f"The query selects more than {_MAX_RESULT_COLUMNS:,} columns after its stars are expanded.",
            hint="Name the columns that you need instead of selecting *.",
        )


def _lower_case_name(name: exp.Expr) -> str:
    return name.name.lower()


def _check_star_modifier_names(
    item: exp.Expr, context: NameContext, fields: list[NamedExpression], listed: set[str]
) -> None:
    missing = listed - {field.name.lower() for field in fields}
    if missing:
        name = exp.to_identifier(min(missing))
        name.meta.update(item.meta)
        raise of_names.unknown_name_error(context.resolution, [name], context.scope)


def _star_column(field: NamedExpression, replacement: exp.Expr | None, context: NameContext) -> exp.Expr:
    name = exp.to_identifier(field.name, quoted=True)
    if replacement is None:
        return exp.Alias(this=field.copy_expression(), alias=name)
    alias = exp.Alias(this=copy_tree(replacement.this), alias=name)
    resolve_expression(alias.this, context)
    return alias


def _star_fields(item: exp.Expr, context: NameContext) -> list[NamedExpression]:
    if isinstance(item, exp.Star):
        return list(_fields_of_scope(context))
    parts = name_parts(item)
    relation = context.scope.find_relation(parts[0].name) if len(parts) == 1 else None
    if relation is not None:
        return list(_fields_of_relation(relation, context))
    return list(_fields_of_value(_resolve_star_value(item, parts, context), context))


def _resolve_star_value(item: exp.Expr, parts: list[exp.Identifier], context: NameContext) -> exp.Expr:
    """Return the resolved value whose fields `value.*` selects."""
    if parts:
        return of_names.resolve_name(context.resolution, parts, context.scope)
    paren = exp.Paren(this=copy_tree(item.this))
    resolve_expression(paren.this, context)
    value: exp.Expr = paren.this
    return value


def _fields_of_scope(context: NameContext) -> Iterator[NamedExpression]:
    scope = context.scope
    for index, relation in enumerate(scope.relations):
        yield from (merged.column for merged in scope.merged_columns if merged.following_relation_index == index)
        for field in _fields_of_relation(relation, context):
            if scope.find_merged_column(relation, field.name) is None:
                yield field


def _fields_of_relation(relation: Relation, context: NameContext) -> Iterator[NamedExpression]:
    if relation.unnested_element is not None:
        yield from _fields_of_record(relation.unnested_element, context)
    yield from relation.columns_by_name.values()
    yield from of_names.extra_key_fields(context.resolution, relation)


def _fields_of_record(record: NamedExpression, context: NameContext) -> Iterator[NamedExpression]:
    """Yield the fields of an unnested record's element; if no fields are known, yield the element itself."""
    lineage = record.lineage
    if lineage.fields or (lineage.is_of_event_value and context.resolution.shape_reader.keys(lineage)):
        yield from _fields_of_value(record.copy_expression(), context)
    else:
        yield record


def _fields_of_value(value: exp.Expr, context: NameContext) -> Iterator[NamedExpression]:
    lineage = lineage_of(value)
    names = (
        context.resolution.shape_reader.keys(lineage)
        if lineage.is_of_event_value
        else tuple(name for name, _ in lineage.fields)
    )
    if not names and lineage == Lineage():
        raise context.resolution.unsupported_error(value, "A star over a value whose fields are not known")
    for name in names:
        part = exp.to_identifier(name, quoted=True)
        value_of_field = of_names.access_fields(context.resolution, copy_tree(value), [part])
        yield NamedExpression(name, value_of_field, lineage_of(value_of_field))


class SelectAliases:
    """The aliases of the select list, and their positions in it, counted from 1."""

    def __init__(self, select: exp.Expr) -> None:
        self.aliased_items = [item for item in select.expressions if isinstance(item, exp.Alias)]
        self.positions_by_name: dict[str, list[int]] = {}
        for index, item in enumerate(select.expressions, start=1):
            if isinstance(item, exp.Alias):
                self.positions_by_name.setdefault(item.alias.lower(), []).append(index)
        self.select_expressions = select.expressions

    def expressions_by_name(self) -> Mapping[str, exp.Expr]:
        return {
            name: self.select_expressions[positions[0] - 1].this for name, positions in self.positions_by_name.items()
        }

    def alias_ordinal(self, item: exp.Expr, context: NameContext) -> exp.Expr | None:
        """Return the position of the select alias that `item` names, as an ordinal; None if it names none."""
        if not isinstance(item, exp.Column) or len(item.parts) != 1:
            return None
        positions = self.positions_by_name.get(item.name.lower())
        if positions is None:
            return None
        first = self.select_expressions[positions[0] - 1].this
        if any(self.select_expressions[position - 1].this != first for position in positions[1:]):
            raise AmbiguousName(
                f'"{item.name}" is ambiguous: several columns of the SELECT have this name.',
                span=context.resolution.span_of_node(item),
            )
        return exp.Literal.number(positions[0])

    def expression_ordinal(self, item: exp.Expr) -> exp.Expr | None:
        """Return the ordinal of the selected expression that equals the resolved expression; None if there is none."""
        if isinstance(item, (exp.Literal, exp.Null, exp.Boolean)):
            return None
        for index, expression in enumerate(self.select_expressions, start=1):
            if isinstance(expression, exp.Alias) and expression.this == item:
                return exp.Literal.number(index)
        return None


def resolve_group_by(select: exp.Expr, context: NameContext, aliases: SelectAliases) -> None:
    group = select.args.get("group")
    if group is None:
        return
    keys = list(group.iter_expressions())
    # SELECT AS STRUCT outputs a single column, so its GROUP BY has no ordinals. A GROUP BY with grouping sets has none
    # either.
    allows_ordinals = not select.args.get("kind") and not any(isinstance(key, _GROUPING_SET_CLASSES) for key in keys)
    for key in keys:
        for item in _flatten_group_keys(key) if isinstance(key, _GROUPING_SET_CLASSES) else [key]:
            _resolve_group_key(item, context, aliases, ordinals=allows_ordinals)


def _flatten_group_keys(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, (exp.Tuple, *_GROUPING_SET_CLASSES)):
        return [key for child in node.expressions for key in _flatten_group_keys(child)]
    if isinstance(node, exp.Paren):
        return _flatten_group_keys(node.this)
    return [node]


def _resolve_group_key(item: exp.Expr, context: NameContext, aliases: SelectAliases, *, ordinals: bool) -> None:
    parent, key, index = item.parent, item.arg_key, item.index
    if parent is None or key is None:
        return
    ordinal = _ordinal_from_literal(item) or aliases.alias_ordinal(item, context)
    if ordinal is not None:
        _child_at(parent, key, index).replace(ordinal if ordinals else _replace_ordinal(ordinal, aliases))
        return
    resolve_expression(item, context)
    resolved = _child_at(parent, key, index)
    selected_ordinal = aliases.expression_ordinal(resolved) if ordinals else None
    resolved.replace(selected_ordinal or _non_ordinal_group_key(resolved))


def _replace_ordinal(ordinal: exp.Expr, aliases: SelectAliases) -> exp.Expr:
    number = int(ordinal.this)
    if 1 <= number <= len(aliases.select_expressions):
        copy: exp.Expr = copy_tree(aliases.select_expressions[number - 1].unalias())
        return copy
    return ordinal


def _child_at(parent: exp.Expr, key: str, index: int | None) -> exp.Expr:
    value = parent.args[key]
    child: exp.Expr = value if index is None else value[index]
    return child


def resolve_filters(select: exp.Expr, context: NameContext, aliases: SelectAliases) -> None:
    """Resolve HAVING, QUALIFY and named windows.

    In HAVING and QUALIFY, select aliases take precedence over columns. Named windows see only columns.
    """
    alias_context = NameContext(context.resolution, context.ctes, context.scope, aliases.expressions_by_name())
    for key in ("having", "qualify"):
        clause = select.args.get(key)
        if clause is not None:
            resolve_expression(clause.this, alias_context)
    windows = select.args.get("windows") or []
    for window in windows:
        for part in (*(window.args.get("partition_by") or []), window.args.get("order")):
            if part is not None:
                resolve_expression(part, context)
    _expand_named_windows(windows)


def _expand_named_windows(windows: Sequence[exp.Expr]) -> None:
    """Replace references to named windows by the clauses of these windows, because engines do not inherit frames."""
    by_name: dict[str, exp.Expr] = {}
    for window in windows:
        base = by_name.get(window.alias.lower())
        if base is not None:
            _inherit_window_clauses(window, copy_tree(base))
        by_name[window.name.lower()] = window


def _inherit_window_clauses(window: exp.Expr, base: exp.Expr) -> None:
    for key in ("partition_by", "order", "spec"):
        if not window.args.get(key):
            window.set(key, base.args.get(key))
    window.set("alias", None)


def resolve_order_by(owner: exp.Expr, context: NameContext, aliases: SelectAliases) -> None:
    order = owner.args.get("order")
    if order is None:
        return
    alias_context = NameContext(context.resolution, context.ctes, context.scope, aliases.expressions_by_name())
    # SELECT AS STRUCT outputs a single column, so ORDER BY has no ordinals.
    resolve_key = _resolve_order_key if not owner.args.get("kind") else _resolve_order_value
    _set_order_keys(
        owner, [ordered for ordered in order.expressions if resolve_key(ordered, context, alias_context, aliases)]
    )


def _resolve_order_key(
    ordered: exp.Expr, context: NameContext, alias_context: NameContext, aliases: SelectAliases
) -> bool:
    """Resolve a key of ORDER BY, if possible to an ordinal; return False for a constant key, which does not sort."""
    ordinal = _ordinal_from_literal(ordered.this) or aliases.alias_ordinal(ordered.this, context)
    if ordinal is None:
        resolve_expression(ordered.this, alias_context)
        ordinal = aliases.expression_ordinal(ordered.this)
    if ordinal is not None:
        ordered.set("this", ordinal)
        return True
    return not (ordered.this.meta_get(FOLDED_CONSTANT_METADATA_KEY) or _is_constant_key(ordered.this))


def _resolve_order_value(
    ordered: exp.Expr, context: NameContext, alias_context: NameContext, aliases: SelectAliases
) -> bool:
    """Resolve a key of ORDER BY to an expression, never to an ordinal; return False for a constant key."""
    sorts = _resolve_order_key(ordered, context, alias_context, aliases)
    if sorts and _is_ordinal(ordered.this):
        ordered.set("this", _replace_ordinal(ordered.this, aliases))
    return sorts


def resolve_limits(owner: exp.Expr, context: NameContext) -> None:
    for key in ("limit", "offset"):
        clause = owner.args.get(key)
        if clause is not None and isinstance(clause.expression, exp.Expr):
            resolve_expression(clause.expression, context)


def resolve_set_operation_order(owner: exp.Expr, outputs: Sequence[OutputColumn], context: NameContext) -> None:
    """Resolve the ORDER BY of a set operation, which refers to its output columns."""
    order = owner.args.get("order")
    if order is None:
        return
    positions = {output.name.lower(): index for index, output in reversed(list(enumerate(outputs, start=1)))}
    _set_order_keys(
        owner, [ordered for ordered in order.expressions if _resolve_output_ordinal(ordered, positions, context)]
    )


def _resolve_output_ordinal(ordered: exp.Expr, positions: Mapping[str, int], context: NameContext) -> bool:
    """Resolve a key of a set operation's ORDER BY, usually to an ordinal; return False for a constant key."""
    item = ordered.this
    position = positions.get(item.name.lower()) if isinstance(item, exp.Column) and len(item.parts) == 1 else None
    ordinal = _ordinal_from_literal(item) if position is None else exp.Literal.number(position)
    if ordinal is None:
        resolve_expression(item, context)
        return not _is_constant_key(ordered.this)
    ordered.set("this", ordinal)
    return True


# An expression is constant if it contains none of these nodes.
_ROW_DEPENDENT_CLASSES: Final = (exp.Column, exp.AggFunc, exp.Window, exp.Query)


def _ordinal_from_literal(item: exp.Expr) -> exp.Expr | None:
    """Return the ordinal if the author wrote a number, possibly in parentheses or hexadecimal; None otherwise."""
    item = item.unnest()
    if isinstance(item, exp.Literal) and item.is_int:
        return exp.Literal.number(int(item.this))
    if isinstance(item, exp.HexString) and item.args.get("is_integer"):
        return exp.Literal.number(int(item.this, 16))
    return None


def _is_ordinal(item: exp.Expr) -> bool:
    """Return whether a resolved key is an ordinal."""
    return isinstance(item, exp.Literal) and item.is_int


def _is_constant_key(item: exp.Expr) -> bool:
    """Return whether the key is the same for all rows, and therefore does not sort."""
    return item.find(*_ROW_DEPENDENT_CLASSES) is None


def _non_ordinal_group_key(key: exp.Expr) -> exp.Expr:
    """Return the group key; a constant key is rewritten so that no engine treats it as an ordinal."""
    return exp.Case(ifs=[exp.If(this=exp.true(), true=copy_tree(key))]) if _is_constant_key(key) else key


def _set_order_keys(owner: exp.Expr, keys: list[exp.Expr]) -> None:
    """Set the keys of ORDER BY; remove the clause if there are none."""
    order = owner.args["order"]
    order.set("expressions", keys)
    owner.set("order", order if keys else None)


def remove_sub_query_order_by(tree: exp.Expr) -> None:
    """Drop ORDER BY from sub-queries. If a query only passes on a sub-query's rows, move the ORDER BY to that query."""
    table_queries = [
        query for query in tree.find_all(exp.Select, exp.SetOperation) if _is_unlimited_derived_table(query, tree)
    ]
    orders = {id(query): query.args["order"] for query in table_queries if query.args.get("order") is not None}
    if not orders:
        return
    if isinstance(tree, exp.Select) and _preserves_rows(tree):
        _inherit_order_by_of_source(tree)
    for query in table_queries:
        if id(query) in orders:
            query.set("order", None)


def _is_unlimited_derived_table(query: exp.Expr, tree: exp.Expr) -> bool:
    """Return whether the query is a sub-query that is read as a table and has no LIMIT or OFFSET."""
    if query is tree or query.args.get("limit") is not None or query.args.get("offset") is not None:
        return False
    parent = query.parent
    while isinstance(parent, exp.Subquery) and isinstance(parent.parent, exp.Subquery):
        parent = parent.parent
    if isinstance(parent, exp.Subquery):
        return isinstance(parent.parent, (exp.From, exp.Join)) and not parent.args.get("limit")
    return isinstance(parent, exp.CTE)


def _preserves_rows(select: exp.Expr) -> bool:
    if any(select.args.get(key) for key in ("order", "group", "distinct", "having", "kind")):
        return False
    return not any(item.find(exp.AggFunc) for item in select.expressions)


def _inherit_order_by_of_source(select: exp.Expr) -> None:
    from_ = select.args.get("from_")
    source = from_.this if from_ is not None else None
    query = _query_of_source(source, select)
    order = query.args.get("order") if query is not None else None
    if order is None or query is None or source is None:
        return
    items = [_outer_sort_key(ordered, query, source.alias) for ordered in order.expressions]
    if all(items):
        select.set("order", exp.Order(expressions=items))


def _query_of_source(source: exp.Expr | None, select: exp.Expr) -> exp.Expr | None:
    if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Select):
        return source.this
    with_ = select.args.get("with_")
    if isinstance(source, exp.Table) and with_ is not None:
        return next((cte.this for cte in with_.expressions if cte.alias == source.name), None)
    return None


def _outer_sort_key(ordered: exp.Expr, query: exp.Expr, alias: str) -> exp.Expr | None:
    """Return the sub-query's sort key as an expression over its output columns; None if no output column is the key."""
    ordinal = ordered.this
    if not (isinstance(query, exp.Select) and isinstance(ordinal, exp.Literal) and ordinal.is_int):
        return None
    name = query.expressions[int(ordinal.this) - 1].alias_or_name
    sort_key = copy_tree(ordered)
    column = exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(alias, quoted=True))
    sort_key.set("this", column)
    return sort_key
