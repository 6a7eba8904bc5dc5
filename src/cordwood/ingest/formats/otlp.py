"""OTLP over HTTP in JSON and protobuf: log records, spans and metrics.

A span becomes an event at its start time, whose id is made of the trace id, the span id and the kind. Each data point
of a metric becomes an event at its time.
"""

import base64
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from cordwood.errors import BadBody
from cordwood.ingest.formats.protobuf import OTLP_LOGS, OTLP_METRICS, OTLP_TRACES, BadProtobuf, Fields, decoded
from cordwood.ingest.items import check_values, decoded_values, too_many, without_unpaired_surrogates
from cordwood.ingest.parsed_body import Body, MetadataBudget, ParsedBody, PostedEvent
from cordwood.model.json_checks import describe_json_error

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Json = Mapping[str, Any]

# The maximum number of fields of a protobuf record, including those of nested messages.
_FIELDS_PER_RECORD = 16

_SEVERITIES = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
_SPAN_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
_SPAN_STATUSES = ("unset", "ok", "error")
# The last time that can be formatted, in the year 9999.
_LAST_NANOSECOND = 253_402_300_800 * 10**9
# The `metric_type` of events, by the member of a metric that has the data in OTLP's JSON encoding.
_METRIC_TYPES = {
    "gauge": "gauge",
    "sum": "sum",
    "histogram": "histogram",
    "exponentialHistogram": "exponential_histogram",
    "summary": "summary",
}
_TEMPORALITIES = ("unspecified", "delta", "cumulative")


class Signal(msgspec.Struct, frozen=True):
    """A signal of OTLP: the names of its request and of the nested arrays, and how a record becomes events."""

    request: str
    resources: str
    scopes: str
    records: str
    what: str
    fields: Fields
    # Called with a record, the attributes of its resource, and the metadata that all records of its scope share.
    events: Callable[[Json, Json, Json], Iterable[PostedEvent]]


def read_json(signal: Signal, body: Body) -> ParsedBody:
    check_values(body.data, body.max_items)
    request = _request(body.text)
    if not isinstance(request, dict):
        raise BadBody(f"The body is not a valid {signal.request}: it must be a JSON object.")
    underscored = re.sub(r"([A-Z])", lambda match: f"_{match[1].lower()}", signal.resources)
    if underscored in request:
        # Names from the .proto file are refused: they would be skipped as unknown fields, with all records in them.
        raise BadBody(
            f"The body is not a valid {signal.request}: OTLP's JSON writes {signal.resources}, in lowerCamelCase."
        )
    return _read(signal, request, body)


def read_protobuf(signal: Signal, body: Body) -> ParsedBody:
    """Decode protobuf to the structure of OTLP's JSON encoding, then read it like JSON."""
    try:
        request = decoded(body.data, signal.fields, body.max_items * _FIELDS_PER_RECORD)
    except (BadProtobuf, RecursionError) as problem:
        raise BadBody(f"The body is not a valid {signal.request}: {problem}.") from problem
    return _read(signal, request, body)


def _request(text: str) -> object:
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return _decode_leniently(text)
    except RecursionError as problem:
        raise BadBody("The body is nested too deeply.") from problem


def _decode_leniently(text: str) -> object:
    """Decode JSON with unpaired surrogates, or with numbers beyond the range of a double."""
    try:
        return decoded_values(without_unpaired_surrogates(text))
    except (msgspec.DecodeError, RecursionError) as problem:
        raise BadBody(f"The body is not JSON: {describe_json_error(problem, text.encode())}.") from problem


def _read(signal: Signal, request: Json, body: Body) -> ParsedBody:
    parsed, budget, limit = ParsedBody.of(body), MetadataBudget(body), body.max_items
    index = 0
    for record, resource, shared_metadata in _records(signal, request):
        if not isinstance(record, dict):
            parsed.refuse(index, f"The {signal.what} is not an object.", _encode(record).decode())
            index += 1
            continue
        for event in signal.events(record, resource, shared_metadata):
            if index >= limit:
                raise too_many(limit)
            budget.take(event.metadata)
            parsed.add(event, index)
            index += 1
    return parsed


def _records(signal: Signal, request: Json) -> Iterator[tuple[object, Json, Json]]:
    """Yield each record with the attributes of its resource and the metadata of its scope."""
    for of_resource in _messages(signal, request, signal.resources):
        resource = _attributes(of_resource.get("resource"))
        for of_scope in _messages(signal, of_resource, signal.scopes):
            shared_metadata = _shared_metadata(resource, of_scope, of_resource)
            for record in _array(signal, of_scope, signal.records):
                yield record, resource, shared_metadata


