"""Compile LQL over an endpoint's sub-queries: parse it, translate it to BigQuery's syntax tree, and compile the tree.

`compile_lql` corresponds to `compile_sandbox_query` of SQL. The positions of errors refer to the LQL query's text. The
engine validates regular expressions before a query is run.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from cordwood.errors import BadQuerySyntax, BadQueryValue, UnknownNameInQuery
from cordwood.lql.columns import describe_sub_query
from cordwood.lql.parse import parse_lql
from cordwood.lql.query import (
    Aggregate,
    And,
    Dimension,
    EventFieldPath,
    FieldFilter,
    Filter,
    FilterOperator,
    LqlQuery,
    MessageFilter,
    Not,
    Or,
    QuotedText,
    SubQuerySource,
    TimeBucket,
    UnquotedText,
)
from cordwood.lql.translate import TranslatedQuery, translate_query
from cordwood.model.event import EventShape
from cordwood.sql.budget import compilation_scope
from cordwood.sql.compile import compile_sandbox_tree
from cordwood.sql.diagnostics import most_similar_name, span_at
from cordwood.sql.follow import refused_clause_error
from cordwood.sql.program import EndpointProgram
from cordwood.sql.record_shapes import RecordingShapeReader
from cordwood.sql.redaction.patterns import RedactionPolicy
from cordwood.sql.stages import ParsedQuery, Statement, Target

ShapesByStream = Mapping[str, EventShape]
_SQL_START_PATTERN: Final = re.compile(r"\s*(?:select|with)\s", re.IGNORECASE)


def compile_lql(
    program: EndpointProgram,
    text: str,
    target: Target,
    shapes: ShapesByStream,
    redaction: RedactionPolicy | None = None,
) -> Statement:
    """Compile an LQL query, which can read only the endpoint's sub-queries."""
    records = RecordingShapeReader(redaction.visible_shapes(shapes) if redaction else shapes)
    with compilation_scope():
        translation = _translate_lql_query(
            program, text, target, records, is_ordered=not program.page.is_of_followed_query
        )
        statement = compile_sandbox_tree(
            program, lambda: ParsedQuery(translation.tree, text), target, shapes, redaction
        )
    shape_lookups = {**records.shape_lookups, **statement.shape_lookups}
    return msgspec.structs.replace(statement, notices=translation.notices, shape_lookups=shape_lookups)


def explain_lql(program: EndpointProgram, text: str, target: Target, shapes: ShapesByStream) -> str:
    """Return the SQL in BigQuery's dialect that is equivalent to an LQL query.

    Paths that were never seen in events are assumed to have no arrays.
    """
    with compilation_scope():
        return _translate_lql_query(program, text, target, RecordingShapeReader(shapes)).tree.sql(
            "bigquery", pretty=True
        )


_REGEX_OPERATORS = frozenset({FilterOperator.REGEX, FilterOperator.INCLUDES_REGEX})
FindRegexError = Callable[[str], str | None]


def check_lql_patterns(text: str, find_regex_error: FindRegexError) -> None:
    """Raise BadQueryValue with the position of the first invalid regular expression in an LQL query.

    This check is necessary because the engine's own error has no position in the LQL text.
    """
    check_each_pattern(
        text,
        _regex_patterns(parse_lql(text).filter),
        find_regex_error,
        "To search for the text itself, leave the ~ out.",
    )


def check_each_pattern(
    text: str, patterns: Iterable[tuple[str, int]], find_regex_error: FindRegexError, hint: str
) -> None:
    """Raise BadQueryValue for the first invalid regular expression among pairs of a pattern and its text offset."""
    for pattern, offset in patterns:
        problem = find_regex_error(pattern)
        if problem is not None:
            message = f"This is not a valid regular expression (RE2): {problem}"
            raise BadQueryValue(message, hint=hint, span=span_at(text, offset))


def _regex_patterns(node: Filter) -> Iterator[tuple[str, int]]:
    match node:
        case Not(inner):
            yield from _regex_patterns(inner)
        case And(filters) | Or(filters):
            for part in filters:
                yield from _regex_patterns(part)
        case MessageFilter(pattern, True):
            yield pattern, node.text_offset
        case FieldFilter(_, operator, UnquotedText(pattern) | QuotedText(pattern)) if operator in _REGEX_OPERATORS:
            yield pattern, node.text_offset


def _translate_lql_query(
    program: EndpointProgram, text: str, target: Target, records: RecordingShapeReader, *, is_ordered: bool = True
) -> TranslatedQuery:
    """Translate an LQL query; `is_ordered` is False for a followed query. `records` collects all lookups in shapes."""
    if not text.strip():
        raise BadQuerySyntax("The query is empty.", hint="Write it as in f:edge_logs error.", span=span_at(text, 0))
    query = parse_lql(text)
    if not is_ordered:
        _check_can_be_followed(query, text)
    info = describe_sub_query(program, _find_sub_query(program, query, text), text, target, records)
    translation = translate_query(query, info, program.endpoint.time_zone, is_ordered=is_ordered)
    return msgspec.structs.replace(translation, notices=(*translation.notices, *_find_likely_mistakes(query, text)))


