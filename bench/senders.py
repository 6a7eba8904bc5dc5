"""`python -m bench.senders`: events a second over HTTP by protocol, durable, beside `/api/logs`.

python -m bench.senders [--events N] [--batch N] [protocol ...]     all protocols without a name

Each protocol sends the same events, a thousand in a body unless told, from one sender and from eight, to a service of
its own. A protocol is an entry of `SENDERS`.
"""

import argparse
import base64
import csv
import io
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from bench.events import make
from bench.service import KEY, Target, service
from cordwood.ingest.formats.protobuf import written_field, written_number
from cordwood.ingest.stamp import read_timestamp

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


_CSV_COLUMNS = ("id", "timestamp", "event_message", "project", "metadata")


def _csv(events: Sequence[Event]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_CSV_COLUMNS)
    for event in events:
        cells = {**event, "metadata": _encode(event["metadata"]).decode()}
        writer.writerow([cells.get(name) for name in _CSV_COLUMNS])
    return out.getvalue().encode()


def _loki_json(events: Sequence[Event]) -> bytes:
    """Entries of one stream, as an agent pushes a file: the event's metadata is its line."""
    values = [[_nanoseconds(event), _encode(event["metadata"]).decode()] for event in events]
    return _encode({"streams": [{"stream": {"service_name": STREAM}, "values": values}]})


def _loki_protobuf(events: Sequence[Event]) -> bytes:
    entries = [
        written_field(2, written_field(1, _timestamp(event)) + written_field(2, _encode(event["metadata"])))
        for event in events
    ]
    stream = written_field(1, f'{{service_name="{STREAM}"}}'.encode()) + b"".join(entries)
    return bytes(pa.compress(written_field(1, stream), codec="snappy", asbytes=True))


def _timestamp(event: Event) -> bytes:
    seconds, nanoseconds = divmod(int(_nanoseconds(event)), 10**9)
    return b"\x08" + written_number(seconds) + b"\x10" + written_number(nanoseconds)


def _nanoseconds(event: Event) -> str:
    return f"{read_timestamp(event['timestamp'])}000"


def _otlp(events: Sequence[Event]) -> bytes:
    """Records with the event's message as their body and its metadata as one attribute."""
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    for event in events:
        record = records.add(time_unix_nano=int(_nanoseconds(event)))
        record.body.string_value = event["event_message"] or ""
        record.attributes.add(key="metadata").value.string_value = _encode(event["metadata"]).decode()
    return bytes(request.SerializeToString())


_JSON = {"X-API-KEY": KEY, "Content-Type": "application/json"}
_BASIC = base64.b64encode(f"bench:{KEY}".encode()).decode()

_OTLP_HEADERS = {"X-API-KEY": KEY, "X-Source": STREAM, "Content-Type": "application/x-protobuf"}


def _pushed(media: str) -> Target:
    headers = {"Authorization": f"Basic {_BASIC}", "Content-Type": media}
    return Target("/loki/api/v1/push", headers, frozenset({204}))


SENDERS: Mapping[str, Sender] = {
    "/api/logs, JSON": Sender(Target(f"/api/logs?source_name={STREAM}", _JSON), _encode),
    "/api/logs, CSV": Sender(Target(f"/api/logs?source_name={STREAM}", {**_JSON, "Content-Type": "text/csv"}), _csv),
    "Elasticsearch _bulk": Sender(Target(f"/{STREAM}/_bulk", {"Authorization": f"Basic {_BASIC}"}), _elastic),
    "Datadog": Sender(Target("/api/v2/logs", {"DD-API-KEY": KEY}, frozenset({202})), _datadog),
    "Splunk HEC": Sender(Target("/services/collector", {"Authorization": f"Splunk {KEY}"}), _splunk),
    "Loki, JSON": Sender(_pushed("application/json"), _loki_json),
    "Loki, protobuf in Snappy": Sender(_pushed("application/x-protobuf"), _loki_protobuf),
    "OTLP, protobuf": Sender(Target("/v1/logs", _OTLP_HEADERS), _otlp),
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
