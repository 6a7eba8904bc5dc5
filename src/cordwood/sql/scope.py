"""Scopes of names: the relations of a FROM, their columns, and the records of unnested elements."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.model.event import EventPath
from cordwood.sql.budget import charge_nodes, copy_tree
from cordwood.sql.nodes import event_path_node, is_event_path, path_root, path_steps


class ValueOrigin(msgspec.Struct, frozen=True):
    """A stream, and a path in its events at which an event's value is read."""

    stream: str
    path: EventPath


class Lineage(msgspec.Struct, frozen=True):
    """The known origin of a value: paths in events (`origins`), the fields of a STRUCT, or the element of an array."""

    origins: frozenset[ValueOrigin] = frozenset()
    fields: "tuple[tuple[str, Lineage], ...]" = ()
    element: "Lineage | None" = None

    def __deepcopy__(self, _memo: object) -> "Lineage":
        """Return the same object: it is immutable, so that copies of a node can share it."""
        return self

    @property
    def is_of_event_value(self) -> bool:
        return bool(self.origins)


NO_LINEAGE = Lineage()


class NamedExpression(msgspec.Struct, frozen=True):
    """A name and the expression to which it refers. `value` is copied wherever the name is used.

    If `has_duplicate_name` is set, another column has the same name, so only a star can refer to the field.
    """

    name: str
    value: exp.Expr
    lineage: Lineage = NO_LINEAGE
    has_duplicate_name: bool = False

    def copy_expression(self) -> exp.Expr:
        copy = copy_value(self.value)
        copy.meta["lineage"] = self.lineage
        return copy


def copy_value(value: exp.Expr) -> exp.Expr:
    """Return a copy of an expression.

    Columns and paths are copied most often. They are constructed anew, because this is faster than `copy_tree`.
    """
    if is_event_path(value):
        return event_path_node(copy_value(path_root(value)), path_steps(value))
    if not isinstance(value, exp.Column):
        return copy_tree(value)
    charge_nodes(len(value.args) + 1)
    parts = {key: exp.Identifier(this=part.this, quoted=True) for key, part in value.args.items() if part is not None}
    column = exp.Column(**parts)
    column.type = value.type
    return column


class Relation(msgspec.Struct):
    """A relation in FROM, with the names that refer to its columns and keys.

    `unnested_element` is set for an unnested array: the relation's alias refers to this element. `extra_keys_object` is
    set for a stream: it is the object with the events' top-level keys that are not columns, and any name that is not a
    column refers to one of these keys. `qualified_name` is set for a stream without an alias: it is the stream's whole
    name, which can qualify a column if it is in backquotes.
    """

    name: str
    columns_by_name: dict[str, NamedExpression] = msgspec.field(default_factory=dict)
    unnested_element: NamedExpression | None = None
    extra_keys_object: NamedExpression | None = None
    qualified_name: str = ""

    @property
    def qualifiers(self) -> tuple[str, ...]:
        """The names that may qualify a column of the relation, in lower case."""
        return (self.name.lower(), self.qualified_name.lower()) if self.qualified_name else (self.name.lower(),)


class MergedColumn(msgspec.Struct, frozen=True):
    """The single column into which USING merges columns of the same name, one from each of several relations.

    These relations are `merged_relation_names`. In the expansion of a star, the merged column comes before the columns
    of the relation with the index `following_relation_index`.
    """

    column: NamedExpression
    merged_relation_names: frozenset[str]
    following_relation_index: int


class Scope(msgspec.Struct):
    """The names in one FROM: the relations that have been read so far, and the columns that USING has merged."""

    parent: "Scope | None" = None
    relations: list[Relation] = msgspec.field(default_factory=list)
    merged_columns: list[MergedColumn] = msgspec.field(default_factory=list)

    def find_relation(self, name: str) -> Relation | None:
        lower = name.lower()
        return next((relation for relation in self.relations if lower in relation.qualifiers), None)

    def find_columns(self, name: str) -> list[tuple[Relation, NamedExpression]]:
        """Return the columns of this name with their relations; a merged column is listed with its first relation."""
        lower = name.lower()
        matches: list[tuple[Relation, NamedExpression]] = []
        returned_ids: set[int] = set()
        for relation in self.relations:
            merged = self.find_merged_column(relation, lower)
            column = relation.columns_by_name.get(lower) if merged is None else merged.column
            if column is not None and id(merged) not in returned_ids:
                matches.append((relation, column))
            returned_ids.update([id(merged)] if merged is not None else [])
        return matches

    def find_merged_column(self, relation: Relation, name: str) -> MergedColumn | None:
        """Return the merged column that replaces the relation's column of this name; None if it was not merged."""
        lower, owner = name.lower(), relation.name.lower()
        matches = (
            merged
            for merged in self.merged_columns
            if merged.column.name.lower() == lower and owner in merged.merged_relation_names
        )
        return next(matches, None)


