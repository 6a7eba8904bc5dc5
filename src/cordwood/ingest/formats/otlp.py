"""OTLP over HTTP in JSON and protobuf: log records, spans and metrics.

A span becomes an event at its start time. The id of this event is made of the trace id, the span id and the kind of the
span. Each data point of a metric becomes an event at the time of the data point.
"""

import base64
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from cordwood.errors import BadBody
from cordwood.ingest.formats.protobuf import (
    OTLP_LOGS_REQUEST_FIELDS,
    OTLP_METRICS_REQUEST_FIELDS,
    OTLP_TRACES_REQUEST_FIELDS,
    BadProtobuf,
    FieldTypes,
    decode_message,
)
from cordwood.ingest.items import (
    check_json_value_count,
    decode_json_value,
    too_many_items_fault,
    without_unpaired_surrogates,
)
from cordwood.ingest.parsed_body import Body, MetadataBudget, ParsedBody, PostedEvent
from cordwood.model.json_checks import describe_json_error

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

JsonObject = Mapping[str, Any]

# The maximum number of protobuf fields of a body, divided by the maximum number of its records. Fields of nested
# messages are counted, too.
_MAX_PROTOBUF_FIELDS_PER_RECORD = 16

_SEVERITY_NAMES = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
_SPAN_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
_SPAN_STATUSES = ("unset", "ok", "error")
# The beginning of the year 10000 in nanoseconds since 1970. Times from then on cannot be formatted.
_YEAR_10000_START_NS = 253_402_300_800 * 10**9
# The value of `metric_type` in the events of a metric. The key is the field that holds the data points of such a metric
# in OTLP's JSON encoding.
_METRIC_TYPES_BY_DATA_KEY = {
    "gauge": "gauge",
    "sum": "sum",
    "histogram": "histogram",
    "exponentialHistogram": "exponential_histogram",
    "summary": "summary",
}
_AGGREGATION_TEMPORALITIES = ("unspecified", "delta", "cumulative")


class OtlpSignal(msgspec.Struct, frozen=True):
    """A signal of OTLP, such as logs.

    It has the names that occur in requests of this signal, and the function that turns a record into events.
    """

    request_name: str
    resources_key: str
    scopes_key: str
    records_key: str
    record_title: str
    field_types: FieldTypes
    # Called with a record, the attributes of its resource, and the metadata that all records of its scope share. (In
    # OTLP, a scope is the library that produced the records, and a resource is the program.)
    make_events: Callable[[JsonObject, JsonObject, JsonObject], Iterable[PostedEvent]]


def read_json_request(signal: OtlpSignal, body: Body) -> ParsedBody:
    check_json_value_count(body.data, body.max_items)
    request = _decode_request(body.text)
    if not isinstance(request, dict):
        raise BadBody(f"The body is not a valid {signal.request_name}: it must be a JSON object.")
    underscored = re.sub(r"([A-Z])", lambda match: f"_{match[1].lower()}", signal.resources_key)
    if underscored in request:
        # Refuse a request with names in snake case, as the .proto file spells them. Otherwise they would be skipped as
        # unknown fields, and the records in them would be lost.
        raise BadBody(
            f"The body is not a valid {signal.request_name}: OTLP's JSON writes {signal.resources_key}, in lowerCamelCase."
        )
    return _read_records(signal, request, body)


def read_protobuf_request(signal: OtlpSignal, body: Body) -> ParsedBody:
    """Decode protobuf to the structure of OTLP's JSON encoding, and make events of its records."""
    try:
        request = decode_message(body.data, signal.field_types, body.max_items * _MAX_PROTOBUF_FIELDS_PER_RECORD)
    except (BadProtobuf, RecursionError) as problem:
        raise BadBody(f"The body is not a valid {signal.request_name}: {problem}.") from problem
    return _read_records(signal, request, body)


def _decode_request(text: str) -> object:
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return _decode_leniently(text)
    except RecursionError as problem:
        raise BadBody("The body is nested too deeply.") from problem


def _decode_leniently(text: str) -> object:
    """Decode JSON that may have unpaired surrogates, or numbers beyond the range of a double."""
    try:
        return decode_json_value(without_unpaired_surrogates(text))
    except (msgspec.DecodeError, RecursionError) as problem:
        raise BadBody(f"The body is not JSON: {describe_json_error(problem, text.encode())}.") from problem


