"""`python -m bench.followers`: followed queries under load: lost and repeated rows, their delay, and the memory used.

python -m bench.followers [--followers N] [--rate N] [--seconds N] [--reconnects N]

Four senders store events in batches of fifty. Followers with ten distinct filters receive the matching events; each
filter matches one event in a hundred. The delay of a row is the time from the acknowledgement of its batch to its
arrival in the follower's socket. A separate process reads all followers. It closes some connections and resumes them
from their last event id.
"""

import argparse
import http.client
import json
import math
import multiprocessing
import os
import re
import select
import socket
import tempfile
import threading
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from bench.process_family import MemoryProbe, descendants, processor_seconds
from bench.service import KEY, service

STREAM = "postgres.logs"
FILTER_COUNT = 10
# The number of kinds of events. Each filter matches one kind.
KINDS = 100
BATCH_SIZE = 50
SENDER_THREADS = 4
_ROW_PATTERN = re.compile(rb'"event_message":"(\d+)"')
_EVENT_ID_PATTERN = re.compile(rb"id: ([0-9-]+)\n")


@dataclass(frozen=True)
class Load:
    """The address of a service, and the load that is put on the service."""

    url: str
    key: str
    followers: int
    events_per_second: int
    seconds: float
    reconnects: int = 0


@dataclass
class Outcome:
    """The rows and their delays over all followers, and the resources that the service used, in one measurement."""

    events: int
    rows: int
    missing: int
    duplicates: int
    gaps: int
    delay_seconds: Sequence[float]
    peak_bytes: int = 0
    sent_per_second: float = 0.0
    # The processor time of each process: the serving process, the fork server, and the engine process.
    processor_seconds: Sequence[float] = ()

    def delay(self, quantile: float) -> float:
        """Return a quantile of the delays in seconds."""
        return sorted(self.delay_seconds)[min(len(self.delay_seconds) - 1, int(quantile * len(self.delay_seconds)))]

    def __str__(self) -> str:
        delays = f"p50 {self.delay(0.5) * 1000:.0f} ms, p99 {self.delay(0.99) * 1000:.0f} ms"
        return (
            f"{self.events:,} events at {self.sent_per_second:,.0f} per second,"
            f" {self.rows:,} rows: {self.missing} missing, {self.duplicates} duplicates, {self.gaps} gaps;"
            f" delay {delays}; peak memory {self.peak_bytes / 1e6:.0f} MB;"
            f" processor {', '.join(f'{seconds:.1f} s' for seconds in self.processor_seconds)}"
        )


@dataclass
class _FollowerConnection:
    """A follower, and the bytes that it received. They are parsed only at the end, so that receiving is fast."""

    kind: int
    # The bytes of each read, with the time of their arrival.
    chunks: list[tuple[float, bytes]] = field(default_factory=list)
    numbers: "array[int]" = field(default_factory=lambda: array("I"))
    times: "array[float]" = field(default_factory=lambda: array("d"))
    gaps: int = 0

    def connect(self, load: Load) -> socket.socket:
        """Open a connection and send the request. A later connection resumes after the last event received."""
        address = urlsplit(load.url)
        sql = f"select event_message from postgres_logs as t where t.metadata.kind = {self.kind}"
        query = urlencode({"project": "p", "sql": sql})
        last_id = self.parse_received()
        resumed = b"Last-Event-ID: %b\r\n" % last_id if last_id else b""
        connection = socket.create_connection((address.hostname or "", address.port or 80))
        head = f"GET /api/endpoints/tail/logs.all?{query} HTTP/1.1\r\nHost: x\r\nX-API-KEY: {load.key}\r\n"
        connection.sendall(head.encode() + resumed + b"\r\n")
        return connection

    def parse_received(self) -> bytes:
        """Parse the bytes of a connection that has ended. Return the id of the last complete event."""
        buffer, last_id = b"", b""
        for received_at, chunk in self.chunks:
            complete, end, buffer = (buffer + chunk).rpartition(b"\n\n")
            text = complete + end
            rows = _ROW_PATTERN.findall(text)
            self.numbers.extend(map(int, rows))
            self.times.extend([received_at] * len(rows))
            self.gaps += text.count(b"event: gap")
            last_id = (_EVENT_ID_PATTERN.findall(text) or [last_id])[-1]
        self.chunks.clear()
        return last_id


