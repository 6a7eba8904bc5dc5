"""`python -m bench.serving`: the overhead of serving, as two ratios. The program fails if either exceeds its bound.

- Cached answers per second, as a share of the responses per second of the same HTTP server with an application that
  only sends fixed bytes: at least 60 %.
- The time of an uncached `logs.all` with a new time bound in each call, as a multiple of handwritten SQL on a plain
  DuckDB table of the same events: at most 1.5.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import duckdb
import httpx
import uvloop

from bench.events import PROJECTS, batches
from bench.service import KEY, Service, service
from bench.timing import elapsed_ms, measure_round_robin

MIN_CACHED_SHARE = 0.6
MAX_UNCACHED_RATIO = 1.5
CONNECTIONS = 8
MEASURED_SECONDS = 3.0
ROUNDS = 3
FIXED_RESPONSE_BYTES = 2000

FIXED_RESPONSE_PROGRAM = """
import sys, uvicorn
from functools import partial
from cordwood.web.http_protocol import ConnectionTable
from cordwood.web.http_protocol import HttpProtocol
port, size = map(int, sys.argv[1:])
body = b"x" * size
head = [(b"content-type", b"application/json"), (b"content-length", str(size).encode())]
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})
uvicorn.run(app, http=partial(HttpProtocol, ConnectionTable(1000)), port=port, lifespan="off", log_config=None, access_log=False, server_header=False)
"""

HANDWRITTEN_SQL = """
select id, epoch_us(timestamp), event_message, metadata::json::varchar from events
where project = ? and timestamp <= ? order by timestamp desc limit 100
"""


class RequestLoop(asyncio.Protocol):
    """A connection that sends the same request again whenever a response is complete, and counts the responses."""

    def __init__(self, request: bytes) -> None:
        self.answers = 0
        self._request = request
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The cast is needed, because the transports of uvloop do not inherit from those of asyncio.
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, separator, body = self._read.partition(b"\r\n\r\n")
        if not separator:
            return
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length: "))
        if len(body) >= int(length.partition(b": ")[2]):
            assert head.startswith(b"HTTP/1.1 200 ")
            self._read = b""
            self.answers += 1
            self._transport.write(self._request)


def answers_per_second(url: httpx.URL, address: str) -> float:
    """Return the responses per second over several connections, each with one request at a time."""

    async def ask() -> float:
        request = f"GET {address} HTTP/1.1\r\nHost: {url.host}\r\nX-API-KEY: {KEY}\r\nAccept: */*\r\n\r\n".encode()
        loop = asyncio.get_running_loop()
        connecting = [
            loop.create_connection(lambda: RequestLoop(request), url.host, url.port or 80) for _ in range(CONNECTIONS)
        ]
        callers = [caller for _, caller in await asyncio.gather(*connecting)]
        await asyncio.sleep(MEASURED_SECONDS)
        return sum(caller.answers for caller in callers) / MEASURED_SECONDS

    return uvloop.run(ask())


@contextmanager
def fixed_response_server() -> Iterator[httpx.URL]:
    """Run the service's HTTP server with an application that only sends fixed bytes. Yield the server's URL."""
    port = 40_000 + os.getpid() % 20_000
    process = subprocess.Popen([sys.executable, "-c", FIXED_RESPONSE_PROGRAM, str(port), str(FIXED_RESPONSE_BYTES)])
    url = httpx.URL(f"http://127.0.0.1:{port}")
    try:
        while True:
            try:
                httpx.get(url)
                break
            except httpx.ConnectError:
                time.sleep(0.02)
        yield url
    finally:
        process.terminate()
        process.wait(10)


def cached_share(running: Service) -> float:
    """Return the rate of cached answers as a share of the rate of fixed responses, measured round-robin."""
    address = f"/api/endpoints/query/usage.api-counts?interval=daily&project={PROJECTS[3]}"
    running.client.get(address).raise_for_status()
    fixed, cached = [], []
    with fixed_response_server() as url:
        for _ in range(ROUNDS):
            fixed.append(answers_per_second(url, "/"))
            cached.append(answers_per_second(running.client.base_url, address))
    share = statistics.median(cached) / statistics.median(fixed)
    rates = f"cached answers {statistics.median(cached):,.0f}/s, fixed bytes {statistics.median(fixed):,.0f}/s"
    print(f"{rates}: {share:.0%}")
    return share


def distinct_times() -> Iterator[datetime]:
    """Yield times, each a second earlier than the previous one, so that no two queries are the same."""
    now = datetime.now(UTC)
    yield from (now - timedelta(seconds=number) for number in range(10_000))


def uncached_ms(running: Service) -> float:
    """Return the median time of `logs.all` over HTTP, in milliseconds, with another time bound in each call."""
    ends = distinct_times()

    def ask() -> httpx.Response:
        parameters = {"project": PROJECTS[3], "iso_timestamp_end": next(ends).isoformat()}
        return running.client.get("/api/endpoints/query/logs.all", params=parameters)

    running.client.headers["Accept-Encoding"] = "identity"
    for _ in range(20):
        ask()
    return measure_round_robin(15, {"uncached": lambda: elapsed_ms(ask)})["uncached"].median


def handwritten_ms(count: int) -> float:
    """Return the median time of the handwritten SQL in this process, in milliseconds, on a plain table of the same
    events.
    """
    with duckdb.connect(config={"threads": os.cpu_count() or 1}) as connection:
        connection.execute(
            "create table events(id varchar, timestamp timestamptz, project varchar, event_message varchar,"
            " metadata variant)"
        )
        for body in batches(count):
            connection.execute(
                "insert into events select x->>'id', (x->>'timestamp')::timestamptz, x->>'project',"
                " x->>'event_message', (x->'metadata')::variant from (select unnest(from_json(?, '[\"json\"]')) as x)",
                [body.decode()],
            )
        times = []
        for _, end in zip(range(40), distinct_times(), strict=False):
            started_at = time.perf_counter()
            assert len(connection.execute(HANDWRITTEN_SQL, [PROJECTS[3], end]).fetchall()) == 100
            times.append((time.perf_counter() - started_at) * 1000)
    return statistics.median(times)


def main() -> int:
    count = int(os.environ.get("EVENTS", "100000"))
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as running:
        running.load(batches(count), 1)
        share = cached_share(running)
        uncached = uncached_ms(running)
    handwritten = handwritten_ms(count)
    ratio = uncached / handwritten
    print(f"uncached logs.all {uncached:.1f} ms over HTTP, handwritten SQL {handwritten:.1f} ms: {ratio:.2f} times")
    return 0 if share >= MIN_CACHED_SHARE and ratio <= MAX_UNCACHED_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
