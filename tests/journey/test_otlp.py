"""OTLP over HTTP: events of OpenTelemetry's exporters, and refusals in the format of google.rpc.Status."""

import gzip
import json
import logging
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.journey.conftest import PUBLIC, Service, Start, start_service

STREAMS_FILE = """
[[stream]]
name = "otel"

[[stream]]
name = "otel.slow"
rate = "10/s"
"""
ENDPOINTS = {
    "otel": "select t.id, t.event_message, t.project, m from `otel` as t cross join unnest(t.metadata) as m"
    " where t.project = @project order by t.event_message",
    "slow": "select count(*) as n from `otel.slow` where project = @project",
}
ENDPOINT_SETTINGS = '/*\nname = "{}"\n[parameters.project]\nrequired = true\n*/\n'
PROTOBUF, JSON = "application/x-protobuf", "application/json"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("otlp")
    (folder / "streams.toml").write_text(STREAMS_FILE)
    (folder / "endpoints").mkdir()
    for name, sql in ENDPOINTS.items():
        (folder / "endpoints" / f"{name}.sql").write_text(ENDPOINT_SETTINGS.format(name) + sql)
    arguments = ("--streams", str(folder / "streams.toml"), "--endpoints", str(folder / "endpoints"))
    running = start_service(folder / "data", *arguments)
    yield running
    running.stop()


def create_exporter(service: Service, stream: str, compression: Compression) -> OTLPLogExporter:
    headers = {"x-api-key": PUBLIC, "x-source": stream}
    return OTLPLogExporter(f"{service.url}/v1/logs", headers=headers, timeout=60, compression=compression)


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_log_records_of_the_sdk_are_stored_with_severity_resource_and_attributes(
    service: Service, compression: Compression
) -> None:
    project = f"sdk-{compression.value}"
    resource = Resource.create({"service.name": "shop", "project": project})
    provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(create_exporter(service, "otel", compression)))
    logger = logging.getLogger("test.orders")
    handler = LoggingHandler(logger_provider=provider)
    logger.addHandler(handler)
    logger.warning("card %s refused", 7, extra={"amount": 12.5, "retries": [1, 2]})
    logger.error("gave up")
    logger.removeHandler(handler)
    assert provider.force_flush()
    provider.shutdown()
    first, second = map(decode_metadata, service.rows("otel", project=project))
    assert (first["message"], second["message"]) == ("card 7 refused", "gave up")
    assert (first["level"], first["severity_number"], second["level"]) == ("warn", 13, "error")
    assert first["resource"][0]["service.name"] == "shop"
    assert (first["attributes"][0]["amount"], first["attributes"][0]["retries"]) == (12.5, [1, 2])
    assert first["scope"][0]["name"] == "test.orders"


def decode_metadata(row: dict[str, Any]) -> dict[str, Any]:
    (metadata,) = row["m"]
    return {"message": row["event_message"], **metadata}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_sdk_retries_after_a_refusal_without_loss(
    service: Service, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The exporter's logger is reset, because other tests may have configured it.
    exporters = logging.getLogger(OTLPLogExporter.__module__)
    for name, value in {"disabled": False, "propagate": False, "filters": [], "handlers": [caplog.handler]}.items():
        monkeypatch.setattr(exporters, name, value)
    began = time.monotonic()
    provider = LoggerProvider(resource=Resource.create({"project": "patient"}), shutdown_on_exit=False)
    exporter = create_exporter(service, "otel.slow", Compression.Gzip)
    batches = BatchLogRecordProcessor(exporter, schedule_delay_millis=60_000, max_export_batch_size=50)
    provider.add_log_record_processor(batches)
    logger = logging.getLogger("test.hasty")
    handler = LoggingHandler(logger_provider=provider)
    logger.addHandler(handler)
    with caplog.at_level(logging.INFO), caplog.at_level(logging.INFO, exporters.name):
        for number in range(75):
            logger.info("line %d", number)
        logger.removeHandler(handler)
        assert provider.force_flush(60_000)
        provider.shutdown()
    assert service.rows("slow", project="patient") == [{"n": 75}]
    # The first batch uses up the rate limit's allowance of five seconds, so the second batch is refused and retried.
    assert refusal_count(service) >= 1
    assert "Transient error Too Many Requests" in caplog.text
    assert time.monotonic() - began >= 4


def refusal_count(service: Service) -> int:
    sample = re.search(
        r'cordwood_requests_seconds_count\{route="otlp",status="429"\} (\d+)', service.client.get("/metrics").text
    )
    return int(sample[1]) if sample else 0


def post(service: Service, media: str, body: bytes = b"", **more: str) -> httpx.Response:
    headers = {"x-api-key": PUBLIC, "x-source": "otel", "content-type": media} | more
    return httpx.post(f"{service.url}/v1/logs", content=body, headers=headers)


def parse_status(answer: httpx.Response) -> Status:
    """Parse the body of a refusal as google.rpc.Status."""
    assert answer.headers["content-type"] in {PROTOBUF, JSON}
    if answer.headers["content-type"] == PROTOBUF:
        return Status.FromString(answer.content)
    body = answer.json()
    assert set(body) <= {"code", "message", "details"}
    return Status(code=body["code"], message=body["message"])


@pytest.mark.parametrize("media", [PROTOBUF, JSON])
@pytest.mark.parametrize(
    ("more", "status", "code", "expected_message"),
    [
        ({"x-api-key": "wrong"}, 401, 16, "not in force"),
        ({"x-source": "nowhere"}, 404, 5, "no stream 'nowhere'"),
        ({"x-source": ""}, 400, 3, "which stream"),
        ({"content-encoding": "br"}, 415, 3, "br"),
    ],
)
def test_a_refusal_is_a_status_in_the_encoding_of_the_request(
    service: Service, media: str, more: dict[str, str], status: int, code: int, expected_message: str
) -> None:
    answer = post(service, media, b"x", **more)
    assert (answer.status_code, answer.headers["content-type"]) == (status, media)
    assert parse_status(answer).code == code
    assert expected_message in parse_status(answer).message
    assert ("www-authenticate" in answer.headers) == (status == 401)


def test_an_undecodable_body_is_a_bad_request_with_a_field_violation(service: Service) -> None:
    answer = post(service, PROTOBUF, b"\xff" * 9)
    assert answer.status_code == 400
    (detail,) = parse_status(answer).details
    bad_request = BadRequest()
    assert detail.Unpack(bad_request)
    assert "ExportLogsServiceRequest" in bad_request.field_violations[0].description
    answer = post(service, JSON, b'{"resourceLogs": 7}')
    assert answer.status_code == 400
    (violation,) = answer.json()["details"][0]["fieldViolations"]
    assert "resourceLogs is not an array" in violation["description"]


def test_another_method_is_refused_with_a_status(service: Service) -> None:
    answer = httpx.put(f"{service.url}/v1/logs", headers={"content-type": PROTOBUF})
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST, OPTIONS")
    assert parse_status(answer).code == 12


@pytest.mark.parametrize("media", [PROTOBUF, JSON])
def test_an_exceeded_rate_is_429_with_retry_after(start: Start, media: str) -> None:
    slow = start(env={"CORDWOOD_INGEST_STREAM_RATE": "1/m"})
    body_of_three_records = b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{}, {}, {}]}]}]}'
    edge = {"x-source": "postgres.logs"}
    assert post(slow, JSON, body_of_three_records, **edge).status_code == 200
    answer = post(slow, media, b"", **edge)
    assert (answer.status_code, parse_status(answer).code) == (429, 8)
    assert int(answer.headers["retry-after"]) > 60


