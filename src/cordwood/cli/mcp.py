"""Offer a service's endpoints and streams to an AI agent, by the Model Context Protocol on standard input and output.

The agent's program starts this command, which sends the agent's calls to a running service with the given key; the
agent can read what this key may read. Needs the extra: pip install 'cordwood[mcp]'. A service offers the same over HTTP
at /mcp.

examples:
  cordwood mcp
  cordwood mcp --url https://logs.example.com --key "$KEY"
  cordwood mcp --redact
"""

import argparse
import asyncio
import http.client
import importlib
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import ModuleType

import msgspec

from cordwood.agents.api import ApiCall, ApiResponse, BodyCollector, KeyPermissions, OnChunk, truncated_response_fault
from cordwood.agents.tool import refused_call_error
from cordwood.cli.arguments import add_config_option, add_data_dir_option, load_settings_with_flags
from cordwood.cli.client import (
    PathRequest,
    RemoteService,
    add_service_options,
    find_service_on_data_folder,
    new_connection,
    remote_service_from_arguments,
)
from cordwood.errors import BadSetting, RefusedByService, ServiceUnreachable
from cordwood.settings.settings import Settings

# The service is asked for the permissions of the key again after this number of seconds.
_PERMISSIONS_MAX_AGE_SECONDS = 5.0
_RESPONSE_CHUNK_BYTES = 64 * 1024
_MAX_ERROR_BODY_BYTES = 256 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_service_options(parser)
    add_data_dir_option(parser)
    add_config_option(parser)
    parser.add_argument("--redact", action="store_true", help="redact personal data in every answer")


def run(arguments: argparse.Namespace) -> int:
    headers = {"LF-ENDPOINT-REDACT-PII": "true"} if arguments.redact else {}
    api = RemoteApi(_service_finder(arguments), headers)
    # Let Ctrl-C end the process at once, because the thread that reads standard input cannot be interrupted.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _import_mcp_server().serve_standard_streams(api)
    return 0


def _service_finder(arguments: argparse.Namespace) -> Callable[[], RemoteService]:
    """Return a function that finds the service for a request.

    If a flag or the environment gives a URL, the function always returns the service at this URL. Otherwise it returns
    the service that owns the data folder at the time of the call.
    """
    remote = remote_service_from_arguments(arguments)
    if remote is not None:
        return lambda: remote
    settings = load_settings_with_flags(arguments).settings
    return lambda: _require_service_on_data_folder(settings, arguments.key)


def _require_service_on_data_folder(settings: Settings, key: str | None) -> RemoteService:
    found = find_service_on_data_folder(settings, key)
    if found is None:
        raise ServiceUnreachable(
            "No service runs on the data folder.",
            hint="Start one with `cordwood serve`, or name it: --url, or --data-dir.",
        )
    return found


def _import_mcp_server() -> ModuleType:
    try:
        return importlib.import_module("cordwood.agents.mcp_server")
    except ModuleNotFoundError as missing:
        raise BadSetting(
            f"cordwood mcp needs {missing.name}, which is not installed.",
            hint="Install it: pip install 'cordwood[mcp]'.",
        ) from missing


class RemoteApi:
    """Sends the requests of tools to a service, and adds `headers` to each request.

    `find_remote` is called for each request. The reason is that a service on a data folder may have another address and
    another key after a restart.
    """

    def __init__(self, find_remote: Callable[[], RemoteService], headers: Mapping[str, str]) -> None:
        self._find_remote_service = find_remote
        self._extra_headers = headers
        self._cached_permissions: KeyPermissions | None = None
        self._permissions_fetched_at = 0.0

    async def fetch_permissions(self) -> KeyPermissions:
        now = time.monotonic()
        if self._cached_permissions is None or now - self._permissions_fetched_at > _PERMISSIONS_MAX_AGE_SECONDS:
            body = BodyCollector()
            reply = await self.send(ApiCall("/api/key"), body.add_chunk)
            if reply.status >= 400:
                raise RefusedByService(refused_call_error(reply).message_for_agent)
            self._cached_permissions, self._permissions_fetched_at = _decode_permissions(body), now
        return self._cached_permissions

    async def send(self, call: ApiCall, on_chunk: OnChunk) -> ApiResponse:
        exchange = _CancellableRequest(self._find_remote_service(), self._extra_headers)
        try:
            return await asyncio.to_thread(exchange.run, call, on_chunk)
        except asyncio.CancelledError:
            exchange.cancel()
            raise


def _decode_permissions(body: BodyCollector) -> KeyPermissions:
    try:
        return msgspec.convert(body.decode_json(), KeyPermissions)
    except msgspec.ValidationError as problem:
        raise RefusedByService(
            "The service is of another version.", hint="Install the same version of cordwood."
        ) from problem


class _CancellableRequest:
    """An HTTP request that one thread sends and another thread may cancel."""

    def __init__(self, remote: RemoteService, headers: Mapping[str, str]) -> None:
        self._remote_service = remote
        self._extra_headers = headers
        self._connection = new_connection(remote.url, remote.timeout_seconds)
        self._is_cancelled = False

    def run(self, call: ApiCall, on_chunk: OnChunk) -> ApiResponse:
        """Send the request, and pass the body of a successful response to `on_chunk`.

        Stop when `on_chunk` returns False.
        """
        remote = self._remote_service
        try:
            headers = {**self._extra_headers, **call.headers}
            remote.send_request(self._connection, PathRequest(call.method, call.path, call.body, headers))
            if self._is_cancelled:
                # The request was cancelled while the connection was being made.
                return ApiResponse(0, [])
            answer = self._connection.getresponse()
            received = [(name.lower(), value) for name, value in answer.getheaders()]
            if answer.status >= 400:
                return ApiResponse(answer.status, received, answer.read(_MAX_ERROR_BODY_BYTES))
            _forward_body(answer, on_chunk)
        except (OSError, http.client.HTTPException) as problem:
            raise ServiceUnreachable(f"No service answers at {remote.url}: {problem}.") from problem
        finally:
            self._connection.close()
        return ApiResponse(answer.status, received)

    def cancel(self) -> None:
        """Cancel the request from another thread, by closing the connection.

        The service then stops the query, because its client has disconnected.
        """
        self._is_cancelled = True
        connected = self._connection.sock
        if connected is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)


def _forward_body(answer: http.client.HTTPResponse, on_chunk: OnChunk) -> None:
    """Pass the body to `on_chunk` as it arrives, until `on_chunk` returns False.

    Raise RefusedByService if the body is incomplete.
    """
    try:
        while chunk := answer.read1(_RESPONSE_CHUNK_BYTES):
            if not on_chunk(chunk):
                return
    except (ConnectionError, http.client.HTTPException) as broken:
        raise truncated_response_fault() from broken
    if answer.length:
        raise truncated_response_fault()
