"""Decode protobuf messages, such as those of OTLP, to the structure of their JSON encoding, and encode responses."""

import base64
import itertools
import struct
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Final

WireValue = int | bytes
DecodedMessage = dict[str, object]
FieldDecoder = Callable[[WireValue], object]

# By field number: the name of the field in JSON, its decoder, and whether the field is repeated.
FieldTypes = dict[int, tuple[str, FieldDecoder, bool]]

# An iterator that yields once for each field that may still be decoded in the current request, and then ends.
_remaining_fields_iterator: ContextVar[Iterator[None]] = ContextVar("fields_left")
_NO_FIELDS_LEFT: Final = object()

_BYTES_PER_DOUBLE = 8
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


class BadProtobuf(ValueError):
    """Raised for bytes that are not a protobuf message or end early."""


def decode_message(data: bytes, field_types: FieldTypes, max_fields: int) -> DecodedMessage:
    """Decode a message; raise BadProtobuf for more than `max_fields` fields, including those of nested messages."""
    _remaining_fields_iterator.set(itertools.repeat(None, max_fields))
    return _decode_nested_message(data, field_types)


def message_decoder(field_types: FieldTypes) -> FieldDecoder:
    """Return the decoder of a nested message."""
    return lambda value: _decode_nested_message(require_bytes(value), field_types)


def iterate_fields(message: bytes) -> Iterator[tuple[int, WireValue]]:
    """Yield the number and the value of each field: a varint as an integer, any other value as bytes."""
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


def _decode_nested_message(data: bytes, field_types: FieldTypes) -> DecodedMessage:
    message: DecodedMessage = {}
    left = _remaining_fields_iterator.get()
    for number, value in iterate_fields(data):
        if next(left, _NO_FIELDS_LEFT) is _NO_FIELDS_LEFT:
            raise BadProtobuf("it has too many fields")
        if number not in field_types:
            continue
        name, read, is_repeated = field_types[number]
        if is_repeated:
            found = message.setdefault(name, [])
            if isinstance(found, list):
                one = read(value)
                # The decoder of a packed field returns a list of numbers.
                found.extend(one) if isinstance(one, list) else found.append(one)
        else:
            message[name] = read(value)
    return message


def packed_numbers_decoder(size: int, read: FieldDecoder) -> FieldDecoder:
    """Return a decoder for a field of numbers of a fixed size, which may be sent singly or packed together."""

    def decode_numbers(value: WireValue) -> object:
        if isinstance(value, int) or len(value) == size:
            return read(value)
        if len(value) % size:
            raise BadProtobuf("packed numbers are truncated")
        _count_packed_numbers_as_fields(len(value) // size)
        return [read(value[position : position + size]) for position in range(0, len(value), size)]

    return decode_numbers


def decode_packed_varints(value: WireValue) -> object:
    if isinstance(value, int):
        return value
    _count_packed_numbers_as_fields(len(value))
    return list(_read_varints(value))


def _count_packed_numbers_as_fields(numbers: int) -> None:
    """Count each number of a packed field as a field, because a decoded number takes as much memory as a field."""
    left = _remaining_fields_iterator.get()
    if any(next(left, _NO_FIELDS_LEFT) is _NO_FIELDS_LEFT for _ in range(numbers)):
        raise BadProtobuf("it has too many fields")


def decode_int64(value: WireValue) -> int:
    """Return the int64 that a varint encodes."""
    number = decode_unsigned(value)
    return number - 2**64 if number >= 2**63 else number


def decode_zigzag(value: WireValue) -> int:
    """Return the sint32 or sint64 that a zigzag-encoded varint stands for."""
    number = decode_unsigned(value)
    return number >> 1 ^ -(number & 1)


def _read_varints(values: bytes) -> Iterator[int]:
    position = 0
    while position < len(values):
        number, position = _read_varint(values, position)
        yield number


def decode_unsigned(value: WireValue) -> int:
    return value if isinstance(value, int) else int.from_bytes(value, "little")


def decode_double(value: WireValue) -> float:
    data = require_bytes(value)
    if len(data) != _BYTES_PER_DOUBLE:
        raise BadProtobuf("a number has the wrong length")
    number: float = struct.unpack("<d", data)[0]
    return number


def require_bytes(value: WireValue) -> bytes:
    if isinstance(value, int):
        raise BadProtobuf("a number is where a message is expected")
    return value


def decode_text(value: WireValue) -> str:
    return require_bytes(value).decode("utf-8", "replace")


def encode_varint(number: int) -> bytes:
    pieces = bytearray()
    while number > 0x7F:
        pieces.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*pieces, number])


