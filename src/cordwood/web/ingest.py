"""The routes for events: identify the caller and the stream, read the body, store its events, and report the outcome.

OTLP requests are answered with export responses or, after an error, with google.rpc.Status, in the encoding of the
request. Senders of webhooks sign bodies with a secret, which is also in the settings.
"""

import asyncio
import hashlib
import hmac
from collections.abc import Mapping

import msgspec

from cordwood.access import require_ingest_permission
from cordwood.errors import BadParameter, BadSignature, Fault
from cordwood.ingest.accept import BodyDescription, BodyFormat, IngestOutcome
from cordwood.ingest.formats.erlang import COMPRESSED_HEADER_BYTES, TERM_FORMAT_VERSION, is_compressed
from cordwood.ingest.formats.protobuf import encode_export_response, encode_rpc_status
from cordwood.ingest.limits import MemoryReservation
from cordwood.model.definitions import Stream
from cordwood.observe.observation import EventsIngested, Observer
from cordwood.web.asgi import JSON_MEDIA_TYPE, NO_STORE_HEADER, Header, Request, Response
from cordwood.web.credentials import identify_caller
from cordwood.web.problems import CHALLENGE_HEADER, retry_after_headers, status_of
from cordwood.web.request_body import inflate, read_body
from cordwood.web.services import Services, WebhookSecrets, WebOptions, find_or_create_stream

# The parameters and headers in which a request can name the stream, in order of precedence. Each contains the stream's
# name or UUID.
STREAM_URL_PARAMETERS = ("source_name", "collection_name", "source", "collection")
STREAM_HEADERS = (b"x-source", b"x-collection")


async def ingest_events(
    request: Request, services: Services, options: WebOptions, observer: Observer, form: BodyFormat
) -> Response:
    caller, query = identify_caller(request, services)
    name = _stream_name(request, query)
    if name is None and form in _OTLP_REJECTED_FIELD_BY_FORM:
        # Some OTLP exporters can be configured only with an address and a key, so they cannot name a stream. Their
        # events go to the default stream.
        name = options.stream_mapping.default_stream
    stream = services.catalog.stream(name) if name else None
    require_ingest_permission(caller, stream)
    if name is None:
        raise _missing_stream_fault()
    services.query_service.charge_request(caller)
    stream = stream or await find_or_create_stream(services, caller, name)
    request.log_fields["stream"] = stream.name
    services.intake.check_stream_rate(stream)
    content_type = request.header(b"content-type") or ""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()}
    with services.intake.body_budget.open_reservation(caller.key_id) as reservation:
        body = await _decompressed_body(request, options, form, reservation)
        accepting = services.intake.ingest_body(
            stream, content_type, body, caller.pins or None, BodyDescription(form, headers)
        )
        # The coroutine `accepting` holds the body only until the body is decoded. Delete the other reference to it
        # here, so that the body's memory becomes free then.
        del body
        accepted = await accepting
    observer.record(events_ingested_observation(stream, accepted))
    if form in _OTLP_REJECTED_FIELD_BY_FORM:
        return _otlp_export_response(accepted, request, form)
    answer = accepted_response(accepted)
    answer.headers.extend(_vercel_ownership_headers(options.webhook_secrets, form))
    return answer


async def _decompressed_body(
    request: Request, options: WebOptions, form: BodyFormat, reservation: MemoryReservation
) -> bytes:
    """Read and decompress the body; if a webhook sent it, check its signature."""
    body = await read_body(request, options.event_body_bounds, reservation)
    if form is BodyFormat.ERLANG and is_compressed(body):
        head, limit = COMPRESSED_HEADER_BYTES, options.event_body_bounds.max_inflated_bytes
        term = await asyncio.to_thread(inflate, body[head:], "deflate", limit, reservation.reserve)
        return bytes((TERM_FORMAT_VERSION,)) + term
    if form in {BodyFormat.VERCEL, BodyFormat.GITHUB}:
        await asyncio.to_thread(_check_signature, options.webhook_secrets, request, form, body)
    return body


def events_ingested_observation(stream: Stream, accepted: IngestOutcome) -> EventsIngested:
    return EventsIngested(
        stream=stream.name,
        accepted=accepted.accepted,
        duplicates=accepted.duplicates,
        quarantined=accepted.quarantined,
        late=accepted.late_events,
        future=accepted.future_events,
        transformed=[(*step, count) for step, count in accepted.transformed.items()],
    )


def accepted_response(accepted: IngestOutcome) -> Response:
    beyond = {"late": accepted.late_events, "future": accepted.future_events, "dropped": accepted.dropped}
    fields = {
        "message": "Logged!",
        "accepted": accepted.accepted,
        "duplicates": accepted.duplicates,
        "quarantined": accepted.quarantined,
        "reasons": [{"index": index, "reason": reason} for index, reason in accepted.quarantine_reasons],
        **{clock: count for clock, count in beyond.items() if count},
    }
    return Response(200, [(b"content-type", JSON_MEDIA_TYPE)], msgspec.json.encode(fields))


def _stream_name(request: Request, query: Mapping[str, str]) -> str | None:
    in_query = (query.get(name) for name in STREAM_URL_PARAMETERS)
    in_headers = (request.header(name) for name in STREAM_HEADERS)
    return next((name for name in (*in_query, *in_headers) if name), None)


