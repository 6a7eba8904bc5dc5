"""Check with DuckDB's own parser that a statement reads only its streams' tables and calls only permitted functions.

Before a connection runs a statement, the check inspects the parse tree that this connection makes of it. The check does
not trust the compiler: of the compiler's result, it uses only the SQL and the names of the streams.

A statement that calls a function which is not in the lists at the end of this module is refused. No listed function
reads a file, a setting, the catalog, or a table given by name, and no listed function runs a query given as text. If a
rule emits a function that is not listed yet, it must be added to the list, in alphabetical order.

The structs at the top are the nodes of the parse tree that `json_serialize_sql` returns, with the fields that a
compiled statement may have. A statement with any other node or field cannot be decoded and is refused.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final, Literal

import duckdb
import msgspec

from cordwood.engines.duckdb.storage.tables import StreamTableStatements
from cordwood.engines.isolation import (
    IsolationBreachError,
    IsolationCheck,
    ScopedNodes,
    UnlistedFunctionError,
    VisibleCtes,
    decode_parse_tree,
    refuse_unlisted_functions,
    scoped_children,
    walk_tree,
)
from cordwood.model.redaction import RedactMode
from cordwood.sql.redaction.masking import (
    OPTIMISTIC_TEXT_FUNCTION_PREFIX,
    REDACT_EVENT_FUNCTION_PREFIX,
    REDACT_JSON_FUNCTION_PREFIX,
    REDACT_TEXT_FUNCTION_PREFIX,
)


class ParseNode(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A node of DuckDB's parse tree, with its position in the text, which is 0 if the parser does not report it."""

    query_location: int = 0
    query_location_length: int = 0


class QualifiedName(ParseNode):
    path: list[str] = []


# The following classes are the nodes of expressions.


class Expression(ParseNode, tag_field="class", kw_only=True):
    alias: str = ""


class Between(Expression, tag="BETWEEN"):
    type: Literal["COMPARE_BETWEEN"]
    input: "AnyExpression"
    lower: "AnyExpression"
    upper: "AnyExpression"


class CaseCheck(ParseNode):
    when_expr: "AnyExpression"
    then_expr: "AnyExpression"


class Case(Expression, tag="CASE"):
    type: Literal["CASE_EXPR"]
    case_checks: list[CaseCheck]
    else_expr: "AnyExpression"


class Cast(Expression, tag="CAST"):
    type: Literal["OPERATOR_CAST"]
    child: "AnyExpression"
    type_expr: "AnyExpression"
    try_cast: bool = False


class ColumnRef(Expression, tag="COLUMN_REF"):
    type: Literal["COLUMN_REF"]
    column_names: list[str]


class Comparison(Expression, tag="COMPARISON"):
    type: Literal[
        "COMPARE_EQUAL",
        "COMPARE_NOTEQUAL",
        "COMPARE_LESSTHAN",
        "COMPARE_GREATERTHAN",
        "COMPARE_LESSTHANOREQUALTO",
        "COMPARE_GREATERTHANOREQUALTO",
        "COMPARE_DISTINCT_FROM",
        "COMPARE_NOT_DISTINCT_FROM",
    ]
    left: "AnyExpression"
    right: "AnyExpression"


class Conjunction(Expression, tag="CONJUNCTION"):
    type: Literal["CONJUNCTION_AND", "CONJUNCTION_OR"]
    children: list["AnyExpression"]


class Constant(Expression, tag="CONSTANT"):
    type: Literal["VALUE_CONSTANT"]
    literal: msgspec.Raw


class Argument(ParseNode):
    expression: "AnyExpression"
    name: str = ""


class Function(Expression, tag="FUNCTION"):
    type: Literal["FUNCTION"]
    function_name: str
    qualified_name: QualifiedName
    arguments: list[Argument] = []
    order_bys: "OrderModifier | None" = None
    filter: "AnyExpression | None" = None
    distinct: bool = False
    is_operator: bool = False


class Lambda(Expression, tag="LAMBDA"):
    type: Literal["LAMBDA"]
    lhs: "AnyExpression"
    expr: "AnyExpression"
    syntax_type: Literal["LAMBDA_KEYWORD"]


