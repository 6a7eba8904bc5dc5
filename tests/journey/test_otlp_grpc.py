"""OTLP over gRPC: OpenTelemetry's exporters, memory, and events that survive a kill or a stop."""

import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.certificates import Authority
from tests.journey.conftest import PUBLIC, Service, Start, start_service

EXPORT_METHOD = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
STREAM = "pgbouncer.logs.prod"
CALL_METADATA = (("x-api-key", PUBLIC), ("x-source", STREAM))
LISTENER_SETTINGS = {"CORDWOOD_LISTEN_OTLP_GRPC": "tcp://127.0.0.1:0"}


def printed_grpc_address(service: Service) -> str:
    """Return the address for gRPC that the service printed."""
    match = re.search(r"OTLP over gRPC \w+://(\S+)", service.output.read_text())
    assert match is not None
    return match[1]


def messages(service: Service) -> list[str]:
    query = {"sql": f"select event_message as m from `{STREAM}`"}
    answer = service.client.get("/api/query", params=query)
    assert answer.status_code == 200, answer.text
    return [row["m"] for row in answer.json()["result"]]


def log_request(message: str, uid: str) -> bytes:
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add()
    record.body.string_value = message
    record.attributes.add(key="log.record.uid").value.string_value = uid
    return bytes(request.SerializeToString())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running = start_service(tmp_path_factory.mktemp("grpc") / "data", env=LISTENER_SETTINGS)
    yield running
    if running.process.poll() is None:
        running.stop()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_exporters_of_all_signals_are_served(service: Service) -> None:
    resource = Resource({"service.name": "shop"})
    to = {
        "endpoint": printed_grpc_address(service),
        "insecure": True,
        "headers": CALL_METADATA,
        "compression": grpc.Compression.Gzip,
    }
    loggers = LoggerProvider(resource=resource, shutdown_on_exit=False)
    loggers.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(**to)))
    logger, handler = logging.getLogger("test.grpc"), LoggingHandler(logger_provider=loggers)
    logger.addHandler(handler)
    logger.warning("a record")
    logger.removeHandler(handler)
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(**to)))
    with tracers.get_tracer("t").start_as_current_span("a span"):
        pass
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(**to), export_interval_millis=600_000)
    meters = MeterProvider(metric_readers=[reader], resource=resource, shutdown_on_exit=False)
    meters.get_meter("m").create_counter("a.counter").add(5)
    assert meters.force_flush()
    for provider in (loggers, tracers, meters):
        provider.shutdown()
    assert {"a record", "a span", "a.counter"} <= set(messages(service))


def test_memory_of_messages_is_freed_after_the_answer(service: Service) -> None:
    status = Path(f"/proc/{service.process.pid}/status")

    def resident_mebibytes() -> int:
        return int(status.read_text().partition("VmRSS:")[2].split()[0]) // 1024

    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(printed_grpc_address(service), options) as channel:
        export, broken = channel.unary_unary(EXPORT_METHOD), b"\xff" * (4 * 2**20 - 16)
        before = resident_mebibytes()
        for _ in range(80):
            with pytest.raises(grpc.RpcError):
                export(broken, metadata=CALL_METADATA)
    assert resident_mebibytes() - before < 80


def test_acknowledged_records_survive_a_kill_and_a_stop(service: Service, start: Start, tmp_path: Path) -> None:
    acknowledged = []
    with grpc.insecure_channel(printed_grpc_address(service)) as channel:
        export = channel.unary_unary(EXPORT_METHOD)
        for number in range(200):
            future = export.future(log_request(f"n{number}", str(number)), metadata=CALL_METADATA)
            if number == 150:
                service.kill()
            try:
                future.result()
            except grpc.RpcError:
                # UNAVAILABLE is a status code after which exporters retry.
                assert future.code() is grpc.StatusCode.UNAVAILABLE
                break
            acknowledged.append(f"n{number}")
    assert len(acknowledged) >= 150
    authority = Authority(tmp_path)
    settings = {
        "CORDWOOD_LISTEN_OTLP_GRPC": "tls://127.0.0.1:0",
        "CORDWOOD_LISTEN_TLS_CERTIFICATE": str(authority.sign_certificate()),
    }
    second = start(env=settings, data_dir=service.data_dir)
    with grpc.secure_channel(
        printed_grpc_address(second), grpc.ssl_channel_credentials(authority.file.read_bytes())
    ) as channel:
        export = channel.unary_unary(EXPORT_METHOD)
        export(log_request("n150", "150"), metadata=CALL_METADATA)
        match = [message for message in messages(second) if re.fullmatch(r"n\d+", message)]
        assert set(match) >= {*acknowledged, "n150"}
        assert len(match) == len(set(match))
        fail_handshake(printed_grpc_address(second))
        assert second.stop() == 0
        with pytest.raises(grpc.RpcError):
            export(log_request("late", "late"), metadata=CALL_METADATA, timeout=30)
    assert "handshake" not in second.output.read_text().lower()


def fail_handshake(grpc_address: str) -> None:
    host, _, port = grpc_address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while connection.recv(1000):
            pass
