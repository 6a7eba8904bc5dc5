"""Every ingest route, with the formats that its senders use."""

import json
from typing import Any

import pytest

from tests.journey.conftest import Service

EDGE_STREAM = "cloudflare.logs.prod"
MESSAGES_QUERY = "select event_message from edge_logs order by event_message"


@pytest.mark.parametrize("prefix", ["/logs", "/api/logs", "/api/events"])
@pytest.mark.parametrize(
    ("suffix", "media", "body", "message"),
    [
        ("", "application/json", {"project": "P", "message": "m"}, "m"),
        ("/vector", "application/json", [{"project": "P", "message": "m"}], "m"),
    ],
)
def test_events_are_accepted_under_each_prefix(
    service: Service, prefix: str, suffix: str, media: str, body: object, message: str
) -> None:
    project = f"{prefix}{suffix}".replace("/", "-")
    text = json.dumps(body).replace('"P"', json.dumps(project))
    answer = _post(service, prefix + suffix, text, media)
    assert answer == {"message": "Logged!", "accepted": 1, "duplicates": 0, "quarantined": 0, "reasons": []}
    assert service.rows("logs.all", project=project, sql=MESSAGES_QUERY) == [{"event_message": message}]


@pytest.mark.parametrize(
    ("path", "media", "body"),
    [
        ("/logs/json", "application/json", '{"a": 1}'),
        ("/logs/cloudflare", "text/plain; charset=utf-8", '{"EdgeStartTimestamp": 1690000000000000000}\n'),
        ("/logs/syslog", "application/logplex-1", "<13>1 - h a - - - text"),
        ("/api/logs/logplex", "application/logplex-1", "23 <13>1 - h a - - - text2"),
        ("/logs/browser/reports", "application/reports+json", '[{"type": "csp"}]'),
        ("/logs/browser/reports", "application/csp-report", '{"csp-report": {}}'),
        ("/logs/cloud-event", "application/json", '{"a": 1}'),
    ],
)
def test_each_format_is_accepted(service: Service, path: str, media: str, body: str) -> None:
    assert _post(service, path, body, media)["accepted"] == 1


def test_a_batch_of_rsyslog_s_omhttp_is_stored_line_by_line(service: Service) -> None:
    """Send lines as rsyslog's omhttp does with the guide's template and `batch.format="newline"`."""
    line = '<139>1 2026-11-24T09:00:00.123456+00:00 web-1 backup 7 M7 [origin@1 ip="10.0.0.1"] disk {} is full'
    body = "".join(f"{line.format(number)}\n" for number in range(3))
    answer = _post(service, "/logs/syslog", body, "application/syslog")
    assert (answer["accepted"], answer["quarantined"]) == (3, 0)


def test_quarantined_events_are_counted_with_reasons_and_the_rest_is_stored(service: Service) -> None:
    answer = _post(service, "/logs", '{"id": "a"}\nnonsense\n', "application/x-ndjson")
    assert (answer["accepted"], answer["quarantined"]) == (1, 1)
    ((reason),) = answer["reasons"]
    assert reason["index"] == 1


FORM_MEDIA_TYPE = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("path", "body", "count"),
    [
        ("/logs", '{"event_message": "x", "project": "P"}', 1),
        ("/logs", '[{"event_message": "x", "project": "P"}, {"event_message": "x", "project": "P"}]', 2),
        ("/logs", '{"batch": [{"event_message": "x", "project": "P"}]}', 1),
        ("/logs", '\r\n\t {"event_message": "x", "project": "P"}', 1),
        ("/logs", '\ufeff{"event_message": "x", "project": "P"}', 1),
        ("/logs", '{"event_message": "x", "project": "P", "metadata": {"a+b": "%41 & c=d"}}', 1),
        ("/logs/vector", '[{"message": "x", "project": "P"}]', 1),
    ],
)
def test_json_without_a_content_type_is_read_as_json(service: Service, path: str, body: str, count: int) -> None:
    project = f"untyped-{hash((path, body))}"
    assert _post(service, path, body.replace('"P"', json.dumps(project)), FORM_MEDIA_TYPE)["accepted"] == count
    assert service.rows("logs.all", project=project, sql=MESSAGES_QUERY) == [{"event_message": "x"}] * count