def _read_records(signal: OtlpSignal, request: JsonObject, body: Body) -> ParsedBody:
    parsed, budget, limit = ParsedBody.create_empty_for_body(body), MetadataBudget(body), body.max_items
    index = 0
    for record, resource, shared_metadata in _iterate_records(signal, request):
        if not isinstance(record, dict):
            parsed.refuse_item(index, f"The {signal.record_title} is not an object.", _encode(record).decode())
            index += 1
            continue
        for event in signal.make_events(record, resource, shared_metadata):
            if index >= limit:
                raise too_many_items_fault(limit)
            budget.charge_metadata(event.metadata)
            parsed.add_event(event, index)
            index += 1
    return parsed


def _iterate_records(signal: OtlpSignal, request: JsonObject) -> Iterator[tuple[object, JsonObject, JsonObject]]:
    """Yield each record with the attributes of its resource and the metadata of its scope."""
    for of_resource in _require_objects(signal, request, signal.resources_key):
        resource = _convert_attributes(of_resource.get("resource"))
        for of_scope in _require_objects(signal, of_resource, signal.scopes_key):
            shared_metadata = _shared_metadata(resource, of_scope, of_resource)
            for record in _require_array(signal, of_scope, signal.records_key):
                yield record, resource, shared_metadata


def _require_objects(signal: OtlpSignal, parent: JsonObject, name: str) -> list[JsonObject]:
    """Return the objects of an array; raise BadBody if an element is not an object.

    Such an element cannot be quarantined as one item, because it could contain any number of records.
    """
    found = _require_array(signal, parent, name)
    if not all(isinstance(one, dict) for one in found):
        raise BadBody(f"The body is not a valid {signal.request_name}: {name} holds something that is not an object.")
    return found


def _require_array(signal: OtlpSignal, parent: JsonObject, name: str) -> list[Any]:
    found = parent.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise BadBody(f"The body is not a valid {signal.request_name}: {name} is not an array.")
    return found


def _shared_metadata(resource: JsonObject, of_scope: JsonObject, of_resource: JsonObject) -> dict[str, object]:
    """Return the metadata that all records of a scope share: the resource, the scope and the URL of the schema."""
    schema_url = of_scope.get("schemaUrl") or of_resource.get("schemaUrl")
    return {
        "resource": resource or None,
        "scope": _scope_metadata(of_scope.get("scope")),
        "schema_url": schema_url or None,
    }


def _make_posted_event(
    message: str | None, timestamp: int | None, resource: JsonObject, metadata: JsonObject, given_id: str | None = None
) -> PostedEvent:
    """Return an event of any signal. Metadata fields without a value are left out."""
    project = resource.get("project")
    return PostedEvent(
        id=given_id,
        timestamp=timestamp,
        event_message=message,
        project=None if project is None else str(project),
        metadata=msgspec.Raw(_encode({name: value for name, value in metadata.items() if value is not None})),
    )


def _scope_metadata(scope: object) -> JsonObject | None:
    if not isinstance(scope, dict):
        return None
    fields = {
        "name": scope.get("name"),
        "version": scope.get("version"),
        "attributes": _convert_attributes(scope) or None,
    }
    return {name: value for name, value in fields.items() if value} or None


def _objects_in_array(parent: JsonObject, name: str) -> Iterable[JsonObject]:
    found = parent.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _convert_attributes(owner: object) -> dict[str, object]:
    """Return the attributes of `owner`, such as a span, as an object.

    OTLP sends attributes as a list of keys and values.
    """
    if not isinstance(owner, dict):
        return {}
    return _convert_key_value_list({"values": owner.get("attributes")})


def _convert_any_value(value: object) -> object:
    """Convert an AnyValue of OTLP to plain JSON. OTLP may send 64-bit integers as strings."""
    if not isinstance(value, dict):
        return None
    for kind, one in value.items():
        read = _CONVERTERS_BY_VALUE_KEY.get(kind)
        if read is not None:
            return read(one)
    return None


def _convert_array(value: object) -> object:
    return [_convert_any_value(one) for one in _objects_in_array(value, "values")] if isinstance(value, dict) else []


