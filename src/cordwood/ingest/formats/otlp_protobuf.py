"""Decode OTLP's protobuf messages to the structure of their JSON encoding."""

import base64

from cordwood.ingest.formats.protobuf import (
    Fields,
    Read,
    Value,
    double,
    fixed,
    message_of,
    octets,
    packed,
    packed_varints,
    signed,
    text,
    written_field,
    written_number,
    zigzag,
)

_TYPES = b"type.googleapis.com/google.rpc."


def response(rejected: int, error: str) -> bytes:
    """Encode an export response of any signal, which is empty if nothing was rejected."""
    if not rejected:
        return b""
    return written_field(1, b"\x08" + written_number(rejected) + written_field(2, error.encode()))


def status(code: int, message: str, violation: str = "", retry_seconds: int | None = None) -> bytes:
    """Encode a google.rpc.Status; `violation` is the description of a field violation in a BadRequest.

    With `retry_seconds` it has a RetryInfo: the request may be repeated after that delay.
    """
    encoded = b"\x08" + written_number(code) + written_field(2, message.encode())
    if violation:
        encoded += _detail(b"BadRequest", written_field(1, written_field(2, violation.encode())))
    return encoded if retry_seconds is None else encoded + _detail(b"RetryInfo", retry_info(retry_seconds))


def retry_info(seconds: int) -> bytes:
    return written_field(1, b"\x08" + written_number(seconds))


def _detail(kind: bytes, message: bytes) -> bytes:
    return written_field(3, written_field(1, _TYPES + kind) + written_field(2, message))


def _hex(value: Value) -> str:
    return octets(value).hex()


def _base64(value: Value) -> str:
    return base64.b64encode(octets(value)).decode()


_ANY_VALUE: Fields = {}
_KEY_VALUE: Fields = {1: ("key", text, False), 2: ("value", message_of(_ANY_VALUE), False)}
_LIST: Fields = {1: ("values", message_of(_ANY_VALUE), True)}
_PAIRS: Fields = {1: ("values", message_of(_KEY_VALUE), True)}
_ANY_VALUE.update(
    {
        1: ("stringValue", text, False),
        2: ("boolValue", lambda value: bool(fixed(value)), False),
        3: ("intValue", signed, False),
        4: ("doubleValue", double, False),
        5: ("arrayValue", message_of(_LIST), False),
        6: ("kvlistValue", message_of(_PAIRS), False),
        7: ("bytesValue", _base64, False),
    }
)
_ATTRIBUTES = message_of(_KEY_VALUE)
_RECORD: Fields = {
    1: ("timeUnixNano", fixed, False),
    2: ("severityNumber", fixed, False),
    3: ("severityText", text, False),
    5: ("body", message_of(_ANY_VALUE), False),
    6: ("attributes", _ATTRIBUTES, True),
    7: ("droppedAttributesCount", fixed, False),
    8: ("flags", fixed, False),
    9: ("traceId", _hex, False),
    10: ("spanId", _hex, False),
    11: ("observedTimeUnixNano", fixed, False),
    12: ("eventName", text, False),
}
_SCOPE: Fields = {1: ("name", text, False), 2: ("version", text, False), 3: ("attributes", _ATTRIBUTES, True)}
_RESOURCE: Fields = {1: ("attributes", _ATTRIBUTES, True)}


def _requests(resources: str, scopes: str, records: str, record: Fields) -> Fields:
    """Return the fields of an export request: resources with scopes, which have records."""
    of_scope: Fields = {
        1: ("scope", message_of(_SCOPE), False),
        2: (records, message_of(record), True),
        3: ("schemaUrl", text, False),
    }
    of_resource: Fields = {
        1: ("resource", message_of(_RESOURCE), False),
        2: (scopes, message_of(of_scope), True),
        3: ("schemaUrl", text, False),
    }
    return {1: (resources, message_of(of_resource), True)}


LOGS = _requests("resourceLogs", "scopeLogs", "logRecords", _RECORD)

