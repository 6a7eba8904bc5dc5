"""The services that request handlers use: their lifecycle, the operator's options, and look-ups of endpoints and streams."""

import asyncio
import re
from enum import StrEnum

import msgspec

from cordwood.access import Access, may_manage, require_ingest
from cordwood.alerts.service import Alerts
from cordwood.catalog.catalog import Catalog, Definitions, StreamMaker
from cordwood.errors import Busy, Forbidden, UnknownEndpoint, UnknownStream, did_you_mean
from cordwood.ingest.accept import Intake
from cordwood.ingest.limits import BodyBudget
from cordwood.ingest.stream_mapping import StreamMapping
from cordwood.model.definitions import Endpoint, Stream
from cordwood.model.key import Caller
from cordwood.serve.answer import Answers
from cordwood.serve.backup_archive import Backups
from cordwood.serve.tails import Tails
from cordwood.web.receiving import BodyBounds


class Services(msgspec.Struct, frozen=True):
    """The services that request handlers use."""

    answers: Answers
    intake: Intake
    access: Access
    catalog: Catalog
    backups: Backups
    tails: Tails
    alerts: Alerts
    stream_maker: StreamMaker | None = None
    endpoint_definitions: Definitions[Endpoint] | None = None
    stream_definitions: Definitions[Stream] | None = None
    # A lock for changes of definitions, so that waiting requests do not occupy threads of the pool.
    changing: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class Phase(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


class Lifecycle:
    """The phase of the process: STARTING until `open`, READY, and DRAINING from `drain` on.

    While it is READY, `set_unready` may declare a part unavailable, for example while the engine is replaced.
    Thread-safe.
    """

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self.services: Services | None = None
        self._unready: dict[str, str] = {}

    def open(self, services: Services) -> None:
        self.services = services
        self.phase = Phase.READY

    def drain(self) -> None:
        self.phase = Phase.DRAINING

    def set_unready(self, part: str, reason: str | None) -> None:
        """Set the reason why a part of the service (`engine`) is unavailable, or None once it is available again."""
        if reason is None:
            self._unready.pop(part, None)
        else:
            self._unready[part] = reason

    def unready_reasons(self) -> list[str]:
        """Return the reasons why queries cannot be answered although the process runs."""
        reasons = [*self._unready.copy().values()]
        if self.services is not None and (starved := self.services.answers.queue_stalled_seconds):
            reasons.append(f"No query has got a slot for {starved:.0f} s: queries that do not end hold all slots.")
        return reasons

    def degraded_reasons(self) -> list[str]:
        """Return what does not work although queries are answered."""
        fault = self.services.intake.fault if self.services is not None else None
        return [] if fault is None else [f"Events are not stored: {fault}"]


_MEBIBYTE = 1024 * 1024

# A query has at most 256 Ki characters. JSON may escape each to six bytes, and a form to twelve bytes in UTF-8.
QUERY_BODY_BOUNDS = BodyBounds(4 * _MEBIBYTE, 4 * _MEBIBYTE)
EVENT_BODY_BOUNDS = BodyBounds(16 * _MEBIBYTE, 128 * _MEBIBYTE)


class Webhooks(msgspec.Struct, frozen=True):
    """The secrets with which senders sign their bodies. Without its secret, the signatures of a sender are not checked.

    `vercel_verify` is the token that proves ownership to Vercel.
    """

    vercel_secret: str = ""
    vercel_verify: str = ""
    github_secret: str = ""


class WebOptions(msgspec.Struct, frozen=True):
    """Options of the HTTP layer. `logflare_errors` returns failed queries as Logflare does: 200 with a message.

    `events` limits bodies of events, `queries` all others. `unread_bytes` bounds the memory of answers that are being
    sent. `webhooks` has the secrets of signing senders. `query_budget` is the memory budget of bodies other than events.
    `stream_mapping` maps the labels of shippers to streams. `offers_sign_in` enables the page that signs in by a link.
    """

    logflare_errors: bool = False
    events: BodyBounds = EVENT_BODY_BOUNDS
    queries: BodyBounds = QUERY_BODY_BOUNDS
    unread_bytes: int = 64 * _MEBIBYTE
    webhooks: Webhooks = Webhooks()
    query_budget: BodyBudget = msgspec.field(default_factory=lambda: query_budget(32 * _MEBIBYTE))
    stream_mapping: StreamMapping = StreamMapping()
    offers_sign_in: bool = False


def query_budget(max_bytes: int) -> BodyBudget:
    """Return the memory budget of query bodies, which raises Busy when it is used up."""
    return BodyBudget(max_bytes, refusal=_budget_fault)


def _budget_fault() -> Busy:
    return Busy("More queries are being read than are held in memory.", hint="Ask again in a moment.", retry_after=2)


def existing_endpoint(services: Services, address: str) -> Endpoint:
    endpoint = services.catalog.endpoint(address)
    if endpoint is None:
        near = did_you_mean(address, [one.name for one in services.catalog.endpoints()])
        hint = near or "GET /api/endpoints lists them, with a private key."
        raise UnknownEndpoint(f"There is no endpoint {address!r}.", hint=hint)
    return endpoint


def existing_stream(services: Services, address: str) -> Stream:
    stream = services.catalog.stream(address)
    if stream is None:
        near = did_you_mean(address, [one.name for one in services.catalog.streams()])
        hint = _stream_of_sub_query(services, address) or near or "Add it to your streams file."
        raise UnknownStream(f"There is no stream {address!r}.", hint=hint)
    return stream


def _stream_of_sub_query(services: Services, name: str) -> str | None:
    """Return a hint if the name is a sub-query of an endpoint, which is often confused with its stream."""
    if not _SUB_QUERY.fullmatch(name):
        return None
    pattern = re.compile(rf"\b{name}\s+as\s*\(.{{0,2000}}?\bfrom\s+`([^`]+)`", re.IGNORECASE | re.DOTALL)
    for endpoint in services.catalog.endpoints():
        match = pattern.search(endpoint.sql)
        if match is not None:
            return f"{name} is a sub-query of the endpoint {endpoint.name}; the stream that it reads is {match[1]}."
    return None


_SUB_QUERY = re.compile(r"\w{1,60}", re.ASCII)


async def stream_of_events(services: Services, caller: Caller, name: str) -> Stream:
    """Return the stream of this name, and create it if the settings allow that; otherwise raise UnknownStream."""
    stream = services.catalog.stream(name)
    if stream is not None or services.stream_maker is None:
        return stream or existing_stream(services, name)
    try:
        return await _create_stream(services.stream_maker, caller, name)
    except UnknownStream as fault:
        fault.hint = _stream_of_sub_query(services, name) or fault.hint
        raise


async def _create_stream(maker: StreamMaker, caller: Caller, name: str) -> Stream:
    require_ingest(caller, maker.proposed(name))
    if caller.pins:
        raise Forbidden(
            f"There is no stream {name!r}, and a pinned key may not create one.",
            hint="Add it to the streams file, or send to it once with a key without pins.",
        )
    # No key id is charged: a private key may create any number of streams.
    key_id = None if may_manage(caller) else caller.key_id
    return await asyncio.to_thread(maker.make_stream, name, key_id)
