"""The table of routes, and the small handlers that connect each route with the module that answers it."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from cordwood.errors import MethodNotAllowed, PathNotFound, find_closest_name
from cordwood.ingest.accept import BodyFormat
from cordwood.observe.metrics import Metrics
from cordwood.observe.observation import Observer
from cordwood.web import (
    agents,
    alerts,
    definition_requests,
    explorer,
    keys,
    loki_api,
    operations,
    quarantine,
    shippers,
    stream_events,
)
from cordwood.web.asgi import Receive, Request, Response, Scope, Send, percent_decode, preflight_response
from cordwood.web.describe import catalog
from cordwood.web.http_application import HttpApplication, SendMemoryBudget
from cordwood.web.ingest import ingest_events
from cordwood.web.operations import send_backup
from cordwood.web.query import (
    ParsedRequestCache,
    answer_ad_hoc_query,
    answer_query,
    answer_repeated_request,
    follow_query,
    show_ad_hoc_query_parameters,
    show_lql_as_sql,
    show_sandbox_sub_queries,
)
from cordwood.web.route import READ_METHODS, WRITE_METHODS, Handler, HandlerContext, HandlerDependencies, Route
from cordwood.web.services import Lifecycle, LifecyclePhase, Services, WebOptions
from cordwood.web.shippers import elastic
from cordwood.web.stream_events import STREAM_EVENTS_PATH_REGEX, export_events, reimport_events

QUERY_METHODS = ("GET", "HEAD", "POST", "OPTIONS")
FOLLOW_METHODS = ("GET", "POST", "OPTIONS")
READ_OR_CREATE_METHODS = ("GET", "HEAD", "POST", "OPTIONS")
READ_OR_CHANGE_METHODS = ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS")


async def _answer_query(context: HandlerContext) -> Response:
    return await answer_query(
        context.request,
        context.services(),
        context.dependencies.options,
        context.path_argument,
        context.dependencies.request_cache,
    )


def _ingest_handler(form: BodyFormat) -> Handler:
    async def handle(context: HandlerContext) -> Response:
        return await ingest_events(
            context.request, context.services(), context.dependencies.options, context.dependencies.observer, form
        )

    return handle


async def _follow_query(context: HandlerContext) -> Response:
    return await follow_query(context.request, context.services(), context.dependencies.options, context.path_argument)


async def _answer_health(context: HandlerContext) -> Response:
    return operations.show_health(context.dependencies.lifecycle)


async def _answer_readiness(context: HandlerContext) -> Response:
    return operations.show_readiness(context.dependencies.lifecycle)


async def _answer_liveness(_: HandlerContext) -> Response:
    return operations.show_liveness()


async def _answer_metrics(context: HandlerContext) -> Response:
    return operations.show_metrics(context.dependencies.metrics)


async def _list_or_create_keys(context: HandlerContext) -> Response:
    if context.request.method == "POST":
        return await keys.create_key(
            context.request, context.services(), context.dependencies.options, context.dependencies.observer
        )
    return await keys.list_keys(context.request, context.services())


async def _revoke_key(context: HandlerContext) -> Response:
    return await keys.revoke_key(
        context.request, context.services(), context.dependencies.observer, context.path_argument
    )


async def _rotate_key(context: HandlerContext) -> Response:
    return await keys.rotate_key(
        context.request,
        context.services(),
        context.dependencies.options,
        context.dependencies.observer,
        context.path_argument,
    )


async def _list_quarantine(context: HandlerContext) -> Response:
    return await quarantine.list_quarantine(context.request, context.services())


async def _show_quarantine_item(context: HandlerContext) -> Response:
    return await quarantine.show_item(context.request, context.services(), context.path_argument)


async def _replay_item(context: HandlerContext) -> Response:
    return await quarantine.replay_item(
        context.request, context.services(), context.dependencies.observer, context.path_argument
    )


async def _list_or_create_silences(context: HandlerContext) -> Response:
    if context.request.method == "POST":
        shared = context.dependencies
        return await alerts.create_silence(context.request, context.services(), shared.options, shared.observer)
    return await alerts.list_silences(context.request, context.services())


async def _delete_silence(context: HandlerContext) -> Response:
    return await alerts.delete_silence(
        context.request, context.services(), context.dependencies.observer, context.path_argument
    )


async def _send_test_notification(context: HandlerContext) -> Response:
    return await alerts.send_test_notification(
        context.request, context.services(), context.dependencies.observer, context.path_argument
    )


def _collection_handler(handle: Callable[[Request, Services], Awaitable[Response]]) -> Handler:
    async def answer(context: HandlerContext) -> Response:
        return await handle(context.request, context.services())

    return answer


def _item_handler(handle: Callable[[Request, Services, str], Awaitable[Response]]) -> Handler:
    async def answer(context: HandlerContext) -> Response:
        return await handle(context.request, context.services(), context.path_argument)

    return answer


async def _answer_ad_hoc_query(context: HandlerContext) -> Response:
    return await answer_ad_hoc_query(context.request, context.services(), context.dependencies.options)


async def _show_ad_hoc_query_parameters(context: HandlerContext) -> Response:
    return await show_ad_hoc_query_parameters(context.request, context.services(), context.dependencies.options)


def _definition_collection_handler(
    kind: definition_requests.DefinitionKind[Any], read: Callable[[Request, Services], Awaitable[Response]]
) -> Handler:
    async def answer(context: HandlerContext) -> Response:
        if context.request.method == "POST":
            return await _definition_request(kind, context).create()
        return await read(context.request, context.services())

    return answer


def _definition_item_handler(
    kind: definition_requests.DefinitionKind[Any], read: Callable[[Request, Services, str], Awaitable[Response]]
) -> Handler:
    async def answer(context: HandlerContext) -> Response:
        if context.request.method in ("PUT", "PATCH"):
            return await _definition_request(kind, context).change(context.path_argument)
        if context.request.method == "DELETE":
            return await _definition_request(kind, context).delete(context.path_argument)
        return await read(context.request, context.services(), context.path_argument)

    return answer


def _definition_text_and_version_routes(
    kind: definition_requests.DefinitionKind[Any],
) -> tuple[tuple[re.Pattern[bytes], Route], ...]:
    """Return the routes for texts and versions of definitions: of endpoints, or of streams, depending on `kind`."""

    async def show_text(context: HandlerContext) -> Response:
        return await _definition_request(kind, context).show_text(context.path_argument)

    async def list_versions(context: HandlerContext) -> Response:
        return await _definition_request(kind, context).list_versions(context.path_argument)

    async def show_version(context: HandlerContext) -> Response:
        return await _definition_request(kind, context).show_version(context.path_argument)

    async def restore_version(context: HandlerContext) -> Response:
        return await _definition_request(kind, context).restore_version(context.path_argument)

    collection = f"{kind.name}s".encode()
    return (
        (
            re.compile(definition_requests.DEFINITION_TEXT_PATH_TEMPLATE % collection),
            Route("text", READ_METHODS, show_text),
        ),
        (
            re.compile(definition_requests.VERSIONS_PATH_TEMPLATE % collection),
            Route("versions", READ_METHODS, list_versions),
        ),
        (
            re.compile(definition_requests.VERSION_PATH_TEMPLATE % collection),
            Route("versions", READ_METHODS, show_version),
        ),
        (
            re.compile(definition_requests.RESTORE_PATH_TEMPLATE % collection),
            Route("versions", WRITE_METHODS, restore_version),
        ),
    )


def _definition_request(
    kind: definition_requests.DefinitionKind[Any], context: HandlerContext
) -> "definition_requests.DefinitionRequest[Any]":
    return definition_requests.DefinitionRequest(
        kind, context.request, context.services(), context.dependencies.options, context.dependencies.observer
    )


async def _show_explorer(context: HandlerContext) -> Response:
    if elastic.is_elastic_client(context.request):
        context.request.route_name = "elastic"
        return await elastic.show_cluster(context)
    return explorer.show_explorer(context.request)


async def _show_sign_in(context: HandlerContext) -> Response:
    if not context.dependencies.options.offers_sign_in:
        raise PathNotFound("There is nothing at /sign-in: only a demo has it.")
    return explorer.show_sign_in(context.request)


async def _show_explorer_file(context: HandlerContext) -> Response:
    return explorer.show_file(context.request, context.path_argument)


async def _show_status(context: HandlerContext) -> Response:
    return await operations.show_status(context.request, context.services(), context.dependencies.metrics)


async def _export_or_reimport_events(context: HandlerContext) -> Response:
    if context.request.method == "POST":
        return await reimport_events(
            context.request,
            context.services(),
            context.dependencies.options,
            context.dependencies.observer,
            context.path_argument,
        )
    return await export_events(context.request, context.services(), context.path_argument)


async def _send_backup(context: HandlerContext) -> Response:
    return await send_backup(context.request, context.services(), context.dependencies.observer)


QUERY_ROUTE = Route("query", QUERY_METHODS, _answer_query)
# The paths `/logs`, `/api/logs` and `/api/events` exist with each of these suffixes, which tells the form of the body.
BODY_FORMATS_BY_PATH_SUFFIX: Mapping[bytes, BodyFormat] = {
    b"": BodyFormat.EVENTS,
    b"/json": BodyFormat.JSON,
    b"/vector": BodyFormat.VECTOR,
    b"/cloudflare": BodyFormat.LOGPUSH,
    b"/logplex": BodyFormat.SYSLOG,
    b"/syslogs": BodyFormat.SYSLOG,
    b"/syslog": BodyFormat.SYSLOG,
    b"/browser/reports": BodyFormat.BROWSER_REPORTS,
    b"/cloud-event": BodyFormat.CLOUD_EVENT,
    b"/typecasts": BodyFormat.TYPECASTS,
    b"/elixir/logger": BodyFormat.ERLANG,
    b"/erlang": BodyFormat.ERLANG,
    b"/erlang/logger": BodyFormat.ERLANG,
    b"/erlang/lager": BodyFormat.ERLANG,
    b"/vercel": BodyFormat.VERCEL,
    b"/zeit": BodyFormat.VERCEL,
    b"/netlify": BodyFormat.NETLIFY,
    b"/github": BodyFormat.GITHUB,
}
EVENT_ROUTES: Mapping[bytes, Route] = {
    prefix + suffix: Route("ingest", WRITE_METHODS, _ingest_handler(form))
    for prefix in (b"/api/logs", b"/logs", b"/api/events")
    for suffix, form in BODY_FORMATS_BY_PATH_SUFFIX.items()
}
ROUTES_BY_PATH: Mapping[bytes, Route] = {
    **EVENT_ROUTES,
    **shippers.ROUTES_BY_PATH,
    **loki_api.ROUTES_BY_PATH,
    b"/v1/logs": Route("otlp", WRITE_METHODS, _ingest_handler(BodyFormat.OTLP)),
    b"/v1/traces": Route("otlp", WRITE_METHODS, _ingest_handler(BodyFormat.OTLP_TRACES)),
    b"/v1/metrics": Route("otlp", WRITE_METHODS, _ingest_handler(BodyFormat.OTLP_METRICS)),
    b"/api/access-tokens": Route("keys", READ_OR_CREATE_METHODS, _list_or_create_keys),
    b"/api/quarantine": Route("quarantine", READ_METHODS, _list_quarantine),
    b"/api/backup": Route("backup", ("GET", "OPTIONS"), _send_backup),
    b"/api/openapi.json": Route("openapi", READ_METHODS, _collection_handler(catalog.show_openapi_document)),
    b"/api/openapi": Route("openapi", READ_METHODS, _collection_handler(catalog.show_openapi_document)),
    b"/api/client.py": Route("client", READ_METHODS, _collection_handler(catalog.show_api_client)),
    b"/docs": Route("docs", READ_METHODS, _collection_handler(catalog.show_api_page)),
    b"/api/endpoints": Route(
        "endpoints",
        READ_OR_CREATE_METHODS,
        _definition_collection_handler(definition_requests.ENDPOINT_KIND, catalog.list_endpoints),
    ),
    b"/api/sources": Route(
        "sources",
        READ_OR_CREATE_METHODS,
        _definition_collection_handler(definition_requests.SOURCE_KIND, catalog.list_sources),
    ),
    b"/api/alerts": Route("alerts", READ_METHODS, _collection_handler(alerts.list_alerts)),
    b"/api/alerts/history": Route("alerts", READ_METHODS, _collection_handler(alerts.list_alert_history)),
    b"/api/alerts/silences": Route("silences", READ_OR_CREATE_METHODS, _list_or_create_silences),
    b"/api/key": Route("key_view", READ_METHODS, _collection_handler(agents.show_key_permissions)),
    b"/mcp": Route("mcp", WRITE_METHODS, agents.answer_mcp),
    b"/api/account": Route("account", READ_METHODS, _collection_handler(catalog.show_account)),
    b"/api/backends": Route("account", READ_OR_CREATE_METHODS, _collection_handler(catalog.list_backends)),
    b"/api/rules": Route("account", READ_OR_CREATE_METHODS, _collection_handler(catalog.list_rules)),
    b"/api/queries": Route("queries", READ_METHODS, _collection_handler(operations.list_queries)),
    b"/api/query": Route("ad_hoc", QUERY_METHODS, _answer_ad_hoc_query),
    b"/api/query/parse": Route("ad_hoc", QUERY_METHODS, _show_ad_hoc_query_parameters),
    b"/api/status": Route("status", READ_METHODS, _show_status),
    b"/": Route("explorer", READ_METHODS, _show_explorer),
    b"/sign-in": Route("explorer", READ_METHODS, _show_sign_in),
    b"/health": Route("health", READ_METHODS, _answer_health),
    b"/ready": Route("ready", READ_METHODS, _answer_readiness),
    b"/readyz": Route("ready", READ_METHODS, _answer_readiness),
    b"/livez": Route("live", READ_METHODS, _answer_liveness),
    b"/metrics": Route("metrics", READ_METHODS, _answer_metrics),
}
# Routes with a variable part in their path, which the handler gets as `path_argument`.
PATTERN_ROUTES: tuple[tuple[re.Pattern[bytes], Route], ...] = (
    (re.compile(rb"(?:/api)?/endpoints/query/(?:name/)?([^/]+)"), QUERY_ROUTE),
    (re.compile(rb"/api/endpoints/tail/([^/]+)"), Route("tail", FOLLOW_METHODS, _follow_query)),
    (
        re.compile(rb"/api/endpoints/([^/]+)"),
        Route(
            "endpoint",
            READ_OR_CHANGE_METHODS,
            _definition_item_handler(definition_requests.ENDPOINT_KIND, catalog.show_endpoint),
        ),
    ),
    (re.compile(rb"/explorer/([^/]+/[^/]+)"), Route("explorer", READ_METHODS, _show_explorer_file)),
    (
        re.compile(rb"/api/endpoints/([^/]+)/scope"),
        Route("scope", READ_METHODS, _item_handler(show_sandbox_sub_queries)),
    ),
    (re.compile(rb"/api/endpoints/([^/]+)/sql"), Route("sql", READ_METHODS, _item_handler(show_lql_as_sql))),
    (
        re.compile(rb"/api/sources/([^/]+)"),
        Route(
            "source",
            READ_OR_CHANGE_METHODS,
            _definition_item_handler(definition_requests.SOURCE_KIND, catalog.show_logflare_source),
        ),
    ),
    (
        re.compile(rb"/api/sources/([^/]+)/schema"),
        Route("schema", READ_METHODS, _item_handler(catalog.show_source_schema)),
    ),
    (
        re.compile(rb"/api/sources/([^/]+)/recent"),
        Route("recent", READ_METHODS, _item_handler(stream_events.show_recent_events)),
    ),
    (keys.KEY_PATH_REGEX, Route("key", ("DELETE", "OPTIONS"), _revoke_key)),
    (keys.KEY_ROTATION_PATH_REGEX, Route("key", WRITE_METHODS, _rotate_key)),
    (STREAM_EVENTS_PATH_REGEX, Route("export", READ_OR_CREATE_METHODS, _export_or_reimport_events)),
    (alerts.ALERT_PREVIEW_PATH_REGEX, Route("alert", READ_METHODS, _item_handler(alerts.preview_alert))),
    (alerts.TARGET_TEST_PATH_REGEX, Route("alert_target", WRITE_METHODS, _send_test_notification)),
    (alerts.SILENCE_PATH_REGEX, Route("silence", ("DELETE", "OPTIONS"), _delete_silence)),
    (quarantine.QUARANTINE_ITEM_PATH_REGEX, Route("quarantine", READ_METHODS, _show_quarantine_item)),
    (quarantine.REPLAY_PATH_REGEX, Route("quarantine", WRITE_METHODS, _replay_item)),
    *_definition_text_and_version_routes(definition_requests.ENDPOINT_KIND),
    *_definition_text_and_version_routes(definition_requests.SOURCE_KIND),
    *shippers.PATTERN_ROUTES,
    *loki_api.PATTERN_ROUTES,
)


_KNOWN_PATHS = (
    *(path.decode() for path in ROUTES_BY_PATH),
    "/api/endpoints/query/logs.all",
    "/api/sources/{stream}/recent",
)


def find_route(request: Request) -> tuple[Route, str]:
    """Return the route for the request's path, and the variable part of the path; raise PathNotFound if there is none.

    As in Logflare, a slash at the end of the path is ignored.
    """
    path = request.path[:-1] if request.path.endswith(b"/") and len(request.path) > 1 else request.path
    route = ROUTES_BY_PATH.get(path)
    if route is not None:
        return route, ""
    for address, named in PATTERN_ROUTES:
        match = address.fullmatch(path)
        if match is not None:
            return named, percent_decode(match[1], "path")
    decoded_path = percent_decode(request.path, "path")
    raise PathNotFound(f"There is nothing at {decoded_path}.", hint=_nearest_path_hint(decoded_path))


def _nearest_path_hint(address: str) -> str | None:
    """Return a hint that names the known path most similar to `address`, or None if no known path is similar."""
    close = find_closest_name(address.rstrip("/"), _KNOWN_PATHS, 0.75)
    return f"Did you mean {close}?" if close else None


def create_application(
    lifecycle: Lifecycle, observer: Observer, options: WebOptions, metrics: Metrics
) -> HttpApplication:
    """Create the ASGI application. Until `lifecycle` is ready, most requests are answered with status 503."""

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        await made(scope, receive, send)

    shared = HandlerDependencies(lifecycle, options, metrics, observer, ParsedRequestCache(), dispatch)

    async def respond(request: Request) -> Response:
        route, address = find_route(request)
        request.route_name = route.name
        if request.method not in route.methods:
            request.allowed_methods = route.methods
            raise MethodNotAllowed(
                f"{request.method} is not taken here.", hint="There are: " + ", ".join(route.methods) + "."
            )
        if request.method == "OPTIONS":
            return preflight_response(", ".join(route.methods))
        return await route.handler(HandlerContext(request, address, shared))

    def respond_from_cache(request: Request) -> Response | None:
        if lifecycle.phase is not LifecyclePhase.READY or lifecycle.services is None:
            return None
        return answer_repeated_request(request, lifecycle.services, shared.request_cache)

    send_budget = SendMemoryBudget(options.max_unsent_bytes)
    made = HttpApplication(
        respond, respond_from_cache, observer, send_budget, logflare_errors=options.sends_logflare_errors
    )
    return made
