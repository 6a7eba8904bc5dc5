"""OTLP responses: the export response, and google.rpc.Status for errors, encoded like the request."""

import msgspec

from cordwood.errors import Fault
from cordwood.ingest.accept import Accepted, Form
from cordwood.ingest.formats.otlp_protobuf import response, status
from cordwood.web.asgi import Header, Request, Response
from cordwood.web.problems import CHALLENGE, status_of, when_to_retry
from cordwood.web.responses import NO_STORE

PROTOBUF, JSON = b"application/x-protobuf", b"application/json"
_BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
_MOST_TOLD = 1000

# HTTP statuses as google.rpc codes. Exporters act on the HTTP status alone.
CODES = {400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 413: 8, 415: 3, 429: 8, 500: 13, 503: 14, 504: 4}
_INTERNAL = 13
# Exporters retry after 429, 502, 503 and 504, and drop the data after any other error.
_AS_RETRYABLE = {408: 503, 507: 503}


# The JSON name of the count of rejected records in a partial success.
REJECTED = {
    Form.OTLP: "rejectedLogRecords",
    Form.OTLP_TRACES: "rejectedSpans",
    Form.OTLP_METRICS: "rejectedDataPoints",
}


def exported(accepted: Accepted, request: Request, form: Form = Form.OTLP) -> Response:
    """Return the export response. Quarantined items are a partial success, which the exporter does not retry."""
    reason = accepted.reasons[0][1][:_MOST_TOLD] if accepted.reasons else ""
    if _is_protobuf(request):
        return Response(200, [(b"content-type", PROTOBUF)], response(accepted.quarantined, reason))
    told: dict[str, object] = {}
    if accepted.quarantined:
        told["partialSuccess"] = {REJECTED[form]: str(accepted.quarantined), "errorMessage": reason}
    return Response(200, [(b"content-type", JSON)], msgspec.json.encode(told))


def failed(fault: Fault, request: Request) -> Response:
    http_status = _AS_RETRYABLE.get(status_of(fault), status_of(fault))
    code, message = CODES.get(http_status, _INTERNAL), fault.told()[:_MOST_TOLD]
    headers: list[Header] = [NO_STORE, *when_to_retry(fault, http_status)]
    if http_status == 401:
        headers.append(CHALLENGE)
    violation = message if http_status == 400 else ""
    if _is_protobuf(request):
        return Response(http_status, [(b"content-type", PROTOBUF), *headers], status(code, message, violation))
    told: dict[str, object] = {"code": code, "message": message}
    if violation:
        told["details"] = [{"@type": _BAD_REQUEST, "fieldViolations": [{"description": violation}]}]
    return Response(http_status, [(b"content-type", JSON), *headers], msgspec.json.encode(told))


def _is_protobuf(request: Request) -> bool:
    return "protobuf" in request.media_type()
