"""Compile LQL over an endpoint's sub-queries: parse it, translate it to BigQuery's syntax tree, and compile that.

`compile_lql` corresponds to `sql.compile.compile_sandbox`; errors have positions in the text of the LQL query. The
engine validates regular expressions before a query is run.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from cordwood.errors import QuerySyntax, QueryValue, UnknownName
from cordwood.lql.columns import describe_sub_query
from cordwood.lql.parse import parse
from cordwood.lql.query import (
    Aggregate,
    And,
    Bucket,
    Dimension,
    Field,
    Filter,
    Message,
    Not,
    Operator,
    Or,
    Path,
    Query,
    Quoted,
    Source,
    Unquoted,
)
from cordwood.lql.translate import Translation, translate_query
from cordwood.model.event import Shape
from cordwood.sql.budget import compiling
from cordwood.sql.compile import compile_sandbox_tree
from cordwood.sql.diagnostics import nearest, span_at
from cordwood.sql.follow import refused_clause_error
from cordwood.sql.program import Program
from cordwood.sql.record_shapes import RecordShapes
from cordwood.sql.redaction.patterns import Redaction
from cordwood.sql.stages import Parsed, Statement, Target

ShapesByStream = Mapping[str, Shape]
_SQL_START: Final = re.compile(r"\s*(?:select|with)\s", re.IGNORECASE)


def compile_lql(
    program: Program, text: str, target: Target, shapes: ShapesByStream, redaction: Redaction | None = None
) -> Statement:
    """Compile an LQL query, which can only read the endpoint's sub-queries."""
    records = RecordShapes(redaction.visible_shapes(shapes) if redaction else shapes)
    with compiling():
        translation = _translate(program, text, target, records, is_ordered=not program.page.follows)
        statement = compile_sandbox_tree(program, lambda: Parsed(translation.tree, text), target, shapes, redaction)
    shape_lookups = {**records.shape_lookups, **statement.shape_lookups}
    return msgspec.structs.replace(statement, notices=translation.notices, shape_lookups=shape_lookups)


def explain_lql(program: Program, text: str, target: Target, shapes: ShapesByStream) -> str:
    """Return the equivalent SQL in BigQuery's dialect; paths that were never seen are assumed to have no arrays."""
    with compiling():
        return _translate(program, text, target, RecordShapes(shapes)).tree.sql("bigquery", pretty=True)


_REGEX_OPERATORS = frozenset({Operator.REGEX, Operator.INCLUDES_REGEX})
RegexCheck = Callable[[str], str | None]


def check_patterns(text: str, is_regex: RegexCheck) -> None:
    """Raise QueryValue with the position of the first invalid regular expression, which the engine would not report."""
    check_each_pattern(text, _patterns(parse(text).filter), is_regex, "To search for the text itself, leave the ~ out.")


def check_each_pattern(text: str, patterns: Iterable[tuple[str, int]], is_regex: RegexCheck, hint: str) -> None:
    """Raise QueryValue at the first invalid pattern; each pattern comes with its offset in the text."""
    for pattern, offset in patterns:
        problem = is_regex(pattern)
        if problem is not None:
            message = f"This is not a valid regular expression (RE2): {problem}"
            raise QueryValue(message, hint=hint, span=span_at(text, offset))


def _patterns(node: Filter) -> Iterator[tuple[str, int]]:
    match node:
        case Not(inner):
            yield from _patterns(inner)
        case And(filters) | Or(filters):
            for part in filters:
                yield from _patterns(part)
        case Message(pattern, True):
            yield pattern, node.offset
        case Field(_, operator, Unquoted(pattern) | Quoted(pattern)) if operator in _REGEX_OPERATORS:
            yield pattern, node.offset


def _translate(
    program: Program, text: str, target: Target, records: RecordShapes, *, is_ordered: bool = True
) -> Translation:
    """Return the translated query; `records` records lookups in the shapes. A followed query is not `is_ordered`."""
    if not text.strip():
        raise QuerySyntax("The query is empty.", hint="Write it as in f:edge_logs error.", span=span_at(text, 0))
    query = parse(text)
    if not is_ordered:
        _check_followed(query, text)
    info = describe_sub_query(program, _find_sub_query(program, query, text), text, target, records)
    translation = translate_query(query, info, program.endpoint.zone, is_ordered=is_ordered)
    return msgspec.structs.replace(translation, notices=(*translation.notices, *_find_likely_mistakes(query, text)))


