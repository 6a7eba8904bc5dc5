"""The tools that list the tables of endpoints and the streams, with their fields."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec

from cordwood.agents.answers import read_document
from cordwood.agents.api import KeyedApi, KeyView, OfferedEndpoint
from cordwood.agents.query_tools import EndpointName, named_endpoint
from cordwood.agents.tool import Arguments, RefusedCallError, Tool, argument_schema, arguments_of
from cordwood.errors import did_you_mean

LIST_TABLES: Final = "list_tables"
LIST_STREAMS: Final = "list_streams"
_MAX_FIELDS: Final = 400
_MAX_LISTED_ITEMS: Final = 500

PathPrefix = Annotated[
    str, msgspec.Meta(description="Only fields whose path begins with this one.", examples=["metadata.request"])
]


class TableArguments(msgspec.Struct):
    """The arguments of the tool list_tables."""

    endpoint: EndpointName
    table: Annotated[str, msgspec.Meta(description="A table whose fields are wanted.")] = ""
    under: PathPrefix = ""


class StreamArguments(msgspec.Struct):
    """The arguments of the tool list_streams."""

    stream: Annotated[str, msgspec.Meta(description="A stream whose fields are wanted.")] = ""
    under: PathPrefix = ""


def catalog_tools(view: KeyView) -> list[Tool]:
    """Return the tools that a key may use."""
    return [*_tables(view.sandboxes), *([_streams()] if view.is_private else [])]


def tables_path(endpoint: str) -> str:
    return f"/api/endpoints/{quote(endpoint, safe='')}/scope"


def schema_path(stream: str) -> str:
    return f"/api/sources/{quote(stream, safe='')}/schema"


def _tables(endpoints: Sequence[OfferedEndpoint]) -> list[Tool]:
    if not endpoints:
        return []
    description = (
        "Lists the tables of an endpoint that the tool query may read, with their columns. With table= it lists the fields that "
        "were seen inside of that table's columns, such as metadata.request.path."
    )
    schema = argument_schema(TableArguments, endpoint=[one.name for one in endpoints])
    return [Tool(LIST_TABLES, "List an endpoint's tables", description, schema, partial(_list_tables, endpoints))]


async def _list_tables(endpoints: Sequence[OfferedEndpoint], api: KeyedApi, raw_arguments: Arguments) -> object:
    arguments = arguments_of(TableArguments, raw_arguments)
    endpoint = named_endpoint(endpoints, arguments.endpoint)
    tables: Mapping[str, Any] = {
        one["name"]: one for one in (await read_document(api, tables_path(endpoint.name)))["sub_queries"]
    }
    if not arguments.table:
        return {
            "endpoint": endpoint.name,
            "tables": [_table(one) for one in islice(tables.values(), _MAX_LISTED_ITEMS)],
        }
    table = tables.get(arguments.table)
    if table is None:
        hint = did_you_mean(arguments.table, tables) or "There are: " + ", ".join(islice(tables, _MAX_LISTED_ITEMS))
        raise RefusedCallError(f"{endpoint.name} has no table {arguments.table[:60]!r}. {hint}")
    fields = (
        (".".join((column["name"], *field["path"])), "|".join(field["kinds"]))
        for column in table["columns"]
        for field in column["fields"]
    )
    return {**_table(table), **_bounded_fields(fields, arguments.under)}


def _table(table: Mapping[str, Any]) -> dict[str, Any]:
    columns = [
        {"name": column["name"], "type": column["type"] or "any", "fields": len(column["fields"])}
        for column in islice(table["columns"], _MAX_LISTED_ITEMS)
    ]
    return {"table": table["name"], "columns": columns}


def _streams() -> Tool:
    description = (
        "Lists the streams with the number of their events and the times of the oldest and the newest, in microseconds since 1970. "
        "With stream= it lists the fields that were seen in its events."
    )
    return Tool(LIST_STREAMS, "List streams", description, argument_schema(StreamArguments), _list_streams)


async def _list_streams(api: KeyedApi, raw_arguments: Arguments) -> object:
    arguments = arguments_of(StreamArguments, raw_arguments)
    if not arguments.stream:
        streams = await read_document(api, "/api/sources")
        return {"streams": [_stream(one) for one in islice(streams, _MAX_LISTED_ITEMS)], "stream_count": len(streams)}
    flat: Mapping[str, str] = await read_document(api, f"{schema_path(arguments.stream)}?variant=dot")
    return {"stream": arguments.stream, **_bounded_fields(flat.items(), arguments.under)}


def _stream(stream: Mapping[str, Any]) -> dict[str, Any]:
    return {name: stream.get(name) for name in ("name", "description", "events", "oldest", "newest")}


def _bounded_fields(fields: Iterable[tuple[str, str]], parent_path: str) -> dict[str, Any]:
    """Return the first fields below a path, and their total number if some were left out."""
    found = [
        pair
        for pair in fields
        if pair[0] == parent_path or pair[0].startswith(f"{parent_path}." if parent_path else "")
    ]
    result: dict[str, Any] = {"fields": dict(found[:_MAX_FIELDS])}
    if len(found) > _MAX_FIELDS:
        result["truncated"] = (
            f"{_MAX_FIELDS} of {len(found)} fields are listed: name a path in under= to see the others."
        )
    return result
