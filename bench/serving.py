"""`python -m bench.serving`: what serving adds to what it serves. Both figures are ratios, and gates.

- Kept answers a second, as a share of what the same server gives a handler of fixed bytes: at least 60 %.
- An uncached `logs.all` with a new time bound each call, as a multiple of hand-written SQL on a plain DuckDB table of
  the same events: at most 1.5.
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
from bench.timing import elapsed_ms, in_turns

LEAST_SHARE = 0.6
MOST_TIMES = 1.5
CONNECTIONS = 8
SECONDS = 3.0
TURNS = 3
ANSWER_BYTES = 2000

FIXED_BYTES = """
import sys, uvicorn
from functools import partial
from cordwood.web.connection_table import ConnectionTable
from cordwood.web.http_protocol import Wire
port, size = map(int, sys.argv[1:])
body = b"x" * size
head = [(b"content-type", b"application/json"), (b"content-length", str(size).encode())]
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})
uvicorn.run(app, http=partial(Wire, ConnectionTable(1000)), port=port, lifespan="off", log_config=None, access_log=False, server_header=False)
"""

BY_HAND = """
select id, epoch_us(timestamp), event_message, metadata::json::varchar from events
where project = ? and timestamp <= ? order by timestamp desc limit 100
"""


class Caller(asyncio.Protocol):
    """Asks again when an answer is there; answers of one length are recognised by it."""

    def __init__(self, request: bytes) -> None:
        self.answers = 0
        self._request = request
        self._length = 0
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are of no class that asyncio knows.
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, found, body = self._read.partition(b"\r\n\r\n")
        if not found:
            return
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length: "))
        if len(body) >= int(length.partition(b": ")[2]):
            assert head.startswith(b"HTTP/1.1 200 ")
            self._read = b""
            self.answers += 1
            self._transport.write(self._request)


def answers_a_second(url: httpx.URL, address: str) -> float:
    async def ask() -> float:
        request = f"GET {address} HTTP/1.1\r\nHost: {url.host}\r\nX-API-KEY: {KEY}\r\nAccept: */*\r\n\r\n".encode()
        loop = asyncio.get_running_loop()
        asking = [loop.create_connection(lambda: Caller(request), url.host, url.port or 80) for _ in range(CONNECTIONS)]
        callers = [caller for _, caller in await asyncio.gather(*asking)]
        await asyncio.sleep(SECONDS)
        return sum(caller.answers for caller in callers) / SECONDS

    return uvloop.run(ask())


@contextmanager
def fixed_bytes() -> Iterator[httpx.URL]:
    port = 40_000 + os.getpid() % 20_000
    process = subprocess.Popen([sys.executable, "-c", FIXED_BYTES, str(port), str(ANSWER_BYTES)])
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


def kept_share(ours: Service) -> float:
    """In turns, so that a busy machine is busy for both."""
    address = f"/api/endpoints/query/usage.api-counts?interval=daily&project={PROJECTS[3]}"
    ours.client.get(address).raise_for_status()
    fixed, kept = [], []
    with fixed_bytes() as url:
        for _ in range(TURNS):
            fixed.append(answers_a_second(url, "/"))
            kept.append(answers_a_second(ours.client.base_url, address))
    share = statistics.median(kept) / statistics.median(fixed)
    print(f"kept answers {statistics.median(kept):,.0f}/s, fixed bytes {statistics.median(fixed):,.0f}/s: {share:.0%}")
    return share


def bounds() -> Iterator[datetime]:
    """A time that was not asked before."""
    now = datetime.now(UTC)
    yield from (now - timedelta(seconds=number) for number in range(10_000))


def uncached_ms(ours: Service) -> float:
    ends = bounds()

    def ask() -> httpx.Response:
        asked = {"project": PROJECTS[3], "iso_timestamp_end": next(ends).isoformat()}
        return ours.client.get("/api/endpoints/query/logs.all", params=asked)

    ours.client.headers["Accept-Encoding"] = "identity"
    for _ in range(20):
        ask()
    return in_turns(15, {"uncached": lambda: elapsed_ms(ask)})["uncached"].median


def by_hand_ms(count: int) -> float:
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
        figures = []
        for _, end in zip(range(40), bounds(), strict=False):
            began = time.perf_counter()
            assert len(connection.execute(BY_HAND, [PROJECTS[3], end]).fetchall()) == 100
            figures.append((time.perf_counter() - began) * 1000)
    return statistics.median(figures)


def main() -> int:
    count = int(os.environ.get("EVENTS", "100000"))
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as ours:
        ours.load(batches(count), 1)
        share = kept_share(ours)
        uncached = uncached_ms(ours)
    by_hand = by_hand_ms(count)
    times = uncached / by_hand
    print(f"uncached logs.all {uncached:.1f} ms over HTTP, by hand in DuckDB {by_hand:.1f} ms: {times:.2f} times")
    return 0 if share >= LEAST_SHARE and times <= MOST_TIMES else 1


if __name__ == "__main__":
    sys.exit(main())
