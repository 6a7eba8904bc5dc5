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
from cordwood.sql.paging import PagingMethod
from cordwood.sql.plan import EventRange, MergeAggregate, Plan, TimeComparison
from cordwood.sql.tree_printer import PrintedTree

# The lookups that a compilation has made in the shapes of streams, with their results. The statement stays valid while
# every lookup gives the same result.
ShapeLookups = Mapping[tuple[str, tuple[Hashable, ...]], object]


class ParsedQuery(msgspec.Struct, frozen=True):
    """The tree that the parser made of a query's text, with positions in the text. It has not been checked yet."""

    tree: exp.Expr
    query_text: str


class AdmittedTree(msgspec.Struct, frozen=True):
    """The tree of a single read-only query that contains only permitted nodes and functions."""

    tree: exp.Expr
    query_text: str
    sub_queries: tuple[str, ...] = ()


class ResolvedQuery(msgspec.Struct, frozen=True):
    """A query in which all names are resolved to columns, paths of events, or typed slots, and expressions have types.

    If `redact_mode` is set, raw texts of events occur only in the answer's columns `unredacted_column_indexes`, and the
    engine must redact these columns on output. The tree assumes that the paths `textless_paths` in events hold no
    texts. The caller that runs the statement must check that this is still true at the time of the answer. If
    `is_followed_query` is set, the query can run on newly arrived events alone. `is_saved_query` is not set for a query
    that a caller wrote. Only a saved query may be answered from stored partial answers, each of which covers one block
    of events.
    """

    tree: exp.Expr
    query_text: str
    sub_queries: tuple[str, ...] = ()
    unseen_paths: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    redact_mode: RedactMode | None = None
    unredacted_column_indexes: tuple[int, ...] = ()
    textless_paths: tuple[tuple[str, EventPath], ...] = ()
    shape_lookups: ShapeLookups = msgspec.field(default_factory=dict)
    is_followed_query: bool = False
    is_saved_query: bool = False


class AttributeMapColumn(msgspec.Struct, frozen=True, tag=True):
    """A column with a map of an event's attributes, which the engine computes from other columns of the same row.

    `metadata_position`, `extras_position` and `project_position` are the positions of these other columns. They are
    selected once, even if several maps need them. Objects are flattened `flattened_level_count` levels deep.
    """

    column_position: int
    metadata_position: int
    extras_position: int
    project_position: int
    flattened_level_count: int


class IsoTimeColumn(msgspec.Struct, frozen=True, tag=True):
    """A column in which the engine replaces each time by ISO 8601 text, with microseconds and without a zone."""

    column_position: int


# A column of the answer that the engine computes after it has fetched the rows, because this is faster than computing
# it in SQL.
ComputedColumn = AttributeMapColumn | IsoTimeColumn


class VariantTree(msgspec.Struct, frozen=True):
    """A lowered tree of one more variant of a plan, beside the variant that can always be used."""

    tree: exp.Expr
    event_range: EventRange = EventRange.ALL
    has_optimistic_redaction: bool = False


class PartialAnswerTrees(msgspec.Struct, frozen=True):
    """The lowered trees of a `PartialAnswerPlan`: the plan of a query that reuses the partial answers of blocks."""

    stream: str
    merge_aggregates: tuple[MergeAggregate, ...]
    time_bound_comparisons: tuple[TimeComparison, ...]
    bounds_tree: exp.Expr | None
    blocks_tree: exp.Expr
    variant_trees: tuple[VariantTree, ...]


class LoweredQuery(msgspec.Struct, frozen=True):
    """The trees of a query in the target's SQL, ready to be printed.

    `tree` reads all events and redacts private text. `variant_trees` are equivalent trees for states of the store in
    which fewer reads, or no redaction, are enough.
    """

    tree: exp.Expr
    resolved_query: ResolvedQuery
    variant_trees: tuple[VariantTree, ...] = ()
    computed_columns: tuple[ComputedColumn, ...] = ()
    partial_answer_trees: PartialAnswerTrees | None = None


class ParameterSlot(msgspec.Struct, frozen=True):
    """A placeholder for a value that is bound at each call: the value of a parameter, or the time of the call.

    Declared parameters that the statement does not read (`is_read` is False) are validated, but not bound.
    """

    name: str
    parameter: Parameter | None
    is_read: bool = True