class _AllConnections:
    """The sockets of all followers, read through one epoll, the cheapest way for a thousand sockets in Python."""

    def __init__(self, load: Load) -> None:
        self.readers = [_FollowerConnection(number % FILTER_COUNT) for number in range(load.followers)]
        self._load = load
        self._epoll = select.epoll()
        self._open: dict[int, tuple[socket.socket, _FollowerConnection]] = {}
        # All reads share one buffer, because `recv` would allocate a buffer of the whole size for each read.
        self._buffer = memoryview(bytearray(2**18))
        for reader in self.readers:
            self._connect(reader)

    def _connect(self, reader: _FollowerConnection) -> None:
        connection = reader.connect(self._load)
        self._open[connection.fileno()] = connection, reader
        self._epoll.register(connection.fileno(), select.EPOLLIN)

    def receive(self) -> None:
        """Wait up to 0.2 s, then read once from each socket that has data."""
        for descriptor, _ in self._epoll.poll(0.2):
            connection, reader = self._open[descriptor]
            size = connection.recv_into(self._buffer)
            reader.chunks.append((time.monotonic(), bytes(self._buffer[:size])))

    def reconnect(self, number: int) -> None:
        """Close one connection, and resume its follower on a new connection, from its last event id."""
        descriptor, (connection, reader) = list(self._open.items())[number % len(self._open)]
        self._epoll.unregister(descriptor)
        del self._open[descriptor]
        connection.close()
        self._connect(reader)

    def have_all_begun(self) -> bool:
        """Return whether each follower has received its first event id."""
        return all(reader.chunks and b"id: " in reader.chunks[0][1] for reader in self.readers)


def _read_all(load: Load, pipe: Connection) -> None:
    """Read all followers until the parent process sends a stop time. Then send it the data of each follower."""
    connections = _AllConnections(load)
    while not connections.have_all_begun():
        connections.receive()
    pipe.send("ready")
    stop_at: float | None = None
    reconnecting, pause = 0, load.seconds / load.reconnects if load.reconnects else math.inf
    reconnect_at = time.monotonic() + pause
    while stop_at is None or time.monotonic() < stop_at:
        connections.receive()
        if time.monotonic() > reconnect_at:
            reconnect_at += pause
            reconnecting += 7
            connections.reconnect(reconnecting)
        if stop_at is None and pipe.poll():
            stop_at = time.monotonic() + pipe.recv()
    for reader in connections.readers:
        reader.parse_received()
    pipe.send(
        [
            (connection.kind, connection.numbers.tobytes(), connection.times.tobytes(), connection.gaps)
            for connection in connections.readers
        ]
    )


