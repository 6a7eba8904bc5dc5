"""OTLP logs give the same events in JSON and protobuf."""

import json
import math
import struct

import pytest

from cordwood.errors import BadBody, BodyTooLarge
from cordwood.ingest.build_events import build_events
from cordwood.ingest.formats import BodyFormat, read_body
from cordwood.ingest.formats.protobuf import encode_export_response, encode_rpc_status, iterate_fields
from cordwood.ingest.parsed_body import Body
from cordwood.model.event import Event

NOW_US = 1_700_000_000_000_000
RECORD_NS = 1_690_000_000_123_456_789


def events(body: bytes, media: str) -> list[Event]:
    return build_events(read_body(BodyFormat.OTLP, Body(body, media)), NOW_US)


def json_request(*records: object, resource: object = None) -> list[Event]:
    request = {
        "resourceLogs": [
            {
                "resource": {"attributes": resource or []},
                "scopeLogs": [{"scope": {"name": "lib", "version": "1"}, "logRecords": records}],
            }
        ]
    }
    return events(json.dumps(request).encode(), "application/json")


def encoded_number(number: int) -> bytes:
    pieces = b""
    while number > 0x7F:
        pieces += bytes([number & 0x7F | 0x80])
        number >>= 7
    return pieces + bytes([number])


def message(number: int, value: bytes) -> bytes:
    return encoded_number(number << 3 | 2) + encoded_number(len(value)) + value


def varint(number: int, value: int) -> bytes:
    return encoded_number(number << 3) + encoded_number(value % 2**64)


def fixed64(number: int, value: int) -> bytes:
    return encoded_number(number << 3 | 1) + value.to_bytes(8, "little")


def key_value(key: str, value: bytes) -> bytes:
    return message(1, key.encode()) + message(2, value)


RECORD_JSON = {
    "timeUnixNano": str(RECORD_NS),
    "severityNumber": 13,
    "severityText": "WARN",
    "flags": 1,
    "droppedAttributesCount": 2,
    "body": {"stringValue": "hello"},
    "traceId": "5B8EFFF798038103D269B633813FC60C",
    "spanId": "eee19b7ec3c1b174",
    "attributes": [
        {"key": "http.status", "value": {"intValue": "-5"}},
        {"key": "ratio", "value": {"doubleValue": 3}},
        {"key": "ok", "value": {"boolValue": True}},
        {"key": "list", "value": {"arrayValue": {"values": [{"stringValue": "a"}, {"intValue": 1}]}}},
        {"key": "map", "value": {"kvlistValue": {"values": [{"key": "k", "value": {"stringValue": "v"}}]}}},
        {"key": "raw", "value": {"bytesValue": "AQI="}},
        {"key": "none", "value": {}},
    ],
}
RECORD_PROTOBUF = (
    fixed64(1, RECORD_NS)
    + varint(2, 13)
    + message(3, b"WARN")
    + message(5, message(1, b"hello"))
    + message(6, key_value("http.status", varint(3, -5)))
    + message(6, key_value("ratio", encoded_number(4 << 3 | 1) + struct.pack("<d", 3.0)))
    + message(6, key_value("ok", varint(2, 1)))
    + message(6, key_value("list", message(5, message(1, message(1, b"a")) + message(1, varint(3, 1)))))
    + message(6, key_value("map", message(6, message(1, key_value("k", message(1, b"v"))))))
    + message(6, key_value("raw", message(7, b"\x01\x02")))
    + message(6, key_value("none", b""))
    + varint(7, 2)
    + encoded_number(8 << 3 | 5)
    + b"\x01\x00\x00\x00"
    + message(9, bytes.fromhex("5b8efff798038103d269b633813fc60c"))
    + message(10, bytes.fromhex("eee19b7ec3c1b174"))
)


