"""Name resolution of saved queries, sandbox queries and stand-alone SQL: WITH, SELECT, set operations, and sub-queries.

UNION, INTERSECT and EXCEPT with BY NAME are rewritten so that columns are paired by position.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import AmbiguousName, CompilationTimeout, PlanTooLarge, QueryRefused
from cordwood.model.event import EventShape
from cordwood.sql.budget import charge_nodes, copy_tree
from cordwood.sql.nodes import add_condition
from cordwood.sql.program import EndpointProgram
from cordwood.sql.record_shapes import RecordingShapeReader
from cordwood.sql.resolve.clauses import (
    SelectAliases,
    remove_sub_query_order_by,
    resolve_filters,
    resolve_group_by,
    resolve_limits,
    resolve_order_by,
    resolve_projections,
    resolve_set_operation_order,
)
from cordwood.sql.resolve.expressions import NameContext, constant_query_columns, resolve_expression
from cordwood.sql.resolve.names import Cte, CteScope, NameResolution, OutputColumn
from cordwood.sql.resolve.sources import resolve_from_clause
from cordwood.sql.resolve.tables import make_names_unique, strip_select_as_kind
from cordwood.sql.scope import Lineage, NamedExpression, Relation, Scope
from cordwood.sql.stages import AdmittedTree, LoweredQuery, ResolvedQuery, StreamTable, Target, table_named_as_stream
from cordwood.sql.tree_printer import PrintedTree


class _SubQueryResolver(msgspec.Struct):
    """Resolver of an endpoint's sub-queries. It resolves a sub-query when the first reference to it is found."""

    program: EndpointProgram
    resolution: NameResolution
    resolved_ctes: dict[str, exp.Expr] = msgspec.field(default_factory=dict)
    cte_by_name: dict[str, Cte] = msgspec.field(default_factory=dict)
    names_being_resolved: list[str] = msgspec.field(default_factory=list)
    cte_by_endpoint: dict[str, Cte] = msgspec.field(default_factory=dict)

    def resolve_sub_query(self, name: str) -> Cte | None:
        """Return the resolved sub-query; None for an unknown name, or for a sub-query defined after its reader."""
        lower = name.lower()
        if self._is_defined_later(lower):
            return None
        if lower in self.cte_by_name:
            _mark_cte_for_inlining(self.resolved_ctes[self.cte_by_name[lower].name])
            return self.cte_by_name[lower]
        sub_query = self.program.sub_queries.get(lower)
        if sub_query is None or lower in self.names_being_resolved:
            return None
        self.names_being_resolved.append(lower)
        copy = copy_tree(sub_query)
        # Place the copy in a WITH, because the hint for an unknown name is derived from the definitions in this WITH.
        exp.With(expressions=[copy], recursive=self.program.is_recursive)
        cte = _resolve_cte(self.resolution, copy, CteScope(), None, recursive=self.program.is_recursive)
        self.names_being_resolved.pop()
        self.resolved_ctes[cte.name] = copy
        self.cte_by_name[lower] = cte
        return cte

    def _is_defined_later(self, lower: str) -> bool:
        """Return whether the sub-query is defined too late in WITH to be read by the sub-query that is being resolved.

        Return False for WITH RECURSIVE, which permits any order.
        """
        if self.program.is_recursive or not self.names_being_resolved or lower not in self.program.sub_queries:
            return False
        names = list(self.program.sub_queries)
        return names.index(lower) >= names.index(self.names_being_resolved[-1])

    def resolve_endpoint(self, name: str) -> Cte | None:
        """Resolve an endpoint that the query reads, in a scope of its own; return the CTE into which it is turned."""
        if name in self.cte_by_endpoint:
            return self.cte_by_endpoint[name]
        included = self.program.included_programs.get(name)
        if included is None:
            return None
        inner, sub_queries = _resolution_of_included_endpoint(self.resolution, included)
        tree = copy_tree(included.final_query)
        is_value = strip_select_as_kind(tree)
        outputs = make_names_unique(tree, _resolve_query(inner, tree, CteScope(), None))
        _prepend_sub_queries(tree, sub_queries)
        unique_name = self.resolution.unique_name(name)
        alias = exp.TableAlias(this=exp.to_identifier(unique_name, quoted=True))
        self.resolved_ctes[unique_name] = exp.CTE(this=tree, alias=alias)
        self.cte_by_endpoint[name] = Cte(unique_name, outputs, is_value_table=is_value)
        return self.cte_by_endpoint[name]

    def sub_query_names(self) -> tuple[str, ...]:
        """Return the names of the referenced sub-queries, in the order in which the endpoint's text defines them."""
        return tuple(cte.alias for lower, cte in self.program.sub_queries.items() if lower in self.cte_by_name)