def _check_followed(query: Query, text: str) -> None:
    """Raise QueryRefused for a chart, an order or a limit: a followed query is evaluated on single events."""
    chart: list[Aggregate | Bucket | Dimension] = [*query.aggregates, *query.buckets, *query.dimensions]
    offsets = {
        "c: (a chart)": [node.offset for node in chart],
        "order:": [order.offset for order in query.orders],
        "limit:": [query.limit.offset] if query.limit else [],
    }
    for part, offsets_of_part in offsets.items():
        if offsets_of_part:
            raise refused_clause_error(part, span_at(text, offsets_of_part[0]))


def _find_sub_query(program: Program, query: Query, text: str) -> str:
    names = {name.lower(): name for name in program.sub_query_names}
    if query.source is not None:
        source_name = names.get(query.source.name.lower())
        if source_name is None:
            raise _unknown_source_error(program, query.source, text)
        return source_name
    if len(names) != 1:
        raise _no_source_error(program, text)
    return program.sub_query_names[0]


def _unknown_source_error(program: Program, source: Source, text: str) -> UnknownName:
    closest_name = nearest(source.name, program.sub_query_names)
    known_names = (
        f"There are: {', '.join(program.sub_query_names)}." if program.sub_query_names else "The endpoint has none."
    )
    return UnknownName(
        f"There is no sub-query {source.name[:60]}.",
        hint=f"Did you mean f:{closest_name}?" if closest_name else known_names,
        span=span_at(text, source.offset),
    )


def _no_source_error(program: Program, text: str) -> QuerySyntax:
    if _SQL_START.match(text):
        return QuerySyntax("This is SQL, and it was sent as lql=.", hint="Send it as sql=.", span=span_at(text, 0))
    if not program.sub_query_names:
        message, hint = "The endpoint has no sub-query.", "It accepts SQL only."
        return QuerySyntax(message, hint=hint, span=span_at(text, 0))
    names = {name.lower() for name in program.sub_query_names}
    first = next((word for word in text.split() if word.lower() in names), program.sub_query_names[0])
    message = f"The endpoint has several sub-queries: {', '.join(program.sub_query_names)}."
    return QuerySyntax(message, hint=f"Say which one to ask, as in f:{first}.", span=span_at(text, 0))