def _messages(signal: Signal, parent: Json, name: str) -> list[Json]:
    """Return the messages; raise BadBody if one is not an object, because it could stand for any number of records."""
    found = _array(signal, parent, name)
    if not all(isinstance(one, dict) for one in found):
        raise BadBody(f"The body is not a valid {signal.request}: {name} holds something that is not an object.")
    return found


def _array(signal: Signal, parent: Json, name: str) -> list[Any]:
    found = parent.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise BadBody(f"The body is not a valid {signal.request}: {name} is not an array.")
    return found


def _shared_metadata(resource: Json, of_scope: Json, of_resource: Json) -> dict[str, object]:
    """Return the metadata that all records of a scope share."""
    schema_url = of_scope.get("schemaUrl") or of_resource.get("schemaUrl")
    return {"resource": resource or None, "scope": _scope(of_scope.get("scope")), "schema_url": schema_url or None}


def _posted_event(
    message: str | None, timestamp: int | None, resource: Json, metadata: Json, given_id: str | None = None
) -> PostedEvent:
    """Return an event of any signal, without metadata fields that have no value."""
    project = resource.get("project")
    return PostedEvent(
        id=given_id,
        timestamp=timestamp,
        event_message=message,
        project=None if project is None else str(project),
        metadata=msgspec.Raw(_encode({name: value for name, value in metadata.items() if value is not None})),
    )


def _scope(scope: object) -> Json | None:
    if not isinstance(scope, dict):
        return None
    fields = {"name": scope.get("name"), "version": scope.get("version"), "attributes": _attributes(scope) or None}
    return {name: value for name, value in fields.items() if value} or None


def _objects(parent: Json, name: str) -> Iterable[Json]:
    found = parent.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _attributes(owner: object) -> dict[str, object]:
    """Return key-value pairs as an object, with their keys unchanged."""
    if not isinstance(owner, dict):
        return {}
    return _pairs({"values": owner.get("attributes")})


def _any_value(value: object) -> object:
    """Convert an AnyValue of OTLP to plain JSON. 64-bit integers may be strings."""
    if not isinstance(value, dict):
        return None
    for kind, one in value.items():
        read = _VALUES.get(kind)
        if read is not None:
            return read(one)
    return None


def _list(value: object) -> object:
    return [_any_value(one) for one in _objects(value, "values")] if isinstance(value, dict) else []


def _pairs(value: object) -> dict[str, object]:
    pairs = _objects(value, "values") if isinstance(value, dict) else []
    return {str(pair.get("key", "")): _any_value(pair.get("value")) for pair in pairs}


def _integer(value: object) -> object:
    try:
        return int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return value


def _finite(value: object) -> object:
    """Return a number; infinities and NaN become strings, as in protobuf's JSON mapping."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _unchanged(value: object) -> object:
    return value


_VALUES: Mapping[str, Callable[[object], object]] = {
    "stringValue": _unchanged,
    "boolValue": _unchanged,
    "bytesValue": _unchanged,
    "intValue": _integer,
    "doubleValue": _finite,
    "arrayValue": _list,
    "kvlistValue": _pairs,
}


def _nanoseconds(value: object) -> int | None:
    """Return a time in nanoseconds, or None for zero, which means that the time is unknown."""
    number = _integer(value)
    return number if isinstance(number, int) and number > 0 else None


def _hex_id(value: object) -> str | None:
    """Return an id in hex. OTLP's JSON has ids in hex, the standard mapping of protobuf in base64."""
    if not isinstance(value, str) or not value.strip("0"):
        return None
    if len(value) in {16, 32} and all(letter in "0123456789abcdefABCDEF" for letter in value):
        return value.lower()
    try:
        return base64.b64decode(value, validate=True).hex() or None
    except ValueError:
        return value


def _word_of(value: object, prefix: str, words: tuple[str, ...]) -> str | None:
    """Return the word for an enum's value, which is a number or a name in JSON; return None for an unknown value."""
    number = _integer(value)
    if isinstance(number, int):
        return words[number] if 0 < number < len(words) else None
    word = str(value or "").removeprefix(prefix).lower()
    return word if word in words[1:] else None


