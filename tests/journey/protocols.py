"""Small clients of every ingest protocol, which interpret the answer as a sender of the protocol does."""

import base64
import csv
import io
import json
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from uuid import uuid4

import grpc
import httpx
import msgspec
import pyarrow as pa
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from cordwood.ingest.formats.protobuf import encode_bytes_field, encode_varint
from tests.journey.conftest import Service

STREAM = "postgres.logs"
EXPORT_METHOD = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
LISTENER_SETTINGS = {
    "CORDWOOD_LISTEN_SYSLOG": "tcp://127.0.0.1:0",
    "CORDWOOD_LISTEN_SYSLOG_STREAM": STREAM,
    "CORDWOOD_LISTEN_FLUENT": "tcp://127.0.0.1:0",
    "CORDWOOD_LISTEN_FLUENT_STREAM": STREAM,
    "CORDWOOD_LISTEN_OTLP_GRPC": "tcp://127.0.0.1:0",
}
TIMEOUT_SECONDS = 60.0
NANOSECONDS = "1760000000000000000"
_pack = msgspec.msgpack.encode


class Outcome(Enum):
    """The reaction of a sender of the protocol to the answer."""

    STORED = auto()
    RETRY = auto()
    REFUSED = auto()


class Answer(msgspec.Struct, frozen=True):
    """The outcome for the sender, and the answer of the service as text."""

    outcome: Outcome
    detail: str


@dataclass(frozen=True)
class Protocol:
    """An ingest protocol. `encode` makes a body of messages.

    `broken` is a body with a malformed item between the messages `before` and `after`. If `is_read_whole` is set, a
    body is parsed as a whole, so that no single item can be malformed. Such a `broken` body ends after both messages,
    incomplete.
    """

    name: str
    encode: Callable[[Sequence[str]], bytes]
    send: Callable[[Service, bytes, str], Answer]
    broken: bytes
    is_read_whole: bool = False
    max_body_bytes: int = 16 * 2**20


def join_lines(*items: object) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


# Protocols over HTTP


def over_http(
    path: str,
    headers: Callable[[str], Mapping[str, str]],
    stored: Callable[[httpx.Response], bool],
    retried: frozenset[int] = frozenset({429, 503, 507}),
) -> Callable[[Service, bytes, str], Answer]:
    """Return a function that sends a body by POST.

    `headers` returns the headers that carry a key. `stored` tests whether the whole body was acknowledged.
    """

    def send(service: Service, body: bytes, key: str) -> Answer:
        try:
            answer = httpx.post(
                f"{service.url}{path}", content=body, headers=dict(headers(key)), timeout=TIMEOUT_SECONDS
            )
        except httpx.HTTPError as problem:
            return Answer(Outcome.RETRY, repr(problem))
        detail = f"{answer.status_code} {answer.text[:300]}"
        if stored(answer):
            return Answer(Outcome.STORED, detail)
        is_retried = answer.status_code in retried or any(f'"status":{status}' in answer.text for status in retried)
        return Answer(Outcome.RETRY if is_retried else Outcome.REFUSED, detail)

    return send


def basic_credentials(key: str) -> str:
    return "Basic " + base64.b64encode(f"sender:{key}".encode()).decode()


def has_status(code: int) -> Callable[[httpx.Response], bool]:
    return lambda answer: answer.status_code == code


def json_array(messages: Sequence[str]) -> bytes:
    return json.dumps([{"event_message": message} for message in messages]).encode()


