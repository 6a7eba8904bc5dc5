"""Name resolution of tables, and rewriting of PIVOT and UNPIVOT as queries.

The name of a table refers to a CTE in scope. If the query is allowed to read streams, the name can also refer to an
endpoint or a stream.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import QueryFault, QueryRefused, find_closest_name
from cordwood.model.datatype import Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import SQLGLOT_TYPE_BY_KIND
from cordwood.sql.nodes import constant_int, constant_text, set_type
from cordwood.sql.record_shapes import join_lineages
from cordwood.sql.resolve import names as of_names
from cordwood.sql.resolve.expressions import NameContext, resolve_expression
from cordwood.sql.resolve.names import Cte, CteScope, NameResolution, OutputColumn
from cordwood.sql.scope import NO_LINEAGE, Lineage, NamedExpression, Relation, Scope, ValueOrigin, lineage_of


def is_relation_in_scope(scope: Scope | None, name: str) -> bool:
    while scope is not None:
        if scope.find_relation(name) is not None:
            return True
        scope = scope.parent
    return False


def resolve_table(resolution: NameResolution, ctes: CteScope, scope: Scope, table: exp.Expr) -> None:
    _refuse_unsupported_table_syntax(resolution, table)
    table_name = written_table_name(table)
    cte = _find_cte(resolution, ctes, table, table_name)
    if cte is not None:
        _resolve_cte_reference(scope, table, cte)
        return
    if not resolution.may_read_streams:
        raise unknown_table_error(resolution, ctes, table, table_name)
    endpoint = _find_endpoint(resolution, table, table_name)
    if endpoint is not None:
        _resolve_endpoint_reference(scope, table, endpoint, table_name)
        return
    if not _is_stream(resolution, table_name):
        raise unknown_table_error(resolution, ctes, table, table_name)
    if table.args.get("pivots"):
        raise resolution.refused_error(
            table,
            "PIVOT and UNPIVOT cannot stand right after a stream.",
            "Pick the columns first: (SELECT … FROM stream) PIVOT(…). Those that are left over are what it groups by.",
        )
    _resolve_stream_reference(resolution, scope, table, table_name)


def written_table_name(table: exp.Expr) -> str:
    """Return the table's name as the author wrote it. sqlglot has split the name at dots, unless it was backquoted."""
    return ".".join(part.name for part in _table_name_identifiers(table))


def implicit_alias(table_name: str) -> str:
    """Return the name of a table that has no alias: the last part of its name, or the whole if that part is empty."""
    return table_name.rpartition(".")[2] or table_name


def _table_name_identifiers(table: exp.Expr) -> list[exp.Expr]:
    identifiers: list[exp.Expr] = []
    for key in ("catalog", "db", "this"):
        part = table.args.get(key)
        if isinstance(part, exp.Dot):
            identifiers.extend(part.flatten())
        elif part is not None:
            identifiers.append(part)
    return identifiers


def _refuse_unsupported_table_syntax(resolution: NameResolution, table: exp.Expr) -> None:
    if not all(isinstance(part, exp.Identifier) for part in _table_name_identifiers(table)):
        raise resolution.refused_error(table, "Table functions are refused.", "Read a sub-query by its name.")
    for key, value in table.args.items():
        if value and key not in ("this", "db", "catalog", "alias", "joins", "pivots"):
            raise resolution.refused_error(table, f"{key.strip('_').upper()} cannot stand after a table here.")


def _find_cte(resolution: NameResolution, ctes: CteScope, table: exp.Expr, table_name: str) -> Cte | None:
    if table.args.get("db") is not None:
        return None
    return ctes.cte_by_name.get(table_name.lower()) or resolution.find_sub_query(table_name.lower())


