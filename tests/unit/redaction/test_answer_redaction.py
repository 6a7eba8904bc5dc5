"""What only an answer reads is redacted once it is fetched; only texts in which nothing is hidden are remembered."""

from collections.abc import Iterator, Sequence

import duckdb
import pytest

from cordwood.engines.answer_texts import AnswerTexts
from cordwood.engines.duckdb.query.answer_redaction import AnswerRedaction, RedactedColumns
from cordwood.model.redaction import RedactionConfig, RedactMode
from tests.unit.redaction.texts import TABLE

MODE = RedactMode.REPLACE


class _Counted:
    """Hands out cursors of one connection, and counts them."""

    def __init__(self) -> None:
        self.connection = duckdb.connect()
        self.count = 0

    def cursor(self) -> duckdb.DuckDBPyConnection:
        self.count += 1
        return self.connection.cursor()


@pytest.fixture
def counted() -> Iterator[_Counted]:
    counting = _Counted()
    yield counting
    counting.connection.close()


def hiding(counted: _Counted, most_bytes: int = 100_000) -> AnswerRedaction:
    redaction = AnswerRedaction(counted.cursor, RedactionConfig(key="key"), AnswerTexts(most_bytes))
    redaction.create_macros(MODE)
    counted.count = 0
    return redaction


def texts(hidden: AnswerRedaction, *given: str | None) -> list[object]:
    """One column of texts, redacted."""
    types = [duckdb.sqltypes.VARCHAR]
    rows = RedactedColumns(hidden, MODE, (0,)).redact([(text,) for text in given], types, nobody)
    return [row[0] for row in rows]


def nobody(_: duckdb.DuckDBPyConnection) -> None:
    """Nobody interrupts."""


def test_redacted_texts_keep_their_positions(counted: _Counted) -> None:
    given, left = zip(*(pair for pair in TABLE if "\x01" not in pair[0]), strict=True)
    assert texts(hiding(counted), None, *given, None, given[0]) == [None, *left, None, left[0]]


def test_all_columns_are_redacted_at_once(counted: _Counted) -> None:
    columns = RedactedColumns(hiding(counted), MODE, (0, 2))
    types = [duckdb.sqltypes.VARCHAR, duckdb.sqltypes.VARCHAR, duckdb.sqltypes.VARIANT]
    rows = [("10.0.0.1", "10.0.0.1", '"10.0.0.1"'), ("a", None, None), (None, "x", "7")]
    assert columns.redact(rows, types, nobody) == [
        ("REDACTED", "10.0.0.1", '"REDACTED"'),
        ("a", None, None),
        (None, "x", "7"),
    ]
    assert counted.count == 1


def test_json_stays_json_with_its_numbers(counted: _Counted) -> None:
    event = '{"a":[4111111111111111,"4111111111111111"],"b":"10.0.0.1"}'
    assert hiding(counted).json(MODE, [event], nobody) == ['{"a":[4111111111111111,"REDACTED"],"b":"REDACTED"}']


def test_a_number_alone_is_no_text(counted: _Counted) -> None:
    cells = ["4111111111111111", "true", "null", "-1.5"]
    assert hiding(counted).json(MODE, cells, nobody) == cells
    assert counted.count == 0


def test_a_text_in_which_nothing_is_hidden_is_looked_through_once(counted: _Counted) -> None:
    hidden = hiding(counted)
    for _ in range(3):
        assert texts(hidden, "a::b", "nothing here") == ["a::b", "nothing here"]
    assert counted.count == 1


def test_a_private_text_is_redacted_for_every_answer(counted: _Counted) -> None:
    """Were it remembered, time would tell whose value somebody has already seen, or sent in an event of their own."""
    hidden = hiding(counted)
    for count in range(1, 4):
        assert texts(hidden, "10.0.0.1", "a::b") == ["REDACTED", "a::b"]
        assert counted.count == count


def test_the_same_private_text_is_redacted_as_often_as_it_is_there() -> None:
    redacted: list[int] = []

    def redact(some: Sequence[str]) -> Sequence[str]:
        redacted.append(len(some))
        return ['"REDACTED"'] * len(some)

    for ip in ("1", "2"):
        cells = AnswerTexts().json(MODE, ['"10.0.0.1"', f'"10.0.0.{ip}"', None, "7"], redact)
        assert cells == ['"REDACTED"', '"REDACTED"', None, "7"]
    assert redacted == [2, 2]


def test_the_least_recently_used_text_is_evicted(counted: _Counted) -> None:
    hidden = hiding(counted, most_bytes=8_000)
    texts(hidden, "x" * 1000)
    for letter in "abcdef":
        texts(hidden, letter * 1000)
    assert counted.count == 7
    texts(hidden, "f" * 1000)
    assert counted.count == 7
    texts(hidden, "x" * 1000)
    assert counted.count == 8


def test_the_caller_receives_the_cursor_for_interruption(counted: _Counted) -> None:
    cursors: list[duckdb.DuckDBPyConnection] = []
    hiding(counted).json(MODE, ['"10.0.0.1"'], cursors.append)
    assert len(cursors) == 1
