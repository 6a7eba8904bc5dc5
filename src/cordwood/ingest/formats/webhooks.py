"""Decode log drains and webhooks of Vercel, Netlify and GitHub.

A payload becomes the metadata and message of an event.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import parse_qs

import msgspec

from cordwood.errors import BadBody
from cordwood.ingest.formats.json import non_blank_lines, require_events
from cordwood.ingest.items import (
    TOO_DEEP_REASON,
    decode_fields,
    decode_json_value,
    split_items,
    without_unpaired_surrogates,
)
from cordwood.ingest.parsed_body import Body, ParsedBody, PostedEvent

_encode = msgspec.json.Encoder().encode

Record = dict[str, Any]

_LAMBDA_REPORT_PATTERN = re.compile(r"^REPORT RequestId: (\S{1,100})\t(.{0,2000})$", re.MULTILINE)
_LAMBDA_REPORT_FIELD_PATTERN = re.compile(r"([A-Z][A-Za-z ]{1,40}): ([\d.]{1,20}) (ms|MB)")
# Lines that the runtime of a function on AWS Lambda logs before and after the lines of the function itself.
_LAMBDA_RUNTIME_LINE_PATTERN = re.compile(r"^(?:START|END|REPORT) RequestId: ")
_DELIVERY_ID_PATTERN = re.compile(r"[\w-]{1,100}", re.ASCII)
_MAX_RECORD_NESTING_DEPTH = 100


def read_vercel(body: Body) -> ParsedBody:
    """Decode Vercel's log drain, or its older form Zeit. An empty body is Vercel's connection test."""
    parsed = ParsedBody.create_empty_for_body(body)
    if not body.data.strip():
        return parsed
    for index, record in _read_records(body, parsed):
        message, proxy = record.get("message"), _object_or_empty(record.get("proxy"))
        if record.get("source") == "lambda" and isinstance(message, str):
            record["parsedLambdaMessage"] = _parse_lambda_message(message)
        agents = proxy.get("userAgent")
        if isinstance(agents, list):
            proxy["userAgent"] = ",".join(str(agent) for agent in agents)
        names = ("statusCode", "host", "path", "clientIp", "userAgent")
        rest = [message] if message else [proxy.get(name) for name in names]
        parsed.add_event(
            _make_event(record, [record.get("source"), *rest], record.get("timestamp"), record.get("id")), index
        )
    return require_events(parsed)


def read_netlify(body: Body) -> ParsedBody:
    """Decode Netlify's log drain of traffic and functions."""
    parsed = ParsedBody.create_empty_for_body(body)
    for index, record in _read_records(body, parsed):
        timestamp = record.pop("timestamp", None)
        names = (
            "log_type",
            "method",
            "status_code",
            "client_ip",
            "request_id",
            "url",
            "user_agent",
            "level",
            "message",
        )
        parsed.add_event(_make_event(record, [record.get(name) for name in names], timestamp), index)
    return require_events(parsed)


def read_github(body: Body) -> ParsedBody:
    """Decode a GitHub webhook as an event whose id is that of the delivery. Keys that end in `_url` are left out."""
    parsed = ParsedBody.create_empty_for_body(body)
    for index, item in enumerate(split_items(without_unpaired_surrogates(_payload_text(body)), body.max_items)):
        record = _decode_record(item, index, parsed)
        if record is None:
            continue
        record = _without_url_keys(record)
        if body.headers.get("x-github-event"):
            record["github_event"] = body.headers["x-github-event"]
        names = (
            _object_or_empty(record.get("repository")).get("full_name"),
            _object_or_empty(record.get("sender")).get("login"),
        )
        delivery = body.headers.get("x-github-delivery", "")
        message_parts = [*names, record.get("action") or record.get("github_event")]
        parsed.add_event(
            _make_event(record, message_parts, None, delivery if _DELIVERY_ID_PATTERN.fullmatch(delivery) else None),
            index,
        )
    return parsed


def _payload_text(body: Body) -> str:
    """Return the JSON of a body, which may be a form with the JSON in the field `payload`."""
    if body.media_type != "application/x-www-form-urlencoded":
        return body.text
    try:
        return parse_qs(body.text, max_num_fields=100, errors="replace")["payload"][0]
    except (ValueError, KeyError):
        raise BadBody("The form has no field payload.") from None


def _read_records(body: Body, parsed: ParsedBody) -> Iterator[tuple[int, Record]]:
    """Yield the objects of a body, which is an array, a single object, or has one object per line."""
    text = without_unpaired_surrogates(body.text)
    is_lines = body.media_type != "application/json" and text.lstrip()[:1] != "["
    for index, item in (
        non_blank_lines(text, body.max_items) if is_lines else enumerate(split_items(text, body.max_items))
    ):
        record = _decode_record(item, index, parsed)
        if record is not None:
            yield index, record


def _decode_record(item: str, index: int, parsed: ParsedBody) -> Record | None:
    """Decode an item; quarantine it and return None if it is not an object or is nested too deeply."""
    if decode_fields(item, index, parsed) is None:
        return None
    try:
        record: Record = decode_json_value(item)
    except (msgspec.DecodeError, RecursionError):
        parsed.refuse_item(index, TOO_DEEP_REASON, item)
        return None
    return record


def _make_event(
    record: Record, message_parts: Iterable[object], timestamp: object, event_id: object = None
) -> PostedEvent:
    texts = [one if isinstance(one, str) else _encode(one).decode() for one in message_parts if one not in (None, "")]
    return PostedEvent(
        id=event_id if isinstance(event_id, str) else None,
        timestamp=timestamp if isinstance(timestamp, str | int | float) and not isinstance(timestamp, bool) else None,
        event_message=" | ".join(texts),
        metadata=msgspec.Raw(_encode(record)),
    )


def _object_or_empty(value: object) -> Record:
    return value if isinstance(value, dict) else {}


def _parse_lambda_message(message: str) -> Record:
    """Split the message of a function into the report of its runtime and the lines that the function logged."""
    report = _LAMBDA_REPORT_PATTERN.search(message)
    if report is None:
        return {"parse_status": "error"}
    measures = {
        f"{name.lower().replace(' ', '_')}_{unit.lower()}": float(value)
        for name, value, unit in _LAMBDA_REPORT_FIELD_PATTERN.findall(report[2])
        if value.count(".") < 2 and value != "."
    }
    lines = [line for line in message.split("\n") if line.strip() and not _LAMBDA_RUNTIME_LINE_PATTERN.match(line)]
    return {"parse_status": "full", "request_id": report[1], "report": measures, "lines_string": "\n".join(lines)}


def _without_url_keys(record: Record) -> Record:
    """Remove every key that ends in `_url`, at any depth."""
    kept = {key: value for key, value in record.items() if not key.endswith("_url")}
    waiting: list[tuple[Any, int]] = [(kept, 0)]
    while waiting:
        value, level = waiting.pop()
        if level > _MAX_RECORD_NESTING_DEPTH:
            continue
        if isinstance(value, dict):
            for key in [key for key in value if key.endswith("_url")]:
                del value[key]
            waiting += ((one, level + 1) for one in value.values())
        elif isinstance(value, list):
            waiting += ((one, level + 1) for one in value)
    return kept