def _check_can_be_followed(query: LqlQuery, text: str) -> None:
    """Raise QueryRefused if the query has a chart, an order or a limit.

    Such a query cannot be followed, because a followed query is evaluated on each new event separately.
    """
    chart: list[Aggregate | TimeBucket | Dimension] = [*query.aggregates, *query.time_buckets, *query.dimensions]
    offsets = {
        "c: (a chart)": [node.text_offset for node in chart],
        "order:": [order.text_offset for order in query.sort_keys],
        "limit:": [query.limit.text_offset] if query.limit else [],
    }
    for part, offsets_of_part in offsets.items():
        if offsets_of_part:
            raise refused_clause_error(part, span_at(text, offsets_of_part[0]))


def _find_sub_query(program: EndpointProgram, query: LqlQuery, text: str) -> str:
    names = {name.lower(): name for name in program.sub_query_names}
    if query.source is not None:
        source_name = names.get(query.source.name.lower())
        if source_name is None:
            raise _unknown_source_error(program, query.source, text)
        return source_name
    if len(names) != 1:
        raise _no_source_error(program, text)
    return program.sub_query_names[0]


def _unknown_source_error(program: EndpointProgram, source: SubQuerySource, text: str) -> UnknownNameInQuery:
    closest_name = most_similar_name(source.name, program.sub_query_names)
    known_names = (
        f"There are: {', '.join(program.sub_query_names)}." if program.sub_query_names else "The endpoint has none."
    )
    return UnknownNameInQuery(
        f"There is no sub-query {source.name[:60]}.",
        hint=f"Did you mean f:{closest_name}?" if closest_name else known_names,
        span=span_at(text, source.text_offset),
    )


def _no_source_error(program: EndpointProgram, text: str) -> BadQuerySyntax:
    if _SQL_START_PATTERN.match(text):
        return BadQuerySyntax("This is SQL, and it was sent as lql=.", hint="Send it as sql=.", span=span_at(text, 0))
    if not program.sub_query_names:
        message, hint = "The endpoint has no sub-query.", "It accepts SQL only."
        return BadQuerySyntax(message, hint=hint, span=span_at(text, 0))
    names = {name.lower() for name in program.sub_query_names}
    first = next((word for word in text.split() if word.lower() in names), program.sub_query_names[0])
    message = f"The endpoint has several sub-queries: {', '.join(program.sub_query_names)}."
    return BadQuerySyntax(message, hint=f"Say which one to ask, as in f:{first}.", span=span_at(text, 0))


_MAX_MISTAKE_NOTICES: Final = 5
_MAX_SHOWN_WORD_CHARACTERS: Final = 60
_COMPARISON_WORD_PATTERN: Final = re.compile(r"((?:m\.)?[A-Za-z_][\w.]*)(>=|<=|!=|==|=|>|<)([^=<>\s]+)")
_FUNCTION_CALL_PATTERN: Final = re.compile(
    r"(group_by|count|countd|avg|sum|min|max|p\d{1,2}(?:\.\d+)?)\(.*\)", re.IGNORECASE
)
_HINT_BY_KEYWORD: Final = {
    "or": 'write OR for "either"',
    "and": "leave it out: clauses side by side must all be true",
    "AND": "leave it out: clauses side by side must all be true",
    "not": 'write a minus before a clause for "not"',
    "NOT": 'write a minus before a clause for "not"',
    "desc": "write order:timestamp@desc for an order",
    "DESC": "write order:timestamp@desc for an order",
    "asc": "write order:timestamp@asc for an order",
    "ASC": "write order:timestamp@asc for an order",
    "limit": "write limit:5 for a number of rows",
    "LIMIT": "write limit:5 for a number of rows",
    "order": "write order:timestamp@desc for an order",
    "select": "write s:id for a column; SQL is sent as sql=",
    "SELECT": "write s:id for a column; SQL is sent as sql=",
}
_TYPOGRAPHIC_QUOTE_PATTERN: Final = re.compile("[\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb]")
_LQL_OPERATOR_BY_COMPARISON: Final = {"=": "", "==": "", "!=": ""}
_LQL_OPERATOR_BY_FOREIGN_OPERATOR: Final = {
    "=": "",
    "==": "",
    "!=": "",
    "!": "",
    "=>": ">=",
    "=<": "<=",
    ">": "",
    "<": "",
    ":": "",
}
_OPERATOR_IN_VALUE_PATTERN: Final = re.compile(r"(==|!=|=>|=<|=|>|<|:|!)(.+)", re.DOTALL)
_IN_LIST_PATTERN: Final = re.compile(r"in\((.+)\)", re.IGNORECASE | re.DOTALL)
# Phrases of other query languages, each with the LQL clause that the author probably meant.
_PHRASE_HINTS: Final = (
    (re.compile(r"last\s+(\d+[a-z]+)\b", re.IGNORECASE), "write t:last@{0} for a time"),
    (re.compile(r"in\s*\(", re.IGNORECASE), "write m.status:[200,404] for one of several values"),
    (re.compile(r"(?:group\s+)?by\s+((?:m\.)?[\w.]*\.[\w.]+)", re.IGNORECASE), "write c:group_by({0}) for a chart"),
)


