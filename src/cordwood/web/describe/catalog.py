"""Routes that show endpoints, streams and the account as Logflare does, and the API description in three forms.

These forms are an OpenAPI document, an HTML page, and a client in Python.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cordwood.access import may_query
from cordwood.catalog.alert_table import alert_to_toml_table
from cordwood.catalog.catalog import DefinitionEditor
from cordwood.catalog.definition_fields import LOGFLARE_LANGUAGE_BY_DIALECT, stream_revision, stream_to_fields
from cordwood.catalog.toml_document import numeric_id
from cordwood.engines.engine import StreamStats
from cordwood.errors import BadParameter, Fault, FeatureUnavailable
from cordwood.model.definitions import Endpoint, Parameter, Stream
from cordwood.model.event import EventShape
from cordwood.model.key import Caller
from cordwood.web.asgi import NO_STORE_HEADER, Header, Request, Response, no_store_json_response, parse_urlencoded
from cordwood.web.credentials import presented_key, require_private_caller
from cordwood.web.describe.client import generate_client
from cordwood.web.describe.openapi import EndpointWithColumns, stream_schema, type_names_by_dotted_path
from cordwood.web.describe.openapi import openapi_document as document_of
from cordwood.web.describe.page import page_html
from cordwood.web.explorer import PAGE_SECURITY_HEADERS, static_file_url
from cordwood.web.services import Services, require_endpoint, require_stream

# Clients in Python are generated one at a time, because a client for a thousand endpoints takes a second of CPU time.
_CLIENT_GENERATION_LOCK = asyncio.Lock()

# The account in Logflare's format. cordwood has only one account, without a quota.
_LOGFLARE_ACCOUNT_JSON: Final = {
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
_HINT_BY_UNSUPPORTED_COLLECTION: Final = {
    "backends": "All streams are stored by the engine in the setting `engine`; have the sender send events elsewhere as well.",
    "rules": "Send an event to every stream that should have it; filter on reading with an endpoint.",
}


async def show_openapi_document(request: Request, services: Services) -> Response:
    """Return the OpenAPI document. It is public, because it has the parameters of endpoints but not their queries.

    Some names of columns come from events. Such names are shown only if the caller's key may query the endpoint.
    """
    return no_store_json_response(await _create_openapi_document(services, _caller_or_none(request, services)))


async def show_api_client(request: Request, services: Services) -> Response:
    """Return a client in Python, which is generated from the OpenAPI document.

    Like the document, the client is public. If a key is sent, the client has only the endpoints that this key may
    query.
    """
    caller = _caller_or_none(request, services)
    endpoints = [
        one for one in services.catalog.endpoints() if caller is None or not one.requires_key or may_query(caller, one)
    ]
    async with _CLIENT_GENERATION_LOCK:
        tag, text = await asyncio.to_thread(_generate_client, endpoints)
    headers: list[Header] = [
        NO_STORE_HEADER,
        (b"content-type", b"text/x-python; charset=utf-8"),
        (b"content-disposition", b'attachment; filename="cordwood_client.py"'),
        (b"x-content-type-options", b"nosniff"),
        (b"etag", f'"{tag}"'.encode()),
    ]
    return Response(200, headers, text)


def _generate_client(endpoints: Sequence[Endpoint]) -> tuple[str, bytes]:
    """Generate the client for these endpoints, without columns and streams, which a client does not need."""
    return generate_client(document_of([EndpointWithColumns(endpoint, ()) for endpoint in endpoints], ()))


async def show_api_page(request: Request, services: Services) -> Response:
    """Return the OpenAPI document as an HTML page. If the address ends with a slash, redirect to the one without it.

    The relative URLs in the page are correct only for the address without the slash.
    """
    if request.path.endswith(b"/"):
        return Response(308, [(b"location", b"../docs")])
    headers: list[Header] = [
        *PAGE_SECURITY_HEADERS,
        (b"content-type", b"text/html; charset=utf-8"),
        (b"cache-control", b"no-cache"),
    ]
    document = await _create_openapi_document(services, _caller_or_none(request, services))
    text = await asyncio.to_thread(page_html, document, static_file_url)
    return Response(200, headers, text.encode())


async def _create_openapi_document(services: Services, caller: Caller | None) -> dict[str, Any]:
    endpoints = services.catalog.endpoints()
    columns = await asyncio.gather(
        *(
            services.query_service.endpoint_columns(
                endpoint, caller if caller is not None and may_query(caller, endpoint) else None
            )
            for endpoint in endpoints
        )
    )
    described = [EndpointWithColumns(endpoint, of) for endpoint, of in zip(endpoints, columns, strict=True)]
    return document_of(described, services.catalog.streams())


def _caller_or_none(request: Request, services: Services) -> Caller | None:
    """Return the caller of the request, or None if it has no valid key, because API descriptions are public."""
    try:
        return services.authenticator.authenticate(
            presented_key(request, parse_urlencoded(request.query_string, "query string"))
        )
    except Fault:
        return None


async def list_endpoints(request: Request, services: Services) -> Response:
    require_private_caller(request, services)
    origins = _definition_origin_by_name(services.endpoint_definitions)
    return no_store_json_response([endpoint_json(one, origins.get(one.name)) for one in services.catalog.endpoints()])


async def show_endpoint(request: Request, services: Services, address: str) -> Response:
    require_private_caller(request, services)
    found = require_endpoint(services, address)
    origin = _definition_origin_by_name(services.endpoint_definitions).get(found.name)
    return no_store_json_response(endpoint_json(found, origin), 200, (b"etag", f'"{found.revision}"'.encode()))


async def list_sources(request: Request, services: Services) -> Response:
    require_private_caller(request, services)
    facts = await services.query_service.stream_stats()
    origins = _definition_origin_by_name(services.stream_definitions)
    streams = services.catalog.streams()
    return no_store_json_response([stream_json(one, origins.get(one.name), facts.get(one.name)) for one in streams])


async def show_logflare_source(request: Request, services: Services, address: str) -> Response:
    require_private_caller(request, services)
    stream = require_stream(services, address)
    facts = await services.query_service.stream_stats()
    fields = stream_json(
        stream, _definition_origin_by_name(services.stream_definitions).get(stream.name), facts.get(stream.name)
    )
    return no_store_json_response(fields, 200, (b"etag", f'"{fields["revision"]}"'.encode()))


async def show_source_schema(request: Request, services: Services, address: str) -> Response:
    """Return the JSON Schema of a stream's events or, with `?variant=dot`, an object from dotted paths to types."""
    caller, query = require_private_caller(request, services)
    stream = require_stream(services, address)
    shape = services.query_service.shapes_visible_to_caller(caller).get(stream.name, EventShape())
    variant = query.get("variant")
    if variant not in (None, "", "dot"):
        raise BadParameter(
            f"There is no variant {variant!r} of a schema.", hint="Use variant=dot, or omit it for JSON Schema."
        )
    if variant == "dot":
        return no_store_json_response(type_names_by_dotted_path(shape))
    return no_store_json_response(stream_schema(stream, shape, f"/api/sources/{stream.id}/schema"))