_SPAN_EVENT: Fields = {
    1: ("timeUnixNano", fixed, False),
    2: ("name", text, False),
    3: ("attributes", _ATTRIBUTES, True),
    4: ("droppedAttributesCount", fixed, False),
}
_LINK: Fields = {
    1: ("traceId", _hex, False),
    2: ("spanId", _hex, False),
    3: ("traceState", text, False),
    4: ("attributes", _ATTRIBUTES, True),
}
_STATUS: Fields = {2: ("message", text, False), 3: ("code", fixed, False)}
_SPAN: Fields = {
    1: ("traceId", _hex, False),
    2: ("spanId", _hex, False),
    3: ("traceState", text, False),
    4: ("parentSpanId", _hex, False),
    5: ("name", text, False),
    6: ("kind", fixed, False),
    7: ("startTimeUnixNano", fixed, False),
    8: ("endTimeUnixNano", fixed, False),
    9: ("attributes", _ATTRIBUTES, True),
    10: ("droppedAttributesCount", fixed, False),
    11: ("events", message_of(_SPAN_EVENT), True),
    12: ("droppedEventsCount", fixed, False),
    13: ("links", message_of(_LINK), True),
    14: ("droppedLinksCount", fixed, False),
    15: ("status", message_of(_STATUS), False),
    16: ("flags", fixed, False),
}
TRACES = _requests("resourceSpans", "scopeSpans", "spans", _SPAN)

_TIME_FIELDS: Fields = {2: ("startTimeUnixNano", fixed, False), 3: ("timeUnixNano", fixed, False)}
_NUMBER_POINT: Fields = {
    **_TIME_FIELDS,
    4: ("asDouble", double, False),
    6: ("asInt", signed, False),
    7: ("attributes", _ATTRIBUTES, True),
    8: ("flags", fixed, False),
}
_HISTOGRAM_POINT: Fields = {
    **_TIME_FIELDS,
    4: ("count", fixed, False),
    5: ("sum", double, False),
    6: ("bucketCounts", packed(8, fixed), True),
    7: ("explicitBounds", packed(8, double), True),
    9: ("attributes", _ATTRIBUTES, True),
    10: ("flags", fixed, False),
    11: ("min", double, False),
    12: ("max", double, False),
}
_BUCKETS: Fields = {1: ("offset", zigzag, False), 2: ("bucketCounts", packed_varints, True)}
_EXPONENTIAL_POINT: Fields = {
    **_TIME_FIELDS,
    1: ("attributes", _ATTRIBUTES, True),
    4: ("count", fixed, False),
    5: ("sum", double, False),
    6: ("scale", zigzag, False),
    7: ("zeroCount", fixed, False),
    8: ("positive", message_of(_BUCKETS), False),
    9: ("negative", message_of(_BUCKETS), False),
    10: ("flags", fixed, False),
    12: ("min", double, False),
    13: ("max", double, False),
    14: ("zeroThreshold", double, False),
}
_QUANTILE: Fields = {1: ("quantile", double, False), 2: ("value", double, False)}
_SUMMARY_POINT: Fields = {
    **_TIME_FIELDS,
    4: ("count", fixed, False),
    5: ("sum", double, False),
    6: ("quantileValues", message_of(_QUANTILE), True),
    7: ("attributes", _ATTRIBUTES, True),
    8: ("flags", fixed, False),
}


def _points(point: Fields) -> Read:
    return message_of(
        {
            1: ("dataPoints", message_of(point), True),
            2: ("aggregationTemporality", fixed, False),
            3: ("isMonotonic", lambda value: bool(fixed(value)), False),
        }
    )


_METRIC: Fields = {
    1: ("name", text, False),
    2: ("description", text, False),
    3: ("unit", text, False),
    5: ("gauge", _points(_NUMBER_POINT), False),
    7: ("sum", _points(_NUMBER_POINT), False),
    9: ("histogram", _points(_HISTOGRAM_POINT), False),
    10: ("exponentialHistogram", _points(_EXPONENTIAL_POINT), False),
    11: ("summary", _points(_SUMMARY_POINT), False),
}
METRICS = _requests("resourceMetrics", "scopeMetrics", "metrics", _METRIC)