class Operator(Expression, tag="OPERATOR"):
    type: Literal[
        "ARRAY_EXTRACT",
        "ARRAY_SLICE",
        "COMPARE_IN",
        "COMPARE_NOT_IN",
        "GROUPING_FUNCTION",
        "OPERATOR_COALESCE",
        "OPERATOR_IS_NOT_NULL",
        "OPERATOR_IS_NULL",
        "OPERATOR_NOT",
        "OPERATOR_TRY",
        "STRUCT_EXTRACT",
    ]
    children: list["AnyExpression"]


class Parameter(Expression, tag="PARAMETER"):
    type: Literal["VALUE_PARAMETER"]
    identifier: str


class PositionalReference(Expression, tag="POSITIONAL_REFERENCE"):
    type: Literal["POSITIONAL_REFERENCE"]
    index: int


class RenamedColumn(ParseNode):
    column: str


class Renaming(ParseNode):
    key: RenamedColumn
    value: str


class Star(Expression, tag="STAR"):
    type: Literal["STAR"]
    relation_name: str = ""
    columns: bool = False
    exclude_list: list[str] = []
    rename_list: list[Renaming] = []


class SubqueryExpression(Expression, tag="SUBQUERY"):
    type: Literal["SUBQUERY"]
    subquery_type: Literal["ANY", "EXISTS", "NOT_EXISTS", "SCALAR"]
    subquery: "Query"
    comparison_type: Literal[
        "COMPARE_EQUAL",
        "COMPARE_NOTEQUAL",
        "COMPARE_LESSTHAN",
        "COMPARE_GREATERTHAN",
        "COMPARE_LESSTHANOREQUALTO",
        "COMPARE_GREATERTHANOREQUALTO",
        "INVALID",
    ]
    child: "AnyExpression | None" = None


class TypeName(Expression, tag="TYPE"):
    type: Literal["TYPE"]
    type_name: str
    qualified_name: QualifiedName
    children: list["AnyExpression"] = []


class Window(Expression, tag="WINDOW"):
    type: str
    function_name: str
    qualified_name: QualifiedName
    start: str
    end: str
    arguments: list[Argument] = []
    partitions: list["AnyExpression"] = []
    orders: list["Order"] = []
    start_expr: "AnyExpression | None" = None
    end_expr: "AnyExpression | None" = None
    ignore_nulls: bool = False
    has_ignore_nulls: bool = False
    distinct: bool = False


AnyExpression = (
    Between
    | Case
    | Cast
    | ColumnRef
    | Comparison
    | Conjunction
    | Constant
    | Function
    | Lambda
    | Operator
    | Parameter
    | PositionalReference
    | Star
    | SubqueryExpression
    | TypeName
    | Window
)


# The following classes are the nodes of modifiers: clauses that are applied to the rows of a query, such as ORDER BY.


class Order(ParseNode):
    type: Literal["ASCENDING", "DESCENDING", "ORDER_DEFAULT"]
    null_order: Literal["NULLS FIRST", "NULLS LAST", "ORDER_DEFAULT"]
    expression: AnyExpression


class Modifier(ParseNode, tag_field="type"):
    """A clause that is applied to the rows of a query: ORDER BY, LIMIT or DISTINCT."""


class OrderModifier(Modifier, tag="ORDER_MODIFIER"):
    orders: list[Order] = []


class LimitModifier(Modifier, tag="LIMIT_MODIFIER"):
    limit: AnyExpression | None = None
    offset: AnyExpression | None = None


class DistinctModifier(Modifier, tag="DISTINCT_MODIFIER"):
    """The clause DISTINCT without ON.

    DISTINCT ON is refused, because it has a further field in the parse tree, which this class does not declare. No rule
    emits DISTINCT ON.
    """


AnyModifier = OrderModifier | LimitModifier | DistinctModifier


# The following classes are the nodes of relations: tables, joins and other items of a FROM clause.


class Relation(ParseNode, tag_field="type", kw_only=True):
    alias: str = ""
    column_name_alias: list[str] = []


