"""Build the OpenAPI 3.1 document of the API: the fixed routes, and two operations for each endpoint.

It also builds the JSON Schemas of rows, parameters and events.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import quote

import msgspec

import cordwood
from cordwood.model.datatype import Column, Datatype, Kind
from cordwood.model.definitions import Dialect, Endpoint, Parameter, Stream, TextParameterKind
from cordwood.model.event import ARRAY_ELEMENT_STEP, EventPath, EventShape, ValueKind
from cordwood.web.encode import ANSWER_FORMATS_BY_NAME
from cordwood.web.encode.cells import distinct_names
from cordwood.web.problems import TITLE_BY_STATUS

Schema = dict[str, Any]

_STRING_SCHEMA = {"type": "string"}
# The JSON Schema for each type of a column. Columns of other types may have any JSON value.
_COLUMN_SCHEMAS: Mapping[Kind, Schema] = {
    Kind.STRING: _STRING_SCHEMA,
    Kind.BYTES: {"type": "string", "contentEncoding": "base64"},
    Kind.INT64: {"type": "integer", "format": "int64"},
    # In JSON, such a number is written as a string if it is NaN or infinite, or has more digits than a double can hold.
    Kind.FLOAT64: {"type": ["number", "string"]},
    Kind.NUMERIC: {"type": ["number", "string"]},
    Kind.BIGNUMERIC: {"type": ["number", "string"]},
    Kind.BOOL: {"type": "boolean"},
    Kind.TIMESTAMP: {"type": "integer", "format": "int64", "description": "Microseconds since 1970, UTC."},
    Kind.DATETIME: {"type": "string", "description": "YYYY-MM-DDTHH:MM:SS[.ffffff], without a zone."},
    Kind.DATE: {"type": "string", "format": "date"},
    Kind.TIME: _STRING_SCHEMA,
    Kind.INTERVAL: _STRING_SCHEMA,
}
_PARAMETER_SCHEMAS: Mapping[Kind, Schema] = {
    Kind.INT64: {"type": "integer", "format": "int64"},
    Kind.FLOAT64: {"type": "number"},
    Kind.NUMERIC: {"type": "number"},
    Kind.BIGNUMERIC: {"type": "number"},
    Kind.BOOL: {"type": "boolean"},
    Kind.BYTES: {"type": "string", "contentEncoding": "base64"},
    Kind.DATE: {"type": "string", "format": "date"},
    Kind.TIMESTAMP: {"type": "string", "format": "date-time"},
}
_EXAMPLE_BY_KIND: Mapping[Kind, str] = {
    Kind.TIMESTAMP: "2026-01-31T12:00:00Z",
    Kind.DATETIME: "2026-01-31T12:00:00",
    Kind.DATE: "2026-01-31",
    Kind.TIME: "12:00:00",
}
_PARSERS_BY_JSON_TYPE: Mapping[str, Callable[[str], object]] = {
    "integer": int,
    "number": float,
    "boolean": lambda text: text.lower() == "true",
    "string": str,
}
_JSON_TYPES_BY_KIND = {
    ValueKind.OBJECT: "object",
    ValueKind.ARRAY: "array",
    ValueKind.TEXT: "string",
    ValueKind.NUMBER: "number",
    ValueKind.BOOL: "boolean",
}


def row_schema(columns: Sequence[tuple[str, Datatype | None]]) -> Schema:
    """Return the JSON Schema of a row of an answer. A repeated column name gets a number, as in the answer itself."""
    named = [Column(name, datatype or Datatype(Kind.VARIANT)) for name, datatype in columns]
    schemas = [_nullable_schema(cell_schema(column.datatype)) for column in named]
    return {"type": "object", "properties": dict(zip(distinct_names(named), schemas, strict=True))}


def cell_schema(datatype: Datatype | None) -> Schema:
    """Return the JSON Schema of one value of a row. A record is written as an array with one object."""
    if datatype is None:
        return {}
    if datatype.kind is Kind.STRUCT:
        return {"type": "array", "items": _record_schema(datatype)}
    if datatype.kind is Kind.ARRAY:
        element = datatype.element
        return {
            "type": "array",
            "items": _record_schema(element) if _is_record(element) else _nullable_schema(cell_schema(element)),
        }
    return dict(_COLUMN_SCHEMAS.get(datatype.kind, {}))


def parameter_schema(parameter: Parameter) -> Schema:
    """Return the JSON Schema of the values of a parameter."""
    schema = dict(_PARAMETER_SCHEMAS.get(parameter.type, _STRING_SCHEMA))
    read = _PARSERS_BY_JSON_TYPE[schema["type"]]
    if parameter.kind is TextParameterKind.REGEX:
        schema["format"] = "regex"
    if parameter.one_of:
        schema["enum"] = [read(value) for value in parameter.one_of]
    if parameter.default is not None:
        schema["default"] = read(parameter.default)
    return schema


def body_member_schema(parameter: Parameter) -> Schema:
    """Return the JSON Schema of a parameter as a member of a JSON body, with its description and an example."""
    described = {"description": parameter.description} if parameter.description else {}
    example = _example_of(parameter)
    shown = {} if example is None else {"examples": [example]}
    return {**parameter_schema(parameter), **described, **shown}


def _example_of(parameter: Parameter) -> object:
    """Return the parameter's own example, or else an example for its type.

    Return None if there is neither. A parameter with a default or a list of allowed values gets no example for its
    type, because it needs none.
    """
    if parameter.example is not None:
        return _PARSERS_BY_JSON_TYPE[_PARAMETER_SCHEMAS.get(parameter.type, _STRING_SCHEMA)["type"]](parameter.example)
    if parameter.one_of or parameter.default is not None:
        return None
    return _EXAMPLE_BY_KIND.get(parameter.type)


def stream_schema(stream: Stream, shape: EventShape, address: str) -> Schema:
    """Return the JSON Schema of a stream's events, derived from the shape of the events that were seen."""
    root: Schema = {"type": "object", "properties": _fixed_column_schemas()}
    for path, kinds in _value_kinds_sorted_by_path(shape):
        _insert_path_schema(root, path, sorted(_JSON_TYPES_BY_KIND[kind] for kind in kinds))
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": address, "title": stream.name}
    return {**head, **root}


