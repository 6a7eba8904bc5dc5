"""Splunk's HTTP Event Collector: the stored events, their streams, and the responses."""

import base64
import json
from typing import Any

import pytest

from cordwood.errors import BacklogFull, BodyTooLarge, EngineFailed, EngineUnreachable, Fault, OutOfDisk, RequestTooSlow
from cordwood.ingest import items
from cordwood.ingest.items import split_objects
from cordwood.web.asgi import Request
from cordwood.web.shippers.splunk import render_error
from tests.fakes.callers import http_scope
from tests.unit.web.shippers.conftest import ShipperResponse, ShipperSite

COLLECTOR_PATH = "/services/collector"
RAW_PATH = f"{COLLECTOR_PATH}/raw?"


def send_events(
    site: ShipperSite, *events: object, path: str = COLLECTOR_PATH, between: str = "", **options: str
) -> ShipperResponse:
    json_texts = (event if isinstance(event, str) else json.dumps(event) for event in events)
    return site.send("POST", path, between.join(json_texts), **options)


def status_and_code(answered: ShipperResponse) -> tuple[int, int, Any]:
    body = answered.json()
    return answered.status, body["code"], body.get("invalid-event-number")


def test_an_event_is_stored_in_the_stream_of_its_index_or_source_type(site: ShipperSite) -> None:
    event = {
        "time": "1714557600.250",
        "host": "h1",
        "source": "/var/log/x",
        "sourcetype": "nginx:access",
        "index": "main",
        "event": "a line",
        "fields": {"project": "p1", "level": "info"},
    }
    answered = send_events(site, event)
    assert (answered.status, answered.json()) == (200, {"text": "Success", "code": 0})
    (stored,) = site.events("edge", "a line")
    assert (stored["timestamp"], stored["project"]) == (1714557600250000, "p1")
    assert stored["metadata"] == {name: event[name] for name in ("host", "source", "sourcetype", "index", "fields")}


@pytest.mark.parametrize("between", ["", "\n", " \r\n "])
@pytest.mark.parametrize(
    "path", [COLLECTOR_PATH, f"{COLLECTOR_PATH}/event", f"{COLLECTOR_PATH}/event/1.0", f"{COLLECTOR_PATH}/event/"]
)
def test_events_may_be_separated_by_white_space(site: ShipperSite, between: str, path: str) -> None:
    before = len(site.events("app", "one of three"))
    event = {"event": "one of three", "index": "app"}
    assert status_and_code(send_events(site, *[event] * 3, path=path, between=between)) == (200, 0, None)
    assert len(site.events("app", "one of three")) == before + 3


def test_an_object_is_stored_whole_with_its_message(site: ShipperSite) -> None:
    events: list[dict[str, Any]] = [
        {"index": "app", "event": {"message": "object message", "project": "p2", "k": [1]}},
        {"index": "app", "event": {"line": "object line", "tag": "t"}},
        {"index": "app", "event": {"object": 1}},
        {"index": "app", "event": [1, "}{"]},
        {"index": "app", "event": 7.5},
    ]
    assert status_and_code(send_events(site, *events)) == (200, 0, None)
    (stored,) = site.events("app", "object message")
    assert (stored["project"], stored["metadata"]["event"]) == ("p2", events[0]["event"])
    for message in ("object line", '{"object": 1}', '[1, "}{"]', "7.5"):
        assert site.messages("app", message) == [message]


def test_each_line_of_raw_text_is_an_event_with_the_query_parameters(site: ShipperSite) -> None:
    path = f"{RAW_PATH}index=app&sourcetype=access&host=h2&source=s&channel=c1"
    assert status_and_code(site.send("POST", path, '{"raw": 1}\n\nraw 2\r\n')) == (200, 0, None)
    (stored,) = site.events("app", "raw 2")
    assert stored["metadata"] == {"index": "app", "sourcetype": "access", "host": "h2", "source": "s"}
    assert site.messages("app", '{"raw": 1}') == ['{"raw": 1}']


