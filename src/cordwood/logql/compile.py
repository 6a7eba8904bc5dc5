"""Compile LogQL over an endpoint's sub-queries: parse it, translate it to BigQuery's syntax tree, and compile the tree.

`compile_logql` corresponds to `compile_lql` of LQL. The positions of errors refer to the text of the LogQL query.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from sqlglot import exp

from cordwood.errors import QueryUnsupported
from cordwood.logql.labels import MESSAGE_COLUMN, TIMESTAMP_COLUMN
from cordwood.logql.log_queries import (
    ReadableSubQueries,
    may_match_source,
    select_label_values,
    select_log_lines,
    select_stream_and_entry_counts,
    select_streams,
)
from cordwood.logql.metrics import MetricTranslator, aggregate_series_to_arrays
from cordwood.logql.parse import parse_log_query, parse_logql
from cordwood.logql.syntax import (
    REGEX_COMPARISONS,
    LabelFilter,
    LabelMatch,
    LineFilter,
    LogqlRequest,
    MatchConjunction,
    MatchDisjunction,
    Pipeline,
    Query,
    ResultKind,
    TextMatch,
    check_step_count,
    decode_request,
    max_series_count,
    pipelines_of,
)
from cordwood.lql.columns import SubQueryInfo, describe_sub_query
from cordwood.lql.compile import FindRegexError, check_each_pattern
from cordwood.model.event import EventShape
from cordwood.sql.budget import compilation_scope
from cordwood.sql.compile import compile_sandbox_tree
from cordwood.sql.diagnostics import span_at
from cordwood.sql.internal_functions import INTERNAL_FUNCTION_NAMES
from cordwood.sql.program import EndpointProgram
from cordwood.sql.record_shapes import RecordingShapeReader
from cordwood.sql.redaction.patterns import RedactionPolicy
from cordwood.sql.stages import ParsedQuery, Statement, Target

ShapesByStream = Mapping[str, EventShape]


def compile_logql(
    program: EndpointProgram,
    text: str,
    target: Target,
    shapes: ShapesByStream,
    redaction: RedactionPolicy | None = None,
) -> Statement:
    """Compile a request, given as the `text` of a LogqlRequest.

    The query can read only the endpoint's sub-queries.
    """
    request = decode_request(text)
    records = RecordingShapeReader(redaction.visible_shapes(shapes) if redaction else shapes)
    with compilation_scope():
        tree = _translate_request(program, request, target, records)
        statement = compile_sandbox_tree(
            program, lambda: ParsedQuery(tree, request.queries[0]), target, shapes, redaction, INTERNAL_FUNCTION_NAMES
        )
    shape_lookups = {**records.shape_lookups, **statement.shape_lookups}
    # Clear `unseen_paths`, so that no notice reports them: labels are known only from stored events, so a label that no
    # event has is not a mistake of the caller.
    return msgspec.structs.replace(statement, shape_lookups=shape_lookups, unseen_paths=())


def check_logql_patterns(text: str, find_regex_error: FindRegexError) -> None:
    """Raise BadQueryValue at the first invalid regular expression in the queries of an encoded request."""
    for query in decode_request(text).queries:
        patterns = (
            found for pipeline in pipelines_of(parse_logql(query)) for found in _regex_patterns_of_pipeline(pipeline)
        )
        check_each_pattern(query, patterns, find_regex_error, "To search for the text itself, write |= or =.")


def _translate_request(
    program: EndpointProgram, request: LogqlRequest, target: Target, records: RecordingShapeReader
) -> exp.Select:
    queries = [parse_logql(text) for text in request.queries]
    sources = ReadableSubQueries(
        _describe_readable_sub_queries(program, request, queries, target, records),
        frozenset(request.labels_matched_by_parameters),
    )
    if request.result_kind is ResultKind.SAMPLES:
        return _translate_metric_query(queries[0], sources, request)
    pipelines = [parse_log_query(text) for text in request.queries]
    match request.result_kind:
        case ResultKind.ENTRIES:
            return select_log_lines(pipelines[0], sources, request)
        case ResultKind.LABEL_VALUES:
            return select_label_values(pipelines, sources, request)
        case ResultKind.STREAMS:
            return select_streams(pipelines, sources, request)
        case ResultKind.STREAM_AND_ENTRY_COUNTS:
            return select_stream_and_entry_counts(pipelines, sources, request)


def _describe_readable_sub_queries(
    program: EndpointProgram,
    request: LogqlRequest,
    queries: Sequence[Query],
    target: Target,
    records: RecordingShapeReader,
) -> list[SubQueryInfo]:
    """Return the metadata of the sub-queries that LogQL can read and whose names match a selector of the queries.

    LogQL can read a sub-query if it has the columns of logs: time and message. If no name matches, return the metadata
    of all sub-queries that LogQL can read.
    """
    text = request.queries[0]
    pipelines = [pipeline for query in queries for pipeline in pipelines_of(query)]
    names = [name for name in program.sub_query_names if may_match_source(name, pipelines)]
    infos = [describe_sub_query(program, name, text, target, records) for name in names or program.sub_query_names]
    readable = [info for info in infos if info.has_column(TIMESTAMP_COLUMN) and info.has_column(MESSAGE_COLUMN)]
    if not readable:
        raise QueryUnsupported(
            f"{program.endpoint.name} has no sub-query with the columns {TIMESTAMP_COLUMN} and {MESSAGE_COLUMN}.",
            hint="LogQL reads sub-queries of logs.",
            span=span_at(text, 0),
        )
    return readable


def _translate_metric_query(query: Query, sources: ReadableSubQueries, request: LogqlRequest) -> exp.Select:
    info = sources.sub_query_infos[0]
    if isinstance(query, Pipeline):
        raise QueryUnsupported(
            "A log query has no samples.",
            hint="Count its lines, as in count_over_time({…}[5m]), or ask for a range of time.",
            span=info.query_text_span(query.text_offset),
        )
    check_step_count(request.sample_steps)
    return aggregate_series_to_arrays(
        MetricTranslator(sources, request.sample_steps, info).translate(query), max_series_count(request.sample_steps)
    )


def _regex_patterns_of_pipeline(pipeline: Pipeline) -> Iterator[tuple[str, int]]:
    for matcher in pipeline.matchers:
        yield from _regex_patterns_of_match(matcher)
    for stage in pipeline.stages:
        if isinstance(stage, LineFilter) and stage.is_regex:
            yield from ((pattern, stage.text_offset) for pattern in stage.texts)
        elif isinstance(stage, LabelFilter):
            yield from _regex_patterns_of_match(stage.label_match)


def _regex_patterns_of_match(match: LabelMatch) -> Iterator[tuple[str, int]]:
    match match:
        case MatchConjunction(left, right) | MatchDisjunction(left, right):
            yield from _regex_patterns_of_match(left)
            yield from _regex_patterns_of_match(right)
        case TextMatch(_, operator, text) if operator in REGEX_COMPARISONS:
            yield text, match.text_offset
        case _:
            return
