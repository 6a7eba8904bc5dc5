"""Check with ClickHouse's own parser that a statement reads only its streams' tables, by permitted syntax and functions.

The server gets the text as a value and returns its parse tree. Apart from the tree, the check uses only the names of
the streams and the fixed settings. Where CTEs share a name, each reference is resolved as ClickHouse resolves it.

The structs at the top are the nodes of the parse tree that `parseQueryToJSON` returns, with the fields that a compiled
statement may have. A statement with any other node or field cannot be decoded and is refused.

The lists at the end are the functions that a statement may call; a statement with any other is refused. No listed
function reads a file, a setting, another server, or a table or dictionary by its name, or runs a query given as text.
If a lowering rule emits a new function, add the function to the list, in alphabetical order.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, Final, Literal

import msgspec

from cordwood.engines.clickhouse.session import Query, Session
from cordwood.engines.clickhouse.tables import literal
from cordwood.engines.clickhouse.target import SETTINGS
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
from cordwood.errors import EngineFailed, Fault, QueryFault, QueryRefused, QueryUnsupported
from cordwood.model.redaction import RedactMode
from cordwood.sql.redaction.masking import OPTIMISTIC_TEXT, REDACT_EVENT, REDACT_JSON, REDACT_TEXT


class Node(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", gc=False):
    """A node of ClickHouse's parse tree."""


class ExpressionList(Node, tag="ExpressionList"):
    children: list["AnyNode"] = []


# Expressions


class Asterisk(Node, tag="Asterisk"):
    """All columns of the relations that the SELECT reads."""


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


# Relations


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


# Queries


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


_DECODER: Final = msgspec.json.Decoder(SelectWithUnionQuery)
_TREE_COLUMN: Final = "tree"
# A larger limit than a statement has, because the text is escaped as a literal.
_SETTINGS: Final = {"readonly": 2, "max_query_size": 1 << 26}

# The error codes and the message with which the server refuses to return the syntax tree of a statement.
_UNKNOWN_FUNCTION: Final = 46
_NOT_SERIALIZED: Final = 36
_SYNTAX_ERROR: Final = 62
_MULTIPLE_STATEMENTS: Final = "Multi-statements are not allowed"

_EXPECTED_SETTINGS: Final = [
    (name, int(value) if value.isdigit() else value.strip("'")) for name, value in SETTINGS.items()
]

# IN and similar functions: if their second argument is a plain name, it refers to a table.
_MEMBERSHIP: Final = re.compile(r"(?i)(global)?(null|not|notNull)?in(IgnoreSet)?")

# The most references that are followed where CTEs share names.
_MAX_CTE_STEPS: Final = 50_000


class StatementCheck:
    """Checks statements on the server that runs them afterwards; safe from several threads."""

    def __init__(self, session: Session, isolation: IsolationCheck) -> None:
        self._session = session
        self._isolation = isolation

    def check(self, text: str, streams: Collection[str]) -> None:
        """Raise IsolationBroken unless the SQL is one SELECT that reads only these streams."""
        self._isolation.check(text, streams, lambda: self._inspect(text, streams))

    def _inspect(self, text: str, streams: Collection[str]) -> None:
        query = decode_tree(_DECODER, self._parse_to_json(text))
        inspection = _Inspection(frozenset(streams), _settings_of(query))
        check_functions(lambda: walk(query, inspection.visit), self._has_function)
        if _has_duplicate_names(query):
            _follow_ctes(query, frozenset(streams))

    def _has_function(self, name: str) -> bool:
        """Return whether the server has the function, or the aggregate without its suffix: `sum` for `sumIf`."""
        sql = "SELECT count() FROM system.functions WHERE startsWith(lower({name:String}), lower(name))"
        ((count,),) = self._session.rows(sql, {"name": name})
        return bool(count)

    def _parse_to_json(self, text: str) -> str:
        """Return the tree as JSON. Bytes that are not UTF-8 occur only in literals, which are not inspected."""
        sql = f"SELECT parseQueryToJSON({literal(text)}) AS {_TREE_COLUMN}"
        try:
            with self._session.select(Query(sql, {}, _SETTINGS, bytes_columns=(_TREE_COLUMN,))) as selected:
                ((parsed,),) = [row for block in selected.blocks for row in block]
        except Fault as fault:
            raise _check_fault(fault) from fault
        return parsed.decode("utf-8", "replace") if isinstance(parsed, bytes) else ""


def _check_fault(fault: Fault) -> Exception:
    """Translate the failure to return a tree; the server's message is not passed on, because it quotes the text."""
    problem = fault.__cause__
    code, message = getattr(problem, "code", None), str(problem)
    if code == _UNKNOWN_FUNCTION:
        return EngineFailed(
            "This version of ClickHouse cannot show how it parses a statement: 26.8 or later is needed."
        )
    if code == _NOT_SERIALIZED or (code == _SYNTAX_ERROR and _MULTIPLE_STATEMENTS in message):
        return BreachError("no SELECT, or more than one statement")
    if isinstance(fault, QueryFault):
        return QueryUnsupported("This query takes a form that is not supported.")
    return EngineFailed("ClickHouse could not read the statement.") if isinstance(fault, EngineFailed) else fault


