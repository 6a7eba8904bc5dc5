"""Translation of queries in ClickHouse's dialect without an engine."""

import functools

from sqlglot import exp

from cordwood.app.checks import read_and_check_definitions
from cordwood.catalog.catalog import CatalogSources
from cordwood.clickhouse_sql.compile import translate_to_bigquery
from cordwood.dialects import read_endpoint
from cordwood.sql.budget import compilation_scope
from cordwood.sql.program import EndpointProgram
from cordwood.sql.record_shapes import RecordingShapeReader
from tests.dialect.log_events import ENDPOINT_NAME


@functools.cache
def _program() -> EndpointProgram:
    endpoints = read_and_check_definitions(CatalogSources()).endpoints
    return read_endpoint(next(endpoint for endpoint in endpoints if endpoint.name == ENDPOINT_NAME))


def column_names(sql: str) -> list[str]:
    """Return the names of the columns of a query's answer."""
    with compilation_scope():
        select = translate_to_bigquery(_program(), sql, RecordingShapeReader({})).find(exp.Select)
    assert select is not None
    return [column.alias for column in select.expressions]
