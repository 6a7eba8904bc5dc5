"""The interface between the compiler and an engine's SQL dialect."""

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.sql.stages import Lowered, Resolved
from cordwood.sql.tree_printer import Printed


class StreamTable(msgspec.Struct, frozen=True):
    """The table of a stream's events: `columns` by their SQL name; all other top-level keys are in `extras`."""

    table: str
    columns: Mapping[str, Kind]
    extras: str


# The columns of every stream; all other top-level keys are in `extras`.
_EVENT_COLUMNS: Final = {
    "id": Kind.STRING,
    "timestamp": Kind.TIMESTAMP,
    "event_message": Kind.STRING,
    "project": Kind.STRING,
    "metadata": Kind.VARIANT,
    "ingested_at": Kind.TIMESTAMP,
    "timestamp_inferred": Kind.BOOL,
}


def table_named_as_stream(stream: str) -> StreamTable:
    """Return a table with the stream's own name, unquoted: the printer quotes it."""
    return StreamTable(table=stream, columns=_EVENT_COLUMNS, extras="extras")


class Target(Protocol):
    """An engine's SQL dialect: the operations that the compiler needs."""

    name: str

    def stream_table(self, stream: str) -> StreamTable:
        """Return the table of a stream. Called for every stream that a query reads; must not do I/O."""

    def lower(self, resolved: Resolved) -> Lowered:
        """Lower a resolved tree to this engine's SQL, or raise QueryUnsupported with the position.

        Mutates the tree rather than copying it, because a copy costs as much as lowering.
        """

    def print(self, tree: exp.Expr) -> Printed:
        """Print a lowered tree, with slots as this engine's parameters. Mutates the tree."""
