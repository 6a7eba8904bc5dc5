"""The tools and resources that a key may use, and the results of calls as text for an agent.

There is one tool for each endpoint. The tools `query` and `query_streams` run the agent's own queries over the tables
of endpoints and over streams. Further tools list these tables and streams with their fields, and read one event with
its neighbours in time.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final
from urllib.parse import quote, unquote

import msgspec

from cordwood.agents.api import ApiClient, KeyPermissions, QueryableEndpoint
from cordwood.agents.tool import (
    DEFAULT_MAX_ROWS,
    MAX_ANSWER_ROWS,
    MAX_ANSWER_ROWS_BYTES,
    RefusedCallError,
    Tool,
    ToolAnswerLimits,
    ToolArguments,
    argument_schema,
    convert_arguments,
    fault_text,
    fetch_endpoint_rows,
    fetch_json_document,
    fetch_stream_rows,
    require_known_arguments,
)
from cordwood.errors import Fault, did_you_mean

# Programs that use tools limit the length of tool names, and permit only letters, digits, `_` and `-` in them.
_MAX_TOOL_NAME_LENGTH: Final = 64
_INVALID_TOOL_NAME_CHARACTERS_PATTERN: Final = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_ROWS_ARGUMENT_NAME: Final = "max_rows"

_QUERY_TOOL_NAME: Final = "query"
_QUERY_STREAMS_TOOL_NAME: Final = "query_streams"
# Descriptions of tools are sent to the model with every request, so they list at most this number of names.
_MAX_LISTED_ENDPOINT_NAMES: Final = 30
_EndpointName = Annotated[str, msgspec.Meta(description="The endpoint whose tables are read.")]
_EndpointParameters = Annotated[
    Mapping[str, str | int | float | bool | None],
    msgspec.Meta(
        description="The parameters of the endpoint, which its own tool describes.", examples=[{"project": "default"}]
    ),
]
MaxRows = Annotated[int, msgspec.Meta(ge=1, le=MAX_ANSWER_ROWS, description="How many rows to return at most.")]
_LQL_EXPLANATION: Final = (
    'LQL is short: f:TABLE names the table, a word or "a phrase" searches the message, path:value, path:>=5 and path:~regex '
    "filter fields (m. is metadata.), t:last@1h is a time range, s:path selects a column, c:count(*) c:group_by(t::minute) counts, "
    "limit:20 limits."
)
_SQL_EXPLANATION: Final = (
    "metadata and the objects in it are repeated records: from edge_logs as t cross join unnest(t.metadata) as m cross join "
    "unnest(m.request) as r. timestamp is in microseconds since 1970 in answers; filter it with timestamp_sub(current_timestamp(), "
    "interval 1 hour)."
)


def _endpoint_tools(endpoints: Sequence[QueryableEndpoint], used_names: Collection[str]) -> list[Tool]:
    """Return one tool for each endpoint. The names of these tools differ from each other and from `used_names`."""
    names = Counter(_tool_name(endpoint) for endpoint in endpoints)
    return [
        _endpoint_tool(
            endpoint,
            _tool_name(endpoint)
            if names[_tool_name(endpoint)] == 1 and _tool_name(endpoint) not in used_names
            else _distinct_tool_name(endpoint),
        )
        for endpoint in endpoints
    ]


def _tool_name(endpoint: QueryableEndpoint) -> str:
    return (
        _INVALID_TOOL_NAME_CHARACTERS_PATTERN.sub("_", endpoint.name).strip("_")[:_MAX_TOOL_NAME_LENGTH] or "endpoint"
    )


def _distinct_tool_name(endpoint: QueryableEndpoint) -> str:
    """Return a unique tool name, which ends with the first characters of the endpoint's UUID.

    It is used if another tool has the endpoint's usual tool name.
    """
    return f"{_tool_name(endpoint)[: _MAX_TOOL_NAME_LENGTH - 9]}_{endpoint.token[:8]}"


def _endpoint_tool(endpoint: QueryableEndpoint, name: str) -> Tool:
    return Tool(
        name,
        endpoint.name,
        _endpoint_description(endpoint),
        _endpoint_argument_schema(endpoint),
        partial(_run_endpoint, endpoint),
    )


def _endpoint_description(endpoint: QueryableEndpoint) -> str:
    own = f"Runs the saved query {endpoint.name} and returns its rows as JSON."
    sandbox = (
        f"Its tables can also be queried with the tool query, endpoint={endpoint.name}." if endpoint.sandboxable else ""
    )
    return " ".join(sentence for sentence in (endpoint.description, own, sandbox) if sentence)


def _endpoint_argument_schema(endpoint: QueryableEndpoint) -> dict[str, Any]:
    schema = {**endpoint.parameters, "additionalProperties": False}
    if _MAX_ROWS_ARGUMENT_NAME not in endpoint.parameters["properties"]:
        maximum = min(MAX_ANSWER_ROWS, endpoint.max_limit)
        schema["properties"] = {
            **endpoint.parameters["properties"],
            _MAX_ROWS_ARGUMENT_NAME: {
                "type": "integer",
                "minimum": 1,
                "maximum": maximum,
                "default": min(DEFAULT_MAX_ROWS, maximum),
                "description": "How many rows to return at most.",
            },
        }
    return schema


async def _run_endpoint(endpoint: QueryableEndpoint, api: ApiClient, arguments: ToolArguments) -> object:
    schema = _endpoint_argument_schema(endpoint)
    require_known_arguments(arguments, list(schema["properties"]))
    own = endpoint.parameters["properties"]
    requested_rows = arguments.get(_MAX_ROWS_ARGUMENT_NAME) if _MAX_ROWS_ARGUMENT_NAME not in own else None
    given = {name: value for name, value in arguments.items() if name in own}
    return await fetch_endpoint_rows(
        api, endpoint, given, ToolAnswerLimits(_effective_row_limit(requested_rows, endpoint.max_limit))
    )


def _effective_row_limit(requested: object, limit: int) -> int:
    """Return the maximum number of rows to read: the requested number or a default, but at most `limit`.

    Raise RefusedCallError if the requested number is not a positive integer.
    """
    maximum = min(MAX_ANSWER_ROWS, limit)
    if requested is None:
        return min(DEFAULT_MAX_ROWS, maximum)
    if isinstance(requested, bool) or not isinstance(requested, int) or requested < 1:
        raise RefusedCallError(f"max_rows must be a whole number from 1 to {maximum}.")
    return min(requested, maximum)


class QueryArguments(msgspec.Struct):
    """The arguments of the tool `query`."""

    endpoint: _EndpointName
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
    parameters: _EndpointParameters = {}
    max_rows: MaxRows = DEFAULT_MAX_ROWS


class StreamQueryArguments(msgspec.Struct):
    """The arguments of the tool `query_streams`."""

    sql: Annotated[
        str,
        msgspec.Meta(
            description="One SELECT in BigQuery's dialect. A stream is a table in backquotes.",
            examples=["select timestamp, event_message from `postgres.logs` order by timestamp desc limit 20"],
        ),
    ]
    max_rows: MaxRows = DEFAULT_MAX_ROWS


def _query_tools(view: KeyPermissions) -> list[Tool]:
    """Return the tools that run queries written by the agent, without those that the key may not use."""
    return [
        *_endpoint_query_tool(view.sandboxable_endpoints),
        *([_stream_query_tool()] if view.may_read_streams else []),
    ]


def _endpoint_query_tool(endpoints: Sequence[QueryableEndpoint]) -> list[Tool]:
    if not endpoints:
        return []
    names = ", ".join(f"{one.name} ({_sql_dialect_name(one)})" for one in endpoints[:_MAX_LISTED_ENDPOINT_NAMES])
    names += ", …" if len(endpoints) > _MAX_LISTED_ENDPOINT_NAMES else ""
    description = (
        f"Runs a query of your own, in SQL or LQL, over the tables of an endpoint: {names}. The tool list_tables has their columns. "
        f"{_SQL_EXPLANATION} {_LQL_EXPLANATION} Only reads; a refusal names the place and what to change. Aggregate, or select few columns and rows."
    )
    schema = argument_schema(QueryArguments, endpoint=[one.name for one in endpoints])
    return [
        Tool(_QUERY_TOOL_NAME, "Query an endpoint's tables", description, schema, partial(_query_endpoint, endpoints))
    ]


def _sql_dialect_name(endpoint: QueryableEndpoint) -> str:
    return "ClickHouse SQL" if endpoint.language == "ch_sql" else "BigQuery SQL"


async def _query_endpoint(
    endpoints: Sequence[QueryableEndpoint], api: ApiClient, raw_arguments: ToolArguments
) -> object:
    arguments = convert_arguments(QueryArguments, raw_arguments)
    endpoint = _find_endpoint(endpoints, arguments.endpoint)
    texts = {name: text for name, text in (("sql", arguments.sql), ("lql", arguments.lql)) if text}
    if len(texts) != 1:
        raise RefusedCallError("Send either sql or lql.")
    parameters = _merge_query_parameters(endpoint, arguments.parameters, texts)
    bounds = ToolAnswerLimits(_effective_row_limit(arguments.max_rows, endpoint.max_limit))
    return await fetch_endpoint_rows(api, endpoint, parameters, bounds, next(iter(texts.values())))


def _find_endpoint(endpoints: Sequence[QueryableEndpoint], name: str) -> QueryableEndpoint:
    """Return the endpoint with this name or UUID; raise RefusedCallError if there is none in `endpoints`."""
    found = next((one for one in endpoints if name in (one.name, one.token)), None)
    if found is None:
        names = [one.name for one in endpoints]
        hint = did_you_mean(name, names) or "There are: " + ", ".join(names[:_MAX_LISTED_ENDPOINT_NAMES])
        raise RefusedCallError(f"There is no endpoint {name[:60]!r} that takes a query. {hint}")
    return found


def _merge_query_parameters(
    endpoint: QueryableEndpoint, parameters: Mapping[str, object], texts: Mapping[str, str]
) -> dict[str, Any]:
    """Return the parameters of a call, together with `texts`, which are the parameters with the caller's own query.

    Raise RefusedCallError for a parameter that the endpoint does not declare.
    """
    for name in parameters:
        if name not in endpoint.parameters["properties"]:
            known = ", ".join(endpoint.parameters["properties"]) or "none"
            raise RefusedCallError(f"{endpoint.name} has no parameter {name[:60]!r}. It has: {known}.")
    return {**parameters, **texts}


def _stream_query_tool() -> Tool:
    description = (
        "Runs SQL of your own over whole streams, each a table in backquotes; the tool list_streams has them. Columns: id, timestamp, "
        f"event_message, metadata, and every other field at the top of its events, such as project. {_SQL_EXPLANATION} Only reads."
    )
    schema = argument_schema(StreamQueryArguments)
    return Tool(_QUERY_STREAMS_TOOL_NAME, "Query streams", description, schema, _query_streams)


async def _query_streams(api: ApiClient, raw_arguments: ToolArguments) -> object:
    arguments = convert_arguments(StreamQueryArguments, raw_arguments)
    return await fetch_stream_rows(
        api, arguments.sql, ToolAnswerLimits(_effective_row_limit(arguments.max_rows, MAX_ANSWER_ROWS))
    )


_LIST_TABLES_TOOL_NAME: Final = "list_tables"
_LIST_STREAMS_TOOL_NAME: Final = "list_streams"
_MAX_LISTED_FIELDS: Final = 400
_MAX_LISTED_CATALOG_ENTRIES: Final = 500

PathPrefix = Annotated[
    str, msgspec.Meta(description="Only fields whose path begins with this one.", examples=["metadata.request"])
]


class ListTablesArguments(msgspec.Struct):
    """The arguments of the tool `list_tables`."""

    endpoint: _EndpointName
    table: Annotated[str, msgspec.Meta(description="A table whose fields are wanted.")] = ""
    under: PathPrefix = ""


class ListStreamsArguments(msgspec.Struct):
    """The arguments of the tool `list_streams`."""

    stream: Annotated[str, msgspec.Meta(description="A stream whose fields are wanted.")] = ""
    under: PathPrefix = ""


def _catalog_tools(view: KeyPermissions) -> list[Tool]:
    """Return the tools that list tables and streams, without those that the key may not use."""
    return [*_list_tables_tool(view.sandboxable_endpoints), *([_list_streams_tool()] if view.is_private else [])]


def _tables_url_path(endpoint: str) -> str:
    return f"/api/endpoints/{quote(endpoint, safe='')}/scope"


def _stream_schema_url_path(stream: str) -> str:
    return f"/api/sources/{quote(stream, safe='')}/schema"


def _list_tables_tool(endpoints: Sequence[QueryableEndpoint]) -> list[Tool]:
    if not endpoints:
        return []
    description = (
        "Lists the tables of an endpoint that the tool query may read, with their columns. With table= it lists the fields that "
        "were seen inside of that table's columns, such as metadata.request.path."
    )
    schema = argument_schema(ListTablesArguments, endpoint=[one.name for one in endpoints])
    return [
        Tool(_LIST_TABLES_TOOL_NAME, "List an endpoint's tables", description, schema, partial(_list_tables, endpoints))
    ]


async def _list_tables(endpoints: Sequence[QueryableEndpoint], api: ApiClient, raw_arguments: ToolArguments) -> object:
    arguments = convert_arguments(ListTablesArguments, raw_arguments)
    endpoint = _find_endpoint(endpoints, arguments.endpoint)
    tables: Mapping[str, Any] = {
        one["name"]: one for one in (await fetch_json_document(api, _tables_url_path(endpoint.name)))["sub_queries"]
    }
    if not arguments.table:
        return {
            "endpoint": endpoint.name,
            "tables": [_table_summary(one) for one in islice(tables.values(), _MAX_LISTED_CATALOG_ENTRIES)],
        }
    table = tables.get(arguments.table)
    if table is None:
        hint = did_you_mean(arguments.table, tables) or "There are: " + ", ".join(
            islice(tables, _MAX_LISTED_CATALOG_ENTRIES)
        )
        raise RefusedCallError(f"{endpoint.name} has no table {arguments.table[:60]!r}. {hint}")
    fields = (
        (".".join((column["name"], *field["path"])), "|".join(field["kinds"]))
        for column in table["columns"]
        for field in column["fields"]
    )
    return {**_table_summary(table), **_list_fields_below(fields, arguments.under)}


def _table_summary(table: Mapping[str, Any]) -> dict[str, Any]:
    columns = [
        {"name": column["name"], "type": column["type"] or "any", "fields": len(column["fields"])}
        for column in islice(table["columns"], _MAX_LISTED_CATALOG_ENTRIES)
    ]
    return {"table": table["name"], "columns": columns}


def _list_streams_tool() -> Tool:
    description = (
        "Lists the streams with the number of their events and the times of the oldest and the newest, in microseconds since 1970. "
        "With stream= it lists the fields that were seen in its events."
    )
    return Tool(
        _LIST_STREAMS_TOOL_NAME, "List streams", description, argument_schema(ListStreamsArguments), _list_streams
    )


async def _list_streams(api: ApiClient, raw_arguments: ToolArguments) -> object:
    arguments = convert_arguments(ListStreamsArguments, raw_arguments)
    if not arguments.stream:
        streams = await fetch_json_document(api, "/api/sources")
        return {
            "streams": [_stream_summary(one) for one in islice(streams, _MAX_LISTED_CATALOG_ENTRIES)],
            "stream_count": len(streams),
        }
    flat: Mapping[str, str] = await fetch_json_document(api, f"{_stream_schema_url_path(arguments.stream)}?variant=dot")
    return {"stream": arguments.stream, **_list_fields_below(flat.items(), arguments.under)}


def _stream_summary(stream: Mapping[str, Any]) -> dict[str, Any]:
    return {name: stream.get(name) for name in ("name", "description", "events", "oldest", "newest")}


def _list_fields_below(fields: Iterable[tuple[str, str]], parent_path: str) -> dict[str, Any]:
    """Return the fields whose paths begin with `parent_path`, up to a maximum number.

    If fields were left out, a note says how many fields there are in all.
    """
    found = [
        pair
        for pair in fields
        if pair[0] == parent_path or pair[0].startswith(f"{parent_path}." if parent_path else "")
    ]
    result: dict[str, Any] = {"fields": dict(found[:_MAX_LISTED_FIELDS])}
    if len(found) > _MAX_LISTED_FIELDS:
        result["truncated"] = (
            f"{_MAX_LISTED_FIELDS} of {len(found)} fields are listed: name a path in under= to see the others."
        )
    return result


_READ_EVENT_TOOL_NAME: Final = "read_event"
_MAX_NEIGHBOUR_EVENTS: Final = 20
_SINGLE_EVENT_ANSWER_LIMITS: Final = ToolAnswerLimits(1)
# The maximum bytes of the events before the requested event. The same maximum applies to the events after it.
_MAX_NEIGHBOURS_ANSWER_BYTES: Final = MAX_ANSWER_ROWS_BYTES // 4
_MAX_EVENT_ID_LENGTH: Final = 300
_MAX_TABLE_NAME_LENGTH: Final = 200
_NO_CONTROL_CHARACTERS_PATTERN: Final = r"^[^\x00-\x1f\x7f]+$"

EventId = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=_MAX_EVENT_ID_LENGTH,
        pattern=_NO_CONTROL_CHARACTERS_PATTERN,
        description="The id of the event.",
    ),
]
NeighbourEventCount = Annotated[int, msgspec.Meta(ge=0, le=_MAX_NEIGHBOUR_EVENTS)]
PrecedingEventCount = Annotated[NeighbourEventCount, msgspec.Meta(description="How many events before it to return.")]
FollowingEventCount = Annotated[NeighbourEventCount, msgspec.Meta(description="How many events after it to return.")]
RunSqlQuery = Callable[[str, ToolAnswerLimits], Awaitable[dict[str, Any]]]
TableName = Annotated[
    str, msgspec.Meta(min_length=1, max_length=_MAX_TABLE_NAME_LENGTH, pattern=_NO_CONTROL_CHARACTERS_PATTERN)
]


class StreamEventArguments(msgspec.Struct):
    """The arguments of the tool `read_event` for a key that may read whole streams."""

    stream: Annotated[TableName, msgspec.Meta(description="The stream of the event.", examples=["postgres.logs"])]
    id: EventId
    before: PrecedingEventCount = 5
    after: FollowingEventCount = 5


class TableEventArguments(msgspec.Struct):
    """The arguments of the tool `read_event` for a key that may read only the sub-queries of endpoints."""

    endpoint: _EndpointName
    table: Annotated[
        TableName,
        msgspec.Meta(
            description="The table of the event, which needs the columns id and timestamp.", examples=["edge_logs"]
        ),
    ]
    id: EventId
    parameters: _EndpointParameters = {}
    before: PrecedingEventCount = 5
    after: FollowingEventCount = 5


class _TableReader:
    """Reads rows of one table by SQL queries, and collects the notes about what was left out.

    `run_query` runs one query.
    """

    def __init__(self, run_query: RunSqlQuery, table: str) -> None:
        self.quoted_table_name = table
        self.truncation_notes: dict[str, Any] = {}
        self._run_query = run_query

    async def read_rows(self, condition: str, order: str, bounds: ToolAnswerLimits) -> list[Any]:
        if not bounds.max_rows:
            return []
        sql = (
            f"select t.* from {self.quoted_table_name} as t where {condition} order by {order} limit {bounds.max_rows}"  # noqa: S608 - its names and values are quoted
        )
        answer = await self._run_query(sql, bounds)
        self.truncation_notes |= {name: answer[name] for name in ("truncated", "shortened") if name in answer}
        return list(answer["rows"])


def _event_tools(view: KeyPermissions) -> list[Tool]:
    """Return a list with the tool that reads an event. The list is empty if the key may not read single events."""
    description = "Reads one event by its id, and the events before and after it in time."
    if view.may_read_streams:
        schema = argument_schema(StreamEventArguments)
        return [Tool(_READ_EVENT_TOOL_NAME, "Read an event", description, schema, _read_stream_event)]
    endpoints = [one for one in view.sandboxable_endpoints if one.language == "bq_sql"]
    if not endpoints:
        return []
    schema = argument_schema(TableEventArguments, endpoint=[one.name for one in endpoints])
    return [Tool(_READ_EVENT_TOOL_NAME, "Read an event", description, schema, partial(_read_table_event, endpoints))]


async def _read_stream_event(api: ApiClient, raw_arguments: ToolArguments) -> object:
    arguments = convert_arguments(StreamEventArguments, raw_arguments)

    async def run_query(sql: str, bounds: ToolAnswerLimits) -> dict[str, Any]:
        return await fetch_stream_rows(api, sql, bounds)

    return await _read_event_with_neighbours(
        _TableReader(run_query, quote_sql_identifier(arguments.stream)), arguments.id, arguments.before, arguments.after
    )


async def _read_table_event(
    endpoints: Sequence[QueryableEndpoint], api: ApiClient, raw_arguments: ToolArguments
) -> object:
    arguments = convert_arguments(TableEventArguments, raw_arguments)
    endpoint = _find_endpoint(endpoints, arguments.endpoint)

    async def run_query(sql: str, bounds: ToolAnswerLimits) -> dict[str, Any]:
        parameters = _merge_query_parameters(endpoint, arguments.parameters, {"sql": sql})
        return await fetch_endpoint_rows(api, endpoint, parameters, bounds, sql)

    return await _read_event_with_neighbours(
        _TableReader(run_query, quote_sql_identifier(arguments.table)), arguments.id, arguments.before, arguments.after
    )


async def _read_event_with_neighbours(reading: _TableReader, event_id: str, before: int, after: int) -> object:
    name = quote_sql_string(event_id)
    found = await reading.read_rows(f"t.id = {name}", "t.timestamp desc", _SINGLE_EVENT_ANSWER_LIMITS)
    if not found:
        raise RefusedCallError(f"There is no event with the id {event_id!r} in {reading.quoted_table_name}.")
    at_us = msgspec.json.decode(found[0]).get("timestamp")
    if not isinstance(at_us, int):
        raise RefusedCallError(
            f"{reading.quoted_table_name} has no column timestamp, so the events before and after it cannot be found."
        )
    at = f"timestamp_micros({at_us})"
    earlier = f"(t.timestamp < {at} or (t.timestamp = {at} and t.id < {name}))"
    later = f"(t.timestamp > {at} or (t.timestamp = {at} and t.id > {name}))"
    max_before, max_after = (
        ToolAnswerLimits(before, _MAX_NEIGHBOURS_ANSWER_BYTES),
        ToolAnswerLimits(after, _MAX_NEIGHBOURS_ANSWER_BYTES),
    )
    rows_before = await reading.read_rows(
        f"t.timestamp <= {at} and {earlier}", "t.timestamp desc, t.id desc", max_before
    )
    rows_after = await reading.read_rows(f"t.timestamp >= {at} and {later}", "t.timestamp, t.id", max_after)
    return {**reading.truncation_notes, "event": found[0], "before": rows_before[::-1], "after": rows_after}


def quote_sql_identifier(name: str) -> str:
    """Return a table's name as it is written in SQL: in backquotes."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def quote_sql_string(text: str) -> str:
    """Return a text as a BigQuery string literal.

    The text has no control characters, because the schema of the arguments does not permit them.
    """
    return "'" + re.sub(r"([\\'])", r"\\\1", text) + "'"


