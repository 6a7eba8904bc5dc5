"""The HTTP client that commands use: unreachable services, refusals, and answers that are not JSON."""

import errno
import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from cordwood.cli.client import RemoteService, ServiceResponse
from cordwood.errors import BadSetting, RefusedByService, ServiceUnreachable


def answer(status: int, body: object) -> ServiceResponse:
    return ServiceResponse(status, {}, body if isinstance(body, bytes) else json.dumps(body).encode())


def test_an_address_without_a_service_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ServiceUnreachable, match=f"No service answers at http://127.0.0.1:{port}"):
        RemoteService(f"http://127.0.0.1:{port}", None).send("GET", "/ready")


def test_an_error_of_the_output_is_not_taken_for_an_unreachable_service() -> None:
    def refuse(chunk: bytes) -> None:
        raise OSError(errno.ENOSPC, f"no space for {chunk!r}")

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as executor:
        executor.submit(answer_one_request, listener, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        service = RemoteService(f"http://127.0.0.1:{listener.getsockname()[1]}", None)
        with pytest.raises(OSError, match=r"no space for b'ok'"):
            service.download("/", refuse)


def answer_one_request(listener: socket.socket, response: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(response)


INVALID_ADDRESSES = [
    "127.0.0.1:4000",
    "ftp://x",
    "http://",
    "",
    "http://127.0.0.1:99999",
    "http://127.0.0.1:x",
    "http://[::1",
    "http://a..b",
    "http://a b",
    "http://127.0.0.1/a b",
    "http://127.0.0.1/é",
]


@pytest.mark.parametrize("url", INVALID_ADDRESSES)
def test_the_error_of_an_invalid_address_has_an_example(url: str) -> None:
    with pytest.raises(ServiceUnreachable, match=r"write it like http://127\.0\.0\.1:4000"):
        RemoteService(url, None).send("GET", "/ready")


@pytest.mark.parametrize("key", ["secret\r", "secret\nX-Other: 1", "secret\0", "secret\x7f", "secret€"])
def test_a_key_that_no_header_can_have_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(BadSetting, match="has a character that keys cannot have") as caught:
        RemoteService("http://127.0.0.1:1", key).send("GET", "/ready")
    assert "secret" not in caught.value.one_line_text()


def test_a_success_passes_the_check() -> None:
    assert answer(200, {"result": []}).raise_for_error().json() == {"result": []}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "No.", "hint": "Yes."}}, "No. Yes."),
        ({"error": {"message": "No.", "line": 2, "column": 5}}, "line 2, column 5: No."),
        ({"error": "Unauthorized"}, "Unauthorized"),
        ({}, "status 400"),
        ([], "status 400"),
        (b"<html>", "status 400"),
    ],
)
def test_a_refusal_has_the_message_of_the_service(body: object, message: str) -> None:
    with pytest.raises(RefusedByService) as caught:
        answer(400, body).raise_for_error()
    assert caught.value.message == message


def test_an_answer_that_is_not_json_is_refused() -> None:
    with pytest.raises(RefusedByService, match="not JSON"):
        answer(200, b"<html>").json()