def _time_text(time_ns: int | None) -> str | None:
    """Format a time as ISO 8601 with nanoseconds; return None for a time out of range."""
    if time_ns is None or time_ns >= _LAST_NANOSECOND:
        return None
    seconds, rest = divmod(time_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"


def _log_events(record: Json, resource: Json, shared_metadata: Json) -> Iterator[PostedEvent]:
    body, described = _any_value(record.get("body")), _attributes(record)
    timestamp = _nanoseconds(record.get("timeUnixNano")) or _nanoseconds(record.get("observedTimeUnixNano"))
    metadata = {**_log_metadata(record, body, described), **shared_metadata}
    yield _posted_event(_log_message(body, record), timestamp, resource, metadata, _log_uid(described))


def _log_uid(described: Json) -> str | None:
    """Return the attribute `log.record.uid`, which becomes the event's id, so that a repeated record is a duplicate."""
    uid = described.get("log.record.uid")
    return uid if isinstance(uid, str) else None


def _log_metadata(record: Json, body: object, described: Json) -> dict[str, object]:
    severity, severity_text = _severity(record.get("severityNumber")), record.get("severityText") or None
    return {
        "type": "otel_log",
        "level": _level(severity, severity_text),
        "severity_text": severity_text,
        "severity_number": severity,
        "trace_id": _hex_id(record.get("traceId")),
        "span_id": _hex_id(record.get("spanId")),
        "flags": record.get("flags") or None,
        "event_name": record.get("eventName") or None,
        "attributes": described or None,
        "dropped_attributes_count": record.get("droppedAttributesCount") or None,
        "body": None if isinstance(body, str) else body,
    }


def _log_message(body: object, record: Json) -> str | None:
    if body is None:
        name = record.get("eventName")
        return str(name) if name else None
    return body if isinstance(body, str) else _encode(body).decode()


def _severity(value: object) -> int | None:
    """Return the severity of a number, or of an enum name such as SEVERITY_NUMBER_WARN2."""
    if isinstance(value, int):
        return value or None
    name = str(value or "").removeprefix("SEVERITY_NUMBER_")
    word, step = name.rstrip("234"), name[len(name.rstrip("234")) :]
    return _SEVERITIES.index(word) * 4 + int(step or 1) if word in _SEVERITIES else None


def _level(severity: int | None, severity_text: object) -> str | None:
    """Return the level: one of six words for the 24 severity numbers or, without a number, the sender's text."""
    if severity is not None and 1 <= severity <= 4 * len(_SEVERITIES):
        return _SEVERITIES[(severity - 1) // 4].lower()
    return str(severity_text).lower() if severity_text else None


LOGS = Signal(
    "ExportLogsServiceRequest", "resourceLogs", "scopeLogs", "logRecords", "log record", OTLP_LOGS, _log_events
)


def _span_events(span: Json, resource: Json, shared_metadata: Json) -> Iterator[PostedEvent]:
    start, end = _nanoseconds(span.get("startTimeUnixNano")), _nanoseconds(span.get("endTimeUnixNano"))
    trace_id, span_id = _hex_id(span.get("traceId")), _hex_id(span.get("spanId"))
    kind, status = _word_of(span.get("kind"), "SPAN_KIND_", _SPAN_KINDS), span.get("status")
    metadata = {
        "type": "span",
        "trace_id": trace_id,
        "span_id": span_id,
        "parent_span_id": _hex_id(span.get("parentSpanId")),
        **_present_fields(
            span, "traceState", "flags", "droppedAttributesCount", "droppedEventsCount", "droppedLinksCount"
        ),
        "kind": kind,
        "start_time": _time_text(start),
        "end_time": _time_text(end),
        "duration_ms": _milliseconds(start, end),
        "status": _span_status(status) if isinstance(status, dict) else None,
        "attributes": _attributes(span) or None,
        "events": [_nested_span_item(one) for one in _objects(span, "events")] or None,
        "links": [_nested_span_item(one) for one in _objects(span, "links")] or None,
        **shared_metadata,
    }
    name = span.get("name")
    # The id makes a retry a duplicate. It includes the kind, because both sides of a call may use the same span id.
    given_id = f"{trace_id}-{span_id}-{kind or _SPAN_KINDS[0]}" if trace_id and span_id else None
    yield _posted_event(None if name is None else str(name), start, resource, metadata, given_id)


def _present_fields(span: Json, *names: str) -> Json:
    """Return the named fields under the names of metadata fields, with None for a field without a value."""
    return {re.sub("([A-Z])", lambda match: f"_{match[1].lower()}", name): span.get(name) or None for name in names}


def _milliseconds(start_ns: int | None, end_ns: int | None) -> float | None:
    if start_ns is None or end_ns is None or max(start_ns, end_ns) >= _LAST_NANOSECOND:
        return None
    return (end_ns - start_ns) / 1e6


def _span_status(status: Json) -> Json | None:
    fields = {"code": _word_of(status.get("code"), "STATUS_CODE_", _SPAN_STATUSES), "message": status.get("message")}
    return {name: value for name, value in fields.items() if value} or None


def _nested_span_item(item: Json) -> Json:
    """Convert an event or a link of a span to the field names of spans."""
    fields = {
        "name": item.get("name"),
        "timestamp": _time_text(_nanoseconds(item.get("timeUnixNano"))),
        "trace_id": _hex_id(item.get("traceId")),
        "span_id": _hex_id(item.get("spanId")),
        "trace_state": item.get("traceState"),
        "attributes": _attributes(item),
    }
    return {name: value for name, value in fields.items() if value}


TRACES = Signal("ExportTraceServiceRequest", "resourceSpans", "scopeSpans", "spans", "span", OTLP_TRACES, _span_events)


def _metric_events(metric: Json, resource: Json, shared_metadata: Json) -> Iterator[PostedEvent]:
    name = metric.get("name")
    for data_name, told_type in _METRIC_TYPES.items():
        data = metric.get(data_name)
        if not isinstance(data, dict):
            continue
        shared = {
            "type": "metric",
            "metric_type": told_type,
            "unit": metric.get("unit") or None,
            "description": metric.get("description") or None,
            "aggregation_temporality": _word_of(
                data.get("aggregationTemporality"), "AGGREGATION_TEMPORALITY_", _TEMPORALITIES
            ),
            "is_monotonic": data.get("isMonotonic"),
            **shared_metadata,
        }
        for point in _points(data):
            timestamp = _nanoseconds(point.get("timeUnixNano"))
            yield _posted_event(None if name is None else str(name), timestamp, resource, {**shared, **_point(point)})


def _points(data: Json) -> list[Json]:
    """Return the data points; raise BadBody if one is not an object, as it could stand for any number of points."""
    points = data.get("dataPoints") or []
    if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
        raise BadBody(
            "The body is not a valid ExportMetricsServiceRequest: dataPoints holds something that is not an object."
        )
    return points


def _point(point: Json) -> Json:
    return {
        "value": _number(point.get("asInt"), point.get("asDouble")),
        "count": _integer(point.get("count")),
        "sum": _finite(point.get("sum")),
        "min": _finite(point.get("min")),
        "max": _finite(point.get("max")),
        "bucket_counts": _numbers(point.get("bucketCounts")),
        "explicit_bounds": _numbers(point.get("explicitBounds")),
        "scale": _integer(point.get("scale")),
        "zero_count": _integer(point.get("zeroCount")),
        "zero_threshold": _finite(point.get("zeroThreshold")),
        "positive": _buckets(point.get("positive")),
        "negative": _buckets(point.get("negative")),
        "quantiles": [
            {"quantile": _finite(one.get("quantile", 0.0)), "value": _finite(one.get("value", 0.0))}
            for one in _objects(point, "quantileValues")
        ]
        or None,
        "start_time": _time_text(_nanoseconds(point.get("startTimeUnixNano"))),
        "attributes": _attributes(point) or None,
        "flags": point.get("flags") or None,
    }


def _number(as_integer: object, as_double: object) -> object:
    return _integer(as_integer) if as_integer is not None else _finite(as_double)


def _numbers(values: object) -> list[object] | None:
    """Return a list of numbers, of which 64-bit integers may be strings."""
    if not isinstance(values, list) or not values:
        return None
    return [_integer(one) if isinstance(one, str) else _finite(one) for one in values]


def _buckets(buckets: object) -> Json | None:
    if not isinstance(buckets, dict):
        return None
    return {"offset": _integer(buckets.get("offset", 0)), "bucket_counts": _numbers(buckets.get("bucketCounts")) or []}


METRICS = Signal(
    "ExportMetricsServiceRequest",
    "resourceMetrics",
    "scopeMetrics",
    "metrics",
    "metric",
    OTLP_METRICS,
    _metric_events,
)
