"""`python -m bench.socket_senders`: events per second over Fluent Forward, gRPC and syslog, and by journald uploads.

python -m bench.socket_senders [--events N] [--batch N] [protocol ...]     measure the named protocols, or all

The events are those of `bench.senders`. `/api/logs` is measured for comparison. Fluent chunks are acknowledged. Syslog
has no acknowledgement, so its time ends when the service's metrics count all events as accepted. A syslog event has a
message and no metadata.
"""

import argparse
import re
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import msgspec

from bench.events import STREAM, generate
from bench.senders import encode_json, otlp_body, read_batches
from bench.service import API_LOGS, KEY, Service, Target, service

Event = Mapping[str, Any]
Body = Callable[[Sequence[Event]], bytes]

_CONNECTION_COUNTS = (1, 8)
_pack = msgspec.msgpack.Encoder().encode
_chunks = count()
_CONFIGURATION = f"""
[listen]
syslog = ["tcp://127.0.0.1:0"]
syslog_stream = "{STREAM}"
fluent = ["tcp://127.0.0.1:0"]
fluent_stream = "{STREAM}"
otlp_grpc = ["tcp://127.0.0.1:0"]
"""
_ACCEPTED_EVENTS = re.compile(
    rf'^cordwood_ingest_events_total{{stream="{re.escape(STREAM)}",outcome="accepted"}} (\d+)', re.MULTILINE
)


@dataclass(frozen=True)
class SocketSender:
    """A sender of one protocol: its listener's name, its encoding of events, and whether bodies are acknowledged."""

    listener: str
    body: Body
    is_acknowledged: bool


def _fluent_chunk(events: Sequence[Event]) -> bytes:
    entries = b"".join(
        _pack([event["timestamp"], {"message": event["event_message"], **event["metadata"]}]) for event in events
    )
    return _pack([STREAM, entries, {"chunk": f"chunk-{next(_chunks)}", "size": len(events)}])


def _syslog_lines(events: Sequence[Event]) -> bytes:
    return b"".join(b"<134>1 - edge app - - - %s\n" % str(event["event_message"]).encode() for event in events)


def _syslog_octet_counts(events: Sequence[Event]) -> bytes:
    return b"".join(b"%d %s" % (len(line), line) for line in _syslog_lines(events).splitlines())


def _journal_entries(events: Sequence[Event]) -> bytes:
    return b"".join(
        b"__CURSOR=%s\n__REALTIME_TIMESTAMP=1760000000000000\nMESSAGE=%s\n\n"
        % (str(event["id"]).encode(), encode_json(event["metadata"]))
        for event in events
    )


_JOURNAL_MEDIA_TYPE = "application/vnd.fdo.journal"
OVER_HTTP: Mapping[str, tuple[Target, Body]] = {
    "/api/logs, JSON": (API_LOGS, encode_json),
    "journald upload": (
        Target(f"/journald/{STREAM}/upload", {"X-API-KEY": KEY, "Content-Type": _JOURNAL_MEDIA_TYPE}, frozenset({202})),
        _journal_entries,
    ),
}
OVER_SOCKETS: Mapping[str, SocketSender] = {
    "Fluent Forward": SocketSender("fluent", _fluent_chunk, is_acknowledged=True),
    "OTLP over gRPC": SocketSender("OTLP over gRPC", otlp_body, is_acknowledged=True),
    "syslog TCP, lines": SocketSender("syslog", _syslog_lines, is_acknowledged=False),
    "syslog TCP, counts": SocketSender("syslog", _syslog_octet_counts, is_acknowledged=False),
}


def main() -> None:
    cli = argparse.ArgumentParser(
        prog="python -m bench.socket_senders", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("protocols", nargs="*", choices=[*OVER_HTTP, *OVER_SOCKETS, []])
    cli.add_argument("--events", type=int, default=100_000, help="number of events (default: 100,000)")
    cli.add_argument("--batch", type=int, default=1000, help="events in each body (default: 1,000)")
    options = cli.parse_args()
    print("| events a second | 1 sender | 8 senders |\n|---|--:|--:|")
    with tempfile.TemporaryDirectory() as scratch:
        lines = generate(options.events, Path(scratch) / "events.ndjson")
        for name in options.protocols or (*OVER_HTTP, *OVER_SOCKETS):
            rates = [_measure_rate(name, lines, options.batch, connections) for connections in _CONNECTION_COUNTS]
            print(f"| {name} | {rates[0]:,.0f} | {rates[1]:,.0f} |", flush=True)


def _measure_rate(name: str, lines: Path, batch: int, connections: int) -> float:
    """Return the events per second, measured until the last event is durable."""
    batches = list(read_batches(lines, batch))
    events = sum(map(len, batches))
    with tempfile.TemporaryDirectory() as folder:
        configuration = Path(folder) / "cordwood.toml"
        configuration.write_text(_CONFIGURATION)
        with service(Path(folder), "--config", str(configuration)) as running:
            if name in OVER_HTTP:
                target, body = OVER_HTTP[name]
                return events / running.load(iter([body(path) for path in batches]), connections, target)
            sender = OVER_SOCKETS[name]
            port = _port_of(Path(folder) / "log", sender.listener)
            return events / _measure_seconds(
                running, sender, [sender.body(path) for path in batches], (port, connections, events)
            )


def _port_of(log: Path, listener: str) -> int:
    """Return the port of a listener. The service chose the port itself, and wrote it to its log."""
    match = re.search(rf"^Listening for {listener} tcp://127\.0\.0\.1:(\d+)$", log.read_text(), re.MULTILINE)
    if match is None:
        raise SystemExit(f"the service has no listener for {listener}")
    return int(match[1])


def _measure_seconds(running: Service, sender: SocketSender, bodies: list[bytes], load: tuple[int, int, int]) -> float:
    """Return the seconds to send all bodies.

    `load` has the port, the number of connections and the number of events.
    """
    port, connections, events = load
    remaining = iter(bodies)
    lock = threading.Lock()

    def take() -> Iterator[bytes]:
        while True:
            with lock:
                body = next(remaining, None)
            if body is None:
                return
            yield body

    send = _send_otlp if sender.body is otlp_body else _send_bytes
    senders = [threading.Thread(target=send, args=(port, take(), sender)) for _ in range(connections)]
    started_at = time.perf_counter()
    for thread in senders:
        thread.start()
    for item in senders:
        item.join()
    while not sender.is_acknowledged and _accepted_events(running) < events:
        time.sleep(0.02)
    return time.perf_counter() - started_at


def _send_bytes(port: int, bodies: Iterator[bytes], sender: SocketSender) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for body in bodies:
            connection.sendall(body)
            if sender.is_acknowledged and not connection.recv(1000):
                raise SystemExit("the listener closed the connection")


def _send_otlp(port: int, bodies: Iterator[bytes], _: SocketSender) -> None:
    metadata = (("x-api-key", KEY), ("x-source", STREAM))
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")
        for body in bodies:
            export(body, metadata=metadata)


def _accepted_events(running: Service) -> int:
    match = _ACCEPTED_EVENTS.search(running.client.get("/metrics").text)
    return int(match[1]) if match else 0


if __name__ == "__main__":
    main()