def encode_bytes_field(number: int, value: bytes) -> bytes:
    """Encode a length-delimited field, whose value is a string or a nested message."""
    return encode_varint(number << 3 | _LENGTH) + encode_varint(len(value)) + value


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


_RPC_TYPE_URL_PREFIX = b"type.googleapis.com/google.rpc."


def encode_export_response(rejected: int, error: str) -> bytes:
    """Encode the response to an export request of any signal. It is empty if no record was rejected."""
    if not rejected:
        return b""
    return encode_bytes_field(1, b"\x08" + encode_varint(rejected) + encode_bytes_field(2, error.encode()))


def encode_rpc_status(code: int, message: str, violation: str = "", retry_seconds: int | None = None) -> bytes:
    """Encode a google.rpc.Status. If `violation` is given, the status has a BadRequest with this description.

    With `retry_seconds`, the status has a RetryInfo, which tells the sender to repeat the request after that delay.
    """
    encoded = b"\x08" + encode_varint(code) + encode_bytes_field(2, message.encode())
    if violation:
        encoded += _encode_rpc_status_detail(
            b"BadRequest", encode_bytes_field(1, encode_bytes_field(2, violation.encode()))
        )
    return (
        encoded
        if retry_seconds is None
        else encoded + _encode_rpc_status_detail(b"RetryInfo", encode_retry_info(retry_seconds))
    )


def encode_retry_info(seconds: int) -> bytes:
    return encode_bytes_field(1, b"\x08" + encode_varint(seconds))


def _encode_rpc_status_detail(kind: bytes, message: bytes) -> bytes:
    return encode_bytes_field(3, encode_bytes_field(1, _RPC_TYPE_URL_PREFIX + kind) + encode_bytes_field(2, message))


def _decode_bytes_to_hex(value: WireValue) -> str:
    return require_bytes(value).hex()


def _decode_bytes_to_base64(value: WireValue) -> str:
    return base64.b64encode(require_bytes(value)).decode()


_ANY_VALUE_FIELDS: FieldTypes = {}
_KEY_VALUE_FIELDS: FieldTypes = {
    1: ("key", decode_text, False),
    2: ("value", message_decoder(_ANY_VALUE_FIELDS), False),
}
_ARRAY_VALUE_FIELDS: FieldTypes = {1: ("values", message_decoder(_ANY_VALUE_FIELDS), True)}
_KEY_VALUE_LIST_FIELDS: FieldTypes = {1: ("values", message_decoder(_KEY_VALUE_FIELDS), True)}
_ANY_VALUE_FIELDS.update(
    {
        1: ("stringValue", decode_text, False),
        2: ("boolValue", lambda value: bool(decode_unsigned(value)), False),
        3: ("intValue", decode_int64, False),
        4: ("doubleValue", decode_double, False),
        5: ("arrayValue", message_decoder(_ARRAY_VALUE_FIELDS), False),
        6: ("kvlistValue", message_decoder(_KEY_VALUE_LIST_FIELDS), False),
        7: ("bytesValue", _decode_bytes_to_base64, False),
    }
)
_ATTRIBUTES_DECODER = message_decoder(_KEY_VALUE_FIELDS)
_LOG_RECORD_FIELDS: FieldTypes = {
    1: ("timeUnixNano", decode_unsigned, False),
    2: ("severityNumber", decode_unsigned, False),
    3: ("severityText", decode_text, False),
    5: ("body", message_decoder(_ANY_VALUE_FIELDS), False),
    6: ("attributes", _ATTRIBUTES_DECODER, True),
    7: ("droppedAttributesCount", decode_unsigned, False),
    8: ("flags", decode_unsigned, False),
    9: ("traceId", _decode_bytes_to_hex, False),
    10: ("spanId", _decode_bytes_to_hex, False),
    11: ("observedTimeUnixNano", decode_unsigned, False),
    12: ("eventName", decode_text, False),
}
_SCOPE_FIELDS: FieldTypes = {
    1: ("name", decode_text, False),
    2: ("version", decode_text, False),
    3: ("attributes", _ATTRIBUTES_DECODER, True),
}
_RESOURCE_FIELDS: FieldTypes = {1: ("attributes", _ATTRIBUTES_DECODER, True)}


