"""OTLP over gRPC in a real process: OpenTelemetry's exporters, a kill, a stop, and what it costs when it is off."""

import logging
import re
from collections.abc import Iterator

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

from tests.journey.conftest import PUBLIC, Service, Start, start_service

EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
STREAM = "pgbouncer.logs.prod"
METADATA = (("x-api-key", PUBLIC), ("x-source", STREAM))
ON_ANY_PORT = {"CORDWOOD_LISTEN_OTLP_GRPC": "tcp://127.0.0.1:0"}


def address(service: Service) -> str:
    """The address of gRPC that the service printed."""
    found = re.search(r"OTLP over gRPC at tcp://(\S+)", service.output.read_text())
    assert found is not None
    return found[1]


def messages(service: Service) -> list[str]:
    query = {"sql": f"select event_message as m from `{STREAM}`"}
    answer = service.client.get("/api/query", params=query)
    assert answer.status_code == 200, answer.text
    return [row["m"] for row in answer.json()["result"]]


def logs(message: str, uid: str) -> bytes:
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add()
    record.body.string_value = message
    record.attributes.add(key="log.record.uid").value.string_value = uid
    return bytes(request.SerializeToString())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running = start_service(tmp_path_factory.mktemp("grpc") / "data", env=ON_ANY_PORT)
    yield running
    if running.process.poll() is None:
        running.stop()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_exporters_of_all_signals_are_served(service: Service) -> None:
    resource = Resource({"service.name": "shop"})
    to = {"endpoint": address(service), "insecure": True, "headers": METADATA, "compression": grpc.Compression.Gzip}
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


def test_what_was_answered_is_stored_through_a_kill_and_a_stop(service: Service, start: Start) -> None:
    acknowledged = []
    with grpc.insecure_channel(address(service)) as channel:
        export = channel.unary_unary(EXPORT)
        for number in range(200):
            future = export.future(logs(f"n{number}", str(number)), metadata=METADATA)
            if number == 150:
                service.kill()
            try:
                future.result()
            except grpc.RpcError:
                # Exporters send again after this one.
                assert future.code() is grpc.StatusCode.UNAVAILABLE
                break
            acknowledged.append(f"n{number}")
    assert len(acknowledged) >= 150
    second = start(env=ON_ANY_PORT, data_dir=service.data_dir)
    with grpc.insecure_channel(address(second)) as channel:
        export = channel.unary_unary(EXPORT)
        export(logs("n150", "150"), metadata=METADATA)
        found = [message for message in messages(second) if re.fullmatch(r"n\d+", message)]
        assert set(found) >= {*acknowledged, "n150"}
        assert len(found) == len(set(found))
        assert second.stop() == 0
        with pytest.raises(grpc.RpcError):
            export(logs("late", "late"), metadata=METADATA, timeout=30)