class TableReference(Relation, tag="BASE_TABLE"):
    table_name: str
    qualified_name: QualifiedName
    schema_name: str = ""
    catalog_name: str = ""


class EmptyFrom(Relation, tag="EMPTY"):
    """The node that represents the missing FROM clause of a SELECT without FROM."""


class Join(Relation, tag="JOIN"):
    left: "AnyRelation"
    right: "AnyRelation"
    join_type: Literal["INNER", "LEFT", "RIGHT", "FULL"]
    ref_type: Literal["REGULAR", "CROSS"] = "REGULAR"
    condition: AnyExpression | None = None
    using_columns: list[str] = []
    is_implicit: bool = False


class PivotEntry(ParseNode):
    star_expr: AnyExpression
    alias: str = ""


class PivotColumn(ParseNode):
    entries: list[PivotEntry] = []
    pivot_expressions: list[AnyExpression] = []
    unpivot_names: list[str] = []


class Pivot(Relation, tag="PIVOT"):
    source: "AnyRelation"
    aggregates: list[AnyExpression] = []
    pivots: list[PivotColumn] = []
    unpivot_names: list[str] = []


class SubqueryRelation(Relation, tag="SUBQUERY"):
    subquery: "Query"


class TableFunction(Relation, tag="TABLE_FUNCTION"):
    function: Function
    with_ordinality: str = ""


AnyRelation = TableReference | EmptyFrom | Join | Pivot | SubqueryRelation | TableFunction


# The following classes are the nodes of queries and of their CTEs.


class CteInfo(ParseNode):
    query_node: "AnyQuery"
    materialized: Literal["CTE_MATERIALIZE_ALWAYS", "CTE_MATERIALIZE_DEFAULT", "CTE_MATERIALIZE_NEVER"]
    aliases: list[str] = []


class Cte(ParseNode):
    key: str
    value: CteInfo


class CteMap(ParseNode):
    map: list[Cte] = []


class QueryNode(ParseNode, tag_field="type", kw_only=True):
    cte_map: CteMap
    modifiers: list[AnyModifier] = []


class SelectNode(QueryNode, tag="SELECT_NODE"):
    select_list: list[AnyExpression]
    from_table: AnyRelation
    aggregate_handling: Literal["STANDARD_HANDLING", "FORCE_AGGREGATES"]
    where_clause: AnyExpression | None = None
    group_expressions: list[AnyExpression] = []
    group_sets: list[list[int]] = []
    having: AnyExpression | None = None
    qualify: AnyExpression | None = None


class SetOperation(QueryNode, tag="SET_OPERATION_NODE"):
    children: list["AnyQuery"]
    setop_type: Literal["UNION", "INTERSECT", "EXCEPT"]
    setop_all: bool = False


class RecursiveCte(QueryNode, tag="RECURSIVE_CTE_NODE"):
    cte_name: str
    left: "AnyQuery"
    right: "AnyQuery"
    union_all: bool = False
    aliases: list[str] = []


AnyQuery = SelectNode | SetOperation | RecursiveCte


class NamedParameter(ParseNode):
    key: str
    value: int


class Query(ParseNode):
    node: AnyQuery
    named_param_map: list[NamedParameter] = []


class ParseResult(ParseNode):
    """The result of DuckDB's parser: the parsed statements, or an error."""

    error: bool
    statements: list[Query] = []
    error_type: str = ""
    error_message: str = ""
    error_subtype: str = ""
    position: str = ""
    location: str = ""


TablePath = tuple[str, ...]

_SERIALIZE_STATEMENT_SQL: Final = (
    "SELECT json_serialize_sql($sql, skip_null := true, skip_empty := true, skip_default := true)"
)
_PARSE_RESULT_DECODER: Final = msgspec.json.Decoder(ParseResult)
# The `error_type` that DuckDB reports if a text could not be parsed for lack of memory.
_OUT_OF_MEMORY_ERROR_TYPE: Final = "out of memory"