_BUILT_IN_TOOL_NAMES: Final = (
    _QUERY_TOOL_NAME,
    _QUERY_STREAMS_TOOL_NAME,
    _LIST_TABLES_TOOL_NAME,
    _LIST_STREAMS_TOOL_NAME,
    _READ_EVENT_TOOL_NAME,
)
# The maximum bytes of any answer's text. The limits of each tool should keep its answers below this maximum.
MAX_TOOL_ANSWER_BYTES: Final = 200_000
# The error message for JSON escapes of unpaired surrogates, which UTF-8 cannot encode.
INVALID_UNICODE_MESSAGE: Final = "A text of the call is not valid Unicode."
_TABLES, _SCHEMA = "cordwood://endpoints/", "cordwood://streams/"


class ToolAnswer(msgspec.Struct, frozen=True):
    """The answer of a tool as text. `is_error` is true if the text reports an error."""

    text: str
    is_error: bool = False


class AgentResource(msgspec.Struct, frozen=True):
    """A document that an agent may read, such as the schema of a stream."""

    uri: str
    name: str
    description: str


def create_tools_for_key(view: KeyPermissions) -> list[Tool]:
    """Return all tools that the key may use.

    First come the tools for queries, for listing tables and streams, and for reading events; then one tool for each
    endpoint.
    """
    return [
        *_query_tools(view),
        *_catalog_tools(view),
        *_event_tools(view),
        *_endpoint_tools(view.endpoints, _BUILT_IN_TOOL_NAMES),
    ]


