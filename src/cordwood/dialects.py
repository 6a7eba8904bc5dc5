"""Parse endpoints, and compile the queries of endpoints and of callers; each SQL dialect has its own compiler."""

from collections.abc import Collection, Mapping

from cordwood.clickhouse_sql.compile import compile_clickhouse, describe_logs_table
from cordwood.clickhouse_sql.endpoint import read_clickhouse_endpoint
from cordwood.errors import QueryUnsupported
from cordwood.logql.compile import compile_logql
from cordwood.lql.compile import compile_lql, explain_lql
from cordwood.model.definitions import Dialect, Endpoint
from cordwood.model.event import EventShape
from cordwood.sql import compile as bigquery
from cordwood.sql.program import EndpointProgram
from cordwood.sql.redaction.patterns import RedactionPolicy
from cordwood.sql.stages import Statement, Target
from cordwood.sql.sub_query_schema import SubQuerySchema, describe_sub_queries

ShapesByStream = Mapping[str, EventShape]


def read_endpoint(endpoint: Endpoint, streams: Collection[str] | None = None) -> EndpointProgram:
    """Parse an endpoint's query; raise BadEndpointFile with the position of the error in the endpoint's file."""
    if endpoint.dialect is Dialect.CLICKHOUSE:
        return read_clickhouse_endpoint(endpoint, streams)
    return bigquery.parse_and_check_endpoint(endpoint, streams)


def compile_saved_query(
    program: EndpointProgram, target: Target, shapes: ShapesByStream, redaction: RedactionPolicy | None = None
) -> Statement:
    """Compile an endpoint's own query."""
    if program.dialect_text is not None:
        _refuse_live_tail(program)
        return compile_clickhouse(program, program.dialect_text, target, shapes, redaction)
    return bigquery.compile_saved_query(program, target, shapes, redaction)


def compile_sql_query(
    program: EndpointProgram,
    text: str,
    target: Target,
    shapes: ShapesByStream,
    redaction: RedactionPolicy | None = None,
) -> Statement:
    """Compile a caller's SQL query over an endpoint's sub-queries, in the SQL dialect of the endpoint."""
    if program.dialect_text is not None:
        _refuse_live_tail(program)
        return compile_clickhouse(program, text, target, shapes, redaction)
    return bigquery.compile_sandbox_query(program, text, target, shapes, redaction)


def compile_lql_query(
    program: EndpointProgram,
    text: str,
    target: Target,
    shapes: ShapesByStream,
    redaction: RedactionPolicy | None = None,
) -> Statement:
    """Compile a caller's LQL query; raise QueryUnsupported if the endpoint accepts ClickHouse SQL."""
    _require_lql_support(program)
    return compile_lql(program, text, target, shapes, redaction)


def compile_logql_query(
    program: EndpointProgram,
    text: str,
    target: Target,
    shapes: ShapesByStream,
    redaction: RedactionPolicy | None = None,
) -> Statement:
    """Compile a LogQL request; raise QueryUnsupported if the endpoint accepts ClickHouse SQL."""
    if program.dialect_text is not None:
        raise QueryUnsupported("This endpoint accepts ClickHouse SQL, not LogQL.", hint="Query logs.all.")
    return compile_logql(program, text, target, shapes, redaction)


def explain_lql_query(program: EndpointProgram, text: str, target: Target, shapes: ShapesByStream) -> str:
    """Return the SQL in BigQuery's dialect that is equivalent to a caller's LQL query."""
    _require_lql_support(program)
    return explain_lql(program, text, target, shapes)


def list_sub_queries(program: EndpointProgram, target: Target, shapes: ShapesByStream) -> tuple[SubQuerySchema, ...]:
    """Return the names and columns of an endpoint's sub-queries, which callers' own queries may read."""
    if program.dialect_text is not None:
        return (describe_logs_table(program, shapes),)
    return describe_sub_queries(program, target, shapes)


def _refuse_live_tail(program: EndpointProgram) -> None:
    if program.page.is_of_followed_query:
        raise QueryUnsupported(
            "An endpoint that accepts ClickHouse SQL cannot be followed.", hint="Follow logs.all in SQL or LQL."
        )


def _require_lql_support(program: EndpointProgram) -> None:
    if program.dialect_text is not None:
        raise QueryUnsupported(
            "This endpoint accepts ClickHouse SQL, not LQL.",
            hint="Send sql=SELECT … FROM logs, or query logs.all.",
        )