def test_json_and_protobuf_make_the_same_event() -> None:
    (of_json,) = json_request(RECORD_JSON, resource=[{"key": "project", "value": {"stringValue": "p"}}])
    resource = message(1, message(1, key_value("project", message(1, b"p"))))
    scope = message(1, message(1, b"lib") + message(2, b"1"))
    request = message(1, resource + message(2, scope + message(2, RECORD_PROTOBUF)))
    (of_protobuf,) = events(request, "application/x-protobuf")
    assert json.loads(of_json.metadata or "") == json.loads(of_protobuf.metadata or "")
    assert of_json.event_message == of_protobuf.event_message == "hello"
    assert of_json.timestamp_us == of_protobuf.timestamp_us == RECORD_NS // 1000
    assert of_json.project == of_protobuf.project == "p"


def test_attribute_keys_are_unchanged_and_ids_are_hex() -> None:
    (event,) = json_request(RECORD_JSON)
    assert json.loads(event.metadata or "") == {
        "type": "otel_log",
        "level": "warn",
        "severity_text": "WARN",
        "severity_number": 13,
        "flags": 1,
        "dropped_attributes_count": 2,
        "trace_id": "5b8efff798038103d269b633813fc60c",
        "span_id": "eee19b7ec3c1b174",
        "attributes": {
            "http.status": -5,
            "ratio": 3,
            "ok": True,
            "list": ["a", 1],
            "map": {"k": "v"},
            "raw": "AQI=",
            "none": None,
        },
        "scope": {"name": "lib", "version": "1"},
    }


def test_the_observed_time_replaces_an_unknown_time() -> None:
    first, second = json_request({"timeUnixNano": "0", "observedTimeUnixNano": RECORD_NS}, {"timeUnixNano": 0})
    assert (first.timestamp_us, first.timestamp_inferred) == (RECORD_NS // 1000, False)
    assert (second.timestamp_us, second.timestamp_inferred) == (NOW_US, True)


def test_a_structured_body_becomes_a_json_message_and_metadata() -> None:
    (event,) = json_request({"body": {"kvlistValue": {"values": [{"key": "a", "value": {"intValue": "1"}}]}}})
    assert event.event_message == '{"a":1}'
    assert json.loads(event.metadata or "")["body"] == {"a": 1}


@pytest.mark.parametrize(
    ("sent", "number"),
    [
        ("SEVERITY_NUMBER_WARN2", 14),
        ("SEVERITY_NUMBER_FATAL", 21),
        ("ERROR4", 20),
        (0, None),
        ("x", None),
        ("WARN22", None),
        ("WARN" + "2" * 5000, None),
    ],
)
def test_severities_may_be_enum_names(sent: object, number: int | None) -> None:
    (event,) = json_request({"severityNumber": sent})
    assert json.loads(event.metadata or "").get("severity_number") == number


def test_records_without_resource_or_scope_are_read() -> None:
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [{}]}]}, {}]}).encode()
    assert len(events(body, "application/json")) == 1


@pytest.mark.parametrize(
    ("body", "media"),
    [
        (b"[]", "application/json"),
        (b"{", "application/json"),
        (b"\x0a\x05abc", "application/x-protobuf"),
        (b"\xff" * 20, "application/x-protobuf"),
    ],
)
def test_a_body_that_is_not_a_request_is_refused(body: bytes, media: str) -> None:
    with pytest.raises(BadBody):
        events(body, media)


@pytest.mark.parametrize(
    ("number", "text", "level"),
    [
        (1, None, "trace"),
        (8, None, "debug"),
        (9, "Information", "info"),
        (16, None, "warn"),
        (17, None, "error"),
        (24, None, "fatal"),
        (0, "Notice", "notice"),
        (99, "ODD", "odd"),
        (None, None, None),
    ],
)
def test_the_24_severities_become_six_levels(number: int | None, text: str | None, level: str | None) -> None:
    (event,) = json_request({"severityNumber": number, "severityText": text})
    assert json.loads(event.metadata or "").get("level") == level


def test_log_record_uid_becomes_the_id_of_the_event() -> None:
    (event,) = json_request({"attributes": [{"key": "log.record.uid", "value": {"stringValue": "01J"}}]})
    assert event.id == "01J"


def test_the_schema_url_is_of_the_scope_or_else_of_the_resource() -> None:
    scopes = [{"schemaUrl": "https://s/2", "logRecords": [{}]}, {"logRecords": [{}]}]
    body = json.dumps({"resourceLogs": [{"schemaUrl": "https://s/1", "scopeLogs": scopes}]}).encode()
    assert [json.loads(event.metadata or "")["schema_url"] for event in events(body, "application/json")] == [
        "https://s/2",
        "https://s/1",
    ]