def _find_endpoint(resolution: NameResolution, table: exp.Expr, table_name: str) -> Cte | None:
    """Resolve an endpoint that the query reads by name; an error in the endpoint gets the position of the name."""
    try:
        return resolution.find_endpoint(table_name)
    except QueryFault as fault:
        message = f"The endpoint {table_name}: {fault.message}"
        raise type(fault)(message, hint=fault.hint, span=resolution.span_of_node(table)) from fault


def _resolve_endpoint_reference(scope: Scope, table: exp.Expr, endpoint: Cte, table_name: str) -> None:
    """Add an endpoint's columns to the scope. The last part of the endpoint's name, or the alias, can qualify them."""
    alias = table.alias or implicit_alias(table_name)
    qualified_name = "" if table.alias else table_name
    table.set("this", exp.to_identifier(endpoint.name, quoted=True))
    table.set("db", None)
    table.set("catalog", None)
    set_source_alias(table, alias)
    relation = _derived_relation(alias, endpoint.output_columns, is_value=endpoint.is_value_table)
    scope.relations.append(msgspec.structs.replace(relation, qualified_name=qualified_name))


def constant_table_columns(resolution: NameResolution, ctes: CteScope, source: exp.Expr) -> dict[str, exp.Expr] | None:
    """Return the columns of a table that is a constant sub-query; None for any other table."""
    if not isinstance(source, exp.Table) or any(source.args.get(key) for key in ("db", "joins", "pivots")):
        return None
    cte = (
        _find_cte(resolution, ctes, source, written_table_name(source))
        if isinstance(source.this, exp.Identifier)
        else None
    )
    return cte.constant_columns if cte is not None else None


def _resolve_cte_reference(scope: Scope, table: exp.Expr, cte: Cte) -> None:
    alias = table.alias or table.name
    table.set("this", exp.to_identifier(cte.name, quoted=True))
    set_source_alias(table, alias)
    scope.relations.append(_derived_relation(alias, cte.output_columns, is_value=cte.is_value_table))


def resolve_derived_table(resolution: NameResolution, ctes: CteScope, scope: Scope, source: exp.Expr) -> None:
    """Resolve a derived table. It can use columns of outer queries, but not of its siblings in the same FROM."""
    pivots = source.args.get("pivots") or []
    is_value = strip_select_as_kind(source.this)
    outputs = make_names_unique(source.this, resolution.resolve_query(resolution, source.this, ctes, scope.parent))
    alias = _pop_pivot_alias(source) or source.alias or resolution.unique_name("_derived")
    source.set("pivots", None)
    for pivot in pivots:
        outputs = _apply_pivot(resolution, ctes, source, pivot, outputs)
    set_source_alias(source, alias)
    scope.relations.append(_derived_relation(alias, outputs, is_value=is_value and not pivots))


def _apply_pivot(
    resolution: NameResolution, ctes: CteScope, source: exp.Expr, pivot: exp.Expr, outputs: list[OutputColumn]
) -> list[OutputColumn]:
    """Replace the query of a derived table with PIVOT or UNPIVOT by one that applies it; return the new columns."""
    alias = resolution.unique_name("_pivoted")
    inner = exp.Subquery(this=copy_tree(source.this))
    set_source_alias(inner, alias)
    select, pivot_outputs = _expand_pivot(PivotInput(resolution, ctes, inner, _derived_relation(alias, outputs)), pivot)
    source.set("this", select)
    return make_names_unique(select, pivot_outputs)


def pivot_as_query(resolution: NameResolution, ctes: CteScope, table: exp.Expr) -> exp.Expr | None:
    """Replace `t PIVOT(…)` in the tree by `(SELECT * FROM t) PIVOT(…)`; return this, or None if `t` is no sub-query."""
    pivots, joins = table.args.get("pivots"), table.args.get("joins")
    if not pivots or not isinstance(table.this, exp.Identifier):
        return None
    if _find_cte(resolution, ctes, table, written_table_name(table)) is None:
        return None
    table.set("pivots", None)
    table.set("joins", None)
    query = exp.Select(expressions=[exp.Star()], from_=exp.From(this=copy_tree(table)))
    sub_query = exp.Subquery(this=query, pivots=pivots, joins=joins)
    set_source_alias(sub_query, table.alias or table.name)
    table.replace(sub_query)
    return sub_query


