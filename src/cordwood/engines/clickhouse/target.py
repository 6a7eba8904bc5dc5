"""ClickHouse's dialect as the compiler needs it: where streams lie, BigQuery's meaning in its words, and printing."""

from typing import Final

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from cordwood.engines.clickhouse.rules import RULES
from cordwood.engines.clickhouse.tables import stream_table
from cordwood.sql.fragment import print_tree
from cordwood.sql.stages import Lowered, Resolved
from cordwood.sql.target import StreamTable
from cordwood.sql.typing import annotate

# How a query must be run to mean what it says. They stand in the query itself: it means the same on any connection.
SETTINGS: Final = {
    "join_use_nulls": "1",
    "aggregate_functions_null_for_empty": "0",
    "transform_null_in": "0",
    "union_default_mode": "'DISTINCT'",
    "session_timezone": "'UTC'",
    "allow_experimental_time_time64_type": "1",
}


class ClickHouseTarget:
    """Pure: it knows names and rules, never a connection."""

    name = "clickhouse"

    def __init__(self) -> None:
        self._printer = Dialect.get_or_raise("clickhouse").generator

    def stream_table(self, stream: str) -> StreamTable:
        return stream_table(stream)

    def lower(self, resolved: Resolved) -> Lowered:
        tree = resolved.tree.copy()
        annotate(tree)
        return Lowered(RULES.lower(tree), resolved)

    def print(self, tree: exp.Expression) -> str:
        generator = self._printer(identify=False)
        text = print_tree(tree.copy(), lambda node: generator.generate(node, copy=False))
        return f"{text} SETTINGS {', '.join(f'{name} = {value}' for name, value in SETTINGS.items())}"
