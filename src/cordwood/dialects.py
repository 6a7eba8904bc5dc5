"""Read and compile endpoints and callers' queries, with the compiler for each endpoint's SQL dialect."""

from collections.abc import Collection, Mapping

from cordwood.clickhouse_sql.compile import compile_clickhouse, describe_logs_table
from cordwood.clickhouse_sql.endpoint import read_clickhouse_endpoint
from cordwood.errors import QueryUnsupported
from cordwood.logql.compile import compile_logql
from cordwood.lql.compile import compile_lql, explain_lql
from cordwood.model.definitions import Dialect, Endpoint
from cordwood.model.event import Shape
from cordwood.sql import compile as bigquery
from cordwood.sql.program import Program
from cordwood.sql.redaction.patterns import Redaction
from cordwood.sql.stages import Statement, Target
from cordwood.sql.sub_query_schema import SubQuery, describe_sub_queries

Shapes = Mapping[str, Shape]


def read_endpoint(endpoint: Endpoint, streams: Collection[str] | None = None) -> Program:
    """Parse the SQL of an endpoint; raise BadEndpointFile with the position of an error in its file."""
    if endpoint.dialect is Dialect.CLICKHOUSE:
        return read_clickhouse_endpoint(endpoint, streams)
    return bigquery.parse_and_check_endpoint(endpoint, streams)


def compile_saved(program: Program, target: Target, shapes: Shapes, redaction: Redaction | None = None) -> Statement:
    """Compile an endpoint's own (saved) query."""
    if program.dialect_text is not None:
        _refuse_following(program)
        return compile_clickhouse(program, program.dialect_text, target, shapes, redaction)
    return bigquery.compile_saved_query(program, target, shapes, redaction)


def compile_sql_query(
    program: Program, text: str, target: Target, shapes: Shapes, redaction: Redaction | None = None
) -> Statement:
    """Compile a caller's SQL query, which is in the dialect of the endpoint."""
    if program.dialect_text is not None:
        _refuse_following(program)
        return compile_clickhouse(program, text, target, shapes, redaction)
    return bigquery.compile_sandbox_query(program, text, target, shapes, redaction)


def compile_lql_query(
    program: Program, text: str, target: Target, shapes: Shapes, redaction: Redaction | None = None
) -> Statement:
    """Compile a caller's LQL query; raise QueryUnsupported if the endpoint's dialect does not support LQL."""
    _require_lql_support(program)
    return compile_lql(program, text, target, shapes, redaction)


def compile_logql_query(
    program: Program, text: str, target: Target, shapes: Shapes, redaction: Redaction | None = None
) -> Statement:
    """Compile a request in LogQL; raise QueryUnsupported if the endpoint's dialect does not support LogQL."""
    if program.dialect_text is not None:
        raise QueryUnsupported("This endpoint accepts ClickHouse SQL, not LogQL.", hint="Query logs.all.")
    return compile_logql(program, text, target, shapes, redaction)


def explain_lql_query(program: Program, text: str, target: Target, shapes: Shapes) -> str:
    """Translate an LQL query to SQL in BigQuery's dialect."""
    _require_lql_support(program)
    return explain_lql(program, text, target, shapes)


def list_sub_queries(program: Program, target: Target, shapes: Shapes) -> tuple[SubQuery, ...]:
    """Describe the sub-queries that callers' own queries may read."""
    if program.dialect_text is not None:
        return (describe_logs_table(program, shapes),)
    return describe_sub_queries(program, target, shapes)


def _refuse_following(program: Program) -> None:
    if program.page.is_followed:
        raise QueryUnsupported(
            "An endpoint that accepts ClickHouse SQL cannot be followed.", hint="Follow logs.all in SQL or LQL."
        )


def _require_lql_support(program: Program) -> None:
    if program.dialect_text is not None:
        raise QueryUnsupported(
            "This endpoint accepts ClickHouse SQL, not LQL.",
            hint="Send sql=SELECT … FROM logs, or query logs.all.",
        )