def _pop_pivot_alias(source: exp.Expr) -> str:
    """Remove and return the alias after PIVOT, which names the pivot's result."""
    alias = ""
    for pivot in source.args.get("pivots") or []:
        alias = pivot.alias or alias
        pivot.set("alias", None)
    return alias


def set_source_alias(source: exp.Expr, alias: str) -> None:
    source.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))


def strip_select_as_kind(query: exp.Expr) -> bool:
    """Turn SELECT AS STRUCT and SELECT AS VALUE into plain SELECTs; return whether a SELECT AS VALUE was among them."""
    pending = [query]
    is_value = False
    while pending:
        node = pending.pop()
        if isinstance(node, exp.SetOperation):
            pending += [node.this, node.expression]
        elif isinstance(node, exp.Subquery):
            pending.append(node.this)
        elif isinstance(node, exp.Select) and node.args.get("kind"):
            is_value = is_value or node.args["kind"] == "VALUE"
            node.set("kind", None)
    return is_value


def _derived_relation(alias: str, outputs: list[OutputColumn], *, is_value: bool = False) -> Relation:
    fields: dict[str, NamedExpression] = {}
    for position, output in enumerate(outputs):
        lower = output.name.lower()
        field = NamedExpression(output.name, _quoted_column(alias, output.name_in_tree or output.name), output.lineage)
        if lower in fields:
            fields[lower] = msgspec.structs.replace(fields[lower], has_duplicate_name=True)
            lower = f"{lower}\0{position}"
            while lower in fields:
                lower += "\0"
        fields[lower] = field
    if is_value and len(fields) == 1:
        value = next(iter(fields.values()))
        return Relation(alias, unnested_element=NamedExpression(alias, value.value, value.lineage))
    return Relation(alias, fields)


def make_names_unique(query: exp.Expr, outputs: list[OutputColumn]) -> list[OutputColumn]:
    """Give columns with duplicate names unique names in the tree, so that a star can refer to each of them."""
    items = _leftmost_select(query).expressions
    used_names = {output.name.lower() for output in outputs}
    if len(used_names) == len(outputs) or len(items) != len(outputs):
        return outputs
    seen: set[str] = set()
    next_suffixes: dict[str, int] = {}
    unique: list[OutputColumn] = []
    for output, item in zip(outputs, items, strict=True):
        lower = output.name.lower()
        if lower in seen and isinstance(item, exp.Alias):
            column = _unused_name(output.name, used_names, next_suffixes)
            item.set("alias", exp.to_identifier(column, quoted=True))
            unique.append(msgspec.structs.replace(output, name_in_tree=column))
        else:
            unique.append(output)
        seen.add(lower)
    return unique


def _leftmost_select(query: exp.Expr) -> exp.Expr:
    """Return the leftmost SELECT of the query, which determines the names of the query's columns."""
    while not isinstance(query, exp.Select) and isinstance(query.this, exp.Expr):
        query = query.this
    return query


def _unused_name(name: str, used_names: set[str], next_suffixes: dict[str, int]) -> str:
    """Return `name` with a numeric suffix that is not used yet, and record the result as used.

    `next_suffixes` has, for each name, the suffix to try first.
    """
    suffix = next_suffixes.get(name.lower(), 2)
    while f"{name}_{suffix}".lower() in used_names:
        suffix += 1
    next_suffixes[name.lower()] = suffix + 1
    used_names.add(f"{name}_{suffix}".lower())
    return f"{name}_{suffix}"


def _is_stream(resolution: NameResolution, table_name: str) -> bool:
    return resolution.known_streams is None or table_name in resolution.known_streams


