"""The compiler's stages: parse, admit, resolve, lower and emit, for saved, sandbox, ad hoc and stand-alone SQL."""

from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from typing import Final
from uuid import UUID

import msgspec
from sqlglot import exp

from cordwood.errors import COMPILE_FAULTS, CompilationTimeout
from cordwood.model.definitions import Endpoint, Parameter
from cordwood.model.event import EventShape
from cordwood.sql.admit import admit_query
from cordwood.sql.budget import compilation_scope
from cordwood.sql.dialects.explain import explain_raised_faults, find_likely_mistakes
from cordwood.sql.emit import emit_statement
from cordwood.sql.follow import RECEIPT_TIME_RANGE_PARAMETERS, refuse_order_and_limit, rewrite_as_followed_query
from cordwood.sql.paging import PageQueryRewriter, limit_rows, parameters_with_page_boundaries
from cordwood.sql.parse import parse_sql
from cordwood.sql.program import EndpointProgram, as_file_error, parse_endpoint, program_with_positions
from cordwood.sql.redaction.patterns import RedactionPolicy
from cordwood.sql.redaction.redaction_pass import redact_raw_value_reads
from cordwood.sql.resolve.queries import (
    check_endpoint,
    resolve_sandbox_query,
    resolve_saved_query,
    resolve_standalone_query,
)
from cordwood.sql.stages import ParsedQuery, ResolvedQuery, Statement, Target

ShapesByStream = Mapping[str, EventShape]
# The maximum number of rows on one page of a followed query.
MAX_FOLLOWED_PAGE_ROWS = 500


_AD_HOC_MAX_ROWS: Final = 1000
_AD_HOC_ENDPOINT_ID: Final = UUID("5d1a4e0f-6c6d-5b0c-8f5e-0c5d3f1b7a04")


def parse_and_check_endpoint(endpoint: Endpoint, streams: Collection[str] | None = None) -> EndpointProgram:
    """Return the program of an endpoint; raise BadEndpointFile with the position if its SQL has an error.

    If `streams` are given, every table must be a sub-query or one of these streams.
    """
    try:
        with explain_raised_faults(endpoint.sql), compilation_scope():
            program = parse_endpoint(endpoint)
            check_endpoint(program_with_positions(program), streams)
    except COMPILE_FAULTS as fault:
        raise as_file_error(fault, endpoint) from fault
    return program


def create_ad_hoc_endpoint(text: str, streams: Collection[str]) -> Endpoint:
    """Return a temporary endpoint for an operator's query over whole streams, with the parameters that the query names.

    Raise QueryFault with the position if the text cannot be parsed or refers to unknown streams.
    """
    with explain_raised_faults(text), compilation_scope():
        endpoint = Endpoint(
            name="query",
            id=_AD_HOC_ENDPOINT_ID,
            sql=text,
            revision=f"query/{sha256(text.encode()).hexdigest()}",
            max_rows=_AD_HOC_MAX_ROWS,
            parameters=tuple(Parameter(name) for name in parameter_names(text)),
        )
        check_endpoint(program_with_positions(parse_endpoint(endpoint)), streams)
    return endpoint


def parameter_names(text: str) -> tuple[str, ...]:
    """Return the names of the query's @parameters without duplicates, in the spelling of their first use."""
    names: dict[str, str] = {}
    for node in parse_sql(text).tree.find_all(exp.Parameter, bfs=False):
        names.setdefault(node.name.lower(), node.name)
    return tuple(names.values())


__all__ = [
    "MAX_FOLLOWED_PAGE_ROWS",
    "EndpointProgram",
    "compile_sandbox_query",
    "compile_sandbox_tree",
    "compile_saved_query",
    "compile_standalone_query",
    "create_ad_hoc_endpoint",
    "parameter_names",
    "parse_and_check_endpoint",
]