# A table for `translate`, by which ASCII letters become lower case. DuckDB ignores the case of names only in ASCII
# letters.
_ASCII_LOWER_CASE_TABLE: Final = {letter: letter + 32 for letter in range(ord("A"), ord("Z") + 1)}

_QUERY_NODE_TYPES: Final = frozenset({SelectNode, SetOperation, RecursiveCte})

# Names such as `current_user`. If an unqualified name is in this set and no column has the name, DuckDB returns a value
# of the session.
_SESSION_VALUE_NAMES: Final = frozenset(
    """
    current_catalog current_database current_date current_role current_schema current_time current_timestamp current_user
    localtime localtimestamp session_user user
    """.split()
)


class StatementChecker:
    """Checks statements on the connections that run them afterwards; safe to use from several threads."""

    def __init__(self, isolation: IsolationCheck) -> None:
        self._isolation_check = isolation
        self._serialization_statement: duckdb.Statement | None = None

    def check(self, cursor: duckdb.DuckDBPyConnection, text: str, streams: Collection[str]) -> None:
        """Raise IsolationCheckFailed unless `text` is a single SELECT that reads only streams in `streams`."""
        self._isolation_check.check_statement(text, streams, lambda: self._inspect_tree(cursor, text, streams))

    def _inspect_tree(self, cursor: duckdb.DuckDBPyConnection, text: str, streams: Collection[str]) -> None:
        if "\0" in text:
            raise IsolationBreachError("a NUL character")
        if self._serialization_statement is None:
            (self._serialization_statement,) = cursor.extract_statements(_SERIALIZE_STATEMENT_SQL)
        ((serialized,),) = cursor.execute(self._serialization_statement, {"sql": text}).fetchall()
        parsed = decode_parse_tree(_PARSE_RESULT_DECODER, serialized)
        if parsed.error:
            # If the text is not SQL, this call raises the same DuckDB error that running the text would raise.
            cursor.extract_statements(text)
            if parsed.error_type == _OUT_OF_MEMORY_ERROR_TYPE:
                raise duckdb.OutOfMemoryException(parsed.error_message)
            raise IsolationBreachError(f"no SELECT: {parsed.error_message}")
        if len(parsed.statements) != 1:
            raise IsolationBreachError(f"{len(parsed.statements)} statements")
        (statement,) = parsed.statements
        inspection = _TreeInspector(_permitted_tables(streams))
        refuse_unlisted_functions(
            lambda: walk_tree(statement, inspection.visit), lambda name: _has_function(cursor, name)
        )
        if inspection.session_value_names:
            _require_defined_names(inspection.session_value_names, statement)


def _has_function(cursor: duckdb.DuckDBPyConnection, name: str) -> bool:
    sql = "SELECT count(*) FROM duckdb_functions() WHERE lower(function_name) = lower($name)"
    ((count,),) = cursor.execute(sql, {"name": name}).fetchall()
    return bool(count)


def _permitted_tables(streams: Collection[str]) -> frozenset[TablePath]:
    return frozenset(path for stream in streams for path in StreamTableStatements(stream).qualified_table_names)


class _TreeInspector:
    """The inspection of one parse tree; `visit` raises IsolationBreachError for a forbidden node."""

    def __init__(self, tables: frozenset[TablePath]) -> None:
        self._permitted_tables = tables
        # The unqualified names that mean values of the session, unless the statement defines them.
        self.session_value_names: set[str] = set()

    def visit(self, node: Any, scope: VisibleCtes) -> ScopedNodes:
        kind = type(node)
        if kind is ColumnRef:
            self._record_session_value(node)
        elif kind is Function or kind is Window:
            _check_function(node)
        elif kind is TypeName:
            _check_qualified_name("type", node.qualified_name, ALLOWED_TYPES)
        elif kind is TableReference:
            self._check_table(node, scope)
        elif kind is TableFunction:
            _check_qualified_name("table function", node.function.qualified_name, ALLOWED_TABLE_FUNCTIONS)
        elif kind in _QUERY_NODE_TYPES:
            return _scoped_query_children(node, scope)
        return scoped_children(node, scope)

    def _check_table(self, table: TableReference, scope: VisibleCtes) -> None:
        path = tuple(table.qualified_name.path)
        is_cte = len(path) == 1 and fold_case(path[0]) in scope
        if not is_cte and path not in self._permitted_tables:
            raise IsolationBreachError(f"the table {path}")

    def _record_session_value(self, column: ColumnRef) -> None:
        if len(column.column_names) == 1 and fold_case(column.column_names[0]) in _SESSION_VALUE_NAMES:
            self.session_value_names.add(fold_case(column.column_names[0]))


