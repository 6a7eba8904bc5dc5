"""The OpenAPI 3.1 document: the fixed routes, and one operation for each endpoint."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import quote

import msgspec

import cordwood
from cordwood.model.datatype import Datatype
from cordwood.model.endpoint import Dialect, Endpoint, Parameter
from cordwood.model.stream import Stream
from cordwood.web.content_negotiation import FORMATS
from cordwood.web.describe.schemas import Schema, example_of, member_schema, parameter_schema, row_schema
from cordwood.web.problems import TITLES

Columns = Sequence[tuple[str, Datatype | None]]

# The statuses with which a well-formed request for an endpoint can be answered.
_QUERY_STATUSES = (400, 401, 403, 404, 406, 408, 413, 415, 422, 429, 500, 503, 504, 507)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n")
# The maximum length of an endpoint's summary.
_SUMMARY_CHARACTERS = 120
_SHARED_PARAMETERS = ("format", "cursor", "redact", "no_cache")
_OWN_QUERY: Mapping[str, str] = {
    "sql": "A sandbox query over the endpoint's sub-queries, in SQL; not together with lql.",
    "lql": "A sandbox query over the endpoint's sub-queries, in LQL; not together with sql.",
}
_OWN_CLICKHOUSE: Mapping[str, str] = {"sql": "A query of your own over the table logs, in ClickHouse SQL."}


_RECEIPT: Mapping[str, str] = {
    "Cordwood-Rows": "rows",
    "Cordwood-Truncated": "truncated",
    "Cordwood-Next": "next",
    "Cordwood-Notice": "notice",
    "Cordwood-Revision": "revision",
    "Cache-Status": "cache",
    "Age": "age",
    "ETag": "etag",
    "Server-Timing": "timing",
}


class EndpointWithColumns(msgspec.Struct, frozen=True):
    """An endpoint and its result columns."""

    endpoint: Endpoint
    columns: Columns


def document(endpoints: Iterable[EndpointWithColumns], streams: Iterable[Stream]) -> dict[str, Any]:
    """Return the OpenAPI document of the fixed routes and of all endpoints."""
    made: dict[str, Any] = msgspec.json.decode(_fixed_paths())
    made["info"]["version"] = cordwood.__version__
    made["components"]["responses"] |= {f"{status}": _problem(title) for status, title in TITLES.items()}
    made["components"]["parameters"]["format"]["schema"]["enum"] = list(FORMATS)
    made["components"]["schemas"]["stream"]["examples"] = [stream.name for stream in streams]
    for one in endpoints:
        made["paths"][_address(one.endpoint)] = _path(one)
    return made


@cache
def _fixed_paths() -> bytes:
    return (resources.files("cordwood.web.describe") / "fixed.json").read_bytes()


def _address(endpoint: Endpoint) -> str:
    """Return the path of an endpoint: by name, or by UUID for a public one, whose name needs a key."""
    name = endpoint.name if endpoint.auth else str(endpoint.id)
    return f"/api/endpoints/query/{quote(name, safe='')}"


def _path(described: EndpointWithColumns) -> dict[str, Any]:
    endpoint = described.endpoint
    parameters = [_parameter(parameter) for parameter in endpoint.parameters]
    own = [_own_query(name, text) for name, text in _own_queries(endpoint).items()]
    shared = [*_page_size(endpoint), *({"$ref": f"#/components/parameters/{name}"} for name in _shared(endpoint))]
    get = {**_operation(described, "query"), "parameters": [*parameters, *own, *shared]}
    post = {**_operation(described, "post"), "parameters": shared, "requestBody": _body(endpoint)}
    return {"get": get, "post": post}


def _operation(described: EndpointWithColumns, verb: str) -> dict[str, Any]:
    endpoint = described.endpoint
    slug = re.sub(r"\W", "_", endpoint.name, flags=re.ASCII)
    refusals = {f"{status}": {"$ref": f"#/components/responses/{status}"} for status in _QUERY_STATUSES}
    return {
        # The id is appended, because names that differ only in punctuation have the same slug.
        "operationId": f"{verb}_{slug}_{endpoint.id.hex[:8]}",
        "x-cordwood-endpoint": endpoint.name,
        "summary": _summary(endpoint),
        "description": _description(endpoint),
        "tags": ["endpoints"],
        "responses": {"200": _rows(described), "304": {"description": "The cached answer is still valid."}, **refusals},
        **({} if endpoint.auth else {"security": [{}]}),
    }


def _summary(endpoint: Endpoint) -> str:
    """Return the first sentence of the endpoint's description, or its name if it has none."""
    first = _SENTENCE_END.split(endpoint.description.strip(), 1)[0].removesuffix(".")
    if not first:
        return f"Query {endpoint.name}"
    return first if len(first) <= _SUMMARY_CHARACTERS else f"{first[: _SUMMARY_CHARACTERS - 1]}…"


