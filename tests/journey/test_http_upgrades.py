"""A request that offers to upgrade to another protocol is answered in HTTP/1.1, body and all."""

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.debian import need
from tests.journey.conftest import PRIVATE, Service

PATH = "/api/logs?source_name=cloudflare.logs.prod"
OFFERS = {
    "h2c": "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
    "a websocket": "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==",
    "several": "Connection: keep-alive, Upgrade\r\nUpgrade: h2c, websocket\r\nUpgrade: TLS/1.0",
    "TLS": "upgrade: TLS/1.2\r\nconnection: UPGRADE",
}
JAVA = """
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


def stored(service: Service, project: str) -> int:
    sql = "select count(*) as n from edge_logs"
    return int(str(service.rows("logs.all", project=project, sql=sql)[0]["n"]))


def post(offer: str, body: str, *more: str) -> bytes:
    head = ["Host: x", f"X-API-KEY: {PRIVATE}", "Content-Type: application/json", offer, *more]
    return "\r\n".join([f"POST {PATH} HTTP/1.1", *head, f"Content-Length: {len(body)}", "", body]).encode()


def get(offer: str, path: str = "/livez") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{offer}\r\n\r\n".encode()


def said(service: Service, pieces: Sequence[bytes]) -> bytes:
    """What the service answers to these pieces, each sent on its own, until it closes."""
    host, _, port = service.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            wire.sendall(piece)
        answered = b""
        while piece := wire.recv(65536):
            answered += piece
    return answered


def statuses(answered: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answered)]


LAST = get("Connection: close")


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS.keys())
def test_the_body_of_a_request_that_offers_an_upgrade_is_read(service: Service, offer: str) -> None:
    project = f"offer-{abs(hash(offer))}"
    answered = said(service, [post(offer, event(project)) + LAST])
    assert statuses(answered) == [200, 200]
    assert b'"accepted":1' in answered
    assert stored(service, project) == 1


@pytest.mark.parametrize("size", [1, 7, 50, 1000])
def test_so_it_is_in_whatever_pieces_it_comes(service: Service, size: int) -> None:
    project = f"pieces-{size}"
    sent = post(OFFERS["h2c"], event(project)) + LAST
    pieces = [sent[start : start + size] for start in range(0, len(sent), size)]
    assert statuses(said(service, pieces)) == [200, 200]
    assert stored(service, project) == 1


def test_a_chunked_body_is_read_too(service: Service) -> None:
    body = event("chunked-offer")
    head = post(OFFERS["h2c"], "").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    answered = said(service, [head, f"{len(body):x}\r\n{body}\r\n".encode(), b"0\r\n\r\n", LAST])
    assert statuses(answered) == [200, 200]
    assert stored(service, "chunked-offer") == 1


def test_a_body_that_looks_like_a_request_is_a_body(service: Service) -> None:
    """Or else whoever decides on bodies could smuggle requests past a proxy."""
    smuggled = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nX-API-KEY: {PRIVATE}\r\nContent-Length: 2\r\n\r\n{{}}"
    answered = said(service, [post(OFFERS["h2c"], smuggled) + LAST])
    assert statuses(answered) == [400, 200]
    assert b"request.bad-body" in answered


def test_requests_without_a_body_are_answered_in_their_order(service: Service) -> None:
    offered = [get(offer) for offer in OFFERS.values()]
    assert statuses(said(service, [*offered, LAST])) == [200] * 5
    assert statuses(said(service, [b"".join([*offered, LAST])])) == [200] * 5


def test_thousands_of_offers_in_one_piece_are_answered(service: Service) -> None:
    assert statuses(said(service, [get(OFFERS["TLS"]) * 3000 + LAST])) == [200] * 3001


def test_a_kept_answer_is_given_to_who_offers_an_upgrade_with_the_same_headers(service: Service) -> None:
    path = "/api/endpoints/query/logs.all?project=kept-offer"
    asked = get(f"{OFFERS['h2c']}\r\nX-API-KEY: {PRIVATE}", path)
    answered = said(service, [asked, asked, asked, LAST])
    assert statuses(answered) == [200] * 4
    assert answered.count(b'{"result":[]}') == 3


def test_who_waits_to_be_asked_for_the_body_is_asked(service: Service) -> None:
    body = event("expected-offer")
    sent = post(OFFERS["h2c"], body, "Expect: 100-continue")
    answered = said(service, [sent[: -len(body)], body.encode(), LAST])
    assert statuses(answered) == [100, 200, 200]


def test_headers_that_are_too_large_are_so_with_an_offer_too(service: Service) -> None:
    sent = get(f"{OFFERS['h2c']}\r\nX-Filler: {'x' * 70_000}")
    assert statuses(said(service, [sent, LAST])) == [431, 200]


@pytest.mark.parametrize("target", ["example.org:443", "/"])
def test_a_tunnel_is_refused_and_nothing_behind_it_is_read(service: Service, target: str) -> None:
    answered = said(service, [f"CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode() + get("X: y") + LAST])
    assert statuses(answered) == [400]


@pytest.mark.parametrize("bare", [False, True], ids=["with a content type", "without"])
def test_curl_sends_a_body_and_offers_http_2(service: Service, *, bare: bool) -> None:
    curl, project = need("curl", "curl"), f"curl-{bare}"
    typed = [] if bare else ["-H", "Content-Type: application/json"]
    command = [curl, "--silent", "--show-error", "--http2", "-H", f"X-API-KEY: {PRIVATE}", *typed]
    done = subprocess.run(
        [*command, "-d", event(project), service.url + PATH], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout)["accepted"] == 1
    assert stored(service, project) == 1


def test_the_client_of_the_jdk_sends_a_body_and_offers_http_2(service: Service, tmp_path: Path) -> None:
    java = _java()
    source = tmp_path / "Post.java"
    source.write_text(JAVA)
    command = [java, str(source), service.url + PATH, PRIVATE, event("jdk")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(" ")[:2] for line in lines] == [["200", "HTTP_1_1"]] * 2
    assert stored(service, "jdk") == 2


def _java() -> str:
    """A JDK, not only a runtime: one that compiles the file that it is given."""
    found = shutil.which("java") if shutil.which("javac") else None
    return found or need("javac", "default-jdk-headless").replace("javac", "java")
