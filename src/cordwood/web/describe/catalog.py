"""Endpoints, streams and the account in Logflare's JSON format; and the API as a document, a page and a client."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cordwood.access import may_query
from cordwood.catalog.alert_table import table_of_alert
from cordwood.catalog.catalog import Definitions
from cordwood.catalog.endpoint_fields import LANGUAGES
from cordwood.catalog.ids import numeric_id
from cordwood.catalog.stream_fields import fields_of, stream_revision
from cordwood.engines.engine import StreamFacts
from cordwood.errors import BadParameter, Fault, NotOffered
from cordwood.model.endpoint import Endpoint, Parameter
from cordwood.model.key import Caller
from cordwood.model.shape import Shape
from cordwood.model.stream import Stream
from cordwood.web.asgi import Header, Request, Response
from cordwood.web.catalog_lookup import existing_endpoint, existing_stream
from cordwood.web.credentials import presented, private_caller
from cordwood.web.describe.client import client_of
from cordwood.web.describe.openapi import Described
from cordwood.web.describe.openapi import document as document_of
from cordwood.web.describe.page import page
from cordwood.web.describe.schemas import flat_schema, stream_schema
from cordwood.web.explorer import PAGE_GUARDS, file_address
from cordwood.web.lifecycle import Services
from cordwood.web.percent_encoding import pairs
from cordwood.web.responses import NO_STORE, no_store_json

# One client at a time: with a thousand endpoints, one that is not cached takes a second of a processor.
_GENERATING = asyncio.Lock()

# The user object that Logflare returns. There is one account, and nothing is limited by a plan.
_ACCOUNT: Final = {
    "name": "default",
    "email": None,
    "email_preferred": None,
    "company": None,
    "phone": None,
    "image": None,
    "provider": None,
    "admin": True,
    "api_quota": None,
    "bigquery_project_id": None,
    "bigquery_dataset_id": None,
    "bigquery_dataset_location": None,
}
_INSTEAD_OF: Final = {
    "backends": "All streams are stored by the engine in the setting `engine`; have the sender send events elsewhere as well.",
    "rules": "Send an event to every stream that should have it; filter on reading with an endpoint.",
}


async def api_document(request: Request, services: Services) -> Response:
    """Return the OpenAPI document. It is public: it has the parameters of endpoints, not their queries.

    Names of columns that were seen in events are only shown to callers whose key may query the endpoint.
    """
    return no_store_json(await _document(services, _known(request, services)))


async def api_client(request: Request, services: Services) -> Response:
    """Return a client in Python, generated from the OpenAPI document.

    It is public as the document is. With a key it has only the endpoints that the key may query.
    """
    caller = _known(request, services)
    endpoints = [
        one for one in services.catalog.endpoints() if caller is None or not one.auth or may_query(caller, one)
    ]
    async with _GENERATING:
        tag, text = await asyncio.to_thread(_client_of, endpoints)
    headers: list[Header] = [
        NO_STORE,
        (b"content-type", b"text/x-python; charset=utf-8"),
        (b"content-disposition", b'attachment; filename="cordwood_client.py"'),
        (b"x-content-type-options", b"nosniff"),
        (b"etag", f'"{tag}"'.encode()),
    ]
    return Response(200, headers, text)


def _client_of(endpoints: Sequence[Endpoint]) -> tuple[str, bytes]:
    """Return the client of these endpoints, whose description needs neither their columns nor the streams."""
    return client_of(document_of([Described(endpoint, ()) for endpoint in endpoints], ()))


async def api_page(request: Request, services: Services) -> Response:
    """Return the OpenAPI document as an HTML page, whose URLs are relative to the address without a slash at its end."""
    if request.path.endswith(b"/"):
        return Response(308, [(b"location", b"../docs")])
    headers: list[Header] = [
        *PAGE_GUARDS,
        (b"content-type", b"text/html; charset=utf-8"),
        (b"cache-control", b"no-cache"),
    ]
    document = await _document(services, _known(request, services))
    text = await asyncio.to_thread(page, document, file_address)
    return Response(200, headers, text.encode())


async def _document(services: Services, caller: Caller | None) -> dict[str, Any]:
    endpoints = services.catalog.endpoints()
    columns = await asyncio.gather(
        *(
            services.answers.columns(endpoint, caller if caller is not None and may_query(caller, endpoint) else None)
            for endpoint in endpoints
        )
    )
    described = [Described(endpoint, of) for endpoint, of in zip(endpoints, columns, strict=True)]
    return document_of(described, services.catalog.streams())


def _known(request: Request, services: Services) -> Caller | None:
    """Return the caller of the request; None without a valid key, since the document is public."""
    try:
        return services.access.who(presented(request, pairs(request.query_string, "query string")))
    except Fault:
        return None


async def list_endpoints(request: Request, services: Services) -> Response:
    private_caller(request, services)
    origins = _origins(services.endpoint_definitions)
    return no_store_json([told_endpoint(one, origins.get(one.name)) for one in services.catalog.endpoints()])


async def show_endpoint(request: Request, services: Services, address: str) -> Response:
    private_caller(request, services)
    found = existing_endpoint(services, address)
    origin = _origins(services.endpoint_definitions).get(found.name)
    return no_store_json(told_endpoint(found, origin), 200, (b"etag", f'"{found.revision}"'.encode()))


async def list_sources(request: Request, services: Services) -> Response:
    private_caller(request, services)
    facts = await services.answers.facts()
    origins = _origins(services.stream_definitions)
    streams = services.catalog.streams()
    return no_store_json([told_source(one, origins.get(one.name), facts.get(one.name)) for one in streams])


async def show_source(request: Request, services: Services, address: str) -> Response:
    private_caller(request, services)
    stream = existing_stream(services, address)
    facts = await services.answers.facts()
    told = told_source(stream, _origins(services.stream_definitions).get(stream.name), facts.get(stream.name))
    return no_store_json(told, 200, (b"etag", f'"{told["revision"]}"'.encode()))


async def show_schema(request: Request, services: Services, address: str) -> Response:
    """Return the JSON Schema of a stream's events; with `?variant=dot`, a flat map of paths to types."""
    caller, query = private_caller(request, services)
    stream = existing_stream(services, address)
    shape = services.answers.shapes_for(caller).get(stream.name, Shape())
    variant = query.get("variant")
    if variant not in (None, "", "dot"):
        raise BadParameter(
            f"There is no variant {variant!r} of a schema.", hint="Use variant=dot, or omit it for JSON Schema."
        )
    if variant == "dot":
        return no_store_json(flat_schema(shape))
    return no_store_json(stream_schema(stream, shape, f"/api/sources/{stream.id}/schema"))


