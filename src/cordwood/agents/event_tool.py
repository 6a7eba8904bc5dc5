"""The tool that reads one event, and the events before and after it in time."""

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from cordwood.agents.answers import MAX_BYTES, Bounds, ask_endpoint, ask_streams
from cordwood.agents.api import KeyedApi, KeyView, OfferedEndpoint
from cordwood.agents.query_tools import EndpointName, Parameters, named_endpoint, with_query
from cordwood.agents.tool import Arguments, RefusedCallError, Tool, argument_schema, arguments_of

READ_EVENT: Final = "read_event"
_MAX_NEIGHBOURS: Final = 20
# The event may take half of an answer, and the events on either side of it a quarter each.
_EVENT_BOUNDS: Final = Bounds(1)
_MAX_NEIGHBOUR_BYTES: Final = MAX_BYTES // 4
_MAX_ID_LENGTH: Final = 300
_MAX_TABLE_LENGTH: Final = 200
_PRINTABLE: Final = r"^[^\x00-\x1f\x7f]+$"

EventId = Annotated[
    str, msgspec.Meta(min_length=1, max_length=_MAX_ID_LENGTH, pattern=_PRINTABLE, description="The id of the event.")
]
Neighbours = Annotated[int, msgspec.Meta(ge=0, le=_MAX_NEIGHBOURS)]
Before = Annotated[Neighbours, msgspec.Meta(description="How many events before it to return.")]
After = Annotated[Neighbours, msgspec.Meta(description="How many events after it to return.")]
RunQuery = Callable[[str, Bounds], Awaitable[dict[str, Any]]]
TableName = Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_TABLE_LENGTH, pattern=_PRINTABLE)]


class StreamEventArguments(msgspec.Struct):
    """The arguments of the tool for a key that may read whole streams."""

    stream: Annotated[TableName, msgspec.Meta(description="The stream of the event.", examples=["postgres.logs"])]
    id: EventId
    before: Before = 5
    after: After = 5


class TableEventArguments(msgspec.Struct):
    """The tool's arguments if the caller's API key may read events only through the sub-queries of endpoints."""

    endpoint: EndpointName
    table: Annotated[
        TableName,
        msgspec.Meta(
            description="The table of the event, which needs the columns id and timestamp.", examples=["edge_logs"]
        ),
    ]
    id: EventId
    parameters: Parameters = {}
    before: Before = 5
    after: After = 5


class _TableReader:
    """Reads rows of one table through the function `run_query`, and collects the notes about what was left out."""

    def __init__(self, run_query: RunQuery, table: str) -> None:
        self.table = table
        self.statements: dict[str, Any] = {}
        self._ask = run_query

    async def rows(self, condition: str, order: str, bounds: Bounds) -> list[Any]:
        if not bounds.rows:
            return []
        sql = f"select t.* from {self.table} as t where {condition} order by {order} limit {bounds.rows}"  # noqa: S608 - its names and values are quoted
        answer = await self._ask(sql, bounds)
        self.statements |= {name: answer[name] for name in ("truncated", "shortened") if name in answer}
        return list(answer["rows"])


def event_tools(view: KeyView) -> list[Tool]:
    """Return the tool to read an event, or nothing if the key may not read any table with events."""
    description = "Reads one event by its id, and the events before and after it in time."
    if view.may_read_streams:
        schema = argument_schema(StreamEventArguments)
        return [Tool(READ_EVENT, "Read an event", description, schema, _read_from_stream)]
    endpoints = [one for one in view.sandboxes if one.language == "bq_sql"]
    if not endpoints:
        return []
    schema = argument_schema(TableEventArguments, endpoint=[one.name for one in endpoints])
    return [Tool(READ_EVENT, "Read an event", description, schema, partial(_read_from_table, endpoints))]


async def _read_from_stream(api: KeyedApi, raw_arguments: Arguments) -> object:
    arguments = arguments_of(StreamEventArguments, raw_arguments)

    async def run_query(sql: str, bounds: Bounds) -> dict[str, Any]:
        return await ask_streams(api, sql, bounds)

    return await _read_with_neighbours(
        _TableReader(run_query, quoted_name(arguments.stream)), arguments.id, arguments.before, arguments.after
    )


async def _read_from_table(endpoints: Sequence[OfferedEndpoint], api: KeyedApi, raw_arguments: Arguments) -> object:
    arguments = arguments_of(TableEventArguments, raw_arguments)
    endpoint = named_endpoint(endpoints, arguments.endpoint)

    async def run_query(sql: str, bounds: Bounds) -> dict[str, Any]:
        parameters = with_query(endpoint, arguments.parameters, {"sql": sql})
        return await ask_endpoint(api, endpoint, parameters, bounds, sql)

    return await _read_with_neighbours(
        _TableReader(run_query, quoted_name(arguments.table)), arguments.id, arguments.before, arguments.after
    )


async def _read_with_neighbours(reading: _TableReader, event_id: str, before: int, after: int) -> object:
    name = quoted_text(event_id)
    found = await reading.rows(f"t.id = {name}", "t.timestamp desc", _EVENT_BOUNDS)
    if not found:
        raise RefusedCallError(f"There is no event with the id {event_id!r} in {reading.table}.")
    at_us = msgspec.json.decode(found[0]).get("timestamp")
    if not isinstance(at_us, int):
        raise RefusedCallError(
            f"{reading.table} has no column timestamp, so nothing is known of the event's neighbours."
        )
    at = f"timestamp_micros({at_us})"
    earlier = f"(t.timestamp < {at} or (t.timestamp = {at} and t.id < {name}))"
    later = f"(t.timestamp > {at} or (t.timestamp = {at} and t.id > {name}))"
    max_before, max_after = Bounds(before, _MAX_NEIGHBOUR_BYTES), Bounds(after, _MAX_NEIGHBOUR_BYTES)
    rows_before = await reading.rows(f"t.timestamp <= {at} and {earlier}", "t.timestamp desc, t.id desc", max_before)
    rows_after = await reading.rows(f"t.timestamp >= {at} and {later}", "t.timestamp, t.id", max_after)
    return {**reading.statements, "event": found[0], "before": rows_before[::-1], "after": rows_after}


def quoted_name(name: str) -> str:
    """Write a table's name in SQL, in backquotes."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def quoted_text(text: str) -> str:
    """Write a text as a BigQuery string literal. Texts with control characters were refused before."""
    return "'" + re.sub(r"([\\'])", r"\\\1", text) + "'"