async def call_tool(api: ApiClient, name: str, arguments: ToolArguments) -> ToolAnswer:
    """Run a tool and return its answer. Errors are returned as answers too, so that the agent can correct its call."""
    try:
        tools = create_tools_for_key(await api.fetch_permissions())
        tool = next((tool for tool in tools if tool.name == name), None)
        if tool is None:
            hint = did_you_mean(name, [tool.name for tool in tools]) or ""
            return ToolAnswer(f"There is no tool {name[:60]!r}. {hint}".strip(), is_error=True)
        return ToolAnswer(_encode_json_within_limit(await tool.run(api, arguments)))
    except RefusedCallError as refused:
        return ToolAnswer(refused.message_for_agent, is_error=True)
    except Fault as fault:
        return ToolAnswer(fault_text(fault), is_error=True)
    except UnicodeEncodeError:
        return ToolAnswer(INVALID_UNICODE_MESSAGE, is_error=True)


def _encode_json_within_limit(value: Any) -> str:
    encoded = msgspec.json.encode(value)
    if len(encoded) > MAX_TOOL_ANSWER_BYTES:
        raise RefusedCallError(
            f"The answer is larger than {MAX_TOOL_ANSWER_BYTES} bytes. The tools list_tables and list_streams take under= for a part of it."
        )
    return encoded.decode()


