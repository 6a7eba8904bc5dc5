"""The port through which the compiler asks an engine's dialect what it needs to know."""

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.sql.draft import Printed
from cordwood.sql.stages import Lowered, Resolved


class StreamTable(msgspec.Struct, frozen=True):
    """Where a stream's events lie: `columns` by their SQL name, every other top-level key inside `extras`."""

    table: str
    columns: Mapping[str, Kind]
    extras: str


# What a query sees of every event by name; whatever else stands at its top lies in `extras`.
_COLUMNS: Final = {
    "id": Kind.STRING,
    "timestamp": Kind.TIMESTAMP,
    "event_message": Kind.STRING,
    "project": Kind.STRING,
    "metadata": Kind.VARIANT,
    "ingested_at": Kind.TIMESTAMP,
    "timestamp_inferred": Kind.BOOL,
}


def table_of_its_name(stream: str) -> StreamTable:
    """The stream's events under its own name, bare: to be quoted by whoever prints it."""
    return StreamTable(table=stream, columns=_COLUMNS, extras="extras")


class Target(Protocol):
    """What an engine's dialect must give the compiler."""

    name: str

    def stream_table(self, stream: str) -> StreamTable:
        """Say where the stream lies. Called for every stream a query reads; must not do I/O."""

    def lower(self, resolved: Resolved) -> Lowered:
        """Put BigQuery's meaning into this engine's words, or raise QueryUnsupported with the place.

        The tree is the target's from here on: it is changed, not copied, for copying it costs as much as lowering.
        """

    def print(self, tree: exp.Expr) -> Printed:
        """Print a lowered tree. Uses the tree up, reads nothing else, prints slots as this engine's parameters."""
