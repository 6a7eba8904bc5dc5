"""The rows of an answer, cut to the limits for an agent."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.agents.tool import (
    MAX_ANSWER_ROWS_BYTES,
    MAX_RESPONSE_BYTES,
    MAX_RESPONSE_LINE_BYTES,
    RowCollector,
    ShorteningLimits,
    ToolAnswerLimits,
    shorten_value,
)


def as_lines(rows: list[Any]) -> bytes:
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def decode(rows: RowCollector) -> list[Any]:
    return [json.loads(bytes(row)) for row in rows.rows]


@given(st.lists(st.dictionaries(st.text(), st.integers() | st.text())), st.integers(1, 50))
def test_rows_are_the_same_for_any_chunk_size(rows: list[dict[str, Any]], size: int) -> None:
    body = as_lines(rows)
    collected = RowCollector(ToolAnswerLimits(1000))
    assert all(collected.add_chunk(body[begin : begin + size]) for begin in range(0, len(body), size))
    assert decode(collected) == rows
    assert collected.truncation_reason is None
    assert not collected.has_shortened_values


def test_a_row_beyond_the_requested_number_ends_the_answer() -> None:
    exact, more = RowCollector(ToolAnswerLimits(3)), RowCollector(ToolAnswerLimits(3))
    assert exact.add_chunk(as_lines([{"n": 1}] * 3))
    assert exact.truncation_reason is None
    assert not more.add_chunk(as_lines([{"n": 1}] * 4))
    assert more.truncation_reason is not None
    assert "max_rows=3" in more.truncation_reason
    assert len(more.rows) == 3


def test_rows_beyond_the_byte_limit_end_the_answer() -> None:
    rows = RowCollector(ToolAnswerLimits(1000))
    assert not rows.add_chunk(as_lines([{"text": "x" * 1500}] * 100))
    assert sum(len(bytes(row)) for row in rows.rows) <= MAX_ANSWER_ROWS_BYTES
    assert rows.truncation_reason is not None
    assert "bytes" in rows.truncation_reason


def test_a_row_without_a_line_end_is_not_held_in_memory() -> None:
    rows = RowCollector(ToolAnswerLimits(10))
    chunks = 0
    while rows.add_chunk(b"x" * 100_000):
        chunks += 1
    assert chunks <= MAX_RESPONSE_LINE_BYTES // 100_000
    assert rows.rows == []
    assert rows.truncation_reason is not None


def test_the_bytes_read_are_limited_even_if_rows_are_shortened() -> None:
    rows = RowCollector(ToolAnswerLimits(1000))
    line = as_lines([{"text": "x" * 1_000_000}])
    chunks_read = 1
    while rows.add_chunk(line):
        chunks_read += 1
    assert chunks_read <= MAX_RESPONSE_BYTES // len(line) + 1
    assert rows.truncation_reason is not None


def test_a_single_row_that_is_too_large_is_shortened_until_it_fits() -> None:
    rows = RowCollector(ToolAnswerLimits(10))
    assert rows.add_chunk(as_lines([{f"column {n}": "x" * 1500 for n in range(40)}]))
    (row,) = decode(rows)
    assert len(bytes(rows.rows[0])) <= MAX_ANSWER_ROWS_BYTES // 2
    assert row["column 0"] == "x" * 200 + "… (1500 characters)"
    assert rows.has_shortened_values


@pytest.mark.parametrize("line", [b"[" * 5000 + b"]" * 5000, b"{broken", b'{"a": 1e999}', b'"\xff"'])
def test_a_row_that_cannot_be_decoded_is_shown_as_its_beginning(line: bytes) -> None:
    rows = RowCollector(ToolAnswerLimits(10))
    assert rows.add_chunk(line + b"\n")
    assert len(rows.rows) == 1
    assert rows.has_shortened_values or decode(rows)


def test_long_values_are_shortened_and_marked_at_any_depth() -> None:
    value = {"a": [{"b": "x" * 30}, *range(20)], **{f"m{n}": n for n in range(20)}}
    short, is_shortened = shorten_value(value, ShorteningLimits(max_characters=10, max_elements=3, max_members=2))
    assert is_shortened
    assert short == {
        "a": [{"b": "x" * 10 + "… (30 characters)"}, 0, 1, "… (21 elements)"],
        "m0": 0,
        "…": "(21 members)",
    }
    assert shorten_value({"a": [1, None, True, 1.5, "x"]}, ShorteningLimits(10, 10, 10)) == (
        {"a": [1, None, True, 1.5, "x"]},
        False,
    )