def _resolve_stream_reference(resolution: NameResolution, scope: Scope, table: exp.Expr, stream: str) -> None:
    """Add a stream to the scope. Names refer to columns of its table, or otherwise to top-level keys of its events."""
    stream_table = resolution.target.stream_table(stream)
    alias = table.alias or implicit_alias(stream)
    fields = {
        name.lower(): _physical_column(stream, alias, name, kind) for name, kind in stream_table.kind_by_column.items()
    }
    extra_keys = _quoted_column(alias, stream_table.extras_column)
    set_type(extra_keys, exp.DType.VARIANT)
    whole_event = Lineage(origins=frozenset({ValueOrigin(stream, ())}))
    qualified_name = "" if table.alias else stream
    scope.relations.append(
        Relation(
            alias,
            fields,
            extra_keys_object=NamedExpression(alias, extra_keys, whole_event),
            qualified_name=qualified_name,
        )
    )
    table.set("this", exp.to_identifier(stream_table.table_name, quoted=True))
    table.set("db", None)
    table.set("catalog", None)
    table.meta["stream"] = stream
    set_source_alias(table, alias)
    resolution.used_streams[stream] = None


def _physical_column(stream: str, alias: str, name: str, kind: Kind) -> NamedExpression:
    column = set_type(_quoted_column(alias, name), SQLGLOT_TYPE_BY_KIND[kind])
    lineage = Lineage(origins=frozenset({ValueOrigin(stream, (name,))})) if kind is Kind.VARIANT else Lineage()
    return NamedExpression(name, column, lineage)


def _quoted_column(alias: str, name: str) -> exp.Expr:
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(alias, quoted=True))


def unknown_table_error(resolution: NameResolution, ctes: CteScope, table: exp.Expr, table_name: str) -> QueryRefused:
    refusal = f'"{table_name}" cannot be read here.'
    order_hint = _definition_order_hint(resolution, table, table_name)
    if order_hint is not None:
        return resolution.refused_error(table, refusal, order_hint)
    streams = resolution.known_streams or () if resolution.may_read_streams else ()
    readable = sorted({*ctes.cte_by_name, *resolution.sub_query_names, *streams})
    closest_name = find_closest_name(table_name, readable, 0.7)
    if closest_name:
        hint = f"Did you mean {closest_name}? These can be read: {', '.join(readable)}."
    else:
        hint = (
            f"These can be read: {', '.join(readable)}."
            if readable
            else "There is nothing to read here: only its own WITH."
        )
    return resolution.refused_error(table, refusal, hint)


def _definition_order_hint(resolution: NameResolution, table: exp.Expr, table_name: str) -> str | None:
    """Return a hint if the table is a sub-query that is defined later or contains this reference; None otherwise."""
    lower = table_name.lower()
    cte = table.find_ancestor(exp.CTE)
    while cte is not None:
        with_ = cte.parent
        names = {other.alias.lower() for other in with_.expressions} if isinstance(with_, exp.With) else set()
        if with_ is not None and with_.parent is None:
            names |= {name.lower() for name in resolution.sub_query_names}
        if lower in names:
            if with_ is not None and with_.args.get("recursive"):
                return "A sub-query of WITH RECURSIVE may read itself after UNION ALL, but no two may read each other."
            if cte.alias.lower() == lower:
                return "A sub-query reads itself only in WITH RECURSIVE, after UNION ALL."
            return f"{table_name} is defined later in this WITH: move it before {cte.alias}, or write WITH RECURSIVE."
        cte = cte.find_ancestor(exp.CTE)
    return None


