"""Alerts with hostile senders and callers: access control, and hostile texts of events."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.journey.alerting import WebhookReceiver
from tests.journey.conftest import PUBLIC, Service, Start, create_key
from tests.machine_speed import scaled
from tests.waiting import until

STREAM = "postgres.logs"
ALERT_ENDPOINT = """/*
name = "senders"
max_rows = 5000
[alert]
every = "1s"
condition = "n > 0"
group_by = ["project", "message"]
text = "{project}: {message}"
send_to = ["hook"]
*/
select t.project, t.event_message as message, count(*) as n from `postgres.logs` as t group by project, message
"""
# Texts of events with markup, control characters or template syntax.
HOSTILE_TEXTS = [
    "<!channel> <https://evil.example|click>",
    "</script><script>alert(1)</script>",
    "\x1b[2J\x9b31m\x00\r\nBcc: all@example.com",
    "{project} {{value}} {0.__class__} %s ${jndi:ldap://evil}",
    "\u202etxt.exe\u2066",
    "x" * 100_000,
    "\U0001f600" * 3_000,
    "",
]


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    opened = WebhookReceiver()
    yield opened
    opened.close()


@pytest.fixture
def service_with_alert(start: Start, tmp_path: Path, receiver: WebhookReceiver) -> Service:
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "senders.sql").write_text(ALERT_ENDPOINT)
    return start(
        "--endpoints",
        str(tmp_path / "queries"),
        env={
            "CORDWOOD_ALERTS_TARGETS": f"hook = {receiver.target}?token=s3cret-in-the-address",
            "CORDWOOD_ALERTS_REFUSE_ADDRESSES": "private",
            "CORDWOOD_ALERTS_SEND_RATE": "1000/s",
            "CORDWOOD_ALERTS_SIGNING_SECRET": "s3cret-of-signatures",
        },
    )


ROUTES = [
    ("GET", "/api/alerts"),
    ("GET", "/api/alerts/history"),
    ("GET", "/api/alerts/senders/preview"),
    ("GET", "/api/alerts/silences"),
    ("POST", "/api/alerts/silences"),
    ("DELETE", "/api/alerts/silences/x"),
    ("POST", "/api/alerts/targets/hook/test"),
]


def test_only_an_unrestricted_private_key_may_read_alerts(
    service_with_alert: Service, receiver: WebhookReceiver
) -> None:
    keys = {
        "none": None,
        "public": PUBLIC,
        "query": create_key(service_with_alert, scopes="query"),
        "endpoint": create_key(service_with_alert, scopes="query:endpoint:senders"),
        "pinned": create_key(service_with_alert, scopes="private", pins={"project": "p"}),
        "redacted": create_key(service_with_alert, scopes="private", redact="always"),
    }
    for name, key in keys.items():
        headers = {} if key is None else {"X-API-KEY": key}
        with httpx.Client(base_url=service_with_alert.url, headers=headers) as client:
            statuses = [client.request(method, path, json={"for": "1h"}).status_code for method, path in ROUTES]
        assert set(statuses) == {401 if key is None else 403}, name
    assert receiver.received == []


def test_hostile_texts_reach_targets_and_pages_as_bounded_text(
    service_with_alert: Service, receiver: WebhookReceiver
) -> None:
    events = [{"project": "p", "event_message": text} for text in HOSTILE_TEXTS]
    assert service_with_alert.send(STREAM, events).json()["accepted"] == len(events)
    until(lambda: len(receiver.accepted_changes) == len(events))
    for body in receiver.received:
        assert len(json.dumps(body)) < 256_000
    history = service_with_alert.client.get("/api/alerts/history").json()["history"]
    response = service_with_alert.client.get("/api/alerts")
    assert response.headers["content-type"].startswith("application/json")
    assert len(response.json()["alerts"][0]["instances"]) == len(events)
    assert all(len(item.get("text", "")) <= 500 for item in history)


def test_the_number_of_groups_is_limited_and_reported(service_with_alert: Service, receiver: WebhookReceiver) -> None:
    for first in range(0, 3_000, 1_000):
        events = [{"project": "p", "event_message": f"m{number}"} for number in range(first, first + 1_000)]
        assert service_with_alert.send(STREAM, events).status_code == 200
    until(lambda: len(receiver.accepted_changes) >= 1_000, 60)
    alert = service_with_alert.client.get("/api/alerts").json()["alerts"][0]
    assert (alert["firing"], alert["pending"], len(alert["instances"])) == (1_000, 0, 100)
    assert alert["notice"] == "Only the first 1,000 groups are watched."
    assert service_with_alert.query("senders").status_code == 200


def test_slow_receivers_do_not_delay_callers(start: Start, tmp_path: Path, receiver: WebhookReceiver) -> None:
    """Check that slow receivers do not occupy the threads that resolve host names, check keys and match patterns."""
    (tmp_path / "queries").mkdir()
    names = [f"hook{number}" for number in range(40)]
    text = ALERT_ENDPOINT.replace('send_to = ["hook"]', f"send_to = {json.dumps(names)}").replace(
        'group_by = ["project", "message"]', 'group_by = ["project"]'
    )
    (tmp_path / "queries" / "senders.sql").write_text(text)
    receiver.delay = 8.0
    service = start(
        "--endpoints",
        str(tmp_path / "queries"),
        env={
            "CORDWOOD_ALERTS_TARGETS": "\n".join(f"{name} = {receiver.target}" for name in names),
            "CORDWOOD_ALERTS_REFUSE_ADDRESSES": "private",
        },
    )
    assert service.send(STREAM, [{"project": "p", "event_message": "x"}]).status_code == 200
    # Python's default executor has at most 32 threads, fewer than the 40 targets.
    until(lambda: receiver.under_way >= 6)
    time.sleep(0.5)
    began = time.monotonic()
    for number in range(3):
        answer = service.query("usage.api-counts", interval="hourly", project=f"p{number}")
        assert answer.status_code == 200
        assert service.client.get("/api/status").status_code == 200
    assert time.monotonic() - began < scaled(4)
    assert receiver.under_way >= 6, "the receivers had not answered yet"


def test_no_answer_contains_a_secret_of_a_target(service_with_alert: Service, receiver: WebhookReceiver) -> None:
    receiver.status = 500
    assert service_with_alert.send(STREAM, [{"project": "p", "event_message": "x"}]).status_code == 200
    until(lambda: service_with_alert.client.get("/api/alerts").json()["targets"][0].get("failures", 0) > 0)
    answers = [
        service_with_alert.client.request(method, path).text
        for method, path in (*ROUTES[:4], ROUTES[-1], ("GET", "/api/status"), ("GET", "/metrics"))
    ]
    assert not [text for text in answers if "s3cret" in text]
    assert "s3cret" not in service_with_alert.stop_and_read()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"{", 400),
        (b'{"for": "1h", "alert": "gone"}', 404),
        (b"{}", 422),
        (b'{"for": "1h", "until": "2030-01-01"}', 422),
        (b'{"for": "-1h"}', 422),
        (b'{"for": "0"}', 422),
        (b'{"for": "400d"}', 422),
        (b'{"for": "99999999999999999999999d"}', 422),
        (b'{"until": "2001-01-01"}', 422),
        (b'{"until": "0001-01-01T00:00:00+14:00"}', 422),
        (b'{"until": "soon"}', 422),
        (b'{"until": "20300101123"}', 422),
        (b'{"for": "1h", "labels": {"a": 1}}', 400),
        (b'{"for": "1h", "lables": {}}', 400),
        (b'{"for": "1h", "comment": "' + b"x" * 501 + b'"}', 422),
        (b'{"for": "1h", "labels": ' + b'{"a":' * 200 + b"1" + b"}" * 201, 400),
    ],
)
def test_invalid_silences_are_refused(service: Service, body: bytes, status: int) -> None:
    answer = service.client.post("/api/alerts/silences", content=body)
    assert answer.status_code == status, answer.text
    assert service.client.get("/api/alerts/silences").json() == {"silences": []}


def test_unknown_names_are_refused_with_a_suggestion(service_with_alert: Service) -> None:
    unknown = service_with_alert.client.get("/api/alerts/sender/preview")
    assert (unknown.status_code, unknown.json()["error"]["status"]) == (404, "request.unknown-alert")
    assert unknown.json()["error"]["hint"] == "Did you mean senders?"
    assert service_with_alert.client.post("/api/alerts/targets/hok/test").status_code == 404
    assert service_with_alert.client.delete("/api/alerts/silences/x").status_code == 404
    assert service_with_alert.client.get("/api/alerts/history?limit=0").status_code == 400
    assert service_with_alert.client.get("/api/alerts/history?limit=1&before=x").status_code == 400