def _follow_ctes(query: SelectWithUnionQuery, tables: frozenset[str]) -> None:
    try:
        _CteResolution(tables).follow(query)
    except RecursionError as deep:
        raise QueryRefused("The query is nested too deeply.", hint="Split it into sub-queries in WITH.") from deep


def _settings_of(query: SelectWithUnionQuery) -> SetQuery:
    """Return the settings of the statement; raise BreachError unless they are exactly `SETTINGS`, in that order."""
    select_settings = [item.settings for item in query.list_of_selects.children if isinstance(item, SelectQuery)]
    all_settings = [settings for settings in (query.settings_ast, *select_settings) if settings is not None]
    if (
        len(all_settings) != 1
        or [(item.name, item.value.value) for item in all_settings[0].changes] != _EXPECTED_SETTINGS
    ):
        raise BreachError("other settings than every statement has")
    return all_settings[0]


class _Inspection:
    """The inspection of one tree; `visit` raises BreachError for a forbidden node."""

    def __init__(self, tables: frozenset[str], settings: SetQuery) -> None:
        self._tables = tables
        self._settings = settings

    def visit(self, node: msgspec.Struct, scope: Scope) -> Children:
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
                raise BreachError(f"a name in the parameter {node.name}")
            case SetQuery() if node is not self._settings:
                raise BreachError("settings of a sub-query")
        return children(node, scope)

    def _check_table(self, table: TableIdentifier, scope: Scope) -> None:
        if table.name_parts or table.name not in scope | self._tables:
            raise BreachError(f"the table {table.name_parts or table.name}")


def _visit_union(union: SelectWithUnionQuery, scope: Scope, recurring: Scope = frozenset()) -> Children:
    """Visit a union, whose later SELECTs see the CTEs of the first one.

    Only the later SELECTs see `recurring`: the name of the CTE whose body is the union, if the CTE is recursive.
    """
    first, *others = union.list_of_selects.children
    yield first, scope
    if isinstance(first, SelectQuery):
        scope = scope | _ctes(first)
    yield from ((other, scope | recurring) for other in others)
    yield from children(union, scope, "list_of_selects")


def _visit_select(select: SelectQuery, scope: Scope) -> Iterator[tuple[msgspec.Struct, Scope]]:
    """Visit a SELECT. A CTE sees the ones before it; ClickHouse would also let it see later ones."""
    for element in select.with_.children if select.with_ else ():
        if not isinstance(element, WithElement):
            yield element, scope
            continue
        own_name = frozenset({element.name}) if select.recursive_with else frozenset[str]()
        for query in element.subquery.children:
            yield from _visit_union(query, scope, own_name)
        scope = scope | {element.name}
    yield from children(select, scope, "with_")


def _ctes(select: SelectQuery) -> Scope:
    elements = select.with_.children if select.with_ else ()
    return frozenset(element.name for element in elements if isinstance(element, WithElement))


def _check_function(function: Function) -> None:
    if function.name not in CALLABLE_FUNCTIONS:
        raise UnlistedFunctionError(function.name)
    arguments = function.arguments.children if function.arguments else []
    if _MEMBERSHIP.fullmatch(function.name) and any(isinstance(argument, Identifier) for argument in arguments[1:]):
        raise BreachError(f"a name as the set of {function.name}")


class _Frame(msgspec.Struct, eq=False):
    """The CTEs of one WITH, and the enclosing frame."""

    ctes: dict[str, WithElement]
    enclosing: "_Frame | None"
    recursive: bool = False