def csv_rows(messages: Sequence[str]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerows([["event_message", "level"], *([message, "info"] for message in messages)])
    return out.getvalue().encode()


def elasticsearch_bulk(messages: Sequence[str]) -> bytes:
    return b"".join(join_lines({"create": {}}, {"message": message}) for message in messages)


def splunk(messages: Sequence[str]) -> bytes:
    return join_lines(*({"event": message, "index": STREAM} for message in messages))


def datadog(messages: Sequence[str]) -> bytes:
    return json.dumps([{"message": message, "service": STREAM} for message in messages]).encode()


def loki_json(messages: Sequence[str]) -> bytes:
    values = [[NANOSECONDS, message] for message in messages]
    return json.dumps({"streams": [{"stream": {"service_name": STREAM}, "values": values}]}).encode()


def loki_protobuf(messages: Sequence[str]) -> bytes:
    seconds = b"\x08" + encode_varint(1_760_000_000)
    entries = [
        encode_bytes_field(2, encode_bytes_field(1, seconds) + encode_bytes_field(2, text.encode()))
        for text in messages
    ]
    stream = encode_bytes_field(1, f'{{service_name="{STREAM}"}}'.encode()) + b"".join(entries)
    return bytes(pa.compress(encode_bytes_field(1, stream), codec="snappy", asbytes=True))


def otlp(messages: Sequence[str]) -> bytes:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    for message in messages:
        record = records.add()
        record.body.string_value = message
        record.attributes.add(key="log.record.uid").value.string_value = str(uuid4())
    return bytes(request.SerializeToString())


def journal(messages: Sequence[str]) -> bytes:
    return b"".join(b"__CURSOR=%s\nMESSAGE=%s\n\n" % (uuid4().hex.encode(), message.encode()) for message in messages)


# Protocols over sockets


def port_of(service: Service, listener: str) -> int:
    """Return the port that the service printed for `syslog tcp`, `syslog udp`, `fluent tcp` or `OTLP over gRPC tcp`."""
    match = re.search(rf"{re.escape(listener)}://127\.0\.0\.1:(\d+)", service.output.read_text())
    assert match is not None, service.output.read_text()
    return int(match[1])


def fluent(messages: Sequence[str]) -> bytes:
    entries = b"".join(_pack([1_760_000_000, {"message": message}]) for message in messages)
    return _pack(["web.log", entries, {"chunk": uuid4().hex, "size": len(messages)}])


def send_fluent(service: Service, body: bytes, _: str) -> Answer:
    """Send a chunk and wait for its acknowledgement; the time limit grows with the chunk.

    A sender repeats a chunk that is not acknowledged.
    """
    seconds = 3 + len(body) / 2**20
    try:
        with socket.create_connection(("127.0.0.1", port_of(service, "fluent tcp")), timeout=seconds) as connection:
            connection.sendall(body)
            answer = connection.recv(1000)
    except OSError as problem:
        return Answer(Outcome.RETRY, repr(problem))
    return Answer(Outcome.STORED, repr(answer)) if b"ack" in answer else Answer(Outcome.RETRY, repr(answer))


def send_grpc(service: Service, body: bytes, key: str) -> Answer:
    """Export a body once, and interpret the status as OpenTelemetry's exporters do."""
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{port_of(service, 'OTLP over gRPC tcp')}", options) as channel:
        try:
            channel.unary_unary(EXPORT_METHOD)(
                body, metadata=(("x-api-key", key), ("x-source", STREAM)), timeout=TIMEOUT_SECONDS
            )
        except grpc.RpcError as problem:
            code = problem.code()
            is_retried = code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED} or (
                code is grpc.StatusCode.RESOURCE_EXHAUSTED and "google.rpc.retryinfo" in str(problem).lower()
            )
            return Answer(Outcome.RETRY if is_retried else Outcome.REFUSED, f"{code}")
    return Answer(Outcome.STORED, "OK")


VALID_MESSAGES = ("before", "after")


def _json_headers(media: str = "application/json") -> Callable[[str], Mapping[str, str]]:
    return lambda key: {"X-API-KEY": key, "Content-Type": media}


def _is_bulk_stored(answer: httpx.Response) -> bool:
    return answer.status_code == 200 and answer.json()["errors"] is False


def _is_without_partial_success(answer: httpx.Response) -> bool:
    return answer.status_code == 200 and answer.content in (b"", b"{}")


