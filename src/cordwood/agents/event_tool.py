"""The tool that reads one event and its neighbours in time."""

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from cordwood.agents.answers import MOST_BYTES, Bounds, ask_endpoint, ask_streams
from cordwood.agents.api import KeyedApi, KeyView, OfferedEndpoint
from cordwood.agents.query_tools import EndpointName, Parameters, named_endpoint, with_query
from cordwood.agents.tool import Arguments, RefusedCallError, Tool, argument_schema, arguments_of

READ_EVENT: Final = "read_event"
_MOST_NEIGHBOURS: Final = 20
# The event may take as much as half of an answer, and its neighbours on either side a quarter.
_EVENT: Final = Bounds(1)
_NEIGHBOUR_BYTES: Final = MOST_BYTES // 4
_LONGEST_ID: Final = 300
_LONGEST_TABLE: Final = 200
_PRINTABLE: Final = r"^[^\x00-\x1f\x7f]+$"

EventId = Annotated[
    str, msgspec.Meta(min_length=1, max_length=_LONGEST_ID, pattern=_PRINTABLE, description="The id of the event.")
]
Neighbours = Annotated[int, msgspec.Meta(ge=0, le=_MOST_NEIGHBOURS)]
Before = Annotated[Neighbours, msgspec.Meta(description="How many events before it to return.")]
After = Annotated[Neighbours, msgspec.Meta(description="How many events after it to return.")]
Ask = Callable[[str, Bounds], Awaitable[dict[str, Any]]]
TableName = Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST_TABLE, pattern=_PRINTABLE)]


class StreamEventArguments(msgspec.Struct):
    """The arguments for a key that may read whole streams."""

    stream: Annotated[TableName, msgspec.Meta(description="The stream of the event.", examples=["postgres.logs"])]
    id: EventId
    before: Before = 5
    after: After = 5


class TableEventArguments(msgspec.Struct):
    """The arguments for a key that reads an endpoint's tables."""

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


class _Reading:
    """Reads rows of a table by a function from SQL and bounds to rows; collects what their answers state."""

    def __init__(self, ask: Ask, table: str) -> None:
        self.table = table
        self.statements: dict[str, Any] = {}
        self._ask = ask

    async def rows(self, condition: str, order: str, bounds: Bounds) -> list[Any]:
        if not bounds.rows:
            return []
        sql = f"select t.* from {self.table} as t where {condition} order by {order} limit {bounds.rows}"  # noqa: S608 - its names and values are quoted
        told = await self._ask(sql, bounds)
        self.statements |= {name: told[name] for name in ("truncated", "shortened") if name in told}
        return list(told["rows"])


def event_tools(view: KeyView) -> list[Tool]:
    """Return the tool that a key may use, if any."""
    description = "Reads one event by its id, and the events before and after it in time."
    if view.may_read_streams:
        schema = argument_schema(StreamEventArguments)
        return [Tool(READ_EVENT, "Read an event", description, schema, _read_of_stream)]
    endpoints = [one for one in view.sandboxes if one.language == "bq_sql"]
    if not endpoints:
        return []
    schema = argument_schema(TableEventArguments, endpoint=[one.name for one in endpoints])
    return [Tool(READ_EVENT, "Read an event", description, schema, partial(_read_of_table, endpoints))]


async def _read_of_stream(api: KeyedApi, given: Arguments) -> object:
    arguments = arguments_of(StreamEventArguments, given)

    async def ask(sql: str, bounds: Bounds) -> dict[str, Any]:
        return await ask_streams(api, sql, bounds)

    return await _read(_Reading(ask, quoted_name(arguments.stream)), arguments.id, arguments.before, arguments.after)


async def _read_of_table(endpoints: Sequence[OfferedEndpoint], api: KeyedApi, given: Arguments) -> object:
    arguments = arguments_of(TableEventArguments, given)
    endpoint = named_endpoint(endpoints, arguments.endpoint)

    async def ask(sql: str, bounds: Bounds) -> dict[str, Any]:
        parameters = with_query(endpoint, arguments.parameters, {"sql": sql})
        return await ask_endpoint(api, endpoint, parameters, bounds, sql)

    return await _read(_Reading(ask, quoted_name(arguments.table)), arguments.id, arguments.before, arguments.after)


async def _read(reading: _Reading, event_id: str, before: int, after: int) -> object:
    name = quoted_text(event_id)
    found = await reading.rows(f"t.id = {name}", "t.timestamp desc", _EVENT)
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
    most_before, most_after = Bounds(before, _NEIGHBOUR_BYTES), Bounds(after, _NEIGHBOUR_BYTES)
    rows_before = await reading.rows(f"t.timestamp <= {at} and {earlier}", "t.timestamp desc, t.id desc", most_before)
    rows_after = await reading.rows(f"t.timestamp >= {at} and {later}", "t.timestamp, t.id", most_after)
    return {**reading.statements, "event": found[0], "before": rows_before[::-1], "after": rows_after}


def quoted_name(name: str) -> str:
    """Quote a table's name in backquotes."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def quoted_text(text: str) -> str:
    """Quote a text as BigQuery does. Control characters are refused before."""
    return "'" + re.sub(r"([\\'])", r"\\\1", text) + "'"
