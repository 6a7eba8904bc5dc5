"""Errors as HTTP responses: the status for each class of errors, and the problem document."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from cordwood import errors
from cordwood.errors import Fault
from cordwood.web.asgi import JSON_MEDIA_TYPE, NO_STORE_HEADER, Header, Response

# The HTTP status for each class of errors. If an error's own class is not listed, the status of its nearest listed base
# class applies.
STATUS_BY_FAULT: Mapping[type[Fault], int] = {
    errors.RequestFault: 400,
    errors.MissingApiKey: 401,
    errors.BadApiKey: 401,
    errors.Forbidden: 403,
    errors.UnknownEndpoint: 404,
    errors.UnknownStream: 404,
    errors.PathNotFound: 404,
    errors.UnknownAlert: 404,
    errors.UnknownApiKey: 404,
    errors.UnknownResource: 404,
    errors.RequestTooSlow: 408,
    errors.ItemNotReplayable: 409,
    errors.NothingToBackUp: 409,
    errors.ReadOnlyDefinition: 409,
    errors.StreamInUse: 409,
    errors.RevisionMismatch: 412,
    errors.UnknownDefinitionVersion: 404,
    errors.InvalidFieldFault: 422,
    errors.MethodNotAllowed: 405,
    errors.NotAcceptable: 406,
    errors.FeatureUnavailable: 501,
    errors.BodyTooLarge: 413,
    errors.RequestLineTooLong: 414,
    errors.UnsupportedMediaType: 415,
    errors.HeadersTooLarge: 431,
    errors.QueryFault: 400,
    errors.QueryRefused: 422,
    errors.PlanTooLarge: 422,
    errors.CompilationTimeout: 422,
    errors.LimitFault: 422,
    errors.QueryOutOfTime: 504,
    errors.OutOfMemory: 503,
    errors.OutOfDisk: 507,
    errors.QueryCancelled: 503,
    errors.RequestRateExceeded: 429,
    errors.TooManyFollowedQueries: 429,
    errors.StreamRateExceeded: 429,
    errors.LargeEventLimitExceeded: 429,
    errors.ServiceBusy: 503,
    errors.BacklogFull: 429,
    errors.ServiceFault: 503,
    errors.EngineFault: 500,
    errors.EngineUnreachable: 503,
    errors.SetupFault: 500,
    errors.BugFault: 500,
}

TITLE_BY_STATUS: Mapping[int, str] = {
    400: "The request cannot be served as it was sent",
    401: "A key is needed",
    403: "The key may not do this",
    404: "There is nothing of this name",
    405: "The address does not take this method",
    406: "The answer is not to be had in this form",
    408: "The request took too long to arrive",
    409: "What is there now does not allow it",
    412: "It is not as the request expects it to be",
    413: "The body is too large",
    414: "The address is too long",
    415: "The body is in a form that is not read here",
    422: "What was sent is understood but not allowed",
    429: "Too much at once",
    431: "The headers are too large",
    500: "The service failed",
    501: "The service does not offer this",
    503: "The service cannot answer now",
    504: "The query ran out of time",
    507: "The disk is full",
}

# The delay in the Retry-After header of a response with status 429 or 503, if the error itself has no delay.
DEFAULT_RETRY_SECONDS = 1.0
CHALLENGE_HEADER: Header = (b"www-authenticate", b'Bearer realm="cordwood"')


def status_of(fault: Fault) -> int:
    return next(STATUS_BY_FAULT[family] for family in type(fault).__mro__ if family in STATUS_BY_FAULT)


def problem_json(fault: Fault, request_id: str) -> dict[str, Any]:
    """Return the members of a problem document (RFC 9457), and the member `error`, which some clients read instead."""
    status = status_of(fault)
    error: dict[str, Any] = {"code": status, "message": fault.message, "status": fault.code}
    if fault.span is not None:
        error |= {"line": fault.span.line, "column": fault.span.column}
    if fault.hint:
        error["hint"] = fault.hint
    # If the value of a field is invalid, the document also has Logflare's member `errors`.
    fields = {"errors": {fault.field: [fault.problem]}} if isinstance(fault, errors.InvalidFieldFault) else {}
    return {
        "type": f"urn:cordwood:error:{fault.code}",
        "title": TITLE_BY_STATUS[status],
        "status": status,
        "detail": fault.message,
        "instance": f"urn:cordwood:request:{request_id}",
        "error": error,
        **fields,
    }


def problem_response(fault: Fault, request_id: str) -> Response:
    status = status_of(fault)
    headers: list[Header] = [
        (b"content-type", b"application/problem+json"),
        NO_STORE_HEADER,
    ]
    if status == 401:
        headers.append(CHALLENGE_HEADER)
    headers += retry_after_headers(fault, status)
    return Response(status, headers, msgspec.json.encode(problem_json(fault, request_id)))


def retry_after_headers(fault: Fault, status: int) -> list[Header]:
    """Return the Retry-After header, in whole seconds, if the client may retry after this error."""
    retry_after = fault.retry_after or (DEFAULT_RETRY_SECONDS if status in (429, 503) else None)
    return [] if retry_after is None else [(b"retry-after", b"%d" % math.ceil(retry_after))]


def logflare_error_response(fault: Fault, failed: int = 200) -> Response | None:
    """Return a query's error in Logflare's format, or None if it has to be a problem document.

    The status is `failed` for most errors. It is 401 for errors of keys and for unknown endpoints. Errors of rate
    limits and overload keep their own status, because clients react to it.
    """
    if isinstance(fault, errors.MissingApiKey | errors.BadApiKey | errors.Forbidden | errors.UnknownEndpoint):
        return Response(401, [(b"content-type", JSON_MEDIA_TYPE), CHALLENGE_HEADER], b'{"error":"Unauthorized"}')
    if isinstance(fault, errors.RequestFault | errors.ServiceFault) and not isinstance(fault, errors.BadParameter):
        return None
    status = status_of(fault)
    headers = [(b"content-type", JSON_MEDIA_TYPE), NO_STORE_HEADER, *retry_after_headers(fault, status)]
    sent_status = status if isinstance(fault, errors.RequestRateExceeded | errors.ServiceBusy) else failed
    return Response(sent_status, headers, msgspec.json.encode({"error": fault.message}))
