"""Entries with empty, missing or unusual values: the conditions of a query and the labels of its answer agree."""

import json
import math
from collections.abc import Iterator
from typing import Any, Final

import pytest

from cordwood.logql.labels import EventLabels, final_pipeline_state
from cordwood.logql.log_queries import PipelineTranslator
from cordwood.logql.parse import parse_log_query
from cordwood.logql.syntax import LogqlRequest, ResultKind
from cordwood.lql.columns import SubQueryInfo
from cordwood.model.datatype import Kind
from cordwood.web.loki_answers import encode_streams
from tests.spec_runner.world import ENGINES
from tests.unit.logql.conftest import LogqlEngine, open_logql_engine
from tests.unit.logql.entries import END_US, SECOND_US, START_US

# The events by a short name, which is also the event's field `name`: the line, and the other fields of the metadata.
_EVENTS: Final[dict[str, tuple[str | None, dict[str, Any]]]] = {
    "nan": ("a number", {"n": "NaN"}),
    "three": ("a number", {"n": "3"}),
    "seven": ("a number", {"n": "7"}),
    "empty level": ("levels", {"level": "", "severity": "ERROR"}),
    "no level": ("levels", {"level": ""}),
    "empty label": ("labels", {"labels": {"host": ""}, "structured_metadata": {"tid": ""}, "tid": "T", "host": "h"}),
    "two keys": ("labels", {"user_id": "third", "user-id": "second", "user": {"id": "first"}}),
    "empty member": ('{"a_b": "", "a": {"b": "x"}, "c": "", "list": []}', {"a_b": ""}),
    "request": ('{"msg": "hello", "path": "/pay", "level": "warn", "n": 1}', {"path": "/meta", "level": "info"}),
    "twice": ('k= k="" k=v k=w j=1 j="2"', {}),
    "escapes": (r'msg="a\nb \"q\" \u00e9\ud83d\ude00" win="C:\\x" slash="\/\t" plain=C:\x ok="é ü"', {}),
    "bad escapes": (r'win="C:\xyz" win=later lone="\ud800" also="a	b\n" ok=1', {}),
    "null line": (None, {}),
    "empty line": ("", {}),
}
_ENDPOINT_SQL: Final = """
with odd_logs as (select t.id, t.timestamp, t.event_message, t.metadata from `odd` as t) select * from odd_logs
"""


@pytest.fixture(scope="module", params=ENGINES, ids=lambda kind: kind.name)
def odd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogqlEngine]:
    events = [
        {
            "id": name,
            "timestamp": START_US + number * SECOND_US,
            "event_message": line,
            "metadata": {"name": name, **metadata},
        }
        for number, (name, (line, metadata)) in enumerate(_EVENTS.items())
    ]
    opened = open_logql_engine(request.param, tmp_path_factory.mktemp("odd"), {"odd": events}, _ENDPOINT_SQL)
    yield opened
    opened.engine.close()


def log_request(query: str) -> LogqlRequest:
    return LogqlRequest(ResultKind.ENTRIES, (query,), START_US, END_US, is_oldest_first=True)


def names_found(odd: LogqlEngine, query: str) -> set[str]:
    """Return the names of the events that a log query finds."""
    columns, rows = odd.rows(log_request(query))
    metadata = [row[columns.index("metadata")] for row in rows]
    return {(one[0] if isinstance(one, list) else one)["name"] for one in metadata}  # type: ignore[index, call-overload]


def streams_in_answer(odd: LogqlEngine, query: str) -> list[dict[str, Any]]:
    state = final_pipeline_state(parse_log_query(query))
    body = b"".join(encode_streams(odd.answer(log_request(query)), state, is_categorized=False))
    streams: list[dict[str, Any]] = json.loads(body)["data"]["result"]
    return streams


def labels_in_answer(odd: LogqlEngine, query: str) -> dict[str, dict[str, str]]:
    """Return the labels of each entry that a log query finds, as the answer has them, by the name of the event."""
    return {stream["stream"]["name"]: stream["stream"] for stream in streams_in_answer(odd, query)}


@pytest.mark.parametrize(
    ("stages", "label", "name", "value"),
    [
        ("", "level", "empty level", "error"),
        ("", "tid", "empty label", "T"),
        ("", "host", "empty label", "h"),
        ("", "user_id", "two keys", "first"),
        ("| json", "a_b", "empty member", "x"),
        ('| json y="c", z="a"', "z", "empty member", '{"b":"x"}'),
        ("| logfmt", "k", "twice", "v"),
        ("| logfmt", "j", "twice", "1"),
        ("| logfmt", "msg", "escapes", 'a\nb "q" é\U0001f600'),
        ("| logfmt", "win", "escapes", r"C:\x"),
        ("| logfmt", "slash", "escapes", "/\t"),
        ("| logfmt", "plain", "escapes", r"C:\x"),
        ("| logfmt", "ok", "escapes", "é ü"),
        ('| logfmt one="plain", two="plain"', "one", "escapes", r"C:\x"),
        ('| logfmt one="plain", two="plain"', "two", "escapes", r"C:\x"),
    ],
)
def test_filters_and_answers_agree_on_the_value_of_a_label(
    odd: LogqlEngine, stages: str, label: str, name: str, value: str
) -> None:
    query = f"{{}} {stages} | {label}={json.dumps(value, ensure_ascii=False)}"
    assert names_found(odd, query) == {name}
    assert labels_in_answer(odd, f"{{}} {stages}")[name][label] == value
    assert (((label, value),), {0: 1.0}) in odd.samples(f"sum by ({label}) (count_over_time({query} [1h]))").items()