class Statement(msgspec.Struct, frozen=True, dict=True):
    """A compiled query: an engine's plan, its slots, and properties of its answer.

    `column_types` are BigQuery's types of the columns. They are needed to encode values that an engine returns as
    another type, such as BYTES and JSON that it returns as text. `notices` are reported in the receipt. `row_limit` is
    the literal row limit of the SQL, if any: a variant that reads only recent events is enough if it finds that many
    rows. `paging` says how the next page of the answer is found. `pages_on_request` is set if the answer has no pages,
    but would have pages if the caller requested them. `computed_columns` are the columns that the engine computes after
    it has fetched the rows. `shape_lookups` are all lookups that the compilation made in the shapes of streams: if the
    lookups have the same results, the query compiles to the same statement.
    """

    plan: Plan
    slots: tuple[ParameterSlot, ...]
    sub_queries: tuple[str, ...]
    streams: tuple[str, ...]
    unseen_paths: tuple[str, ...] = ()
    column_names: tuple[str, ...] = ()
    column_types: tuple[Datatype | None, ...] = ()
    notices: tuple[str, ...] = ()
    redact_mode: RedactMode | None = None
    unredacted_column_indexes: tuple[int, ...] = ()
    textless_paths: tuple[tuple[str, EventPath], ...] = ()
    row_limit: int | None = None
    computed_columns: tuple[ComputedColumn, ...] = ()
    paging: PagingMethod | None = None
    pages_on_request: bool = False
    shape_lookups: ShapeLookups = msgspec.field(default_factory=dict)

    @property
    def sql(self) -> str:
        """The SQL of the variant that can always be used, with its optional predicates in full."""
        return self.plan.sql

    @property
    def answer_column_count(self) -> int:
        """The number of columns of the answer that the caller receives.

        If the answer is paged by time, the statement has two more columns, which locate the next page. They are not
        counted.
        """
        return len(self.column_names) - (2 if self.paging is not None and self.paging.is_by_time else 0)

    @cached_property
    def digest(self) -> bytes:
        """A digest of the statement. Only equal statements have equal digests.

        All fields are encoded, also those that will be added later, except for the shape lookups, whose effects are in
        the other fields.
        """
        digested = msgspec.structs.replace(self, shape_lookups={})
        return sha256(msgspec.msgpack.encode(digested, order="deterministic")).digest()


class BoundStatement(msgspec.Struct, frozen=True):
    """A statement with the values of its slots. Engines have no other input. `bind_parameters` creates it."""

    statement: Statement
    values: Mapping[str, object] = msgspec.field(default_factory=dict)


class StreamTable(msgspec.Struct, frozen=True):
    """The table in which an engine has a stream's events.

    `kind_by_column` are its columns by SQL name; the column named `extras_column` has the top-level keys that are not
    columns.
    """

    table_name: str
    kind_by_column: Mapping[str, Kind]
    extras_column: str


# The columns of every stream. All other top-level keys of events are in the column `extras`.
_KIND_BY_STREAM_COLUMN: Final = {
    "id": Kind.STRING,
    "timestamp": Kind.TIMESTAMP,
    "event_message": Kind.STRING,
    "project": Kind.STRING,
    "metadata": Kind.VARIANT,
    "ingested_at": Kind.TIMESTAMP,
    "timestamp_inferred": Kind.BOOL,
}


def table_named_as_stream(stream: str) -> StreamTable:
    """Return a table with the name of the stream. The name is not quoted here, because the printer quotes it."""
    return StreamTable(table_name=stream, kind_by_column=_KIND_BY_STREAM_COLUMN, extras_column="extras")


class Target(Protocol):
    """An engine's SQL dialect: the operations that the compiler needs."""

    name: str

    def stream_table(self, stream: str) -> StreamTable:
        """Return the table of a stream. The compiler calls this for each stream of a query, so it must not do I/O."""

    def lower(self, resolved: ResolvedQuery) -> LoweredQuery:
        """Lower a resolved tree to this engine's SQL, or raise QueryUnsupported with the position.

        Mutates the tree rather than copying it, because a copy costs as much as lowering.
        """

    def print_lowered_tree(self, tree: exp.Expr) -> PrintedTree:
        """Print a lowered tree, with slots as this engine's parameters. Mutates the tree."""
