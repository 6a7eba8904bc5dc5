"""Name resolution in expressions: names become columns, parameters become slots, and constant sub-queries are inlined.

The values of slots are bound at run time and never printed. References to the columns of a sub-query without FROM are
replaced by their constant values, so that an engine can use the values as bounds of a scan.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain, islice
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import UnknownNameInQuery, find_closest_name
from cordwood.model.event import ValueKind
from cordwood.sql.budget import charge_nodes, copy_tree
from cordwood.sql.datatypes import SQLGLOT_TYPE_BY_KIND
from cordwood.sql.diagnostics import copy_source_position
from cordwood.sql.nodes import NOW_SLOT_NAME, event_elements_node, is_event_path, parameter_node, replace_node, set_type
from cordwood.sql.resolve import names as of_names
from cordwood.sql.resolve.names import CteScope, NameResolution
from cordwood.sql.scope import Lineage, NamedExpression, Relation, Scope, lineage_of


class NameContext(msgspec.Struct, frozen=True):
    """The names that an expression can use. `select_aliases` are the select aliases, if the expression can see them."""

    resolution: NameResolution
    ctes: CteScope
    scope: Scope
    select_aliases: Mapping[str, exp.Expr] = msgspec.field(default_factory=dict)


def resolve_expression(node: exp.Expr, context: NameContext) -> None:
    """Resolve an expression in place. It must have a parent node, in which it can be replaced."""
    _ExpressionResolver(context).visit(node)


class _ExpressionResolver(msgspec.Struct):
    context: NameContext
    aggregate_depth: int = 0

    def visit(self, node: exp.Expr) -> None:
        charge_nodes()
        resolver = _RESOLVER_BY_NODE_CLASS.get(type(node))
        if resolver is not None:
            resolver(self, node)
        elif isinstance(node, exp.Query):
            self.visit_query(node)
        else:
            self.visit_children(node)

    def visit_children(self, node: exp.Expr) -> None:
        is_aggregate = isinstance(node, exp.AggFunc)
        self.aggregate_depth += is_aggregate
        for child in list(node.iter_expressions()):
            self.visit(child)
        self.aggregate_depth -= is_aggregate

    def visit_query(self, node: exp.Expr) -> None:
        context = self.context
        scope = context.scope
        if context.select_aliases:
            fields = {
                name: NamedExpression(name, value, lineage_of(value)) for name, value in context.select_aliases.items()
            }
            scope = Scope(parent=scope, relations=[Relation("", fields)])
        context.resolution.resolve_query(context.resolution, node, context.ctes, scope)
        if isinstance(node.parent, exp.Array):
            value = _constant_row_value(node)
        else:
            value = _constant_scalar_sub_query_value(node) if isinstance(node, exp.Subquery) else None
        if value is not None:
            node.replace(value)

    def resolve_column(self, node: exp.Expr) -> None:
        parts = name_parts(node)
        if isinstance(node.this, exp.Star):
            raise self.context.resolution.refused_error(node, '"*" cannot stand here.')
        from_alias = self._resolve_alias(parts)
        resolved = (
            from_alias
            if from_alias is not None
            else of_names.resolve_name(self.context.resolution, parts, self.context.scope)
        )
        start_offset = parts[0].meta_get("start")
        if start_offset is not None and isinstance(resolved, exp.Column):
            resolved.meta["start"], resolved.meta["end"] = start_offset, parts[-1].meta_get("end", start_offset)
        replace_node(node, resolved)

    def _resolve_alias(self, parts: list[exp.Identifier]) -> exp.Expr | None:
        """Resolve a select alias, which takes precedence over a column or a table except inside aggregates."""
        name, scope = parts[0].name, self.context.scope
        aliased = self.context.select_aliases.get(name.lower())
        if aliased is None or (self.aggregate_depth and (scope.find_columns(name) or scope.find_relation(name))):
            return None
        return of_names.access_fields(self.context.resolution, _copy_as_operand(aliased), parts[1:])

    def resolve_dot(self, node: exp.Expr) -> None:
        """Resolve an expression with dots: a dotted name as a whole, and any other value by accessing its fields."""
        root, parts = _dot_operands(node)
        if isinstance(root, exp.Column) and not isinstance(root.this, exp.Star):
            name = [*name_parts(root), *parts]
            from_alias = self._resolve_alias(name)
            resolved = (
                from_alias
                if from_alias is not None
                else of_names.resolve_name(self.context.resolution, name, self.context.scope)
            )
            node.replace(resolved)
            return
        innermost = node
        while isinstance(innermost.this, exp.Dot):
            innermost = innermost.this
        self.visit(innermost.this)
        node.replace(of_names.access_fields(self.context.resolution, innermost.this, parts))

    def resolve_bracket(self, node: exp.Expr) -> None:
        self.visit_children(node)
        lineage = lineage_of(node.this)
        if not lineage.is_of_event_value:
            return
        record = self._object_as_first_element(node, lineage)
        if record is not None:
            node.replace(record)
            return
        node.this.replace(event_elements_node(copy_tree(node.this), only_arrays=False))
        node.meta["lineage"] = self.context.resolution.shape_reader.elements(lineage)

    def _object_as_first_element(self, node: exp.Expr, lineage: Lineage) -> exp.Expr | None:
        """If `node` is element 0 of an object, return the object itself; else return None.

        BigQuery queries read a record as an array, whose only element is the record. Return None also for an element of
        a value that is not always an object.
        """
        index = node.expressions[0] if len(node.expressions) == 1 else None
        is_first = (
            isinstance(index, exp.Literal) and not index.is_string and index.this == str(node.args.get("offset") or 0)
        )
        if not is_first or self.context.resolution.shape_reader.kinds(lineage) != frozenset({ValueKind.OBJECT}):
            return None
        record: exp.Expr = copy_tree(node.this)
        record.meta["lineage"] = lineage
        return record

    def resolve_in_unnest(self, node: exp.Expr) -> None:
        """Resolve `x IN UNNEST(path)`, where an event's value is replaced by the array of its elements."""
        self.visit_children(node)
        unnest = node.args.get("unnest")
        if isinstance(unnest, exp.Unnest):
            replace_event_value_by_elements(self.context.resolution, unnest.expressions[0])

    def resolve_array_function(self, node: exp.Expr) -> None:
        self.visit_children(node)
        replace_event_value_by_elements(self.context.resolution, node.this)

    def resolve_struct(self, node: exp.Expr) -> None:
        """Resolve STRUCT(…); a field without a name takes the name of its column."""
        fields: dict[str, exp.Expr] = {}
        for index, item in enumerate(node.expressions):
            name = alias_or_last_name_part(item)
            needs_name = bool(name) and not isinstance(item, exp.Alias) and name.lower() not in fields
            key = exp.to_identifier(name, quoted=True)
            fields[name.lower() or str(index)] = exp.PropertyEQ(this=key, expression=item) if needs_name else item
        node.set("expressions", list(fields.values()))
        for item in node.expressions:
            self.visit(item.expression if isinstance(item, exp.PropertyEQ) else item)

    def resolve_parameter(self, node: exp.Expr) -> None:
        node.replace(_parameter_slot(self.context.resolution, node))

    def resolve_time_function(self, node: exp.Expr) -> None:
        self.visit_children(node)
        if not self.context.resolution.keeps_time_functions:
            node.replace(_time_from_now_slot(node))