def test_values_of_json_are_not_percent_decoded(service: Service) -> None:
    _post(service, "/logs", '{"event_message": "a+b %41 & c=d", "project": "undecoded"}', FORM_MEDIA_TYPE)
    assert service.rows("logs.all", project="undecoded", sql=MESSAGES_QUERY) == [{"event_message": "a+b %41 & c=d"}]


@pytest.mark.parametrize("path", ["/logs/json", "/logs/browser/reports", "/logs/cloud-event", "/logs/cloudflare"])
def test_other_json_routes_accept_it_without_a_content_type(service: Service, path: str) -> None:
    assert _post(service, path, '{"a": 1}', FORM_MEDIA_TYPE)["accepted"] == 1


@pytest.mark.parametrize("body", ['{"event_message": "x"', "{a}=b", "[x]=1", "{", '{"a": 1}&b=2', "{}x"])
def test_invalid_json_is_refused_and_not_read_as_a_form_field(service: Service, body: str) -> None:
    answer = service.client.post(
        "/logs",
        params={"source_name": EDGE_STREAM},
        content=body,
        headers={"content-type": f"{FORM_MEDIA_TYPE}; charset=utf-8"},
    )
    assert answer.status_code == 400
    assert "not JSON" in answer.json()["error"]["message"]
    names = service.client.get(f"/api/sources/{EDGE_STREAM}/schema").text
    assert "event_message\\" not in names
    assert "{a}" not in names


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("event_message=%7B%22a%22%3A1%7D&project=PROJECT", '{"a":1}'),
        ("project=PROJECT&event_message={not encoded}", "{not encoded}"),
        ("event_message=[1]&project=PROJECT", "[1]"),
        ("%7Bx%7D=1&event_message=odd+name&project=PROJECT", "odd name"),
    ],
)
def test_a_form_is_decoded_as_a_form(service: Service, body: str, message: str) -> None:
    project = f"form-{abs(hash(body))}"
    assert _post(service, "/logs", body.replace("PROJECT", project), FORM_MEDIA_TYPE)["accepted"] == 1
    assert service.rows("logs.all", project=project, sql=MESSAGES_QUERY) == [{"event_message": message}]


@pytest.mark.parametrize("path", ["/api/endpoints/query/logs.all", "/api/query"])
def test_a_query_in_json_without_a_content_type_is_read_as_json(service: Service, path: str) -> None:
    body = json.dumps({"sql": "select '1+1 %41' as x", "project": "x"})
    answer = service.client.post(path, content=body, headers={"content-type": FORM_MEDIA_TYPE})
    assert (answer.status_code, answer.json()) == (200, {"result": [{"x": "1+1 %41"}]})


def test_a_query_that_only_begins_like_json_is_refused(service: Service) -> None:
    answer = service.client.post(
        "/api/endpoints/query/logs.all",
        content='{"project": "x"}&sql=select+1',
        headers={"content-type": FORM_MEDIA_TYPE},
    )
    assert (answer.status_code, answer.json()["error"]["status"]) == (400, "request.bad-body")


@pytest.mark.parametrize(("media", "empty"), [("application/json", b"{}"), ("application/x-protobuf", b"")])
def test_otlp_is_answered_in_the_encoding_of_the_request(service: Service, media: str, empty: bytes) -> None:
    answer = service.client.post(
        "/v1/logs", params={"source_name": EDGE_STREAM}, content=empty, headers={"content-type": media}
    )
    assert (answer.status_code, answer.content, answer.headers["content-type"].split(";")[0]) == (200, empty, media)


def _post(service: Service, path: str, body: str, media: str) -> dict[str, Any]:
    answer = service.client.post(
        path, params={"source_name": EDGE_STREAM}, content=body, headers={"content-type": media}
    )
    assert answer.status_code == 200, answer.text
    reply: dict[str, Any] = answer.json()
    return reply