async def list_resources(api: ApiClient) -> list[AgentResource]:
    """Return the resources for a key.

    They are the tables of each endpoint that accepts sandbox queries and, for a private key, the schema of each stream.
    """
    view = await api.fetch_permissions()
    names = [one["name"] for one in await fetch_json_document(api, "/api/sources")] if view.is_private else []
    return [*map(_tables_resource, view.sandboxable_endpoints), *map(_schema_resource, names)]


def _tables_resource(endpoint: QueryableEndpoint) -> AgentResource:
    uri = f"{_TABLES}{quote(endpoint.name, safe='')}/tables"
    description = "The tables that a query of your own may read there, with their columns and fields."
    return AgentResource(uri, f"Tables of {endpoint.name}", description)


def _schema_resource(stream: str) -> AgentResource:
    uri = f"{_SCHEMA}{quote(stream, safe='')}/schema"
    return AgentResource(uri, f"Schema of {stream}", "The JSON Schema of the events that were seen in the stream.")


async def read_resource(api: ApiClient, uri: str) -> str:
    """Return the content of a resource; raise RefusedCallError if the resource does not exist or is too large."""
    for prefix, suffix, path in ((_TABLES, "/tables", _tables_url_path), (_SCHEMA, "/schema", _stream_schema_url_path)):
        name = uri.removeprefix(prefix).removesuffix(suffix)
        if uri == f"{prefix}{name}{suffix}" and "/" not in name:
            return _encode_json_within_limit(await fetch_json_document(api, path(unquote(name))))
    raise RefusedCallError(f"There is no resource {uri[:200]!r}.")


def agent_instructions(view: KeyPermissions) -> str:
    """Return the text that tells an agent how to use the service with this key."""
    sentences = [
        "cordwood answers saved queries over streams of log events.",
        *(
            ["Start with list_tables, then aggregate with query before reading single events."]
            if view.sandboxable_endpoints
            else []
        ),
        "Answers are cut to max_rows and to 40 kB and say so in truncated. Times are in microseconds since 1970, UTC.",
    ]
    if view.pins:
        pinned = ", ".join(f"{name} = {value}" for name, value in view.pins.items())
        sentences.append(f"This key is pinned to {pinned}: leave these parameters out.")
    if view.redact:
        sentences.append("Personal data in answers is redacted.")
    return " ".join(sentences)
