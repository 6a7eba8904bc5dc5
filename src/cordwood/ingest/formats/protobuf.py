"""The protobuf wire format, and decoding of OTLP's and other messages to the structure of their JSON encoding."""

import base64
import itertools
import struct
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Final

Value = int | bytes
Message = dict[str, object]
Read = Callable[[Value], object]

# By field number: the name in JSON, the decoder, and whether the field is repeated.
Fields = dict[int, tuple[str, Read, bool]]

# An iterator that ends after as many items as fields may still be decoded for the current request.
_fields_left: ContextVar[Iterator[None]] = ContextVar("fields_left")
_NONE_LEFT: Final = object()

_DOUBLE_BYTES = 8
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


class BadProtobuf(ValueError):
    """Raised for bytes that are not a protobuf message or end early."""


def decoded(data: bytes, field_types: Fields, max_fields: int) -> Message:
    """Decode a message; raise BadProtobuf for more than `max_fields` fields, including those of nested messages."""
    _fields_left.set(itertools.repeat(None, max_fields))
    return _decode_message(data, field_types)


def message_of(field_types: Fields) -> Read:
    """Return the decoder of a nested message."""
    return lambda value: _decode_message(octets(value), field_types)


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yield field numbers with values: integers as on the wire, and everything else as bytes."""
    position, end = 0, len(message)
    while position < end:
        key, position = _read_varint(message, position)
        number, wire_type = key >> 3, key & 7
        if wire_type == _VARINT and number:
            value, position = _read_varint(message, position)
            yield number, value
            continue
        size = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(wire_type)
        if wire_type == _LENGTH:
            size, position = _read_varint(message, position)
        if size is None or position + size > end or number == 0:
            raise BadProtobuf(f"not a protobuf message at byte {position}")
        yield number, message[position : position + size]
        position += size


def _decode_message(data: bytes, field_types: Fields) -> Message:
    message: Message = {}
    left = _fields_left.get()
    for number, value in fields(data):
        if next(left, _NONE_LEFT) is _NONE_LEFT:
            raise BadProtobuf("it has too many fields")
        if number not in field_types:
            continue
        name, read, is_repeated = field_types[number]
        if is_repeated:
            found = message.setdefault(name, [])
            if isinstance(found, list):
                one = read(value)
                # A packed field contains many numbers.
                found.extend(one) if isinstance(one, list) else found.append(one)
        else:
            message[name] = read(value)
    return message


def packed(size: int, read: Read) -> Read:
    """Return a decoder for numbers of a fixed size, single or packed."""

    def numbers(value: Value) -> object:
        if isinstance(value, int) or len(value) == size:
            return read(value)
        if len(value) % size:
            raise BadProtobuf("packed numbers are truncated")
        _count_packed_numbers(len(value) // size)
        return [read(value[position : position + size]) for position in range(0, len(value), size)]

    return numbers


def packed_varints(value: Value) -> object:
    if isinstance(value, int):
        return value
    _count_packed_numbers(len(value))
    return list(_read_varints(value))


def _count_packed_numbers(numbers: int) -> None:
    """Count packed numbers as fields, because each takes as much memory once it is decoded."""
    left = _fields_left.get()
    if any(next(left, _NONE_LEFT) is _NONE_LEFT for _ in range(numbers)):
        raise BadProtobuf("it has too many fields")


def signed(value: Value) -> int:
    """Return an int64 from its varint."""
    number = fixed(value)
    return number - 2**64 if number >= 2**63 else number


def zigzag(value: Value) -> int:
    """Return a sint32 or sint64 from its zigzag encoding."""
    number = fixed(value)
    return number >> 1 ^ -(number & 1)


def _read_varints(values: bytes) -> Iterator[int]:
    position = 0
    while position < len(values):
        number, position = _read_varint(values, position)
        yield number


def fixed(value: Value) -> int:
    return value if isinstance(value, int) else int.from_bytes(value, "little")


def double(value: Value) -> float:
    data = octets(value)
    if len(data) != _DOUBLE_BYTES:
        raise BadProtobuf("a number has the wrong length")
    number: float = struct.unpack("<d", data)[0]
    return number


def octets(value: Value) -> bytes:
    if isinstance(value, int):
        raise BadProtobuf("a number is where a message is expected")
    return value


def text(value: Value) -> str:
    return octets(value).decode("utf-8", "replace")


def written_number(number: int) -> bytes:
    pieces = bytearray()
    while number > 0x7F:
        pieces.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*pieces, number])


def written_field(number: int, value: bytes) -> bytes:
    """Encode a length-delimited field: a string or a nested message."""
    return written_number(number << 3 | _LENGTH) + written_number(len(value)) + value


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    number, shift = 0, 0
    while shift < 70:
        if position >= len(message):
            raise BadProtobuf("the message ends early")
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & (2**64 - 1), position
        shift += 7
    raise BadProtobuf(f"a number is too long at byte {position}")


_RPC_TYPE_PREFIX = b"type.googleapis.com/google.rpc."


def encode_export_response(rejected: int, error: str) -> bytes:
    """Encode an export response of any signal, which is empty if nothing was rejected."""
    if not rejected:
        return b""
    return written_field(1, b"\x08" + written_number(rejected) + written_field(2, error.encode()))


def encode_rpc_status(code: int, message: str, violation: str = "", retry_seconds: int | None = None) -> bytes:
    """Encode a google.rpc.Status; `violation` is the description of a field violation in a BadRequest.

    With `retry_seconds`, the status has a RetryInfo: the request may be repeated after that delay.
    """
    encoded = b"\x08" + written_number(code) + written_field(2, message.encode())
    if violation:
        encoded += _encode_detail(b"BadRequest", written_field(1, written_field(2, violation.encode())))
    return (
        encoded if retry_seconds is None else encoded + _encode_detail(b"RetryInfo", encode_retry_info(retry_seconds))
    )


def encode_retry_info(seconds: int) -> bytes:
    return written_field(1, b"\x08" + written_number(seconds))


def _encode_detail(kind: bytes, message: bytes) -> bytes:
    return written_field(3, written_field(1, _RPC_TYPE_PREFIX + kind) + written_field(2, message))


def _hex(value: Value) -> str:
    return octets(value).hex()


def _base64(value: Value) -> str:
    return base64.b64encode(octets(value)).decode()


_ANY_VALUE: Fields = {}
_KEY_VALUE: Fields = {1: ("key", text, False), 2: ("value", message_of(_ANY_VALUE), False)}
_ARRAY_VALUE: Fields = {1: ("values", message_of(_ANY_VALUE), True)}
_KEY_VALUE_LIST: Fields = {1: ("values", message_of(_KEY_VALUE), True)}
_ANY_VALUE.update(
    {
        1: ("stringValue", text, False),
        2: ("boolValue", lambda value: bool(fixed(value)), False),
        3: ("intValue", signed, False),
        4: ("doubleValue", double, False),
        5: ("arrayValue", message_of(_ARRAY_VALUE), False),
        6: ("kvlistValue", message_of(_KEY_VALUE_LIST), False),
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


OTLP_LOGS = _requests("resourceLogs", "scopeLogs", "logRecords", _RECORD)

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
OTLP_TRACES = _requests("resourceSpans", "scopeSpans", "spans", _SPAN)

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
OTLP_METRICS = _requests("resourceMetrics", "scopeMetrics", "metrics", _METRIC)
