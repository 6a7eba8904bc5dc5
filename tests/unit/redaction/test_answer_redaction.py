"""Redaction of output columns after they are fetched, and the cache of texts that contain nothing to redact."""

from collections.abc import Iterator, Sequence

import duckdb
import pytest

from cordwood.engines.duckdb.query.redaction_macros import AnswerRedactor, ColumnsToRedact
from cordwood.engines.late_redaction import TextRedactor
from cordwood.model.redaction import RedactionConfig, RedactMode
from tests.unit.redaction.texts import SAMPLE_TABLE

MODE = RedactMode.REPLACE


class _CountedConnection:
    """A connection that counts the cursors it opens."""

    def __init__(self) -> None:
        self.connection = duckdb.connect()
        self.count = 0

    def cursor(self) -> duckdb.DuckDBPyConnection:
        self.count += 1
        return self.connection.cursor()


@pytest.fixture
def counted_connection() -> Iterator[_CountedConnection]:
    opened = _CountedConnection()
    yield opened
    opened.connection.close()


def make_redaction(counted_connection: _CountedConnection, max_bytes: int = 100_000) -> AnswerRedactor:
    redaction = AnswerRedactor(counted_connection.cursor, RedactionConfig(hash_key="key"), TextRedactor(max_bytes))
    redaction.create_macros(MODE)
    counted_connection.count = 0
    return redaction


def redacted_texts(redactor: AnswerRedactor, *texts: str | None) -> list[object]:
    """Redact the texts as one column, and return the result."""
    types = [duckdb.sqltypes.VARCHAR]
    rows = ColumnsToRedact(redactor, MODE, (0,)).redact([(text,) for text in texts], types, ignore_cursor)
    return [row[0] for row in rows]


def ignore_cursor(_: duckdb.DuckDBPyConnection) -> None:
    """Do nothing with the cursor, because these tests do not interrupt a query."""


def test_redacted_texts_keep_their_positions(counted_connection: _CountedConnection) -> None:
    texts, expected = zip(*(pair for pair in SAMPLE_TABLE if "\x01" not in pair[0]), strict=True)
    assert redacted_texts(make_redaction(counted_connection), None, *texts, None, texts[0]) == [
        None,
        *expected,
        None,
        expected[0],
    ]


def test_all_columns_are_redacted_at_once(counted_connection: _CountedConnection) -> None:
    columns = ColumnsToRedact(make_redaction(counted_connection), MODE, (0, 2))
    types = [duckdb.sqltypes.VARCHAR, duckdb.sqltypes.VARCHAR, duckdb.sqltypes.VARIANT]
    rows = [("10.0.0.1", "10.0.0.1", '"10.0.0.1"'), ("a", None, None), (None, "x", "7")]
    assert columns.redact(rows, types, ignore_cursor) == [
        ("REDACTED", "10.0.0.1", '"REDACTED"'),
        ("a", None, None),
        (None, "x", "7"),
    ]
    assert counted_connection.count == 1


def test_json_stays_json_with_its_numbers(counted_connection: _CountedConnection) -> None:
    event = '{"a":[4111111111111111,"4111111111111111"],"b":"10.0.0.1"}'
    assert make_redaction(counted_connection).redact_json(MODE, [event], ignore_cursor) == [
        '{"a":[4111111111111111,"REDACTED"],"b":"REDACTED"}'
    ]


def test_scalars_other_than_strings_are_not_redacted(counted_connection: _CountedConnection) -> None:
    cells = ["4111111111111111", "true", "null", "-1.5"]
    assert make_redaction(counted_connection).redact_json(MODE, cells, ignore_cursor) == cells
    assert counted_connection.count == 0


def test_a_text_with_nothing_to_redact_is_cached(counted_connection: _CountedConnection) -> None:
    redactor = make_redaction(counted_connection)
    for _ in range(3):
        assert redacted_texts(redactor, "a::b", "nothing here") == ["a::b", "nothing here"]
    assert counted_connection.count == 1


def test_a_private_text_is_not_cached(counted_connection: _CountedConnection) -> None:
    """Redact a private text again each time.

    If its result were cached, the time of an answer would reveal that the value was seen before.
    """
    redactor = make_redaction(counted_connection)
    for count in range(1, 4):
        assert redacted_texts(redactor, "10.0.0.1", "a::b") == ["REDACTED", "a::b"]
        assert counted_connection.count == count


def test_each_occurrence_of_a_private_text_is_redacted() -> None:
    redacted: list[int] = []

    def redact(some: Sequence[str]) -> Sequence[str]:
        redacted.append(len(some))
        return ['"REDACTED"'] * len(some)

    for ip in ("1", "2"):
        cells = TextRedactor().redact_json(MODE, ['"10.0.0.1"', f'"10.0.0.{ip}"', None, "7"], redact)
        assert cells == ['"REDACTED"', '"REDACTED"', None, "7"]
    assert redacted == [2, 2]


def test_the_least_recently_used_text_is_evicted(counted_connection: _CountedConnection) -> None:
    redactor = make_redaction(counted_connection, max_bytes=8_000)
    redacted_texts(redactor, "x" * 1000)
    for letter in "abcdef":
        redacted_texts(redactor, letter * 1000)
    assert counted_connection.count == 7
    redacted_texts(redactor, "f" * 1000)
    assert counted_connection.count == 7
    redacted_texts(redactor, "x" * 1000)
    assert counted_connection.count == 8


def test_the_caller_receives_the_cursor_for_interruption(counted_connection: _CountedConnection) -> None:
    cursors: list[duckdb.DuckDBPyConnection] = []
    make_redaction(counted_connection).redact_json(MODE, ['"10.0.0.1"'], cursors.append)
    assert len(cursors) == 1
