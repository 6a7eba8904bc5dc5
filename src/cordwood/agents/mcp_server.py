"""The server of the Model Context Protocol, on standard input and output and behind an HTTP route.

It offers the tools of the module `toolset` through the protocol's official library. No other module imports this
library. Each server is created for one key. On standard input and output, a server serves one connection. Over HTTP, a
new server answers each message.
"""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final, TypeVar

from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListResourcesResult,
    ListToolsResult,
    ReadResourceRequestParams,
    ReadResourceResult,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from mcp.types import Resource as ResourceInfo
from mcp.types import Tool as ToolInfo

import cordwood
from cordwood.agents.api import ApiClient, KeyPermissions
from cordwood.agents.tool import RefusedCallError, Tool, fault_text
from cordwood.agents.toolset import (
    INVALID_UNICODE_MESSAGE,
    AgentResource,
    agent_instructions,
    call_tool,
    create_tools_for_key,
    list_resources,
    read_resource,
)
from cordwood.errors import Fault

T = TypeVar("T")

# The headers of a request that are not passed to the library, because the service has already checked the key and
# decompressed the body.
_HEADERS_NOT_FORWARDED: Final = frozenset({b"x-api-key", b"authorization", b"content-encoding", b"content-length"})
_JSON_MEDIA_TYPE: Final = "application/json"
_READ_ONLY_ANNOTATIONS: Final = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)


# Do not print the library's log messages. The client gets them in responses, and could fill standard error with them by
# sending invalid requests.
_MCP_LOGGER: Final = logging.getLogger("mcp")  # noqa: TID251 - the logger of the library
_MCP_LOGGER.addHandler(logging.NullHandler())
_MCP_LOGGER.propagate = False


def serve_standard_streams(api: ApiClient) -> None:
    """Answer the messages of one client on standard input and output, until standard input ends."""
    asyncio.run(_serve_on_standard_streams(api))


async def _serve_on_standard_streams(api: ApiClient) -> None:
    server = _McpRequestHandlers(api, traceback.print_exception).create_server(await api.fetch_permissions())
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def answer_message(api: ApiClient, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> tuple[int, bytes]:
    """Answer one message that was sent over HTTP; return the status and the body of the response.

    Unexpected errors are raised.
    """
    bugs: list[Exception] = []
    manager = StreamableHTTPSessionManager(
        app=_McpRequestHandlers(api, bugs.append).create_server(await api.fetch_permissions()),
        json_response=True,
        stateless=True,
        # Protection against DNS rebinding is not needed, because every request needs a key, which a malicious web page
        # does not have.
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    exchange = _AsgiMessageExchange(body)
    async with manager.run():
        await manager.handle_request(_asgi_scope(headers), exchange.receive, exchange.send)
    if bugs:
        raise bugs[0]
    return exchange.response_status, bytes(exchange.response_body)


class _McpRequestHandlers:
    """The handlers of the protocol's requests for one key.

    Unexpected errors are passed to `on_bug`; the agent is only told that an error occurred.
    """

    def __init__(self, api: ApiClient, on_bug: Callable[[Exception], object]) -> None:
        self._api_client = api
        self._report_unexpected_error = on_bug

    def create_server(self, view: KeyPermissions) -> "Server[Any]":
        return Server(
            "cordwood",
            version=cordwood.__version__,
            instructions=agent_instructions(view),
            # The library would list all tools to find arguments that are also sent as HTTP headers. No tool has such
            # arguments, so this function spares the library the listing.
            get_tool_input_schema=lambda _: None,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_read_resource=self._read_resource,
        )

    async def _list_tools(self, *_: object) -> ListToolsResult:
        view = await self._await_converting_errors(self._api_client.fetch_permissions())
        return ListToolsResult(tools=[_tool_info(tool) for tool in create_tools_for_key(view)])

    async def _call_tool(self, _: object, params: CallToolRequestParams) -> CallToolResult:
        answer = await self._await_converting_errors(call_tool(self._api_client, params.name, params.arguments or {}))
        return CallToolResult(content=[TextContent(type="text", text=answer.text)], is_error=answer.is_error)

    async def _list_resources(self, *_: object) -> ListResourcesResult:
        found = await self._await_converting_errors(list_resources(self._api_client))
        return ListResourcesResult(resources=[_resource_info(one) for one in found])

    async def _read_resource(self, _: object, params: ReadResourceRequestParams) -> ReadResourceResult:
        uri = str(params.uri)
        text = await self._await_converting_errors(read_resource(self._api_client, uri))
        return ReadResourceResult(contents=[TextResourceContents(uri=uri, text=text, mime_type=_JSON_MEDIA_TYPE)])

    async def _await_converting_errors(self, work: Awaitable[T]) -> T:
        """Await `work` and return its result; convert every exception to an error of the protocol."""
        try:
            return await work
        except RefusedCallError as refused:
            raise MCPError(INVALID_PARAMS, refused.message_for_agent) from refused
        except Fault as fault:
            raise MCPError(INTERNAL_ERROR, fault_text(fault)) from fault
        except UnicodeEncodeError as surrogates:
            raise MCPError(INVALID_PARAMS, INVALID_UNICODE_MESSAGE) from surrogates
        except Exception as bug:
            self._report_unexpected_error(bug)
            raise MCPError(INTERNAL_ERROR, "An internal error occurred.") from bug


def _tool_info(tool: Tool) -> ToolInfo:
    return ToolInfo(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.argument_schema,
        annotations=_READ_ONLY_ANNOTATIONS,
    )


def _resource_info(resource: AgentResource) -> ResourceInfo:
    return ResourceInfo(
        uri=resource.uri, name=resource.name, description=resource.description, mime_type=_JSON_MEDIA_TYPE
    )


def _asgi_scope(headers: Iterable[tuple[bytes, bytes]]) -> MutableMapping[str, Any]:
    """Return the ASGI scope of the HTTP request that the library is to answer."""
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/mcp",
        "raw_path": b"/mcp",
        "query_string": b"",
        "root_path": "",
        "headers": [(name, value) for name, value in headers if name not in _HEADERS_NOT_FORWARDED],
        "client": None,
        "server": None,
    }


class _AsgiMessageExchange:
    """The exchange of one message with the library, which is called as an ASGI application.

    The library receives the body of the message, and sends a status and a body.
    """

    def __init__(self, body: bytes) -> None:
        self.response_status = 500
        self.response_body = bytearray()
        self._request_body = body
        self._is_request_body_delivered = False

    async def receive(self) -> MutableMapping[str, Any]:
        if self._is_request_body_delivered:
            # The library now waits for a disconnection, so wait forever. If the client disconnects, the HTTP route
            # cancels this call.
            await asyncio.Event().wait()
        self._is_request_body_delivered = True
        return {"type": "http.request", "body": self._request_body, "more_body": False}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.response_status = message["status"]
        else:
            self.response_body += message.get("body", b"")
