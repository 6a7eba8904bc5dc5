"""Store the events in a shipper's request: decode the body, find the events' streams by their labels, and store all.

Labels, such as an index or a tag, tell where an event comes from. They are mapped to a stream, unless the request names
one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from cordwood.access import require_ingest_permission
from cordwood.errors import Fault, Forbidden, LimitFault, NoReadableItem, UnknownStream
from cordwood.ingest.accept import BodyFormat, BodyPartForStream, IngestOutcome
from cordwood.ingest.limits import MemoryReservation
from cordwood.ingest.parsed_body import Body, LabelledBody, ParsedBody, StreamLabels
from cordwood.model.definitions import Stream
from cordwood.model.key import Caller
from cordwood.observe.observation import Observer
from cordwood.web.asgi import Request, parse_urlencoded
from cordwood.web.credentials import KeyPlaces, audit_refusal, presented_key
from cordwood.web.ingest import events_ingested_observation
from cordwood.web.problems import status_of
from cordwood.web.request_body import read_body
from cordwood.web.route import HandlerContext
from cordwood.web.services import find_or_create_stream

T = TypeVar("T", bound=LabelledBody)

# Parameters and headers that can name a stream for all events of a request. `source` is not among them, because
# Splunk's protocol uses this name for something else.
_STREAM_URL_PARAMETERS = ("source_name", "collection_name")
_STREAM_HEADERS = (b"x-source", b"x-collection")
# The statuses of errors that are temporary, so that a retry may succeed.
RETRYABLE_STATUSES = frozenset({408, 429, 503, 504, 507})


class ShipperProtocol(msgspec.Struct, Generic[T], frozen=True):
    """What differs between the protocols of shippers: the places of the key, the decoder, and the form of bodies.

    `reports_item_outcomes` is true if the protocol's answers report the outcome of each item.
    """

    body_format: BodyFormat
    key_places: KeyPlaces
    read_body: Callable[[Body], T]
    reports_item_outcomes: bool = False


class RefusedStreamPart(msgspec.Struct, frozen=True):
    """The events of a body for one stream, which are not stored: the stream is unknown, forbidden or over a limit."""

    item_positions: Sequence[int]
    fault: Fault


class DeliveryResult(msgspec.Struct, Generic[T], frozen=True):
    """The result of `store_delivery`: the decoded body, the outcomes of its stored parts, and its refused parts.

    A part has the events for one stream.
    """

    body: T
    outcomes: Sequence[IngestOutcome]
    refused_parts: Sequence[RefusedStreamPart]

    @property
    def quarantined_count(self) -> int:
        return sum(outcome.quarantined for outcome in self.outcomes)


def admit_sender(context: HandlerContext, places: KeyPlaces) -> tuple[Caller, Mapping[str, str]]:
    """Return the caller and the query string; raise Forbidden if the caller's key may not send events.

    The request is counted against the key's rate.
    """
    request, services = context.request, context.services()
    query = parse_urlencoded(request.query_string, "query string")
    caller = services.authenticator.authenticate(presented_key(request, query, places))
    request.log_fields["key"] = caller.key_id
    require_ingest_permission(caller, None)
    services.query_service.charge_request(caller)
    return caller, query


async def store_delivery(context: HandlerContext, protocol: ShipperProtocol[T]) -> DeliveryResult[T]:
    """Store the events of a request, and return the outcome.

    A part of the body has the events for one stream. It is refused if that stream cannot get them. If the protocol's
    answers are not itemized, the first error of a refused part is raised: a temporary error before anything is stored,
    and a permanent error after the other parts are stored.
    """
    caller, query = admit_sender(context, protocol.key_places)
    request, intake = context.request, context.services().intake
    named = await find_named_stream(context, caller, query)
    with intake.body_budget.open_reservation(caller.key_id) as reservation:
        size, body = await _read_and_decode_body(context, protocol, reservation, caller)
        if not protocol.reports_item_outcomes:
            _require_readable_item(body)
        parts, refused = await _split_by_stream(context, caller, body, named)
        if protocol.reports_item_outcomes:
            _audit_first_refusal(context.dependencies.observer, request, refused)
        else:
            _raise_first_fault(one.fault for one in refused if status_of(one.fault) in RETRYABLE_STATUSES)
        outcomes = await intake.store_body_parts(
            parts, size, protocol.body_format, caller.pins or None, is_itemized=protocol.reports_item_outcomes
        )
    _log_ingestion(context.dependencies.observer, request, parts, outcomes)
    delivered = DeliveryResult(body, outcomes, refused)
    if not protocol.reports_item_outcomes:
        _raise_first_fault(one.fault for one in refused)
    return delivered


async def find_named_stream(context: HandlerContext, caller: Caller, query: Mapping[str, str]) -> Stream | None:
    """Return the stream that the request names, or None if it names none.

    Raise an error if the key may not send to the stream, or if the stream is over its limit. Call this function before
    the body is read, so that the body of a refused request need not be read.
    """
    request, services = context.request, context.services()
    in_headers = (request.header(name) for name in _STREAM_HEADERS)
    name = next((name for name in (*map(query.get, _STREAM_URL_PARAMETERS), *in_headers) if name), None)
    if name is None:
        return None
    stream = await find_or_create_stream(services, caller, name)
    require_ingest_permission(caller, stream)
    services.intake.check_stream_rate(stream)
    return stream


async def _read_and_decode_body(
    context: HandlerContext, protocol: ShipperProtocol[T], reservation: MemoryReservation, caller: Caller
) -> tuple[int, T]:
    """Read and decode the body; return its size after decompression, and the decoded body."""
    request = context.request
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()}
    body = await read_body(request, context.dependencies.options.event_body_bounds, reservation)
    size, content_type = len(body), request.header(b"content-type") or ""
    decoding = context.services().intake.decode_body(
        protocol.read_body, body, content_type, headers, caller.pins.get("project")
    )
    # The coroutine `decoding` holds the body only until the body is decoded. Delete the other reference to it here, so
    # that the body's memory becomes free then.
    del body
    return size, await decoding


def _require_readable_item(body: LabelledBody) -> None:
    """Raise NoReadableItem if the body has items, but none of them could be decoded.

    If at least one item was decoded, no error is raised, because the other items go to the quarantine.
    """
    items = [item for part in body.parts_by_labels.values() for item in part.refused_items]
    if items and not any(part.events for part in body.parts_by_labels.values()):
        first = min(items, key=lambda item: item.index)
        raise NoReadableItem(first.index, first.reason)


async def _split_by_stream(
    context: HandlerContext, caller: Caller, body: LabelledBody, named: Stream | None
) -> tuple[list[BodyPartForStream], list[RefusedStreamPart]]:
    """Find the stream of each part of the body; return the parts with their streams, and the refused parts."""
    parts, refused = [], []
    for labels, parsed in body.parts_by_labels.items():
        try:
            parts.append(
                BodyPartForStream(named or await find_or_create_stream_of_labels(context, caller, labels), parsed)
            )
        except (UnknownStream, Forbidden, LimitFault) as fault:
            refused.append(RefusedStreamPart(_item_positions(parsed), fault))
    body.parts_by_labels.clear()
    return parts, refused


async def find_or_create_stream_of_labels(context: HandlerContext, caller: Caller, labels: StreamLabels) -> Stream:
    services, mapping = context.services(), context.dependencies.options.stream_mapping
    try:
        name = mapping.stream_name_for_labels(labels, lambda label: services.catalog.stream(label) is not None)
    except UnknownStream as unmapped:
        if not labels:
            raise
        try:
            stream = await find_or_create_stream(services, caller, labels[0])
        except UnknownStream:
            raise unmapped from None
    else:
        stream = await find_or_create_stream(services, caller, name)
    require_ingest_permission(caller, stream)
    services.intake.check_stream_rate(stream)
    return stream


def _item_positions(parsed: ParsedBody) -> list[int]:
    return sorted([*map(parsed.item_index, range(len(parsed.events))), *(item.index for item in parsed.refused_items)])


def _audit_first_refusal(observer: Observer, request: Request, refused: Sequence[RefusedStreamPart]) -> None:
    """Write the first refusal that is due to the key to the audit log.

    Other refusals are logged where an error becomes a response. But an itemized answer has status 200 and is not an
    error.
    """
    forbidden = next((one.fault for one in refused if isinstance(one.fault, Forbidden)), None)
    if forbidden is not None:
        audit_refusal(observer, request, forbidden)


def _raise_first_fault(faults: Iterable[Fault]) -> None:
    for fault in faults:
        raise fault


def _log_ingestion(
    observer: Observer, request: Request, parts: Sequence[BodyPartForStream], outcomes: Sequence[IngestOutcome]
) -> None:
    if len(parts) == 1:
        request.log_fields["stream"] = parts[0].stream.name
    for part, accepted in zip(parts, outcomes, strict=True):
        observer.record(events_ingested_observation(part.stream, accepted))
