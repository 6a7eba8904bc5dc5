"""The route for events: determine the caller, the stream and the body, store the events, and report the outcome."""

import asyncio
from collections.abc import Mapping

import msgspec

from cordwood.access import require_ingest
from cordwood.errors import BadParameter
from cordwood.ingest.accept import Accepted, Form, Sent
from cordwood.ingest.body_budget import Reservation
from cordwood.ingest.formats.erlang import COMPRESSED_HEAD, VERSION, is_compressed
from cordwood.model.stream import Stream
from cordwood.observe.observation import Ingested, Observer
from cordwood.web.asgi import Request, Response
from cordwood.web.catalog_lookup import stream_of_events
from cordwood.web.credentials import identified_caller
from cordwood.web.inflate import inflate
from cordwood.web.lifecycle import Services
from cordwood.web.options import WebOptions
from cordwood.web.otlp import REJECTED, export_response
from cordwood.web.receiving import read_body
from cordwood.web.responses import JSON
from cordwood.web.webhook_signatures import check_signature, verification

# In order of precedence: names before UUIDs, the query string before headers. Each parameter accepts both.
STREAM_URL_PARAMETERS = ("source_name", "collection_name", "source", "collection")
NAMED_IN_HEADER = (b"x-source", b"x-collection")


async def ingest(request: Request, services: Services, options: WebOptions, observer: Observer, form: Form) -> Response:
    caller, query = identified_caller(request, services)
    name = _stream_name(request, query)
    if name is None and form in REJECTED:
        # Some exporters can be configured with an address and a key only, so the stream has a default.
        name = options.stream_mapping.default
    stream = services.catalog.stream(name) if name else None
    require_ingest(caller, stream)
    if name is None:
        raise _missing_stream_fault()
    services.answers.admit(caller)
    stream = stream or await stream_of_events(services, caller, name)
    request.facts["stream"] = stream.name
    services.intake.admit(stream)
    content_type = request.header(b"content-type") or ""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()}
    with services.intake.body_budget.reserve(caller.key_id) as reservation:
        body = await _decompressed_body(request, options, form, reservation)
        accepting = services.intake.accept(stream, content_type, body, caller.pins or None, Sent(form, headers))
        # `accept` has taken over the body, and releases it once it is decoded.
        del body
        accepted = await accepting
    observer.note(ingested_observation(stream, accepted))
    if form in REJECTED:
        return export_response(accepted, request, form)
    answer = accepted_response(accepted)
    answer.headers.extend(verification(options.webhooks, form))
    return answer


async def _decompressed_body(request: Request, options: WebOptions, form: Form, reservation: Reservation) -> bytes:
    """Check the signature of the body and decompress its content."""
    body = await read_body(request, options.events, reservation)
    if form is Form.ERLANG and is_compressed(body):
        head, limit = COMPRESSED_HEAD, options.events.inflated_bytes
        term = await asyncio.to_thread(inflate, body[head:], "deflate", limit, reservation.take)
        return bytes((VERSION,)) + term
    if form in {Form.VERCEL, Form.GITHUB}:
        await asyncio.to_thread(check_signature, options.webhooks, request, form, body)
    return body


def ingested_observation(stream: Stream, accepted: Accepted) -> Ingested:
    return Ingested(
        stream=stream.name,
        accepted=accepted.accepted,
        duplicates=accepted.duplicates,
        quarantined=accepted.quarantined,
        late=accepted.late,
        future=accepted.future,
        transformed=[(*step, count) for step, count in accepted.transformed.items()],
    )


def accepted_response(accepted: Accepted) -> Response:
    beyond = {"late": accepted.late, "future": accepted.future, "dropped": accepted.dropped}
    fields = {
        "message": "Logged!",
        "accepted": accepted.accepted,
        "duplicates": accepted.duplicates,
        "quarantined": accepted.quarantined,
        "reasons": [{"index": index, "reason": reason} for index, reason in accepted.reasons],
        **{clock: count for clock, count in beyond.items() if count},
    }
    return Response(200, [(b"content-type", JSON)], msgspec.json.encode(fields))


def _stream_name(request: Request, query: Mapping[str, str]) -> str | None:
    in_query = (query.get(name) for name in STREAM_URL_PARAMETERS)
    in_headers = (request.header(name) for name in NAMED_IN_HEADER)
    return next((name for name in (*in_query, *in_headers) if name), None)


def _missing_stream_fault() -> BadParameter:
    return BadParameter(
        "The request does not say which stream the events are for.",
        hint="Add ?source_name= with the name of a stream, or ?source= with its UUID.",
    )
