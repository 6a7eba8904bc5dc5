"""Type annotation of a query: store the type of every expression on its node, by scopes of typed names."""

from collections.abc import Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.budget import spend
from cordwood.sql.typing.datatypes import INT64, common_type, datatype_of, field_of, struct_of, type_in_tree, typed_as
from cordwood.sql.typing.expressions import result_of

TypedColumns = list[tuple[str, Datatype | None]]


class TypedRelation(msgspec.Struct):
    """The types of a relation's columns in order. `value` is the type of a whole row, if the rows are single values."""

    columns: TypedColumns
    value: Datatype | None = None

    def column(self, name: str) -> Datatype | None:
        return next((datatype for column, datatype in self.columns if column.lower() == name), None)

    def has(self, name: str) -> bool:
        return any(column.lower() == name for column, _ in self.columns)

    def row(self) -> Datatype:
        return self.value or struct_of(self.columns)


class TypeScope(msgspec.Struct):
    """The scope of one FROM: its relations by alias, the visible CTEs, and the enclosing scope."""

    ctes: Mapping[str, TypedRelation] = msgspec.field(default_factory=dict)
    parent: "TypeScope | None" = None
    relations: dict[str, TypedRelation] = msgspec.field(default_factory=dict)

    def column(self, name: str, table: str) -> Datatype | None:
        datatype = self._own_column(name, table)
        return datatype or (self.parent.column(name, table) if self.parent else None)

    def _own_column(self, name: str, table: str) -> Datatype | None:
        if table:
            relation = self.relations.get(table)
            if relation is None:
                base = self._own_column(table, "")
                return field_of(base, name)
            return relation.column(name)
        for relation in self.relations.values():
            if relation.has(name):
                return relation.column(name)
        relation_row = self.relations.get(name)
        return relation_row.row() if relation_row else None


# The metadata key of the column types of a set operation's two sides.
SIDE_TYPES_KEY: Final = "sides"


def annotate(tree: exp.Expr) -> TypedRelation:
    """Annotate a whole statement with types; return the types of its columns."""
    return _annotate_query(tree, TypeScope())


def _annotate_query(node: exp.Expr, outer: TypeScope) -> TypedRelation:
    spend()
    scope = TypeScope(ctes=_annotate_ctes(node, outer), parent=outer)
    if isinstance(node, exp.Select):
        return _annotate_select(node, scope)
    if isinstance(node, exp.SetOperation):
        return _annotate_set_operation(node, scope)
    if isinstance(node, exp.Subquery):
        inner = _annotate_query(node.this, scope)
        _annotate_modifiers(node, TypeScope(scope.ctes, outer, {"": inner}))
        return inner
    if isinstance(node, exp.Table):
        return _annotate_relation(node, scope)
    return TypedRelation([])


def _annotate_ctes(node: exp.Expr, outer: TypeScope) -> dict[str, TypedRelation]:
    ctes = dict(outer.ctes)
    with_ = node.args.get("with_")
    for cte in with_.expressions if with_ else ():
        if with_ is not None and with_.args.get("recursive"):
            ctes[cte.alias.lower()] = _recursive_cte_columns(cte, TypeScope(ctes, outer.parent))
        ctes[cte.alias.lower()] = _rename_columns(_annotate_query(cte.this, TypeScope(ctes, outer)), cte)
    return ctes


def _recursive_cte_columns(cte: exp.Expr, scope: TypeScope) -> TypedRelation:
    """Return the columns of a recursive CTE, which are those of its first branch."""
    body = cte.this
    while isinstance(body, (exp.SetOperation, exp.Subquery, exp.Paren)):
        body = body.this
    return _rename_columns(_annotate_query(body, scope), cte)


def _rename_columns(relation: TypedRelation, node: exp.Expr) -> TypedRelation:
    names = [column.name for column in (node.args["alias"].columns if node.args.get("alias") else ())]
    if not names:
        return relation
    return TypedRelation([(name, datatype) for name, (_, datatype) in zip(names, relation.columns, strict=False)])


def _annotate_set_operation(node: exp.Expr, scope: TypeScope) -> TypedRelation:
    left, right = _annotate_query(node.this, scope), _annotate_query(node.expression, scope)
    columns: TypedColumns = list(left.columns)
    if len(left.columns) == len(right.columns):
        columns = [
            (name, common_type((left_type, right_type)))
            for (name, left_type), (_, right_type) in zip(left.columns, right.columns, strict=True)
        ]
    result = TypedRelation(columns, common_type((left.value, right.value)))
    node.meta[SIDE_TYPES_KEY] = [tuple(datatype for _, datatype in side.columns) for side in (left, right)]
    node.meta["columns"] = tuple(datatype for _, datatype in columns)
    _annotate_modifiers(node, TypeScope(scope.ctes, scope.parent, {"": result}))
    return result


def _annotate_select(node: exp.Expr, scope: TypeScope) -> TypedRelation:
    _add_sources(node, scope)
    columns = [column for item in node.expressions for column in _annotate_projection(item, scope)]
    alias_scope = _scope_with_aliases(scope, columns)
    for part in node.iter_expressions():
        if part.arg_key not in _CLAUSES_BEFORE_ALIASES:
            _annotate_expression(part, alias_scope)
    return _value_table(node.args["kind"], columns) if node.args.get("kind") else TypedRelation(columns)


# The clauses that are annotated before select aliases are visible.
_CLAUSES_BEFORE_ALIASES: Final = frozenset(("expressions", "from_", "joins", "with_", "laterals"))


