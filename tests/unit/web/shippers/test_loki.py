"""Loki's push API: the stored events, their streams, and the responses."""

import base64
import gzip
import json
from collections.abc import Mapping

import pyarrow as pa
import pytest

from cordwood.errors import (
    BacklogFull,
    BodyTooLarge,
    EngineUnreachable,
    Fault,
    Forbidden,
    OutOfDisk,
    RequestTooSlow,
    UnknownStream,
)
from cordwood.ingest.formats.protobuf import encode_bytes_field, encode_varint
from cordwood.web.asgi import Request
from cordwood.web.shippers.loki import render_error
from tests.fakes.callers import http_scope
from tests.unit.web.shippers.conftest import ShipperResponse, ShipperSite

PUSH_PATH = "/loki/api/v1/push"
PROTOBUF = "application/x-protobuf"
UNIX_SECONDS = 1_764_100_000


def json_stream(labels: Mapping[str, str], *lines: object) -> Mapping[str, object]:
    return {"stream": labels, "values": [[f"{UNIX_SECONDS}000000000", line] for line in lines]}


def push_streams(
    site: ShipperSite, *streams: object, key: str | None = None, path: str = PUSH_PATH, **headers: str
) -> ShipperResponse:
    body = json.dumps({"streams": streams})
    return site.send("POST", path, body, key=key, content_type="application/json", **headers)


def protobuf_body(labels: str, *lines: str) -> bytes:
    timestamp = encode_bytes_field(1, encode_varint(1 << 3) + encode_varint(UNIX_SECONDS))
    entries = b"".join(encode_bytes_field(2, timestamp + encode_bytes_field(2, line.encode())) for line in lines)
    return encode_bytes_field(1, encode_bytes_field(1, labels.encode()) + entries)


def snappy_block(body: bytes) -> bytes:
    return bytes(pa.compress(body, codec="snappy", asbytes=True))


def test_entries_are_stored_in_the_stream_of_their_service(site: ShipperSite) -> None:
    answered = push_streams(
        site, json_stream({"app": "nginx-1", "project": "p"}, "to edge"), json_stream({"job": "app"}, "to app")
    )
    assert (answered.status, answered.body) == (204, b"")
    (stored,) = site.events("edge", "to edge")
    assert (stored["timestamp"], stored["project"]) == (UNIX_SECONDS * 10**6, "p")
    assert stored["metadata"] == {"labels": {"app": "nginx-1", "project": "p"}}
    assert site.messages("app", "to app") == ["to app"]


def test_tenant_and_stream_of_the_request_precede_the_service_label(site: ShipperSite) -> None:
    assert push_streams(site, json_stream({"app": "other"}, "of tenant"), x_scope_orgid="app").status == 204
    (stored,) = site.events("app", "of tenant")
    assert stored["metadata"]["tenant"] == "app"
    assert (
        push_streams(site, json_stream({"app": "other"}, "by name"), path=f"{PUSH_PATH}?source_name=edge").status == 204
    )
    assert push_streams(site, json_stream({}, "by name, too"), x_source="edge").status == 204
    assert sorted(site.messages("edge", "by name")) == ["by name", "by name, too"]


@pytest.mark.parametrize(
    ("headers", "coding"),
    [
        ({"content_type": PROTOBUF}, bytes),
        ({}, bytes),
        ({"content_type": PROTOBUF, "content_encoding": "snappy"}, bytes),
        ({"content_type": PROTOBUF, "content_encoding": "gzip"}, gzip.compress),
    ],
    ids=["protobuf", "no content type", "snappy is announced", "gzip around it"],
)
def test_snappy_compressed_protobuf_is_decoded(
    site: ShipperSite, headers: Mapping[str, str], coding: type[bytes]
) -> None:
    line = f"in protobuf {headers}"
    body = coding(snappy_block(protobuf_body('{app="app"}', line)))
    assert site.send("POST", PUSH_PATH, body, **headers).status == 204
    assert site.messages("app", line) == [line]


def test_json_is_decoded_with_gzip_and_with_the_content_type_of_curl(site: ShipperSite) -> None:
    body = json.dumps({"streams": [json_stream({"app": "app"}, "in gzip")]}).encode()
    kind = "application/json; charset=utf-8"
    assert site.send("POST", PUSH_PATH, gzip.compress(body), content_type=kind, content_encoding="gzip").status == 204
    form = "application/x-www-form-urlencoded"
    assert site.send("POST", PUSH_PATH, body.replace(b"in gzip", b"in gzip, not"), content_type=form).status == 204
    assert sorted(site.messages("app", "in gzip")) == ["in gzip", "in gzip, not"]