_MAX_NOTICES: Final = 5
_MAX_SHOWN: Final = 60
_COMPARISON_WORD: Final = re.compile(r"((?:m\.)?[A-Za-z_][\w.]*)(>=|<=|!=|==|=|>|<)([^=<>\s]+)")
_FUNCTION_CALL: Final = re.compile(r"(group_by|count|countd|avg|sum|min|max|p\d{1,2}(?:\.\d+)?)\(.*\)", re.IGNORECASE)
_KEYWORD_HINTS: Final = {
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
_TYPOGRAPHIC_QUOTE: Final = re.compile("[\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb]")
_COMPARISON_OPERATORS: Final = {"=": "", "==": "", "!=": ""}
_OPERATOR_HINTS: Final = {"=": "", "==": "", "!=": "", "!": "", "=>": ">=", "=<": "<=", ">": "", "<": "", ":": ""}
_OPERATOR_IN_VALUE: Final = re.compile(r"(==|!=|=>|=<|=|>|<|:|!)(.+)", re.DOTALL)
_IN_LIST: Final = re.compile(r"in\((.+)\)", re.IGNORECASE | re.DOTALL)
# Phrases of other query languages, each with the LQL clause that the author probably meant.
_PHRASE_HINTS: Final = (
    (re.compile(r"last\s+(\d+[a-z]+)\b", re.IGNORECASE), "write t:last@{0} for a time"),
    (re.compile(r"in\s*\(", re.IGNORECASE), "write m.status:[200,404] for one of several values"),
    (re.compile(r"(?:group\s+)?by\s+((?:m\.)?[\w.]*\.[\w.]+)", re.IGNORECASE), "write c:group_by({0}) for a chart"),
)


def _find_likely_mistakes(query: Query, text: str) -> tuple[str, ...]:
    """Return notices for the answer about words that the author probably meant as clauses or operators."""
    notices: dict[str, None] = {}
    for part in _leaves(query.filter):
        notice = _check_message(part, text) if isinstance(part, Message) else _check_field(part)
        if notice:
            notices[notice] = None
    return tuple(notices)[:_MAX_NOTICES]


def _leaves(node: Filter) -> Iterator[Message | Field]:
    match node:
        case Not(inner):
            yield from _leaves(inner)
        case And(filters) | Or(filters):
            for part in filters:
                yield from _leaves(part)
        case Message() | Field():
            yield node


def _check_message(part: Message, text: str) -> str | None:
    if part.is_regex or text[part.offset : part.offset + 1] == '"':
        return None
    word = part.text
    leading = ((pattern.match(text, part.offset), template) for pattern, template in _PHRASE_HINTS)
    clause = next((template.format(*match.groups()) for match, template in leading if match), None)
    hint = clause or _word_hint(word)
    return (
        f'the word {word[:_MAX_SHOWN]} is searched in the message: {hint}, or "{word[:_MAX_SHOWN]}" to search it'
        if hint
        else None
    )


def _word_hint(word: str) -> str | None:
    comparison = _COMPARISON_WORD.fullmatch(word)
    if comparison is not None:
        path, operator, value = comparison.groups()
        dotted = path if "." in path else f"m.{path}"
        sign, lql_operator = ("-" if operator == "!=" else ""), _COMPARISON_OPERATORS.get(operator, operator)
        return f"write {sign}{dotted}:{lql_operator}{value[:_MAX_SHOWN]} for a field"
    call = _FUNCTION_CALL.fullmatch(word)
    if call is not None:
        return f"write c:{word[:_MAX_SHOWN]} for a chart"
    if _TYPOGRAPHIC_QUOTE.search(word):
        return 'write " around a phrase'
    if len(word) > 1 and word[0] == "!" and word[1].isalnum():
        return f"write -{word[1:][:_MAX_SHOWN]} for what does not contain it"
    if len(word) > 2 and word.endswith("*"):
        return f"write {word[:-1][:_MAX_SHOWN]}, for a part of the message is enough"
    return _KEYWORD_HINTS.get(word)


def _check_field(part: Field) -> str | None:
    """Return the notice for a value that resembles an operator or a wildcard, but is compared literally."""
    if not isinstance(part.value, Unquoted):
        return None
    value, path = part.value.text, _format_path(part.path)
    hint = _operator_hint(path, value, part.operator)
    if hint is None and part.operator is Operator.EQUAL:
        hint = _value_hint(path, value)
    return f"{path}: is compared with the text {value[:_MAX_SHOWN]}: write {hint}" if hint else None


def _operator_hint(path: str, value: str, field_operator: Operator) -> str | None:
    match = _OPERATOR_IN_VALUE.fullmatch(value)
    if match is None:
        return None
    negation = "-" if match[1] in ("!=", "!") else ""
    operator = _OPERATOR_HINTS[match[1]] or str(field_operator)
    return f"{negation}{path}:{operator}{match[2][:_MAX_SHOWN]}"


def _value_hint(path: str, value: str) -> str | None:
    value_list = _IN_LIST.fullmatch(value)
    if value_list is not None:
        return f"{path}:[{value_list[1][:_MAX_SHOWN]}] for one of these"
    if len(value) > 1 and value.endswith("*"):
        return f"{path}:~^{re.escape(value[:-1])[:_MAX_SHOWN]} for what begins so"
    if "|" in value:
        return " OR ".join(f"{path}:{choice}" for choice in value.split("|"))[: _MAX_SHOWN * 2]
    return f"{path}:[{value[:_MAX_SHOWN]}] for one of these" if "," in value else None


def _format_path(path: Path) -> str:
    first, *rest = path.parts
    return ".".join(["m" if first == "metadata" and rest else first, *rest])