def strip_empty_array_default(value: exp.Expr) -> exp.Expr:
    """Replace `COALESCE(path, [])`, used as an array, by the path.

    The default `[]` is not needed: a missing value has no elements anyway.
    """
    if (
        isinstance(value, exp.Coalesce)
        and lineage_of(value.this).is_of_event_value
        and all(map(_is_empty_array, value.expressions))
    ):
        inner: exp.Expr = value.this
        value.replace(inner)
        return inner
    return value


def _is_empty_array(value: exp.Expr) -> bool:
    return isinstance(value, exp.Null) or (isinstance(value, exp.Array) and not value.expressions)


def replace_event_value_by_elements(resolution: NameResolution, value: exp.Expr) -> None:
    """Replace an event's value that is used as an array by its elements."""
    value = strip_empty_array_default(value)
    lineage = lineage_of(value)
    if lineage.is_of_event_value:
        only_arrays = resolution.shape_reader.kinds(lineage) == frozenset({ValueKind.ARRAY})
        elements = event_elements_node(copy_tree(value), only_arrays=only_arrays)
        elements.meta["lineage"] = Lineage(element=resolution.shape_reader.elements(lineage))
        value.replace(elements)


def name_parts(column: exp.Expr) -> list[exp.Identifier]:
    """Return the parts of a dotted name, outermost first."""
    identifiers = [column.args.get(key) for key in ("catalog", "db", "table", "this")]
    return [part for part in identifiers if isinstance(part, exp.Identifier)]