def test_quarantined_records_are_a_partial_success(service: Service) -> None:
    records = [{"body": {"stringValue": "x" * (2**20 + 1)}}, 7, {"body": {"stringValue": "small"}}]
    project = {"attributes": [{"key": "project", "value": {"stringValue": "partial"}}]}
    request = {"resourceLogs": [{"resource": project, "scopeLogs": [{"logRecords": records}]}]}
    answer = post(service, JSON, gzip.compress(json.dumps(request).encode()), **{"content-encoding": "gzip"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, JSON)
    partial = answer.json()["partialSuccess"]
    assert partial["rejectedLogRecords"] == "2"
    assert "larger than" in partial["errorMessage"]
    assert [row["event_message"] for row in service.rows("otel", project="partial")] == ["small"]


def test_a_partial_success_is_answered_in_protobuf(start: Start) -> None:
    pinned = start()
    terms = {"scopes": "ingest", "pins": {"project": "acme"}}
    key = pinned.client.post("/api/access-tokens", json=terms).json()["token"]
    request = ExportLogsServiceRequest()
    logs = request.resource_logs.add()
    logs.resource.attributes.add(key="project").value.string_value = "another"
    logs.scope_logs.add().log_records.add()
    answer = post(pinned, PROTOBUF, request.SerializeToString(), **{"x-api-key": key, "x-source": "postgres.logs"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, PROTOBUF)
    partial = ExportLogsServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_log_records == 1
    assert "pinned to project 'acme'" in partial.error_message


def test_a_request_without_records_succeeds_with_an_empty_answer(service: Service) -> None:
    for media, body, empty in [(PROTOBUF, b"", b""), (JSON, b"{}", b"{}"), (JSON, b'{"resourceLogs":[]}', b"{}")]:
        answer = post(service, media, body)
        assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, empty, media)


def test_exporters_of_spans_and_metrics_are_served(service: Service) -> None:
    headers = {"x-api-key": PUBLIC, "x-source": "otel"}
    resource = Resource({"project": "signals"})
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{service.url}/v1/traces", headers=headers)))
    with tracers.get_tracer("t").start_as_current_span("a span"):
        pass
    exporter = OTLPMetricExporter(f"{service.url}/v1/metrics", headers=headers)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=600_000)
    meters = MeterProvider(metric_readers=[reader], resource=resource)
    meters.get_meter("m").create_counter("a.counter").add(5, {"k": "v"})
    meters.get_meter("m").create_histogram("b.histogram").record(2.5)
    assert tracers.force_flush()
    assert meters.force_flush()
    tracers.shutdown()
    meters.shutdown()
    exported = {row["event_message"]: json.dumps(row["m"]) for row in service.rows("otel", project="signals")}
    assert set(exported) == {"a span", "a.counter", "b.histogram"}
    assert '"metric_type": "sum"' in exported["a.counter"]


@pytest.mark.parametrize(
    ("path", "body", "rejected"),
    [
        ("/v1/traces", {"resourceSpans": [{"scopeSpans": [{"spans": [5]}]}]}, "rejectedSpans"),
        ("/v1/metrics", {"resourceMetrics": [{"scopeMetrics": [{"metrics": [5]}]}]}, "rejectedDataPoints"),
    ],
)
def test_rejected_items_are_counted_in_the_field_of_the_signal(
    service: Service, path: str, body: object, rejected: str
) -> None:
    answer = httpx.post(f"{service.url}{path}", json=body, headers={"x-api-key": PUBLIC, "x-source": "otel"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["partialSuccess"][rejected] == "1"


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/metrics"])
def test_a_refusal_of_any_signal_is_a_status(service: Service, path: str) -> None:
    headers = {"Content-Type": PROTOBUF, "x-source": "otel"}
    answer = httpx.post(f"{service.url}{path}", content=b"", headers=headers)
    assert (answer.status_code, Status.FromString(answer.content).code) == (401, 16)
