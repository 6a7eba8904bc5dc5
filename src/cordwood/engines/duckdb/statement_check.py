"""Check with DuckDB's own parser that a statement reads only its streams' tables, by permitted functions.

The connection that runs the text also serialises its parse tree; only the names of the streams come from the compiler.

A statement with any other function is refused. No listed function reads a file, a setting, the catalog, a table by its
name, or a query in a text. A rule that emits another function adds it here, in alphabetical order.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final

import duckdb
import msgspec

from cordwood.engines.duckdb import parse_tree as tree
from cordwood.engines.duckdb.storage.tables import StreamTables
from cordwood.engines.isolation import (
    BreachError,
    Children,
    IsolationCheck,
    Scope,
    UnlistedFunctionError,
    check_functions,
    children,
    decode_tree,
    walk,
)
from cordwood.model.redaction import RedactMode
from cordwood.sql.redaction.masking import OPTIMISTIC_TEXT, REDACT_EVENT, REDACT_JSON, REDACT_TEXT

Path = tuple[str, ...]

_SERIALIZE: Final = "SELECT json_serialize_sql($sql, skip_null := true, skip_empty := true, skip_default := true)"
_DECODER: Final = msgspec.json.Decoder(tree.ParseResult)
# DuckDB's error type for a text that could not be parsed for lack of memory.
_OUT_OF_MEMORY: Final = "out of memory"

# DuckDB's names are case-insensitive for ASCII letters only.
_ASCII_LOWER_CASE: Final = {letter: letter + 32 for letter in range(ord("A"), ord("Z") + 1)}

_QUERY_NODES: Final = frozenset({tree.SelectNode, tree.SetOperation, tree.RecursiveCte})

# DuckDB resolves an unqualified name that is not a column as one of these.
_SESSION_VALUES: Final = frozenset(
    """
    current_catalog current_database current_date current_role current_schema current_time current_timestamp current_user
    localtime localtimestamp session_user user
    """.split()
)


class StatementCheck:
    """Checks SQL with the connection that runs it afterwards. Thread-safe."""

    def __init__(self, isolation: IsolationCheck) -> None:
        self._isolation = isolation
        self._serialize_statement: duckdb.Statement | None = None

    def check(self, cursor: duckdb.DuckDBPyConnection, text: str, streams: Collection[str]) -> None:
        """Raise IsolationBroken unless the SQL is one SELECT that reads only these streams."""
        self._isolation.check(text, streams, lambda: self._inspect(cursor, text, streams))

    def _inspect(self, cursor: duckdb.DuckDBPyConnection, text: str, streams: Collection[str]) -> None:
        if "\0" in text:
            raise BreachError("a NUL character")
        if self._serialize_statement is None:
            (self._serialize_statement,) = cursor.extract_statements(_SERIALIZE)
        ((serialized,),) = cursor.execute(self._serialize_statement, {"sql": text}).fetchall()
        parsed = decode_tree(_DECODER, serialized)
        if parsed.error:
            # A text that is not SQL fails here with the engine's own message, as it would when it is run.
            cursor.extract_statements(text)
            if parsed.error_type == _OUT_OF_MEMORY:
                raise duckdb.OutOfMemoryException(parsed.error_message)
            raise BreachError(f"no SELECT: {parsed.error_message}")
        if len(parsed.statements) != 1:
            raise BreachError(f"{len(parsed.statements)} statements")
        (statement,) = parsed.statements
        inspection = _Inspection(_permitted_tables(streams))
        check_functions(lambda: walk(statement, inspection.visit), lambda name: _has_function(cursor, name))
        if inspection.session_values:
            _require_defined(inspection.session_values, statement)


def _has_function(cursor: duckdb.DuckDBPyConnection, name: str) -> bool:
    sql = "SELECT count(*) FROM duckdb_functions() WHERE lower(function_name) = lower($name)"
    ((count,),) = cursor.execute(sql, {"name": name}).fetchall()
    return bool(count)


def _permitted_tables(streams: Collection[str]) -> frozenset[Path]:
    return frozenset(path for stream in streams for path in StreamTables(stream).paths)


class _Inspection:
    """The inspection of one tree; `visit` raises BreachError for a forbidden node."""

    def __init__(self, tables: frozenset[Path]) -> None:
        self._tables = tables
        # Unqualified names that are session values unless the statement defines them.
        self.session_values: set[str] = set()

    def visit(self, node: Any, scope: Scope) -> Children:
        kind = type(node)
        if kind is tree.ColumnRef:
            self._note_column(node)
        elif kind is tree.Function or kind is tree.Window:
            _check_function(node)
        elif kind is tree.TypeName:
            _check_name("type", node.qualified_name, CALLABLE_TYPES)
        elif kind is tree.TableReference:
            self._check_table(node, scope)
        elif kind is tree.TableFunction:
            _check_name("table function", node.function.qualified_name, CALLABLE_TABLE_FUNCTIONS)
        elif kind in _QUERY_NODES:
            return _visit_query(node, scope)
        return children(node, scope)

    def _check_table(self, table: tree.TableReference, scope: Scope) -> None:
        path = tuple(table.qualified_name.path)
        is_cte = len(path) == 1 and fold_case(path[0]) in scope
        if not is_cte and path not in self._tables:
            raise BreachError(f"the table {path}")

    def _note_column(self, column: tree.ColumnRef) -> None:
        if len(column.column_names) == 1 and fold_case(column.column_names[0]) in _SESSION_VALUES:
            self.session_values.add(fold_case(column.column_names[0]))


def fold_case(name: str) -> str:
    """Return the name with ASCII letters in lower case, as DuckDB compares names."""
    return name.translate(_ASCII_LOWER_CASE)


def _visit_query(node: tree.AnyQuery, scope: Scope) -> Iterator[tuple[msgspec.Struct, Scope]]:
    """Visit a query.

    Each CTE sees the CTEs before it; a recursive CTE also sees itself, except in its first part.
    """
    for cte in node.cte_map.map:
        query = cte.value.query_node
        if isinstance(query, tree.RecursiveCte) and fold_case(query.cte_name) != fold_case(cte.key):
            raise BreachError(f"a recursive CTE of two names: {cte.key}, {query.cte_name}")
        yield query, scope
        scope = scope | {fold_case(cte.key)}
    if isinstance(node, tree.RecursiveCte):
        yield node.left, scope
        yield node.right, scope | {fold_case(node.cte_name)}
    yield from children(node, scope, "cte_map", "left", "right")


def _require_defined(names: set[str], statement: tree.Query) -> None:
    """Require that the statement defines each of the names."""
    defined: set[str] = set()

    def visit(node: msgspec.Struct, scope: Scope) -> Children:
        if isinstance(node, tree.Expression):
            defined.add(fold_case(node.alias))
        elif isinstance(node, tree.Relation):
            defined.update(map(fold_case, node.column_name_alias))
        elif isinstance(node, tree.CteInfo):
            defined.update(map(fold_case, node.aliases))
        return children(node, scope)

    walk(statement, visit)
    for name in names - defined:
        raise BreachError(f"the value {name} of the session")


def _check_function(function: tree.Function | tree.Window) -> None:
    name = function.function_name
    if function.qualified_name.path != [name]:
        raise BreachError(f"the function {function.qualified_name.path}")
    if name not in CALLABLE_FUNCTIONS:
        raise UnlistedFunctionError(name)


def _check_name(kind: str, name: tree.QualifiedName, known: frozenset[str]) -> None:
    if len(name.path) != 1 or name.path[0] not in known:
        raise BreachError(f"the {kind} {name.path}")


_LISTED: Final = """
    % & * + - ->> / // << >> | || ~ ~~
    abs acos acosh any_value arg_max arg_max_null arg_min arg_min_null array_agg array_to_string asin asinh atan atan2 atanh avg base64 bin bit_and
    bit_count bit_or bit_xor bool_and bool_or ceil chr concat contains corr cos cosh count count_star covar_pop covar_samp
    cume_dist date_diff date_part date_trunc day dayofweek dayofyear decode dense_rank encode epoch_us error exp
    first_value flatten floor from_base64 generate_series greatest hex histogram hour instr isfinite isinf isnan isodow
    isoyear json json_array json_array_length json_extract json_extract_string json_keys json_object json_pretty json_remove
    json_replace json_set json_strip_nulls json_type json_valid lag last_value lead least left len length levenshtein
    like_escape list_concat list_contains list_count list_distinct list_extract list_filter list_position list_reduce
    list_reverse list_slice list_sort list_sum list_transform list_value ln log10 lower lpad ltrim make_date make_time
    make_timestamp make_timestamptz map_entries max md5 microsecond millisecond min minute month nfc_normalize now
    nth_value ntile nullif octet_length ord percent_rank power printf quantile_cont quantile_disc quarter random range
    rank regexp_extract regexp_extract_all regexp_full_match regexp_matches regexp_replace regr_count repeat replace
    reverse right round round_even row row_number rpad rtrim second sha1 sha256 sign sin sinh split_part sqrt starts_with
    stddev_pop stddev_samp strftime string_agg string_split strlen strpos struct_extract struct_extract_at struct_pack
    substring suffix sum tan tanh time_bucket timezone to_base64 to_days to_hours to_json to_microseconds
    to_milliseconds to_minutes to_months to_quarters to_seconds to_weeks to_years translate trim trunc unbin unhex unnest
    upper var_pop var_samp variant_typeof weekofyear xor year
"""

# The macros of redaction, which the engine creates itself.
_REDACTION_MACROS: Final = frozenset(
    f"{name}_{mode}" for name in (REDACT_TEXT, REDACT_JSON, REDACT_EVENT, OPTIMISTIC_TEXT) for mode in RedactMode
)

CALLABLE_FUNCTIONS: Final = frozenset(_LISTED.split()) | _REDACTION_MACROS
CALLABLE_TABLE_FUNCTIONS: Final = frozenset({"unnest"})

CALLABLE_TYPES: Final = frozenset(
    """
    BIGINT BIT BLOB BOOLEAN DATE DECIMAL DOUBLE HUGEINT INTEGER INTERVAL JSON list MAP STRUCT TIME TIMESTAMP TIMESTAMPTZ
    UBIGINT UHUGEINT VARCHAR VARIANT
    """.split()
)