class PivotInput(msgspec.Struct):
    """The relation to which PIVOT or UNPIVOT is applied: a resolved query with an alias."""

    resolution: NameResolution
    ctes: CteScope
    inner_query: exp.Expr
    relation: Relation

    @property
    def context(self) -> NameContext:
        return NameContext(self.resolution, self.ctes, Scope(relations=[self.relation]))

    def resolve_copy(self, node: exp.Expr) -> exp.Expr:
        """Return a copy of an expression in which the names of the relation's columns are resolved."""
        holder = exp.Paren(this=copy_tree(node))
        resolve_expression(holder.this, self.context)
        value: exp.Expr = holder.this
        return value

    def select_from_input(self, items: Sequence[exp.Expr]) -> exp.Select:
        return exp.Select(expressions=list(items), from_=exp.From(this=self.inner_query))


def _expand_pivot(pivoted: PivotInput, pivot: exp.Expr) -> tuple[exp.Select, list[OutputColumn]]:
    """Return the query that is equivalent to a PIVOT or an UNPIVOT, and its columns."""
    fields = pivot.args.get("fields") or []
    if len(fields) != 1 or not isinstance(fields[0], exp.In) or fields[0].find(exp.PivotAny):
        raise pivoted.resolution.unsupported_error(
            pivot, "This form of PIVOT", "Write PIVOT(aggregate FOR column IN (values))."
        )
    select = _rewrite_unpivot(pivoted, pivot) if pivot.args.get("unpivot") else _rewrite_pivot(pivoted, pivot)
    outputs = [OutputColumn(item.alias, lineage_of(item)) for item in select.expressions]
    return select, outputs


def _rewrite_pivot(pivoted: PivotInput, pivot: exp.Expr) -> exp.Select:
    """Rewrite PIVOT as a grouped query with a conditional aggregate for each value.

    The query is grouped by the columns that PIVOT does not use.
    """
    key = pivoted.resolve_copy(pivot.args["fields"][0].this)
    calls = [
        (item.alias, pivoted.resolve_copy(_require_aggregate_call(pivoted.resolution, item)))
        for item in pivot.expressions
    ]
    used = {column.name.lower() for part in (key, *(call for _, call in calls)) for column in part.find_all(exp.Column)}
    group_fields = [field for field in pivoted.relation.columns_by_name.values() if field.name.lower() not in used]
    items = [_quoted_alias(field.copy_expression(), field.name) for field in group_fields]
    for value, label in _pivot_values(pivoted.resolution, pivot):
        for prefix, call in calls:
            condition = _null_safe_equal(copy_tree(key), pivoted.resolve_copy(value))
            name = f"{prefix}_{label}" if prefix else label
            items.append(_quoted_alias(_conditional_aggregate(pivoted.resolution, copy_tree(call), condition), name))
    select = pivoted.select_from_input(items)
    if group_fields:
        select.set(
            "group", exp.Group(expressions=[exp.Literal.number(ordinal) for ordinal in range(1, len(group_fields) + 1)])
        )
    return select


def _require_aggregate_call(resolution: NameResolution, item: exp.Expr) -> exp.Expr:
    call: exp.Expr = item.unalias()
    if not isinstance(call, exp.AggFunc):
        raise resolution.unsupported_error(item, "In PIVOT, an expression that is not a call of an aggregate function")
    return call


def _pivot_values(resolution: NameResolution, pivot: exp.Expr) -> Iterator[tuple[exp.Expr, str]]:
    for item in pivot.args["fields"][0].expressions:
        value = item.this if isinstance(item, exp.PivotAlias) else item
        if value.find(exp.Column, exp.Query):
            raise resolution.unsupported_error(item, "A value of PIVOT that is not a constant")
        label = item.alias if isinstance(item, exp.PivotAlias) else pivot_value_label(value)
        if label is None:
            subject = "A value of PIVOT that is neither a text, a whole number, a truth nor a date, without a name,"
            raise resolution.unsupported_error(item, subject, "Write a name after it.")
        yield value, label


