"""OTLP responses: export responses, and google.rpc.Status for errors, in the encoding of the request."""

import msgspec

from cordwood.errors import Fault
from cordwood.ingest.accept import Accepted, Form
from cordwood.ingest.formats.otlp_protobuf import response, status
from cordwood.web.asgi import Header, Request, Response
from cordwood.web.problems import CHALLENGE, retry_after_headers, status_of
from cordwood.web.responses import NO_STORE

PROTOBUF, JSON = b"application/x-protobuf", b"application/json"
_BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
_MAX_MESSAGE_LENGTH = 1000

# google.rpc codes by HTTP status. Exporters react to the HTTP status alone.
CODES = {400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 413: 8, 415: 3, 429: 8, 500: 13, 503: 14, 504: 4}
_INTERNAL = 13
# Exporters retry after the statuses 429, 502, 503 and 504, and drop the data after any other error.
_RETRIABLE_STATUS = {408: 503, 507: 503}


# The JSON name of the count of rejected records in a partial success.
REJECTED = {
    Form.OTLP: "rejectedLogRecords",
    Form.OTLP_TRACES: "rejectedSpans",
    Form.OTLP_METRICS: "rejectedDataPoints",
}


def export_response(accepted: Accepted, request: Request, form: Form = Form.OTLP) -> Response:
    """Return the export response. Quarantined items are a partial success, after which exporters do not retry."""
    reason = accepted.reasons[0][1][:_MAX_MESSAGE_LENGTH] if accepted.reasons else ""
    if _is_protobuf(request):
        return Response(200, [(b"content-type", PROTOBUF)], response(accepted.quarantined, reason))
    message_fields: dict[str, object] = {}
    if accepted.quarantined:
        message_fields["partialSuccess"] = {REJECTED[form]: str(accepted.quarantined), "errorMessage": reason}
    return Response(200, [(b"content-type", JSON)], msgspec.json.encode(message_fields))


def render_error(fault: Fault, request: Request) -> Response:
    http_status = _RETRIABLE_STATUS.get(status_of(fault), status_of(fault))
    code, message = CODES.get(http_status, _INTERNAL), fault.in_one_line()[:_MAX_MESSAGE_LENGTH]
    headers: list[Header] = [NO_STORE, *retry_after_headers(fault, http_status)]
    if http_status == 401:
        headers.append(CHALLENGE)
    violation = message if http_status == 400 else ""
    if _is_protobuf(request):
        return Response(http_status, [(b"content-type", PROTOBUF), *headers], status(code, message, violation))
    message_fields: dict[str, object] = {"code": code, "message": message}
    if violation:
        message_fields["details"] = [{"@type": _BAD_REQUEST, "fieldViolations": [{"description": violation}]}]
    return Response(http_status, [(b"content-type", JSON), *headers], msgspec.json.encode(message_fields))


def _is_protobuf(request: Request) -> bool:
    return "protobuf" in request.media_type()