def type_names_by_dotted_path(shape: EventShape) -> dict[str, str]:
    """Return the type names of values by their dotted paths, without records and lists of records themselves."""
    flat = {"id": "string", "timestamp": "datetime", "event_message": "string"}
    kinds = dict(_value_kinds_sorted_by_path(shape))
    for path, found in kinds.items():
        if ARRAY_ELEMENT_STEP in path:
            continue
        plain = found - {ValueKind.OBJECT, ValueKind.ARRAY}
        elements = kinds.get((*path, ARRAY_ELEMENT_STEP), frozenset()) - {ValueKind.OBJECT, ValueKind.ARRAY}
        names = [_JSON_TYPES_BY_KIND[kind] for kind in sorted(plain)] + [
            f"{_JSON_TYPES_BY_KIND[kind]}[]" for kind in sorted(elements)
        ]
        if names:
            flat[".".join(path)] = "|".join(names)
    return flat


def _fixed_column_schemas() -> dict[str, Schema]:
    return {"id": {"type": "string"}, "timestamp": {"type": "number"}, "event_message": {"type": "string"}}


def _insert_path_schema(root: Schema, path: EventPath, types: list[str]) -> None:
    node = root
    for step in path:
        node = (
            node.setdefault("items", {})
            if step == ARRAY_ELEMENT_STEP
            else node.setdefault("properties", {}).setdefault(step, {})
        )
    node["type"] = types[0] if len(types) == 1 else types


def _value_kinds_sorted_by_path(shape: EventShape) -> Iterator[tuple[EventPath, frozenset[ValueKind]]]:
    return iter(sorted(shape.value_kinds_by_path.items()))


def _is_record(datatype: Datatype | None) -> bool:
    return datatype is not None and datatype.kind is Kind.STRUCT


def _record_schema(datatype: Datatype | None) -> Schema:
    fields = datatype.fields if datatype else ()
    return {
        "type": "object",
        "properties": {name: _nullable_schema(cell_schema(field)) for name, field in fields if name},
    }


