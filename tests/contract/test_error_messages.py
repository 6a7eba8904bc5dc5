"""Error messages and notices for mistakes that callers make, with code, position, message and hint.

Each row of the table `mistakes.jsonl` has the `sql` or `lql` that is sent, and the expected error, with or without
stored events. Queries of rows with a `notice` are answered, with this notice in the receipt.
"""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cordwood.app.in_process import InProcessApp, open_in_process_app
from cordwood.settings.settings import Settings

TABLE_ROWS = [json.loads(line) for line in Path(__file__).with_name("mistakes.jsonl").read_text().splitlines()]
MISTAKES = [row for row in TABLE_ROWS if "code" in row]
NOTICES = [row for row in TABLE_ROWS if "notice" in row]
EVENTS = [
    {
        "event_message": f"GET | {status} | /rest/v1/todos",
        "project": "default",
        "metadata": {
            "level": "error",
            "list": ["a", "b"],
            "one": 1,
            "ok": True,
            "request": {"path": "/rest/v1/todos", "method": "GET"},
            "response": {"status_code": status, "origin_time": 120},
        },
    }
    for status in (200, 500)
]


@pytest.fixture(scope="module", params=["without events", "with events"])
def app(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessApp]:
    defaults = Settings()
    serve = msgspec.structs.replace(defaults.serve, data_dir=str(tmp_path_factory.mktemp("mistakes") / "data"))
    with open_in_process_app(msgspec.structs.replace(defaults, serve=serve)) as app:
        if request.param == "with events":
            assert send(app, "/api/logs?source_name=cloudflare.logs.prod", EVENTS)[0] == 200
        yield app


def send(app: InProcessApp, path: str, body: object) -> tuple[int, Any]:
    status, _, answer = app.send("POST", path, json.dumps(body).encode(), {"content-type": "application/json"})
    return status, json.loads(answer)


def query_logs(app: InProcessApp, **parameters: str) -> tuple[int, str, Any]:
    """Query logs.all; return the status, the notice and the body of the answer."""
    body = json.dumps({"project": "default", **parameters}).encode()
    path = "/api/endpoints/query/logs.all"
    status, headers, answer = app.send("POST", path, body, {"content-type": "application/json"})
    return status, headers.get("cordwood-notice", ""), json.loads(answer)


def language(row: dict[str, str]) -> str:
    return "sql" if "sql" in row else "lql"


@pytest.mark.parametrize("row", MISTAKES, ids=lambda row: row[language(row)][:80])
def test_a_mistake_is_reported_with_position_message_and_hint(app: InProcessApp, row: dict[str, str]) -> None:
    name = language(row)
    status, answer = send(app, "/api/endpoints/query/logs.all", {"project": "default", name: row[name]})
    assert status in (400, 422), answer
    error = answer["error"]
    assert {
        name: row[name],
        "code": error["status"],
        "at": f"{error.get('line')}:{error.get('column')}",
        "message": error["message"],
        "hint": error.get("hint"),
    } == row


@pytest.mark.parametrize(
    ("sql", "at", "also"),
    [
        ("select cast(event_message as int64) from edge_logs", "1:8", None),
        ("select id, safe_cast(id as int64), cast(id as bool) from edge_logs", "1:12", "1:36"),
        ("select id from edge_logs\nwhere 1 / (length(event_message) - length(event_message)) > 1", "2:9", None),
        ("select parse_timestamp('%F', event_message) from edge_logs", "1:8", None),
        ("select timestamp(event_message) from edge_logs", "1:8", None),
        ("select [1, 2][offset(length(id))] from edge_logs", "1:14", None),
        ("select regexp_contains(event_message, concat(event_message, '(')) from edge_logs", "1:8", None),
        ("select 'x', 9223372036854775807 + length(id) from edge_logs", "1:33", None),
        ("select (select id from edge_logs union all select 'a') from edge_logs", "1:9", None),
    ],
)
def test_a_value_that_fails_in_a_row_is_reported_with_its_position(
    app: InProcessApp, sql: str, at: str, also: str | None
) -> None:
    status, _, answer = query_logs(app, sql=sql)
    if query_logs(app, lql="f:edge_logs")[2] == {"result": []}:
        return
    error = answer["error"]
    assert (status, error["status"], f"{error.get('line')}:{error.get('column')}") == (400, "query.value", at)
    assert also is None or error["hint"].endswith(f"It may also come from {also}.")


