"""Decode OTLP's protobuf messages to the structure of their JSON encoding."""

import base64
import itertools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Final

from cordwood.ingest.formats.protobuf import (
    BadProtobuf,
    Value,
    double,
    fields,
    fixed,
    octets,
    signed,
    text,
    varints,
    written_field,
    written_number,
    zigzag,
)

Message = dict[str, object]
Read = Callable[[Value], object]

# By field number: the name in JSON, the decoder, and whether the field is repeated.
Fields = dict[int, tuple[str, Read, bool]]

# The remaining number of fields that may be decoded for the current request.
_fields_left: ContextVar[Iterator[None]] = ContextVar("fields_left")
_NONE_LEFT: Final = object()

_BAD_REQUEST = b"type.googleapis.com/google.rpc.BadRequest"


def request(data: bytes, known: Fields, most_fields: int) -> Message:
    """Decode an export request; raise BadProtobuf if all its messages together have more than `most_fields` fields."""
    _fields_left.set(itertools.repeat(None, most_fields))
    return _message(data, known)


def response(rejected: int, error: str) -> bytes:
    """Encode an export response, the same for every signal: empty if nothing was rejected."""
    if not rejected:
        return b""
    return written_field(1, b"\x08" + written_number(rejected) + written_field(2, error.encode()))


def status(code: int, message: str, violation: str = "") -> bytes:
    """Encode a google.rpc.Status; `violation` becomes the description of a field violation in a BadRequest."""
    told = b"\x08" + written_number(code) + written_field(2, message.encode())
    if not violation:
        return told
    bad_request = written_field(1, written_field(2, violation.encode()))
    return told + written_field(3, written_field(1, _BAD_REQUEST) + written_field(2, bad_request))


def _message(data: bytes, known: Fields) -> Message:
    message: Message = {}
    left = _fields_left.get()
    for number, value in fields(data):
        if next(left, _NONE_LEFT) is _NONE_LEFT:
            raise BadProtobuf("it has too many fields")
        if number not in known:
            continue
        name, read, is_repeated = known[number]
        if is_repeated:
            found = message.setdefault(name, [])
            if isinstance(found, list):
                one = read(value)
                # A packed field holds many numbers.
                found.extend(one) if isinstance(one, list) else found.append(one)
        else:
            message[name] = read(value)
    return message


def _packed(size: int, read: Read) -> Read:
    """Return a decoder of fixed-size numbers, single or packed."""

    def numbers(value: Value) -> object:
        if isinstance(value, int) or len(value) == size:
            return read(value)
        if len(value) % size:
            raise BadProtobuf("packed numbers are truncated")
        _count(len(value) // size)
        return [read(value[at : at + size]) for at in range(0, len(value), size)]

    return numbers


def _packed_varints(value: Value) -> object:
    if isinstance(value, int):
        return value
    _count(len(value))
    return list(varints(value))


def _count(numbers: int) -> None:
    """Count packed numbers as fields, because each takes as much memory once it is decoded."""
    left = _fields_left.get()
    if any(next(left, _NONE_LEFT) is _NONE_LEFT for _ in range(numbers)):
        raise BadProtobuf("it has too many fields")


def _of(known: Fields) -> Read:
    return lambda value: _message(octets(value), known)


def _hex(value: Value) -> str:
    return octets(value).hex()


def _base64(value: Value) -> str:
    return base64.b64encode(octets(value)).decode()


_ANY_VALUE: Fields = {}
_KEY_VALUE: Fields = {1: ("key", text, False), 2: ("value", _of(_ANY_VALUE), False)}
_LIST: Fields = {1: ("values", _of(_ANY_VALUE), True)}
_PAIRS: Fields = {1: ("values", _of(_KEY_VALUE), True)}
_ANY_VALUE.update(
    {
        1: ("stringValue", text, False),
        2: ("boolValue", lambda value: bool(fixed(value)), False),
        3: ("intValue", signed, False),
        4: ("doubleValue", double, False),
        5: ("arrayValue", _of(_LIST), False),
        6: ("kvlistValue", _of(_PAIRS), False),
        7: ("bytesValue", _base64, False),
    }
)
_ATTRIBUTES = _of(_KEY_VALUE)
_RECORD: Fields = {
    1: ("timeUnixNano", fixed, False),
    2: ("severityNumber", fixed, False),
    3: ("severityText", text, False),
    5: ("body", _of(_ANY_VALUE), False),
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
    """Return the fields of an export request: resources that contain scopes that contain records."""
    of_scope: Fields = {
        1: ("scope", _of(_SCOPE), False),
        2: (records, _of(record), True),
        3: ("schemaUrl", text, False),
    }
    of_resource: Fields = {
        1: ("resource", _of(_RESOURCE), False),
        2: (scopes, _of(of_scope), True),
        3: ("schemaUrl", text, False),
    }
    return {1: (resources, _of(of_resource), True)}


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
    11: ("events", _of(_SPAN_EVENT), True),
    12: ("droppedEventsCount", fixed, False),
    13: ("links", _of(_LINK), True),
    14: ("droppedLinksCount", fixed, False),
    15: ("status", _of(_STATUS), False),
    16: ("flags", fixed, False),
}
TRACES = _requests("resourceSpans", "scopeSpans", "spans", _SPAN)

_TIMES: Fields = {2: ("startTimeUnixNano", fixed, False), 3: ("timeUnixNano", fixed, False)}
_NUMBER_POINT: Fields = {
    **_TIMES,
    4: ("asDouble", double, False),
    6: ("asInt", signed, False),
    7: ("attributes", _ATTRIBUTES, True),
    8: ("flags", fixed, False),
}
_HISTOGRAM_POINT: Fields = {
    **_TIMES,
    4: ("count", fixed, False),
    5: ("sum", double, False),
    6: ("bucketCounts", _packed(8, fixed), True),
    7: ("explicitBounds", _packed(8, double), True),
    9: ("attributes", _ATTRIBUTES, True),
    10: ("flags", fixed, False),
    11: ("min", double, False),
    12: ("max", double, False),
}
_BUCKETS: Fields = {1: ("offset", zigzag, False), 2: ("bucketCounts", _packed_varints, True)}
_EXPONENTIAL_POINT: Fields = {
    **_TIMES,
    1: ("attributes", _ATTRIBUTES, True),
    4: ("count", fixed, False),
    5: ("sum", double, False),
    6: ("scale", zigzag, False),
    7: ("zeroCount", fixed, False),
    8: ("positive", _of(_BUCKETS), False),
    9: ("negative", _of(_BUCKETS), False),
    10: ("flags", fixed, False),
    12: ("min", double, False),
    13: ("max", double, False),
    14: ("zeroThreshold", double, False),
}
_QUANTILE: Fields = {1: ("quantile", double, False), 2: ("value", double, False)}
_SUMMARY_POINT: Fields = {
    **_TIMES,
    4: ("count", fixed, False),
    5: ("sum", double, False),
    6: ("quantileValues", _of(_QUANTILE), True),
    7: ("attributes", _ATTRIBUTES, True),
    8: ("flags", fixed, False),
}


def _points(point: Fields) -> Read:
    return _of(
        {
            1: ("dataPoints", _of(point), True),
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
