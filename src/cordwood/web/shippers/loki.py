"""Loki's push API: `/loki/api/v1/push`, and the version of Loki that clients may request."""

from collections.abc import Iterator
from typing import Final

import msgspec

from cordwood.errors import Fault, UnsupportedMedia
from cordwood.ingest.accept import Form
from cordwood.ingest.formats.loki import read_json, read_protobuf
from cordwood.ingest.parsed_body import Body, LabelledBody
from cordwood.model.json_checks import is_json_sent_as_form
from cordwood.web.answer_rendering import header_text
from cordwood.web.asgi import JSON, NO_STORE, Request, Response
from cordwood.web.credentials import KeyPlaces, key_of_basic
from cordwood.web.problems import CHALLENGE, retry_after_headers, status_of
from cordwood.web.route import HandlerContext
from cordwood.web.shippers.delivery import Delivery, Protocol, deliver

_KEY_PLACES = KeyPlaces(schemes={b"basic": key_of_basic})
_PLAIN_TEXT_HEADER: Final = (b"content-type", b"text/plain; charset=utf-8")
# A body without a content type is protobuf.
_PROTOBUF: Final = frozenset({"application/x-protobuf", "application/protobuf", "application/octet-stream", ""})
_MAX_NOTICE_LENGTH: Final = 500
# The version of Loki whose push API is implemented.
_VERSION: Final = {"version": "3.0.0", "revision": "", "branch": "", "buildUser": "", "buildDate": "", "goVersion": ""}

# Agents retry after 429 and 5xx. Fluent Bit retries after every error but 400.
_PERMANENT_STATUS: Final = {404: 400, 406: 400, 413: 400, 414: 400, 415: 400, 422: 400, 431: 400}
_RETRIABLE_STATUS: Final = {408: 503, 504: 503, 507: 503}


async def receive_push(context: HandlerContext) -> Response:
    request = context.request
    if request.media_type() in _PROTOBUF:
        _announce_snappy(request)
    delivered = await deliver(context, Protocol(Form.LOKI, _KEY_PLACES, _read))
    return Response(
        204, [(b"cordwood-notice", header_text(notice[:_MAX_NOTICE_LENGTH])) for notice in _notices(delivered)]
    )


async def show_version(_: HandlerContext) -> Response:
    return Response(200, [(b"content-type", JSON)], msgspec.json.encode(_VERSION))


def render_error(fault: Fault, _: Request) -> Response:
    """Render an error as plain text."""
    status = status_of(fault)
    status = _RETRIABLE_STATUS.get(status, _PERMANENT_STATUS.get(status, status))
    headers = [_PLAIN_TEXT_HEADER, NO_STORE, *retry_after_headers(fault, status)]
    if status == 401:
        headers.append(CHALLENGE)
    return Response(status, headers, fault.in_one_line().encode())


def _read(body: Body) -> LabelledBody:
    if body.media_type in _PROTOBUF:
        return read_protobuf(body)
    if "json" in body.media_type or is_json_sent_as_form(body.media_type, body.data):
        return read_json(body)
    raise UnsupportedMedia(
        f"A push cannot be read from {body.media_type}.", hint="Send application/json or application/x-protobuf."
    )


def _announce_snappy(request: Request) -> None:
    """Add Snappy as the first content coding: protobuf bodies always use it, but clients rarely declare it."""
    codings = [name.strip().lower() for name in request.joined(b"content-encoding").split(",")]
    if "snappy" not in codings:
        request.scope["headers"] = [(b"content-encoding", b"snappy"), *request.scope["headers"]]


def _notices(delivered: Delivery[LabelledBody]) -> Iterator[str]:
    """Yield a notice about the quarantined entries.

    They are stored in the quarantine, so the answer is a success: after an error, some clients repeat the whole push.
    """
    if delivered.quarantined:
        index, reason = min(reason for one in delivered.outcomes for reason in one.reasons)
        yield f"{delivered.quarantined} entries are quarantined. Entry {index + 1}: {reason}"