def compile_saved_query(
    program: EndpointProgram, target: Target, shapes: ShapesByStream, redaction: RedactionPolicy | None = None
) -> Statement:
    """Compile the endpoint's own query; the positions of errors refer to the endpoint's SQL."""
    visible = _visible_shapes(shapes, redaction)

    def run_stages(program: EndpointProgram) -> Statement:
        resolved = msgspec.structs.replace(
            resolve_saved_query(program, target, visible), is_saved_query=program.endpoint.id != _AD_HOC_ENDPOINT_ID
        )
        return _emit_page_statement(resolved, program, target, redaction, visible)

    try:
        return _run_within_budget(lambda: run_stages(program))
    except CompilationTimeout:
        raise
    except COMPILE_FAULTS:
        with explain_raised_faults(program.endpoint.sql):
            return _run_within_budget(lambda: run_stages(program_with_positions(program)))


def compile_sandbox_query(
    program: EndpointProgram,
    text: str,
    target: Target,
    shapes: ShapesByStream,
    redaction: RedactionPolicy | None = None,
) -> Statement:
    """Compile a sandbox query, which can only read the endpoint's sub-queries."""
    with explain_raised_faults(text):
        statement = compile_sandbox_tree(program, lambda: parse_sql(text), target, shapes, redaction)
    columns = {name.lower() for stream in statement.streams for name in target.stream_table(stream).kind_by_column}
    notices = find_likely_mistakes(text, columns)
    return msgspec.structs.replace(statement, notices=notices) if notices else statement


def compile_sandbox_tree(
    program: EndpointProgram,
    parse_query: Callable[[], ParsedQuery],
    target: Target,
    shapes: ShapesByStream,
    redaction: RedactionPolicy | None = None,
    internal_functions: Collection[str] = (),
) -> Statement:
    """Compile a sandbox query whose tree `parse_query` returns, for query languages other than SQL.

    The tree is admitted and resolved like the tree of an SQL query. `internal_functions` are the names of internal
    functions that the tree may call.
    """
    visible = _visible_shapes(shapes, redaction)

    def run_stages() -> Statement:
        admitted = admit_query(parse_query(), internal_functions)
        if program.page.is_of_followed_query:
            refuse_order_and_limit(admitted)
        return _emit_page_statement(
            resolve_sandbox_query(program, admitted, target, visible), program, target, redaction, visible
        )

    return _run_within_budget(run_stages)


def _visible_shapes(shapes: ShapesByStream, redaction: RedactionPolicy | None) -> ShapesByStream:
    return redaction.visible_shapes(shapes) if redaction else shapes


def _redact_if_required(
    resolved: ResolvedQuery, redaction: RedactionPolicy | None, shapes: ShapesByStream
) -> ResolvedQuery:
    return redact_raw_value_reads(resolved, redaction, shapes) if redaction else resolved


def compile_standalone_query(text: str, target: Target) -> Statement:
    """Compile SQL that reads no streams, has no parameters, and has no limit on rows."""
    with explain_raised_faults(text):
        return _run_within_budget(
            lambda: emit_statement(resolve_standalone_query(admit_query(parse_sql(text)), target), target, {})
        )


def _emit_page_statement(
    resolved: ResolvedQuery,
    program: EndpointProgram,
    target: Target,
    redaction: RedactionPolicy | None,
    shapes: ShapesByStream,
) -> Statement:
    if program.page.is_of_followed_query:
        return _compile_followed_query(_redact_if_required(resolved, redaction, shapes), program, target)
    builder = PageQueryRewriter(resolved.tree, program.page, program.endpoint.max_rows, program.parameters)
    builder.restrict_reads_to_page()
    redacted = _redact_if_required(resolved, redaction, shapes)
    builder.order_rows(hashes_ids=redaction is not None)
    statement = emit_statement(redacted, target, parameters_with_page_boundaries(program.parameters, program.page))
    return msgspec.structs.replace(statement, paging=builder.paging, pages_on_request=builder.is_paged_on_request)


def _compile_followed_query(resolved: ResolvedQuery, program: EndpointProgram, target: Target) -> Statement:
    followed = rewrite_as_followed_query(resolved)
    limit_rows(followed.tree, MAX_FOLLOWED_PAGE_ROWS)
    return emit_statement(followed, target, {**program.parameters, **RECEIPT_TIME_RANGE_PARAMETERS})


def _run_within_budget(stages: Callable[[], Statement]) -> Statement:
    with compilation_scope():
        return stages()
