"""Webhooks of Vercel, Netlify and GitHub, and events with typecasts, become events."""

import json
from urllib.parse import urlencode

import pytest

from cordwood.errors import BadBody
from cordwood.ingest.formats import BodyFormat
from tests.unit.ingest.test_other_formats import EVENT_TIME_US, NOW_US, events, metadata, read_format

EVENT_TIME_MS = EVENT_TIME_US // 1000
VERCEL_PROXY = {"statusCode": 200, "host": "h", "path": "/p", "clientIp": "1.2.3.4", "userAgent": ["a", "b"]}
VERCEL_FUNCTION_REPORT = (
    "START RequestId: 7f Version: 1\n2023-07-22T04:26:40Z\t7f\tINFO\thello\nEND RequestId: 7f\n"
    "REPORT RequestId: 7f\tDuration: 21.5 ms\tBilled Duration: 22 ms\tMemory Size: 1024 MB\tMax Memory Used: 89 MB\n"
)


def test_a_vercel_log_has_its_id_time_and_message() -> None:
    static = {"id": "v1", "source": "static", "timestamp": EVENT_TIME_MS, "proxy": VERCEL_PROXY}
    first, second = events(BodyFormat.VERCEL, json.dumps([static, {"source": "build", "message": "built"}]))
    assert (first.id, first.timestamp_us, first.event_message) == (
        "v1",
        EVENT_TIME_US,
        "static | 200 | h | /p | 1.2.3.4 | a,b",
    )
    assert metadata(first)["proxy"] == {**VERCEL_PROXY, "userAgent": "a,b"}
    assert (second.event_message, second.timestamp_us) == ("build | built", NOW_US)


def test_the_report_of_a_vercel_function_is_parsed() -> None:
    event, mismatches = events(
        BodyFormat.VERCEL,
        "\n".join(json.dumps({"source": "lambda", "message": m}) for m in (VERCEL_FUNCTION_REPORT, "x")),
        "application/x-ndjson",
    )
    assert metadata(event)["parsedLambdaMessage"] == {
        "parse_status": "full",
        "request_id": "7f",
        "report": {"duration_ms": 21.5, "billed_duration_ms": 22, "memory_size_mb": 1024, "max_memory_used_mb": 89},
        "lines_string": "2023-07-22T04:26:40Z\t7f\tINFO\thello",
    }
    assert metadata(mismatches)["parsedLambdaMessage"] == {"parse_status": "error"}


def test_an_empty_vercel_body_is_accepted_without_events() -> None:
    assert read_format(BodyFormat.VERCEL, "").events == []
    assert read_format(BodyFormat.VERCEL, "[]").events == []


def test_the_message_of_a_netlify_log_is_made_of_its_fields() -> None:
    traffic = {
        "log_type": "traffic",
        "timestamp": EVENT_TIME_MS,
        "method": "GET",
        "status_code": 200,
        "url": "/",
        "request_id": "r",
    }
    first, second = events(
        BodyFormat.NETLIFY, json.dumps([traffic, {"log_type": "functions", "level": "info", "message": "m"}])
    )
    assert (first.event_message, first.timestamp_us) == ("traffic | GET | 200 | r | /", EVENT_TIME_US)
    assert "timestamp" not in metadata(first)
    assert second.event_message == "functions | info | m"


@pytest.mark.parametrize("media", ["application/json", "application/x-www-form-urlencoded"])
def test_a_github_delivery_is_one_event_without_urls(media: str) -> None:
    delivery = {
        "action": "opened",
        "repository": {"full_name": "o/r", "html_url": "u", "owner": [{"a_url": "u", "n": 1}]},
    }
    text = json.dumps({**delivery, "sender": {"login": "me"}})
    body = text if media == "application/json" else urlencode({"payload": text})
    (event,) = events(BodyFormat.GITHUB, body, media, x_github_event="issues", x_github_delivery="72d3162e-cc78-11e3")
    assert (event.id, event.event_message) == ("72d3162e-cc78-11e3", "o/r | me | opened")
    assert metadata(event) == {
        "action": "opened",
        "repository": {"full_name": "o/r", "owner": [{"n": 1}]},
        "sender": {"login": "me"},
        "github_event": "issues",
    }


def test_a_github_form_needs_the_field_payload() -> None:
    with pytest.raises(BadBody, match="payload"):
        read_format(BodyFormat.GITHUB, "a=1", "application/x-www-form-urlencoded")


@pytest.mark.parametrize("form", [BodyFormat.VERCEL, BodyFormat.NETLIFY, BodyFormat.GITHUB, BodyFormat.TYPECASTS])
def test_invalid_items_are_quarantined_and_unexpected_values_kept(form: BodyFormat) -> None:
    deep = '{"a":' * 2000 + "1" + "}" * 2000
    mismatches = (
        '{"source": 1, "proxy": [], "message": {"x": 1}, "timestamp": [], "repository": 5, "n": 1e400, "id": 7}'
    )
    parsed = read_format(form, f"[{mismatches}, 5, {deep}]")
    assert len(parsed.events) == 1
    assert {1} <= {item.index for item in parsed.refused_items} <= {1, 2}


def test_typecasts_turn_texts_into_numbers() -> None:
    casts = [
        {"path": ["metadata", "list", "ms"], "from": "string", "to": "float"},
        {"path": ["x"], "from": "a", "to": "b"},
    ]
    body = {"message": "m", "metadata": {"list": [{"ms": "1.5"}, {"ms": 2}], "ms": "3"}, "x": "4"}
    (event, plain) = events(
        BodyFormat.TYPECASTS, json.dumps({"batch": [{"body": body, "typecasts": casts}, {"message": "p"}]})
    )
    assert metadata(event) == {"list": [{"ms": 1.5}, {"ms": 2}], "ms": "3"}
    assert (json.loads(event.extras or ""), plain.event_message) == ({"x": "4"}, "p")


@pytest.mark.parametrize("value", ["no number", "nan", "1e999"])
def test_a_failed_typecast_quarantines_the_item(value: str) -> None:
    cast = {"path": ["a"], "from": "string", "to": "float"}
    parsed = read_format(BodyFormat.TYPECASTS, json.dumps({"batch": [{"body": {"a": value}, "typecasts": [cast]}]}))
    assert [item.reason for item in parsed.refused_items] == ["The text at a is not a number."]