def test_query_parameters_are_defaults_for_events(site: ShipperSite) -> None:
    events = [{"event": "shared 1"}, {"event": "shared 2", "index": "edge"}]
    assert status_and_code(send_events(site, *events, path=f"{COLLECTOR_PATH}?index=app&time=1714557600")) == (
        200,
        0,
        None,
    )
    (stored,) = site.events("app", "shared 1")
    assert stored["timestamp"] == 1714557600000000
    assert site.messages("edge", "shared 2") == ["shared 2"]


def test_events_before_a_broken_one_are_stored_and_its_number_is_returned(site: ShipperSite) -> None:
    valid_event = {"event": "before broken", "index": "app"}
    assert status_and_code(send_events(site, valid_event, valid_event, "{broken")) == (400, 6, 2)
    assert status_and_code(send_events(site, valid_event, "] ", valid_event)) == (400, 6, 1)
    assert status_and_code(send_events(site, "broken", valid_event)) == (400, 6, 0)
    assert site.messages("app", "before broken") == ["before broken"] * 3


def test_a_complete_event_that_cannot_be_stored_is_quarantined(site: ShipperSite) -> None:
    events = ({"event": "beside bad", "index": "app"}, {"index": "app"}, {"index": "app", "event": ""}, "{bad}")
    assert status_and_code(send_events(site, *events)) == (200, 0, None)
    assert site.messages("app", "beside bad") == ["beside bad"]
    quarantined = {item["index"]: item["reason"] for item in site.quarantined() if item["form"] == "splunk"}
    assert (quarantined[1], quarantined[2]) == ("Event field is required.", "Event field cannot be blank.")
    assert "not JSON" in quarantined[3]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", (400, 5, None)),
        (" \n", (400, 5, None)),
        ('{"index":"app"}', (400, 12, 0)),
        ('{"index":"app","event":null}', (400, 12, 0)),
        ('{"index":"app","event":""}', (400, 13, 0)),
        ('{"index":"unknown","event":"x"}', (400, 7, None)),
        ('{"event":"x"}', (400, 7, None)),
        ("7", (400, 6, 0)),
        ("[7]", (400, 6, 0)),
        ('{"event":"x', (400, 6, 0)),
        ("[", (400, 6, None)),
    ],
)
def test_refusals_have_splunk_codes(site: ShipperSite, body: str, expected: tuple[int, int, Any]) -> None:
    assert status_and_code(site.send("POST", COLLECTOR_PATH, body)) == expected


def test_a_refusal_names_the_label_and_the_setting(site: ShipperSite) -> None:
    detail = send_events(site, {"event": "x", "index": "main", "sourcetype": "sshd"}).json()["detail"]
    assert "'main' or 'sshd'" in detail
    assert "ingest.stream_map" in detail


def test_a_stream_above_its_rate_refuses_the_whole_body(site: ShipperSite) -> None:
    assert status_and_code(send_events(site, *[{"event": "slow", "index": "slow"}] * 2)) == (200, 0, None)
    answered = send_events(site, {"event": "beside slow", "index": "app"}, {"event": "slow", "index": "slow"})
    assert status_and_code(answered) == (503, 9, None)
    assert int(answered.headers["retry-after"]) > 1
    assert site.messages("app", "beside slow") == []


def test_acknowledgement_ids_are_of_stored_events(site: ShipperSite) -> None:
    event, channel = {"event": "acked", "index": "app"}, {"x_splunk_request_channel": "c-1"}
    first, second = (send_events(site, event, **channel).json()["ackId"] for _ in range(2))
    assert second > first
    assert "ackId" in send_events(site, event, path=f"{COLLECTOR_PATH}?channel=c-2").json()
    assert "ackId" not in send_events(site, event).json()
    acknowledgement_request = json.dumps({"acks": [first, second, first + 10**15, -1]})
    answered = site.send("POST", f"{COLLECTOR_PATH}/ack", acknowledgement_request, **channel)
    assert answered.json() == {"acks": {str(first): True, str(second): True, str(first + 10**15): False, "-1": False}}
    assert status_and_code(site.send("POST", f"{COLLECTOR_PATH}/ack", acknowledgement_request)) == (400, 10, None)
    for wrong in ('{"acks": "x"}', json.dumps({"acks": [0] * 10_001}), "[", '{"acks": [1.5]}'):
        assert status_and_code(site.send("POST", f"{COLLECTOR_PATH}/ack?channel=c", wrong)) == (400, 6, None)
    assert status_and_code(site.send("POST", f"{COLLECTOR_PATH}/ack?channel=c", acknowledgement_request, key="")) == (
        401,
        2,
        None,
    )
    assert status_and_code(send_events(site, event, x_splunk_request_channel="c" * 129)) == (400, 11, None)


