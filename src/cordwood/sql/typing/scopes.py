"""Scopes of type inference: the types of a query's names."""

from collections.abc import Mapping

import msgspec

from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.typing.datatypes import struct_of

Columns = list[tuple[str, Datatype | None]]


class Relation(msgspec.Struct):
    """The types of a relation's columns in order. `value` is the type of the row if it is a single value."""

    columns: Columns
    value: Datatype | None = None

    def column(self, name: str) -> Datatype | None:
        return next((datatype for column, datatype in self.columns if column.lower() == name), None)

    def has(self, name: str) -> bool:
        return any(column.lower() == name for column, _ in self.columns)

    def row(self) -> Datatype:
        return self.value or struct_of(self.columns)


class Scope(msgspec.Struct):
    """The scope of one FROM: its relations by alias, the visible CTEs, and the enclosing scope."""

    ctes: Mapping[str, Relation] = msgspec.field(default_factory=dict)
    parent: "Scope | None" = None
    relations: dict[str, Relation] = msgspec.field(default_factory=dict)

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


def field_of(datatype: Datatype | None, name: str) -> Datatype | None:
    """Return the type of a struct's field; for an array of structs, an array; JSON and event values are unchanged."""
    if datatype is None or datatype.kind in (Kind.JSON, Kind.VARIANT):
        return datatype
    if datatype.kind is Kind.ARRAY:
        return _field_of_elements(datatype, name)
    return next((field for label, field in datatype.fields if label.lower() == name.lower()), None)


def _field_of_elements(array: Datatype, name: str) -> Datatype | None:
    """Return the array type of a field of an array's structs; fields that are arrays are concatenated."""
    field = field_of(array.element, name)
    return field if field is None or field.kind is Kind.ARRAY else Datatype(Kind.ARRAY, element=field)