def fold_case(name: str) -> str:
    """Return the name with ASCII letters in lower case, as DuckDB compares names."""
    return name.translate(_ASCII_LOWER_CASE_TABLE)


def _scoped_query_children(node: AnyQuery, scope: VisibleCtes) -> Iterator[tuple[msgspec.Struct, VisibleCtes]]:
    """Yield the nodes below a query, each with the names of the CTEs that are visible in the node.

    In each CTE, the CTEs before it are visible. A recursive CTE is also visible in itself, except in its first part.
    """
    for cte in node.cte_map.map:
        query = cte.value.query_node
        if isinstance(query, RecursiveCte) and fold_case(query.cte_name) != fold_case(cte.key):
            raise IsolationBreachError(f"a recursive CTE of two names: {cte.key}, {query.cte_name}")
        yield query, scope
        scope = scope | {fold_case(cte.key)}
    if isinstance(node, RecursiveCte):
        yield node.left, scope
        yield node.right, scope | {fold_case(node.cte_name)}
    yield from scoped_children(node, scope, "cte_map", "left", "right")


def _require_defined_names(names: set[str], statement: Query) -> None:
    """Raise IsolationBreachError unless the statement defines all of `names` as aliases.

    Each of them is a name such as `current_user`: without a definition, it would mean a value of the session.
    """
    defined: set[str] = set()

    def record_defined_names(node: msgspec.Struct, scope: VisibleCtes) -> ScopedNodes:
        if isinstance(node, Expression):
            defined.add(fold_case(node.alias))
        elif isinstance(node, Relation):
            defined.update(map(fold_case, node.column_name_alias))
        elif isinstance(node, CteInfo):
            defined.update(map(fold_case, node.aliases))
        return scoped_children(node, scope)

    walk_tree(statement, record_defined_names)
    for name in names - defined:
        raise IsolationBreachError(f"the value {name} of the session")


def _check_function(function: Function | Window) -> None:
    name = function.function_name
    if function.qualified_name.path != [name]:
        raise IsolationBreachError(f"the function {function.qualified_name.path}")
    if name not in ALLOWED_FUNCTIONS:
        raise UnlistedFunctionError(name)


def _check_qualified_name(kind: str, name: QualifiedName, known: frozenset[str]) -> None:
    if len(name.path) != 1 or name.path[0] not in known:
        raise IsolationBreachError(f"the {kind} {name.path}")


_ALLOWED_BUILTIN_FUNCTIONS: Final = """
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

# The names of the macros for redaction, which the engine creates itself.
_REDACTION_MACRO_NAMES: Final = frozenset(
    f"{name}_{mode}"
    for name in (
        REDACT_TEXT_FUNCTION_PREFIX,
        REDACT_JSON_FUNCTION_PREFIX,
        REDACT_EVENT_FUNCTION_PREFIX,
        OPTIMISTIC_TEXT_FUNCTION_PREFIX,
    )
    for mode in RedactMode
)

ALLOWED_FUNCTIONS: Final = frozenset(_ALLOWED_BUILTIN_FUNCTIONS.split()) | _REDACTION_MACRO_NAMES
ALLOWED_TABLE_FUNCTIONS: Final = frozenset({"unnest"})

ALLOWED_TYPES: Final = frozenset(
    """
    BIGINT BIT BLOB BOOLEAN DATE DECIMAL DOUBLE HUGEINT INTEGER INTERVAL JSON list MAP STRUCT TIME TIMESTAMP TIMESTAMPTZ
    UBIGINT UHUGEINT VARCHAR VARIANT
    """.split()
)
