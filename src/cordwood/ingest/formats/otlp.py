"""OpenTelemetry logs over HTTP (OTLP), as JSON and as protobuf: each log record is an event."""

import base64
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from cordwood.errors import BadBody
from cordwood.ingest.formats import otlp_protobuf
from cordwood.ingest.formats.protobuf import BadProtobuf
from cordwood.ingest.posted import Body, Posted, Reading

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Json = Mapping[str, Any]


def read_otlp_json(body: Body) -> Reading:
    try:
        request = _decode(body.text)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise BadBody(f"The body is not JSON: {problem}.") from problem
    if not isinstance(request, dict):
        raise BadBody("The body is no ExportLogsServiceRequest: it must be a JSON object.")
    return _read(request)


def read_otlp_protobuf(body: Body) -> Reading:
    """Read into the form that the JSON encoding has, and from there like it."""
    try:
        request = otlp_protobuf.request(body.data)
    except (BadProtobuf, RecursionError) as problem:
        raise BadBody(f"The body is no ExportLogsServiceRequest: {problem}.") from problem
    return _read(request)


def _read(request: Json) -> Reading:
    reading = Reading(indexes=[])
    index = 0
    for resource_logs in _all(request, "resourceLogs"):
        resource = attributes(resource_logs.get("resource"))
        for scope_logs in _all(resource_logs, "scopeLogs"):
            scope = _scope(scope_logs.get("scope"))
            for record in _all(scope_logs, "logRecords"):
                reading.add(_event(record, resource, scope), index)
                index += 1
    return reading


def _all(parent: Json, name: str) -> Iterable[Json]:
    found = parent.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _event(record: Json, resource: Json, scope: Json | None) -> Posted:
    body = any_value(record.get("body"))
    project = resource.get("project")
    metadata = _metadata(record, body) | {"resource": resource or None, "scope": scope}
    return Posted(
        timestamp=_nanoseconds(record.get("timeUnixNano")) or _nanoseconds(record.get("observedTimeUnixNano")),
        event_message=_message(body, record),
        project=None if project is None else str(project),
        metadata=msgspec.Raw(_encode({name: value for name, value in metadata.items() if value is not None})),
    )


def _metadata(record: Json, body: object) -> dict[str, object]:
    return {
        "type": "otel_log",
        "severity_text": record.get("severityText") or None,
        "severity_number": _severity(record.get("severityNumber")),
        "trace_id": _hex(record.get("traceId")),
        "span_id": _hex(record.get("spanId")),
        "event_name": record.get("eventName") or None,
        "attributes": attributes(record) or None,
        "body": None if isinstance(body, str) else body,
    }


def _message(body: object, record: Json) -> str | None:
    if body is None:
        name = record.get("eventName")
        return str(name) if name else None
    return body if isinstance(body, str) else _encode(body).decode()


def _scope(scope: object) -> Json | None:
    if not isinstance(scope, dict):
        return None
    told = {"name": scope.get("name"), "version": scope.get("version"), "attributes": attributes(scope) or None}
    return {name: value for name, value in told.items() if value} or None


def attributes(owner: object) -> dict[str, object]:
    """Key-value pairs as an object, keys as they came."""
    if not isinstance(owner, dict):
        return {}
    return _pairs({"values": owner.get("attributes")})


def any_value(value: object) -> object:
    """OTLP's AnyValue as plain JSON; 64-bit integers may come as texts."""
    if not isinstance(value, dict):
        return None
    for kind, one in value.items():
        read = _VALUES.get(kind)
        if read is not None:
            return read(one)
    return None


def _list(value: object) -> object:
    return [any_value(one) for one in _all(value, "values")] if isinstance(value, dict) else []


def _pairs(value: object) -> dict[str, object]:
    pairs = _all(value, "values") if isinstance(value, dict) else []
    return {str(pair.get("key", "")): any_value(pair.get("value")) for pair in pairs}


def _integer(value: object) -> object:
    try:
        return int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return value


def _finite(value: object) -> object:
    """The infinite ones are texts in JSON, and stay so."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _as_it_is(value: object) -> object:
    return value


_VALUES: Mapping[str, Callable[[object], object]] = {
    "stringValue": _as_it_is,
    "boolValue": _as_it_is,
    "bytesValue": _as_it_is,
    "intValue": _integer,
    "doubleValue": _finite,
    "arrayValue": _list,
    "kvlistValue": _pairs,
}


def _nanoseconds(value: object) -> int | None:
    """Zero stands for a time that is not known."""
    number = _integer(value)
    return number if isinstance(number, int) and number > 0 else None


_SEVERITIES = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")


def _severity(value: object) -> int | None:
    """A number, or the name of an enum as JSON may have it: SEVERITY_NUMBER_WARN2."""
    if isinstance(value, int):
        return value or None
    name = str(value or "").removeprefix("SEVERITY_NUMBER_")
    word, step = name.rstrip("234"), name[len(name.rstrip("234")) :]
    return _SEVERITIES.index(word) * 4 + int(step or 1) if word in _SEVERITIES else None


def _hex(value: object) -> str | None:
    """Ids are in hex, as OTLP's JSON says; base64 is what plain protobuf JSON makes of them."""
    if not isinstance(value, str) or not value.strip("0"):
        return None
    if len(value) in {16, 32} and all(letter in "0123456789abcdefABCDEF" for letter in value):
        return value.lower()
    try:
        return base64.b64decode(value, validate=True).hex() or None
    except ValueError:
        return value
