"""The compiler of LQL over an endpoint's sub-queries: parsed, translated to BigQuery's tree, and compiled like SQL.

`compile_lql` corresponds to `sql.compile.compile_sandbox`; errors have their position in the LQL. The engine validates
regular expressions before a query is run.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from cordwood.errors import QuerySyntax, QueryValue, UnknownName
from cordwood.lql.columns import describe_sub_query
from cordwood.lql.likely_mistakes import find_likely_mistakes
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
    Query,
    Quoted,
    Source,
    Unquoted,
)
from cordwood.lql.translate import Translation, translate_query
from cordwood.model.shape import Shape
from cordwood.sql.budget import compiling
from cordwood.sql.compile import compile_sandbox_tree
from cordwood.sql.dialects.suggestions import nearest
from cordwood.sql.follow import refuse_followed
from cordwood.sql.positions import span_at
from cordwood.sql.program import Program
from cordwood.sql.record_shapes import RecordShapes
from cordwood.sql.redaction.redaction import Redaction
from cordwood.sql.stages import Parsed, Statement
from cordwood.sql.target import Target

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
    """Raise QueryValue at the first invalid regular expression, for which the engine would report no position."""
    check_each_pattern(text, _patterns(parse(text).filter), is_regex, "To search for the text itself, leave the ~ out.")


def check_each_pattern(text: str, patterns: Iterable[tuple[str, int]], is_regex: RegexCheck, hint: str) -> None:
    """Raise QueryValue at the first invalid pattern; each pattern comes with its offset in the text."""
    for pattern, offset in patterns:
        problem = is_regex(pattern)
        if problem is not None:
            message = f"This is no regular expression (RE2): {problem}"
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
    """Return the translated query, by default with the newest events first; `records` records lookups in the shapes."""
    if not text.strip():
        raise QuerySyntax("The query is empty.", hint="Write it as in f:edge_logs error.", span=span_at(text, 0))
    query = parse(text)
    if not is_ordered:
        _check_followed(query, text)
    info = describe_sub_query(program, _find_sub_query(program, query, text), text, target, records)
    translation = translate_query(query, info, program.endpoint.zone, is_ordered=is_ordered)
    return msgspec.structs.replace(translation, notices=(*translation.notices, *find_likely_mistakes(query, text)))


def _check_followed(query: Query, text: str) -> None:
    """Raise QueryRefused for a chart, an order or a limit, which need more than one event."""
    chart: list[Aggregate | Bucket | Dimension] = [*query.aggregates, *query.buckets, *query.dimensions]
    offsets = {
        "c: (a chart)": [node.offset for node in chart],
        "order:": [order.offset for order in query.orders],
        "limit:": [query.limit.offset] if query.limit else [],
    }
    for part, offsets_of_part in offsets.items():
        if offsets_of_part:
            raise refuse_followed(part, span_at(text, offsets_of_part[0]))


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
        message, hint = "The endpoint has no sub-query.", "It can be asked in SQL only."
        return QuerySyntax(message, hint=hint, span=span_at(text, 0))
    names = {name.lower() for name in program.sub_query_names}
    first = next((word for word in text.split() if word.lower() in names), program.sub_query_names[0])
    message = f"The endpoint has several sub-queries: {', '.join(program.sub_query_names)}."
    return QuerySyntax(message, hint=f"Say which one to ask, as in f:{first}.", span=span_at(text, 0))
