"""Read OpenTelemetry spans: each becomes an event at its start, with an id made of the span's ids."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from cordwood.ingest.formats import otlp_protobuf
from cordwood.ingest.formats.otlp import Json, Signal, attributes, event, hex_id, integer, messages, nanoseconds
from cordwood.ingest.parsed_body import PostedEvent

_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
_STATUSES = ("unset", "ok", "error")
# Later times, beyond the year 9999, cannot be formatted.
_LAST_NANOSECOND = 253_402_300_800 * 10**9


def _span_events(span: Json, resource: Json, around: Json) -> Iterator[PostedEvent]:
    start, end = nanoseconds(span.get("startTimeUnixNano")), nanoseconds(span.get("endTimeUnixNano"))
    trace_id, span_id = hex_id(span.get("traceId")), hex_id(span.get("spanId"))
    kind, status = word_of(span.get("kind"), "SPAN_KIND_", _KINDS), span.get("status")
    metadata = {
        "type": "span",
        "trace_id": trace_id,
        "span_id": span_id,
        "parent_span_id": hex_id(span.get("parentSpanId")),
        **_given(span, "traceState", "flags", "droppedAttributesCount", "droppedEventsCount", "droppedLinksCount"),
        "kind": kind,
        "start_time": time_text(start),
        "end_time": time_text(end),
        "duration_ms": _milliseconds(start, end),
        "status": _status(status) if isinstance(status, dict) else None,
        "attributes": attributes(span) or None,
        "events": [_within(one) for one in messages(span, "events")] or None,
        "links": [_within(one) for one in messages(span, "links")] or None,
        **around,
    }
    name = span.get("name")
    # The id makes a retry a duplicate. Both sides of a call may share their ids, but have different kinds.
    given_id = f"{trace_id}-{span_id}-{kind or _KINDS[0]}" if trace_id and span_id else None
    yield event(None if name is None else str(name), start, resource, metadata, given_id)


def _given(span: Json, *names: str) -> Json:
    """Return the fields that have a value, named as metadata is."""
    return {re.sub("([A-Z])", lambda match: f"_{match[1].lower()}", name): span.get(name) or None for name in names}


def _milliseconds(start_ns: int | None, end_ns: int | None) -> float | None:
    if start_ns is None or end_ns is None or max(start_ns, end_ns) >= _LAST_NANOSECOND:
        return None
    return (end_ns - start_ns) / 1e6


def _status(status: Json) -> Json | None:
    told = {"code": word_of(status.get("code"), "STATUS_CODE_", _STATUSES), "message": status.get("message")}
    return {name: value for name, value in told.items() if value} or None


def _within(one: Json) -> Json:
    """Return an event or a link of a span under the names that spans use."""
    told = {
        "name": one.get("name"),
        "timestamp": time_text(nanoseconds(one.get("timeUnixNano"))),
        "trace_id": hex_id(one.get("traceId")),
        "span_id": hex_id(one.get("spanId")),
        "trace_state": one.get("traceState"),
        "attributes": attributes(one),
    }
    return {name: value for name, value in told.items() if value}


def word_of(value: object, prefix: str, words: tuple[str, ...]) -> str | None:
    """Return the word of an enum, which JSON may have as a number or by name; None for an unknown value."""
    number = integer(value)
    if isinstance(number, int):
        return words[number] if 0 < number < len(words) else None
    word = str(value or "").removeprefix(prefix).lower()
    return word if word in words[1:] else None


def time_text(time_ns: int | None) -> str | None:
    """Return a time as ISO 8601 in nanoseconds; None for one out of range."""
    if time_ns is None or time_ns >= _LAST_NANOSECOND:
        return None
    seconds, rest = divmod(time_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"


TRACES = Signal(
    "ExportTraceServiceRequest", "resourceSpans", "scopeSpans", "spans", "span", otlp_protobuf.TRACES, _span_events
)
