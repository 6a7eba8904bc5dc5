"""The API of a running service with one key, for the tools of agents: requests over HTTP that can be ended at once."""

import asyncio
import http.client
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from cordwood.agents.api import ApiCall, KeyView, Reply, Take, WholeBody, ended_early
from cordwood.agents.tool import refused_call
from cordwood.cli.client import Remote, base_path, connection_to
from cordwood.errors import Refused, Unreachable

# For how long what a key may do is not asked for again.
_VIEW_SECONDS = 5.0
_PIECE_BYTES = 64 * 1024
_MOST_ERROR_BYTES = 256 * 1024


class RemoteApi:
    """Sends the requests of tools to a service; `headers` are added to each.

    `find_remote` is called for each request, because the service on a data folder has another address and key after a restart.
    """

    def __init__(self, find_remote: Callable[[], Remote], headers: Mapping[str, str]) -> None:
        self._find_remote = find_remote
        self._headers = headers
        self._view: KeyView | None = None
        self._viewed_at = 0.0

    async def key(self) -> KeyView:
        now = time.monotonic()
        if self._view is None or now - self._viewed_at > _VIEW_SECONDS:
            body = WholeBody()
            reply = await self.send(ApiCall("/api/key"), body.take)
            if reply.status >= 400:
                raise Refused(refused_call(reply).text)
            self._view, self._viewed_at = _read_view(body), now
        return self._view

    async def send(self, call: ApiCall, take: Take) -> Reply:
        exchange = _Exchange(self._find_remote(), self._headers)
        try:
            return await asyncio.to_thread(exchange.run, call, take)
        except asyncio.CancelledError:
            exchange.end()
            raise


def _read_view(body: WholeBody) -> KeyView:
    try:
        return msgspec.convert(body.json(), KeyView)
    except msgspec.ValidationError as problem:
        raise Refused("The service is of another version.", hint="Install the same version of cordwood.") from problem


class _Exchange:
    """One request in a thread, which another thread may end."""

    def __init__(self, remote: Remote, headers: Mapping[str, str]) -> None:
        self._remote = remote
        self._headers = headers
        self._connection = connection_to(remote.url, remote.timeout_seconds)
        self._is_ended = False

    def run(self, call: ApiCall, take: Take) -> Reply:
        """Send the request, and pass the body of a success on until `take` needs no more of it."""
        remote = self._remote
        key = {"x-api-key": remote.key} if remote.key else {}
        try:
            self._connection.request(
                call.method,
                base_path(remote.url) + call.path,
                call.body or None,
                {**self._headers, **key, **call.headers},
            )
            if self._is_ended:
                # It was ended while the connection was made.
                return Reply(0, [])
            answer = self._connection.getresponse()
            headers = [(name.lower(), value) for name, value in answer.getheaders()]
            if answer.status >= 400:
                return Reply(answer.status, headers, answer.read(_MOST_ERROR_BYTES))
            _pass_on(answer, take)
        except (OSError, http.client.HTTPException) as problem:
            raise Unreachable(f"No service answers at {remote.url}: {problem}.") from problem
        finally:
            self._connection.close()
        return Reply(answer.status, headers)

    def end(self) -> None:
        """End the request from another thread: the service stops the query when its client has gone."""
        self._is_ended = True
        connected = self._connection.sock
        if connected is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)


def _pass_on(answer: http.client.HTTPResponse, take: Take) -> None:
    """Pass the body on as it arrives; raise Refused if it ends early."""
    try:
        while piece := answer.read1(_PIECE_BYTES):
            if not take(piece):
                return
    except (ConnectionError, http.client.HTTPException) as broken:
        raise ended_early() from broken
    if answer.length:
        raise ended_early()