def _mark_cte_for_inlining(cte: exp.Expr) -> None:
    """Mark a sub-query that is read more than once to be inlined, unless it groups, deduplicates or limits rows.

    Running such a sub-query once for each reader, with that reader's predicates, is cheaper than materializing it.
    """
    query = cte.this
    if isinstance(query, exp.Select) and not any(query.args.get(key) for key in ("group", "distinct", "limit")):
        cte.set("materialized", False)  # noqa: FBT003 - an argument of the node


def resolve_saved_query(program: EndpointProgram, target: Target, shapes: Mapping[str, EventShape]) -> ResolvedQuery:
    resolution, sub_queries = _create_resolution(program, target, shapes)
    tree = copy_tree(program.final_query)
    strip_select_as_kind(tree)
    _resolve_query(resolution, tree, CteScope(), None)
    return _finish_resolution(resolution, sub_queries, tree)


def resolve_sandbox_query(
    program: EndpointProgram, admitted: AdmittedTree, target: Target, shapes: Mapping[str, EventShape]
) -> ResolvedQuery:
    resolution, sub_queries = _create_resolution(program, target, shapes)
    sandbox = msgspec.structs.replace(resolution, query_text=admitted.query_text, may_read_streams=False)
    strip_select_as_kind(admitted.tree)
    _resolve_query(sandbox, admitted.tree, CteScope(), None)
    return _finish_resolution(sandbox, sub_queries, admitted.tree)


def resolve_standalone_query(admitted: AdmittedTree, target: Target) -> ResolvedQuery:
    resolution = NameResolution(
        admitted.query_text, target, RecordingShapeReader({}), {}, _resolve_query, keeps_time_functions=True
    )
    strip_select_as_kind(admitted.tree)
    _resolve_query(resolution, admitted.tree, CteScope(), None)
    remove_sub_query_order_by(admitted.tree)
    return ResolvedQuery(admitted.tree, admitted.query_text)


def check_endpoint(program: EndpointProgram, streams: Collection[str] | None) -> None:
    """Resolve a whole endpoint without known events, to find the errors that would be raised for every request."""
    resolution, sub_queries = _create_resolution(program, _CheckOnlyTarget(), {})
    resolution.known_streams = frozenset(streams) if streams is not None else None
    for name in program.sub_queries:
        sub_queries.resolve_sub_query(name)
    _resolve_query(resolution, copy_tree(program.final_query), CteScope(), None)


def _create_resolution(
    program: EndpointProgram, target: Target, shapes: Mapping[str, EventShape]
) -> tuple[NameResolution, _SubQueryResolver]:
    resolution = NameResolution(
        program.endpoint.sql,
        target,
        RecordingShapeReader(shapes),
        program.parameters,
        _resolve_query,
        may_read_streams=True,
        sub_query_names=program.sub_query_names,
    )
    return resolution, _attach_sub_queries(resolution, program)


def _resolution_of_included_endpoint(
    resolution: NameResolution, program: EndpointProgram
) -> tuple[NameResolution, _SubQueryResolver]:
    """Return the name resolution of an endpoint that the query reads.

    It has the text, parameters and sub-queries of that endpoint. The rest of its state is shared with the name
    resolution of the query.
    """
    inner = msgspec.structs.replace(
        resolution,
        query_text=program.endpoint.sql,
        parameters=program.parameters,
        sub_query_names=program.sub_query_names,
    )
    return inner, _attach_sub_queries(inner, program)


def _attach_sub_queries(resolution: NameResolution, program: EndpointProgram) -> _SubQueryResolver:
    """Let the name resolution find the program's sub-queries, and the endpoints that the program reads."""
    sub_queries = _SubQueryResolver(program, resolution)
    resolution.find_sub_query = sub_queries.resolve_sub_query
    resolution.find_endpoint = sub_queries.resolve_endpoint
    return sub_queries