TYPED_EXPRESSIONS = (
    "5",
    "1.5",
    "id",
    "b'a'",
    "true",
    "timestamp",
    "current_date()",
    "metadata",
    "[id]",
    "struct(1 as a)",
    "json '1'",
)
FORMS_OF_TWO_VALUES = (
    "{} + {}", "{} = {}", "{} like {}", "{} || {}", "{} in ({})", "concat({}, {})", "substr({}, {})", "split({}, {})",
    "mod({}, {})", "lpad({}, {})", "regexp_extract({}, {})", "json_value({}, {})", "date_diff({}, {}, day)",
    "coalesce({}, {})", "[{}, {}]", "{} in unnest({})", "cast({} as int64) + {}", "string_agg({}, {})",
)  # fmt: skip
ENGINE_WORDS = re.compile(
    r"VARCHAR|BIGINT|_LITERAL|DOUBLE|\bBLOB\b|BOOLEAN|DECIMAL|STRUCT\(|TIME ZONE|list_|regexp_matches|~~|struct_|::|json_|TINYINT"
    r"|\bINTEGER\b|_p\.|another type|Nullable|Column"
)


def test_type_errors_contain_no_engine_terms(app: InProcessApp) -> None:
    """Combine each form with values of different types, which gives two hundred queries, most of which are refused."""
    texts = [
        form.format(*pair)
        for form in FORMS_OF_TWO_VALUES
        for pair in zip(TYPED_EXPRESSIONS, TYPED_EXPRESSIONS[3:] + TYPED_EXPRESSIONS[:3], strict=True)
    ]
    refused = 0
    for text in texts:
        status, _, answer = query_logs(app, sql=f"select {text} from edge_logs")
        if status == 200:
            continue
        refused += 1
        error = answer["error"]
        assert status in (400, 422), (text, answer)
        assert not ENGINE_WORDS.search(f"{error['message']} {error.get('hint')}"), (text, error)
        assert error.get("line") == 1, (text, error)
    assert refused > len(texts) / 2


def test_the_table_lists_each_mistake_once() -> None:
    texts = [row[language(row)] for row in TABLE_ROWS]
    assert len(texts) == len(set(texts)) >= 200


@pytest.mark.parametrize("row", NOTICES, ids=lambda row: row[language(row)][:80])
def test_a_likely_mistake_is_noted_in_the_receipt(app: InProcessApp, row: dict[str, str]) -> None:
    status, notice, _ = query_logs(app, **{language(row): row[language(row)]})
    assert (status, notice) == (200, row["notice"])


@pytest.mark.parametrize(
    "lql", ["f:edge_logs GET", 'f:edge_logs "or" "m.a=b" "x*"', "f:edge_logs timestamp:today id:a"]
)
def test_unambiguous_lql_has_no_notice(app: InProcessApp, lql: str) -> None:
    status, notice, _ = query_logs(app, lql=lql)
    assert (status, notice) == (200, "")


@pytest.mark.parametrize(
    "sql",
    [
        'select "x" as x from edge_logs where id is null',
        "select 'id' as x, id from edge_logs",
        'select id from edge_logs where event_message = "ID of all" and id is not distinct from null',
    ],
)
def test_unambiguous_sql_has_no_notice(app: InProcessApp, sql: str) -> None:
    status, notice, _ = query_logs(app, sql=sql)
    assert (status, notice) == (200, "")


def test_a_similar_known_path_is_suggested(app: InProcessApp) -> None:
    has_no_notice = query_logs(app, lql="f:edge_logs m.level:error s:id")[1] == ""
    suggestion = "; did you mean metadata.response.status_code?" if has_no_notice else ""
    assert query_logs(app, lql="f:edge_logs m.status:500 s:id")[1] == f"path never seen: metadata.status{suggestion}"
    answer = query_logs(app, sql="select status_code from edge_logs")[2]["error"]
    assert ("metadata.response.status_code" in answer["hint"]) is has_no_notice


@pytest.mark.parametrize(
    ("lql", "rows"),
    [
        ("f:edge_logs s:id s:id limit:0", []),
        ("f:edge_logs m.response.status_code:[200,404] s:m.response.status_code", [{"status_code": 200}]),
        ("f:edge_logs -m.response.status_code:[200,404] s:m.response.status_code", [{"status_code": 500}]),
        ("f:edge_logs t:now-1h..now-30m", []),
        ("f:edge_logs t:now-1h..now -m.response.status_code:500 s:m.response.status_code", [{"status_code": 200}]),
        ("f:edge_logs t:00:00 m.response.status_code:1", []),
        ("f:edge_logs m.one:true", []),
        ("f:edge_logs m.one:1 s:m.one", [{"one": 1}] * 2),
        ("f:edge_logs m.ok:true -m.ok:false s:m.ok", [{"ok": True}] * 2),
        ("f:edge_logs m.level:@>error s:m.level", [{"level": "error"}] * 2),
        ("f:edge_logs m.level:@>~^err s:m.level", [{"level": "error"}] * 2),
        ("f:edge_logs m.level:@>err", []),
        ("f:edge_logs m.list:@>b s:m.list", [{"list": ["a", "b"]}] * 2),
        ("f:edge_logs c:group_by(m.level) c:p90(m.response.status_code) c:p99.9(m.response.origin_time)", None),
    ],
)
def test_lql_syntax_is_accepted(app: InProcessApp, lql: str, rows: list[dict[str, int]] | None) -> None:
    is_empty = query_logs(app, lql="f:edge_logs")[2] == {"result": []}
    status, _, answer = query_logs(app, lql=lql)
    assert status == 200, answer
    if rows is None:
        rows = [{"level": "error", "p90_status_code": 500.0, "p99_9_origin_time": 120.0}]  # type: ignore[dict-item]
    assert answer["result"] == ([] if is_empty else rows)