def _definition_origin_by_name(
    definitions: DefinitionEditor[Endpoint] | DefinitionEditor[Stream] | None,
) -> Mapping[str, str]:
    return definitions.origins_by_name() if definitions is not None else {}


def endpoint_json(endpoint: Endpoint, origin: str | None) -> dict[str, Any]:
    """Return an endpoint as JSON fields in Logflare's format."""
    return {
        "id": numeric_id(endpoint.id),
        "token": str(endpoint.id),
        "name": endpoint.name,
        "description": endpoint.description,
        "query": endpoint.sql,
        "language": LOGFLARE_LANGUAGE_BY_DIALECT[endpoint.dialect],
        "sandboxable": endpoint.accepts_sandbox_queries,
        "cache_duration_seconds": _int_if_whole(endpoint.cache_seconds),
        "proactive_requerying_seconds": _int_if_whole(endpoint.warm_seconds),
        "max_limit": endpoint.max_rows,
        "enable_auth": endpoint.requires_key,
        "redact_pii": endpoint.redact_pii,
        "redact_mode": endpoint.redact_mode,
        "timeout_seconds": _int_if_whole(endpoint.timeout_seconds),
        "zone": endpoint.time_zone,
        "revision": endpoint.revision,
        "origin": origin,
        "parameters": [_parameter_json(parameter) for parameter in endpoint.parameters],
        "alert": None if endpoint.alert is None else alert_to_toml_table(endpoint.alert),
        # Fields that Logflare's clients expect, but that are constant in cordwood.
        "labels": "",
        "enable_dynamic_reservation": False,
        "backend_id": None,
    }


def _parameter_json(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "type": parameter.type,
        "kind": parameter.kind,
        "required": parameter.required,
        "default": parameter.default,
        "one_of": list(parameter.one_of),
        "description": parameter.description,
        "example": parameter.example,
    }


def _int_if_whole(number: float | None) -> float | None:
    """Convert a whole number to an int, because Logflare's clients expect an integer."""
    return int(number) if number is not None and number == int(number) else number


def stream_json(stream: Stream, origin: str | None, facts: StreamStats | None = None) -> dict[str, Any]:
    """Return a stream as JSON fields in Logflare's format, with the number and the times of its events."""
    return {
        "id": numeric_id(stream.id),
        "token": str(stream.id),
        **stream_to_fields(stream),
        "revision": stream_revision(stream),
        "origin": origin,
        "events": facts.events if facts else 0,
        "oldest": facts.oldest_us if facts else None,
        "newest": facts.newest_us if facts else None,
    }


async def show_account(request: Request, services: Services) -> Response:
    require_private_caller(request, services)
    return no_store_json_response(_LOGFLARE_ACCOUNT_JSON)


async def list_backends(request: Request, services: Services) -> Response:
    return _empty_collection(request, services, "backends")


async def list_rules(request: Request, services: Services) -> Response:
    return _empty_collection(request, services, "rules")


def _empty_collection(request: Request, services: Services, collection: str) -> Response:
    """Return an empty list for a collection that only Logflare has, such as backends; refuse to add to it."""
    require_private_caller(request, services)
    if request.method == "POST":
        raise FeatureUnavailable(
            f"cordwood has no {collection}, so none can be created.", hint=_HINT_BY_UNSUPPORTED_COLLECTION[collection]
        )
    return no_store_json_response([])