def pivot_value_label(value: exp.Expr) -> str | None:
    """Return BigQuery's name for the column of a pivoted value; None if the value is not constant."""
    if isinstance(value, exp.Boolean):
        return "TRUE" if value.this else "FALSE"
    if isinstance(value, exp.Null):
        return "NULL"
    if isinstance(value, exp.Cast) and value.is_type(exp.DType.DATE):
        text = constant_text(value.this)
        return text and f"_{text.replace('-', '_')}"
    number = constant_int(value)
    if number is not None:
        return f"_minus_{-number}" if number < 0 else f"_{number}"
    return constant_text(value)


def _null_safe_equal(key: exp.Expr, value: exp.Expr) -> exp.Expr:
    if isinstance(value, exp.Null):
        return exp.Is(this=key, expression=value)
    return exp.EQ(this=key, expression=value)


# Aggregates that ignore NULL. In a PIVOT, their argument can be NULL for all rows that do not have the pivoted value.
_NULL_IGNORING_AGGREGATES: Final = (
    *(exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Count, exp.CountIf, exp.AnyValue, exp.GroupConcat, exp.LogicalAnd),
    *(exp.LogicalOr, exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop, exp.ApproxDistinct),
    *(exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg, exp.ArrayAgg, exp.ArgMax, exp.ArgMin),
)
_AGGREGATE_MODIFIERS: Final = (exp.Distinct, exp.Order, exp.Limit, exp.IgnoreNulls, exp.RespectNulls, exp.HavingMax)


def _conditional_aggregate(resolution: NameResolution, call: exp.Expr, condition: exp.Expr) -> exp.Expr:
    """Return the aggregate over the rows that fulfil the condition; its argument becomes NULL for all other rows.

    Refuse aggregates that do not ignore NULL.
    """
    if not isinstance(call, _NULL_IGNORING_AGGREGATES) or call.find(exp.RespectNulls):
        raise resolution.unsupported_error(
            call, "In PIVOT an aggregate that does not leave NULL out", "Write a query with GROUP BY."
        )
    if isinstance(call, (exp.ArgMax, exp.ArgMin)):
        call.set("expression", exp.If(this=condition, true=copy_tree(call.expression)))
        return call
    argument = call.this
    while isinstance(argument, _AGGREGATE_MODIFIERS):
        argument = argument.expressions[0] if isinstance(argument, exp.Distinct) else argument.this
    if argument is None or isinstance(argument, exp.Star):
        call.set("this", exp.If(this=condition, true=exp.Literal.number(1)))
        return call
    argument.replace(exp.If(this=condition, true=copy_tree(argument)))
    return exp.IgnoreNulls(this=call) if isinstance(call, exp.ArrayAgg) and not call.find(exp.IgnoreNulls) else call


def _rewrite_unpivot(pivoted: PivotInput, pivot: exp.Expr) -> exp.Select:
    """Rewrite UNPIVOT as a cross join with an array that has an element for each group of columns.

    Thus, the query yields each row once for every group, with the group's values and its label.
    """
    values = [value.name for value in _tuple_parts(pivot.expressions[0])]
    name = pivot.args["fields"][0].this.name
    groups = [_unpivot_group_columns_and_label(pivoted, item) for item in pivot.args["fields"][0].expressions]
    if any(len(columns) != len(values) for columns, _ in groups):
        raise pivoted.resolution.unsupported_error(pivot, "UNPIVOT into another number of columns than it takes")
    alias = exp.to_identifier(pivoted.resolution.unique_name("_unpivoted"), quoted=True)
    lineages = [
        _join_event_lineages([columns[position].lineage for columns, _ in groups]) for position in range(len(values))
    ]
    value_columns = [_unnested_field(alias, value, lineage) for value, lineage in zip(values, lineages, strict=True)]
    items = [_quoted_alias(field.copy_expression(), field.name) for field in _fields_not_unpivoted(pivoted, groups)]
    items += [_quoted_alias(value, value_name) for value, value_name in zip(value_columns, values, strict=True)]
    select = pivoted.select_from_input([*items, _quoted_alias(_unnested_field(alias, name, NO_LINEAGE), name)])
    select.set("joins", [exp.Join(this=_unnest_unpivot_groups(groups, values, name, alias), kind="CROSS")])
    if not pivot.args.get("include_nulls"):
        null_tests = [exp.Is(this=copy_tree(value), expression=exp.Null()) for value in value_columns]
        select.set("where", exp.Where(this=exp.Not(this=exp.Paren(this=exp.and_(*null_tests, copy=False)))))
    return select


