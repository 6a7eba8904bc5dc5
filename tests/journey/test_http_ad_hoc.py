"""Ad hoc queries over whole streams, and recent events, for private keys, with pins and redaction."""

from typing import Any

import httpx
import pytest

from tests.journey.conftest import PRIVATE, PUBLIC, Service, Start

STREAM = "postgres.logs"
STORED_EVENT = {
    "id": "8f6e5c1c-32f2-4d0e-9d2d-7f6b6f0f0a01",
    "event_message": "connection from 10.1.2.3",
    "timestamp": "2026-01-01T00:00:00Z",
    "project": "ours",
    "level": "info",
    "tags": [{"a": 1}, "b"],
    "metadata": {"parsed": {"user_name": "bob@example.com"}, "list": [{"x": 1}]},
}


@pytest.fixture(scope="module", autouse=True)
def service_with_events(service: Service) -> None:
    other = {"event_message": "another's", "timestamp": "2025-12-31T00:00:00Z", "project": "theirs"}
    assert service.send(STREAM, [STORED_EVENT, other]).json()["accepted"] == 2


def create_key(service: Service, **terms: Any) -> dict[str, str]:
    response = service.client.post("/api/access-tokens", json={"scopes": "private", **terms})
    assert response.status_code == 201, response.text
    return {"X-API-KEY": response.json()["token"]}


def run_query(service: Service, sql: str, **parameters: str) -> httpx.Response:
    return service.client.get("/api/query", params={"sql": sql, **parameters})


def test_a_query_reads_any_stream(service: Service) -> None:
    answer = run_query(service, f"select project, m.parsed.user_name from `{STREAM}`, unnest(metadata) as m")
    assert answer.json() == {"result": [{"project": "ours", "user_name": "bob@example.com"}]}
    assert answer.headers["cordwood-rows"] == "1"


def test_a_query_may_be_called_bq_sql_and_sent_in_a_body(service: Service) -> None:
    text = f"select count(*) as n from `{STREAM}`"
    expected = {"result": [{"n": 2}]}
    assert service.client.get("/api/query", params={"bq_sql": text}).json() == expected
    assert service.client.post("/api/query", json={"sql": text}).json() == expected
    assert service.client.post("/api/query", data={"sql": text}).json() == expected
    assert service.client.request("GET", "/api/query", json={"sql": text}).json() == expected


def test_parameters_take_their_values_from_the_request(service: Service) -> None:
    text = f"select count(*) as n from `{STREAM}` where project = @project and (@level is null or level = @level)"
    assert run_query(service, text, project="ours").json()["result"] == [{"n": 1}]
    assert run_query(service, text, project="ours", level="error").json()["result"] == [{"n": 0}]
    assert run_query(service, text).json()["result"] == [{"n": 0}]
    posted = service.client.post("/api/query", json={"sql": text, "project": "theirs"})
    assert posted.json()["result"] == [{"n": 1}]


def test_a_query_is_answered_in_every_format(service: Service) -> None:
    text = f"select project from `{STREAM}` order by project"
    assert run_query(service, text, format="csv").text == "project\r\nours\r\ntheirs\r\n"
    assert run_query(service, text, format="ndjson").text == '{"project":"ours"}\n{"project":"theirs"}\n'
    assert run_query(service, text, format="parquet").content[:4] == b"PAR1"


def test_an_answer_is_truncated_to_a_thousand_rows(service: Service) -> None:
    answer = run_query(service, "select n from unnest(generate_array(1, 2000)) as n")
    assert len(answer.json()["result"]) == 1000
    assert answer.headers["cordwood-truncated"] == "max_rows=1000"


