"""Values straight from events, which nothing has looked through: where they lie, and what is known of them.

What a sub-query reads of a raw column around it is lifted out of the sub-query, into the relation that has the column: an
engine works a sub-query out once for each value that it reads of the rows around it, and joins the results by these
values. Were they raw, how often that is and in which order rows come would tell which of them are the same.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.model.shape import ELEMENT, Path, ValueKind
from cordwood.sql.budget import copied
from cordwood.sql.records import Records
from cordwood.sql.scope import Nature, Origin

# The name of the tenant is no secret to its tenant; of the rest, what is text is looked through.
_PLAIN_COLUMNS: Final = frozenset({"project", "timestamp", "ingested_at", "timestamp_inferred"})
_EVENT_COLUMNS: Final = frozenset({"metadata", "extras"})
_ANY: Final = frozenset(ValueKind)

# A stream, and a path of its events.
Place = tuple[str, Path]


# Each array on the way doubles them, and each name that means several keys.
MOST_PLACES: Final = 64


class Raw(msgspec.Struct, frozen=True):
    """A value straight from an event: of its VARIANT, or a text column of its own; where it may lie, the first that is there."""

    places: tuple[Place, ...]
    is_event: bool

    def below(self, *steps: str) -> "Raw":
        places = tuple((stream, (*path, *steps)) for stream, path in self.places)
        return msgspec.structs.replace(self, places=places)

    def elements(self) -> "Raw | None":
        """An element of the value: an object repeats itself, an array what is in it. None where it may lie anywhere."""
        places = (*self.places, *self.below(ELEMENT).places)
        return None if len(places) > MOST_PLACES else msgspec.structs.replace(self, places=places)

    @property
    def names(self) -> Iterator[str]:
        """The keys on the way to it."""
        return (step for _, path in self.places for step in path[1:])

    @property
    def own_names(self) -> Iterator[str]:
        """What it is called itself: the last key, past the elements of arrays."""
        for _, path in self.places:
            yield from [step for step in path[1:] if step != ELEMENT][-1:]

    def kinds(self, records: Records) -> frozenset[ValueKind]:
        """What has been seen there; nothing is known of a text column."""
        return frozenset().union(*(kinds_at(place, records) for place in self.places)) if self.is_event else frozenset()


Columns = Mapping[str, Raw]
Known = Mapping[str, Columns]


class Source(msgspec.Struct, eq=False):
    """A relation as the names of a query see it: its raw columns, or the stream whose columns are raw by their names.

    `reader` is the SELECT that has it in its FROM, `used` are the columns that are read of it. `lifted` are values that
    sub-queries read of its raw columns, by the names of the columns that hold them.
    """

    columns: Columns | str
    relation: exp.Expr
    reader: exp.Expr | None
    used: dict[str, exp.Expr] = {}
    lifted: dict[str, exp.Expr] = {}

    def raw(self, name: str) -> Raw | None:
        if not isinstance(self.columns, str):
            return self.columns.get(name)
        if name in _PLAIN_COLUMNS:
            return None
        path = () if name == "extras" else (name,)
        return Raw(((self.columns, path),), is_event=name in _EVENT_COLUMNS)


Sources = dict[str, Source]


def kinds_at(place: Place, records: Records) -> frozenset[ValueKind]:
    """The kinds that have been seen at a place; any where it cannot be known."""
    kinds = records.kinds(Nature(origins=frozenset({Origin(*place)})))
    return _ANY if kinds is None else kinds


def raw_column(node: exp.Column, sources: Sources) -> Raw | None:
    source = sources.get(node.table)
    if source is None:
        return None
    source.used.setdefault(node.name, copied(node))
    return source.raw(node.name)


def source_of(node: exp.Expr, sources: Sources) -> Source | None:
    """The one relation that the expression reads; None where it reads more, or none."""
    tables = {column.table for column in node.find_all(exp.Column)}
    return sources.get(next(iter(tables))) if len(tables) == 1 else None


def is_around(source: Source | None, node: exp.Expr) -> bool:
    """Whether a sub-query reads it of rows around the sub-query."""
    return source is not None and node.find_ancestor(exp.Select) is not source.reader


def lift(source: Source, value: exp.Expr, number: int) -> exp.Column:
    """The column of the relation that is to hold the value."""
    name = next((name for name, known in source.lifted.items() if known == value), f"lifted {number}")
    source.lifted.setdefault(name, value)
    column = exp.column(name, source.relation.alias_or_name, quoted=True)
    column.type = value.type
    return column


def put_in(source: Source) -> exp.Select:
    """Read the relation by a SELECT that hands on what is used of it, and adds what was lifted."""
    relation = source.relation
    select = exp.Select(
        expressions=[
            exp.alias_(value, name, quoted=True)
            for some in (source.used, source.lifted)
            for name, value in some.items()
        ]
    )
    joins = relation.args.get("joins")
    relation.set("joins", None)
    alias = exp.TableAlias(this=exp.to_identifier(relation.alias_or_name, quoted=True))
    relation.replace(exp.Subquery(this=select, alias=alias, joins=joins))
    select.set("from_", exp.From(this=relation))
    return select


def is_read_from_within(reader: exp.Expr | None, alias: str) -> bool:
    """Whether a sub-query of the SELECT reads a column of its relation of that name."""
    if reader is None:
        return False
    columns = (column for column in reader.find_all(exp.Column) if column.table == alias)
    return any(column.find_ancestor(exp.Select) is not reader for column in columns)