class _CteResolution:
    """Resolves the table references of one statement; each must be resolved to a CTE or a permitted table.

    ClickHouse resolves the body of a CTE where it is read, not where it is defined. So if two CTEs have the same name, a
    body may refer to another CTE than its author intended, and if that leads back to a CTE that is being resolved, the
    name refers to a table of the database: `WITH a AS (…), b AS (SELECT x FROM a) SELECT x FROM (WITH a AS (SELECT x
    FROM b) SELECT x FROM b)` reads a table b.
    """

    def __init__(self, tables: frozenset[str]) -> None:
        self._tables = tables
        self._steps = 0
        self._visited: set[tuple[int, int, frozenset[int]]] = set()
        # Keeps frames alive, because `_visited` identifies them by their addresses.
        self._frames: list[_Frame] = []

    def follow(self, node: Any, frame: _Frame | None = None, resolving: frozenset[int] = frozenset()) -> None:
        """Raise BreachError if a reference below the node can resolve to another table."""
        self._steps += 1
        if self._steps > _MAX_CTE_STEPS:
            raise BreachError("CTEs of the same names that are read too often to be followed")
        kind = type(node)
        if kind is TableIdentifier:
            self._follow_reference(node.name, frame, resolving)
        elif kind is SelectWithUnionQuery:
            self._follow_union(node, frame, resolving)
        elif kind is SelectQuery:
            inner_frame = self._frame_of(node, frame)
            for element in node.with_.children if node.with_ else ():
                if not isinstance(element, WithElement):
                    self.follow(element, inner_frame, resolving)
            self._follow_children(node, inner_frame, resolving, "with_")
        else:
            self._follow_children(node, frame, resolving)

    def _follow_children(self, node: Any, frame: _Frame | None, resolving: frozenset[int], *excluded: str) -> None:
        for part, _ in children(node, frozenset(), *excluded):
            self.follow(part, frame, resolving)

    def _follow_union(self, union: SelectWithUnionQuery, frame: _Frame | None, resolving: frozenset[int]) -> None:
        first, *others = union.list_of_selects.children
        self.follow(first, frame, resolving)
        union_frame = self._frame_of(first, frame) if isinstance(first, SelectQuery) else frame
        for other in others:
            self.follow(other, union_frame, resolving)

    def _follow_reference(self, name: str, frame: _Frame | None, resolving: frozenset[int]) -> None:
        current_frame = frame
        while current_frame is not None:
            element = current_frame.ctes.get(name)
            if element is not None and id(element) not in resolving:
                self._follow_cte(element, frame, resolving)
                return
            if element is not None and current_frame.recursive:
                return
            current_frame = current_frame.enclosing
        if name not in self._tables:
            raise BreachError(f"the table {name}")

    def _follow_cte(self, element: WithElement, frame: _Frame | None, resolving: frozenset[int]) -> None:
        key = (id(element), id(frame), resolving)
        if key not in self._visited:
            self._visited.add(key)
            self.follow(element.subquery, frame, resolving | {id(element)})

    def _frame_of(self, select: SelectQuery, enclosing: _Frame | None) -> _Frame | None:
        elements = (
            [element for element in select.with_.children if isinstance(element, WithElement)] if select.with_ else []
        )
        if not elements:
            return enclosing
        self._frames.append(_Frame({element.name: element for element in elements}, enclosing, select.recursive_with))
        return self._frames[-1]


def _has_duplicate_names(query: SelectWithUnionQuery) -> bool:
    """Return whether two CTEs share a name; otherwise each name refers to one CTE wherever it is resolved."""
    names: Counter[str] = Counter()
    pending: list[msgspec.Struct] = [query]
    while pending:
        node = pending.pop()
        if isinstance(node, WithElement):
            names[node.name] += 1
        pending += [part for part, _ in children(node, frozenset())]
    return any(count > 1 for count in names.values())


_LISTED_FUNCTIONS: Final = """
    ATAN2 CAST IPv4NumToString IPv4StringToNumOrNull IPv6NumToString IPv6StringToNumOrNull JSONExtract
    JSONExtractArrayRaw JSONExtractBool JSONExtractFloat JSONExtractInt JSONExtractKeys JSONExtractKeysAndValuesRaw
    JSONExtractRaw JSONExtractString JSONExtractUInt JSONHas JSONLength JSONType MD5 PERCENT_RANK SHA1 SHA256 SHA512
    abs accurateCast accurateCastOrNull acos acosh addDays addMicroseconds addMonths addSeconds and array arrayConcat
    arrayCount arrayDistinct arrayElement arrayElementOrNull arrayEnumerate arrayExists arrayFilter arrayFirstIndex
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

# Aggregates, with the combinator suffixes that the rules use.
_LISTED_AGGREGATES: Final = """
    any anyOrNull argMax argMaxOrNull argMin argMinOrNull avgOrNull avgOrNullDistinct corrStableOrNullIf count
    countIf covarPopStableOrNullIf covarSampStableOrNullIf groupArray groupArrayIf groupBitAndOrNull
    groupBitAndOrNullDistinct groupBitOrOrNull groupBitOrOrNullDistinct groupBitXorOrNull groupBitXorOrNullDistinct
    max maxIf maxOrNull maxOrNullIf min minIf minOrNull minOrNullIf quantileExactInclusiveOrNull quantileTDigestOrNull
    stddevPopStableOrNull stddevPopStableOrNullDistinct stddevSampStableOrNull stddevSampStableOrNullDistinct sumMap
    sumOrNull sumOrNullDistinct uniqExact uniqExactIf varPopStableOrNull varPopStableOrNullDistinct
    varSampStableOrNull varSampStableOrNullDistinct
"""

# The functions of redaction, which the statement itself defines.
_REDACTION_FUNCTIONS: Final = frozenset(
    f"{name}_{mode}" for name in (REDACT_TEXT, REDACT_JSON, REDACT_EVENT, OPTIMISTIC_TEXT) for mode in RedactMode
)

CALLABLE_FUNCTIONS: Final = (
    frozenset(_LISTED_FUNCTIONS.split()) | frozenset(_LISTED_AGGREGATES.split()) | _REDACTION_FUNCTIONS
)
