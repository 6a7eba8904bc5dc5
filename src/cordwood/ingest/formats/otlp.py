"""OpenTelemetry over HTTP (OTLP), as JSON and protobuf: the parts that all signals share, and log records."""

import base64
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from cordwood.errors import BadBody
from cordwood.ingest.formats import otlp_protobuf
from cordwood.ingest.formats.protobuf import BadProtobuf, Fields, decoded
from cordwood.ingest.items import check_values, decoded_values, mended, too_many
from cordwood.ingest.parsed_body import Body, MetadataBudget, ParsedBody, PostedEvent
from cordwood.model.json_checks import describe_json_error

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Json = Mapping[str, Any]

# The bound on the fields of one protobuf record, with those of nested messages.
_FIELDS_OF_A_RECORD = 16


class Signal(msgspec.Struct, frozen=True):
    """A signal of OTLP: the names of its request and of the nested arrays, and how a record becomes events."""

    request: str
    resources: str
    scopes: str
    records: str
    what: str
    fields: Fields
    # Takes a record, its resource's attributes, and the metadata that all records of its scope share.
    events: Callable[[Json, Json, Json], Iterable[PostedEvent]]


def read_json(signal: Signal, body: Body) -> ParsedBody:
    check_values(body.data, body.most_items)
    request = _request(body.text)
    if not isinstance(request, dict):
        raise BadBody(f"The body is no {signal.request}: it must be a JSON object.")
    underscored = re.sub(r"([A-Z])", lambda match: f"_{match[1].lower()}", signal.resources)
    if underscored in request:
        # The names of the .proto file would be skipped as unknown fields, and all records with them.
        raise BadBody(f"The body is no {signal.request}: OTLP's JSON writes {signal.resources}, in lowerCamelCase.")
    return _read(signal, request, body)


def read_protobuf(signal: Signal, body: Body) -> ParsedBody:
    """Decode protobuf to the structure of OTLP's JSON encoding, and continue as for JSON."""
    try:
        request = decoded(body.data, signal.fields, body.most_items * _FIELDS_OF_A_RECORD)
    except (BadProtobuf, RecursionError) as problem:
        raise BadBody(f"The body is no {signal.request}: {problem}.") from problem
    return _read(signal, request, body)


def _request(text: str) -> object:
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return _loosely(text)
    except RecursionError as problem:
        raise BadBody("The body is nested too deeply.") from problem


def _loosely(text: str) -> object:
    """Decode JSON with lone surrogates, or with numbers beyond the range of a double."""
    try:
        return decoded_values(mended(text))
    except (msgspec.DecodeError, RecursionError) as problem:
        raise BadBody(f"The body is not JSON: {describe_json_error(problem, text.encode())}.") from problem


def _read(signal: Signal, request: Json, body: Body) -> ParsedBody:
    parsed, budget, most = ParsedBody.of(body), MetadataBudget(body), body.most_items
    index = 0
    for record, resource, around in _records(signal, request):
        if not isinstance(record, dict):
            parsed.refuse(index, f"The {signal.what} is not an object.", _encode(record).decode())
            index += 1
            continue
        for event in signal.events(record, resource, around):
            if index >= most:
                raise too_many(most)
            budget.take(event.metadata)
            parsed.add(event, index)
            index += 1
    return parsed


def _records(signal: Signal, request: Json) -> Iterator[tuple[object, Json, Json]]:
    """Yield each record with its resource's attributes and the metadata of its scope."""
    for of_resource in _messages(signal, request, signal.resources):
        resource = attributes(of_resource.get("resource"))
        for of_scope in _messages(signal, of_resource, signal.scopes):
            around = _around(resource, of_scope, of_resource)
            for record in _array(signal, of_scope, signal.records):
                yield record, resource, around


def _messages(signal: Signal, parent: Json, name: str) -> list[Json]:
    """Return the messages; raise BadBody for one that is not an object, since it may hide any number of records."""
    found = _array(signal, parent, name)
    if not all(isinstance(one, dict) for one in found):
        raise BadBody(f"The body is no {signal.request}: {name} holds something that is not an object.")
    return found


def _array(signal: Signal, parent: Json, name: str) -> list[Any]:
    found = parent.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise BadBody(f"The body is no {signal.request}: {name} is not an array.")
    return found


def _around(resource: Json, of_scope: Json, of_resource: Json) -> dict[str, object]:
    """Return the metadata that all records of a scope share."""
    schema_url = of_scope.get("schemaUrl") or of_resource.get("schemaUrl")
    return {"resource": resource or None, "scope": _scope(of_scope.get("scope")), "schema_url": schema_url or None}


