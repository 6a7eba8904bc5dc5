"""`python -m bench.senders`: events a second over HTTP by protocol, durable, beside `/api/logs`.

python -m bench.senders [--events N] [--batch N] [protocol ...]     all protocols without a name

Each protocol sends the same events, a thousand in a body unless told, from one sender and from eight, to a service of
its own. A protocol is an entry of `SENDERS`.
"""

import argparse
import base64
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from bench.events import make
from bench.service import KEY, Target, service

Event = Mapping[str, Any]

# It derives no fields: filling them would cost more than reading most formats.
STREAM = "postgres.logs"

_CONNECTIONS = (1, 8)
_encode = msgspec.json.encode


@dataclass(frozen=True)
class Sender:
    """A protocol: where its bodies are posted, and how one is made of events."""

    target: Target
    body: Callable[[Sequence[Event]], bytes]


def _elastic(events: Sequence[Event]) -> bytes:
    lines: list[bytes] = []
    for event in events:
        document = {
            "@timestamp": event["timestamp"],
            "message": event["event_message"],
            "project": event.get("project"),
            **event["metadata"],
        }
        lines += _encode({"create": {"_id": event["id"]}}), _encode(document)
    return b"\n".join([*lines, b""])


def _datadog(events: Sequence[Event]) -> bytes:
    return _encode(
        [
            {
                "timestamp": event["timestamp"],
                "message": event["event_message"],
                "service": STREAM,
                "project": event.get("project"),
                **event["metadata"],
            }
            for event in events
        ]
    )


def _splunk(events: Sequence[Event]) -> bytes:
    return b"".join(
        _encode(
            {
                "time": event["timestamp"],
                "index": STREAM,
                "event": {"message": event["event_message"], **event["metadata"]},
                "fields": {"project": event.get("project")},
            }
        )
        for event in events
    )


_JSON = {"X-API-KEY": KEY, "Content-Type": "application/json"}
_BASIC = base64.b64encode(f"bench:{KEY}".encode()).decode()

SENDERS: Mapping[str, Sender] = {
    "/api/logs, JSON": Sender(Target(f"/api/logs?source_name={STREAM}", _JSON), _encode),
    "Elasticsearch _bulk": Sender(Target(f"/{STREAM}/_bulk", {"Authorization": f"Basic {_BASIC}"}), _elastic),
    "Datadog": Sender(Target("/api/v2/logs", {"DD-API-KEY": KEY}, frozenset({202})), _datadog),
    "Splunk HEC": Sender(Target("/services/collector", {"Authorization": f"Splunk {KEY}"}), _splunk),
}


def main() -> None:
    cli = argparse.ArgumentParser(
        prog="python -m bench.senders", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("protocols", nargs="*", choices=[*SENDERS, []])
    cli.add_argument("--events", type=int, default=100_000)
    cli.add_argument("--batch", type=int, default=1000)
    asked = cli.parse_args()
    print("| events a second | 1 sender | 8 senders | times as long as `/api/logs` |\n|---|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as scratch:
        lines = make(asked.events, Path(scratch) / "events.ndjson")
        first: list[float] = []
        for name in asked.protocols or SENDERS:
            rates = [_rate(SENDERS[name], lines, asked.batch, connections) for connections in _CONNECTIONS]
            first = first or rates
            slower = first[0] / rates[0]
            print(f"| {name} | {rates[0]:,.0f} | {rates[1]:,.0f} | {slower:.2f} |", flush=True)


def _rate(sender: Sender, lines: Path, batch: int, connections: int) -> float:
    """Events a second until the last body is acknowledged."""
    bodies = [sender.body(events) for events in _batches(lines, batch)]
    with lines.open("rb") as file:
        count = sum(1 for _ in file)
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as ours:
        return count / ours.load(iter(bodies), connections, sender.target)


def _batches(lines: Path, size: int) -> Iterator[list[Event]]:
    with lines.open("rb") as file:
        while chunk := list(islice(file, size)):
            yield [msgspec.json.decode(line) for line in chunk]


if __name__ == "__main__":
    main()
