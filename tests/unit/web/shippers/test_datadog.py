"""Datadog's log intake: the stored events, their streams, and the responses."""

import gzip
import json
import zlib

import pytest
from backports import zstd

from cordwood.errors import (
    BacklogFull,
    BodyTooLarge,
    EngineUnreachable,
    Fault,
    OutOfDisk,
    RequestTooSlow,
    UnknownStream,
)
from cordwood.web.asgi import Request
from cordwood.web.shippers.datadog import render_error
from tests.fakes.callers import http_scope
from tests.unit.web.shippers.conftest import ShipperResponse, ShipperSite

LOGS_PATH = "/api/v2/logs"


def send_logs(site: ShipperSite, *events: object, path: str = LOGS_PATH, key: str | None = None) -> ShipperResponse:
    return site.send("POST", path, json.dumps(events), key=key, content_type="application/json")


def test_attributes_become_an_event_in_the_stream_of_the_service(site: ShipperSite) -> None:
    event = {
        "message": "attributes",
        "timestamp": 1700000000123,
        "service": "nginx-1",
        "ddsource": "nginx",
        "ddtags": "env:prod,team:a,team:b,canary",
        "hostname": "h1",
        "http": {"status_code": 200},
        "project": "p1",
    }
    answered = send_logs(site, event)
    assert (answered.status, answered.json()) == (202, {})
    (stored,) = site.events("edge", "attributes")
    assert stored["timestamp"] == 1700000000123000
    assert stored["project"] == "p1"
    assert stored["metadata"] == {
        "service": "nginx-1",
        "ddsource": "nginx",
        "ddtags": "env:prod,team:a,team:b,canary",
        "tags": {"env": "prod", "team": ["a", "b"], "canary": ""},
        "hostname": "h1",
        "http": {"status_code": 200},
        "project": "p1",
    }


@pytest.mark.parametrize(
    ("coding", "compress"),
    [("identity", bytes), ("gzip", gzip.compress), ("deflate", zlib.compress), ("zstd", zstd.compress)],
)
def test_a_body_may_be_one_object_in_any_coding(site: ShipperSite, coding: str, compress: type[bytes]) -> None:
    body = compress(json.dumps({"message": f"coded {coding}", "service": "app"}).encode())
    assert site.send("POST", LOGS_PATH, body, content_encoding=coding).status == 202
    assert site.messages("app", f"coded {coding}") == [f"coded {coding}"]


def test_each_line_of_plain_text_is_an_event_with_the_query_parameters(site: ShipperSite) -> None:
    path = "/v1/input?service=app&ddtags=env:x&hostname=h2"
    assert site.send("POST", path, "text one\n\ntext two\n", content_type="text/plain").status == 200
    assert sorted(site.messages("app", "text ")) == ["text one", "text two"]
    (second,) = site.events("app", "text two")
    assert second["metadata"] == {"service": "app", "ddtags": "env:x", "hostname": "h2", "tags": {"env": "x"}}


@pytest.mark.parametrize("body", ["{}", "[]", "", "[{}]", " \n"])
def test_the_connection_test_of_the_agent_stores_nothing(site: ShipperSite, body: str) -> None:
    before = len(site.events("app"))
    assert site.send("POST", LOGS_PATH, body, content_type="application/json").status == 202
    assert len(site.events("app")) == before


def test_an_event_without_a_message_has_its_attributes_as_the_message(site: ShipperSite) -> None:
    assert send_logs(site, {"ddsource": "app", "date": "2024-01-01T00:00:00Z", "k": 1}).status == 202
    (stored,) = site.events("app", '{"ddsource":"app","k":1}')
    assert stored["timestamp"] == 1704067200000000


def test_the_request_may_name_the_stream(site: ShipperSite) -> None:
    assert send_logs(site, {"message": "named", "service": "x"}, path=f"{LOGS_PATH}?source_name=app").status == 202
    assert site.messages("app", "named") == ["named"]


def test_events_of_an_unknown_label_are_refused_permanently_and_the_others_stored(site: ShipperSite) -> None:
    answered = send_logs(site, {"message": "known", "service": "app"}, {"message": "unknown", "service": "sshd"})
    assert answered.status == 400
    (error,) = answered.json()["errors"]
    assert "'sshd'" in error["detail"]
    assert "ingest.stream_map" in error["detail"]
    assert site.messages("app", "known") == ["known"]
    answered = send_logs(site, {"message": "mapped to no stream", "service": "gone"})
    assert (answered.status, "'nowhere'" in answered.json()["errors"][0]["detail"]) == (400, True)