def messages(parent: Json, name: str) -> Iterable[Json]:
    found = parent.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _log_events(record: Json, resource: Json, around: Json) -> Iterator[PostedEvent]:
    body, described = any_value(record.get("body")), attributes(record)
    timestamp = nanoseconds(record.get("timeUnixNano")) or nanoseconds(record.get("observedTimeUnixNano"))
    metadata = {**_metadata(record, body, described), **around}
    yield event(_message(body, record), timestamp, resource, metadata, _uid(described))


def event(
    message: str | None, timestamp: int | None, resource: Json, metadata: Json, given_id: str | None = None
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


def _uid(described: Json) -> str | None:
    """Return the attribute `log.record.uid`, which makes a retry of the same record a duplicate."""
    uid = described.get("log.record.uid")
    return uid if isinstance(uid, str) else None


def _metadata(record: Json, body: object, described: Json) -> dict[str, object]:
    severity, severity_text = _severity(record.get("severityNumber")), record.get("severityText") or None
    return {
        "type": "otel_log",
        "level": _level(severity, severity_text),
        "severity_text": severity_text,
        "severity_number": severity,
        "trace_id": hex_id(record.get("traceId")),
        "span_id": hex_id(record.get("spanId")),
        "flags": record.get("flags") or None,
        "event_name": record.get("eventName") or None,
        "attributes": described or None,
        "dropped_attributes_count": record.get("droppedAttributesCount") or None,
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
    """Return key-value pairs as an object, with unchanged keys."""
    if not isinstance(owner, dict):
        return {}
    return _pairs({"values": owner.get("attributes")})


def any_value(value: object) -> object:
    """Return OTLP's AnyValue as plain JSON. 64-bit integers may be strings."""
    if not isinstance(value, dict):
        return None
    for kind, one in value.items():
        read = _VALUES.get(kind)
        if read is not None:
            return read(one)
    return None


def _list(value: object) -> object:
    return [any_value(one) for one in messages(value, "values")] if isinstance(value, dict) else []


def _pairs(value: object) -> dict[str, object]:
    pairs = messages(value, "values") if isinstance(value, dict) else []
    return {str(pair.get("key", "")): any_value(pair.get("value")) for pair in pairs}


def integer(value: object) -> object:
    try:
        return int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return value


def finite(value: object) -> object:
    """Return a number; infinities and NaN become strings, as in protobuf's JSON mapping."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _as_it_is(value: object) -> object:
    return value


_VALUES: Mapping[str, Callable[[object], object]] = {
    "stringValue": _as_it_is,
    "boolValue": _as_it_is,
    "bytesValue": _as_it_is,
    "intValue": integer,
    "doubleValue": finite,
    "arrayValue": _list,
    "kvlistValue": _pairs,
}


def nanoseconds(value: object) -> int | None:
    """Return a time in nanoseconds; None for zero, which means unknown."""
    number = integer(value)
    return number if isinstance(number, int) and number > 0 else None


_SEVERITIES = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")


def _severity(value: object) -> int | None:
    """Return the severity from a number or from an enum name such as SEVERITY_NUMBER_WARN2."""
    if isinstance(value, int):
        return value or None
    name = str(value or "").removeprefix("SEVERITY_NUMBER_")
    word, step = name.rstrip("234"), name[len(name.rstrip("234")) :]
    return _SEVERITIES.index(word) * 4 + int(step or 1) if word in _SEVERITIES else None


def _level(severity: int | None, severity_text: object) -> str | None:
    """Return the level: one of six words for the 24 severity numbers, or the sender's text if there is no number."""
    if severity is not None and 1 <= severity <= 4 * len(_SEVERITIES):
        return _SEVERITIES[(severity - 1) // 4].lower()
    return str(severity_text).lower() if severity_text else None


def hex_id(value: object) -> str | None:
    """Return an id in hex. OTLP's JSON uses hex, but the plain protobuf mapping uses base64."""
    if not isinstance(value, str) or not value.strip("0"):
        return None
    if len(value) in {16, 32} and all(letter in "0123456789abcdefABCDEF" for letter in value):
        return value.lower()
    try:
        return base64.b64decode(value, validate=True).hex() or None
    except ValueError:
        return value


LOGS = Signal(
    "ExportLogsServiceRequest", "resourceLogs", "scopeLogs", "logRecords", "log record", otlp_protobuf.LOGS, _log_events
)