def test_a_repeated_push_is_stored_once(site: ShipperSite) -> None:
    pushed = json_stream({"app": "app"}, "twice", "twice")
    assert [push_streams(site, pushed).status for _ in range(2)] == [204, 204]
    assert site.messages("app", "twice") == ["twice", "twice"]


def test_an_entry_that_cannot_be_stored_is_quarantined_with_a_notice(site: ShipperSite) -> None:
    answered = push_streams(site, json_stream({"app": "app"}, "a good one", 7))
    assert answered.status == 204
    assert answered.headers["cordwood-notice"] == (
        "1 entries are quarantined. Entry 2: The entry is not [time, line] or [time, line, metadata]."
    )
    assert site.messages("app", "a good one") == ["a good one"]
    newest = site.quarantined()[0]
    assert (newest["stream"], newest["form"]) == ("app", "loki")
    replayed = site.send("POST", f"/api/quarantine/{newest['id']}/replay")
    assert (replayed.status, b"quarantined again" in replayed.body) == (409, True)


def test_a_body_that_cannot_be_decoded_is_400_as_text(site: ShipperSite) -> None:
    for body, kind in [
        (b"{", "application/json"),
        (b"\xff\xff", PROTOBUF),
        (snappy_block(b"\xff\xff"), PROTOBUF),
        (snappy_block(protobuf_body("no labels", "x")), PROTOBUF),
        (b"x", "text/plain"),
        (json.dumps({"streams": [json_stream({"app": "unknown"}, "x")]}).encode(), "application/json"),
        (json.dumps({"streams": [json_stream({"app": "app"}, 7)]}).encode(), "application/json"),
    ]:
        answered = site.send("POST", PUSH_PATH, body, content_type=kind)
        assert (answered.status, answered.headers["content-type"]) == (400, "text/plain; charset=utf-8"), body


def test_a_snappy_bomb_is_refused_before_decompression(site: ShipperSite) -> None:
    answered = site.send("POST", PUSH_PATH, b"\xff\xff\xff\xff\x0f" + b"\x00a", content_type=PROTOBUF)
    assert (answered.status, b"inflates to more than" in answered.body) == (400, True)


def test_the_key_may_be_the_password_of_basic_credentials(site: ShipperSite) -> None:
    key = site.create_key(scopes="ingest")
    for user, password, status in [("any", key, 204), (key, "", 204), ("any", "wrong", 401)]:
        credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
        answered = push_streams(
            site, json_stream({"app": "app"}, "keyed"), key="", authorization=f"Basic {credentials}"
        )
        assert answered.status == status
    assert push_streams(site, json_stream({"app": "app"}, "x"), key="", x_scope_orgid=key).status == 401


def test_pins_apply_and_projects_are_deduplicated_separately(site: ShipperSite) -> None:
    keys = [site.create_key(scopes="ingest", pins={"project": name}) for name in ("one", "two")]
    for key in keys:
        assert push_streams(site, json_stream({"app": "app"}, "same line"), key=key).status == 204
    assert sorted(event["project"] for event in site.events("app", "same line")) == ["one", "two"]
    answered = push_streams(site, json_stream({"app": "app", "project": "two"}, "of another"), key=keys[0])
    assert (answered.status, "pinned to project" in answered.headers["cordwood-notice"]) == (204, True)
    assert site.messages("app", "of another") == []


def test_a_stream_above_its_rate_is_429_and_nothing_is_stored(site: ShipperSite) -> None:
    assert push_streams(site, json_stream({"app": "slow"}, *["fills it"] * 2)).status == 204
    answered = push_streams(
        site, json_stream({"app": "app"}, "beside a full one"), json_stream({"app": "slow"}, "too much")
    )
    assert answered.status == 429
    assert int(answered.headers["retry-after"]) > 0
    assert site.messages("app", "beside a full one") == []


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (OutOfDisk("full"), 503),
        (BacklogFull("busy", retry_after=3), 429),
        (EngineUnreachable("away"), 503),
        (RequestTooSlow("slow"), 503),
        (BodyTooLarge("large"), 400),
        (UnknownStream("none"), 400),
        (Forbidden("not yours"), 403),
    ],
)
def test_only_temporary_faults_have_a_retriable_status(fault: Fault, status: int) -> None:
    async def receive() -> dict[str, object]:
        return {}

    answered = render_error(fault, Request(http_scope("POST", PUSH_PATH), receive))
    assert (answered.status, answered.body) == (status, fault.message.encode())
    assert (b"retry-after" in dict(answered.headers)) == (status in {429, 503})


def test_version_and_readiness_need_no_key(site: ShipperSite) -> None:
    assert site.send("GET", "/loki/api/v1/status/buildinfo", key="").json()["version"] == "3.0.0"
    assert site.send("GET", "/ready", key="").status == 200
