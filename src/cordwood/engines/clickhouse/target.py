"""ClickHouse's dialect as the compiler needs it: where streams lie, BigQuery's meaning in its words, and printing."""

from typing import Final

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from cordwood.engines.clickhouse.rules import RULES
from cordwood.engines.clickhouse.tables import stream_table
from cordwood.errors import QueryUnsupported
from cordwood.sql.fragment import print_tree
from cordwood.sql.stages import Lowered, Resolved
from cordwood.sql.target import StreamTable
from cordwood.sql.typing import annotate

# How a query must be run to mean what it says. They stand in the query itself: it means the same on any connection.
SETTINGS: Final = {
    "join_use_nulls": "1",
    "group_by_use_nulls": "1",
    "prefer_column_name_to_alias": "1",
    "union_default_mode": "'DISTINCT'",
    "short_circuit_function_evaluation": "'force_enable'",
    "enable_extended_results_for_datetime_functions": "1",
    "allow_nonconst_timezone_arguments": "1",
    "allow_experimental_nullable_tuple_type": "1",
    "session_timezone": "'UTC'",
}


class ClickHouseTarget:
    """Pure: it knows names and rules, never a connection."""

    name = "clickhouse"

    def __init__(self) -> None:
        self._printer = Dialect.get_or_raise("clickhouse").generator

    def stream_table(self, stream: str) -> StreamTable:
        return stream_table(stream)

    def lower(self, resolved: Resolved) -> Lowered:
        if resolved.redaction is not None:
            raise QueryUnsupported("Redaction is not supported on this engine yet.")
        tree = resolved.tree
        annotate(tree)
        return Lowered(RULES.lower(tree), resolved)

    def print(self, tree: exp.Expr) -> str:
        generator = self._printer(identify=False)
        text = print_tree(tree, lambda node: generator.generate(node, copy=False))
        return f"{text} SETTINGS {', '.join(f'{name} = {value}' for name, value in SETTINGS.items())}"
