"""The compiler's target for DuckDB: the tables of streams, the translation of queries, and the printing of SQL."""

import re
from collections.abc import Sequence

import msgspec
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from cordwood.engines.duckdb.query.deferred_columns import defer_columns
from cordwood.engines.duckdb.query.index_pruning import prune_blocks
from cordwood.engines.duckdb.query.partial_aggregation import mark_splittable_aggregations, split_aggregation
from cordwood.engines.duckdb.query.path_pushdown import push_down_paths
from cordwood.engines.duckdb.query.scan_planning import (
    ScanSource,
    find_stream_tables,
    plan_arrived_scan,
    plan_recent_scan,
    plan_scans,
)
from cordwood.engines.duckdb.query.subqueries import flatten_sub_queries, materialize_shared_ctes
from cordwood.engines.duckdb.rules import RULES
from cordwood.engines.duckdb.rules.building_blocks import encode_engine_name
from cordwood.engines.duckdb.storage.tables import quote_identifier, text_literal
from cordwood.sql.budget import copy_tree
from cordwood.sql.plan import EventRange
from cordwood.sql.redaction.masking import optimistic_redaction_variant, remove_text_round_trips
from cordwood.sql.stages import LoweredQuery, ResolvedQuery, StreamTable, VariantTree, table_named_as_stream
from cordwood.sql.tree_printer import PrintedTree, print_tree
from cordwood.sql.type_checks import check_types
from cordwood.sql.type_inference import annotate_types

_QUOTED_OR_COMMENT_PATTERN = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|/\*.*?\*/""", re.DOTALL)


class DuckDBTarget:
    """The compiler's target for DuckDB, which translates and prints queries without a connection to DuckDB."""

    name = "duckdb"

    def __init__(self) -> None:
        self._generator_class = Dialect.get_or_raise("duckdb").generator
        self._quoting = DuckDBQuoting()

    def stream_table(self, stream: str) -> StreamTable:
        return table_named_as_stream(stream)

    def lower(self, resolved: ResolvedQuery) -> LoweredQuery:
        tree = resolved.tree
        annotate_types(tree)
        check_types(tree, resolved.query_text)
        completions = defer_columns(tree)
        may_split = resolved.is_saved_query and resolved.redact_mode is None and not resolved.is_followed_query
        if may_split:
            mark_splittable_aggregations(tree)
        lowered = RULES.lower(tree)
        materialize_shared_ctes(lowered)
        if resolved.redact_mode is not None:
            remove_text_round_trips(lowered)
        streams = frozenset(resolved.streams)
        sources = prune_blocks(lowered, push_down_paths(lowered, streams))
        if len(sources) == 1:
            flatten_sub_queries(lowered, sources[0].table)
        if resolved.is_followed_query:
            return msgspec.structs.replace(
                _lower_followed_query(resolved, lowered, sources), computed_columns=completions
            )
        partial = split_aggregation(lowered, sources[0]) if may_split and len(sources) == 1 else None
        flushed = copy_tree(lowered)
        flushed_sources = _find_sources_in_tree_copy(flushed, sources, streams)
        recent = plan_recent_scan(lowered, sources)
        all_events = plan_scans(lowered, sources)
        flushed = plan_scans(flushed, flushed_sources, at_rest=True)
        alternatives = [VariantTree(flushed, EventRange.FLUSHED)]
        for tree, reads in ((all_events, EventRange.ALL), (flushed, EventRange.FLUSHED)):
            unredacted = optimistic_redaction_variant(tree)
            alternatives += (
                [VariantTree(unredacted, reads, has_optimistic_redaction=True)] if unredacted is not None else []
            )
        alternatives += [VariantTree(recent, EventRange.RECENTLY_CACHED)] if recent is not None else []
        return LoweredQuery(all_events, resolved, tuple(alternatives), completions, partial)

    def print_lowered_tree(self, tree: exp.Expr) -> PrintedTree:
        generator = self._generator_class(comments=False)
        return print_tree(tree, lambda node: generator.generate(node, copy=False), self._quoting)


def _lower_followed_query(resolved: ResolvedQuery, lowered: exp.Expr, sources: Sequence[ScanSource]) -> LoweredQuery:
    """Return two trees of a followed query: one reads all events, the other only the events that just arrived."""
    arrived = copy_tree(lowered)
    arrived_sources = _find_sources_in_tree_copy(arrived, sources, frozenset(resolved.streams))
    alternative = VariantTree(plan_arrived_scan(arrived, arrived_sources), EventRange.NEWLY_ARRIVED)
    return LoweredQuery(plan_scans(lowered, sources), resolved, (alternative,))


def _find_sources_in_tree_copy(
    copy: exp.Expr, sources: Sequence[ScanSource], streams: frozenset[str]
) -> list[ScanSource]:
    """Return the scans in a copy of a tree that correspond to `sources` in the original tree."""
    return [
        msgspec.structs.replace(source, table=table)
        for table, source in zip(find_stream_tables(copy, streams), sources, strict=True)
    ]


class DuckDBQuoting:
    """Defines how names, texts, bytes and slots are written in DuckDB's SQL."""

    quoted_or_comment_pattern = _QUOTED_OR_COMMENT_PATTERN

    def encode_identifier(self, name: str) -> str:
        return encode_engine_name(name)

    def quote_name(self, name: str) -> str:
        return quote_identifier(name)

    def quote_text(self, text: str) -> str:
        return text_literal(text)

    def quote_bytes(self, data: bytes) -> str:
        """Return bytes as a quoted text of hexadecimal escapes, which the rules cast to BLOB."""
        return "'" + "".join(f"\\x{byte:02X}" for byte in data) + "'"

    def parameter_placeholder(self, slot: exp.Parameter) -> str:
        return f"${slot.name}"
