"""A service process for benchmarks: start and stop, loading of events, queries, and use of memory and disk space."""

import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx

from bench.events import STREAM
from bench.process_family import MemoryProbe, family_bytes, family_processor_seconds, memory_probe

KEY = "bench-key"
ENDPOINTS = Path(__file__).with_name("endpoints")
_START_SECONDS = 60
_MAX_BODIES_IN_MEMORY = 100
# Let Python write its bytecode cache; an empty value counts as unset. Without the cache, each start would compile all
# modules, which takes a third of a second. No start of an installed package does so.
_WITH_BYTECODE_CACHE = {"PYTHONDONTWRITEBYTECODE": ""}
# A service counts as idle while it uses less than this share of one processor.
_IDLE_SHARE = 0.05
# Compaction has ended if the service was idle for this long. After a load, the service is idle for a shorter time: its
# last events are flushed 2 to 4 s after the load, and compaction begins 5 to 10 s later.
_COMPACTED_IDLE_SECONDS = 13.0


@dataclass(frozen=True)
class Target:
    """An address for bodies, with the statuses that mean that a body was stored, or that it must be sent again."""

    address: str
    headers: Mapping[str, str]
    stored_statuses: frozenset[int] = frozenset({200})
    retry_statuses: frozenset[int] = frozenset({429, 503})


API_LOGS = Target(f"/api/logs?source_name={STREAM}", {"X-API-KEY": KEY, "Content-Type": "application/json"})