def _prepend_sub_queries(tree: exp.Expr, sub_queries: _SubQueryResolver) -> None:
    """Add the endpoint's resolved sub-queries to WITH, before the sub-queries that the query itself defines."""
    if not sub_queries.resolved_ctes:
        return
    own_with = tree.args.get("with_")
    ctes = [*sub_queries.resolved_ctes.values(), *(own_with.expressions if own_with is not None else [])]
    recursive = sub_queries.program.is_recursive or bool(own_with is not None and own_with.args.get("recursive"))
    tree.set("with_", exp.With(expressions=ctes, recursive=recursive))


def _finish_resolution(resolution: NameResolution, sub_queries: _SubQueryResolver, tree: exp.Expr) -> ResolvedQuery:
    """Return the resolved query. Its WITH begins with those sub-queries of the endpoint that the query references."""
    _prepend_sub_queries(tree, sub_queries)
    remove_sub_query_order_by(tree)
    return ResolvedQuery(
        tree,
        resolution.query_text,
        sub_queries=sub_queries.sub_query_names(),
        unseen_paths=tuple(
            path if suggestion is None else f"{path}; did you mean {suggestion}?"
            for path, suggestion in resolution.shape_reader.unseen_paths.items()
        ),
        streams=tuple(resolution.used_streams),
        shape_lookups=resolution.shape_reader.shape_lookups,
    )


class _CheckOnlyTarget:
    """A target for checks in which only names matter: it prints BigQuery SQL and lowers nothing."""

    name = "outline"

    def stream_table(self, stream: str) -> StreamTable:
        return table_named_as_stream(stream)

    def lower(self, resolved: ResolvedQuery) -> LoweredQuery:
        return LoweredQuery(resolved.tree, resolved)

    def print_lowered_tree(self, tree: exp.Expr) -> PrintedTree:
        return PrintedTree((tree.sql("bigquery"),))


def _resolve_query(
    resolution: NameResolution, node: exp.Expr, ctes: CteScope, parent: Scope | None
) -> list[OutputColumn]:
    """Resolve a query in place; return its columns.

    If the budget is exceeded, the error gets the position of the innermost query that was being resolved.
    """
    charge_nodes(1 + len(ctes.cte_by_name))
    try:
        return _resolve_clauses(resolution, node, ctes, parent)
    except (PlanTooLarge, CompilationTimeout) as fault:
        fault.span = fault.span or resolution.span_of_node(node)
        raise


def _resolve_clauses(
    resolution: NameResolution, node: exp.Expr, ctes: CteScope, parent: Scope | None
) -> list[OutputColumn]:
    ctes = _resolve_with(resolution, node, ctes, parent)
    if isinstance(node, exp.Select):
        return _resolve_select(resolution, node, ctes, parent)
    if isinstance(node, exp.SetOperation):
        outputs = _resolve_set_operation(resolution, node, ctes, parent)
    elif isinstance(node, exp.Subquery):
        outputs = _resolve_query(resolution, node.this, ctes, parent)
    else:
        raise resolution.refused_error(node, "This is not a query that can be read.", "Write a SELECT.")
    context = NameContext(resolution, ctes, _set_operation_order_scope(outputs, parent))
    resolve_set_operation_order(node, outputs, context)
    resolve_limits(node, context)
    return outputs


def _resolve_select(
    resolution: NameResolution, select: exp.Expr, ctes: CteScope, parent: Scope | None
) -> list[OutputColumn]:
    where = select.args.get("where")
    select.set("where", None)
    scope = resolve_from_clause(select, resolution, ctes, parent)
    context = NameContext(resolution, ctes, scope)
    if where is not None:
        _prepend_original_where(select, where, context)
    outputs = resolve_projections(select, context)
    aliases = SelectAliases(select)
    resolve_group_by(select, context, aliases)
    resolve_filters(select, context, aliases)
    _resolve_distinct(select, context)
    resolve_order_by(select, context, aliases)
    resolve_limits(select, context)
    _refuse_unsupported_clauses(select, context)
    return outputs