@pytest.mark.parametrize("label", ["win", "lone", "also"])
def test_a_logfmt_value_with_an_escape_that_json_does_not_have_is_no_label(odd: LogqlEngine, label: str) -> None:
    assert label not in labels_in_answer(odd, "{} | logfmt")["bad escapes"]
    assert "bad escapes" in names_found(odd, f'{{}} | logfmt | {label}="" | ok=1')


def test_an_empty_value_equals_a_missing_label(odd: LogqlEngine) -> None:
    assert names_found(odd, '{level="error"}') == {"empty level"}
    assert names_found(odd, '{detected_level="error"}') == {"empty level"}
    assert "empty member" in names_found(odd, '{} | json y="c" | y=""')
    assert ("level", "unknown") not in labels_in_answer(odd, "{}")["no level"].items()


def test_nan_in_a_field_is_neither_greater_than_a_number_nor_the_maximum(odd: LogqlEngine) -> None:
    assert names_found(odd, "{} | n > 1") == {"three", "seven"}
    assert names_found(odd, "{} | n >= 7") == {"seven"}
    assert names_found(odd, "{} | n != 3") == {"nan", "seven"}
    assert odd.sample("max_over_time({} | unwrap n [1h]) by ()") == 7
    assert odd.sample("min_over_time({} | unwrap n [1h]) by ()") == 3
    assert math.isnan(odd.sample('max_over_time({} | name="nan" | unwrap n [1h]) by ()'))


@pytest.mark.parametrize(
    ("stages", "line", "labels"),
    [
        ('json | line_format "{{.msg}}" | drop msg', "hello", {"level": "info", "path": "/meta", "n": "1"}),
        ('json | line_format "{{.msg}}" | keep level', "hello", {"level": "info"}),
        (
            'drop path, level | json | line_format "{{.path}} {{.level}}"',
            "/pay warn",
            {"path": "/pay", "level": "warn"},
        ),
        ('json | drop path | line_format "<{{.path}}>"', "<>", {"msg": "hello", "level": "info"}),
        ('keep name | json | keep path | line_format "{{.path}}"', "/pay", {"path": "/pay"}),
        ('json | line_format "{{.msg}}" | line_format "{{.msg}}, {{__line__}}" | drop msg', "hello, hello", {"n": "1"}),
        ("json | drop path | json", None, {"path": "/pay", "level": "info"}),
        ("json | keep name | json n | line_format `{{.n}}{{.msg}}`", "1", {"n": "1", "name": "request"}),
    ],
)
def test_a_stage_affects_only_what_comes_from_the_stages_before_it(
    odd: LogqlEngine, stages: str, line: str | None, labels: dict[str, str]
) -> None:
    (stream,) = streams_in_answer(odd, f'{{}} | name="request" | {stages}')
    assert stream["values"][0][1] == (line or _EVENTS["request"][0])
    assert labels.items() <= stream["stream"].items()
    for label in ("path", "level", "msg", "n"):
        query = f'{{}} | name="request" | {stages} | {label}="{stream["stream"].get(label, "")}"'
        assert len(odd.lines(query)) == 1, query


def test_a_parser_after_drop_or_keep_extracts_labels_again(odd: LogqlEngine) -> None:
    assert names_found(odd, '{} | drop path | json | path="/pay"') == {"request"}
    assert names_found(odd, '{} | json | drop path | path="/pay"') == set()
    assert names_found(odd, "{} | keep job | json | n=1") == {"request"}
    counted = 'sum by (level) (count_over_time({} | name="request" | drop level | json [1h]))'
    assert odd.samples(counted) == {(("level", "warn"),): {0: 1.0}}
    by_stream = odd.samples('count_over_time({} | name="request" | drop level | json [1h])')
    assert list(by_stream) == [(("service_name", "odd_logs"), ("source_name", "odd_logs"))]


@pytest.mark.parametrize(
    "line_filter",
    ['|~ ".*"', '|~ "^$"', '|~ "x?"', '|~ "a|(b|)"', '|~ "a" or "^$"', '!~ ".+"', '!~ "a"', '|= ""', '!= "a"'],
)
def test_a_missing_line_is_found_like_an_empty_one(odd: LogqlEngine, line_filter: str) -> None:
    assert names_found(odd, f'{{}} {line_filter} | name=~"(null|empty) line"') == {"null line", "empty line"}


@pytest.mark.parametrize("line_filter", ['|~ "a|b"', '|~ ".+"', '!~ ".*"', '!~ "^$"', '|= "a"', '!= ""'])
def test_a_missing_line_is_left_out_like_an_empty_one(odd: LogqlEngine, line_filter: str) -> None:
    assert names_found(odd, f'{{}} {line_filter} | name=~"(null|empty) line"') == set()


@pytest.mark.parametrize("line_filter", ['|= "error"', '|~ "error"', '|~ "(?i)error|warn"', '|= "x" |~ "err.r"'])
def test_a_filter_that_an_index_can_use_reads_the_column_of_the_lines_itself(line_filter: str) -> None:
    info = SubQueryInfo("odd", {"event_message": Kind.STRING, "timestamp": Kind.TIMESTAMP}, lambda _: False, "")
    conditions = PipelineTranslator(EventLabels(info)).translate_pipeline(parse_log_query(f"{{}} {line_filter}"))
    assert conditions
    texts = [condition.sql("bigquery") for condition in conditions]
    assert all(text.startswith(("INSTR(event_message", "REGEXP_CONTAINS(event_message")) for text in texts), texts
