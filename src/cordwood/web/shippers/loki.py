"""Loki's push API: `/loki/api/v1/push`, and the route by which clients ask for the version of Loki."""

from collections.abc import Iterator
from typing import Final

import msgspec

from cordwood.errors import Fault, UnsupportedMediaType
from cordwood.ingest.accept import BodyFormat
from cordwood.ingest.formats.loki import read_json_push, read_protobuf_push
from cordwood.ingest.parsed_body import Body, LabelledBody
from cordwood.model.json_checks import is_json_sent_as_form
from cordwood.web.answer_rendering import escape_header_text
from cordwood.web.asgi import JSON_MEDIA_TYPE, NO_STORE_HEADER, Request, Response
from cordwood.web.credentials import KeyPlaces, key_of_basic_credentials
from cordwood.web.problems import CHALLENGE_HEADER, retry_after_headers, status_of
from cordwood.web.route import HandlerContext
from cordwood.web.shippers.delivery import DeliveryResult, ShipperProtocol, store_delivery

_KEY_PLACES = KeyPlaces(key_extractors_by_scheme={b"basic": key_of_basic_credentials})
_PLAIN_TEXT_HEADER: Final = (b"content-type", b"text/plain; charset=utf-8")
# The media types of protobuf bodies. A body without a content type is protobuf as well.
_PROTOBUF_MEDIA_TYPES: Final = frozenset(
    {"application/x-protobuf", "application/protobuf", "application/octet-stream", ""}
)
_MAX_NOTICE_LENGTH: Final = 500
# The version of Loki that clients are told. The push API of this version is implemented here.
_VERSION_JSON: Final = {
    "version": "3.0.0",
    "revision": "",
    "branch": "",
    "buildUser": "",
    "buildDate": "",
    "goVersion": "",
}

# Agents retry after the statuses 429 and 5xx, and Fluent Bit after all errors except 400. So errors after which a retry
# is useless are sent with status 400.
_PERMANENT_STATUS_REPLACEMENTS: Final = {404: 400, 406: 400, 413: 400, 414: 400, 415: 400, 422: 400, 431: 400}
_RETRYABLE_STATUS_REPLACEMENTS: Final = {408: 503, 504: 503, 507: 503}


async def receive_push(context: HandlerContext) -> Response:
    request = context.request
    if request.media_type() in _PROTOBUF_MEDIA_TYPES:
        _add_snappy_coding(request)
    delivered = await store_delivery(context, ShipperProtocol(BodyFormat.LOKI, _KEY_PLACES, _read_push_body))
    return Response(
        204,
        [
            (b"cordwood-notice", escape_header_text(notice[:_MAX_NOTICE_LENGTH]))
            for notice in _quarantine_notices(delivered)
        ],
    )


async def show_version(_: HandlerContext) -> Response:
    return Response(200, [(b"content-type", JSON_MEDIA_TYPE)], msgspec.json.encode(_VERSION_JSON))


def render_error(fault: Fault, _: Request) -> Response:
    """Render an error as plain text, as Loki does."""
    status = status_of(fault)
    status = _RETRYABLE_STATUS_REPLACEMENTS.get(status, _PERMANENT_STATUS_REPLACEMENTS.get(status, status))
    headers = [_PLAIN_TEXT_HEADER, NO_STORE_HEADER, *retry_after_headers(fault, status)]
    if status == 401:
        headers.append(CHALLENGE_HEADER)
    return Response(status, headers, fault.one_line_text().encode())


def _read_push_body(body: Body) -> LabelledBody:
    if body.media_type in _PROTOBUF_MEDIA_TYPES:
        return read_protobuf_push(body)
    if "json" in body.media_type or is_json_sent_as_form(body.media_type, body.data):
        return read_json_push(body)
    raise UnsupportedMediaType(
        f"A push cannot be read from {body.media_type}.", hint="Send application/json or application/x-protobuf."
    )


def _add_snappy_coding(request: Request) -> None:
    """Add Snappy as the first content coding, unless it is declared.

    Protobuf bodies are always compressed with Snappy, but clients rarely declare it.
    """
    codings = [name.strip().lower() for name in request.joined_header(b"content-encoding").split(",")]
    if "snappy" not in codings:
        request.scope["headers"] = [(b"content-encoding", b"snappy"), *request.scope["headers"]]


def _quarantine_notices(delivered: DeliveryResult[LabelledBody]) -> Iterator[str]:
    """Yield a notice if entries are quarantined.

    A notice is used instead of an error, because some clients would send the whole push again after an error.
    """
    if delivered.quarantined_count:
        index, reason = min(reason for one in delivered.outcomes for reason in one.quarantine_reasons)
        yield f"{delivered.quarantined_count} entries are quarantined. Entry {index + 1}: {reason}"
