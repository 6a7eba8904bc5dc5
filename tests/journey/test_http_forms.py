"""Every route that takes events, in the form that its senders have."""

import json
from typing import Any

import pytest

from tests.journey.conftest import Service

EDGE = "cloudflare.logs.prod"
SQL = "select event_message from edge_logs order by event_message"


@pytest.mark.parametrize("prefix", ["/logs", "/api/logs", "/api/events"])
@pytest.mark.parametrize(
    ("suffix", "media", "body", "message"),
    [
        ("", "application/json", {"project": "P", "message": "m"}, "m"),
        ("/vector", "application/json", [{"project": "P", "message": "m"}], "m"),
    ],
)
def test_events_are_taken_under_each_prefix(
    service: Service, prefix: str, suffix: str, media: str, body: object, message: str
) -> None:
    project = f"{prefix}{suffix}".replace("/", "-")
    text = json.dumps(body).replace('"P"', json.dumps(project))
    answer = _post(service, prefix + suffix, text, media)
    assert answer == {"message": "Logged!", "accepted": 1, "duplicates": 0, "quarantined": 0, "reasons": []}
    assert service.rows("logs.all", project=project, sql=SQL) == [{"event_message": message}]


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
def test_each_form_is_taken(service: Service, path: str, media: str, body: str) -> None:
    assert _post(service, path, body, media)["accepted"] == 1


def test_what_is_set_aside_is_counted_with_reasons_and_a_part_can_succeed(service: Service) -> None:
    answer = _post(service, "/logs", '{"id": "a"}\nnonsense\n', "application/x-ndjson")
    assert (answer["accepted"], answer["quarantined"]) == (1, 1)
    ((reason),) = answer["reasons"]
    assert reason["index"] == 1


@pytest.mark.parametrize(("media", "empty"), [("application/json", b"{}"), ("application/x-protobuf", b"")])
def test_otlp_is_answered_in_its_own_encoding(service: Service, media: str, empty: bytes) -> None:
    answer = service.client.post(
        "/v1/logs", params={"source_name": EDGE}, content=empty, headers={"content-type": media}
    )
    assert (answer.status_code, answer.content, answer.headers["content-type"].split(";")[0]) == (200, empty, media)


def _post(service: Service, path: str, body: str, media: str) -> dict[str, Any]:
    answer = service.client.post(path, params={"source_name": EDGE}, content=body, headers={"content-type": media})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found
