"""The tools that query: one for each endpoint, and one each for the agent's own queries over endpoints and streams."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from cordwood.agents.answers import DEFAULT_ROWS, MAX_ROWS, Bounds, ask_endpoint, ask_streams
from cordwood.agents.api import KeyedApi, KeyView, OfferedEndpoint
from cordwood.agents.tool import Arguments, RefusedCallError, Tool, argument_schema, arguments_of, require_known
from cordwood.errors import did_you_mean

# Clients accept no other characters in the name of a tool, and no longer names.
_MAX_NAME_LENGTH: Final = 64
_INVALID_NAME_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_ROWS: Final = "max_rows"

QUERY: Final = "query"
QUERY_STREAMS: Final = "query_streams"
# Descriptions are sent to the model with every request, so they list only this many names.
_MAX_LISTED_NAMES: Final = 30
EndpointName = Annotated[str, msgspec.Meta(description="The endpoint whose tables are read.")]
Parameters = Annotated[
    Mapping[str, str | int | float | bool | None],
    msgspec.Meta(
        description="The parameters of the endpoint, which its own tool describes.", examples=[{"project": "default"}]
    ),
]
MaxRows = Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS, description="How many rows to return at most.")]
_LQL: Final = (
    'LQL is short: f:TABLE names the table, a word or "a phrase" searches the message, path:value, path:>=5 and path:~regex '
    "filter fields (m. is metadata.), t:last@1h is a time range, s:path selects a column, c:count(*) c:group_by(t::minute) counts, "
    "limit:20 limits."
)
_SQL: Final = (
    "metadata and the objects in it are repeated records: from edge_logs as t cross join unnest(t.metadata) as m cross join "
    "unnest(m.request) as r. timestamp is in microseconds since 1970 in answers; filter it with timestamp_sub(current_timestamp(), "
    "interval 1 hour)."
)


def endpoint_tools(endpoints: Sequence[OfferedEndpoint], used_names: Collection[str]) -> list[Tool]:
    """Return one tool for each endpoint, under a name that is not in `used_names`."""
    names = Counter(_tool_name(endpoint) for endpoint in endpoints)
    return [
        _endpoint_tool(
            endpoint,
            _tool_name(endpoint)
            if names[_tool_name(endpoint)] == 1 and _tool_name(endpoint) not in used_names
            else _distinct_name(endpoint),
        )
        for endpoint in endpoints
    ]


def _tool_name(endpoint: OfferedEndpoint) -> str:
    return _INVALID_NAME_CHARACTERS.sub("_", endpoint.name).strip("_")[:_MAX_NAME_LENGTH] or "endpoint"


def _distinct_name(endpoint: OfferedEndpoint) -> str:
    """Return a name that ends in a part of the UUID, for endpoints whose names differ only in punctuation."""
    return f"{_tool_name(endpoint)[: _MAX_NAME_LENGTH - 9]}_{endpoint.token[:8]}"


def _endpoint_tool(endpoint: OfferedEndpoint, name: str) -> Tool:
    return Tool(
        name,
        endpoint.name,
        _endpoint_description(endpoint),
        _endpoint_schema(endpoint),
        partial(_run_endpoint, endpoint),
    )


def _endpoint_description(endpoint: OfferedEndpoint) -> str:
    own = f"Runs the saved query {endpoint.name} and returns its rows as JSON."
    sandbox = (
        f"Its tables can also be queried with the tool query, endpoint={endpoint.name}." if endpoint.sandboxable else ""
    )
    return " ".join(sentence for sentence in (endpoint.description, own, sandbox) if sentence)


def _endpoint_schema(endpoint: OfferedEndpoint) -> dict[str, Any]:
    schema = {**endpoint.parameters, "additionalProperties": False}
    if _MAX_ROWS not in endpoint.parameters["properties"]:
        maximum = min(MAX_ROWS, endpoint.max_limit)
        schema["properties"] = {
            **endpoint.parameters["properties"],
            _MAX_ROWS: {
                "type": "integer",
                "minimum": 1,
                "maximum": maximum,
                "default": min(DEFAULT_ROWS, maximum),
                "description": "How many rows to return at most.",
            },
        }
    return schema


async def _run_endpoint(endpoint: OfferedEndpoint, api: KeyedApi, arguments: Arguments) -> object:
    schema = _endpoint_schema(endpoint)
    require_known(arguments, list(schema["properties"]))
    own = endpoint.parameters["properties"]
    requested_rows = arguments.get(_MAX_ROWS) if _MAX_ROWS not in own else None
    given = {name: value for name, value in arguments.items() if name in own}
    return await ask_endpoint(api, endpoint, given, Bounds(_requested_rows(requested_rows, endpoint.max_limit)))


def _requested_rows(requested: object, limit: int) -> int:
    """Return the number of rows to read; raise RefusedCallError unless it is a number from 1 to the limit."""
    maximum = min(MAX_ROWS, limit)
    if requested is None:
        return min(DEFAULT_ROWS, maximum)
    if isinstance(requested, bool) or not isinstance(requested, int) or requested < 1:
        raise RefusedCallError(f"max_rows must be a whole number from 1 to {maximum}.")
    return min(requested, maximum)


class QueryArguments(msgspec.Struct):
    """The arguments of the tool `query`."""

    endpoint: EndpointName
    sql: Annotated[
        str,
        msgspec.Meta(
            description="The query in the endpoint's dialect of SQL; not together with lql.",
            examples=["select event_message, count(*) as n from edge_logs group by 1 order by n desc limit 20"],
        ),
    ] = ""
    lql: Annotated[
        str,
        msgspec.Meta(
            description="The query in LQL; not together with sql.",
            examples=["f:edge_logs m.response.status_code:>=500 t:last@1h c:count(*) c:group_by(t::minute)"],
        ),
    ] = ""
    parameters: Parameters = {}
    max_rows: MaxRows = DEFAULT_ROWS


class StreamQueryArguments(msgspec.Struct):
    """The arguments of the tool `query_streams`."""

    sql: Annotated[
        str,
        msgspec.Meta(
            description="One SELECT in BigQuery's dialect. A stream is a table in backquotes.",
            examples=["select timestamp, event_message from `postgres.logs` order by timestamp desc limit 20"],
        ),
    ]
    max_rows: MaxRows = DEFAULT_ROWS


def query_tools(view: KeyView) -> list[Tool]:
    """Return the tools for the agent's own queries that a key may use."""
    return [*_endpoint_query_tool(view.sandboxes), *([_stream_query_tool()] if view.may_read_streams else [])]


