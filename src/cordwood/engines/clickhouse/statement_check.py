"""Check with ClickHouse's parser that a statement reads only its streams, with permitted syntax and functions.

The server receives the statement as a text literal, and returns its parse tree. Apart from the tree, the check uses
only the names of the streams and the settings that every statement has. If several CTEs share a name, the check
resolves each reference in the same way as ClickHouse.

The structs at the top are the nodes of the parse tree that `parseQueryToJSON` returns, with the fields that a compiled
statement may have. A statement with any other node or field cannot be decoded and is refused.

The lists at the end contain the functions that a statement may call. A statement with any other function is refused. No
listed function reads a file, a setting, another server, or a table or dictionary by its name. No listed function runs a
query given as text. If a lowering rule emits a new function, add the function to the list, in alphabetical order.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, Final, Literal

import msgspec

from cordwood.engines.clickhouse.session import BoundQuery, Session
from cordwood.engines.clickhouse.tables import text_literal
from cordwood.engines.clickhouse.target import STATEMENT_SETTINGS
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
from cordwood.errors import EngineFailed, Fault, QueryFault, QueryRefused, QueryUnsupported
from cordwood.model.redaction import RedactMode
from cordwood.sql.redaction.masking import (
    OPTIMISTIC_TEXT_FUNCTION_PREFIX,
    REDACT_EVENT_FUNCTION_PREFIX,
    REDACT_JSON_FUNCTION_PREFIX,
    REDACT_TEXT_FUNCTION_PREFIX,
)


class Node(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", gc=False):
    """A node of ClickHouse's parse tree."""


class ExpressionList(Node, tag="ExpressionList"):
    children: list["AnyNode"] = []


# The following classes are the nodes of expressions.


class Asterisk(Node, tag="Asterisk"):
    """The `*` in a SELECT, which stands for all columns of the relations in FROM."""


class ColumnsRegexpMatcher(Node, tag="ColumnsRegexpMatcher"):
    pattern: str


class Function(Node, tag="Function"):
    name: str
    arguments: ExpressionList | None = None
    parameters: ExpressionList | None = None
    alias: str = ""
    kind: Literal["LAMBDA_FUNCTION", "WINDOW_FUNCTION", ""] = ""
    is_operator: bool = False
    is_lambda_function: bool = False
    is_window_function: bool = False
    window_definition: "WindowDefinition | None" = None
    window_name: str = ""


class Identifier(Node, tag="Identifier"):
    name: str
    name_parts: list[str] = []
    alias: str = ""


class Constant(Node, tag="Literal"):
    value: msgspec.Raw
    alias: str = ""


class QueryParameter(Node, tag="QueryParameter"):
    name: str
    param_type: str
    alias: str = ""


class Subquery(Node, tag="Subquery"):
    children: list["SelectWithUnionQuery"]
    alias: str = ""


class OrderByElement(Node, tag="OrderByElement"):
    expression: "AnyNode"
    direction: int
    nulls_direction: int
    nulls_direction_was_explicitly_specified: bool = False


class WindowDefinition(Node, tag="WindowDefinition"):
    partition_by: ExpressionList | None = None
    order_by: ExpressionList | None = None
    parent_window_name: str = ""
    frame_is_default: bool = False
    frame_type: str = ""
    frame_begin_type: str = ""
    frame_begin_preceding: bool = False
    frame_begin_offset: "AnyNode | None" = None
    frame_end_type: str = ""
    frame_end_preceding: bool = False
    frame_end_offset: "AnyNode | None" = None


class WindowListElement(Node, tag="WindowListElement"):
    name: str
    definition: WindowDefinition


# The following classes are the nodes of relations.


class TableIdentifier(Node, tag="TableIdentifier"):
    name: str
    name_parts: list[str] = []
    alias: str = ""


class TableExpression(Node, tag="TableExpression"):
    database_and_table_name: TableIdentifier | None = None
    subquery: Subquery | None = None
    column_aliases: ExpressionList | None = None


class TableJoin(Node, tag="TableJoin"):
    kind: Literal["COMMA", "CROSS", "FULL", "INNER", "LEFT", "RIGHT"]
    on_expression: "AnyNode | None" = None
    using_expression_list: ExpressionList | None = None


