"""Raw event values, which are not redacted yet: the paths at which they are stored, and the kinds seen there.

A read of an outer raw column in a correlated sub-query is moved into the relation of the column, where it is redacted.
Engines evaluate a correlated sub-query once for each distinct outer value and join the results by it, so with raw
values the number of evaluations and the order of rows would reveal which values are equal.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.model.shape import ELEMENT, Path, ValueKind
from cordwood.sql.budget import copied
from cordwood.sql.record_shapes import RecordShapes
from cordwood.sql.scope import Lineage, Origin

# Columns that stay unredacted: a tenant may know its own name, and times contain no personal data.
_UNREDACTED_COLUMNS: Final = frozenset({"project", "timestamp", "ingested_at", "timestamp_inferred"})
_EVENT_COLUMNS: Final = frozenset({"metadata", "extras"})
_ALL_KINDS: Final = frozenset(ValueKind)

# A stream and a path of its events.
StreamPath = tuple[str, Path]


# Each array on the path doubles the possible paths, and each name that refers to several keys multiplies them.
MAX_PATHS: Final = 64


class RawValue(msgspec.Struct, frozen=True):
    """A raw value: an event's VARIANT or a text column. Its value is the first existing one of the possible paths."""

    paths: tuple[StreamPath, ...]
    is_event: bool

    def path_below(self, *steps: str) -> "RawValue":
        paths = tuple((stream, (*path, *steps)) for stream, path in self.paths)
        return msgspec.structs.replace(self, paths=paths)

    def elements(self) -> "RawValue | None":
        """Return an element of the value, where an object is its own element; None if there are too many paths."""
        paths = (*self.paths, *self.path_below(ELEMENT).paths)
        return None if len(paths) > MAX_PATHS else msgspec.structs.replace(self, paths=paths)

    @property
    def key_names(self) -> Iterator[str]:
        """The keys on the paths to the value."""
        return (step for _, path in self.paths for step in path[1:])

    @property
    def last_key_names(self) -> Iterator[str]:
        """The last key of each path, array elements ignored."""
        for _, path in self.paths:
            yield from [step for step in path[1:] if step != ELEMENT][-1:]

    def kinds(self, records: RecordShapes) -> frozenset[ValueKind]:
        """Return the kinds seen at the value's paths; none for a text column, of which nothing is known."""
        return (
            frozenset().union(*(kinds_of_path(path, records) for path in self.paths)) if self.is_event else frozenset()
        )


RawColumns = Mapping[str, RawValue]
CteColumns = Mapping[str, RawColumns]


class ScopedRelation(msgspec.Struct, eq=False):
    """A relation in scope: its raw columns, or the stream whose columns are raw by name.

    `reader` is the SELECT with the relation in its FROM, and `used` are the columns that are read from it. `lifted` are
    values computed from its raw columns for sub-queries, by the names of the new columns.
    """

    columns: RawColumns | str
    relation: exp.Expr
    reader: exp.Expr | None
    used: dict[str, exp.Expr] = {}
    lifted: dict[str, exp.Expr] = {}

    def raw_value(self, name: str) -> RawValue | None:
        if not isinstance(self.columns, str):
            return self.columns.get(name)
        if name in _UNREDACTED_COLUMNS:
            return None
        path = () if name == "extras" else (name,)
        return RawValue(((self.columns, path),), is_event=name in _EVENT_COLUMNS)


RelationsByName = dict[str, ScopedRelation]


def kinds_of_path(path: StreamPath, records: RecordShapes) -> frozenset[ValueKind]:
    """Return the kinds seen at a path; all kinds if unknown."""
    kinds = records.kinds(Lineage(origins=frozenset({Origin(*path)})))
    return _ALL_KINDS if kinds is None else kinds


def raw_column(node: exp.Column, sources: RelationsByName) -> RawValue | None:
    source = sources.get(node.table)
    if source is None:
        return None
    source.used.setdefault(node.name, copied(node))
    return source.raw_value(node.name)


def source_of(node: exp.Expr, sources: RelationsByName) -> ScopedRelation | None:
    """Return the only relation that the expression reads; None if it reads several or none."""
    tables = {column.table for column in node.find_all(exp.Column)}
    return sources.get(next(iter(tables))) if len(tables) == 1 else None


def is_outer_source(source: ScopedRelation | None, node: exp.Expr) -> bool:
    """Return whether the node, in a correlated sub-query, reads a relation of an outer query."""
    return source is not None and node.find_ancestor(exp.Select) is not source.reader


def lift_value(source: ScopedRelation, value: exp.Expr, number: int) -> exp.Column:
    """Add a column with the value to the relation, and return a reference to it for the correlated sub-query."""
    name = next((name for name, lifted in source.lifted.items() if lifted == value), f"lifted {number}")
    source.lifted.setdefault(name, value)
    column = exp.column(name, source.relation.alias_or_name, quoted=True)
    column.type = value.type
    return column


def wrap_relation(source: ScopedRelation) -> exp.Select:
    """Replace the relation by a SELECT that outputs its used columns and the lifted values."""
    relation = source.relation
    select = exp.Select(
        expressions=[
            exp.alias_(value, name, quoted=True)
            for columns in (source.used, source.lifted)
            for name, value in columns.items()
        ]
    )
    joins = relation.args.get("joins")
    relation.set("joins", None)
    alias = exp.TableAlias(this=exp.to_identifier(relation.alias_or_name, quoted=True))
    relation.replace(exp.Subquery(this=select, alias=alias, joins=joins))
    select.set("from_", exp.From(this=relation))
    return select


def is_read_by_sub_query(reader: exp.Expr | None, alias: str) -> bool:
    """Return whether a correlated sub-query of the SELECT reads a column of the relation with this alias."""
    if reader is None:
        return False
    columns = (column for column in reader.find_all(exp.Column) if column.table == alias)
    return any(column.find_ancestor(exp.Select) is not reader for column in columns)
