"""Refusals that need the names and types of a query."""

import pytest

from cordwood.errors import QueryFault
from tests.dialect.translated import column_names


def _refusal(sql: str) -> QueryFault:
    with pytest.raises(QueryFault) as caught:
        column_names(sql)
    return caught.value


@pytest.mark.parametrize("name", ["$rows", "$Rows"])
def test_no_column_has_the_name_of_the_internal_relation(name: str) -> None:
    for sql in (f'SELECT id AS "{name}" FROM logs', f'SELECT "{name}" FROM (SELECT 1 AS "{name}")'):
        assert "cannot be called" in _refusal(sql).message
    assert column_names('SELECT id AS "$row", source AS logs FROM logs ORDER BY timestamp') == ["$row", "logs"]


def test_an_error_about_a_group_key_shows_the_key_as_clickhouse_names_it() -> None:
    fault = _refusal("SELECT count() FROM logs GROUP BY log_attributes")
    assert fault.message == "Rows cannot be grouped by log_attributes."
    assert fault.span is not None
    assert fault.span.column == 35