def _missing_stream_fault() -> BadParameter:
    return BadParameter(
        "The request does not say which stream the events are for.",
        hint="Add ?source_name= with the name of a stream, or ?source= with its UUID.",
    )


_OTLP_PROTOBUF, _OTLP_JSON = b"application/x-protobuf", b"application/json"
_BAD_REQUEST_TYPE_URL = "type.googleapis.com/google.rpc.BadRequest"
_MAX_OTLP_MESSAGE_LENGTH = 1000

# The google.rpc code for each HTTP status. Exporters look only at the HTTP status.
GRPC_CODES_BY_HTTP_STATUS = {400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 413: 8, 415: 3, 429: 8, 500: 13, 503: 14, 504: 4}
_INTERNAL_GRPC_CODE = 13
# Exporters retry only after the statuses 429, 502, 503 and 504; after other errors they drop the data. So the statuses
# 408 and 507, after which a retry may succeed, are replaced by 503.
_OTLP_RETRYABLE_STATUS_REPLACEMENTS = {408: 503, 507: 503}


# For each form of OTLP: the JSON field of the export response that has the number of rejected records.
_OTLP_REJECTED_FIELD_BY_FORM = {
    BodyFormat.OTLP: "rejectedLogRecords",
    BodyFormat.OTLP_TRACES: "rejectedSpans",
    BodyFormat.OTLP_METRICS: "rejectedDataPoints",
}


def _otlp_export_response(accepted: IngestOutcome, request: Request, form: BodyFormat = BodyFormat.OTLP) -> Response:
    """Return the export response. Quarantined items are reported as a partial success, so exporters do not retry."""
    reason = accepted.quarantine_reasons[0][1][:_MAX_OTLP_MESSAGE_LENGTH] if accepted.quarantine_reasons else ""
    if _is_protobuf(request):
        return Response(200, [(b"content-type", _OTLP_PROTOBUF)], encode_export_response(accepted.quarantined, reason))
    message_fields: dict[str, object] = {}
    if accepted.quarantined:
        message_fields["partialSuccess"] = {
            _OTLP_REJECTED_FIELD_BY_FORM[form]: str(accepted.quarantined),
            "errorMessage": reason,
        }
    return Response(200, [(b"content-type", _OTLP_JSON)], msgspec.json.encode(message_fields))


def render_otlp_error(fault: Fault, request: Request) -> Response:
    http_status = _OTLP_RETRYABLE_STATUS_REPLACEMENTS.get(status_of(fault), status_of(fault))
    code, message = (
        GRPC_CODES_BY_HTTP_STATUS.get(http_status, _INTERNAL_GRPC_CODE),
        fault.one_line_text()[:_MAX_OTLP_MESSAGE_LENGTH],
    )
    headers: list[Header] = [NO_STORE_HEADER, *retry_after_headers(fault, http_status)]
    if http_status == 401:
        headers.append(CHALLENGE_HEADER)
    violation = message if http_status == 400 else ""
    if _is_protobuf(request):
        return Response(
            http_status, [(b"content-type", _OTLP_PROTOBUF), *headers], encode_rpc_status(code, message, violation)
        )
    message_fields: dict[str, object] = {"code": code, "message": message}
    if violation:
        message_fields["details"] = [{"@type": _BAD_REQUEST_TYPE_URL, "fieldViolations": [{"description": violation}]}]
    return Response(http_status, [(b"content-type", _OTLP_JSON), *headers], msgspec.json.encode(message_fields))


def _is_protobuf(request: Request) -> bool:
    return "protobuf" in request.media_type()


class _SignatureScheme(msgspec.Struct, frozen=True):
    header: bytes
    signature_prefix: str
    hash_name: str


_SIGNATURE_SCHEMES = {
    BodyFormat.VERCEL: _SignatureScheme(b"x-vercel-signature", "", "sha1"),
    BodyFormat.GITHUB: _SignatureScheme(b"x-hub-signature-256", "sha256=", "sha256"),
}


def _check_signature(webhooks: WebhookSecrets, request: Request, form: BodyFormat, body: bytes) -> None:
    """Raise BadSignature if the settings have a secret for the sender, but the body is not signed with this secret."""
    signed = _SIGNATURE_SCHEMES.get(form)
    secret = {BodyFormat.VERCEL: webhooks.vercel_secret, BodyFormat.GITHUB: webhooks.github_secret}.get(form)
    if signed is None or not secret:
        return
    sent = request.header(signed.header) or ""
    right = signed.signature_prefix + hmac.new(secret.encode(), body, getattr(hashlib, signed.hash_name)).hexdigest()
    if not hmac.compare_digest(sent.lower().encode(), right.encode()):
        problem = "is not that of the body" if sent else "is missing"
        raise BadSignature(
            f"The signature in {signed.header.decode()} {problem}.",
            hint="Sender and service must have the same secret, and nothing on the way may change the body.",
        )


def _vercel_ownership_headers(webhooks: WebhookSecrets, form: BodyFormat) -> list[Header]:
    """Return the header by which Vercel verifies that the operator owns the address of a log drain."""
    if form is not BodyFormat.VERCEL or not webhooks.vercel_ownership_token:
        return []
    return [(b"x-vercel-verify", webhooks.vercel_ownership_token.encode("latin-1", "replace"))]