def _prepend_original_where(select: exp.Expr, where: exp.Expr, context: NameContext) -> None:
    """Put the author's WHERE before the filters that were added because reads of unnested records became paths."""
    filters = select.args.get("where")
    select.set("where", where)
    resolve_expression(where.this, context)
    if filters is not None:
        add_condition(select, filters.this)


def _resolve_distinct(select: exp.Expr, context: NameContext) -> None:
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        raise context.resolution.unsupported_error(distinct, "DISTINCT ON")


_RESOLVED_CLAUSES = frozenset(
    [
        "with_",
        "expressions",
        "from_",
        "joins",
        "where",
        "group",
        "having",
        "qualify",
        "windows",
        "distinct",
        "order",
        "limit",
        "offset",
        "kind",
    ]
)


def _refuse_unsupported_clauses(select: exp.Expr, context: NameContext) -> None:
    """Refuse clauses for which there is no rule of name resolution."""
    for key, value in select.args.items():
        if value and key not in _RESOLVED_CLAUSES and key != "operation_modifiers":
            first = value[0] if isinstance(value, list) and value else value
            node = first if isinstance(first, exp.Expr) else select
            raise context.resolution.unsupported_error(node, key.strip("_").replace("_", " ").upper())


def _resolve_set_operation(
    resolution: NameResolution, node: exp.Expr, ctes: CteScope, parent: Scope | None
) -> list[OutputColumn]:
    """Resolve a set operation. Long chains of operations nest on the left, so a loop resolves them, not recursion."""
    operations = [node]
    while isinstance(operations[-1].this, exp.SetOperation) and not operations[-1].this.args.get("with_"):
        operations.append(operations[-1].this)
    outputs = _resolve_query(resolution, operations[-1].this, ctes, parent)
    for operation in reversed(operations):
        right = _resolve_query(resolution, operation.expression, ctes, parent)
        _align_struct_field_names(operation.expression, outputs)
        if operation is not node:
            _resolve_order_and_limit(resolution, operation, outputs, ctes, parent)
        outputs = _set_operation_outputs(resolution, operation, outputs, right)
    return outputs


def _align_struct_field_names(query: exp.Expr, outputs: list[OutputColumn]) -> None:
    """Rename the fields of SELECT AS STRUCT on one side of a set operation to those of the other side, `outputs`.

    BigQuery pairs the fields of both sides by position, but engines pair them by name.
    """
    if query.args.get("kind") == "STRUCT" and len(query.expressions) == len(outputs):
        for item, output in zip(query.expressions, outputs, strict=True):
            if isinstance(item, exp.Alias):
                item.set("alias", exp.to_identifier(output.name, quoted=True))


def _resolve_order_and_limit(
    resolution: NameResolution, node: exp.Expr, outputs: list[OutputColumn], ctes: CteScope, parent: Scope | None
) -> None:
    context = NameContext(resolution, ctes, _set_operation_order_scope(outputs, parent))
    resolve_set_operation_order(node, outputs, context)
    resolve_limits(node, context)


def _set_operation_outputs(
    resolution: NameResolution, operation: exp.Expr, left: list[OutputColumn], right: list[OutputColumn]
) -> list[OutputColumn]:
    """Return the columns of a set operation. With BY NAME, wrap its sides to put their columns in the same order."""
    if operation.args.get("by_name"):
        return _match_outputs_by_name(resolution, operation, left, right)
    if len(left) != len(right):
        raise resolution.refused_error(
            operation.expression,
            f"The sides have {len(left)} and {len(right)} columns: they must have as many.",
            "Select the same columns on both sides.",
        )
    return [_merge_output_types(*pair) for pair in zip(left, right, strict=False)] + left[len(right) :]


def _merge_output_types(left: OutputColumn, right: OutputColumn) -> OutputColumn:
    lineage = left.lineage
    if right.lineage.is_of_event_value:
        lineage = Lineage(
            origins=lineage.origins | right.lineage.origins, fields=lineage.fields, element=lineage.element
        )
    return OutputColumn(left.name, lineage, left.name_in_tree)