@pytest.mark.parametrize(
    ("sql", "status", "code", "place"),
    [
        ("select 1 frm x y", 400, "query.syntax", (1, 10)),
        ("select\n  n.y from (select 1 as x) as n", 400, "query.unknown-name", (2, 5)),
        ("select * from `postgres.log`", 422, "query.refused", (1, 15)),
        ("select * from `_quarantined`", 422, "query.refused", (1, 15)),
        ("delete from `postgres.logs` where true", 422, "query.refused", (1, 1)),
        ("select read_text('/etc/passwd')", 422, "query.refused", (1, 8)),
        ("select 1; select 2", 422, "query.refused", (1, 11)),
    ],
)
def test_an_invalid_query_is_refused_with_its_position(
    service: Service, sql: str, status: int, code: str, place: tuple[int, ...]
) -> None:
    answer = run_query(service, sql)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["status"].startswith(code or "query.")
    if place:
        assert (error["line"], error["column"]) == place
    assert service.client.get("/api/query/parse", params={"sql": sql}).status_code in (status, 200)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, "No query was sent"),
        ({"sql": " "}, "sql= was sent empty"),
        ({"bq_sql": ""}, "bq_sql= was sent empty"),
        ({"pg_sql": "select 1"}, "pg_sql= is not read here"),
        ({"sql": "select 1", "bq_sql": "select 1"}, "sent together"),
        ({"sql": "select 1", "backend_id": "x"}, "must be an integer"),
        ({"sql": "select 1", "backend_id": "7"}, "Backend not found"),
    ],
)
def test_invalid_combinations_of_parameters_are_400(service: Service, parameters: dict[str, str], words: str) -> None:
    answer = service.client.get("/api/query", params=parameters)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


@pytest.mark.parametrize("address", ["/api/sources/postgres.logs/recent", "/api/quarantine"])
@pytest.mark.parametrize("limit", ["0", "-1", "x", "", "1001", "9" * 5000])
def test_an_invalid_limit_is_400(service: Service, address: str, limit: str) -> None:
    answer = service.client.get(address, params={"limit": limit})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == f"limit is {limit[:40]!r}."


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("/api/sources/postgre.logs", "Did you mean postgres.logs?"),
        ("/api/sources/unheard-of", "Add it to your streams file."),
        ("/api/streams/unheard-of/events", "Add it to your streams file."),
        ("/api/endpoints/logs.al", "Did you mean logs.all?"),
        ("/api/endpoints/query/unheard-of", "GET /api/endpoints lists them, with a private key."),
    ],
)
def test_an_unknown_name_is_404_with_a_hint(service: Service, address: str, hint: str) -> None:
    answer = service.client.get(address)
    assert answer.status_code == 404
    assert answer.json()["error"]["hint"] == hint


def test_a_value_that_fails_at_run_time_has_a_hint_to_safe_cast(service: Service) -> None:
    error = run_query(service, f"select cast(event_message as int64), 1 / 0 from `{STREAM}`").json()["error"]
    assert error["status"] == "query.value"
    assert "SAFE_CAST" in error["hint"]


def test_a_query_is_parsed_without_running_it(service: Service) -> None:
    text = f"select @b, @a, @B from `{STREAM}`"
    answer = service.client.get("/api/query/parse", params={"sql": text})
    assert answer.json() == {"result": {"parameters": ["b", "a"], "expanded_query": text}}


@pytest.mark.parametrize(
    "address", ["/api/query?sql=select+1", "/api/query/parse?sql=select+1", "/api/sources/postgres.logs/recent"]
)
def test_ad_hoc_queries_and_recent_events_need_a_private_key(service: Service, address: str) -> None:
    assert httpx.get(service.url + address).status_code == 401
    assert httpx.get(service.url + address, headers={"X-API-KEY": PUBLIC}).status_code == 403
    assert httpx.get(service.url + address, headers=create_key(service, scopes="query")).status_code == 403
    assert httpx.get(service.url + address, headers={"X-API-KEY": PRIVATE}).status_code == 200


