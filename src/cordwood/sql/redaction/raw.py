"""Values straight from events, which nothing has looked through: where they lie, and what is known of them."""

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