def alias_or_last_name_part(item: exp.Expr) -> str:
    """Return the alias of an expression, or else the last part of its name; "" if it has neither."""
    if isinstance(item, exp.Alias):
        return str(item.alias)
    while isinstance(item, exp.Paren):
        item = item.this
    if isinstance(item, exp.Column):
        return str(item.name)
    if isinstance(item, exp.Dot) and isinstance(item.expression, exp.Identifier):
        return str(item.expression.name)
    return ""


def _dot_operands(node: exp.Expr) -> tuple[exp.Expr, list[exp.Identifier]]:
    parts: list[exp.Identifier] = []
    while isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        parts.append(node.expression)
        node = node.this
    return node, parts[::-1]


def _copy_as_operand(aliased: exp.Expr) -> exp.Expr:
    """Return a copy of the expression that an alias names, in parentheses if it is not a single operand."""
    copy: exp.Expr = copy_tree(aliased)
    is_operand = isinstance(copy, (exp.Column, exp.Literal, exp.Func, exp.Paren)) and not isinstance(
        copy, (exp.And, exp.Or)
    )
    if is_operand or is_event_path(copy):
        return copy
    return exp.Paren(this=copy)


def _parameter_slot(resolution: NameResolution, node: exp.Expr) -> exp.Expr:
    """Return the typed slot for `@name`; raise an error if the endpoint does not declare the parameter."""
    name = node.name
    by_name = {declared_name.lower(): parameter for declared_name, parameter in resolution.parameters.items()}
    parameter = by_name.get(name.lower())
    if parameter is None:
        raise _undeclared_parameter_error(resolution, node, list(resolution.parameters))
    placeholder = exp.Parameter(this=exp.Var(this=parameter.name))
    return copy_source_position(node, set_type(placeholder, SQLGLOT_TYPE_BY_KIND[parameter.type]))


def _time_from_now_slot(node: exp.Expr) -> exp.Expr:
    """Return the expression that replaces CURRENT_TIMESTAMP or a related function: it reads the slot `now`."""
    value = parameter_node(NOW_SLOT_NAME, exp.DType.TIMESTAMPTZ)
    zone = node.this
    if isinstance(node, exp.CurrentDate):
        value = exp.Date(this=value, zone=zone)
    elif isinstance(node, exp.CurrentDatetime):
        value = exp.Datetime(this=value, expression=zone)
    elif isinstance(node, exp.CurrentTime):
        value = exp.Time(this=value, zone=zone) if zone is not None else exp.TsOrDsToTime(this=value)
    return copy_source_position(node, value)


def _undeclared_parameter_error(resolution: NameResolution, node: exp.Expr, names: list[str]) -> UnknownNameInQuery:
    closest_name = find_closest_name(node.name, names)
    if closest_name:
        hint = f"Did you mean @{closest_name}?"
    else:
        hint = f"There are: {', '.join('@' + name for name in names)}." if names else "None is declared."
    return UnknownNameInQuery(
        f"The parameter @{node.name} is not declared.", hint=hint, span=resolution.span_of_node(node)
    )


_RESOLVER_BY_NODE_CLASS: dict[type[exp.Expr], Callable[[_ExpressionResolver, exp.Expr], None]] = {
    exp.Column: _ExpressionResolver.resolve_column,
    exp.Dot: _ExpressionResolver.resolve_dot,
    exp.Bracket: _ExpressionResolver.resolve_bracket,
    exp.In: _ExpressionResolver.resolve_in_unnest,
    exp.ArraySize: _ExpressionResolver.resolve_array_function,
    exp.ArrayToString: _ExpressionResolver.resolve_array_function,
    exp.ArrayReverse: _ExpressionResolver.resolve_array_function,
    exp.Struct: _ExpressionResolver.resolve_struct,
    exp.Parameter: _ExpressionResolver.resolve_parameter,
    exp.CurrentTimestamp: _ExpressionResolver.resolve_time_function,
    exp.CurrentDate: _ExpressionResolver.resolve_time_function,
    exp.CurrentDatetime: _ExpressionResolver.resolve_time_function,
    exp.CurrentTime: _ExpressionResolver.resolve_time_function,
}


