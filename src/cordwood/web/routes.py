"""The routing table."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from cordwood.errors import BadMethod, Draining, Starting, UnknownRoute, closest
from cordwood.ingest.accept import Form
from cordwood.observe.metrics import Metrics
from cordwood.observe.observer import Observer
from cordwood.web import account, ad_hoc, explorer, keys, manage, quarantine, sandbox, status, stream_events
from cordwood.web.answering import HttpApplication
from cordwood.web.asgi import Request, Response
from cordwood.web.backup import back_up
from cordwood.web.describe import catalog
from cordwood.web.ingest import ingest
from cordwood.web.lifecycle import Lifecycle, Phase, Services
from cordwood.web.options import WebOptions
from cordwood.web.percent_encoding import decoded
from cordwood.web.query import RequestCache, answer_query, answer_repeated
from cordwood.web.responses import preflight
from cordwood.web.send_budget import SendBudget
from cordwood.web.stream_events import EVENTS_ADDRESS, export_events, reimport_events

QUERY = ("GET", "HEAD", "POST", "OPTIONS")
READ = ("GET", "HEAD", "OPTIONS")
WRITE = ("POST", "OPTIONS")
READ_OR_MAKE = ("GET", "HEAD", "POST", "OPTIONS")
READ_OR_CHANGE = ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS")


class HandlerContext(msgspec.Struct, frozen=True):
    """The collaborators of all handlers."""

    lifecycle: Lifecycle
    options: WebOptions
    metrics: Metrics
    observer: Observer
    request_cache: RequestCache

    def services(self) -> Services:
        """Return the services of a running process; raise Starting or Draining otherwise."""
        if self.lifecycle.phase is Phase.DRAINING:
            raise Draining("The service is stopping.", retry_after=5)
        if self.lifecycle.services is None:
            raise Starting("The service is starting.", retry_after=1)
        return self.lifecycle.services


Handler = Callable[[Request, HandlerContext, str], Awaitable[Response]]


class Route(msgspec.Struct, frozen=True):
    """A route. `name` is its name in metrics and logs, independent of the path."""

    name: str
    methods: tuple[str, ...]
    handler: Handler


async def _query(request: Request, context: HandlerContext, address: str) -> Response:
    return await answer_query(request, context.services(), context.options, address, context.request_cache)


def _ingest(form: Form) -> Handler:
    async def handle(request: Request, context: HandlerContext, _: str) -> Response:
        return await ingest(request, context.services(), context.options, context.observer, form)

    return handle


async def _health(_: Request, context: HandlerContext, __: str) -> Response:
    return status.health(context.lifecycle)


async def _ready(_: Request, context: HandlerContext, __: str) -> Response:
    return status.ready(context.lifecycle)


async def _live(_: Request, __: HandlerContext, ___: str) -> Response:
    return status.live()


async def _metrics(_: Request, context: HandlerContext, __: str) -> Response:
    return status.metrics(context.metrics)


async def _keys(request: Request, context: HandlerContext, _: str) -> Response:
    if request.method == "POST":
        return await keys.create_key(request, context.services(), context.options, context.observer)
    return await keys.list_keys(request, context.services())


async def _key(request: Request, context: HandlerContext, key_id: str) -> Response:
    return await keys.revoke_key(request, context.services(), context.observer, key_id)


async def _key_rotation(request: Request, context: HandlerContext, key_id: str) -> Response:
    return await keys.rotate_key(request, context.services(), context.options, context.observer, key_id)


async def _quarantine(request: Request, context: HandlerContext, _: str) -> Response:
    return await quarantine.list_quarantine(request, context.services())


async def _quarantined(request: Request, context: HandlerContext, item_id: str) -> Response:
    return await quarantine.show_quarantine(request, context.services(), item_id)


async def _replay(request: Request, context: HandlerContext, item_id: str) -> Response:
    return await quarantine.replay_quarantine(request, context.services(), context.observer, item_id)


def _listed(handle: Callable[[Request, Services], Awaitable[Response]]) -> Handler:
    async def answer(request: Request, context: HandlerContext, _: str) -> Response:
        return await handle(request, context.services())

    return answer


def _shown(handle: Callable[[Request, Services, str], Awaitable[Response]]) -> Handler:
    async def answer(request: Request, context: HandlerContext, address: str) -> Response:
        return await handle(request, context.services(), address)

    return answer


async def _ad_hoc(request: Request, context: HandlerContext, _: str) -> Response:
    return await ad_hoc.answer_ad_hoc(request, context.services(), context.options)


async def _ad_hoc_parse(request: Request, context: HandlerContext, _: str) -> Response:
    return await ad_hoc.parse_ad_hoc(request, context.services(), context.options)


def _definitions(kind: manage.Kind[Any], read: Callable[[Request, Services], Awaitable[Response]]) -> Handler:
    async def answer(request: Request, context: HandlerContext, _: str) -> Response:
        if request.method == "POST":
            return await _managing(kind, request, context).create()
        return await read(request, context.services())

    return answer


def _definition(kind: manage.Kind[Any], read: Callable[[Request, Services, str], Awaitable[Response]]) -> Handler:
    async def answer(request: Request, context: HandlerContext, address: str) -> Response:
        if request.method in ("PUT", "PATCH"):
            return await _managing(kind, request, context).change(address)
        if request.method == "DELETE":
            return await _managing(kind, request, context).delete(address)
        return await read(request, context.services(), address)

    return answer


def _versions(kind: manage.Kind[Any]) -> tuple[tuple[re.Pattern[bytes], Route], ...]:
    """Return the routes of the versions of one kind."""

    async def listed(request: Request, context: HandlerContext, address: str) -> Response:
        return await _managing(kind, request, context).list_versions(address)

    async def shown(request: Request, context: HandlerContext, address: str) -> Response:
        return await _managing(kind, request, context).show_version(address)

    async def restored(request: Request, context: HandlerContext, address: str) -> Response:
        return await _managing(kind, request, context).restore(address)

    collection = f"{kind.name}s".encode()
    return (
        (re.compile(manage.VERSIONS_ADDRESS % collection), Route("versions", READ, listed)),
        (re.compile(manage.VERSION_ADDRESS % collection), Route("versions", READ, shown)),
        (re.compile(manage.RESTORE_ADDRESS % collection), Route("versions", WRITE, restored)),
    )


def _managing(kind: manage.Kind[Any], request: Request, context: HandlerContext) -> "manage.Managing[Any]":
    return manage.Managing(kind, request, context.services(), context.options, context.observer)


async def _page(request: Request, _: HandlerContext, __: str) -> Response:
    return explorer.show_page(request)


async def _file(request: Request, _: HandlerContext, address: str) -> Response:
    return explorer.show_file(request, address)


async def _status(request: Request, context: HandlerContext, _: str) -> Response:
    return await status.show_status(request, context.services(), context.metrics)


async def _export(request: Request, context: HandlerContext, name: str) -> Response:
    if request.method == "POST":
        return await reimport_events(request, context.services(), context.options, context.observer, name)
    return await export_events(request, context.services(), name)


async def _backup(request: Request, context: HandlerContext, _: str) -> Response:
    return await back_up(request, context.services(), context.observer)


QUERIES = Route("query", QUERY, _query)
# The suffixes after `/logs`, `/api/logs` and `/api/events`, and the format of each.
FORMS: Mapping[bytes, Form] = {
    b"": Form.EVENTS,
    b"/json": Form.JSON,
    b"/vector": Form.VECTOR,
    b"/cloudflare": Form.LOGPUSH,
    b"/logplex": Form.SYSLOG,
    b"/syslogs": Form.SYSLOG,
    b"/syslog": Form.SYSLOG,
    b"/browser/reports": Form.REPORTS,
    b"/cloud-event": Form.CLOUD_EVENT,
    b"/typecasts": Form.TYPECASTS,
    b"/elixir/logger": Form.ERLANG,
    b"/erlang": Form.ERLANG,
    b"/erlang/logger": Form.ERLANG,
    b"/erlang/lager": Form.ERLANG,
    b"/vercel": Form.VERCEL,
    b"/zeit": Form.VERCEL,
    b"/netlify": Form.NETLIFY,
    b"/github": Form.GITHUB,
}
EVENTS: Mapping[bytes, Route] = {
    prefix + suffix: Route("ingest", WRITE, _ingest(form))
    for prefix in (b"/api/logs", b"/logs", b"/api/events")
    for suffix, form in FORMS.items()
}
EXACT: Mapping[bytes, Route] = {
    **EVENTS,
    b"/v1/logs": Route("otlp", WRITE, _ingest(Form.OTLP)),
    b"/v1/traces": Route("otlp", WRITE, _ingest(Form.OTLP_TRACES)),
    b"/v1/metrics": Route("otlp", WRITE, _ingest(Form.OTLP_METRICS)),
    b"/api/access-tokens": Route("keys", READ_OR_MAKE, _keys),
    b"/api/quarantine": Route("quarantine", READ, _quarantine),
    b"/api/backup": Route("backup", ("GET", "OPTIONS"), _backup),
    b"/api/openapi.json": Route("openapi", READ, _listed(catalog.api_document)),
    b"/api/openapi": Route("openapi", READ, _listed(catalog.api_document)),
    b"/docs": Route("docs", READ, _listed(catalog.api_page)),
    b"/api/endpoints": Route("endpoints", READ_OR_MAKE, _definitions(manage.ENDPOINTS, catalog.list_endpoints)),
    b"/api/sources": Route("sources", READ_OR_MAKE, _definitions(manage.SOURCES, catalog.list_sources)),
    b"/api/account": Route("account", READ, _listed(account.show_account)),
    b"/api/backends": Route("account", READ_OR_MAKE, _listed(account.backends)),
    b"/api/rules": Route("account", READ_OR_MAKE, _listed(account.rules)),
    b"/api/query": Route("ad_hoc", QUERY, _ad_hoc),
    b"/api/query/parse": Route("ad_hoc", QUERY, _ad_hoc_parse),
    b"/api/status": Route("status", READ, _status),
    b"/": Route("explorer", READ, _page),
    b"/health": Route("health", READ, _health),
    b"/ready": Route("ready", READ, _ready),
    b"/readyz": Route("ready", READ, _ready),
    b"/livez": Route("live", READ, _live),
    b"/metrics": Route("metrics", READ, _metrics),
}
# Paths with one parameter.
NAMED: tuple[tuple[re.Pattern[bytes], Route], ...] = (
    (re.compile(rb"(?:/api)?/endpoints/query/(?:name/)?([^/]+)"), QUERIES),
    (
        re.compile(rb"/api/endpoints/([^/]+)"),
        Route("endpoint", READ_OR_CHANGE, _definition(manage.ENDPOINTS, catalog.show_endpoint)),
    ),
    (re.compile(rb"/explorer/([^/]+/[^/]+)"), Route("explorer", READ, _file)),
    (re.compile(rb"/api/endpoints/([^/]+)/scope"), Route("scope", READ, _shown(sandbox.show_scope))),
    (re.compile(rb"/api/endpoints/([^/]+)/sql"), Route("sql", READ, _shown(sandbox.show_sql))),
    (
        re.compile(rb"/api/sources/([^/]+)"),
        Route("source", READ_OR_CHANGE, _definition(manage.SOURCES, catalog.show_source)),
    ),
    (re.compile(rb"/api/sources/([^/]+)/schema"), Route("schema", READ, _shown(catalog.show_schema))),
    (re.compile(rb"/api/sources/([^/]+)/recent"), Route("recent", READ, _shown(stream_events.recent_events))),
    (keys.KEY_ADDRESS, Route("key", ("DELETE", "OPTIONS"), _key)),
    (keys.ROTATE_ADDRESS, Route("key", WRITE, _key_rotation)),
    (EVENTS_ADDRESS, Route("export", READ_OR_MAKE, _export)),
    (quarantine.ITEM_ADDRESS, Route("quarantine", READ, _quarantined)),
    (quarantine.REPLAY_ADDRESS, Route("quarantine", WRITE, _replay)),
    *_versions(manage.ENDPOINTS),
    *_versions(manage.SOURCES),
)


_ADDRESSES = (*(path.decode() for path in EXACT), "/api/endpoints/query/logs.all", "/api/sources/{stream}/recent")


def found(request: Request) -> tuple[Route, str]:
    """Return the route of a path and the name in it. A trailing slash is ignored, as in Logflare."""
    path = request.path[:-1] if request.path.endswith(b"/") and len(request.path) > 1 else request.path
    route = EXACT.get(path)
    if route is not None:
        return route, ""
    for address, named in NAMED:
        match = address.fullmatch(path)
        if match is not None:
            return named, decoded(match[1], "path")
    asked = decoded(request.path, "path")
    raise UnknownRoute(f"There is nothing at {asked}.", hint=_nearest_address(asked))


def _nearest_address(address: str) -> str | None:
    """Return a hint with a known path that is spelled similarly."""
    close = closest(address.rstrip("/"), _ADDRESSES, 0.75)
    return f"Did you mean {close}?" if close else None


def application(lifecycle: Lifecycle, observer: Observer, options: WebOptions, metrics: Metrics) -> HttpApplication:
    """Return the ASGI application: it answers 503 until `lifecycle` is opened."""
    context = HandlerContext(lifecycle, options, metrics, observer, RequestCache())

    async def respond(request: Request) -> Response:
        route, address = found(request)
        request.route = route.name
        if request.method not in route.methods:
            request.methods = route.methods
            raise BadMethod(f"{request.method} is not taken here.", hint="There are: " + ", ".join(route.methods) + ".")
        if request.method == "OPTIONS":
            return preflight(", ".join(route.methods))
        return await route.handler(request, context, address)

    def respond_at_once(request: Request) -> Response | None:
        if lifecycle.phase is not Phase.READY or lifecycle.services is None:
            return None
        return answer_repeated(request, lifecycle.services, context.request_cache)

    send_budget = SendBudget(options.unread_bytes)
    return HttpApplication(respond, respond_at_once, observer, send_budget, logflare_errors=options.logflare_errors)