def _is_splunk_stored(answer: httpx.Response) -> bool:
    return answer.status_code == 200 and answer.json()["code"] == 0


LOGS_PATH = f"/api/logs?source_name={STREAM}"
PROTOCOLS: Sequence[Protocol] = (
    Protocol(
        "json",
        json_array,
        over_http(LOGS_PATH, _json_headers(), has_status(200)),
        b'[{"event_message":"before"},5,{"event_message":"after"}]',
    ),
    Protocol(
        "csv",
        csv_rows,
        over_http(LOGS_PATH, _json_headers("text/csv"), has_status(200)),
        b"event_message,level\r\nbefore,info\r\na,b,c,d\r\nafter,info\r\n",
    ),
    Protocol(
        "elasticsearch",
        elasticsearch_bulk,
        over_http(f"/{STREAM}/_bulk", lambda key: {"Authorization": basic_credentials(key)}, _is_bulk_stored),
        join_lines({"create": {}}, {"message": "before"}, {"create": {}}, [5], {"create": {}}, {"message": "after"}),
    ),
    Protocol(
        "splunk",
        splunk,
        over_http("/services/collector", lambda key: {"Authorization": f"Splunk {key}"}, _is_splunk_stored),
        join_lines({"event": "before", "index": STREAM}, {"index": STREAM}, {"event": "after", "index": STREAM}),
    ),
    Protocol(
        "splunk raw",
        lambda messages: "\n".join(messages).encode(),
        over_http(
            f"/services/collector/raw?index={STREAM}", lambda key: {"Authorization": f"Splunk {key}"}, _is_splunk_stored
        ),
        b"before\n\xff\xfe\nafter\n",
    ),
    Protocol(
        "datadog",
        datadog,
        over_http("/api/v2/logs", lambda key: {"DD-API-KEY": key, "Content-Type": "application/json"}, has_status(202)),
        json.dumps([{"message": "before", "service": STREAM}, 5, {"message": "after", "service": STREAM}]).encode(),
    ),
    Protocol(
        "loki json",
        loki_json,
        over_http(
            "/loki/api/v1/push",
            lambda key: {"Authorization": basic_credentials(key), "Content-Type": "application/json"},
            has_status(204),
        ),
        json.dumps(
            {
                "streams": [
                    {
                        "stream": {"service_name": STREAM},
                        "values": [[NANOSECONDS, "before"], 5, [NANOSECONDS, "after"]],
                    }
                ]
            }
        ).encode(),
    ),
    Protocol(
        "loki protobuf",
        loki_protobuf,
        over_http(
            "/loki/api/v1/push",
            lambda key: {"Authorization": basic_credentials(key), "Content-Type": "application/x-protobuf"},
            has_status(204),
        ),
        loki_protobuf(VALID_MESSAGES)[:-1],
        is_read_whole=True,
    ),
    Protocol(
        "otlp",
        otlp,
        over_http(
            "/v1/logs",
            lambda key: {"X-API-KEY": key, "X-Source": STREAM, "Content-Type": "application/x-protobuf"},
            _is_without_partial_success,
        ),
        otlp(VALID_MESSAGES)[:-1],
        is_read_whole=True,
    ),
    Protocol(
        "journald",
        journal,
        over_http(
            f"/journald/{STREAM}/upload",
            lambda key: {"Authorization": basic_credentials(key), "Content-Type": "application/vnd.fdo.journal"},
            has_status(202),
        ),
        b"__CURSOR=a\nMESSAGE=before\n\n=x\nMESSAGE=broken\n\n__CURSOR=b\nMESSAGE=after\n\n",
    ),
    Protocol(
        "fluent",
        fluent,
        send_fluent,
        _pack(["web.log", [[1, {"message": "before"}], 5, [1, {"message": "after"}]], {"chunk": "broken", "size": 3}]),
    ),
    Protocol("otlp grpc", otlp, send_grpc, otlp(VALID_MESSAGES)[:-1], is_read_whole=True, max_body_bytes=4 * 2**20),
)
