"""Answers in Prometheus's text format, as parsed by Prometheus's own parser."""

import math
from collections.abc import Iterable

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cordwood.errors import BadQueryValue
from cordwood.model.datatype import Column, Datatype, Kind, Row, Rows
from cordwood.web.encode import ANSWER_FORMATS_BY_NAME, choose_format

METHOD_COLUMNS = (("method", Kind.STRING), ("requests", Kind.INT64), ("seconds", Kind.FLOAT64))
Samples = set[tuple[str, tuple[tuple[str, str], ...], float]]


def encode_answer(columns: Iterable[tuple[str, Kind]], *rows: Row) -> bytes:
    answer = Rows(tuple(Column(name, Datatype(kind)) for name, kind in columns), [list(rows)])
    return b"".join(ANSWER_FORMATS_BY_NAME["prometheus"].encode(answer))


def parse_samples(body: bytes) -> Samples:
    families = text_string_to_metric_families(body.decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items())), sample.value)
        for family in families
        for sample in family.samples
    }


def test_numeric_columns_are_metrics_and_text_columns_their_labels() -> None:
    body = encode_answer(METHOD_COLUMNS, ("GET", 12, 0.25), ("POST", 3, None), (None, 1, math.inf))
    assert parse_samples(body) == {
        ("requests", (("method", "GET"),), 12.0),
        ("requests", (("method", "POST"),), 3.0),
        ("requests", (), 1.0),
        ("seconds", (("method", "GET"),), 0.25),
        ("seconds", (), math.inf),
    }
    assert body.startswith(b"# TYPE requests gauge\n")


@pytest.mark.parametrize("text", ['a"b', "back\\slash", "two\nlines", "caf\u00e9 {}", "", "\r#\t"])
def test_any_text_can_be_a_label(text: str) -> None:
    assert parse_samples(encode_answer(METHOD_COLUMNS, (text, 1, None))) == {("requests", (("method", text),), 1.0)}


def test_numbers_keep_their_digits_and_booleans_are_one_or_zero() -> None:
    columns = (("up", Kind.BOOL), ("exact", Kind.NUMERIC), ("count", Kind.INT64))
    body = encode_answer(columns, (True, msgspec.Raw(b"12345678901234567890.5"), 2**53 + 1))
    assert b"up 1\n" in body
    assert b"exact 12345678901234567890.5\n" in body
    assert b"count 9007199254740993\n" in body


def test_timestamps_are_omitted() -> None:
    assert encode_answer((("timestamp", Kind.TIMESTAMP), ("n", Kind.INT64)), (1, 2)) == b"# TYPE n gauge\nn 2\n"


def test_an_answer_without_rows_has_no_samples() -> None:
    assert parse_samples(encode_answer(METHOD_COLUMNS)) == set()


@pytest.mark.parametrize(
    ("columns", "rows", "message"),
    [
        ((("a", Kind.STRING),), [("x",)], "no numeric column"),
        (METHOD_COLUMNS, [("GET", 1, 1.0), ("GET", 2, 1.0)], 'the same labels {method="GET"}'),
        ((("n", Kind.INT64),), [(1,), (2,)], "the same labels {}"),
        ((("a-b", Kind.INT64),), [(1,)], "'a-b' cannot be the name"),
        ((("__n", Kind.INT64),), [(1,)], "'__n' cannot be the name"),
        ((("n", Kind.INT64), ("1st", Kind.STRING)), [(1, "x")], "'1st' cannot be the name"),
    ],
)
def test_rows_that_are_not_a_set_of_samples_are_refused(
    columns: Iterable[tuple[str, Kind]], rows: list[Row], message: str
) -> None:
    with pytest.raises(BadQueryValue, match=message):
        encode_answer(columns, *rows)


def test_clients_that_accept_plain_text_do_not_get_prometheus() -> None:
    assert choose_format("text/*", None).name == "csv"
    assert choose_format("text/plain;version=0.0.4, */*;q=0.1", None).name == "json"
