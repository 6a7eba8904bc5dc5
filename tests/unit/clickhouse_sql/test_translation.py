"""Refusals that need the types and names of a query, and the names of the columns of an answer."""

import functools

import pytest
from sqlglot import exp

from cordwood.app.checks import read_and_check_definitions
from cordwood.catalog.catalog import CatalogSources
from cordwood.clickhouse_sql.compile import translate_to_bigquery
from cordwood.dialects import read_endpoint
from cordwood.errors import QueryFault
from cordwood.sql.budget import compilation_scope
from cordwood.sql.program import EndpointProgram
from cordwood.sql.record_shapes import RecordingShapeReader


@functools.cache
def _program() -> EndpointProgram:
    endpoints = read_and_check_definitions(CatalogSources()).endpoints
    return read_endpoint(next(endpoint for endpoint in endpoints if endpoint.name == "logs.all.otel"))


def _column_names(sql: str) -> list[str]:
    with compilation_scope():
        select = translate_to_bigquery(_program(), sql, RecordingShapeReader({})).find(exp.Select)
    assert select is not None
    return [column.alias for column in select.expressions]


def _refusal(sql: str) -> QueryFault:
    with pytest.raises(QueryFault) as caught:
        _column_names(sql)
    return caught.value


@pytest.mark.parametrize("name", ["$rows", "$Rows"])
def test_no_column_has_the_name_of_the_internal_relation(name: str) -> None:
    for sql in (f'SELECT id AS "{name}" FROM logs', f'SELECT "{name}" FROM (SELECT 1 AS "{name}")'):
        assert "cannot be called" in _refusal(sql).message
    assert _column_names('SELECT id AS "$row", source AS logs FROM logs ORDER BY timestamp') == ["$row", "logs"]
