"""`python -m bench.senders`: durable events per second over HTTP, for each protocol, compared with `/api/logs`.

python -m bench.senders [--events N] [--batch N] [protocol ...]     measure the named protocols, or all

Each protocol sends the same events to a newly started service, from one sender and from eight. By default, each body
has a thousand events. The protocols are the entries of `SENDERS`.
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

from bench.events import generate
from bench.service import KEY, Target, service
from cordwood.ingest.build_events import parse_timestamp_us
from cordwood.ingest.formats.protobuf import encode_bytes_field, encode_varint

Event = Mapping[str, Any]

# A stream without derived fields, because deriving them would take longer than parsing most formats.
STREAM = "postgres.logs"

_CONNECTION_COUNTS = (1, 8)
encode_json = msgspec.json.encode


@dataclass(frozen=True)
class Sender:
    """A sender of one protocol: the target of its bodies, and the function that encodes events as a body."""

    target: Target
    body: Callable[[Sequence[Event]], bytes]


def _elasticsearch_body(events: Sequence[Event]) -> bytes:
    lines: list[bytes] = []
    for event in events:
        document = {
            "@timestamp": event["timestamp"],
            "message": event["event_message"],
            "project": event.get("project"),
            **event["metadata"],
        }
        lines += encode_json({"create": {"_id": event["id"]}}), encode_json(document)
    return b"\n".join([*lines, b""])


def _datadog_body(events: Sequence[Event]) -> bytes:
    return encode_json(
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


def _splunk_body(events: Sequence[Event]) -> bytes:
    return b"".join(
        encode_json(
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


def _csv_body(events: Sequence[Event]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_CSV_COLUMNS)
    for event in events:
        cells = {**event, "metadata": encode_json(event["metadata"]).decode()}
        writer.writerow([cells.get(name) for name in _CSV_COLUMNS])
    return out.getvalue().encode()


def _loki_json_body(events: Sequence[Event]) -> bytes:
    """Encode the events as one Loki stream, as an agent sends a file. The line of an entry is the event's metadata."""
    values = [[_nanoseconds(event), encode_json(event["metadata"]).decode()] for event in events]
    return encode_json({"streams": [{"stream": {"service_name": STREAM}, "values": values}]})


def _loki_protobuf_body(events: Sequence[Event]) -> bytes:
    entries = [
        encode_bytes_field(
            2, encode_bytes_field(1, _timestamp(event)) + encode_bytes_field(2, encode_json(event["metadata"]))
        )
        for event in events
    ]
    stream = encode_bytes_field(1, f'{{service_name="{STREAM}"}}'.encode()) + b"".join(entries)
    return bytes(pa.compress(encode_bytes_field(1, stream), codec="snappy", asbytes=True))


def _timestamp(event: Event) -> bytes:
    seconds, nanoseconds = divmod(int(_nanoseconds(event)), 10**9)
    return b"\x08" + encode_varint(seconds) + b"\x10" + encode_varint(nanoseconds)


def _nanoseconds(event: Event) -> str:
    return f"{parse_timestamp_us(event['timestamp'])}000"


def otlp_body(events: Sequence[Event]) -> bytes:
    """Encode the events as log records, with the message as the body and the metadata as one attribute."""
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    for event in events:
        record = records.add(time_unix_nano=int(_nanoseconds(event)))
        record.body.string_value = event["event_message"] or ""
        record.attributes.add(key="metadata").value.string_value = encode_json(event["metadata"]).decode()
    return bytes(request.SerializeToString())


_JSON = {"X-API-KEY": KEY, "Content-Type": "application/json"}
_BASIC_CREDENTIALS = base64.b64encode(f"bench:{KEY}".encode()).decode()

_OTLP_HEADERS = {"X-API-KEY": KEY, "X-Source": STREAM, "Content-Type": "application/x-protobuf"}


def _loki_target(media_type: str) -> Target:
    headers = {"Authorization": f"Basic {_BASIC_CREDENTIALS}", "Content-Type": media_type}
    return Target("/loki/api/v1/push", headers, frozenset({204}))


SENDERS: Mapping[str, Sender] = {
    "/api/logs, JSON": Sender(Target(f"/api/logs?source_name={STREAM}", _JSON), encode_json),
    "/api/logs, CSV": Sender(
        Target(f"/api/logs?source_name={STREAM}", {**_JSON, "Content-Type": "text/csv"}), _csv_body
    ),
    "Elasticsearch _bulk": Sender(
        Target(f"/{STREAM}/_bulk", {"Authorization": f"Basic {_BASIC_CREDENTIALS}"}), _elasticsearch_body
    ),
    "Datadog": Sender(Target("/api/v2/logs", {"DD-API-KEY": KEY}, frozenset({202})), _datadog_body),
    "Splunk HEC": Sender(Target("/services/collector", {"Authorization": f"Splunk {KEY}"}), _splunk_body),
    "Loki, JSON": Sender(_loki_target("application/json"), _loki_json_body),
    "Loki, protobuf in Snappy": Sender(_loki_target("application/x-protobuf"), _loki_protobuf_body),
    "OTLP, protobuf": Sender(Target("/v1/logs", _OTLP_HEADERS), otlp_body),
}


def main() -> None:
    cli = argparse.ArgumentParser(
        prog="python -m bench.senders", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("protocols", nargs="*", choices=[*SENDERS, []])
    cli.add_argument("--events", type=int, default=100_000, help="number of events (default: 100,000)")
    cli.add_argument("--batch", type=int, default=1000, help="events in each body (default: 1,000)")
    options = cli.parse_args()
    print("| events a second | 1 sender | 8 senders | times as long as `/api/logs` |\n|---|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as scratch:
        lines = generate(options.events, Path(scratch) / "events.ndjson")
        first: list[float] = []
        for name in options.protocols or SENDERS:
            rates = [
                _measure_rate(SENDERS[name], lines, options.batch, connections) for connections in _CONNECTION_COUNTS
            ]
            first = first or rates
            slower = first[0] / rates[0]
            print(f"| {name} | {rates[0]:,.0f} | {rates[1]:,.0f} | {slower:.2f} |", flush=True)


def _measure_rate(sender: Sender, lines: Path, batch: int, connections: int) -> float:
    """Return the events per second, measured until the last body is acknowledged."""
    bodies = [sender.body(events) for events in read_batches(lines, batch)]
    with lines.open("rb") as file:
        count = sum(1 for _ in file)
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as running:
        return count / running.load(iter(bodies), connections, sender.target)


def read_batches(lines: Path, size: int) -> Iterator[list[Event]]:
    with lines.open("rb") as file:
        while chunk := list(islice(file, size)):
            yield [msgspec.json.decode(line) for line in chunk]


if __name__ == "__main__":
    main()