def test_time_buckets_of_several_units_are_filled(app: InProcessApp) -> None:
    status, _, answer = query_logs(app, lql="f:edge_logs t:now-1h..now c:count(*) c:group_by(t::5m)")
    times = [row["timestamp"] for row in answer["result"]]
    assert status == 200
    assert 12 <= len(times) <= 13
    assert {later - earlier for earlier, later in pairwise(times)} == {5 * 60 * 1_000_000}
    assert {time % (5 * 60 * 1_000_000) for time in times} == {0}


def get(app: InProcessApp, address: str, **headers: str) -> tuple[int, dict[str, str], Any]:
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
    status, answer_headers, answer = app.send("GET", address, b"", header_fields)
    return status, answer_headers, json.loads(answer)


QUERY_PATH = "/api/endpoints/query/logs.all"


@pytest.mark.parametrize("misspelled", ["projct", "Project", "projects"])
def test_a_misspelled_required_parameter_is_reported(app: InProcessApp, misspelled: str) -> None:
    status, _, answer = get(app, f"{QUERY_PATH}?{misspelled}=default")
    assert (status, answer["error"]["status"]) == (400, "request.bad-parameter")
    assert answer["error"]["message"] == f"The parameter project is required, and {misspelled} was sent."
    assert answer["error"]["hint"] == "Send it as project."
    status, body = send(app, QUERY_PATH, {misspelled: "default"})
    assert (status, body["error"]["hint"]) == (400, "Send it as project.")


def test_an_unknown_parameter_is_noted_in_the_receipt(app: InProcessApp) -> None:
    for _ in range(2):
        status, headers, _ = get(app, f"{QUERY_PATH}?project=default&limt=5&format=json")
        assert (status, headers["cordwood-notice"]) == (200, "parameter ignored: limt")
    assert "cordwood-notice" not in get(app, f"{QUERY_PATH}?project=default&format=json")[1]
    assert query_logs(app, lql="f:edge_logs s:id", since="1h")[1] == "parameter ignored: since"


@pytest.mark.parametrize(
    ("headers", "hint"),
    [
        ({"authorization": "s3cret"}, "The header Authorization was sent without Bearer"),
        ({"authorization": "Token s3cret"}, "The header Authorization was sent without Bearer"),
        ({"apikey": "s3cret"}, "The header apikey is not read: send the key in X-API-KEY."),
        ({}, "Send a key in the header X-API-KEY, or as Authorization: Bearer."),
    ],
)
def test_a_key_in_an_unsupported_header_or_form_is_reported(
    app: InProcessApp, headers: dict[str, str], hint: str
) -> None:
    status, _, answer = get(app, f"{QUERY_PATH}?project=default", x_api_key="", **headers)
    assert (status, answer["error"]["status"]) == (401, "request.no-key")
    assert answer["error"]["hint"].startswith(hint)
    assert "s3cret" not in json.dumps(answer)


@pytest.mark.parametrize(
    ("address", "suggested_path"),
    [
        ("/api/log", "/api/logs"),
        ("/api/event", "/api/events"),
        ("/api/endpoint", "/api/endpoints"),
        ("/heath", "/health"),
    ],
)
def test_a_misspelled_path_has_a_suggestion(app: InProcessApp, address: str, suggested_path: str) -> None:
    status, _, answer = get(app, address)
    assert (status, answer["error"]["hint"]) == (404, f"Did you mean {suggested_path}?")


def test_a_sub_query_named_as_a_stream_is_reported(app: InProcessApp) -> None:
    status, answer = send(app, "/api/logs?source_name=edge_logs", [{"event_message": "x"}])
    hint = "edge_logs is a sub-query of the endpoint logs.all; the stream that it reads is cloudflare.logs.prod."
    assert (status, answer["error"]["hint"]) == (404, hint)
