"""The services and options of request handlers, the phase of the process, and look-ups of streams and endpoints."""

import asyncio
import re
from enum import StrEnum

import msgspec

from cordwood.access import Authenticator, may_manage_service, require_ingest_permission
from cordwood.alerts.service import AlertService
from cordwood.catalog.catalog import Catalog, DefinitionEditor, StreamCreator
from cordwood.errors import Forbidden, ServiceBusy, UnknownEndpoint, UnknownStream, did_you_mean
from cordwood.ingest.accept import Intake
from cordwood.ingest.limits import BodyMemoryBudget
from cordwood.ingest.stream_mapping import StreamMapping
from cordwood.model.definitions import Endpoint, Stream
from cordwood.model.key import Caller
from cordwood.serve.answer import QueryService
from cordwood.serve.backup_archive import BackupService
from cordwood.serve.tails import TailService
from cordwood.web.request_body import BodyBounds


class Services(msgspec.Struct, frozen=True):
    """The services that request handlers use, such as the query service and the catalog."""

    query_service: QueryService
    intake: Intake
    authenticator: Authenticator
    catalog: Catalog
    backup_service: BackupService
    tail_service: TailService
    alert_service: AlertService
    stream_creator: StreamCreator | None = None
    endpoint_definitions: DefinitionEditor[Endpoint] | None = None
    stream_definitions: DefinitionEditor[Stream] | None = None
    # Only one change of definitions runs at a time. Other changes wait for this lock on the event loop, so that they do
    # not occupy threads.
    definition_lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class LifecyclePhase(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


class Lifecycle:
    """The phase of the process: STARTING until `set_ready` is called, then READY, and after `start_draining` DRAINING.

    In the phase READY, a part of the service can be unavailable (`set_component_unready_reason`), for example while the
    engine is replaced. Thread-safe.
    """

    def __init__(self) -> None:
        self.phase = LifecyclePhase.STARTING
        self.services: Services | None = None
        self._unready_reason_by_component: dict[str, str] = {}

    def set_ready(self, services: Services) -> None:
        self.services = services
        self.phase = LifecyclePhase.READY

    def start_draining(self) -> None:
        self.phase = LifecyclePhase.DRAINING

    def set_component_unready_reason(self, part: str, reason: str | None) -> None:
        """Record why a part of the service, such as `engine`, is unavailable. None means that it is available."""
        if reason is None:
            self._unready_reason_by_component.pop(part, None)
        else:
            self._unready_reason_by_component[part] = reason

    def unready_reasons(self) -> list[str]:
        """Return the reasons why the service cannot answer queries; an empty list if it can."""
        reasons = [*self._unready_reason_by_component.copy().values()]
        if self.services is not None and (starved := self.services.query_service.queue_stalled_seconds):
            reasons.append(f"No query has got a slot for {starved:.0f} s: queries that do not end hold all slots.")
        return reasons

    def degraded_reasons(self) -> list[str]:
        """Return the reasons why the service does not work fully although it can answer queries."""
        fault = self.services.intake.last_write_error if self.services is not None else None
        return [] if fault is None else [f"Events are not stored: {fault}"]


_MEBIBYTE = 1024 * 1024

# The maximum sizes of bodies with a query. A query has at most 256 Ki characters. A character takes up to six bytes in
# JSON, and up to twelve in a form.
QUERY_BODY_BOUNDS = BodyBounds(4 * _MEBIBYTE, 4 * _MEBIBYTE)
EVENT_BODY_BOUNDS = BodyBounds(16 * _MEBIBYTE, 128 * _MEBIBYTE)


class WebhookSecrets(msgspec.Struct, frozen=True):
    """The secrets with which senders of webhooks sign bodies.

    If a secret is empty, the signatures of this sender are not checked. With `vercel_ownership_token`, Vercel verifies
    that the operator owns the address of a log drain.
    """

    vercel_secret: str = ""
    vercel_ownership_token: str = ""
    github_secret: str = ""


class WebOptions(msgspec.Struct, frozen=True):
    """The options of the HTTP layer.

    If `sends_logflare_errors` is true, failed queries are answered as Logflare does: with a message and, unless the
    query is ad hoc, with status 200. `event_body_bounds` limits the sizes of bodies with events, and
    `query_body_bounds` those of all other bodies. `query_body_budget` limits the memory for these other bodies, and
    `max_unsent_bytes` the memory for large bodies of responses that are being sent. `webhook_secrets` has the secrets
    of senders that sign bodies. `stream_mapping` maps labels, by which shippers name the origin of events, to streams.
    If `offers_sign_in` is true, there is a page that signs in by a link.
    """

    sends_logflare_errors: bool = False
    event_body_bounds: BodyBounds = EVENT_BODY_BOUNDS
    query_body_bounds: BodyBounds = QUERY_BODY_BOUNDS
    max_unsent_bytes: int = 64 * _MEBIBYTE
    webhook_secrets: WebhookSecrets = WebhookSecrets()
    query_body_budget: BodyMemoryBudget = msgspec.field(default_factory=lambda: new_query_body_budget(32 * _MEBIBYTE))
    stream_mapping: StreamMapping = StreamMapping()
    offers_sign_in: bool = False


def new_query_body_budget(max_bytes: int) -> BodyMemoryBudget:
    """Return a memory budget for bodies with queries. When it is used up, it raises ServiceBusy."""
    return BodyMemoryBudget(max_bytes, refusal=_query_body_budget_fault)


def _query_body_budget_fault() -> ServiceBusy:
    return ServiceBusy(
        "More queries are being read than are held in memory.", hint="Ask again in a moment.", retry_after=2
    )


def require_endpoint(services: Services, address: str) -> Endpoint:
    endpoint = services.catalog.endpoint(address)
    if endpoint is None:
        near = did_you_mean(address, [one.name for one in services.catalog.endpoints()])
        hint = near or "GET /api/endpoints lists them, with a private key."
        raise UnknownEndpoint(f"There is no endpoint {address!r}.", hint=hint)
    return endpoint


def require_stream(services: Services, address: str) -> Stream:
    stream = services.catalog.stream(address)
    if stream is None:
        near = did_you_mean(address, [one.name for one in services.catalog.streams()])
        hint = _sub_query_hint(services, address) or near or "Add it to your streams file."
        raise UnknownStream(f"There is no stream {address!r}.", hint=hint)
    return stream


def _sub_query_hint(services: Services, name: str) -> str | None:
    """Return a hint if `name` is a sub-query of an endpoint.

    Callers often confuse the name of a sub-query with that of the stream that it reads.
    """
    if not _SUB_QUERY_NAME_REGEX.fullmatch(name):
        return None
    pattern = re.compile(rf"\b{name}\s+as\s*\(.{{0,2000}}?\bfrom\s+`([^`]+)`", re.IGNORECASE | re.DOTALL)
    for endpoint in services.catalog.endpoints():
        match = pattern.search(endpoint.sql)
        if match is not None:
            return f"{name} is a sub-query of the endpoint {endpoint.name}; the stream that it reads is {match[1]}."
    return None


_SUB_QUERY_NAME_REGEX = re.compile(r"\w{1,60}", re.ASCII)


async def find_or_create_stream(services: Services, caller: Caller, name: str) -> Stream:
    """Return the stream with this name, or create it if the settings allow that; else raise UnknownStream."""
    stream = services.catalog.stream(name)
    if stream is not None or services.stream_creator is None:
        return stream or require_stream(services, name)
    try:
        return await _create_stream(services.stream_creator, caller, name)
    except UnknownStream as fault:
        fault.hint = _sub_query_hint(services, name) or fault.hint
        raise


async def _create_stream(maker: StreamCreator, caller: Caller, name: str) -> Stream:
    require_ingest_permission(caller, maker.proposed_stream(name))
    if caller.pins:
        raise Forbidden(
            f"There is no stream {name!r}, and a pinned key may not create one.",
            hint="Add it to the streams file, or send to it once with a key without pins.",
        )
    # A private key may create as many streams as all keys together. So its id is not passed, and the limit on the
    # streams of one key does not apply.
    key_id = None if may_manage_service(caller) else caller.key_id
    return await asyncio.to_thread(maker.create_stream, name, key_id)
