"""OTLP's logs messages from protobuf into the form of their JSON encoding."""

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
    written_field,
    written_number,
)

Message = dict[str, object]
Read = Callable[[Value], object]

# A field's number: its name in JSON, how it is read, and whether it is repeated.
Fields = dict[int, tuple[str, Read, bool]]

# How many fields may still be read of the request that this thread reads.
_fields_left: ContextVar[Iterator[None]] = ContextVar("fields_left")
_NONE_LEFT: Final = object()

_BAD_REQUEST = b"type.googleapis.com/google.rpc.BadRequest"


def request(data: bytes, most_fields: int) -> Message:
    """An ExportLogsServiceRequest; BadProtobuf when it has more fields than that, those of all its messages together."""
    _fields_left.set(itertools.repeat(None, most_fields))
    return _message(data, _REQUEST)


def response(rejected: int, error: str) -> bytes:
    """An ExportLogsServiceResponse: empty when nothing was rejected."""
    if not rejected:
        return b""
    return written_field(1, b"\x08" + written_number(rejected) + written_field(2, error.encode()))


def status(code: int, message: str, violation: str = "") -> bytes:
    """A google.rpc.Status; `violation` is what its BadRequest says of the request."""
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
                found.append(read(value))
        else:
            message[name] = read(value)
    return message


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
_SCOPE_LOGS: Fields = {
    1: ("scope", _of(_SCOPE), False),
    2: ("logRecords", _of(_RECORD), True),
    3: ("schemaUrl", text, False),
}
_RESOURCE: Fields = {1: ("attributes", _ATTRIBUTES, True)}
_RESOURCE_LOGS: Fields = {
    1: ("resource", _of(_RESOURCE), False),
    2: ("scopeLogs", _of(_SCOPE_LOGS), True),
    3: ("schemaUrl", text, False),
}
_REQUEST: Fields = {1: ("resourceLogs", _of(_RESOURCE_LOGS), True)}