def _endpoint_query_tool(endpoints: Sequence[OfferedEndpoint]) -> list[Tool]:
    if not endpoints:
        return []
    names = ", ".join(f"{one.name} ({_dialect(one)})" for one in endpoints[:_MAX_LISTED_NAMES])
    names += ", …" if len(endpoints) > _MAX_LISTED_NAMES else ""
    description = (
        f"Runs a query of your own, in SQL or LQL, over the tables of an endpoint: {names}. The tool list_tables has their columns. "
        f"{_SQL} {_LQL} Only reads; a refusal names the place and what to change. Aggregate, or select few columns and rows."
    )
    schema = argument_schema(QueryArguments, endpoint=[one.name for one in endpoints])
    return [Tool(QUERY, "Query an endpoint's tables", description, schema, partial(_query, endpoints))]


def _dialect(endpoint: OfferedEndpoint) -> str:
    return "ClickHouse SQL" if endpoint.language == "ch_sql" else "BigQuery SQL"


async def _query(endpoints: Sequence[OfferedEndpoint], api: KeyedApi, raw_arguments: Arguments) -> object:
    arguments = arguments_of(QueryArguments, raw_arguments)
    endpoint = named_endpoint(endpoints, arguments.endpoint)
    texts = {name: text for name, text in (("sql", arguments.sql), ("lql", arguments.lql)) if text}
    if len(texts) != 1:
        raise RefusedCallError("Send either sql or lql.")
    parameters = with_query(endpoint, arguments.parameters, texts)
    bounds = Bounds(_requested_rows(arguments.max_rows, endpoint.max_limit))
    return await ask_endpoint(api, endpoint, parameters, bounds, next(iter(texts.values())))


def named_endpoint(endpoints: Sequence[OfferedEndpoint], name: str) -> OfferedEndpoint:
    """Return the endpoint with a name; raise RefusedCallError if the key has no such endpoint."""
    found = next((one for one in endpoints if name in (one.name, one.token)), None)
    if found is None:
        names = [one.name for one in endpoints]
        hint = did_you_mean(name, names) or "There are: " + ", ".join(names[:_MAX_LISTED_NAMES])
        raise RefusedCallError(f"There is no endpoint {name[:60]!r} that takes a query. {hint}")
    return found


def with_query(endpoint: OfferedEndpoint, parameters: Mapping[str, object], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters with the caller's query; raise RefusedCallError for parameters that the endpoint lacks."""
    for name in parameters:
        if name not in endpoint.parameters["properties"]:
            known = ", ".join(endpoint.parameters["properties"]) or "none"
            raise RefusedCallError(f"{endpoint.name} has no parameter {name[:60]!r}. It has: {known}.")
    return {**parameters, **texts}


def _stream_query_tool() -> Tool:
    description = (
        "Runs SQL of your own over whole streams, each a table in backquotes; the tool list_streams has them. Columns: id, timestamp, "
        f"event_message, metadata, and every other field at the top of its events, such as project. {_SQL} Only reads."
    )
    schema = argument_schema(StreamQueryArguments)
    return Tool(QUERY_STREAMS, "Query streams", description, schema, _query_streams)


async def _query_streams(api: KeyedApi, raw_arguments: Arguments) -> object:
    arguments = arguments_of(StreamQueryArguments, raw_arguments)
    return await ask_streams(api, arguments.sql, Bounds(_requested_rows(arguments.max_rows, MAX_ROWS)))