class Service:
    """A running service.

    `client` sends requests with a private key. Queries that are timed use an `http.client` connection, which is faster.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", url: str, data: Path, engine: Path | None = None) -> None:
        """Connect to the service. `engine` is the data folder of an in-process engine that has a separate one."""
        self.process = process
        self.data = data
        self._folders = [data, *([engine] if engine else [])]
        self.client = httpx.Client(base_url=url, headers={"X-API-KEY": KEY}, timeout=600)
        self._connection = http.client.HTTPConnection(self.client.base_url.host, self.client.base_url.port, timeout=600)

    @property
    def resident_mb(self) -> float:
        """Return the resident memory of all processes of the service. Pages that they share are counted once."""
        return family_bytes(self.process.pid) / 1e6

    def memory_probe(self) -> AbstractContextManager[MemoryProbe]:
        """Return a context that measures the maximum memory of all processes of the service."""
        return memory_probe(self.process.pid)

    @property
    def processor_seconds(self) -> float:
        """Return the processor time of all processes of the service."""
        return family_processor_seconds(self.process.pid)

    @property
    def disk_mb(self) -> float:
        files = (path for folder in self._folders for path in folder.rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in files) / 1e6

    def close(self) -> None:
        self.client.close()
        self._connection.close()

    def rows(self, endpoint: str, parameters: Mapping[str, str]) -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = json.loads(self.query(endpoint, parameters))["result"]
        return result

    def query(self, endpoint: str, parameters: Mapping[str, str], *, use_cache: bool = False) -> bytes:
        """Query an endpoint over HTTP and return the body. Unless `use_cache` is set, the answer is computed anew."""
        headers = {"X-API-KEY": KEY} | ({} if use_cache else {"Cache-Control": "no-cache"})
        self._connection.request("GET", f"/api/endpoints/query/{endpoint}?{urlencode(parameters)}", headers=headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != http.client.OK:
            raise SystemExit(f"{endpoint} {dict(parameters)}: {answer.status} {content.decode()[:500]}")
        return content

    def load(self, bodies: Iterator[bytes], connections: int, target: Target = API_LOGS) -> float:
        """Post all bodies from concurrent senders. Return the seconds until the last body is acknowledged."""
        return post_all(self.client.base_url, bodies, connections, target)

    def wait_until_idle(self, seconds: float = 3.0) -> None:
        """Wait until the service has been idle for `seconds`, so that no background work disturbs a measurement."""
        # The connection is closed, because the service closes idle connections. The next query opens a new connection.
        self._connection.close()
        while True:
            before = self.processor_seconds
            time.sleep(seconds)
            if self.processor_seconds - before < _IDLE_SHARE * seconds:
                return

    def wait_for_compaction(self) -> None:
        """Wait until the events of a load have been flushed and compacted."""
        self.wait_until_idle(_COMPACTED_IDLE_SECONDS)


def post_all(url: httpx.URL, bodies: Iterator[bytes], connections: int, target: Target) -> float:
    """Post all bodies to a server from concurrent senders. Return the seconds until the last body is acknowledged.

    A body that the server is too busy to accept is sent again. Bodies are read in portions before they are sent, so
    that the time does not include reading their file.
    """
    seconds = 0.0
    while portion := list(islice(bodies, _MAX_BODIES_IN_MEMORY)):
        queue = _SharedBodies(portion, target)
        senders = [threading.Thread(target=_send, args=(url.host, url.port, queue)) for _ in range(connections)]
        started_at = time.perf_counter()
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        if queue.errors:
            raise SystemExit(f"events were refused: {queue.errors[0]}")
        seconds += time.perf_counter() - started_at
    return seconds


@contextmanager
def service(folder: Path, *options: str, program: Sequence[str] = ("-m", "cordwood")) -> Iterator[Service]:
    """Run a service that stores its data in a folder. A later service on the same folder has the stored events.

    `program` are the arguments with which Python runs the `cordwood` command.
    """
    log = folder / "log"
    command = [sys.executable, *program, "serve", "--port", "0", "--data-dir", str(folder / "data")]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--endpoints", str(ENDPOINTS), *options],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **_WITH_BYTECODE_CACHE, "CORDWOOD_KEYS_PRIVATE": KEY},
        )
    running = None
    try:
        running = Service(process, _address(process, log), folder / "data", _engine_folder(options))
        yield running
    finally:
        if running is not None:
            running.close()
        process.terminate()
        process.wait(120)


def _engine_folder(options: tuple[str, ...]) -> Path | None:
    """Return the data folder of the chDB engine that the options name, or None."""
    return next((Path(urlsplit(option).path) for option in options if option.startswith("chdb:///")), None)


def _address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    """Wait until the service listens, and return the URL that it wrote to its log."""
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        match = re.search(r"listens on (http://\S+?)[,\s]", log.read_text())
        if match:
            return match[1]
        time.sleep(0.005)
    raise SystemExit(f"the service did not start:\n{log.read_text()}")


class _SharedBodies:
    """The bodies that the sender threads take one by one, and the errors that make all threads stop."""

    def __init__(self, bodies: list[bytes], target: Target) -> None:
        self.target = target
        self.errors: list[str] = []
        self._bodies: SimpleQueue[bytes] = SimpleQueue()
        for body in bodies:
            self._bodies.put(body)

    def take(self) -> bytes | None:
        try:
            return None if self.errors else self._bodies.get_nowait()
        except Empty:
            return None


def _send(host: str, port: int | None, queue: _SharedBodies) -> None:
    connection = http.client.HTTPConnection(host, port, timeout=600)
    while (body := queue.take()) is not None:
        while (wait := _post(connection, body, queue)) is not None:
            time.sleep(wait)
    connection.close()


def _post(connection: http.client.HTTPConnection, body: bytes, queue: _SharedBodies) -> float | None:
    """Post a body. Return the seconds to wait before it must be sent again, or None if it need not be sent again."""
    target = queue.target
    connection.request("POST", target.address, body, dict(target.headers))
    answer = connection.getresponse()
    text = answer.read()
    if answer.status in target.retry_statuses:
        return float(answer.headers.get("Retry-After", "1"))
    if answer.status not in target.stored_statuses:
        queue.errors.append(f"{answer.status}: {text.decode()[:300]}")
    return None