def _origins(definitions: Definitions[Endpoint] | Definitions[Stream] | None) -> Mapping[str, str]:
    return definitions.origins() if definitions is not None else {}


def told_endpoint(one: Endpoint, origin: str | None) -> dict[str, Any]:
    """Return the JSON fields of an endpoint."""
    return {
        "id": numeric_id(one.id),
        "token": str(one.id),
        "name": one.name,
        "description": one.description,
        "query": one.sql,
        "language": LANGUAGES[one.dialect],
        "sandboxable": one.sandbox,
        "cache_duration_seconds": _plain(one.cache_seconds),
        "proactive_requerying_seconds": _plain(one.warm_seconds),
        "max_limit": one.max_rows,
        "enable_auth": one.auth,
        "redact_pii": one.redact_pii,
        "redact_mode": one.redact_mode,
        "timeout_seconds": _plain(one.timeout_seconds),
        "zone": one.zone,
        "revision": one.revision,
        "origin": origin,
        "parameters": [_parameter(parameter) for parameter in one.parameters],
        "alert": None if one.alert is None else table_of_alert(one.alert),
        # Other fields of Logflare's objects, which are the same for every endpoint.
        "labels": "",
        "enable_dynamic_reservation": False,
        "backend_id": None,
    }


def _parameter(one: Parameter) -> dict[str, Any]:
    return {
        "name": one.name,
        "type": one.type,
        "kind": one.kind,
        "required": one.required,
        "default": one.default,
        "one_of": list(one.one_of),
        "description": one.description,
        "example": one.example,
    }


def _plain(number: float | None) -> float | None:
    """Return an integer where possible, because Logflare's clients expect one."""
    return int(number) if number is not None and number == int(number) else number


def told_source(one: Stream, origin: str | None, facts: StreamFacts | None = None) -> dict[str, Any]:
    """Return the JSON fields of a stream, with counts of its events."""
    return {
        "id": numeric_id(one.id),
        "token": str(one.id),
        **fields_of(one),
        "revision": stream_revision(one),
        "origin": origin,
        "events": facts.events if facts else 0,
        "oldest": facts.oldest_us if facts else None,
        "newest": facts.newest_us if facts else None,
    }


async def show_account(request: Request, services: Services) -> Response:
    private_caller(request, services)
    return no_store_json(_ACCOUNT)


async def list_backends(request: Request, services: Services) -> Response:
    return _none_of(request, services, "backends")


async def list_rules(request: Request, services: Services) -> Response:
    return _none_of(request, services, "rules")


def _none_of(request: Request, services: Services, what: str) -> Response:
    """Return an empty list; raise NotOffered for a request to create one."""
    private_caller(request, services)
    if request.method == "POST":
        raise NotOffered(f"cordwood has no {what}, so none can be created.", hint=_INSTEAD_OF[what])
    return no_store_json([])
