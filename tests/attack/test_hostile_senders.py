"""Other clients are served while hostile HTTP clients attack the service.

The hostile clients send endless headers, idle connections, stalled bodies or decompression bombs.
"""

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import httpx
import pytest

from bench.process_family import family_bytes
from tests.journey.conftest import PRIVATE, Service, start_service
from tests.machine_speed import scaled
from tests.waiting import until

INGEST_ADDRESS = "/api/logs?source_name=postgres.logs"
QUERY_ADDRESS = "/api/endpoints/query/logs.all?project=others&sql=select%20count(*)%20as%20n%20from%20postgres_logs"
MEBIBYTE = 2**20
MEMORY_CEILING_BYTES = 512 * MEBIBYTE
MAX_DESCRIPTORS = 512


@pytest.fixture(scope="module")
def limited_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Start a service with few file descriptors and little memory."""
    limited = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({MAX_DESCRIPTORS}, {MAX_DESCRIPTORS}));"
        "from cordwood.__main__ import main; sys.exit(main())"
    )
    folder = tmp_path_factory.mktemp("attacked") / "data"
    service = start_service(folder, "--memory", f"{MEMORY_CEILING_BYTES // MEBIBYTE}MiB", program=("-c", limited))
    yield service
    service.stop()


@pytest.fixture
def other_client(limited_service: Service) -> Iterator["OtherClient"]:
    """Run an ordinary client during the test; fail the test if one of its requests failed or was slow."""
    new_key = limited_service.client.post("/api/access-tokens", json={"scopes": "ingest query"}).json()
    watched = OtherClient(limited_service.url, new_key["token"])
    watched.start()
    yield watched
    until(lambda: watched.answered > 0)
    watched.done.set()
    watched.join()
    assert watched.failures == []
    assert watched.slowest < scaled(2.0)
    assert family_bytes(limited_service.process.pid) < 1.25 * MEMORY_CEILING_BYTES


class OtherClient(threading.Thread):
    def __init__(self, url: str, key: str) -> None:
        super().__init__()
        self.done = threading.Event()
        self.failures: list[str] = []
        self.answered = 0
        self.slowest = 0.0
        self._url = url
        self._headers = {"X-API-KEY": key}

    def run(self) -> None:
        while not self.done.wait(0.05):
            for method, address, body in (
                ("POST", INGEST_ADDRESS, [event()]),
                ("GET", QUERY_ADDRESS, None),
                ("GET", "/health", None),
            ):
                began = time.monotonic()
                try:
                    # Each request opens a new connection, which tests that the service still accepts connections.
                    answer = httpx.request(method, self._url + address, json=body, headers=self._headers, timeout=10)
                except httpx.HTTPError as problem:
                    self.failures.append(f"{address}: {problem!r}")
                    continue
                self.answered += 1
                self.slowest = max(self.slowest, time.monotonic() - began)
                if answer.status_code != 200:
                    self.failures.append(f"{address}: {answer.status_code} {answer.text[:200]}")


def event() -> dict[str, object]:
    return {"event_message": "others", "project": "others"}


def open_connection(service: Service) -> socket.socket:
    host, _, port = service.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def request_head(path: str, *lines: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", f"X-API-KEY: {PRIVATE}", *lines, "", ""]).encode()


def read_answer(connection: socket.socket) -> bytes:
    received = b""
    while chunk := connection.recv(65536):
        received += chunk
        if b"\r\n\r\n" in received and received.partition(b"\r\n\r\n")[2].endswith(b"}"):
            break
    return received


def send(service: Service, body: bytes, path: str = INGEST_ADDRESS, **headers: str) -> httpx.Response:
    header_fields = {
        "Content-Type": "application/json",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    return service.client.post(path, content=body, headers=header_fields)


@pytest.mark.parametrize("line", ["GET /{} HTTP/1.1\r\n", "GET / HTTP/1.1\r\nX-Long: {}", "GET / HTTP/1.1\r\n{}"])
@pytest.mark.usefixtures("other_client")
def test_endless_headers_are_refused_and_take_no_memory(limited_service: Service, line: str) -> None:
    before = family_bytes(limited_service.process.pid)
    begin, _, _ = line.partition("{}")
    filler = b"a: b\r\n" if line.endswith("\n{}") else b"y" * 6
    for _ in range(60):
        with open_connection(limited_service) as connection:
            connection.sendall(begin.encode())
            try:
                for _ in range(8):
                    connection.sendall(filler * 40_000)
                received = read_answer(connection)
            except (ConnectionResetError, BrokenPipeError):
                continue
            assert received.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 414 ")), received[:200]
    assert family_bytes(limited_service.process.pid) - before < 50 * MEBIBYTE


def test_many_unfinished_headers_take_bounded_memory(limited_service: Service, other_client: OtherClient) -> None:
    before = family_bytes(limited_service.process.pid)
    opened = [open_connection(limited_service) for _ in range(300)]
    for _ in range(2):
        for connection in opened:
            try:
                connection.sendall(b"GET / HTTP/1.1\r\nX-Long: " + b"y" * 60_000)
            except OSError:
                continue
    time.sleep(1)
    assert other_client.is_alive()
    assert family_bytes(limited_service.process.pid) - before < 100 * MEBIBYTE
    for connection in opened:
        connection.close()


def test_more_idle_connections_than_descriptors_do_not_block_others(
    limited_service: Service, other_client: OtherClient
) -> None:
    opened = [open_connection(limited_service) for _ in range(MAX_DESCRIPTORS + 200)]
    answered = other_client.answered
    time.sleep(1.5)
    assert other_client.answered > answered
    for connection in opened:
        connection.close()


@pytest.mark.usefixtures("other_client")
def test_a_connection_with_unfinished_headers_is_closed_after_a_timeout(limited_service: Service) -> None:
    with open_connection(limited_service) as connection:
        connection.settimeout(40)
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
        began = time.monotonic()
        with suppress(ConnectionResetError):
            assert connection.recv(100) == b""
        assert 10 < time.monotonic() - began < 30


@pytest.mark.usefixtures("other_client")
def test_stalled_bodies_do_not_block_another_key(limited_service: Service) -> None:
    new_key = limited_service.client.post("/api/access-tokens", json={"scopes": "ingest"}).json()
    stalled = [open_connection(limited_service) for _ in range(3)]
    for connection in stalled:
        connection.sendall(
            request_head(INGEST_ADDRESS, "Content-Type: application/json", f"Content-Length: {16 * MEBIBYTE}")
        )
        try:
            connection.sendall(b"[" + b" " * (10 * MEBIBYTE))
        except OSError:
            continue
    time.sleep(0.3)
    body = json.dumps([event()] * 20_000).encode()
    answer = httpx.post(
        limited_service.url + INGEST_ADDRESS,
        content=body,
        headers={"X-API-KEY": new_key["token"], "Content-Type": "application/json"},
    )
    assert answer.status_code == 200, answer.text
    for connection in stalled:
        connection.close()


@pytest.mark.usefixtures("other_client")
def test_a_body_with_forty_nested_content_codings_is_refused(limited_service: Service) -> None:
    body = json.dumps([event()]).encode()
    for _ in range(40):
        body = gzip.compress(body)
    answer = send(limited_service, body, Content_Encoding=", ".join(["gzip"] * 40))
    assert answer.status_code == 415
    assert "40 nested content codings" in answer.json()["detail"]


@pytest.mark.usefixtures("other_client")
def test_a_gzip_body_of_700_000_empty_members_is_refused(limited_service: Service) -> None:
    answer = send(limited_service, gzip.compress(b"") * 700_000, Content_Encoding="gzip")
    assert answer.status_code == 413
    assert "members" in answer.json()["detail"]


def json_array_of(item: str, count: int = 3_000_000) -> bytes:
    return f"[{','.join([item] * count)}]".encode()


MANY_ITEM_BODIES: dict[str, Callable[[], bytes]] = {
    "numbers": lambda: json_array_of("0"),
    "objects": lambda: json_array_of("{}"),
    "arrays": lambda: json_array_of("[]"),
    "events": lambda: json_array_of('{"event_message":"x"}'),
    "events with extras": lambda: json_array_of('{"a":1}'),
    "a batch": lambda: b'{"batch":' + json_array_of("0") + b"}",
    "a batch behind another": lambda: b'{"x":{"batch":[]},"batch":' + json_array_of("{}") + b"}",
    "one array within": lambda: b'[{"metadata":' + json_array_of("0", 30_000_000) + b"}]",
    "one object of many names": lambda: b"{" + b'"a":0,' * 20_000_000 + b'"b":0}',
}


@pytest.mark.parametrize("bomb", MANY_ITEM_BODIES)
@pytest.mark.usefixtures("other_client")
def test_a_compressed_body_with_millions_of_items_is_refused(limited_service: Service, bomb: str) -> None:
    packed = gzip.compress(MANY_ITEM_BODIES[bomb]())
    answer = send(limited_service, packed, Content_Encoding="gzip")
    is_one = "one" in bomb
    assert answer.status_code == (200 if is_one else 413), answer.text
    if is_one:
        assert "larger than" in answer.json()["reasons"][0]["reason"]
    else:
        assert "items" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "media", "body"),
    [
        (INGEST_ADDRESS, "application/x-ndjson", lambda: b"{}\n" * 5_000_000),
        (INGEST_ADDRESS, "application/x-ndjson", lambda: b"\n" * 100_000_000),
        ("/logs/syslog?source_name=postgres.logs", "text/plain", lambda: b"2 <1" * 10_000_000),
        ("/v1/logs?source_name=postgres.logs", "application/x-protobuf", lambda: b"\x12\x00" * 30_000_000),
        (
            "/v1/logs?source_name=postgres.logs",
            "application/json",
            lambda: b'{"resourceLogs":[' + b"{}," * 20_000_000 + b"{}]}",
        ),
        ("/postgres.logs/_bulk", "application/x-ndjson", lambda: b'{"create":{}}\n{}\n' * 400_000),
        ("/services/collector?index=postgres.logs", "application/json", lambda: b'{"event":"x"}' * 400_000),
    ],
)
@pytest.mark.usefixtures("other_client")
def test_a_compressed_body_with_millions_of_lines_frames_or_records_is_refused(
    limited_service: Service, path: str, media: str, body: Callable[[], bytes]
) -> None:
    answer = send(limited_service, gzip.compress(body(), 1), path, Content_Type=media, Content_Encoding="gzip")
    assert answer.status_code in {400, 413}, answer.text


@pytest.mark.parametrize("address", ["/api/endpoints/query/logs.all", "/api/query", "/api/access-tokens"])
@pytest.mark.usefixtures("other_client")
def test_a_query_that_exceeds_its_limit_when_decompressed_is_refused(limited_service: Service, address: str) -> None:
    bomb = gzip.compress(b'{"sql": "' + b" " * (200 * MEBIBYTE) + b'"}', 1)
    answer = send(limited_service, bomb, address, Content_Encoding="gzip")
    assert answer.status_code == 413
    assert "4 MiB" in answer.json()["detail"]


def test_a_zstd_frame_with_a_window_of_one_gibibyte_is_refused(limited_service: Service) -> None:
    # A frame header that requests a window of 1 GiB (RFC 8878, 3.1.1.1.2).
    frame = b"\x28\xb5\x2f\xfd" + bytes([0b00000000, (20 << 3)]) + b"\x01\x00\x00"
    answer = send(limited_service, frame, Content_Encoding="zstd")
    assert answer.status_code == 400
