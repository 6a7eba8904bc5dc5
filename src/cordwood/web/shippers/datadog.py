"""Datadog's log intake: `/api/v2/logs`, the older `/v1/input`, and the validation of a key."""

from functools import partial

from cordwood.errors import BadKey, Fault
from cordwood.ingest.accept import Form
from cordwood.ingest.formats.datadog import read_logs
from cordwood.web.asgi import Request, Response
from cordwood.web.credentials import KeyPlaces
from cordwood.web.percent_encoding import pairs
from cordwood.web.problems import TITLES, status_of, when_to_retry
from cordwood.web.responses import no_store_json
from cordwood.web.route import HandlerContext
from cordwood.web.shippers.delivery import Protocol, admitted, deliver

_PLACES = KeyPlaces(headers=(b"dd-api-key",), parameters=("dd-api-key",))
_INTAKE_V1 = b"/v1/input"
_VALIDATE = b"/api/v1/validate"

# The agent drops a body after 400, 401, 403 and 413, and sends it again after any other error.
_AS_PERMANENT = {404: 400, 405: 400, 406: 400, 414: 400, 415: 400, 422: 400, 431: 400}
_AS_RETRYABLE = {504: 503, 507: 503}


async def receive_logs(context: HandlerContext) -> Response:
    shared = pairs(context.request.query_string, "query string")
    await deliver(context, Protocol(Form.DATADOG, _PLACES, partial(read_logs, shared)))
    return no_store_json({}, 200 if context.request.path.startswith(_INTAKE_V1) else 202)


async def validate_key(context: HandlerContext) -> Response:
    admitted(context, _PLACES)
    return no_store_json({"valid": True})


def failed(fault: Fault, request: Request) -> Response:
    """Return the error in Datadog's form: a wrong key is 403, a missing one 401."""
    status = 403 if isinstance(fault, BadKey) else status_of(fault)
    status = _AS_RETRYABLE.get(status, _AS_PERMANENT.get(status, status))
    if request.path.startswith(_VALIDATE):
        return no_store_json({"errors": [fault.told()]}, status, *when_to_retry(fault, status))
    error = {"status": str(status), "title": TITLES[status], "detail": fault.told()}
    return no_store_json({"errors": [error]}, status, *when_to_retry(fault, status))