def test_a_pinned_key_may_not_read_whole_streams(service: Service) -> None:
    pinned = create_key(service, pins={"project": "ours"})
    text = f"select * from `{STREAM}` where project = @project"
    for address in ("/api/query", "/api/query/parse"):
        answer = httpx.get(service.url + address, params={"sql": text}, headers=pinned)
        assert (answer.status_code, answer.json()["error"]["status"]) == (403, "request.forbidden")


def test_a_redacted_key_gets_only_redacted_answers(service: Service) -> None:
    redacted = create_key(service, redact=True)
    text = f"select event_message, to_json_string(metadata) as m from `{STREAM}` where project = 'ours'"
    for headers in (redacted, {**redacted, "LF-ENDPOINT-REDACT-PII": "false"}):
        answer = httpx.get(f"{service.url}/api/query", params={"sql": text}, headers=headers)
        assert answer.json()["result"][0]["event_message"] == "connection from REDACTED"
        assert "bob@example.com" not in answer.text
    redacted_answer = httpx.get(
        f"{service.url}/api/query",
        params={"sql": text},
        headers={"X-API-KEY": PRIVATE, "LF-ENDPOINT-REDACT-PII": "true"},
    )
    assert "10.1.2.3" not in redacted_answer.text
    assert "10.1.2.3" in run_query(service, text).text


def test_recent_events_are_returned_as_sent_oldest_first(service: Service) -> None:
    recent = service.client.get(f"/api/sources/{STREAM}/recent").json()
    assert [event["project"] for event in recent] == ["theirs", "ours"]
    recent_event = recent[1]
    assert recent_event["timestamp"] == 1_767_225_600_000_000
    assert isinstance(recent_event["ingested_at"], int)
    for name in ("id", "event_message", "project", "level", "tags", "metadata"):
        assert recent_event[name] == STORED_EVENT[name]
    assert "level" not in recent[0]
    assert len(service.client.get(f"/api/sources/{STREAM}/recent", params={"limit": "1"}).json()) == 1


def test_recent_events_respect_pins_and_redaction(service: Service) -> None:
    address = f"{service.url}/api/sources/{STREAM}/recent"
    pinned = httpx.get(address, headers=create_key(service, pins={"project": "theirs"})).json()
    assert [event["project"] for event in pinned] == ["theirs"]
    redacted = httpx.get(address, headers=create_key(service, redact=True))
    assert redacted.status_code == 200
    assert "bob@example.com" not in redacted.text
    assert "10.1.2.3" not in redacted.text
    assert redacted.json()[1]["level"] == "info"


def test_recent_events_of_an_empty_stream_are_an_empty_list(service: Service) -> None:
    assert service.client.get("/api/sources/pgbouncer.logs.prod/recent").json() == []
    assert service.client.get("/api/sources/nobody/recent").status_code == 404
    assert service.client.get(f"/api/sources/{STREAM}/recent", params={"limit": "0"}).status_code == 400


def test_a_schema_for_a_redacted_key_omits_private_field_names(service: Service) -> None:
    service.send("realtime.logs.prod", [{"event_message": "m", "metadata": {"10.9.8.7": 1, "level": "info"}}])
    address = f"{service.url}/api/sources/realtime.logs.prod/schema"
    assert "10.9.8.7" in service.client.get(address).text
    redacted = httpx.get(address, headers=create_key(service, redact=True))
    assert "10.9.8.7" not in redacted.text
    assert "level" in redacted.text


def test_with_logflares_error_format_a_refusal_is_400_with_a_text(start: Start) -> None:
    service = start("--memory", "256MB", env={"CORDWOOD_COMPAT_ERRORS": "logflare"})
    refused = run_query(service, "select nothing")
    assert refused.status_code == 400
    assert list(refused.json()) == ["error"]
    assert "nothing" in refused.json()["error"]
    missing = service.client.get("/api/query")
    assert (missing.status_code, list(missing.json())) == (400, ["error"])
    assert httpx.get(f"{service.url}/api/query?sql=select+1").json() == {"error": "Unauthorized"}