def _fields_not_unpivoted(
    pivoted: PivotInput, groups: Sequence[tuple[list[NamedExpression], exp.Expr]]
) -> list[NamedExpression]:
    """Return the columns of the relation that UNPIVOT does not take into any of its groups of columns."""
    used = {field.name.lower() for columns, _ in groups for field in columns}
    return [field for field in pivoted.relation.columns_by_name.values() if field.name.lower() not in used]


def _unnest_unpivot_groups(
    groups: Sequence[tuple[list[NamedExpression], exp.Expr]], values: Sequence[str], name: str, alias: exp.Identifier
) -> exp.Unnest:
    """Return UNNEST of an array of structs, one for each group of columns, with the group's values and its label.

    The fields with the group's values have the names in `values`.
    """
    rows = [
        _struct_literal([*zip(values, (field.copy_expression() for field in columns), strict=True), (name, label)])
        for columns, label in groups
    ]
    table = exp.TableAlias(this=copy_tree(alias), columns=[copy_tree(alias)])
    return exp.Unnest(expressions=[exp.Array(expressions=rows)], alias=table, offset=False)


def _unpivot_group_columns_and_label(pivoted: PivotInput, item: exp.Expr) -> tuple[list[NamedExpression], exp.Expr]:
    """Return the columns of a group of UNPIVOT, and the group's label."""
    columns = _tuple_parts(item.this if isinstance(item, exp.PivotAlias) else item)
    fields = [_find_relation_field(pivoted, column) for column in columns]
    label = item.args["alias"] if isinstance(item, exp.PivotAlias) else None
    if isinstance(label, exp.Literal):
        return fields, copy_tree(label)
    return fields, exp.Literal.string(label.name if label is not None else "_".join(field.name for field in fields))


def _find_relation_field(pivoted: PivotInput, column: exp.Expr) -> NamedExpression:
    name = column.this if isinstance(column, exp.Column) else column
    field = pivoted.relation.columns_by_name.get(name.name.lower()) if isinstance(name, exp.Identifier) else None
    if field is None or column.args.get("table") is not None:
        identifier = name if isinstance(name, exp.Identifier) else exp.to_identifier(column.sql("bigquery"))
        raise of_names.unknown_name_error(pivoted.resolution, [identifier], pivoted.context.scope)
    return field


def _tuple_parts(node: exp.Expr) -> list[exp.Expr]:
    return list(node.expressions) if isinstance(node, exp.Tuple) else [node]


def _struct_literal(fields: Sequence[tuple[str, exp.Expr]]) -> exp.Expr:
    parts = [exp.PropertyEQ(this=exp.to_identifier(name, quoted=True), expression=value) for name, value in fields]
    return exp.Struct(expressions=parts)


def _unnested_field(relation: exp.Expr, name: str, lineage: Lineage) -> exp.Expr:
    row = exp.Column(this=copy_tree(relation), table=copy_tree(relation))
    dot = exp.Dot(this=row, expression=exp.to_identifier(name, quoted=True))
    dot.meta["lineage"] = lineage
    return dot


def _join_event_lineages(lineages: Sequence[Lineage]) -> Lineage:
    return (
        join_lineages(lineages) if lineages and all(lineage.is_of_event_value for lineage in lineages) else NO_LINEAGE
    )


def _quoted_alias(value: exp.Expr, name: str) -> exp.Expr:
    return exp.Alias(this=value, alias=exp.to_identifier(name, quoted=True))
