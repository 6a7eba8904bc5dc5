"""DuckDB's dialect as the compiler needs it: where streams lie, BigQuery's meaning in its words, and printing."""

import msgspec
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from cordwood.engines.duckdb.flattening import flatten
from cordwood.engines.duckdb.placing import newest_alone, place_events
from cordwood.engines.duckdb.reach import reach
from cordwood.engines.duckdb.rules import RULES
from cordwood.engines.duckdb.script import DuckDBScript
from cordwood.engines.duckdb.seeking import seeking
from cordwood.engines.duckdb.sharing import share
from cordwood.engines.duckdb.source import tables_of
from cordwood.engines.duckdb.sparing import spare
from cordwood.sql.budget import copied
from cordwood.sql.draft import Printed, print_tree
from cordwood.sql.redaction.trusting import trusting
from cordwood.sql.stages import Lowered, Resolved
from cordwood.sql.target import StreamTable, table_of_its_name
from cordwood.sql.type_checks import check_types
from cordwood.sql.typing import annotate


class DuckDBTarget:
    """Pure: it knows names and rules, never a connection."""

    name = "duckdb"

    def __init__(self) -> None:
        self._printer = Dialect.get_or_raise("duckdb").generator
        self._script = DuckDBScript()

    def stream_table(self, stream: str) -> StreamTable:
        return table_of_its_name(stream)

    def lower(self, resolved: Resolved) -> Lowered:
        tree = resolved.tree
        annotate(tree)
        check_types(tree, resolved.text)
        lowered = RULES.lower(tree)
        share(lowered)
        if resolved.redaction is not None:
            spare(lowered)
        streams = frozenset(resolved.streams)
        sources, seeks = seeking(lowered, reach(lowered, streams))
        if len(sources) == 1:
            flatten(lowered, sources[0].table)
        at_rest = copied(lowered)
        twins = [
            msgspec.structs.replace(one, table=table)
            for table, one in zip(tables_of(at_rest, streams), sources, strict=True)
        ]
        newest = None if seeks else newest_alone(lowered, sources)
        placed = place_events(lowered, sources)
        placed_at_rest = place_events(at_rest, twins, at_rest=True)
        trees = placed, resolved, placed_at_rest, trusting(placed), trusting(placed_at_rest)
        return Lowered(*trees, newest=newest, seeks=seeks)

    def print(self, tree: exp.Expr) -> Printed:
        generator = self._printer(comments=False)
        return print_tree(tree, lambda node: generator.generate(node, copy=False), self._script)
