"""The result types of the compiler's stages, and the interface `Target` to an engine's SQL dialect.

Each stage accepts only the result type of the stage before it, so that omitting a stage is a type error.
"""

from collections.abc import Hashable, Mapping
from functools import cached_property
from hashlib import sha256
from typing import Final, Protocol

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Datatype, Kind
from cordwood.model.definitions import Parameter
from cordwood.model.event import EventPath
from cordwood.model.redaction import RedactMode
from cordwood.sql.paging import Paging
from cordwood.sql.plan import EventRange, MergeAggregate, Plan, TimeComparison
from cordwood.sql.tree_printer import PrintedTree

# Each lookup in the shapes with its result; a statement is valid as long as all lookups give the same results.
ShapeLookups = Mapping[tuple[str, tuple[Hashable, ...]], object]


class ParsedQuery(msgspec.Struct, frozen=True):
    """The tree of one text, with positions; parsed but not checked."""

    tree: exp.Expr
    text: str


class AdmittedTree(msgspec.Struct, frozen=True):
    """A single read-only query of permitted nodes and functions."""

    tree: exp.Expr
    text: str
    sub_queries: tuple[str, ...] = ()


class ResolvedQuery(msgspec.Struct, frozen=True):
    """A query whose names are columns, paths of events, or typed slots, and whose expressions have types.

    With `redaction`, raw texts of events occur only in the answer: the engine must redact its columns `raw_column_indexes` on
    output. The tree assumes that `textless_paths`, paths of streams, hold no texts; the caller that runs the statement
    must check that this is still true at the time of the answer. A query that `is_followed` can run on arriving events
    alone. Only a query that `is_saved`, not a caller's own, may be answered from partial answers.
    """

    tree: exp.Expr
    text: str
    sub_queries: tuple[str, ...] = ()
    unseen_paths: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    redaction: RedactMode | None = None
    raw_column_indexes: tuple[int, ...] = ()
    textless_paths: tuple[tuple[str, EventPath], ...] = ()
    shape_lookups: ShapeLookups = msgspec.field(default_factory=dict)
    is_followed: bool = False
    is_saved: bool = False


class AttributeMapColumn(msgspec.Struct, frozen=True, tag=True):
    """A column with the map of an event's attributes, which the engine computes from other columns of the row.

    `metadata_position`, `extras` and `project_position` are the positions of these columns, which are selected once even if several
    columns need them. Objects are flattened `levels` levels deep.
    """

    column_position: int
    metadata_position: int
    extras_position: int
    project_position: int
    levels: int


class IsoTimeColumn(msgspec.Struct, frozen=True, tag=True):
    """A column in which the engine replaces a time by ISO 8601 text with microseconds, without a time zone."""

    column_position: int


# A column of the answer that the engine computes from fetched values, which is faster than an SQL expression.
ColumnCompletion = AttributeMapColumn | IsoTimeColumn


class VariantTree(msgspec.Struct, frozen=True):
    """A lowered tree that becomes an additional variant of the plan."""

    tree: exp.Expr
    event_range: EventRange = EventRange.ALL
    is_optimistic: bool = False


class PartialTrees(msgspec.Struct, frozen=True):
    """The lowered trees of a `PartialPlan`."""

    stream: str
    merge_aggregates: tuple[MergeAggregate, ...]
    comparisons: tuple[TimeComparison, ...]
    bounds_tree: exp.Expr | None
    blocks_tree: exp.Expr
    variants: tuple[VariantTree, ...]


class LoweredQuery(msgspec.Struct, frozen=True):
    """A query lowered to the target's SQL, ready to be printed.

    `tree` reads all events and redacts; `variant_trees` are equivalent trees for states of the store in which fewer
    reads or no redaction suffice.
    """

    tree: exp.Expr
    resolved: ResolvedQuery
    variant_trees: tuple[VariantTree, ...] = ()
    completions: tuple[ColumnCompletion, ...] = ()
    partial_trees: PartialTrees | None = None


class Slot(msgspec.Struct, frozen=True):
    """A placeholder for a bound value: a parameter, or the time of the call.

    Declared parameters that the statement does not read are validated like the others, but not bound.
    """

    name: str
    parameter: Parameter | None
    is_read: bool = True


class Statement(msgspec.Struct, frozen=True, dict=True):
    """A compiled query: an engine's plan, its slots, and properties of its answer.

    `column_types` are BigQuery's; an engine with less specific types (text for BYTES and JSON) uses them to encode
    values. `notices` are for the receipt. `row_limit` is the literal row limit of the SQL, if any: a variant that reads
    only recent events is sufficient if it finds that many rows. `paging` states how the pages of an answer are
    continued; `pages_on_request` is set if the answer has no pages, but would have them if the caller requested pages.
    `completions` are the columns that are completed after they are fetched. `shape_lookups` are all lookups in the
    shapes of streams: shapes with the same results compile to the same statement.
    """

    plan: Plan
    slots: tuple[Slot, ...]
    sub_queries: tuple[str, ...]
    streams: tuple[str, ...]
    unseen_paths: tuple[str, ...] = ()
    column_names: tuple[str, ...] = ()
    column_types: tuple[Datatype | None, ...] = ()
    notices: tuple[str, ...] = ()
    redaction: RedactMode | None = None
    raw_column_indexes: tuple[int, ...] = ()
    textless_paths: tuple[tuple[str, EventPath], ...] = ()
    row_limit: int | None = None
    completions: tuple[ColumnCompletion, ...] = ()
    paging: Paging | None = None
    pages_on_request: bool = False
    shape_lookups: ShapeLookups = msgspec.field(default_factory=dict)

    @property
    def sql(self) -> str:
        """The SQL of the variant that is always valid, with its optional predicates in full."""
        return self.plan.sql

    @property
    def answer_column_count(self) -> int:
        """The number of columns of the answer: all but the two that locate the next page."""
        return len(self.column_names) - (2 if self.paging is not None and self.paging.is_by_time else 0)

    @cached_property
    def digest(self) -> bytes:
        """A digest of every field except the shape lookups, whose effects are in the other fields.

        It needs no change when a field is added to the class, and is equal only for equal statements.
        """
        digested = msgspec.structs.replace(self, shape_lookups={})
        return sha256(msgspec.msgpack.encode(digested, order="deterministic")).digest()


class Question(msgspec.Struct, frozen=True):
    """A statement with values for its slots: the only input of an engine. Created only by `bind`."""

    statement: Statement
    values: Mapping[str, object] = msgspec.field(default_factory=dict)


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

    def lower(self, resolved: ResolvedQuery) -> LoweredQuery:
        """Lower a resolved tree to this engine's SQL, or raise QueryUnsupported with the position.

        Mutates the tree rather than copying it, because a copy costs as much as lowering.
        """

    def print(self, tree: exp.Expr) -> PrintedTree:
        """Print a lowered tree, with slots as this engine's parameters. Mutates the tree."""