def _match_outputs_by_name(
    resolution: NameResolution, operation: exp.Expr, left: list[OutputColumn], right: list[OutputColumn]
) -> list[OutputColumn]:
    names = _ordered_output_names(resolution, operation, left, right)
    sides = (("this", left), ("expression", right))
    for key, outputs in sides:
        _reorder_columns(resolution, operation.args[key], outputs, names)
    for key in ("by_name", "side", "kind", "on"):
        operation.set(key, None)
    lineages = {output.name.lower(): output.lineage for output in (*right, *left)}
    return [OutputColumn(name, lineages[name.lower()]) for name in names]


def _ordered_output_names(
    resolution: NameResolution, operation: exp.Expr, left: list[OutputColumn], right: list[OutputColumn]
) -> list[str]:
    """Return the column names of a set operation BY NAME in the order of its result."""
    left_names, right_names = _name_by_lower_case(left), _name_by_lower_case(right)
    side = str(operation.args.get("side") or operation.args.get("kind") or "").upper()
    if operation.args.get("on"):
        return _column_names_in_on(
            resolution,
            operation,
            _OUTPUT_NAME_CHOOSER_BY_SIDE[side if side in _OUTPUT_NAME_CHOOSER_BY_SIDE else "INNER"](
                left_names, right_names
            ),
        )
    if side in _OUTPUT_NAME_CHOOSER_BY_SIDE:
        return _OUTPUT_NAME_CHOOSER_BY_SIDE[side](left_names, right_names)
    if left_names.keys() != right_names.keys():
        raise _unpaired_columns_error(resolution, operation, sorted(left_names.keys() ^ right_names.keys()))
    return list(left_names.values())


def _column_names_in_on(resolution: NameResolution, operation: exp.Expr, available: list[str]) -> list[str]:
    """Return the column names in ON of a set operation; raise an error if a name is not available."""
    names = [column.name for column in operation.args["on"]]
    available_lower = {name.lower() for name in available}
    missing = [name for name in names if name.lower() not in available_lower]
    if missing:
        raise _unpaired_columns_error(resolution, operation, missing)
    return names


_NameByLowerCase = dict[str, str]


def _name_by_lower_case(outputs: list[OutputColumn]) -> _NameByLowerCase:
    return {output.name.lower(): output.name for output in outputs}


_OUTPUT_NAME_CHOOSER_BY_SIDE: Final[Mapping[str, Callable[[_NameByLowerCase, _NameByLowerCase], list[str]]]] = {
    "FULL": lambda ours, theirs: [*ours.values(), *_names_only_on_right(ours, theirs)],
    "LEFT": lambda ours, _: list(ours.values()),
    "INNER": lambda ours, theirs: [name for lower, name in ours.items() if lower in theirs],
}


def _names_only_on_right(left_names: _NameByLowerCase, right_names: _NameByLowerCase) -> list[str]:
    return [name for lower, name in right_names.items() if lower not in left_names]


def _unpaired_columns_error(resolution: NameResolution, operation: exp.Expr, names: list[str]) -> QueryRefused:
    return resolution.refused_error(
        operation.expression,
        f"BY NAME needs the same columns on both sides; these are on one only: {', '.join(names)}.",
        "Write FULL OUTER, LEFT OUTER or INNER before the operation.",
    )


def _reorder_columns(resolution: NameResolution, side: exp.Expr, outputs: list[OutputColumn], names: list[str]) -> None:
    if [output.name.lower() for output in outputs] == [name.lower() for name in names]:
        return
    alias = exp.to_identifier(resolution.unique_name("_side"), quoted=True)
    names_by_lower = {output.name.lower(): output.name for output in outputs}
    items = [
        exp.Alias(
            this=_column_or_null(names_by_lower.get(name.lower()), alias), alias=exp.to_identifier(name, quoted=True)
        )
        for name in names
    ]
    wrapper = exp.Select(expressions=items)
    side.replace(wrapper)
    inner = side.this if isinstance(side, exp.Subquery) and not side.args.get("limit") else side
    wrapper.set("from_", exp.From(this=exp.Subquery(this=inner, alias=exp.TableAlias(this=copy_tree(alias)))))


def _column_or_null(name: str | None, alias: exp.Expr) -> exp.Expr:
    if name is None:
        return exp.Null()
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=copy_tree(alias))