def _value_table(kind: str, columns: TypedColumns) -> TypedRelation:
    """Return the relation of SELECT AS STRUCT or SELECT AS VALUE, whose rows are single values."""
    value = columns[0][1] if kind == "VALUE" and columns else struct_of(columns)
    return TypedRelation(list(value.fields) if value and value.kind is Kind.STRUCT else columns, value)


def _scope_with_aliases(scope: TypeScope, columns: TypedColumns) -> TypeScope:
    """Return a scope for clauses after SELECT, which also see the selected columns."""
    return TypeScope(
        scope.ctes, TypeScope(scope.ctes, scope.parent, {"": TypedRelation(columns)}), dict(scope.relations)
    )


def _annotate_modifiers(node: exp.Expr, scope: TypeScope) -> None:
    for key in ("order", "limit", "offset"):
        if node.args.get(key):
            _annotate_expression(node.args[key], scope)


def _add_sources(node: exp.Expr, scope: TypeScope) -> None:
    from_ = node.args.get("from_")
    if from_ is not None:
        _add_source(from_.this, scope)
    for join in (*node.args.get("joins", ()), *node.args.get("laterals", ())):
        _add_source(join.this, scope)
        if join.args.get("on"):
            _annotate_expression(join.args["on"], scope)


def _add_source(node: exp.Expr, scope: TypeScope) -> None:
    relation = _annotate_relation(node, scope)
    scope.relations[_relation_name(node, scope)] = relation
    for join in node.args.get("joins") or ():
        _add_source(join.this, scope)
        if join.args.get("on"):
            _annotate_expression(join.args["on"], scope)


def _relation_name(node: exp.Expr, scope: TypeScope) -> str:
    alias = node.args.get("alias")
    if isinstance(node, exp.Unnest) and alias is not None and not alias.name and alias.columns:
        return str(alias.columns[0].name).lower()
    return (node.alias or (node.name if isinstance(node, exp.Table) else "")).lower() or f"#{len(scope.relations)}"


def _annotate_relation(node: exp.Expr, scope: TypeScope) -> TypedRelation:
    if isinstance(node, exp.Unnest):
        return _annotate_unnest(node, scope)
    if isinstance(node, exp.Subquery):
        if isinstance(node.this, (exp.Table, exp.Unnest)):
            _add_source(node.this, scope)
            return TypedRelation([])
        inner_scope = TypeScope(scope.ctes, scope) if scope.relations else scope
        return _rename_columns(_annotate_query(node.this, TypeScope(inner_scope.ctes, scope)), node)
    if isinstance(node, exp.Table):
        return scope.ctes.get(node.name.lower(), TypedRelation([])) if not node.db else TypedRelation([])
    return TypedRelation([])


def _annotate_unnest(node: exp.Expr, scope: TypeScope) -> TypedRelation:
    array = node.expressions[0]
    _annotate_expression(array, scope)
    datatype = datatype_of(array)
    element = datatype.element if datatype and datatype.kind is Kind.ARRAY else datatype
    alias = node.args.get("alias") or exp.TableAlias()
    names = ["", *(column.name for column in alias.columns)]
    columns: TypedColumns = [*(element.fields if element else ()), (names[-1], element)]
    offset = node.args.get("offset")
    if isinstance(offset, exp.Expr):
        columns.append((offset.name, INT64))
    return TypedRelation(columns, element)


def _annotate_projection(item: exp.Expr, scope: TypeScope) -> TypedColumns:
    if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
        return _expand_star(item, scope)
    datatype = _annotate_expression(item, scope)
    if isinstance(item, exp.Dot) and isinstance(item.expression, exp.Star):
        base = datatype_of(item.this)
        return list(base.fields) if base else []
    return [(item.alias_or_name, datatype)]


def _expand_star(item: exp.Expr, scope: TypeScope) -> TypedColumns:
    table = item.text("table").lower() if isinstance(item, exp.Column) else ""
    star = item.this if isinstance(item, exp.Column) else item
    excluded = {name.name.lower() for name in star.args.get("except_") or ()}
    relations = [relation for name, relation in scope.relations.items() if table in ("", name)]
    return [column for relation in relations for column in relation.columns if column[0].lower() not in excluded]


def _annotate_expression(node: exp.Expr, scope: TypeScope) -> Datatype | None:
    """Annotate an expression, its children first; return its type."""
    spend()
    if isinstance(node, exp.Query):
        return _annotate_scalar_query(node, scope)
    if isinstance(node, exp.Column):
        return _store_type(node, _column_type(node, scope))
    for part in node.iter_expressions():
        if not isinstance(part, (exp.Identifier, exp.DataType, exp.Var)):
            _annotate_expression(part, scope)
    return _store_type(node, result_of(node))


def _column_type(node: exp.Expr, scope: TypeScope) -> Datatype | None:
    stored = type_in_tree(node.type)
    if stored is not None:
        return stored
    if isinstance(node.this, exp.Star):
        return None
    return scope.column(node.name.lower(), node.text("table").lower())


def _annotate_scalar_query(node: exp.Expr, scope: TypeScope) -> Datatype | None:
    """Annotate a query used as a value; return the type of its only column, or of its row."""
    relation = _annotate_query(node, TypeScope(scope.ctes, scope))
    datatype = relation.value or (relation.columns[0][1] if relation.columns else None)
    return _store_type(node, datatype)


def _store_type(node: exp.Expr, datatype: Datatype | None) -> Datatype | None:
    typed_as(node, datatype)
    return datatype
