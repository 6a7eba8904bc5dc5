"""`python -m bench.followers`: followed queries under load: what each follower got, how late, and in how much memory.

python -m bench.followers [--followers N] [--rate N] [--seconds N] [--reconnects N]

Followers of ten distinct filters, each of which passes one event in a hundred, read what four senders store in batches
of fifty. How late is the time from the acknowledgement of a batch to the arrival of a row in the follower's socket. The
followers are read in a process of their own; some of them close their connection, and go on with the last id.
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

from bench.process_family import MemoryProbe, children, processor_seconds
from bench.service import KEY, service

STREAM = "postgres.logs"
FILTERS = 10
# One event in so many passes each filter.
KINDS = 100
BATCH = 50
SENDERS = 4
_ROW = re.compile(rb'"event_message":"(\d+)"')
_ID = re.compile(rb"id: ([0-9-]+)\n")


@dataclass(frozen=True)
class Load:
    """Where the service is, and how much is asked of it."""

    url: str
    key: str
    followers: int
    events_per_second: int
    seconds: float
    reconnects: int = 0


@dataclass
class Outcome:
    """What arrived: counts over all followers, and how late it was."""

    events: int
    rows: int
    missing: int
    doubled: int
    gaps: int
    late_seconds: Sequence[float]
    most_bytes: int = 0
    sent_per_second: float = 0.0
    # Of the service's processes: the serving one, the fork server, the engine's.
    processor_seconds: Sequence[float] = ()

    def late(self, share: float) -> float:
        """Return the time within which that share of the rows arrived."""
        return sorted(self.late_seconds)[min(len(self.late_seconds) - 1, int(share * len(self.late_seconds)))]

    def __str__(self) -> str:
        late = ", ".join(f"{name} {self.late(share) * 1000:.0f} ms" for name, share in (("p50", 0.5), ("p99", 0.99)))
        return (
            f"{self.events:,} events at {self.sent_per_second:,.0f} a second, {self.rows:,} rows: {self.missing} missing,"
            f" {self.doubled} doubled, {self.gaps} gaps; late {late}; most memory {self.most_bytes / 1e6:.0f} MB;"
            f" processor {', '.join(f'{seconds:.1f} s' for seconds in self.processor_seconds)}"
        )


@dataclass
class _Reader:
    """One follower: what it has received, and when. It is read at the end, so that reading takes little time meanwhile."""

    kind: int
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    numbers: "array[int]" = field(default_factory=lambda: array("I"))
    times: "array[float]" = field(default_factory=lambda: array("d"))
    gaps: int = 0

    def connect(self, load: Load) -> socket.socket:
        address = urlsplit(load.url)
        sql = f"select event_message from postgres_logs as t where t.metadata.kind = {self.kind}"
        query = urlencode({"project": "p", "sql": sql})
        last_id = self.settle()
        resumed = b"Last-Event-ID: %b\r\n" % last_id if last_id else b""
        connection = socket.create_connection((address.hostname or "", address.port or 80))
        head = f"GET /api/endpoints/tail/logs.all?{query} HTTP/1.1\r\nHost: x\r\nX-API-KEY: {load.key}\r\n"
        connection.sendall(head.encode() + resumed + b"\r\n")
        return connection

    def settle(self) -> bytes:
        """Read what was received on a connection that has ended; return the last id of whole events."""
        buffer, last_id = b"", b""
        for at, piece in self.pieces:
            whole, end, buffer = (buffer + piece).rpartition(b"\n\n")
            text = whole + end
            found = _ROW.findall(text)
            self.numbers.extend(map(int, found))
            self.times.extend([at] * len(found))
            self.gaps += text.count(b"event: gap")
            last_id = (_ID.findall(text) or [last_id])[-1]
        self.pieces.clear()
        return last_id


class _Connections:
    """The sockets of all followers in one epoll: the cheapest way to read a thousand of them in Python."""

    def __init__(self, load: Load) -> None:
        self.readers = [_Reader(number % FILTERS) for number in range(load.followers)]
        self._load = load
        self._epoll = select.epoll()
        self._open: dict[int, tuple[socket.socket, _Reader]] = {}
        # One buffer for all sockets: `recv` would allocate as many bytes for each piece.
        self._buffer = memoryview(bytearray(2**18))
        for reader in self.readers:
            self._connect(reader)

    def _connect(self, reader: _Reader) -> None:
        connection = reader.connect(self._load)
        self._open[connection.fileno()] = connection, reader
        self._epoll.register(connection.fileno(), select.EPOLLIN)

    def receive(self) -> None:
        for descriptor, _ in self._epoll.poll(0.2):
            connection, reader = self._open[descriptor]
            size = connection.recv_into(self._buffer)
            reader.pieces.append((time.monotonic(), bytes(self._buffer[:size])))

    def reconnect(self, number: int) -> None:
        """Close one connection, and go on with its last id on another."""
        descriptor, (connection, reader) = list(self._open.items())[number % len(self._open)]
        self._epoll.unregister(descriptor)
        del self._open[descriptor]
        connection.close()
        self._connect(reader)

    def have_begun(self) -> bool:
        return all(reader.pieces and b"id: " in reader.pieces[0][1] for reader in self.readers)


def _read_all(load: Load, pipe: Connection) -> None:
    """Read all followers until the parent says stop; then send what each has got."""
    connections = _Connections(load)
    while not connections.have_begun():
        connections.receive()
    pipe.send("ready")
    stop_at: float | None = None
    victim, pause = 0, load.seconds / load.reconnects if load.reconnects else math.inf
    reconnect_at = time.monotonic() + pause
    while stop_at is None or time.monotonic() < stop_at:
        connections.receive()
        if time.monotonic() > reconnect_at:
            reconnect_at += pause
            victim += 7
            connections.reconnect(victim)
        if stop_at is None and pipe.poll():
            stop_at = time.monotonic() + pipe.recv()
    for reader in connections.readers:
        reader.settle()
    pipe.send([(one.kind, one.numbers.tobytes(), one.times.tobytes(), one.gaps) for one in connections.readers])


class _Senders:
    """Threads that send numbered batches at a rate; `stored_at` has the time of each batch's acknowledgement."""

    def __init__(self, load: Load) -> None:
        self.stored_at: dict[int, float] = {}
        self._load = load
        self._lock = threading.Lock()
        self._next = 0
        self._began = time.monotonic()
        self._last = int(load.events_per_second * load.seconds) // BATCH

    def run(self) -> float:
        """Send everything; return how many events were sent a second."""
        threads = [threading.Thread(target=self._send) for _ in range(SENDERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self._last * BATCH / (time.monotonic() - self._began)

    def _send(self) -> None:
        address = urlsplit(self._load.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        headers = {"X-API-KEY": self._load.key, "Content-Type": "application/json"}
        while (batch := self._take()) is not None:
            due = self._began + batch * BATCH / self._load.events_per_second
            time.sleep(max(0.0, due - time.monotonic()))
            numbers = range(batch * BATCH, (batch + 1) * BATCH)
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

    def _take(self) -> int | None:
        with self._lock:
            if self._next >= self._last:
                return None
            self._next += 1
            return self._next - 1


def _event(number: int) -> dict[str, object]:
    metadata = {"kind": number % KINDS, "level": "info", "parsed": {"backend_type": "client backend", "pid": number}}
    return {"id": f"e{number}", "project": "p", "event_message": str(number), "metadata": metadata}


def measure(load: Load, pid: int) -> Outcome:
    """Run the load against a service; `pid` is its process, whose memory is measured with that of its children."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_read_all, args=(load, theirs), daemon=True)
    process.start()
    if ours.recv() != "ready":
        raise SystemExit("the followers did not begin")
    probe = MemoryProbe(pid)
    probe.start()
    senders = _Senders(load)
    before = _processor_seconds(pid)
    per_second = senders.run()
    ours.send(3.0)
    got = ours.recv()
    used = [after - before for before, after in zip(before, _processor_seconds(pid), strict=False)]
    process.join()
    probe.over.set()
    outcome = _compared(got, senders.stored_at)
    outcome.most_bytes, outcome.sent_per_second, outcome.processor_seconds = probe.most, per_second, used
    return outcome


def _processor_seconds(pid: int) -> list[float]:
    return list(map(processor_seconds, (pid, *children(pid))))


def _compared(got: Sequence[tuple[int, bytes, bytes, int]], stored_at: dict[int, float]) -> Outcome:
    events = len(stored_at) * BATCH
    outcome = Outcome(events, 0, 0, 0, 0, [])
    late = array("d")
    for kind, number_bytes, time_bytes, gaps in got:
        numbers, times = array("I", number_bytes), array("d", time_bytes)
        counts = Counter(numbers)
        outcome.rows += len(numbers)
        outcome.doubled += len(numbers) - len(counts)
        outcome.missing += sum(1 for number in range(kind, events, KINDS) if number not in counts)
        outcome.gaps += gaps
        late.extend(at - stored_at[number // BATCH] for number, at in zip(numbers, times, strict=True))
    outcome.late_seconds = late
    return outcome


def main() -> None:
    cli = argparse.ArgumentParser(
        prog="python -m bench.followers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, value in (("followers", 1000), ("rate", 5000), ("seconds", 60), ("reconnects", 60)):
        cli.add_argument(f"--{name}", type=int, default=value, help=argparse.SUPPRESS)
    asked = cli.parse_args()
    os.environ["CORDWOOD_LIMITS_KEY_FOLLOWERS"] = os.environ["CORDWOOD_LIMITS_FOLLOWERS"] = str(asked.followers + 100)
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as started:
        load = Load(str(started.client.base_url), KEY, asked.followers, asked.rate, asked.seconds, asked.reconnects)
        print(measure(load, started.process.pid))


if __name__ == "__main__":
    main()