def test_a_stream_above_its_rate_refuses_the_whole_body(site: ShipperSite) -> None:
    assert send_logs(site, *[{"message": "slow", "service": "slow-1"}] * 2).status == 202
    answered = send_logs(site, {"message": "beside slow", "service": "app"}, {"message": "slow", "service": "slow-1"})
    assert answered.status == 429
    assert int(answered.headers["retry-after"]) > 1
    assert site.messages("app", "beside slow") == []


def test_an_invalid_item_is_quarantined_and_the_others_are_stored(site: ShipperSite) -> None:
    body = '[{"message":"beside","service":"app"},7,{"message":"deep","service":"app","d":%s}]' % (
        "[" * 101 + "]" * 101
    )
    answered = site.send("POST", f"{LOGS_PATH}?source_name=app", body, content_type="application/json")
    assert answered.status == 202
    assert site.messages("app", "beside") == ["beside"]
    quarantined = {item["index"]: item for item in site.quarantined() if item["stream"] == "app"}
    assert quarantined[1]["reason"] == "The item is not an object."
    assert "nested" in quarantined[2]["reason"]


@pytest.mark.parametrize("body", ["{", "[7]", '["x", 1]', "[" * 5000, "{}{}"])
def test_a_body_without_events_is_refused_permanently(site: ShipperSite, body: str) -> None:
    answered = site.send("POST", f"{LOGS_PATH}?source_name=app", body, content_type="application/json")
    assert answered.status == 400
    assert answered.json()["errors"][0]["status"] == "400"


def test_a_body_with_a_too_large_content_length_is_refused_unread(site: ShipperSite) -> None:
    assert site.send("POST", LOGS_PATH, "[]", content_length=f"{17 * 2**20}").status == 413


def test_keys_are_read_from_the_headers_and_parameters_of_the_protocol(site: ShipperSite) -> None:
    key, event = site.create_key(scopes="ingest"), json.dumps({"message": "keyed", "service": "app"})
    assert site.send("POST", LOGS_PATH, event, key="", dd_api_key=key).status == 202
    assert site.send("POST", f"{LOGS_PATH}?dd-api-key={key}", event, key="").status == 202
    assert site.send("GET", "/api/v1/validate", key="", dd_api_key=key).json() == {"valid": True}
    assert site.send("POST", LOGS_PATH, event, key="").status == 401
    assert site.send("POST", LOGS_PATH, event, key="", dd_api_key="wrong").status == 403
    assert site.send("POST", f"{LOGS_PATH}?dd-api-key=other", event, key="", dd_api_key=key).status == 400
    assert site.send("GET", "/api/v1/validate", key="wrong").status == 403
    assert site.send("GET", "/api/status", key="", dd_api_key=key).status == 401


def test_scopes_and_pins_of_a_key_apply(site: ShipperSite) -> None:
    query = site.create_key(scopes="query")
    assert send_logs(site, {"message": "x", "service": "app"}, key=query).status == 403
    edge = site.create_key(scopes="ingest:source:edge")
    answered = send_logs(
        site, {"message": "may", "service": "nginx"}, {"message": "may not", "service": "app"}, key=edge
    )
    assert (answered.status, site.messages("edge", "may"), site.messages("app", "may")) == (403, ["may"], [])
    pinned = site.create_key(scopes="ingest", pins={"project": "mine"})
    events = [{"message": "pin none"}, {"message": "pin other", "project": "theirs"}]
    assert send_logs(site, *events, path=f"{LOGS_PATH}?source_name=app", key=pinned).status == 202
    (stored,) = site.events("app", "pin")
    assert (stored["event_message"], stored["project"]) == ("pin none", "mine")


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (OutOfDisk("full"), 503),
        (BacklogFull("busy", retry_after=3), 429),
        (EngineUnreachable("away"), 503),
        (RequestTooSlow("slow"), 408),
        (BodyTooLarge("large"), 413),
        (UnknownStream("none"), 400),
    ],
)
def test_only_temporary_faults_have_a_retriable_status(fault: Fault, status: int) -> None:
    async def receive() -> dict[str, object]:
        return {}

    answered = render_error(fault, Request(http_scope("POST", LOGS_PATH), receive))
    assert answered.status == status
    assert json.loads(bytes(answered.body))["errors"][0]["detail"] == fault.message  # type: ignore[arg-type]