class _Senders:
    """Threads that send numbered batches at a constant rate. `stored_at` has the time of each acknowledgement."""

    def __init__(self, load: Load) -> None:
        self.stored_at: dict[int, float] = {}
        self._load = load
        self._lock = threading.Lock()
        self._next = 0
        self._started_at = time.monotonic()
        self._last = int(load.events_per_second * load.seconds) // BATCH_SIZE

    def run(self) -> float:
        """Send all batches. Return the number of events sent per second."""
        threads = [threading.Thread(target=self._send) for _ in range(SENDER_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self._last * BATCH_SIZE / (time.monotonic() - self._started_at)

    def _send(self) -> None:
        address = urlsplit(self._load.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        headers = {"X-API-KEY": self._load.key, "Content-Type": "application/json"}
        while (batch := self._next_batch()) is not None:
            due = self._started_at + batch * BATCH_SIZE / self._load.events_per_second
            time.sleep(max(0.0, due - time.monotonic()))
            numbers = range(batch * BATCH_SIZE, (batch + 1) * BATCH_SIZE)
            body = json.dumps([_event(number) for number in numbers])
            while True:
                connection.request("POST", f"/api/logs?source_name={STREAM}", body, headers)
                answer = connection.getresponse()
                answer.read()
                if answer.status == 200:
                    break
                time.sleep(0.1)
            self.stored_at[batch] = time.monotonic()
        connection.close()

    def _next_batch(self) -> int | None:
        with self._lock:
            if self._next >= self._last:
                return None
            self._next += 1
            return self._next - 1


def _event(number: int) -> dict[str, object]:
    metadata = {"kind": number % KINDS, "level": "info", "parsed": {"backend_type": "client backend", "pid": number}}
    return {"id": f"e{number}", "project": "p", "event_message": str(number), "metadata": metadata}


def measure(load: Load, pid: int) -> Outcome:
    """Put the load on a service. `pid` is its process, whose memory is measured together with its descendants'."""
    context = multiprocessing.get_context("spawn")
    pipe, readers_pipe = context.Pipe()
    process = context.Process(target=_read_all, args=(load, readers_pipe), daemon=True)
    process.start()
    if pipe.recv() != "ready":
        raise SystemExit("the followers received no first event id")
    probe = MemoryProbe(pid)
    probe.start()
    senders = _Senders(load)
    before = _processor_seconds(pid)
    sent_per_second = senders.run()
    # The last rows arrive within these seconds, after which the followers stop.
    pipe.send(3.0)
    received = pipe.recv()
    used = [after - before for before, after in zip(before, _processor_seconds(pid), strict=False)]
    process.join()
    probe.stopped.set()
    outcome = _compare_with_stored(received, senders.stored_at)
    outcome.peak_bytes, outcome.sent_per_second, outcome.processor_seconds = probe.peak_bytes, sent_per_second, used
    return outcome


def _processor_seconds(pid: int) -> list[float]:
    return list(map(processor_seconds, (pid, *descendants(pid))))


def _compare_with_stored(received: Sequence[tuple[int, bytes, bytes, int]], stored_at: dict[int, float]) -> Outcome:
    """Compare the rows that the followers received with the events that were stored."""
    events = len(stored_at) * BATCH_SIZE
    outcome = Outcome(events, 0, 0, 0, 0, [])
    delays = array("d")
    for kind, number_bytes, time_bytes, gaps in received:
        numbers, times = array("I", number_bytes), array("d", time_bytes)
        counts = Counter(numbers)
        outcome.rows += len(numbers)
        outcome.duplicates += len(numbers) - len(counts)
        outcome.missing += sum(1 for number in range(kind, events, KINDS) if number not in counts)
        outcome.gaps += gaps
        delays.extend(
            received_at - stored_at[number // BATCH_SIZE] for number, received_at in zip(numbers, times, strict=True)
        )
    outcome.delay_seconds = delays
    return outcome


def main() -> None:
    cli = argparse.ArgumentParser(
        prog="python -m bench.followers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cli.add_argument("--followers", type=int, default=1000, help="number of followers (default: 1,000)")
    cli.add_argument("--rate", type=int, default=5000, help="events stored per second (default: 5,000)")
    cli.add_argument("--seconds", type=int, default=60, help="duration of the load (default: 60)")
    cli.add_argument("--reconnects", type=int, default=60, help="connections closed and resumed (default: 60)")
    options = cli.parse_args()
    os.environ["CORDWOOD_LIMITS_KEY_FOLLOWERS"] = os.environ["CORDWOOD_LIMITS_FOLLOWERS"] = str(options.followers + 100)
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as running:
        load = Load(
            str(running.client.base_url), KEY, options.followers, options.rate, options.seconds, options.reconnects
        )
        print(measure(load, running.process.pid))


if __name__ == "__main__":
    main()
