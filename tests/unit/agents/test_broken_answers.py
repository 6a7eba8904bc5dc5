"""An answer that breaks off is an error, both over HTTP and inside the process."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cordwood.agents.api import ApiCall, ApiResponse, BodyCollector
from cordwood.cli.client import RemoteService
from cordwood.cli.mcp import RemoteApi
from cordwood.errors import RefusedByService, ServiceBusy, ServiceUnreachable
from cordwood.model.key import Caller
from cordwood.web.agents import InProcessApi
from cordwood.web.asgi import Receive, Scope, Send
from cordwood.web.route import HandlerContext
from cordwood.web.services import new_query_body_budget

RESPONSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n"
CHUNK = b'9\r\n{"n": 1}\n\r\n'


@pytest.fixture
def answers(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the URL of a server that answers a connection with the fixture's parameter and then closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(request.param)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def send_request(url: str, body: BodyCollector) -> ApiResponse:
    api = RemoteApi(lambda: RemoteService(url, "key", 5.0), {})
    return asyncio.run(api.send(ApiCall("/x", {}), body.add_chunk))


@pytest.mark.parametrize(
    "answers",
    [
        RESPONSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNK,
        RESPONSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNK + b"9\r\n{",
        RESPONSE_HEAD + b"Content-Length: 100\r\n\r\n{}",
    ],
    indirect=True,
)
def test_a_body_that_ends_early_is_refused(answers: str) -> None:
    with pytest.raises(RefusedByService, match="while its rows were sent"):
        send_request(answers, BodyCollector())


@pytest.mark.parametrize("answers", [b"", b"nonsense\r\n\r\n"], indirect=True)
def test_an_answer_that_is_not_http_means_that_there_is_no_service(answers: str) -> None:
    with pytest.raises(ServiceUnreachable):
        send_request(answers, BodyCollector())


@pytest.mark.parametrize("answers", [RESPONSE_HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNK * 3], indirect=True)
def test_the_rest_of_a_body_that_is_not_needed_is_not_awaited(answers: str) -> None:
    body = BodyCollector(max_bytes=5)
    assert send_request(answers, body).status == 200
    assert body.is_too_large
    with pytest.raises(RefusedByService, match="larger than"):
        body.decode_json()


@contextmanager
def application_api(*messages: dict[str, Any], budget: int = 2**24) -> Iterator[InProcessApi]:
    """Yield an API on an application that sends these messages, with a budget for the bytes that the API reads."""

    async def application(_scope: Scope, _receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    request = SimpleNamespace(id="1", scope={"headers": []})
    context = SimpleNamespace(request=request, dependencies=SimpleNamespace(dispatch_request=application))
    shared = new_query_body_budget(budget)
    with shared.open_reservation("1") as reservation, shared.open_reservation("2") as other:
        other.reserve(2**20 + 1)
        other.mark_body_complete()
        yield InProcessApi(cast(HandlerContext, context), "key", Caller("1", frozenset()), reservation)


START_MESSAGE: dict[str, Any] = {"type": "http.response.start", "status": 200, "headers": []}
LAST_MESSAGE: dict[str, Any] = {"type": "http.response.body", "body": b""}


def chunk(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}


def test_an_application_that_stops_in_the_middle_is_an_error() -> None:
    body = BodyCollector()
    with application_api(START_MESSAGE, chunk(b"{}\n"), LAST_MESSAGE) as api:
        assert asyncio.run(api.send(ApiCall("/x"), body.add_chunk)).status == 200
    assert body.decode_json() == {}
    with (
        application_api(START_MESSAGE, chunk(b"{}\n")) as api,
        pytest.raises(RefusedByService, match="while its rows were sent"),
    ):
        asyncio.run(api.send(ApiCall("/x"), BodyCollector().add_chunk))


def test_memory_for_a_large_document_is_reserved_as_it_arrives() -> None:
    chunks = [chunk(b"x" * 2**18) for _ in range(12)]
    for budget, is_enough in ((2**21, False), (2**23, True)):
        body = BodyCollector()
        with application_api(START_MESSAGE, *chunks, LAST_MESSAGE, budget=budget) as api:
            if is_enough:
                assert asyncio.run(api.send(ApiCall("/x"), body.add_chunk)).status == 200
                continue
            with pytest.raises(ServiceBusy):
                asyncio.run(api.send(ApiCall("/x"), body.add_chunk))
