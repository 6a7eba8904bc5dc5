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


_HIDDEN = 'The alias "timestamp" hides the column of this name; {} is the column.'
_FROM_UNIX = "Convert seconds since 1970 with fromUnixTimestamp(…)."
_PARSE = "Convert it with parseDateTime64BestEffort(…)."


@pytest.mark.parametrize(
    ("sql", "message", "hint"),
    [
        ("SELECT toStartOfHour(5) FROM logs", "toStartOfHour needs a time, not an Int64.", _FROM_UNIX),
        ("SELECT toMonday(source) FROM logs", "toMonday needs a time, not a String.", _PARSE),
        ("SELECT tohour(log_attributes) FROM logs", "tohour needs a time, not a Map.", None),
        ("SELECT dateDiff('day', 1.5, now())", "dateDiff needs a time, not a Float64.", None),
        ("SELECT [1] + INTERVAL 1 DAY", "A time is wanted here, and this is an Array(Int64).", None),
        ("SELECT timestamp > 5 FROM logs", "A DateTime and an Int64 cannot be compared.", _FROM_UNIX),
        ("SELECT 5 IN (today())", "An Int64 and a Date cannot be compared.", _FROM_UNIX),
        ("SELECT source < timestamp FROM logs", "A String and a DateTime cannot be compared.", _PARSE),
        ("SELECT [1] = 1", "An Array(Int64) and an Int64 cannot be compared.", None),
        (
            "SELECT toUnixTimestamp(toStartOfHour(timestamp)) * 1000 AS timestamp FROM logs GROUP BY toStartOfHour(timestamp)",
            "toStartOfHour needs a time, not an Int64.",
            f"{_FROM_UNIX} {_HIDDEN.format('logs.timestamp')}",
        ),
        (
            "SELECT id FROM (SELECT toHour(timestamp) AS timestamp FROM logs AS l WHERE timestamp > '2026-01-01')",
            "An Int64 and a String cannot be compared.",
            f"Convert the text, as in toInt64OrZero(…). {_HIDDEN.format('l.timestamp')}",
        ),
        (
            "SELECT length(t.timestamp) AS timestamp, lower(timestamp) FROM (SELECT 'x' AS timestamp) AS t",
            "A text is wanted here, and this is an Int64.",
            f"Convert it with toString(…). {_HIDDEN.format('t.timestamp')}",
        ),
        ("SELECT 5 AS five, toHour(five) FROM logs", "toHour needs a time, not an Int64.", _FROM_UNIX),
        (
            "SELECT 1 AS x, lower(x) FROM (SELECT 2 AS x)",
            "A text is wanted here, and this is an Int64.",
            "Convert it with toString(…).",
        ),
        (
            "SELECT id AS source, source AS id FROM logs",
            'The alias "source" is defined by itself.',
            "Write logs.source where the column is meant.",
        ),
        ("SELECT a AS b, b AS a FROM logs", 'The alias "b" is defined by itself.', None),
    ],
)
def test_an_error_about_types_has_a_fitting_message_and_hint(sql: str, message: str, hint: str | None) -> None:
    fault = _refusal(sql)
    assert (fault.message, fault.hint) == (message, hint)
    assert fault.span is not None


def test_an_error_about_a_group_key_shows_the_key_as_clickhouse_names_it() -> None:
    fault = _refusal("SELECT count() FROM logs GROUP BY log_attributes")
    assert fault.message == "Rows cannot be grouped by log_attributes."
    assert fault.span is not None
    assert fault.span.column == 35
