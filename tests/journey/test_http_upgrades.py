"""Requests with an Upgrade header, including those with a body, are answered in HTTP/1.1."""

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.debian import require_program
from tests.journey.conftest import PRIVATE, Service

INGEST_PATH = "/api/logs?source_name=cloudflare.logs.prod"
UPGRADE_HEADERS = {
    "h2c": "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
    "a websocket": "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==",
    "several": "Connection: keep-alive, Upgrade\r\nUpgrade: h2c, websocket\r\nUpgrade: TLS/1.0",
    "TLS": "upgrade: TLS/1.2\r\nconnection: UPGRADE",
}
JAVA_PROGRAM = """
import java.net.URI;
import java.net.http.*;

public class Post {
    public static void main(String[] given) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (int i = 0; i < 2; i++) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(given[0]))
                .header("X-API-KEY", given[1]).header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(given[2])).build();
            HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(answer.statusCode() + " " + answer.version() + " " + answer.body());
        }
    }
}
"""


def event(project: str) -> str:
    return json.dumps({"event_message": "offered", "project": project})


def stored_messages(service: Service, project: str) -> int:
    sql = "select count(*) as n from edge_logs"
    return int(str(service.rows("logs.all", project=project, sql=sql)[0]["n"]))


def post_request(offer: str, body: str, *more_headers: str) -> bytes:
    head = ["Host: x", f"X-API-KEY: {PRIVATE}", "Content-Type: application/json", offer, *more_headers]
    return "\r\n".join([f"POST {INGEST_PATH} HTTP/1.1", *head, f"Content-Length: {len(body)}", "", body]).encode()


def get_request(offer: str, path: str = "/livez") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{offer}\r\n\r\n".encode()


def exchange(service: Service, chunks: Sequence[bytes]) -> bytes:
    """Send the chunks separately. Return the bytes received until the service closes the connection."""
    host, _, port = service.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for chunk in chunks:
            connection.sendall(chunk)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    return received


def statuses(received: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]


CLOSING_REQUEST = get_request("Connection: close")


@pytest.mark.parametrize("offer", UPGRADE_HEADERS.values(), ids=UPGRADE_HEADERS.keys())
def test_the_body_of_a_request_that_offers_an_upgrade_is_read(service: Service, offer: str) -> None:
    project = f"offer-{abs(hash(offer))}"
    received = exchange(service, [post_request(offer, event(project)) + CLOSING_REQUEST])
    assert statuses(received) == [200, 200]
    assert b'"accepted":1' in received
    assert stored_messages(service, project) == 1


@pytest.mark.parametrize("size", [1, 7, 50, 1000])
def test_the_body_is_read_in_chunks_of_any_size(service: Service, size: int) -> None:
    project = f"pieces-{size}"
    sent = post_request(UPGRADE_HEADERS["h2c"], event(project)) + CLOSING_REQUEST
    chunks = [sent[start : start + size] for start in range(0, len(sent), size)]
    assert statuses(exchange(service, chunks)) == [200, 200]
    assert stored_messages(service, project) == 1


def test_a_body_with_chunked_transfer_encoding_is_read(service: Service) -> None:
    body = event("chunked-offer")
    head = post_request(UPGRADE_HEADERS["h2c"], "").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    received = exchange(service, [head, f"{len(body):x}\r\n{body}\r\n".encode(), b"0\r\n\r\n", CLOSING_REQUEST])
    assert statuses(received) == [200, 200]
    assert stored_messages(service, "chunked-offer") == 1


def test_a_body_that_looks_like_a_request_is_not_a_request(service: Service) -> None:
    """Treat the request inside the body as a body. Otherwise a client could smuggle a request past a proxy."""
    smuggled = f"POST {INGEST_PATH} HTTP/1.1\r\nHost: x\r\nX-API-KEY: {PRIVATE}\r\nContent-Length: 2\r\n\r\n{{}}"
    received = exchange(service, [post_request(UPGRADE_HEADERS["h2c"], smuggled) + CLOSING_REQUEST])
    assert statuses(received) == [400, 200]
    assert b"request.bad-body" in received


def test_requests_without_a_body_are_answered_in_order(service: Service) -> None:
    offered = [get_request(offer) for offer in UPGRADE_HEADERS.values()]
    assert statuses(exchange(service, [*offered, CLOSING_REQUEST])) == [200] * 5
    assert statuses(exchange(service, [b"".join([*offered, CLOSING_REQUEST])])) == [200] * 5


def test_thousands_of_pipelined_upgrade_requests_are_answered(service: Service) -> None:
    assert statuses(exchange(service, [get_request(UPGRADE_HEADERS["TLS"]) * 3000 + CLOSING_REQUEST])) == [200] * 3001


def test_a_cached_answer_is_returned_to_upgrade_requests(service: Service) -> None:
    path = "/api/endpoints/query/logs.all?project=kept-offer"
    raw_request = get_request(f"{UPGRADE_HEADERS['h2c']}\r\nX-API-KEY: {PRIVATE}", path)
    received = exchange(service, [raw_request, raw_request, raw_request, CLOSING_REQUEST])
    assert statuses(received) == [200] * 4
    assert received.count(b'{"result":[]}') == 3


def test_expect_100_continue_is_answered(service: Service) -> None:
    body = event("expected-offer")
    sent = post_request(UPGRADE_HEADERS["h2c"], body, "Expect: 100-continue")
    received = exchange(service, [sent[: -len(body)], body.encode(), CLOSING_REQUEST])
    assert statuses(received) == [100, 200, 200]


def test_headers_that_are_too_large_are_431_with_an_upgrade(service: Service) -> None:
    sent = get_request(f"{UPGRADE_HEADERS['h2c']}\r\nX-Filler: {'x' * 70_000}")
    assert statuses(exchange(service, [sent, CLOSING_REQUEST])) == [431, 200]


@pytest.mark.parametrize("target", ["example.org:443", "/"])
def test_connect_is_refused_and_the_connection_closed(service: Service, target: str) -> None:
    received = exchange(
        service, [f"CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode() + get_request("X: y") + CLOSING_REQUEST]
    )
    assert statuses(received) == [400]


@pytest.mark.parametrize("bare", [False, True], ids=["with a content type", "without"])
def test_curl_sends_a_body_and_offers_http_2(service: Service, *, bare: bool) -> None:
    curl, project = require_program("curl", "curl"), f"curl-{bare}"
    typed = [] if bare else ["-H", "Content-Type: application/json"]
    command = [curl, "--silent", "--show-error", "--http2", "-H", f"X-API-KEY: {PRIVATE}", *typed]
    done = subprocess.run(
        [*command, "-d", event(project), service.url + INGEST_PATH],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout)["accepted"] == 1
    assert stored_messages(service, project) == 1


def test_the_client_of_the_jdk_sends_a_body_and_offers_http_2(service: Service, tmp_path: Path) -> None:
    java = _require_java()
    source = tmp_path / "Post.java"
    source.write_text(JAVA_PROGRAM)
    command = [java, str(source), service.url + INGEST_PATH, PRIVATE, event("jdk")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(" ")[:2] for line in lines] == [["200", "HTTP_1_1"]] * 2
    assert stored_messages(service, "jdk") == 2


def _require_java() -> str:
    """Return the java command of a JDK, because only a JDK can run a source file."""
    java = shutil.which("java") if shutil.which("javac") else None
    return java or require_program("javac", "default-jdk-headless").replace("javac", "java")