def _export_request_fields(resources: str, scopes: str, records: str, record: FieldTypes) -> FieldTypes:
    """Return the field types of an export request, in which resources contain scopes, and scopes contain records."""
    of_scope: FieldTypes = {
        1: ("scope", message_decoder(_SCOPE_FIELDS), False),
        2: (records, message_decoder(record), True),
        3: ("schemaUrl", decode_text, False),
    }
    of_resource: FieldTypes = {
        1: ("resource", message_decoder(_RESOURCE_FIELDS), False),
        2: (scopes, message_decoder(of_scope), True),
        3: ("schemaUrl", decode_text, False),
    }
    return {1: (resources, message_decoder(of_resource), True)}


OTLP_LOGS_REQUEST_FIELDS = _export_request_fields("resourceLogs", "scopeLogs", "logRecords", _LOG_RECORD_FIELDS)

_SPAN_EVENT_FIELDS: FieldTypes = {
    1: ("timeUnixNano", decode_unsigned, False),
    2: ("name", decode_text, False),
    3: ("attributes", _ATTRIBUTES_DECODER, True),
    4: ("droppedAttributesCount", decode_unsigned, False),
}
_SPAN_LINK_FIELDS: FieldTypes = {
    1: ("traceId", _decode_bytes_to_hex, False),
    2: ("spanId", _decode_bytes_to_hex, False),
    3: ("traceState", decode_text, False),
    4: ("attributes", _ATTRIBUTES_DECODER, True),
}
_SPAN_STATUS_FIELDS: FieldTypes = {2: ("message", decode_text, False), 3: ("code", decode_unsigned, False)}
_SPAN_FIELDS: FieldTypes = {
    1: ("traceId", _decode_bytes_to_hex, False),
    2: ("spanId", _decode_bytes_to_hex, False),
    3: ("traceState", decode_text, False),
    4: ("parentSpanId", _decode_bytes_to_hex, False),
    5: ("name", decode_text, False),
    6: ("kind", decode_unsigned, False),
    7: ("startTimeUnixNano", decode_unsigned, False),
    8: ("endTimeUnixNano", decode_unsigned, False),
    9: ("attributes", _ATTRIBUTES_DECODER, True),
    10: ("droppedAttributesCount", decode_unsigned, False),
    11: ("events", message_decoder(_SPAN_EVENT_FIELDS), True),
    12: ("droppedEventsCount", decode_unsigned, False),
    13: ("links", message_decoder(_SPAN_LINK_FIELDS), True),
    14: ("droppedLinksCount", decode_unsigned, False),
    15: ("status", message_decoder(_SPAN_STATUS_FIELDS), False),
    16: ("flags", decode_unsigned, False),
}
OTLP_TRACES_REQUEST_FIELDS = _export_request_fields("resourceSpans", "scopeSpans", "spans", _SPAN_FIELDS)

