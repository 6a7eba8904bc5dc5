"""Check with DuckDB's own parser that a statement reads only its streams' tables, by permitted functions.

The connection that runs the text also serialises its parse tree; only the names of the streams come from the compiler.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final

import duckdb
import msgspec

from cordwood.engines.duckdb import parse_tree as tree
from cordwood.engines.duckdb.callable_functions import FUNCTIONS, TABLE_FUNCTIONS, TYPES
from cordwood.engines.duckdb.storage.tables import StreamTables
from cordwood.engines.isolation import (
    BreachError,
    Children,
    Isolation,
    Scope,
    UnlistedFunctionError,
    check_functions,
    children,
    decode_tree,
    walk,
)

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

    def __init__(self, isolation: Isolation) -> None:
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
            _check_name("type", node.qualified_name, TYPES)
        elif kind is tree.TableReference:
            self._check_table(node, scope)
        elif kind is tree.TableFunction:
            _check_name("table function", node.function.qualified_name, TABLE_FUNCTIONS)
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
    if name not in FUNCTIONS:
        raise UnlistedFunctionError(name)


def _check_name(kind: str, name: tree.QualifiedName, known: frozenset[str]) -> None:
    if len(name.path) != 1 or name.path[0] not in known:
        raise BreachError(f"the {kind} {name.path}")