class ArrayJoin(Node, tag="ArrayJoin"):
    kind: Literal["Inner", "Left"]
    expression_list: ExpressionList


class TablesElement(Node, tag="TablesInSelectQueryElement"):
    table_expression: TableExpression | None = None
    table_join: TableJoin | None = None
    array_join: ArrayJoin | None = None


class Tables(Node, tag="TablesInSelectQuery"):
    children: list[TablesElement]


# The following classes are the nodes of queries.


class SettingValue(msgspec.Struct, forbid_unknown_fields=True):
    field_type: str
    value: bool | int | float | str | None


class Setting(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    value: SettingValue


class SetQuery(Node, tag="SetQuery"):
    changes: list[Setting]


class WithElement(Node, tag="WithElement"):
    name: str
    subquery: Subquery


class SelectQuery(Node, tag="SelectQuery"):
    select: ExpressionList
    with_: ExpressionList | None = msgspec.field(default=None, name="with")
    recursive_with: bool = False
    distinct: bool = False
    tables: Tables | None = None
    where: "AnyNode | None" = None
    group_by: ExpressionList | None = None
    group_by_all: bool = False
    group_by_with_cube: bool = False
    group_by_with_grouping_sets: bool = False
    group_by_with_rollup: bool = False
    having: "AnyNode | None" = None
    window: ExpressionList | None = None
    qualify: "AnyNode | None" = None
    order_by: ExpressionList | None = None
    limit_length: "AnyNode | None" = None
    limit_offset: "AnyNode | None" = None
    settings: SetQuery | None = None


class SelectWithUnionQuery(Node, tag="SelectWithUnionQuery"):
    union_mode: str
    list_of_selects: ExpressionList
    list_of_modes: list[str] = []
    settings_ast: SetQuery | None = None
    is_outfile_append: bool = False
    is_outfile_truncate: bool = False
    is_into_outfile_with_stdout: bool = False


AnyNode = (
    Asterisk
    | ColumnsRegexpMatcher
    | ExpressionList
    | Function
    | Identifier
    | Constant
    | OrderByElement
    | QueryParameter
    | SelectQuery
    | SelectWithUnionQuery
    | Subquery
    | WindowListElement
    | WithElement
)


_TREE_DECODER: Final = msgspec.json.Decoder(SelectWithUnionQuery)
_TREE_COLUMN: Final = "tree"
# The settings of the query by which the server parses a statement. Its `max_query_size` is larger than the statement's
# own, because escaping the statement as a text literal makes it longer.
_PARSE_SETTINGS: Final = {"readonly": 2, "max_query_size": 1 << 26}

# The errors that the server may return instead of a parse tree. The first code means that the server is too old: it
# does not have the function `parseQueryToJSON`. The second code, and the third code with the message, mean that the
# text is not a single SELECT.
_UNKNOWN_FUNCTION_CODE: Final = 46
_NOT_SERIALIZABLE_ERROR_CODE: Final = 36
_SYNTAX_ERROR_CODE: Final = 62
_MULTIPLE_STATEMENTS_MESSAGE: Final = "Multi-statements are not allowed"

_REQUIRED_STATEMENT_SETTINGS: Final = [
    (name, int(value) if value.isdigit() else value.strip("'")) for name, value in STATEMENT_SETTINGS.items()
]

# Matches the names of IN and similar functions. If the second argument of such a function is a plain name, the name
# refers to a table.
_IN_FUNCTION_PATTERN: Final = re.compile(r"(?i)(global)?(null|not|notNull)?in(IgnoreSet)?")

# The maximum number of nodes that the check visits to resolve references. It applies only to a statement in which CTEs
# share names.
_MAX_CTE_NODE_VISITS: Final = 50_000


class StatementChecker:
    """Checks statements with the parser of the server that runs them afterwards; safe from several threads."""

    def __init__(self, session: Session, isolation: IsolationCheck) -> None:
        self._session = session
        self._isolation_check = isolation

    def check(self, text: str, streams: Collection[str]) -> None:
        """Raise IsolationCheckFailed unless the SQL is one SELECT that reads only these streams."""
        self._isolation_check.check_statement(text, streams, lambda: self._inspect_tree(text, streams))

    def _inspect_tree(self, text: str, streams: Collection[str]) -> None:
        query = decode_parse_tree(_TREE_DECODER, self._parse_to_json(text))
        inspection = _TreeInspector(frozenset(streams), _require_statement_settings(query))
        refuse_unlisted_functions(lambda: walk_tree(query, inspection.visit), self._has_function)
        if _has_duplicate_cte_names(query):
            _check_cte_references(query, frozenset(streams))

    def _has_function(self, name: str) -> bool:
        """Return whether the server has a function called `name` or like a prefix of it, such as `sum` for `sumIf`.

        Prefixes count because ClickHouse lists an aggregate only under its name without suffixes.
        """
        sql = "SELECT count() FROM system.functions WHERE startsWith(lower({name:String}), lower(name))"
        ((count,),) = self._session.fetch_rows(sql, {"name": name})
        return bool(count)

    def _parse_to_json(self, text: str) -> str:
        """Return the parse tree of the statement as JSON, from the server's parser.

        Bytes that are not UTF-8 are replaced. This does not affect the check, because they occur only in literals,
        which are not inspected.
        """
        sql = f"SELECT parseQueryToJSON({text_literal(text)}) AS {_TREE_COLUMN}"
        try:
            with self._session.select(BoundQuery(sql, {}, _PARSE_SETTINGS, bytes_columns=(_TREE_COLUMN,))) as selected:
                ((parsed,),) = [row for block in selected.row_blocks for row in block]
        except Fault as fault:
            raise _translate_parse_fault(fault) from fault
        return parsed.decode("utf-8", "replace") if isinstance(parsed, bytes) else ""


def _translate_parse_fault(fault: Fault) -> Exception:
    """Return the exception to raise if the server did not return a parse tree.

    The server's message is not passed on, because it quotes the statement.
    """
    problem = fault.__cause__
    code, message = getattr(problem, "code", None), str(problem)
    if code == _UNKNOWN_FUNCTION_CODE:
        return EngineFailed(
            "This version of ClickHouse cannot show how it parses a statement: 26.8 or later is needed."
        )
    if code == _NOT_SERIALIZABLE_ERROR_CODE or (code == _SYNTAX_ERROR_CODE and _MULTIPLE_STATEMENTS_MESSAGE in message):
        return IsolationBreachError("no SELECT, or more than one statement")
    if isinstance(fault, QueryFault):
        return QueryUnsupported("This query takes a form that is not supported.")
    return EngineFailed("ClickHouse could not read the statement.") if isinstance(fault, EngineFailed) else fault


def _check_cte_references(query: SelectWithUnionQuery, tables: frozenset[str]) -> None:
    try:
        _CteResolver(tables).check_references(query)
    except RecursionError as deep:
        raise QueryRefused("The query is nested too deeply.", hint="Split it into sub-queries in WITH.") from deep


def _require_statement_settings(query: SelectWithUnionQuery) -> SetQuery:
    """Return the statement's settings; raise IsolationBreachError unless they are `STATEMENT_SETTINGS`, in order."""
    select_settings = [item.settings for item in query.list_of_selects.children if isinstance(item, SelectQuery)]
    all_settings = [settings for settings in (query.settings_ast, *select_settings) if settings is not None]
    if (
        len(all_settings) != 1
        or [(item.name, item.value.value) for item in all_settings[0].changes] != _REQUIRED_STATEMENT_SETTINGS
    ):
        raise IsolationBreachError("other settings than every statement has")
    return all_settings[0]


class _TreeInspector:
    """Inspects one parse tree: the method `visit` raises IsolationBreachError if a node is forbidden."""

    def __init__(self, tables: frozenset[str], settings: SetQuery) -> None:
        self._permitted_tables = tables
        self._permitted_settings = settings

    def visit(self, node: msgspec.Struct, scope: VisibleCtes) -> ScopedNodes:
        match node:
            case SelectWithUnionQuery():
                return _visit_union(node, scope)
            case SelectQuery():
                return _visit_select(node, scope)
            case TableIdentifier():
                self._check_table(node, scope)
            case Function():
                _check_function(node)
            case QueryParameter() if "identifier" in node.param_type.lower():
                raise IsolationBreachError(f"a name in the parameter {node.name}")
            case SetQuery() if node is not self._permitted_settings:
                raise IsolationBreachError("settings of a sub-query")
        return scoped_children(node, scope)

    def _check_table(self, table: TableIdentifier, scope: VisibleCtes) -> None:
        if table.name_parts or table.name not in scope | self._permitted_tables:
            raise IsolationBreachError(f"the table {table.name_parts or table.name}")


def _visit_union(union: SelectWithUnionQuery, scope: VisibleCtes, recurring: VisibleCtes = frozenset()) -> ScopedNodes:
    """Yield the nodes directly below a union, each with the names of the CTEs that are visible in it.

    The later SELECTs of the union also see the CTEs of the first SELECT. If the union is the body of a recursive CTE,
    `recurring` is the CTE's name, which only the later SELECTs see.
    """
    first, *others = union.list_of_selects.children
    yield first, scope
    if isinstance(first, SelectQuery):
        scope = scope | _cte_names(first)
    yield from ((other, scope | recurring) for other in others)
    yield from scoped_children(union, scope, "list_of_selects")


def _visit_select(select: SelectQuery, scope: VisibleCtes) -> Iterator[tuple[msgspec.Struct, VisibleCtes]]:
    """Yield the nodes directly below a SELECT, each with the names of the CTEs that are visible in it.

    In this check, the body of a CTE sees only the CTEs before it, and a reference to a later CTE is refused. ClickHouse
    itself would resolve such a reference.
    """
    for element in select.with_.children if select.with_ else ():
        if not isinstance(element, WithElement):
            yield element, scope
            continue
        own_name = frozenset({element.name}) if select.recursive_with else frozenset[str]()
        for query in element.subquery.children:
            yield from _visit_union(query, scope, own_name)
        scope = scope | {element.name}
    yield from scoped_children(select, scope, "with_")


def _cte_names(select: SelectQuery) -> VisibleCtes:
    elements = select.with_.children if select.with_ else ()
    return frozenset(element.name for element in elements if isinstance(element, WithElement))


def _check_function(function: Function) -> None:
    if function.name not in ALLOWED_FUNCTIONS:
        raise UnlistedFunctionError(function.name)
    arguments = function.arguments.children if function.arguments else []
    if _IN_FUNCTION_PATTERN.fullmatch(function.name) and any(
        isinstance(argument, Identifier) for argument in arguments[1:]
    ):
        raise IsolationBreachError(f"a name as the set of {function.name}")


class _CteScope(msgspec.Struct, eq=False):
    """The CTEs of one WITH; `enclosing_scope` is the scope of the next outer query that has a WITH, or None."""

    ctes: dict[str, WithElement]
    enclosing_scope: "_CteScope | None"
    is_recursive: bool = False


class _CteResolver:
    """Resolves the table references of one statement; each must resolve to a CTE or a permitted table.

    ClickHouse resolves the names in the body of a CTE where the CTE is read, not where it is defined. Therefore, if two
    CTEs have the same name, a body may refer to another CTE than its author intended. If this leads back to a CTE that
    is already being resolved, the name refers to a table of the database. For example, this statement reads a table b:
    `WITH a AS (…), b AS (SELECT x FROM a) SELECT x FROM (WITH a AS (SELECT x FROM b) SELECT x FROM b)`.
    """

    def __init__(self, tables: frozenset[str]) -> None:
        self._permitted_tables = tables
        self._visited_node_count = 0
        self._checked_cte_keys: set[tuple[int, int, frozenset[int]]] = set()
        # The list keeps all CTE scopes alive. `_checked_cte_keys` identifies a scope by its address in memory, so no
        # later scope may get the same address.
        self._retained_cte_scopes: list[_CteScope] = []

    def check_references(
        self, node: Any, frame: _CteScope | None = None, resolving: frozenset[int] = frozenset()
    ) -> None:
        """Raise IsolationBreachError if a name in the tree below `node` can refer to a table that is not permitted."""
        self._visited_node_count += 1
        if self._visited_node_count > _MAX_CTE_NODE_VISITS:
            raise IsolationBreachError("CTEs of the same names that are read too often to be followed")
        kind = type(node)
        if kind is TableIdentifier:
            self._check_reference(node.name, frame, resolving)
        elif kind is SelectWithUnionQuery:
            self._check_union(node, frame, resolving)
        elif kind is SelectQuery:
            inner_frame = self._cte_scope_of(node, frame)
            for element in node.with_.children if node.with_ else ():
                if not isinstance(element, WithElement):
                    self.check_references(element, inner_frame, resolving)
            self._check_children(node, inner_frame, resolving, "with_")
        else:
            self._check_children(node, frame, resolving)

    def _check_children(self, node: Any, frame: _CteScope | None, resolving: frozenset[int], *excluded: str) -> None:
        for part, _ in scoped_children(node, frozenset(), *excluded):
            self.check_references(part, frame, resolving)

    def _check_union(self, union: SelectWithUnionQuery, frame: _CteScope | None, resolving: frozenset[int]) -> None:
        first, *others = union.list_of_selects.children
        self.check_references(first, frame, resolving)
        union_frame = self._cte_scope_of(first, frame) if isinstance(first, SelectQuery) else frame
        for other in others:
            self.check_references(other, union_frame, resolving)

    def _check_reference(self, name: str, frame: _CteScope | None, resolving: frozenset[int]) -> None:
        current_frame = frame
        while current_frame is not None:
            element = current_frame.ctes.get(name)
            if element is not None and id(element) not in resolving:
                self._check_cte(element, frame, resolving)
                return
            if element is not None and current_frame.is_recursive:
                return
            current_frame = current_frame.enclosing_scope
        if name not in self._permitted_tables:
            raise IsolationBreachError(f"the table {name}")

    def _check_cte(self, element: WithElement, frame: _CteScope | None, resolving: frozenset[int]) -> None:
        key = (id(element), id(frame), resolving)
        if key not in self._checked_cte_keys:
            self._checked_cte_keys.add(key)
            self.check_references(element.subquery, frame, resolving | {id(element)})

    def _cte_scope_of(self, select: SelectQuery, enclosing: _CteScope | None) -> _CteScope | None:
        elements = (
            [element for element in select.with_.children if isinstance(element, WithElement)] if select.with_ else []
        )
        if not elements:
            return enclosing
        self._retained_cte_scopes.append(
            _CteScope({element.name: element for element in elements}, enclosing, select.recursive_with)
        )
        return self._retained_cte_scopes[-1]


def _has_duplicate_cte_names(query: SelectWithUnionQuery) -> bool:
    """Return whether two CTEs of the statement have the same name.

    If no name occurs twice, each name refers to the same CTE at every place, and `_CteResolver` is not needed.
    """
    names: Counter[str] = Counter()
    pending: list[msgspec.Struct] = [query]
    while pending:
        node = pending.pop()
        if isinstance(node, WithElement):
            names[node.name] += 1
        pending += [part for part, _ in scoped_children(node, frozenset())]
    return any(count > 1 for count in names.values())


_ALLOWED_BUILTIN_FUNCTIONS: Final = """
    ATAN2 CAST IPv4NumToString IPv4StringToNumOrNull IPv6NumToString IPv6StringToNumOrNull JSONExtract
    JSONExtractArrayRaw JSONExtractBool JSONExtractFloat JSONExtractInt JSONExtractKeys JSONExtractKeysAndValuesRaw
    JSONExtractRaw JSONExtractString JSONExtractUInt JSONHas JSONLength JSONType MD5 PERCENT_RANK SHA1 SHA256 SHA512
    abs accurateCast accurateCastOrNull acos acosh addDays addMicroseconds addMonths addSeconds and array arrayConcat
    arrayCount arrayDistinct arrayElement arrayElementOrNull arrayEnumerate arrayEnumerateUniq arrayExists arrayFilter arrayFirstIndex
    arrayFlatten arrayFold arrayJoin arrayLastIndex arrayMap arrayReverse arrayReverseSort arraySlice arraySort
    arrayStringConcat arraySum arrayZip asin asinh assumeNotNull atan atanh base32Encode base64Decode base64Encode
    bitAnd bitCount bitNot bitOr bitShiftLeft bitShiftRight bitXor cbrt ceil char coalesce concat cos cosh
    countMatches countSubstrings cume_dist dateDiff dense_rank divide editDistance editDistanceUTF8 empty endsWith
    equals exists exp exp10 extract extractAll extractAllGroupsVertical extractGroups farmFingerprint64 first_value
    first_value_respect_nulls floor formatDateTime fromUnixTimestamp64Micro generateUUIDv4 greater greaterOrEquals
    greatest grouping has hex if ifNull ignore in indexOf intDiv isDistinctFrom isFinite isInfinite isNaN
    isNotDistinctFrom isNotNull isNull isValidJSON isValidUTF8 lag lambda last_value last_value_respect_nulls lead
    least left leftPad leftPadUTF8 leftUTF8 length lengthUTF8 less lessOrEquals like ln log10 lower lowerUTF8
    makeDate32 match minus modulo multiIf multiply negate normalizeUTF8NFC normalizeUTF8NFD normalizeUTF8NFKC
    normalizeUTF8NFKD not notEquals notIn now64 nth_value ntile nullIf or parseDateTime64BestEffort
    parseDateTime64BestEffortOrNull plus position positionUTF8 positiveModulo power printf randCanonical range rank
    reinterpretAsInt64 reinterpretAsUInt32 reinterpretAsUInt64 reinterpretAsUInt8 repeat replaceAll replaceOne
    replaceRegexpAll replaceRegexpOne reverse reverseUTF8 right rightPad rightPadUTF8 rightUTF8 round roundBankers
    row_number sign sin sinh splitByString sqrt startsWith substring substringUTF8 tan tanh throwIf timeZoneOffset
    toDate32 toDateTime64 toDayOfMonth toDayOfWeek toDayOfYear toDecimal128OrNull toDecimal256OrNull toDecimal64
    toDecimalString toFixedString toFloat64 toFloat64OrNull toFloat64OrZero toHour toISOWeek toISOYear toInt128
    toInt16 toInt256 toInt64 toInt64OrNull toInt64OrZero toJSONString toLastDayOfMonth toMinute toMonday toMonth
    toNullable toQuarter toSecond toStartOfISOYear toStartOfMonth toStartOfQuarter toStartOfYear toString toTimeZone
    toUInt16 toUInt32 toUInt64 toUInt8 toUnixTimestamp64Micro toValidUTF8 toYear transform translate translateUTF8
    trimBoth trimLeft trimRight trunc tryBase32Decode tryBase64Decode tuple tupleElement tupleNegate unhex upper
    upperUTF8
"""

# The aggregates that a statement may call, with the combinator suffixes that the lowering rules use.
_ALLOWED_AGGREGATES: Final = """
    any anyOrNull argMax argMaxOrNull argMin argMinOrNull avgOrNull avgOrNullDistinct corrStableOrNullIf count
    countIf covarPopStableOrNullIf covarSampStableOrNullIf groupArray groupArrayIf groupBitAndOrNull
    groupBitAndOrNullDistinct groupBitOrOrNull groupBitOrOrNullDistinct groupBitXorOrNull groupBitXorOrNullDistinct
    max maxIf maxOrNull maxOrNullIf min minIf minOrNull minOrNullIf quantileExactInclusiveOrNull quantileTDigestOrNull
    stddevPopStableOrNull stddevPopStableOrNullDistinct stddevSampStableOrNull stddevSampStableOrNullDistinct sumMap
    sumOrNull sumOrNullDistinct uniqExact uniqExactIf varPopStableOrNull varPopStableOrNullDistinct
    varSampStableOrNull varSampStableOrNullDistinct
"""

# The names of the redaction functions, which the statement itself defines.
_REDACTION_FUNCTIONS: Final = frozenset(
    f"{name}_{mode}"
    for name in (
        REDACT_TEXT_FUNCTION_PREFIX,
        REDACT_JSON_FUNCTION_PREFIX,
        REDACT_EVENT_FUNCTION_PREFIX,
        OPTIMISTIC_TEXT_FUNCTION_PREFIX,
    )
    for mode in RedactMode
)

ALLOWED_FUNCTIONS: Final = (
    frozenset(_ALLOWED_BUILTIN_FUNCTIONS.split()) | frozenset(_ALLOWED_AGGREGATES.split()) | _REDACTION_FUNCTIONS
)
