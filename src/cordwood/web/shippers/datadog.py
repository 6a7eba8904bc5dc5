"""The routes of Datadog's log intake: `/api/v2/logs`, the older `/v1/input`, and the route that validates a key."""

from functools import partial

from cordwood.errors import BadApiKey, Fault
from cordwood.ingest.accept import BodyFormat
from cordwood.ingest.formats.datadog import read_logs
from cordwood.web.asgi import Request, Response, no_store_json_response, parse_urlencoded
from cordwood.web.credentials import KeyPlaces
from cordwood.web.problems import TITLE_BY_STATUS, retry_after_headers, status_of
from cordwood.web.route import HandlerContext
from cordwood.web.shippers.delivery import ShipperProtocol, admit_sender, store_delivery

_KEY_PLACES = KeyPlaces(headers=(b"dd-api-key",), query_parameters=("dd-api-key",))
_V1_INTAKE_PATH = b"/v1/input"
_VALIDATE_KEY_PATH = b"/api/v1/validate"

# Datadog's agent drops a body only after the statuses 400, 401, 403 and 413; it retries after all other errors. So
# other statuses of errors after which a retry is useless are replaced by 400.
_PERMANENT_STATUS_REPLACEMENTS = {404: 400, 405: 400, 406: 400, 414: 400, 415: 400, 422: 400, 431: 400}
_RETRYABLE_STATUS_REPLACEMENTS = {504: 503, 507: 503}


async def receive_logs(context: HandlerContext) -> Response:
    shared = parse_urlencoded(context.request.query_string, "query string")
    await store_delivery(context, ShipperProtocol(BodyFormat.DATADOG, _KEY_PLACES, partial(read_logs, shared)))
    return no_store_json_response({}, 200 if context.request.path.startswith(_V1_INTAKE_PATH) else 202)


async def validate_key(context: HandlerContext) -> Response:
    admit_sender(context, _KEY_PLACES)
    return no_store_json_response({"valid": True})


def render_error(fault: Fault, request: Request) -> Response:
    """Render an error in Datadog's format. For a wrong key, the status is 403 instead of 401."""
    status = 403 if isinstance(fault, BadApiKey) else status_of(fault)
    status = _RETRYABLE_STATUS_REPLACEMENTS.get(status, _PERMANENT_STATUS_REPLACEMENTS.get(status, status))
    if request.path.startswith(_VALIDATE_KEY_PATH):
        return no_store_json_response({"errors": [fault.one_line_text()]}, status, *retry_after_headers(fault, status))
    error = {"status": str(status), "title": TITLE_BY_STATUS[status], "detail": fault.one_line_text()}
    return no_store_json_response({"errors": [error]}, status, *retry_after_headers(fault, status))
