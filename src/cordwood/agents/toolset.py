"""The tools and resources that a key may use, and the results of calls as text for an agent."""

from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from cordwood.agents.answers import read_document
from cordwood.agents.api import KeyedApi, KeyView, OfferedEndpoint
from cordwood.agents.catalog_tools import LIST_STREAMS, LIST_TABLES, catalog_tools, schema_path, tables_path
from cordwood.agents.event_tool import READ_EVENT, event_tools
from cordwood.agents.query_tools import QUERY, QUERY_STREAMS, endpoint_tools, query_tools
from cordwood.agents.tool import Arguments, RefusedCallError, Tool, fault_text
from cordwood.errors import Fault, did_you_mean

_BUILT_IN_TOOL_NAMES: Final = (QUERY, QUERY_STREAMS, LIST_TABLES, LIST_STREAMS, READ_EVENT)
# An upper bound on the text of any answer; the limits of each tool keep its answers below it.
MAX_TEXT_BYTES: Final = 200_000
# Escapes in JSON may be unpaired surrogates, which UTF-8 cannot encode.
INVALID_UNICODE_TEXT: Final = "A text of the call is not valid Unicode."
_TABLES, _SCHEMA = "cordwood://endpoints/", "cordwood://streams/"


class ToolAnswer(msgspec.Struct, frozen=True):
    """The text of a result, and whether it reports an error."""

    text: str
    is_error: bool = False


class Resource(msgspec.Struct, frozen=True):
    """A document that an agent may read."""

    uri: str
    name: str
    description: str


def tools_of(view: KeyView) -> list[Tool]:
    """Return the tools of a key: those for queries, for the catalog and for events, then one for each endpoint."""
    return [
        *query_tools(view),
        *catalog_tools(view),
        *event_tools(view),
        *endpoint_tools(view.endpoints, _BUILT_IN_TOOL_NAMES),
    ]


async def call_tool(api: KeyedApi, name: str, arguments: Arguments) -> ToolAnswer:
    """Run a tool. A refusal is returned as an answer, so that the agent can correct its call."""
    try:
        tools = tools_of(await api.key())
        tool = next((tool for tool in tools if tool.name == name), None)
        if tool is None:
            hint = did_you_mean(name, [tool.name for tool in tools]) or ""
            return ToolAnswer(f"There is no tool {name[:60]!r}. {hint}".strip(), is_error=True)
        return ToolAnswer(_bounded(await tool.run(api, arguments)))
    except RefusedCallError as refused:
        return ToolAnswer(refused.text, is_error=True)
    except Fault as fault:
        return ToolAnswer(fault_text(fault), is_error=True)
    except UnicodeEncodeError:
        return ToolAnswer(INVALID_UNICODE_TEXT, is_error=True)


def _bounded(value: Any) -> str:
    encoded = msgspec.json.encode(value)
    if len(encoded) > MAX_TEXT_BYTES:
        raise RefusedCallError(
            f"The answer is larger than {MAX_TEXT_BYTES} bytes. The tools list_tables and list_streams take under= for a part of it."
        )
    return encoded.decode()


async def list_resources(api: KeyedApi) -> list[Resource]:
    """Return the tables of each endpoint that takes queries and, for a private key, the schema of each stream."""
    view = await api.key()
    names = [one["name"] for one in await read_document(api, "/api/sources")] if view.is_private else []
    return [*map(_tables_resource, view.sandboxes), *map(_schema_resource, names)]


def _tables_resource(endpoint: OfferedEndpoint) -> Resource:
    uri = f"{_TABLES}{quote(endpoint.name, safe='')}/tables"
    description = "The tables that a query of your own may read there, with their columns and fields."
    return Resource(uri, f"Tables of {endpoint.name}", description)


def _schema_resource(stream: str) -> Resource:
    uri = f"{_SCHEMA}{quote(stream, safe='')}/schema"
    return Resource(uri, f"Schema of {stream}", "The JSON Schema of the events that were seen in the stream.")


async def read_resource(api: KeyedApi, uri: str) -> str:
    """Return the text of a resource; raise RefusedCallError if it does not exist or is too large."""
    for prefix, suffix, path in ((_TABLES, "/tables", tables_path), (_SCHEMA, "/schema", schema_path)):
        name = uri.removeprefix(prefix).removesuffix(suffix)
        if uri == f"{prefix}{name}{suffix}" and "/" not in name:
            return _bounded(await read_document(api, path(unquote(name))))
    raise RefusedCallError(f"There is no resource {uri[:200]!r}.")


def instructions(view: KeyView) -> str:
    """Return the instructions for an agent about the service as a whole."""
    sentences = [
        "cordwood answers saved queries over streams of log events.",
        *(
            ["Start with list_tables, then aggregate with query before reading single events."]
            if view.sandboxes
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