def _nullable_schema(schema: Schema) -> Schema:
    """Return the schema with null allowed. A schema without a type already allows null."""
    types = schema.get("type")
    if types is None:
        return schema
    return {**schema, "type": [*(types if isinstance(types, list) else [types]), "null"]}


Columns = Sequence[tuple[str, Datatype | None]]

# The statuses of the errors that can answer a request for an endpoint.
_QUERY_ERROR_STATUSES = (400, 401, 403, 404, 406, 408, 413, 415, 422, 429, 500, 503, 504, 507)
_SENTENCE_END_PATTERN = re.compile(r"(?<=[.!?])\s|\n")
# The maximum length of an endpoint's summary in the OpenAPI document.
_MAX_SUMMARY_CHARACTERS = 120
_SHARED_PARAMETERS = ("format", "cursor", "redact", "no_cache")
_SANDBOX_PARAMETERS: Mapping[str, str] = {
    "sql": "A sandbox query over the endpoint's sub-queries, in SQL; not together with lql.",
    "lql": "A sandbox query over the endpoint's sub-queries, in LQL; not together with sql.",
}
_CLICKHOUSE_SANDBOX_PARAMETERS: Mapping[str, str] = {
    "sql": "A query of your own over the table logs, in ClickHouse SQL."
}


_RECEIPT_HEADERS: Mapping[str, str] = {
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
    """An endpoint, and the columns of its rows."""

    endpoint: Endpoint
    columns: Columns


def openapi_document(endpoints: Iterable[EndpointWithColumns], streams: Iterable[Stream]) -> dict[str, Any]:
    """Return the OpenAPI document of the fixed routes and of all endpoints."""
    made: dict[str, Any] = msgspec.json.decode(_read_base_openapi_document())
    made["info"]["version"] = cordwood.__version__
    made["components"]["responses"] |= {
        f"{status}": _problem_response(title) for status, title in TITLE_BY_STATUS.items()
    }
    made["components"]["parameters"]["format"]["schema"]["enum"] = list(ANSWER_FORMATS_BY_NAME)
    made["components"]["schemas"]["stream"]["examples"] = [stream.name for stream in streams]
    for one in endpoints:
        made["paths"][_endpoint_path(one.endpoint)] = _path_item(one)
    return made


@cache
def _read_base_openapi_document() -> bytes:
    return (resources.files("cordwood.web.describe") / "fixed.json").read_bytes()


def _endpoint_path(endpoint: Endpoint) -> str:
    """Return the URL path at which an endpoint is queried. An endpoint that needs no key has its UUID in the path."""
    name = endpoint.name if endpoint.requires_key else str(endpoint.id)
    return f"/api/endpoints/query/{quote(name, safe='')}"


def _path_item(described: EndpointWithColumns) -> dict[str, Any]:
    endpoint = described.endpoint
    parameters = [_parameter_object(parameter) for parameter in endpoint.parameters]
    own = [_sandbox_parameter_object(name, text) for name, text in _sandbox_parameters(endpoint).items()]
    shared = [
        *_page_size_parameters(endpoint),
        *({"$ref": f"#/components/parameters/{name}"} for name in _shared_parameters(endpoint)),
    ]
    get = {**_operation(described, "query"), "parameters": [*parameters, *own, *shared]}
    post = {**_operation(described, "post"), "parameters": shared, "requestBody": _request_body(endpoint)}
    return {"get": get, "post": post}


def _operation(described: EndpointWithColumns, verb: str) -> dict[str, Any]:
    endpoint = described.endpoint
    slug = re.sub(r"\W", "_", endpoint.name, flags=re.ASCII)
    refusals = {f"{status}": {"$ref": f"#/components/responses/{status}"} for status in _QUERY_ERROR_STATUSES}
    return {
        # A part of the endpoint's UUID is appended, because endpoints whose names differ only in punctuation have the
        # same slug.
        "operationId": f"{verb}_{slug}_{endpoint.id.hex[:8]}",
        "x-cordwood-endpoint": endpoint.name,
        "summary": _summary(endpoint),
        "description": _description(endpoint),
        "tags": ["endpoints"],
        "responses": {
            "200": _rows_response(described),
            "304": {"description": "The cached answer is still valid."},
            **refusals,
        },
        **({} if endpoint.requires_key else {"security": [{}]}),
    }


def _summary(endpoint: Endpoint) -> str:
    """Return the first sentence of the endpoint's description, or a sentence with its name if it has no description."""
    first = _SENTENCE_END_PATTERN.split(endpoint.description.strip(), 1)[0].removesuffix(".")
    if not first:
        return f"Query {endpoint.name}"
    return first if len(first) <= _MAX_SUMMARY_CHARACTERS else f"{first[: _MAX_SUMMARY_CHARACTERS - 1]}…"


def _description(endpoint: Endpoint) -> str:
    sentences = [endpoint.description.strip(), f"At most {endpoint.max_rows} rows."]
    if endpoint.cache_seconds:
        sentences.append(f"An answer is cached for {endpoint.cache_seconds:g} s.")
    if endpoint.accepts_sandbox_queries:
        sentences.append("Accepts a sandbox query.")
    return " ".join(sentence for sentence in sentences if sentence)


def _rows_response(described: EndpointWithColumns) -> dict[str, Any]:
    row: Schema = row_schema(described.columns)
    # The columns of a caller's sandbox query are not known here, so any object is allowed as a row.
    items = {"anyOf": [row, {"type": "object"}]} if described.endpoint.accepts_sandbox_queries else row
    result = {"type": "object", "required": ["result"], "properties": {"result": {"type": "array", "items": items}}}
    content: dict[str, Any] = {form.media_type.partition(";")[0]: {} for form in ANSWER_FORMATS_BY_NAME.values()}
    content["application/json"] = {"schema": result}
    headers = {name: {"$ref": f"#/components/headers/{of}"} for name, of in _RECEIPT_HEADERS.items()}
    return {"description": "The rows.", "headers": headers, "content": content}


def _parameter_object(parameter: Parameter) -> dict[str, Any]:
    required_fields = {"name": parameter.name, "in": "query", "required": parameter.required}
    described = {"description": parameter.description} if parameter.description else {}
    example = _example_of(parameter)
    shown = {} if example is None else {"example": example}
    return {**required_fields, **described, "schema": parameter_schema(parameter), **shown}


def _sandbox_parameters(endpoint: Endpoint) -> Mapping[str, str]:
    """Return the parameters for a sandbox query (`sql`, `lql`) with their descriptions; none if there is no sandbox."""
    if not endpoint.accepts_sandbox_queries:
        return {}
    return _CLICKHOUSE_SANDBOX_PARAMETERS if endpoint.dialect is Dialect.CLICKHOUSE else _SANDBOX_PARAMETERS


def _sandbox_parameter_object(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}


def _request_body(endpoint: Endpoint) -> dict[str, Any]:
    members = {one.name: body_member_schema(one) for one in endpoint.parameters}
    members |= {name: {"type": "string", "description": text} for name, text in _sandbox_parameters(endpoint).items()}
    required = [one.name for one in endpoint.parameters if one.required]
    schema = {"type": "object", "properties": members, **({"required": required} if required else {})}
    forms = ("application/json", "application/x-www-form-urlencoded")
    return {"required": bool(required), "content": {form: {"schema": schema} for form in forms}}


def _shared_parameters(endpoint: Endpoint) -> list[str]:
    """Return the names of parameters that every endpoint accepts, without those that the endpoint declares itself."""
    own = {parameter.name for parameter in endpoint.parameters}
    return [name for name in _SHARED_PARAMETERS if name not in own]


def _page_size_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    if any(parameter.name == "page_size" for parameter in endpoint.parameters):
        return []
    schema = {"type": "integer", "minimum": 1, "maximum": endpoint.max_rows}
    return [{"name": "page_size", "in": "query", "description": "Rows of a page; else max_rows.", "schema": schema}]


def _problem_response(title: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/problem"}
    return {"description": f"{title}.", "content": {"application/problem+json": {"schema": schema}}}