def test_a_body_with_a_too_large_content_length_is_refused_unread(site: ShipperSite) -> None:
    assert status_and_code(send_events(site, {"event": "x", "index": "app"}, content_length=f"{17 * 2**20}")) == (
        413,
        27,
        None,
    )


def test_health_needs_no_key(site: ShipperSite) -> None:
    assert status_and_code(site.send("GET", f"{COLLECTOR_PATH}/health", key="")) == (200, 17, None)


def test_keys_are_read_from_the_headers_and_parameters_of_the_protocol(site: ShipperSite) -> None:
    key, event = site.create_key(scopes="ingest"), {"event": "keyed", "index": "app"}
    basic = base64.b64encode(f"x:{key}".encode()).decode()
    for form in (f"Splunk {key}", f"splunk  {key}", f"Basic {basic}", f"Bearer {key}"):
        assert status_and_code(send_events(site, event, key="", authorization=form)) == (200, 0, None)
    assert status_and_code(send_events(site, event, key="", path=f"{COLLECTOR_PATH}?token={key}")) == (200, 0, None)
    assert status_and_code(send_events(site, event, key="")) == (401, 2, None)
    assert status_and_code(send_events(site, event, key="", authorization="Splunk wrong")) == (403, 4, None)
    assert status_and_code(send_events(site, event, key=site.create_key(scopes="query"))) == (403, 4, None)
    assert status_and_code(
        send_events(site, event, key="", path=f"{COLLECTOR_PATH}?token=a", authorization=f"Splunk {key}")
    ) == (
        400,
        6,
        None,
    )
    pinned = site.create_key(scopes="ingest", pins={"project": "mine"})
    theirs = {"event": "pin other", "index": "app", "fields": {"project": "theirs"}}
    assert status_and_code(send_events(site, {"event": "pin none", "index": "app"}, theirs, key=pinned)) == (
        200,
        0,
        None,
    )
    assert [(event["event_message"], event["project"]) for event in site.events("app", "pin")] == [("pin none", "mine")]


def test_concatenated_objects_are_split_within_a_limit_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "_MAX_TOKENIZED_CHARACTERS", 10_000)
    deep = '{"a":' + "[" * 40 + "]" * 40 + "}"
    assert list(split_objects('{"a":"}{"} {}' + deep, 9)) == ['{"a":"}{"}', "{}", deep]
    assert list(split_objects("{}{", 9)) == ["{}", None]
    assert list(split_objects('{}{"', 9)) == ["{}", None]
    objects = list(split_objects(deep * 1000, 10**6))
    assert objects == [deep] * (10_000 // len(deep)) + [None]
    assert list(split_objects("{" * 10**5, 9)) == [None]
    with pytest.raises(BodyTooLarge):
        list(split_objects("{}" * 4, 3))


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (OutOfDisk("full"), 503, 9),
        (BacklogFull("busy", retry_after=3), 503, 9),
        (EngineUnreachable("away"), 503, 9),
        (RequestTooSlow("slow"), 503, 9),
        (BodyTooLarge("large"), 413, 27),
        (EngineFailed("failed"), 500, 8),
    ],
)
def test_only_temporary_faults_have_a_retriable_status(fault: Fault, status: int, code: int) -> None:
    async def receive() -> dict[str, object]:
        return {}

    answered = render_error(fault, Request(http_scope("POST", COLLECTOR_PATH), receive))
    body = json.loads(bytes(answered.body))  # type: ignore[arg-type]
    assert (answered.status, body["code"], body["detail"]) == (status, code, fault.message)
