"""`python -m bench.socket_senders`: events a second by the listeners beside HTTP, and by uploads of the journal.

python -m bench.socket_senders [--events N] [--batch N] [protocol ...]     all protocols without a name

The events are those of `bench.senders`, with `/api/logs` beside them. Fluent chunks are acknowledged; syslog has no
acknowledgement, so its time ends when all events are counted as stored, and its events have messages alone.
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

from bench.events import STREAM, make
from bench.senders import _batches, _encode, _otlp
from bench.service import API_LOGS, KEY, Service, Target, service

Event = Mapping[str, Any]
Body = Callable[[Sequence[Event]], bytes]

_CONNECTIONS = (1, 8)
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
_STORED = re.compile(
    rf'^cordwood_ingest_events_total{{stream="{re.escape(STREAM)}",outcome="accepted"}} (\d+)', re.MULTILINE
)


@dataclass(frozen=True)
class SocketSender:
    """A protocol: the name of its listener, how a body is made, and whether each body is acknowledged."""

    listener: str
    body: Body
    is_acknowledged: bool


def _fluent(events: Sequence[Event]) -> bytes:
    entries = b"".join(
        _pack([event["timestamp"], {"message": event["event_message"], **event["metadata"]}]) for event in events
    )
    return _pack([STREAM, entries, {"chunk": f"chunk-{next(_chunks)}", "size": len(events)}])


def _lines(events: Sequence[Event]) -> bytes:
    return b"".join(b"<134>1 - edge app - - - %s\n" % str(event["event_message"]).encode() for event in events)


def _counted(events: Sequence[Event]) -> bytes:
    return b"".join(b"%d %s" % (len(line), line) for line in _lines(events).splitlines())


def _journal(events: Sequence[Event]) -> bytes:
    return b"".join(
        b"__CURSOR=%s\n__REALTIME_TIMESTAMP=1760000000000000\nMESSAGE=%s\n\n"
        % (str(event["id"]).encode(), _encode(event["metadata"]))
        for event in events
    )


_MEDIA = "application/vnd.fdo.journal"
OVER_HTTP: Mapping[str, tuple[Target, Body]] = {
    "/api/logs, JSON": (API_LOGS, _encode),
    "journald upload": (
        Target(f"/journald/{STREAM}/upload", {"X-API-KEY": KEY, "Content-Type": _MEDIA}, frozenset({202})),
        _journal,
    ),
}
OVER_SOCKETS: Mapping[str, SocketSender] = {
    "Fluent Forward": SocketSender("fluent", _fluent, is_acknowledged=True),
    "OTLP over gRPC": SocketSender("OTLP over gRPC", _otlp, is_acknowledged=True),
    "syslog TCP, lines": SocketSender("syslog", _lines, is_acknowledged=False),
    "syslog TCP, counts": SocketSender("syslog", _counted, is_acknowledged=False),
}


def main() -> None:
    cli = argparse.ArgumentParser(
        prog="python -m bench.socket_senders", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("protocols", nargs="*", choices=[*OVER_HTTP, *OVER_SOCKETS, []])
    cli.add_argument("--events", type=int, default=100_000)
    cli.add_argument("--batch", type=int, default=1000)
    asked = cli.parse_args()
    print("| events a second | 1 sender | 8 senders |\n|---|--:|--:|")
    with tempfile.TemporaryDirectory() as scratch:
        lines = make(asked.events, Path(scratch) / "events.ndjson")
        for name in asked.protocols or (*OVER_HTTP, *OVER_SOCKETS):
            rates = [_rate(name, lines, asked.batch, connections) for connections in _CONNECTIONS]
            print(f"| {name} | {rates[0]:,.0f} | {rates[1]:,.0f} |", flush=True)


def _rate(name: str, lines: Path, batch: int, connections: int) -> float:
    """Events a second until the last one is durable."""
    batches = list(_batches(lines, batch))
    events = sum(map(len, batches))
    with tempfile.TemporaryDirectory() as folder:
        configuration = Path(folder) / "cordwood.toml"
        configuration.write_text(_CONFIGURATION)
        with service(Path(folder), "--config", str(configuration)) as ours:
            if name in OVER_HTTP:
                target, body = OVER_HTTP[name]
                return events / ours.load(iter([body(one) for one in batches]), connections, target)
            sender = OVER_SOCKETS[name]
            port = _port(Path(folder) / "log", sender.listener)
            return events / _seconds(ours, sender, [sender.body(one) for one in batches], (port, connections, events))


def _port(log: Path, listener: str) -> int:
    found = re.search(rf"^Listening for {listener} tcp://127\.0\.0\.1:(\d+)$", log.read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit(f"the service has no listener for {listener}")
    return int(found[1])


def _seconds(ours: Service, sender: SocketSender, bodies: list[bytes], where: tuple[int, int, int]) -> float:
    port, connections, events = where
    waiting = iter(bodies)
    lock = threading.Lock()

    def take() -> Iterator[bytes]:
        while True:
            with lock:
                body = next(waiting, None)
            if body is None:
                return
            yield body

    send = _export if sender.body is _otlp else _send
    senders = [threading.Thread(target=send, args=(port, take(), sender)) for _ in range(connections)]
    began = time.perf_counter()
    for one in senders:
        one.start()
    for one in senders:
        one.join()
    while not sender.is_acknowledged and _stored(ours) < events:
        time.sleep(0.02)
    return time.perf_counter() - began


def _send(port: int, bodies: Iterator[bytes], sender: SocketSender) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for body in bodies:
            connection.sendall(body)
            if sender.is_acknowledged and not connection.recv(1000):
                raise SystemExit("the listener closed the connection")


def _export(port: int, bodies: Iterator[bytes], _: SocketSender) -> None:
    metadata = (("x-api-key", KEY), ("x-source", STREAM))
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")
        for body in bodies:
            export(body, metadata=metadata)


def _stored(ours: Service) -> int:
    found = _STORED.search(ours.client.get("/metrics").text)
    return int(found[1]) if found else 0


if __name__ == "__main__":
    main()
