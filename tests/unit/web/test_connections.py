"""Limits on open connections. The bytes of their unfinished heads are counted, and released exactly once."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from cordwood.web import http_protocol
from cordwood.web.http_protocol import ConnectionTable, HttpProtocol
from tests.waiting import until

MAX_HEAD_BYTES = 1000


class IdleConnection:
    """A connection whose request head is incomplete."""

    peer_address = "192.0.2.1"
    waiting_since: float | None = 0.0
    is_reading_head = True
    write_stalled_since: float | None = None

    def __init__(self) -> None:
        self.was_cut = False

    def abort(self) -> None:
        self.was_cut = True


@pytest.fixture(autouse=True)
def small_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "MAX_UNFINISHED_HEADS_BYTES", MAX_HEAD_BYTES)


async def table_with_three(table: ConnectionTable) -> list[IdleConnection]:
    opened = [IdleConnection() for _ in range(3)]
    assert all(table.add(opened_connection) for opened_connection in opened)
    return opened


def test_an_address_without_connections_is_removed() -> None:
    async def open_and_close() -> None:
        table = ConnectionTable(10)
        for connection in await table_with_three(table):
            table.discard(connection)
        assert not table._connection_count_by_address

    asyncio.run(open_and_close())


def test_the_bytes_of_a_head_are_released_once() -> None:
    async def hold_and_release() -> None:
        table = ConnectionTable(10)
        first, second, _ = await table_with_three(table)
        table.add_head_bytes(first, 300)
        table.add_head_bytes(first, 100)
        table.add_head_bytes(second, 50)
        assert (table.head_bytes_of(first), table.unfinished_heads_bytes) == (400, 450)
        table.discard(first)
        table.release_head_bytes(first)
        table.discard(first)
        assert (table.head_bytes_of(first), table.unfinished_heads_bytes) == (0, 50)

    asyncio.run(hold_and_release())


def test_the_largest_head_is_cut_above_the_total_limit() -> None:
    async def exceed_limit() -> None:
        table = ConnectionTable(10)
        small, large, larger = await table_with_three(table)
        table.add_head_bytes(small, 100)
        table.add_head_bytes(large, 400)
        table.add_head_bytes(larger, 600)
        assert [connection.was_cut for connection in (small, large, larger)] == [False, False, True]
        assert table.unfinished_heads_bytes == 500

    asyncio.run(exceed_limit())


@contextlib.asynccontextmanager
async def serve_application(table: ConnectionTable, answered_paths: list[str]) -> AsyncIterator[int]:
    """Yield the port of a server with `HttpProtocol`. The path of each answered request is appended to
    `answered_paths`.
    """

    async def application(scope: Any, _receive: Any, send: Any) -> None:
        answered_paths.append(scope["path"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(application, lifespan="off", interface="asgi3", ws="none", log_config=None)
    config.load()
    wire = partial(HttpProtocol, table, config, ServerState(), {})
    server = await asyncio.get_running_loop().create_server(wire, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


class AnsweringConnection(IdleConnection):
    """A connection whose request is being answered."""

    waiting_since: float | None = None

    def __init__(self, address: str) -> None:
        super().__init__()
        self.peer_address = address


def test_the_address_with_the_most_connections_loses_one_to_a_probe() -> None:
    async def fill() -> None:
        table = ConnectionTable(10)
        connections_of_one_address = [
            AnsweringConnection("192.0.2.1") for _ in range(10 + http_protocol.MAX_CONNECTIONS_BEYOND_LIMIT)
        ]
        assert all(table.add(connection) for connection in connections_of_one_address)
        assert not table.add(AnsweringConnection("192.0.2.1")), "it takes no place from itself"
        probe = AnsweringConnection("192.0.2.2")
        assert table.add(probe)
        assert [connection.was_cut for connection in connections_of_one_address] == [False] * (
            len(connections_of_one_address) - 1
        ) + [True]
        assert not probe.was_cut

    asyncio.run(fill())


class EndlessAnswer:
    """An application whose answer exceeds every buffer."""

    def __init__(self) -> None:
        self.ended = False

    async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1000):
            await send({"type": "http.response.body", "body": b"x" * 2**20, "more_body": True})
        self.ended = True


async def is_cut_within_time(application: Any, table: ConnectionTable, rate: int) -> bool:
    """Return whether the service cuts off a client within two seconds.

    The client reads `rate` bytes in each tenth of a second.
    """
    config = uvicorn.Config(application, lifespan="off", interface="asgi3", ws="none", log_config=None)
    config.load()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(HttpProtocol, table, config, ServerState(), {}), "127.0.0.1", 0)
    async with server:
        with socket.create_connection(server.sockets[0].getsockname()) as reader:
            reader.settimeout(0)
            await loop.sock_sendall(reader, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            deadline = loop.time() + 2
            while loop.time() < deadline and not application.ended:
                await asyncio.sleep(0.1)
                if rate:
                    await loop.sock_recv(reader, rate)
        return bool(application.ended)


@pytest.fixture
def short_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "MAX_WRITE_STALL_SECONDS", 0.6)
    monkeypatch.setattr(http_protocol, "OVERDUE_CHECK_INTERVAL_SECONDS", 0.1)


@pytest.mark.usefixtures("short_stall")
def test_a_peer_that_does_not_read_its_answer_is_cut() -> None:
    assert asyncio.run(is_cut_within_time(EndlessAnswer(), ConnectionTable(10), rate=0))


@pytest.mark.usefixtures("short_stall")
def test_a_peer_that_reads_its_answer_slowly_is_not_cut() -> None:
    assert not asyncio.run(is_cut_within_time(EndlessAnswer(), ConnectionTable(10), rate=2**20))


async def until_held(table: ConnectionTable, size: int) -> None:
    await asyncio.to_thread(until, lambda: table.unfinished_heads_bytes == size)


def test_a_connection_cut_at_the_end_of_its_head_releases_it_once_and_is_not_answered() -> None:
    async def send_too_much() -> None:
        table = ConnectionTable(10)
        answered_paths: list[str] = []
        async with serve_application(table, answered_paths) as port:
            for _ in range(3):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")
                await writer.drain()
                # The pause lets the first lines arrive as a separate chunk.
                await asyncio.sleep(0.05)
                writer.write(b"X-Long: " + b"y" * 500)
                await until_held(table, 508)
                writer.write(b"y" * MAX_HEAD_BYTES + b"\r\n\r\n")
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()
                assert table.unfinished_heads_bytes == 0
        assert not answered_paths

    asyncio.run(send_too_much())


def test_a_head_in_several_chunks_is_answered_and_released() -> None:
    async def send_slowly() -> None:
        table = ConnectionTable(10)
        answered_paths: list[str] = []
        async with serve_application(table, answered_paths) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(3):
                writer.write(b"GET / HTTP/1.1\r\n")
                await asyncio.sleep(0.05)
                writer.write(b"Host: x\r\n")
                await until_held(table, 9)
                writer.write(b"\r\n")
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204 ")
                assert table.unfinished_heads_bytes == 0
            writer.close()
        assert len(answered_paths) == 3

    asyncio.run(send_slowly())
