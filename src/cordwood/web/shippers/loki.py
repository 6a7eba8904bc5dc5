"""Loki's push API: `/loki/api/v1/push`, and the version that clients may ask for."""

from collections.abc import Iterator
from typing import Final

import msgspec

from cordwood.errors import Fault, UnsupportedMedia
from cordwood.ingest.accept import Form
from cordwood.ingest.formats.loki import read_json, read_protobuf
from cordwood.ingest.parsed_body import Body, LabelledBody
from cordwood.model.json_checks import is_json_sent_as_form
from cordwood.web.answer_rendering import header_text
from cordwood.web.asgi import Request, Response
from cordwood.web.credentials import KeyPlaces, key_of_basic
from cordwood.web.problems import CHALLENGE, status_of, when_to_retry
from cordwood.web.responses import JSON, NO_STORE
from cordwood.web.route import HandlerContext
from cordwood.web.shippers.delivery import Delivered, Protocol, deliver

_PLACES = KeyPlaces(schemes={b"basic": key_of_basic})
_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
# Clients that send no content type send protobuf.
_PROTOBUF: Final = frozenset({"application/x-protobuf", "application/protobuf", "application/octet-stream", ""})
_MOST_TOLD: Final = 500
# The version of Loki whose push API this is.
_VERSION: Final = {"version": "3.0.0", "revision": "", "branch": "", "buildUser": "", "buildDate": "", "goVersion": ""}

# Agents send again after 429 and 5xx. Fluent Bit does so after every error but 400.
_AS_PERMANENT: Final = {404: 400, 406: 400, 413: 400, 414: 400, 415: 400, 422: 400, 431: 400}
_AS_RETRYABLE: Final = {408: 503, 504: 503, 507: 503}


async def receive_push(context: HandlerContext) -> Response:
    request = context.request
    if request.media_type() in _PROTOBUF:
        _announce_snappy(request)
    delivered = await deliver(context, Protocol(Form.LOKI, _PLACES, _read))
    return Response(204, [(b"cordwood-notice", header_text(notice[:_MOST_TOLD])) for notice in _notices(delivered)])


async def show_version(_: HandlerContext) -> Response:
    return Response(200, [(b"content-type", JSON)], msgspec.json.encode(_VERSION))


def failed(fault: Fault, _: Request) -> Response:
    """Return the error as a text."""
    status = status_of(fault)
    status = _AS_RETRYABLE.get(status, _AS_PERMANENT.get(status, status))
    headers = [_TEXT, NO_STORE, *when_to_retry(fault, status)]
    if status == 401:
        headers.append(CHALLENGE)
    return Response(status, headers, fault.told().encode())


def _read(body: Body) -> LabelledBody:
    if body.media in _PROTOBUF:
        return read_protobuf(body)
    if "json" in body.media or is_json_sent_as_form(body.media, body.data):
        return read_json(body)
    raise UnsupportedMedia(
        f"A push cannot be read from {body.media}.", hint="Send application/json or application/x-protobuf."
    )


def _announce_snappy(request: Request) -> None:
    """Add Snappy to the codings of the body as the first one: protobuf is always in it, but clients rarely say so."""
    codings = [name.strip().lower() for name in request.joined(b"content-encoding").split(",")]
    if "snappy" not in codings:
        request.scope["headers"] = [(b"content-encoding", b"snappy"), *request.scope["headers"]]


def _notices(delivered: Delivered[LabelledBody]) -> Iterator[str]:
    """Yield what is told about quarantined entries.

    They are kept, so the answer is a success: some clients send the whole push again after any other.
    """
    if delivered.quarantined:
        index, reason = min(reason for one in delivered.outcomes for reason in one.reasons)
        yield f"{delivered.quarantined} entries are quarantined. Entry {index + 1}: {reason}"