@pytest.mark.parametrize(("number", "text"), [(math.inf, "Infinity"), (-math.inf, "-Infinity"), (math.nan, "NaN")])
def test_nan_and_infinity_are_texts_in_both_encodings(number: float, text: str) -> None:
    double = encoded_number(4 << 3 | 1) + struct.pack("<d", number)
    record = message(6, key_value("n", double))
    (of_protobuf,) = events(message(1, message(2, message(2, record))), "application/x-protobuf")
    (of_json,) = json_request({"attributes": [{"key": "n", "value": {"doubleValue": text}}]})
    for event in (of_protobuf, of_json):
        assert json.loads(event.metadata or "")["attributes"] == {"n": text}


def test_too_large_numbers_and_unpaired_surrogates_are_replaced() -> None:
    body = b"""{"resourceLogs": [{"scopeLogs": [{"logRecords": [
      {"body": {"stringValue": "half \\ud83d"}, "attributes": [{"key": "n", "value": {"doubleValue": 1e400}}]},
      {"body": {"stringValue": "whole"}}]}]}]}"""
    first, second = events(body, "application/json")
    assert (first.event_message, second.event_message) == ("half \ufffd", "whole")
    assert json.loads(first.metadata or "")["attributes"] == {"n": "1e400"}


def test_an_invalid_record_is_quarantined_and_the_others_are_read() -> None:
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [{}, 7, {}]}]}]}).encode()
    parsed = read_body(BodyFormat.OTLP, Body(body, "application/json"))
    assert len(parsed.events) == 2
    assert [(item.index, item.reason) for item in parsed.refused_items] == [(1, "The log record is not an object.")]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"resourceLogs": {}}, "resourceLogs is not an array"),
        ({"resourceLogs": [7]}, "resourceLogs holds something"),
        ({"resourceLogs": [{"scopeLogs": [{"logRecords": "x"}]}]}, "logRecords is not an array"),
        ({"resource_logs": []}, "lowerCamelCase"),
    ],
)
def test_misplaced_records_are_refused(body: object, message: str) -> None:
    with pytest.raises(BadBody, match=message):
        events(json.dumps(body).encode(), "application/json")


def test_unknown_fields_are_ignored() -> None:
    assert events(b'{"resourceLogs": null, "more": [7]}', "application/json") == []


def test_rejected_records_are_a_partial_success() -> None:
    assert encode_export_response(0, "") == b""
    ((number, partial),) = iterate_fields(encode_export_response(300, "too large"))
    assert number == 1
    assert isinstance(partial, bytes)
    assert dict(iterate_fields(partial)) == {1: 300, 2: b"too large"}


def test_a_status_is_a_google_rpc_status_with_bad_request_details() -> None:
    assert dict(iterate_fields(encode_rpc_status(14, "later"))) == {1: 14, 2: b"later"}
    status_fields = dict(iterate_fields(encode_rpc_status(3, "no", violation="not JSON")))
    assert isinstance(status_fields[3], bytes)
    detail = dict(iterate_fields(status_fields[3]))
    assert detail[1] == b"type.googleapis.com/google.rpc.BadRequest"
    assert detail[2] == message(1, message(2, b"not JSON"))


@pytest.mark.parametrize("media", ["application/json", "application/x-protobuf"])
def test_the_copies_of_resource_attributes_have_a_total_limit(media: str) -> None:
    text = "x" * 1000
    if media == "application/json":
        resource = {"attributes": [{"key": "a", "value": {"stringValue": text}}]}
        body = json.dumps({"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [{}] * 50}]}]}).encode()
    else:
        attribute = message(1, key_value("a", message(1, text.encode())))
        body = message(1, message(1, attribute) + message(2, message(2, b"") * 50))
    form = BodyFormat.OTLP
    assert len(read_body(form, Body(body, media, max_metadata_bytes=60_000)).events) == 50
    with pytest.raises(BodyTooLarge, match="what they share"):
        read_body(form, Body(body, media, max_metadata_bytes=30_000))