_POINT_TIME_FIELDS: FieldTypes = {
    2: ("startTimeUnixNano", decode_unsigned, False),
    3: ("timeUnixNano", decode_unsigned, False),
}
_NUMBER_POINT_FIELDS: FieldTypes = {
    **_POINT_TIME_FIELDS,
    4: ("asDouble", decode_double, False),
    6: ("asInt", decode_int64, False),
    7: ("attributes", _ATTRIBUTES_DECODER, True),
    8: ("flags", decode_unsigned, False),
}
_HISTOGRAM_POINT_FIELDS: FieldTypes = {
    **_POINT_TIME_FIELDS,
    4: ("count", decode_unsigned, False),
    5: ("sum", decode_double, False),
    6: ("bucketCounts", packed_numbers_decoder(8, decode_unsigned), True),
    7: ("explicitBounds", packed_numbers_decoder(8, decode_double), True),
    9: ("attributes", _ATTRIBUTES_DECODER, True),
    10: ("flags", decode_unsigned, False),
    11: ("min", decode_double, False),
    12: ("max", decode_double, False),
}
_EXPONENTIAL_BUCKETS_FIELDS: FieldTypes = {
    1: ("offset", decode_zigzag, False),
    2: ("bucketCounts", decode_packed_varints, True),
}
_EXPONENTIAL_HISTOGRAM_POINT_FIELDS: FieldTypes = {
    **_POINT_TIME_FIELDS,
    1: ("attributes", _ATTRIBUTES_DECODER, True),
    4: ("count", decode_unsigned, False),
    5: ("sum", decode_double, False),
    6: ("scale", decode_zigzag, False),
    7: ("zeroCount", decode_unsigned, False),
    8: ("positive", message_decoder(_EXPONENTIAL_BUCKETS_FIELDS), False),
    9: ("negative", message_decoder(_EXPONENTIAL_BUCKETS_FIELDS), False),
    10: ("flags", decode_unsigned, False),
    12: ("min", decode_double, False),
    13: ("max", decode_double, False),
    14: ("zeroThreshold", decode_double, False),
}
_QUANTILE_FIELDS: FieldTypes = {1: ("quantile", decode_double, False), 2: ("value", decode_double, False)}
_SUMMARY_POINT_FIELDS: FieldTypes = {
    **_POINT_TIME_FIELDS,
    4: ("count", decode_unsigned, False),
    5: ("sum", decode_double, False),
    6: ("quantileValues", message_decoder(_QUANTILE_FIELDS), True),
    7: ("attributes", _ATTRIBUTES_DECODER, True),
    8: ("flags", decode_unsigned, False),
}


def _data_points_decoder(point: FieldTypes) -> FieldDecoder:
    return message_decoder(
        {
            1: ("dataPoints", message_decoder(point), True),
            2: ("aggregationTemporality", decode_unsigned, False),
            3: ("isMonotonic", lambda value: bool(decode_unsigned(value)), False),
        }
    )


_METRIC_FIELDS: FieldTypes = {
    1: ("name", decode_text, False),
    2: ("description", decode_text, False),
    3: ("unit", decode_text, False),
    5: ("gauge", _data_points_decoder(_NUMBER_POINT_FIELDS), False),
    7: ("sum", _data_points_decoder(_NUMBER_POINT_FIELDS), False),
    9: ("histogram", _data_points_decoder(_HISTOGRAM_POINT_FIELDS), False),
    10: ("exponentialHistogram", _data_points_decoder(_EXPONENTIAL_HISTOGRAM_POINT_FIELDS), False),
    11: ("summary", _data_points_decoder(_SUMMARY_POINT_FIELDS), False),
}
OTLP_METRICS_REQUEST_FIELDS = _export_request_fields("resourceMetrics", "scopeMetrics", "metrics", _METRIC_FIELDS)