def _convert_key_value_list(value: object) -> dict[str, object]:
    pairs = _objects_in_array(value, "values") if isinstance(value, dict) else []
    return {str(pair.get("key", "")): _convert_any_value(pair.get("value")) for pair in pairs}


def _integer_or_unchanged(value: object) -> object:
    try:
        return int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return value


def _convert_non_finite_to_text(value: object) -> object:
    """Return a number unchanged, but infinities and NaN as strings, as in protobuf's JSON mapping."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _return_unchanged(value: object) -> object:
    return value


_CONVERTERS_BY_VALUE_KEY: Mapping[str, Callable[[object], object]] = {
    "stringValue": _return_unchanged,
    "boolValue": _return_unchanged,
    "bytesValue": _return_unchanged,
    "intValue": _integer_or_unchanged,
    "doubleValue": _convert_non_finite_to_text,
    "arrayValue": _convert_array,
    "kvlistValue": _convert_key_value_list,
}


def _read_time_ns(value: object) -> int | None:
    """Return a time in nanoseconds, or None for zero, which means that the time is unknown."""
    number = _integer_or_unchanged(value)
    return number if isinstance(number, int) and number > 0 else None


def _convert_id_to_hex(value: object) -> str | None:
    """Return a trace id or span id in hex.

    OTLP's JSON encoding has ids in hex. Ids in base64, as in protobuf's standard JSON mapping, are accepted as well.
    """
    if not isinstance(value, str) or not value.strip("0"):
        return None
    if len(value) in {16, 32} and all(letter in "0123456789abcdefABCDEF" for letter in value):
        return value.lower()
    try:
        return base64.b64decode(value, validate=True).hex() or None
    except ValueError:
        return value


def _enum_value_name(value: object, prefix: str, words: tuple[str, ...]) -> str | None:
    """Return the word for an enum's value; return None if the value is unknown or unspecified.

    The value is a position in `words`, or a name that begins with `prefix`, such as `SPAN_KIND_SERVER` with the prefix
    `SPAN_KIND_`.
    """
    number = _integer_or_unchanged(value)
    if isinstance(number, int):
        return words[number] if 0 < number < len(words) else None
    word = str(value or "").removeprefix(prefix).lower()
    return word if word in words[1:] else None


def _format_time_ns(time_ns: int | None) -> str | None:
    """Format a time as ISO 8601 with nanoseconds; return None for a time out of range."""
    if time_ns is None or time_ns >= _YEAR_10000_START_NS:
        return None
    seconds, rest = divmod(time_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"


def _events_from_log_record(
    record: JsonObject, resource: JsonObject, shared_metadata: JsonObject
) -> Iterator[PostedEvent]:
    body, described = _convert_any_value(record.get("body")), _convert_attributes(record)
    timestamp = _read_time_ns(record.get("timeUnixNano")) or _read_time_ns(record.get("observedTimeUnixNano"))
    metadata = {**_log_record_metadata(record, body, described), **shared_metadata}
    yield _make_posted_event(
        _log_record_message(body, record), timestamp, resource, metadata, _log_record_uid(described)
    )


def _log_record_uid(described: JsonObject) -> str | None:
    """Return the attribute `log.record.uid`. It becomes the event's id, so that a repeated record is a duplicate."""
    uid = described.get("log.record.uid")
    return uid if isinstance(uid, str) else None


def _log_record_metadata(record: JsonObject, body: object, described: JsonObject) -> dict[str, object]:
    severity, severity_text = _severity_number(record.get("severityNumber")), record.get("severityText") or None
    return {
        "type": "otel_log",
        "level": _level_name(severity, severity_text),
        "severity_text": severity_text,
        "severity_number": severity,
        "trace_id": _convert_id_to_hex(record.get("traceId")),
        "span_id": _convert_id_to_hex(record.get("spanId")),
        "flags": record.get("flags") or None,
        "event_name": record.get("eventName") or None,
        "attributes": described or None,
        "dropped_attributes_count": record.get("droppedAttributesCount") or None,
        "body": None if isinstance(body, str) else body,
    }


def _log_record_message(body: object, record: JsonObject) -> str | None:
    if body is None:
        name = record.get("eventName")
        return str(name) if name else None
    return body if isinstance(body, str) else _encode(body).decode()