def _description(endpoint: Endpoint) -> str:
    sentences = [endpoint.description.strip(), f"At most {endpoint.max_rows} rows."]
    if endpoint.cache_seconds:
        sentences.append(f"An answer is cached for {endpoint.cache_seconds:g} s.")
    if endpoint.sandbox:
        sentences.append("Accepts a sandbox query.")
    return " ".join(sentence for sentence in sentences if sentence)


def _rows(described: EndpointWithColumns) -> dict[str, Any]:
    row: Schema = row_schema(described.columns)
    # The columns of a sandbox query are not known here.
    items = {"anyOf": [row, {"type": "object"}]} if described.endpoint.sandbox else row
    result = {"type": "object", "required": ["result"], "properties": {"result": {"type": "array", "items": items}}}
    content: dict[str, Any] = {form.media_type.partition(";")[0]: {} for form in FORMATS.values()}
    content["application/json"] = {"schema": result}
    headers = {name: {"$ref": f"#/components/headers/{of}"} for name, of in _RECEIPT.items()}
    return {"description": "The rows.", "headers": headers, "content": content}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    stated = {"name": parameter.name, "in": "query", "required": parameter.required}
    described = {"description": parameter.description} if parameter.description else {}
    example = example_of(parameter)
    shown = {} if example is None else {"example": example}
    return {**stated, **described, "schema": parameter_schema(parameter), **shown}


def _own_queries(endpoint: Endpoint) -> Mapping[str, str]:
    """Return the parameters for the caller's own query (sql, lql), with their descriptions."""
    if not endpoint.sandbox:
        return {}
    return _OWN_CLICKHOUSE if endpoint.dialect is Dialect.CLICKHOUSE else _OWN_QUERY


def _own_query(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}


def _body(endpoint: Endpoint) -> dict[str, Any]:
    members = {one.name: member_schema(one) for one in endpoint.parameters}
    members |= {name: {"type": "string", "description": text} for name, text in _own_queries(endpoint).items()}
    required = [one.name for one in endpoint.parameters if one.required]
    schema = {"type": "object", "properties": members, **({"required": required} if required else {})}
    forms = ("application/json", "application/x-www-form-urlencoded")
    return {"required": bool(required), "content": {form: {"schema": schema} for form in forms}}


def _shared(endpoint: Endpoint) -> list[str]:
    """Return the parameters that all endpoints have, except names that the endpoint declares itself."""
    own = {parameter.name for parameter in endpoint.parameters}
    return [name for name in _SHARED_PARAMETERS if name not in own]


def _page_size(endpoint: Endpoint) -> list[dict[str, Any]]:
    if any(parameter.name == "page_size" for parameter in endpoint.parameters):
        return []
    schema = {"type": "integer", "minimum": 1, "maximum": endpoint.max_rows}
    return [{"name": "page_size", "in": "query", "description": "Rows of a page; else max_rows.", "schema": schema}]


def _problem(title: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/problem"}
    return {"description": f"{title}.", "content": {"application/problem+json": {"schema": schema}}}
