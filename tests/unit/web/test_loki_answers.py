"""Answers of Loki's read API: the order of series, and the encoding of labels and fields."""

import json

import pytest

from cordwood.errors import AnswerTooLarge
from cordwood.logql.labels import final_pipeline_state
from cordwood.logql.parse import parse_log_query
from cordwood.logql.syntax import SampleSteps
from cordwood.model.datatype import Column, Datatype, Kind, Row, Rows
from cordwood.web.loki_answers import SeriesOrder, encode_detected_field_values, encode_samples, encode_streams


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


ENTRY_COLUMNS = {
    "source_name": Kind.STRING,
    "timestamp": Kind.TIMESTAMP,
    "event_message": Kind.STRING,
    "metadata": Kind.VARIANT,
}


@pytest.mark.parametrize("last_stage", ["", ' | line_format "short"'])
def test_templates_that_repeat_the_line_are_limited_in_all_stages_together(last_stage: str) -> None:
    doubled = ' | line_format "{{__line__}}{{__line__}}"'
    state = final_pipeline_state(parse_log_query("{}" + doubled * 30 + last_stage))
    with pytest.raises(AnswerTooLarge, match="line_format"):
        list(encode_streams(rows(ENTRY_COLUMNS, ("s", 1, "a line", None)), state, is_categorized=False))
    # Each entry is small enough, but all of them together are not.
    state = final_pipeline_state(parse_log_query("{}" + doubled * 15 + last_stage))
    entries: list[Row] = [("s", number, "a line", None) for number in range(100)]
    with pytest.raises(AnswerTooLarge, match="line_format"):
        list(encode_streams(rows(ENTRY_COLUMNS, *entries), state, is_categorized=False))
    assert b'"short"' in b"".join(
        encode_streams(
            rows(ENTRY_COLUMNS, *entries),
            final_pipeline_state(parse_log_query('{} | line_format "short"')),
            is_categorized=False,
        )
    )


def test_the_number_of_values_of_a_field_is_limited() -> None:
    lines = [*(f'{{"n": {number % 7}}}' for number in range(50)), "n=x m=y", '{"n": ""}']
    entries: list[Row] = [("s", number, line, None) for number, line in enumerate(lines)]
    for limit, values in ((3, ["0", "1", "2"]), (7, list("0123456")), (100, list("0123456x"))):
        body = b"".join(encode_detected_field_values(rows(ENTRY_COLUMNS, *entries), "n", limit))
        assert json.loads(body) == {"values": values, "limit": limit}
