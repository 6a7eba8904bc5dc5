"""The compile target for ClickHouse: the names of streams' tables, the lowering of trees, and the printing of SQL."""

import re
from collections.abc import Mapping
from typing import Final

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from cordwood.engines.clickhouse.path_pushdown import drop_implied_object_tests, push_down_paths
from cordwood.engines.clickhouse.redaction_functions import REDACTION_KEY_PARAMETER, redaction_function_definitions
from cordwood.engines.clickhouse.rules import RULES
from cordwood.engines.clickhouse.rules.building_blocks import TYPE_NAME_BY_KIND, encode_engine_name, quote_name
from cordwood.engines.clickhouse.rules.relations import rewrite_leading_parentheses
from cordwood.errors import QueryUnsupported
from cordwood.model.datatype import Kind
from cordwood.model.redaction import DEFAULT_REDACTION_RULES, RedactionRules, RedactMode
from cordwood.sql.datatypes import kind_of
from cordwood.sql.lowering import mark_verbatim_name, verbatim_sql_node
from cordwood.sql.nodes import RedactionCall, find_operations
from cordwood.sql.redaction.masking import optimistic_redaction_variant
from cordwood.sql.stages import LoweredQuery, ResolvedQuery, StreamTable, VariantTree, table_named_as_stream
from cordwood.sql.tree_printer import PrintedTree, TokenizedSql
from cordwood.sql.type_checks import check_types
from cordwood.sql.type_inference import annotate_types

# Settings that affect the meaning of a compiled statement. They are part of the statement's text, so that they apply on
# every connection.
STATEMENT_SETTINGS: Final = {
    "join_use_nulls": "1",
    "group_by_use_nulls": "1",
    "prefer_column_name_to_alias": "1",
    "union_default_mode": "'DISTINCT'",
    "short_circuit_function_evaluation": "'force_enable'",
    "enable_extended_results_for_datetime_functions": "1",
    "allow_nonconst_timezone_arguments": "1",
    "allow_experimental_nullable_tuple_type": "1",
    "session_timezone": "'UTC'",
    "output_format_json_escape_forward_slashes": "0",
}

# The meta key under which the root of a lowered tree has its redaction mode. The mode determines which redaction
# functions the tree may call.
_REDACTION_MODE_METADATA_KEY: Final = "hiding"


class ClickHouseTarget:
    """The compile target for ClickHouse, which needs no connection to a server."""

    name = "clickhouse"

    def __init__(self, rules: RedactionRules = DEFAULT_REDACTION_RULES) -> None:
        self._sql_generator_class = Dialect.get_or_raise("clickhouse").generator
        self._quoting = ClickHouseQuoting()
        self._redaction_rules = rules
        self._redaction_function_definitions_by_mode: dict[RedactMode, dict[str, str]] = {}

    def stream_table(self, stream: str) -> StreamTable:
        return table_named_as_stream(stream)

    def lower(self, resolved: ResolvedQuery) -> LoweredQuery:
        tree = resolved.tree
        annotate_types(tree)
        check_types(tree, resolved.query_text)
        _keep_stream_names_verbatim(tree)
        mode = resolved.redact_mode
        if mode is not None:
            _refuse_redaction_key_parameter(tree)
        drop_implied_object_tests(tree)
        push_down_paths(tree, frozenset(resolved.streams))
        lowered = rewrite_leading_parentheses(RULES.lower(tree))
        lowered.meta[_REDACTION_MODE_METADATA_KEY] = mode
        optimistic_tree = optimistic_redaction_variant(lowered)
        alternatives = () if optimistic_tree is None else (VariantTree(optimistic_tree, has_optimistic_redaction=True),)
        return LoweredQuery(lowered, resolved, alternatives)

    def print_lowered_tree(self, tree: exp.Expr) -> PrintedTree:
        generator = self._sql_generator_class(identify=False, comments=False)
        mode = tree.meta_get(_REDACTION_MODE_METADATA_KEY)
        if mode is not None:
            tree = _add_redaction_functions(tree, self._redaction_function_definitions(mode))
        tokenized = TokenizedSql(tree, lambda node: generator.generate(node, copy=False), self._quoting)
        return tokenized.replace_placeholder_tokens(add_settings_clause(tokenized.text))

    def _redaction_function_definitions(self, mode: RedactMode) -> dict[str, str]:
        if mode not in self._redaction_function_definitions_by_mode:
            self._redaction_function_definitions_by_mode[mode] = redaction_function_definitions(
                self._redaction_rules, mode
            )
        return self._redaction_function_definitions_by_mode[mode]


def _add_redaction_functions(tree: exp.Expr, definition_by_name: Mapping[str, str]) -> exp.Expr:
    """Add to the tree's WITH the definitions of the redaction functions that the tree calls."""
    called_functions = {call.function_name for _, call in find_operations(tree, RedactionCall)}
    definitions = [
        verbatim_sql_node(function) for name, function in definition_by_name.items() if name in called_functions
    ]
    if not definitions:
        return tree
    with_ = tree.args.get("with_")
    if with_ is None:
        tree.set("with_", exp.With(expressions=definitions))
    else:
        with_.set("expressions", [*definitions, *with_.expressions])
    return rewrite_leading_parentheses(tree)


def add_settings_clause(sql: str) -> str:
    return f"{sql} SETTINGS {', '.join(f'{name} = {value}' for name, value in STATEMENT_SETTINGS.items())}"


def _keep_stream_names_verbatim(tree: exp.Expr) -> None:
    """Mark the names of streams' tables, so that the printer does not encode them with `encode_engine_name`."""
    for table in tree.find_all(exp.Table):
        if table.meta_get("stream") is not None:
            mark_verbatim_name(table.this)


def _refuse_redaction_key_parameter(tree: exp.Expr) -> None:
    if any(slot.name == REDACTION_KEY_PARAMETER for slot in tree.find_all(exp.Parameter)):
        raise QueryUnsupported(f"A parameter called {REDACTION_KEY_PARAMETER} is not supported where redaction is on.")


class ClickHouseQuoting:
    """How names, texts, bytes and slots (places of parameters) are written in ClickHouse's SQL."""

    quoted_or_comment_pattern = re.compile(
        r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`\\]|\\.|``)*`|/\*.*?\*/""", re.DOTALL
    )

    def encode_identifier(self, name: str) -> str:
        return encode_engine_name(name)

    def quote_name(self, name: str) -> str:
        return quote_name(name)

    def quote_text(self, text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0") + "'"

    def quote_bytes(self, data: bytes) -> str:
        return "'" + "".join(f"\\x{byte:02X}" for byte in data) + "'"

    def parameter_placeholder(self, slot: exp.Parameter) -> str:
        """Return the placeholder of a parameter; its type in ClickHouse is nullable, because the value may be NULL."""
        return f"{{{slot.name}:Nullable({TYPE_NAME_BY_KIND[kind_of(slot) or Kind.STRING]})}}"
