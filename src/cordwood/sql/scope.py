"""Scopes of names: relations, their columns, and the records that they expose."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.model.shape import Path
from cordwood.sql.budget import copied, spend
from cordwood.sql.nodes import event_path, is_event_path, path_steps, path_value


class Origin(msgspec.Struct, frozen=True):
    """The stream and the path from which an event's value is read."""

    stream: str
    path: Path


class Nature(msgspec.Struct, frozen=True):
    """The known properties of a value: read from events (`origins`), a STRUCT (`fields`), an array (`element`)."""

    origins: frozenset[Origin] = frozenset()
    fields: "tuple[tuple[str, Nature], ...]" = ()
    element: "Nature | None" = None

    def __deepcopy__(self, _memo: object) -> "Nature":
        """Return the same object: it is immutable, and copies of a node share it."""
        return self

    @property
    def is_event(self) -> bool:
        return bool(self.origins)


PLAIN = Nature()


class Field(msgspec.Struct, frozen=True):
    """A name and the expression to which it refers; `value` is copied at every use.

    A `repeated` one shares its name with another column, so only a star can refer to it.
    """

    name: str
    value: exp.Expr
    nature: Nature = PLAIN
    repeated: bool = False

    def expression(self) -> exp.Expr:
        made = fresh(self.value)
        made.meta["nature"] = self.nature
        return made


def fresh(value: exp.Expr) -> exp.Expr:
    """Return a copy. Columns and paths, which are copied most, are constructed directly, which is cheaper."""
    if is_event_path(value):
        return event_path(fresh(path_value(value)), path_steps(value))
    if not isinstance(value, exp.Column):
        return copied(value)
    spend(len(value.args) + 1)
    parts = {key: exp.Identifier(this=part.this, quoted=True) for key, part in value.args.items() if part is not None}
    made = exp.Column(**parts)
    made.type = value.type
    return made


class Relation(msgspec.Struct):
    """A relation of FROM. `record` is the value of its alias if it is an unnested element.

    `extras` is set for a stream: any name that is not a column is a key of its events. `dotted` is the whole name of a
    stream without an alias, which in backquotes may qualify a column.
    """

    name: str
    fields: dict[str, Field] = msgspec.field(default_factory=dict)
    record: Field | None = None
    extras: Field | None = None
    dotted: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names that may qualify a column of it, in lower case."""
        return (self.name.lower(), self.dotted.lower()) if self.dotted else (self.name.lower(),)


class Merged(msgspec.Struct, frozen=True):
    """A merged column of USING: it replaces those of its `owners`; a star has it before the relation at index `at`."""

    column: Field
    owners: frozenset[str]
    at: int


class Scope(msgspec.Struct):
    """The relations of one FROM that have been read so far; `merged` are the columns of USING."""

    parent: "Scope | None" = None
    relations: list[Relation] = msgspec.field(default_factory=list)
    merged: list[Merged] = msgspec.field(default_factory=list)

    def relation(self, name: str) -> Relation | None:
        lower = name.lower()
        return next((one for one in self.relations if lower in one.names), None)

    def columns(self, name: str) -> list[tuple[Relation, Field]]:
        """Return the columns of this name with their relations; a merged column once, with its first relation."""
        lower = name.lower()
        found: list[tuple[Relation, Field]] = []
        told: set[int] = set()
        for relation in self.relations:
            one = self.merged_in(relation, lower)
            column = relation.fields.get(lower) if one is None else one.column
            if column is not None and id(one) not in told:
                found.append((relation, column))
            told.update([id(one)] if one is not None else [])
        return found

    def merged_in(self, relation: Relation, name: str) -> Merged | None:
        """Return the merged column that the relation's column of this name is part of; None if it is not merged."""
        lower, owner = name.lower(), relation.name.lower()
        same = (one for one in self.merged if one.column.name.lower() == lower and owner in one.owners)
        return next(same, None)


def nature_of(node: exp.Expr) -> Nature:
    """Return the nature of a resolved expression's value."""
    known = node.meta_get("nature")
    if isinstance(known, Nature):
        return known
    derive = _DERIVED.get(type(node))
    return derive(node) if derive else PLAIN


def _of_this(node: exp.Expr) -> Nature:
    return nature_of(node.this)


def _of_struct(node: exp.Expr) -> Nature:
    return Nature(fields=tuple(_struct_field(part) for part in node.expressions))


def _struct_field(part: exp.Expr) -> tuple[str, Nature]:
    if isinstance(part, exp.PropertyEQ):
        return part.this.name, nature_of(part.expression)
    return part.alias_or_name, nature_of(part)


def _of_array(node: exp.Expr) -> Nature:
    first = node.expressions[0] if node.expressions else None
    if isinstance(first, exp.Query):
        return Nature(element=_of_query(first))
    return Nature(element=nature_of(first) if first is not None else PLAIN)


def _of_query(node: exp.Expr) -> Nature:
    """Return the nature of a scalar sub-query, or of a query AS STRUCT."""
    query = node
    while not isinstance(query, exp.Select):
        query = query.this
    if query.args.get("kind") == "STRUCT":
        return Nature(fields=tuple((item.alias_or_name, nature_of(item)) for item in query.expressions))
    return nature_of(query.expressions[0]) if query.expressions else PLAIN


def _of_bracket(node: exp.Expr) -> Nature:
    inner = nature_of(node.this)
    return inner.element or PLAIN


def _of_cast(node: exp.Expr) -> Nature:
    return _of_type(node.args["to"])


def _of_type(type_: exp.Expr) -> Nature:
    if type_.this == exp.DType.STRUCT:
        parts = [part for part in type_.expressions if isinstance(part, exp.ColumnDef)]
        return Nature(fields=tuple((part.name, _of_type(part.args["kind"])) for part in parts))
    if type_.this == exp.DType.ARRAY and type_.expressions:
        return Nature(element=_of_type(type_.expressions[0]))
    return PLAIN


def _of_dot(node: exp.Expr) -> Nature:
    wanted = node.expression.name.lower()
    fields = nature_of(node.this).fields
    return next((nature for name, nature in fields if name.lower() == wanted), PLAIN)


def _of_aggregated(node: exp.Expr) -> Nature:
    return Nature(element=nature_of(node.this))


_DERIVED: Final[Mapping[type[exp.Expr], Callable[[exp.Expr], Nature]]] = {
    exp.Alias: _of_this,
    exp.Paren: _of_this,
    exp.AnyValue: _of_this,
    exp.Max: _of_this,
    exp.Min: _of_this,
    exp.Distinct: lambda node: nature_of(node.expressions[0]) if node.expressions else PLAIN,
    exp.Coalesce: _of_this,
    exp.Struct: _of_struct,
    exp.Array: _of_array,
    exp.Subquery: _of_query,
    exp.Bracket: _of_bracket,
    exp.Cast: _of_cast,
    exp.Dot: _of_dot,
    exp.ArrayAgg: _of_aggregated,
    exp.Order: _of_this,
    exp.Limit: _of_this,
    exp.IgnoreNulls: _of_this,
    exp.RespectNulls: _of_this,
}