def _set_operation_order_scope(outputs: list[OutputColumn], parent: Scope | None) -> Scope:
    """Return the scope of a set operation's ORDER BY, which refers to the operation's columns by unqualified names."""
    fields = {
        output.name.lower(): NamedExpression(
            output.name, exp.Column(this=exp.to_identifier(output.name, quoted=True)), output.lineage
        )
        for output in outputs
    }
    return Scope(parent=parent, relations=[Relation("", fields)])


def _resolve_with(resolution: NameResolution, node: exp.Expr, ctes: CteScope, parent: Scope | None) -> CteScope:
    with_ = node.args.get("with_")
    if with_ is None:
        return ctes
    _check_unique_cte_names(resolution, with_.expressions)
    recursive = bool(with_.args.get("recursive"))
    if recursive:
        with_.set("expressions", _sort_ctes_by_dependency(with_.expressions))
    for cte in with_.expressions:
        ctes = ctes.with_cte(cte.alias, _resolve_cte(resolution, cte, ctes, parent, recursive=recursive))
    return ctes


def _check_unique_cte_names(resolution: NameResolution, ctes: list[exp.Expr]) -> None:
    seen_names: set[str] = set()
    for cte in ctes:
        if cte.alias.lower() in seen_names:
            raise AmbiguousName(
                f'Two sub-queries in WITH are called "{cte.alias}".',
                hint="Name one otherwise.",
                span=resolution.span_of_node(cte),
            )
        seen_names.add(cte.alias.lower())


def _sort_ctes_by_dependency(ctes: list[exp.Expr]) -> list[exp.Expr]:
    """Put sub-queries after those that they read, because a sub-query in WITH RECURSIVE may read later sub-queries."""
    by_name = {cte.alias.lower(): cte for cte in ctes}
    ordered: dict[str, exp.Expr] = {}

    def visit(name: str, in_progress: frozenset[str]) -> None:
        if name in ordered or name in in_progress:
            return
        for table in by_name[name].find_all(exp.Table):
            if table.name.lower() in by_name:
                visit(table.name.lower(), in_progress | {name})
        ordered[name] = by_name[name]

    for name in by_name:
        visit(name, frozenset())
    return list(ordered.values())


def _resolve_cte(
    resolution: NameResolution, cte: exp.Expr, ctes: CteScope, parent: Scope | None, *, recursive: bool
) -> Cte:
    columns = cte.args["alias"].columns
    if columns:
        raise resolution.unsupported_error(cte, "A list of columns after a name in WITH")
    name = resolution.unique_name(cte.alias)
    is_value = strip_select_as_kind(cte.this)
    if recursive and isinstance(cte.this, exp.SetOperation):
        ctes = ctes.with_cte(cte.alias, Cte(name, _recursive_cte_outputs(resolution, cte.this, ctes, parent)))
    outputs = make_names_unique(cte.this, resolution.resolve_query(resolution, cte.this, ctes, parent))
    if not recursive and name.lower() in map(str.lower, resolution.used_streams):
        # The query also reads a stream with this name. Rename the sub-query, because an engine could otherwise read the
        # sub-query in place of the stream.
        name = resolution.unique_name(cte.alias)
    cte.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
    values = None if is_value else _constant_cte_columns(cte.this, outputs)
    return Cte(name, outputs, is_value_table=is_value, constant_columns=values)


def _constant_cte_columns(query: exp.Expr, outputs: list[OutputColumn]) -> dict[str, exp.Expr] | None:
    """Return the values of a constant sub-query; None if it is not constant, or if two columns share a name."""
    return None if any(output.name_in_tree for output in outputs) else constant_query_columns(query)


def _recursive_cte_outputs(
    resolution: NameResolution, union: exp.Expr, ctes: CteScope, parent: Scope | None
) -> list[OutputColumn]:
    """Return the columns of a recursive sub-query, which are the columns of its first, non-recursive part."""
    used_names = set(resolution.used_names)
    first = copy_tree(union)
    ctes = _resolve_with(resolution, first, ctes, parent)
    while isinstance(first, exp.SetOperation):
        first = first.this
    outputs = resolution.resolve_query(resolution, first, ctes, parent)
    resolution.used_names = used_names
    return outputs
