"""Splunk's HTTP Event Collector: events, raw lines, acknowledgements and health.

A request is answered only when its events are durable. So the events of every acknowledgement id that was issued are
stored, and the service need not remember the ids.
"""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from cordwood.errors import BadApiKey, BadBody, Fault, Forbidden, MissingApiKey, NoReadableItem, UnknownStream
from cordwood.ingest.accept import BodyFormat
from cordwood.ingest.formats.splunk import (
    EVENT_BLANK_MESSAGE,
    EVENT_REQUIRED_MESSAGE,
    NOT_JSON_MESSAGE,
    HecBody,
    read_events,
    read_raw_lines,
)
from cordwood.ingest.parsed_body import Body
from cordwood.model.json_checks import describe_json_error
from cordwood.web.asgi import Header, Request, Response, no_store_json_response, parse_urlencoded
from cordwood.web.credentials import KeyPlaces, key_of_basic_credentials
from cordwood.web.problems import retry_after_headers, status_of
from cordwood.web.request_body import read_body
from cordwood.web.route import HandlerContext
from cordwood.web.services import LifecyclePhase
from cordwood.web.shippers.delivery import RETRYABLE_STATUSES, ShipperProtocol, admit_sender, store_delivery

_KEY_PLACES: Final = KeyPlaces(
    key_extractors_by_scheme={b"splunk": lambda value: value, b"basic": key_of_basic_credentials},
    query_parameters=("token",),
)
_CHANNEL_HEADER: Final = b"x-splunk-request-channel"
_MAX_CHANNEL_LENGTH: Final = 128
_MAX_ACKS_PER_REQUEST: Final = 10_000
_CODES_BY_ITEM_ERROR: Final[Mapping[str, int]] = {EVENT_REQUIRED_MESSAGE: 12, EVENT_BLANK_MESSAGE: 13}
_TEXTS_BY_CODE: Final[Mapping[int, str]] = {
    0: "Success",
    2: "Token is required",
    3: "Invalid authorization",
    4: "Invalid token",
    5: "No data",
    6: "Invalid data format",
    7: "Incorrect index",
    8: "Internal server error",
    9: "Server is busy",
    10: "Data channel is missing",
    11: "Invalid data channel",
    12: "Event field is required",
    13: "Event field cannot be blank",
    17: "HEC is healthy",
    18: "HEC is unhealthy, queues are full",
    27: "Request entity too large",
}

# Acknowledgement ids are counted from the start time of the process in microseconds, so that they are larger than the
# ids of earlier processes.
_ack_id_counter = itertools.count(time.time_ns() // 1000)


class _AckRequest(msgspec.Struct):
    acks: Annotated[list[int], Meta(max_length=_MAX_ACKS_PER_REQUEST)]


_decode_ack_request = msgspec.json.Decoder(_AckRequest).decode

# Handlers of requests with events.


async def receive_events(context: HandlerContext) -> Response:
    return await _receive_body(context, read_events)


async def receive_raw_events(context: HandlerContext) -> Response:
    return await _receive_body(context, read_raw_lines)


async def _receive_body(context: HandlerContext, read: Callable[[Mapping[str, str], Body], HecBody]) -> Response:
    query = parse_urlencoded(context.request.query_string, "query string")
    channel = _read_channel(context.request, query)
    if len(channel) > _MAX_CHANNEL_LENGTH:
        return _splunk_response(11, 400)
    delivered = await store_delivery(context, ShipperProtocol(BodyFormat.SPLUNK, _KEY_PLACES, partial(read, query)))
    body = delivered.body
    if body.first_undecodable_index is not None:
        return _splunk_response(
            6,
            400,
            number=body.first_undecodable_index,
            detail=f"{NOT_JSON_MESSAGE} Events before it, which are stored: {body.event_count}.",
        )
    if not body.event_count:
        return _splunk_response(5, 400)
    return _splunk_response(0, ack_id=next(_ack_id_counter) if channel else None)


def _read_channel(request: Request, query: Mapping[str, str]) -> str:
    return request.header(_CHANNEL_HEADER) or query.get("channel", "")


# Handlers of requests for acknowledgements and for the health of the service.


async def answer_acknowledgements(context: HandlerContext) -> Response:
    """Answer for each acknowledgement id whether the events of its request are stored.

    They are stored if the id was issued. Every id from 0 to the current time in microseconds counts as issued.
    """
    caller, query = admit_sender(context, _KEY_PLACES)
    if not _read_channel(context.request, query):
        return _splunk_response(10, 400)
    options = context.dependencies.options
    with options.query_body_budget.open_reservation(caller.key_id) as reservation:
        body = await read_body(context.request, options.query_body_bounds, reservation)
        try:
            ack_ids = _decode_ack_request(body).acks
        except (msgspec.DecodeError, RecursionError) as problem:
            raise BadBody(f"The acknowledgement ids cannot be read: {describe_json_error(problem, body)}.") from problem
    now_us = time.time_ns() // 1000
    return no_store_json_response({"acks": {str(ack_id): 0 <= ack_id <= now_us for ack_id in ack_ids}})


async def show_health(context: HandlerContext) -> Response:
    lifecycle = context.dependencies.lifecycle
    is_ready = (
        lifecycle.phase is LifecyclePhase.READY and not lifecycle.unready_reasons() and not lifecycle.degraded_reasons()
    )
    return _splunk_response(17) if is_ready else _splunk_response(18, 503)


# Functions that create responses.


def render_error(fault: Fault, _: Request) -> Response:
    """Render an error with Splunk's code for it.

    The status matters to shippers: they retry after 503, and give up after 400, 401, 403 and 413.
    """
    status = status_of(fault)
    if isinstance(fault, NoReadableItem):
        return _splunk_response(
            _CODES_BY_ITEM_ERROR.get(fault.reason, 6), 400, number=fault.index, detail=fault.one_line_text()
        )
    if isinstance(fault, UnknownStream):
        return _splunk_response(7, 400, detail=fault.one_line_text())
    if status in RETRYABLE_STATUSES:
        return _splunk_response(9, 503, detail=fault.one_line_text(), extra_headers=retry_after_headers(fault, 503))
    if status >= 500:
        return _splunk_response(8, 500, detail=fault.one_line_text())
    return _splunk_response(
        _splunk_code(fault, status), 403 if isinstance(fault, BadApiKey) else status, detail=fault.one_line_text()
    )


def _splunk_code(fault: Fault, status: int) -> int:
    if isinstance(fault, MissingApiKey):
        return 2
    if isinstance(fault, BadApiKey | Forbidden):
        return 4
    return 27 if status == 413 else 6


def _splunk_response(
    code: int,
    status: int = 200,
    *,
    detail: str = "",
    number: int | None = None,
    ack_id: int | None = None,
    extra_headers: Sequence[Header] = (),
) -> Response:
    fields: dict[str, object] = {"text": _TEXTS_BY_CODE[code], "code": code}
    if number is not None:
        fields["invalid-event-number"] = number
    if ack_id is not None:
        fields["ackId"] = ack_id
    if detail:
        fields["detail"] = detail
    return no_store_json_response(fields, status, *extra_headers)