def _severity_number(value: object) -> int | None:
    """Return the severity number of a log record, which may be sent as an enum name such as SEVERITY_NUMBER_WARN2."""
    if isinstance(value, int):
        return value or None
    name = str(value or "").removeprefix("SEVERITY_NUMBER_")
    word, step = (name[:-1], int(name[-1])) if name[-1:] in {"2", "3", "4"} else (name, 1)
    return _SEVERITY_NAMES.index(word) * 4 + step if word in _SEVERITY_NAMES else None


def _level_name(severity: int | None, severity_text: object) -> str | None:
    """Return the log level: one of six words for the 24 severity numbers, or else the severity text of the sender."""
    if severity is not None and 1 <= severity <= 4 * len(_SEVERITY_NAMES):
        return _SEVERITY_NAMES[(severity - 1) // 4].lower()
    return str(severity_text).lower() if severity_text else None


LOGS_SIGNAL = OtlpSignal(
    "ExportLogsServiceRequest",
    "resourceLogs",
    "scopeLogs",
    "logRecords",
    "log record",
    OTLP_LOGS_REQUEST_FIELDS,
    _events_from_log_record,
)


def _events_from_span(span: JsonObject, resource: JsonObject, shared_metadata: JsonObject) -> Iterator[PostedEvent]:
    start, end = _read_time_ns(span.get("startTimeUnixNano")), _read_time_ns(span.get("endTimeUnixNano"))
    trace_id, span_id = _convert_id_to_hex(span.get("traceId")), _convert_id_to_hex(span.get("spanId"))
    kind, status = _enum_value_name(span.get("kind"), "SPAN_KIND_", _SPAN_KINDS), span.get("status")
    metadata = {
        "type": "span",
        "trace_id": trace_id,
        "span_id": span_id,
        "parent_span_id": _convert_id_to_hex(span.get("parentSpanId")),
        **_snake_case_fields(
            span, "traceState", "flags", "droppedAttributesCount", "droppedEventsCount", "droppedLinksCount"
        ),
        "kind": kind,
        "start_time": _format_time_ns(start),
        "end_time": _format_time_ns(end),
        "duration_ms": _duration_ms(start, end),
        "status": _span_status(status) if isinstance(status, dict) else None,
        "attributes": _convert_attributes(span) or None,
        "events": [_span_event_or_link(one) for one in _objects_in_array(span, "events")] or None,
        "links": [_span_event_or_link(one) for one in _objects_in_array(span, "links")] or None,
        **shared_metadata,
    }
    name = span.get("name")
    # With this id, a span that is sent again is a duplicate. The id includes the kind, because the client and the
    # server of a call may use the same span id.
    given_id = f"{trace_id}-{span_id}-{kind or _SPAN_KINDS[0]}" if trace_id and span_id else None
    yield _make_posted_event(None if name is None else str(name), start, resource, metadata, given_id)


def _snake_case_fields(span: JsonObject, *names: str) -> JsonObject:
    """Return the fields `names` of a span, with their names converted to snake case.

    A field that is missing or empty gets the value None.
    """
    return {re.sub("([A-Z])", lambda match: f"_{match[1].lower()}", name): span.get(name) or None for name in names}


def _duration_ms(start_ns: int | None, end_ns: int | None) -> float | None:
    if start_ns is None or end_ns is None or max(start_ns, end_ns) >= _YEAR_10000_START_NS:
        return None
    return (end_ns - start_ns) / 1e6


def _span_status(status: JsonObject) -> JsonObject | None:
    fields = {
        "code": _enum_value_name(status.get("code"), "STATUS_CODE_", _SPAN_STATUSES),
        "message": status.get("message"),
    }
    return {name: value for name, value in fields.items() if value} or None


def _span_event_or_link(item: JsonObject) -> JsonObject:
    """Convert an event or a link of a span to an object that uses the same field names as spans."""
    fields = {
        "name": item.get("name"),
        "timestamp": _format_time_ns(_read_time_ns(item.get("timeUnixNano"))),
        "trace_id": _convert_id_to_hex(item.get("traceId")),
        "span_id": _convert_id_to_hex(item.get("spanId")),
        "trace_state": item.get("traceState"),
        "attributes": _convert_attributes(item),
    }
    return {name: value for name, value in fields.items() if value}


TRACES_SIGNAL = OtlpSignal(
    "ExportTraceServiceRequest",
    "resourceSpans",
    "scopeSpans",
    "spans",
    "span",
    OTLP_TRACES_REQUEST_FIELDS,
    _events_from_span,
)


def _events_from_metric(metric: JsonObject, resource: JsonObject, shared_metadata: JsonObject) -> Iterator[PostedEvent]:
    name = metric.get("name")
    for data_name, told_type in _METRIC_TYPES_BY_DATA_KEY.items():
        data = metric.get(data_name)
        if not isinstance(data, dict):
            continue
        shared = {
            "type": "metric",
            "metric_type": told_type,
            "unit": metric.get("unit") or None,
            "description": metric.get("description") or None,
            "aggregation_temporality": _enum_value_name(
                data.get("aggregationTemporality"), "AGGREGATION_TEMPORALITY_", _AGGREGATION_TEMPORALITIES
            ),
            "is_monotonic": data.get("isMonotonic"),
            **shared_metadata,
        }
        for point in _data_points(data):
            timestamp = _read_time_ns(point.get("timeUnixNano"))
            yield _make_posted_event(
                None if name is None else str(name), timestamp, resource, {**shared, **_data_point_metadata(point)}
            )


def _data_points(data: JsonObject) -> list[JsonObject]:
    """Return the data points; raise BadBody if an element is not an object.

    Such an element cannot be quarantined as one item, because it could contain any number of data points.
    """
    points = data.get("dataPoints") or []
    if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
        raise BadBody(
            "The body is not a valid ExportMetricsServiceRequest: dataPoints holds something that is not an object."
        )
    return points


def _data_point_metadata(point: JsonObject) -> JsonObject:
    return {
        "value": _data_point_value(point.get("asInt"), point.get("asDouble")),
        "count": _integer_or_unchanged(point.get("count")),
        "sum": _convert_non_finite_to_text(point.get("sum")),
        "min": _convert_non_finite_to_text(point.get("min")),
        "max": _convert_non_finite_to_text(point.get("max")),
        "bucket_counts": _convert_numbers(point.get("bucketCounts")),
        "explicit_bounds": _convert_numbers(point.get("explicitBounds")),
        "scale": _integer_or_unchanged(point.get("scale")),
        "zero_count": _integer_or_unchanged(point.get("zeroCount")),
        "zero_threshold": _convert_non_finite_to_text(point.get("zeroThreshold")),
        "positive": _convert_buckets(point.get("positive")),
        "negative": _convert_buckets(point.get("negative")),
        "quantiles": [
            {
                "quantile": _convert_non_finite_to_text(one.get("quantile", 0.0)),
                "value": _convert_non_finite_to_text(one.get("value", 0.0)),
            }
            for one in _objects_in_array(point, "quantileValues")
        ]
        or None,
        "start_time": _format_time_ns(_read_time_ns(point.get("startTimeUnixNano"))),
        "attributes": _convert_attributes(point) or None,
        "flags": point.get("flags") or None,
    }


def _data_point_value(as_integer: object, as_double: object) -> object:
    return _integer_or_unchanged(as_integer) if as_integer is not None else _convert_non_finite_to_text(as_double)


def _convert_numbers(values: object) -> list[object] | None:
    """Return a list of numbers, or None if it is empty. 64-bit integers that were sent as strings become numbers."""
    if not isinstance(values, list) or not values:
        return None
    return [_integer_or_unchanged(one) if isinstance(one, str) else _convert_non_finite_to_text(one) for one in values]


def _convert_buckets(buckets: object) -> JsonObject | None:
    if not isinstance(buckets, dict):
        return None
    return {
        "offset": _integer_or_unchanged(buckets.get("offset", 0)),
        "bucket_counts": _convert_numbers(buckets.get("bucketCounts")) or [],
    }


METRICS_SIGNAL = OtlpSignal(
    "ExportMetricsServiceRequest",
    "resourceMetrics",
    "scopeMetrics",
    "metrics",
    "metric",
    OTLP_METRICS_REQUEST_FIELDS,
    _events_from_metric,
)