def _find_likely_mistakes(query: LqlQuery, text: str) -> tuple[str, ...]:
    """Return notices about words and values that the author probably meant as clauses or operators."""
    notices: dict[str, None] = {}
    for part in _leaf_filters(query.filter):
        notice = _message_notice(part, text) if isinstance(part, MessageFilter) else _field_notice(part)
        if notice:
            notices[notice] = None
    return tuple(notices)[:_MAX_MISTAKE_NOTICES]


def _leaf_filters(node: Filter) -> Iterator[MessageFilter | FieldFilter]:
    match node:
        case Not(inner):
            yield from _leaf_filters(inner)
        case And(filters) | Or(filters):
            for part in filters:
                yield from _leaf_filters(part)
        case MessageFilter() | FieldFilter():
            yield node


def _message_notice(part: MessageFilter, text: str) -> str | None:
    if part.is_regex or text[part.text_offset : part.text_offset + 1] == '"':
        return None
    word = part.text
    leading = ((pattern.match(text, part.text_offset), template) for pattern, template in _PHRASE_HINTS)
    clause = next((template.format(*match.groups()) for match, template in leading if match), None)
    hint = clause or _word_hint(word)
    return (
        f'the word {word[:_MAX_SHOWN_WORD_CHARACTERS]} is searched in the message: {hint}, or "{word[:_MAX_SHOWN_WORD_CHARACTERS]}" to search it'
        if hint
        else None
    )


def _word_hint(word: str) -> str | None:
    comparison = _COMPARISON_WORD_PATTERN.fullmatch(word)
    if comparison is not None:
        path, operator, value = comparison.groups()
        dotted = path if "." in path else f"m.{path}"
        sign, lql_operator = ("-" if operator == "!=" else ""), _LQL_OPERATOR_BY_COMPARISON.get(operator, operator)
        return f"write {sign}{dotted}:{lql_operator}{value[:_MAX_SHOWN_WORD_CHARACTERS]} for a field"
    call = _FUNCTION_CALL_PATTERN.fullmatch(word)
    if call is not None:
        return f"write c:{word[:_MAX_SHOWN_WORD_CHARACTERS]} for a chart"
    if _TYPOGRAPHIC_QUOTE_PATTERN.search(word):
        return 'write " around a phrase'
    if len(word) > 1 and word[0] == "!" and word[1].isalnum():
        return f"write -{word[1:][:_MAX_SHOWN_WORD_CHARACTERS]} for what does not contain it"
    if len(word) > 2 and word.endswith("*"):
        return f"write {word[:-1][:_MAX_SHOWN_WORD_CHARACTERS]}, for a part of the message is enough"
    return _HINT_BY_KEYWORD.get(word)


def _field_notice(part: FieldFilter) -> str | None:
    """Return a notice if a field is compared literally with a value that looks like an operator or a wildcard."""
    if not isinstance(part.value, UnquotedText):
        return None
    value, path = part.value.text, _format_path(part.path)
    hint = _operator_hint(path, value, part.operator)
    if hint is None and part.operator is FilterOperator.EQUAL:
        hint = _value_hint(path, value)
    return f"{path}: is compared with the text {value[:_MAX_SHOWN_WORD_CHARACTERS]}: write {hint}" if hint else None


def _operator_hint(path: str, value: str, field_operator: FilterOperator) -> str | None:
    match = _OPERATOR_IN_VALUE_PATTERN.fullmatch(value)
    if match is None:
        return None
    negation = "-" if match[1] in ("!=", "!") else ""
    operator = _LQL_OPERATOR_BY_FOREIGN_OPERATOR[match[1]] or str(field_operator)
    return f"{negation}{path}:{operator}{match[2][:_MAX_SHOWN_WORD_CHARACTERS]}"


def _value_hint(path: str, value: str) -> str | None:
    value_list = _IN_LIST_PATTERN.fullmatch(value)
    if value_list is not None:
        return f"{path}:[{value_list[1][:_MAX_SHOWN_WORD_CHARACTERS]}] for one of these"
    if len(value) > 1 and value.endswith("*"):
        return f"{path}:~^{re.escape(value[:-1])[:_MAX_SHOWN_WORD_CHARACTERS]} for what begins so"
    if "|" in value:
        return " OR ".join(f"{path}:{choice}" for choice in value.split("|"))[: _MAX_SHOWN_WORD_CHARACTERS * 2]
    return f"{path}:[{value[:_MAX_SHOWN_WORD_CHARACTERS]}] for one of these" if "," in value else None


def _format_path(path: EventFieldPath) -> str:
    first, *rest = path.steps
    return ".".join(["m" if first == "metadata" and rest else first, *rest])
