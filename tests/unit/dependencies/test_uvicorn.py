"""Internals of uvicorn on which `web/http_protocol.py` and `app/service.py` rely."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

REQUEST_HEAD = b"POST /a%20b?c=d HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
UPGRADE_REQUEST = b"POST /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}"
# Methods that `HttpProtocol`, our subclass of uvicorn's protocol, calls or overrides, with their parameters.
METHOD_PARAMETERS = {
    "data_received": ["data"],
    "on_message_begin": [],
    "on_headers_complete": [],
    "on_body": ["body"],
    "on_message_complete": [],
    "on_response_complete": [],
    "send_400_response": ["msg"],
    "_unset_keepalive_if_required": [],
}


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        """Do nothing."""

    def pause_reading(self) -> None:
        """Do nothing."""

    def resume_reading(self) -> None:
        """Do nothing."""


def run_with_protocol(test: Callable[[HttpToolsProtocol, Transport], None]) -> None:
    """Run a test with a protocol of uvicorn's own class that has a connection."""

    async def connected() -> None:
        async def application(_scope: Any, _receive: Any, _send: Any) -> None:
            await asyncio.Event().wait()

        config = uvicorn.Config(application, lifespan="off", interface="asgi3", ws="none", log_config=None)
        config.load()
        protocol, transport = HttpToolsProtocol(config, ServerState(), {}), Transport()
        protocol.connection_made(transport)
        test(protocol, transport)
        for task in list(protocol.tasks):
            task.cancel()
        await asyncio.gather(*protocol.tasks, return_exceptions=True)

    asyncio.run(connected())


def test_the_protocol_has_the_methods_that_ours_calls_or_overrides() -> None:
    for name, parameters in METHOD_PARAMETERS.items():
        signature = inspect.signature(getattr(HttpToolsProtocol, name))
        assert list(signature.parameters)[1:] == parameters


def test_protocol_and_cycle_have_the_attributes_that_ours_uses() -> None:
    def test(protocol: HttpToolsProtocol, transport: Transport) -> None:
        protocol.data_received(REQUEST_HEAD)
        assert protocol.url == b"/a%20b?c=d"
        assert protocol.headers == [(b"host", b"x"), (b"expect", b"100-continue"), (b"content-length", b"2")]
        assert protocol.expect_100_continue is True
        assert protocol.scope["headers"] is protocol.headers
        assert protocol.scope["raw_path"] == b"/a%20b"
        assert protocol.transport is transport
        assert isinstance(protocol.flow, FlowControl)
        assert protocol.flow.write_paused is False
        assert isinstance(protocol.server_state.default_headers, list)
        assert protocol.config.loaded_app is protocol.app
        assert protocol.parser.get_method() == b"POST"
        cycle = protocol.cycle
        assert isinstance(cycle, RequestResponseCycle)
        assert (cycle.response_started, cycle.response_complete, cycle.disconnected) == (False, False, False)
        assert (cycle.keep_alive, cycle.waiting_for_100_continue) == (True, True)
        assert cycle.transport is transport
        assert cycle.flow is protocol.flow
        assert isinstance(cycle.default_headers, list)
        assert isinstance(cycle.message_event, asyncio.Event)
        assert cycle.on_response == protocol.on_response_complete

    run_with_protocol(test)


def test_every_status_has_a_status_line() -> None:
    assert STATUS_LINE[200] == b"HTTP/1.1 200 OK\r\n"
    assert set(range(100, 600)) <= STATUS_LINE.keys()


def test_uvicorn_loses_the_body_of_an_upgrade_request() -> None:
    """Check a defect of uvicorn. If uvicorn repairs it, `HttpProtocol._parse` may no longer be needed."""

    def test(protocol: HttpToolsProtocol, _: Transport) -> None:
        protocol.data_received(UPGRADE_REQUEST)
        assert bytes(protocol.cycle.body) == b""

    run_with_protocol(test)


def test_the_server_exposes_its_signal_capture_and_its_tasks() -> None:
    server = uvicorn.Server(uvicorn.Config(lambda: None, log_config=None))
    assert list(inspect.signature(server.capture_signals).parameters) == []
    assert server.server_state.tasks == set()
