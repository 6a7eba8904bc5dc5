"""Answers of Loki's read API: the order of series, and the encoding of labels and fields."""

import json

import pytest

from cordwood.logql.syntax import SampleSteps
from cordwood.model.datatype import Column, Datatype, Kind, Row, Rows
from cordwood.web.loki_answers import SeriesOrder, encode_samples


def rows(columns: dict[str, Kind], *content: Row) -> Rows:
    return Rows(tuple(Column(name, Datatype(kind)) for name, kind in columns.items()), [list(content)])


@pytest.mark.parametrize(
    ("order", "values"),
    [(SeriesOrder.DESCENDING, ["+Inf", "3", "-4", "NaN"]), (SeriesOrder.ASCENDING, ["-4", "3", "+Inf", "NaN"])],
)
def test_series_whose_value_is_nan_come_last_in_both_orders(order: SeriesOrder, values: list[str]) -> None:
    columns = {"label_path": Kind.STRING, "steps": Kind.ARRAY, "samples": Kind.ARRAY}
    content = [(f"/{number}", "[0]", f'["{text}"]') for number, text in enumerate(("NaN", "3", "inf", "-4"))]
    body = b"".join(encode_samples(rows(columns, *content), SampleSteps(0, 1, 1), is_instant=True, order=order))
    assert [series["value"][1] for series in json.loads(body)["data"]["result"]] == values