# The metadata key of a constant value that has replaced a reference to a column.
FOLDED_CONSTANT_METADATA_KEY: Final = "folded"
_CLAUSES_OF_NON_CONSTANT_QUERY: Final = (
    "from_", "joins", "where", "group", "having", "qualify", "limit", "offset", "distinct", "with_", "kind", "order",
)  # fmt: skip
# The parents of a sub-query that use its rows; any other parent uses its value.
_PARENT_CLASSES_TAKING_ROW_SETS: Final = (
    exp.In,
    exp.Exists,
    exp.Any,
    exp.All,
    exp.Array,
    exp.SetOperation,
    exp.Subquery,
    exp.From,
    exp.Join,
)
# The maximum number of nodes of a constant row. A larger row is not copied into the queries that read it.
_MAX_CONSTANT_ROW_NODES: Final = 1_000
_ROW_DEPENDENT_CLASSES: Final = (exp.AggFunc, exp.Window, exp.Unnest, exp.Star)


def constant_query_columns(query: exp.Expr) -> dict[str, exp.Expr] | None:
    """Return the columns, by name, of a resolved query that is one row of constant values; None for any other query.

    Return None also if the values have many nodes, because they are copied wherever the query is read.
    """
    if not isinstance(query, exp.Select) or any(query.args.get(clause) for clause in _CLAUSES_OF_NON_CONSTANT_QUERY):
        return None
    items = query.expressions
    if any(not isinstance(item, exp.Alias) or item.find(*_ROW_DEPENDENT_CLASSES) for item in items):
        return None
    nodes = chain.from_iterable(item.walk() for item in items)
    if next(islice(nodes, _MAX_CONSTANT_ROW_NODES, None), None) is not None:
        return None
    return {item.alias: item.this for item in items}


def constant_relation(alias: str, columns: dict[str, exp.Expr]) -> Relation:
    """Return the relation of a constant row.

    References to its columns are replaced by the values, so the resolved FROM does not read the relation.
    """
    return Relation(
        alias,
        {
            name.lower(): NamedExpression(name, _copy_as_folded_constant(value), lineage_of(value))
            for name, value in columns.items()
        },
    )


def _copy_as_folded_constant(value: exp.Expr) -> exp.Expr:
    paren = exp.Paren(this=copy_tree(value))
    paren.meta[FOLDED_CONSTANT_METADATA_KEY] = True
    return paren


def may_be_group_keys(columns: Iterable[str], select: exp.Expr | None) -> bool:
    """Return whether GROUP BY of `select` might refer to one of the columns.

    Such a column must not be replaced by a constant: in GROUP BY, a constant would be invalid, or would stand for the
    position of a selected column.
    """
    if select is None or select.args.get("group") is None:
        return False
    group = select.args["group"]
    if group.args.get("all") or group.find(exp.Rollup, exp.Cube, exp.GroupingSets):
        return True
    # An unqualified name in GROUP BY that is also a select alias refers to the select list.
    selected = {item.alias_or_name.lower() for item in select.expressions}
    keys = set().union(*(_group_key_names(key, selected) for key in group.find_all(exp.Column)))
    return not keys.isdisjoint(name.lower() for name in columns)


def _group_key_names(column: exp.Column, selected: set[str]) -> set[str]:
    parts = {part.name.lower() for part in column.parts}
    return parts if column.table else parts - selected


def _constant_scalar_sub_query_value(sub_query: exp.Expr) -> exp.Expr | None:
    """Return the value of a sub-query that is used as a value and reads no table; None for any other sub-query."""
    if isinstance(sub_query.parent, _PARENT_CLASSES_TAKING_ROW_SETS) or sub_query.args.get("limit") is not None:
        return None
    return _constant_row_value(sub_query.this)


def _constant_row_value(query: exp.Expr) -> exp.Expr | None:
    """Return the value, in parentheses, of a resolved query that has one row and no FROM; None for any other query."""
    if str(query.args.get("kind") or "").upper() == "STRUCT":
        return _constant_struct_value(query)
    columns = constant_query_columns(query)
    if columns is None or len(columns) != 1:
        return None
    return exp.Paren(this=copy_tree(next(iter(columns.values()))))


def _constant_struct_value(query: exp.Expr) -> exp.Expr | None:
    clauses = [clause for clause in _CLAUSES_OF_NON_CONSTANT_QUERY if clause != "kind"]
    items = query.expressions
    if any(query.args.get(clause) for clause in clauses) or any(item.find(*_ROW_DEPENDENT_CLASSES) for item in items):
        return None
    fields = [
        exp.PropertyEQ(this=exp.to_identifier(item.alias_or_name, quoted=True), expression=copy_tree(item.unalias()))
        for item in items
    ]
    return exp.Struct(expressions=fields)