def lineage_of(node: exp.Expr) -> Lineage:
    """Return the lineage of a resolved expression's value."""
    stored = node.meta_get("lineage")
    if isinstance(stored, Lineage):
        return stored
    derive = _LINEAGE_BY_NODE_CLASS.get(type(node))
    return derive(node) if derive else NO_LINEAGE


def _lineage_of_operand(node: exp.Expr) -> Lineage:
    return lineage_of(node.this)


def _lineage_of_struct(node: exp.Expr) -> Lineage:
    return Lineage(fields=tuple(_struct_field_lineage(part) for part in node.expressions))


def _struct_field_lineage(part: exp.Expr) -> tuple[str, Lineage]:
    if isinstance(part, exp.PropertyEQ):
        return part.this.name, lineage_of(part.expression)
    return part.alias_or_name, lineage_of(part)


def _lineage_of_array(node: exp.Expr) -> Lineage:
    first = node.expressions[0] if node.expressions else None
    if isinstance(first, exp.Query):
        return Lineage(element=_lineage_of_query(first))
    return Lineage(element=lineage_of(first) if first is not None else NO_LINEAGE)


def _lineage_of_query(node: exp.Expr) -> Lineage:
    """Return the lineage of a sub-query that is used as a value: a single column or, with AS STRUCT, a struct."""
    query = node
    while not isinstance(query, exp.Select):
        query = query.this
    if query.args.get("kind") == "STRUCT":
        return Lineage(fields=tuple((item.alias_or_name, lineage_of(item)) for item in query.expressions))
    return lineage_of(query.expressions[0]) if query.expressions else NO_LINEAGE


def _lineage_of_bracket(node: exp.Expr) -> Lineage:
    inner = lineage_of(node.this)
    return inner.element or NO_LINEAGE


def _lineage_of_cast(node: exp.Expr) -> Lineage:
    return _lineage_of_type(node.args["to"])


def _lineage_of_type(type_: exp.Expr) -> Lineage:
    if type_.this == exp.DType.STRUCT:
        parts = [part for part in type_.expressions if isinstance(part, exp.ColumnDef)]
        return Lineage(fields=tuple((part.name, _lineage_of_type(part.args["kind"])) for part in parts))
    if type_.this == exp.DType.ARRAY and type_.expressions:
        return Lineage(element=_lineage_of_type(type_.expressions[0]))
    return NO_LINEAGE


def _lineage_of_dot(node: exp.Expr) -> Lineage:
    field_name = node.expression.name.lower()
    fields = lineage_of(node.this).fields
    return next((lineage for name, lineage in fields if name.lower() == field_name), NO_LINEAGE)


def _lineage_of_array_aggregate(node: exp.Expr) -> Lineage:
    return Lineage(element=lineage_of(node.this))


_LINEAGE_BY_NODE_CLASS: Final[Mapping[type[exp.Expr], Callable[[exp.Expr], Lineage]]] = {
    exp.Alias: _lineage_of_operand,
    exp.Paren: _lineage_of_operand,
    exp.AnyValue: _lineage_of_operand,
    exp.Max: _lineage_of_operand,
    exp.Min: _lineage_of_operand,
    exp.Distinct: lambda node: lineage_of(node.expressions[0]) if node.expressions else NO_LINEAGE,
    exp.Coalesce: _lineage_of_operand,
    exp.Struct: _lineage_of_struct,
    exp.Array: _lineage_of_array,
    exp.Subquery: _lineage_of_query,
    exp.Bracket: _lineage_of_bracket,
    exp.Cast: _lineage_of_cast,
    exp.Dot: _lineage_of_dot,
    exp.ArrayAgg: _lineage_of_array_aggregate,
    exp.Order: _lineage_of_operand,
    exp.Limit: _lineage_of_operand,
    exp.IgnoreNulls: _lineage_of_operand,
    exp.RespectNulls: _lineage_of_operand,
}
