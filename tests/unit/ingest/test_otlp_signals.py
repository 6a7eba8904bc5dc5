"""OTLP spans and metrics give the same events in JSON and protobuf, and hostile bodies are refused."""

import json
import random

import pytest
from google.protobuf.json_format import MessageToJson  # type: ignore[import-untyped] # it has no types
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from cordwood.errors import BadBody, BodyTooLarge
from cordwood.ingest.build_events import build_events
from cordwood.ingest.formats import BodyFormat, read_body
from cordwood.ingest.parsed_body import Body
from cordwood.model.event import Event

NOW_US = 1_700_000_000_000_000
START_NS = 1_690_000_000_123_456_789
TRACE_ID, SPAN_ID = bytes(range(16)), bytes(range(8, 16))
PROTOBUF = "application/x-protobuf"


def events(form: BodyFormat, body: bytes, media: str = PROTOBUF, limit: int = 200_000) -> list[Event]:
    return build_events(read_body(form, Body(body, media, max_items=limit)), NOW_US)


def traces_request() -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add()
    of_resource.resource.attributes.add(key="project").value.string_value = "p"
    span = of_resource.scope_spans.add().spans.add(trace_id=TRACE_ID, span_id=SPAN_ID, name="GET /", kind=2)
    span.start_time_unix_nano, span.end_time_unix_nano = START_NS, START_NS + 1_500_000
    span.attributes.add(key="http.status").value.int_value = 200
    span.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message="broken"))
    span.events.add(time_unix_nano=START_NS, name="retry").attributes.add(key="n").value.double_value = 1.5
    span.links.add(trace_id=TRACE_ID, span_id=SPAN_ID)
    of_resource.scope_spans[0].spans.add(name="no ids")
    return request


def metrics_request() -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    gauge = Metric(name="g", unit="1")
    gauge.gauge.data_points.add(time_unix_nano=START_NS, as_double=2.5).attributes.add(key="a").value.bool_value = True
    gauge.gauge.data_points.add(time_unix_nano=START_NS, as_int=-3)
    total = Metric(name="s")
    total.sum.is_monotonic, total.sum.aggregation_temporality = True, 2  # type: ignore[assignment] # an enum is its number
    total.sum.data_points.add(time_unix_nano=START_NS, as_int=7, start_time_unix_nano=START_NS)
    histogram = Metric(name="h")
    histogram.histogram.data_points.add(count=3, sum=4.5, min=1, max=2, bucket_counts=[1, 2], explicit_bounds=[1.5])
    exponential = Metric(name="e")
    point = exponential.exponential_histogram.data_points.add(count=3, scale=-2, zero_count=1)
    point.positive.offset = -5
    point.positive.bucket_counts.extend([1, 300])
    summary = Metric(name="q")
    summary.summary.data_points.add(count=1, sum=1).quantile_values.add(quantile=0.5, value=9)
    metrics.extend([gauge, total, histogram, exponential, summary])
    return request


def metadata(event: Event) -> dict[str, object]:
    decoded = json.loads(event.metadata or "null")
    assert isinstance(decoded, dict)
    return decoded


def test_a_span_is_an_event_at_its_start_time_with_a_stable_id() -> None:
    span, bare = events(BodyFormat.OTLP_TRACES, traces_request().SerializeToString())
    assert (span.event_message, span.project, span.timestamp_us) == ("GET /", "p", START_NS // 1000)
    assert span.id == f"{TRACE_ID.hex()}-{SPAN_ID.hex()}-server"
    assert metadata(span) == {
        "type": "span",
        "trace_id": TRACE_ID.hex(),
        "span_id": SPAN_ID.hex(),
        "kind": "server",
        "start_time": "2023-07-22T04:26:40.123456789Z",
        "end_time": "2023-07-22T04:26:40.124956789Z",
        "duration_ms": 1.5,
        "status": {"code": "error", "message": "broken"},
        "attributes": {"http.status": 200},
        "events": [{"name": "retry", "timestamp": "2023-07-22T04:26:40.123456789Z", "attributes": {"n": 1.5}}],
        "links": [{"trace_id": TRACE_ID.hex(), "span_id": SPAN_ID.hex()}],
        "resource": {"project": "p"},
    }
    assert (bare.event_message, bare.timestamp_inferred) == ("no ids", True)


def test_each_data_point_is_an_event() -> None:
    points = [
        (event.event_message, metadata(event))
        for event in events(BodyFormat.OTLP_METRICS, metrics_request().SerializeToString())
    ]
    assert [name for name, _ in points] == ["g", "g", "s", "h", "e", "q"]
    first, second, total, histogram, exponential, summary = (of for _, of in points)
    assert first == {"type": "metric", "metric_type": "gauge", "unit": "1", "value": 2.5, "attributes": {"a": True}}
    assert second["value"] == -3
    assert (total["value"], total["is_monotonic"], total["aggregation_temporality"]) == (7, True, "cumulative")
    assert total["start_time"] == "2023-07-22T04:26:40.123456789Z"
    histogram_fields = {
        "count": 3,
        "sum": 4.5,
        "min": 1.0,
        "max": 2.0,
        "bucket_counts": [1, 2],
        "explicit_bounds": [1.5],
    }
    assert histogram == {"type": "metric", "metric_type": "histogram", **histogram_fields}
    assert exponential["positive"] == {"offset": -5, "bucket_counts": [1, 300]}
    assert (exponential["scale"], exponential["zero_count"]) == (-2, 1)
    assert summary["quantiles"] == [{"quantile": 0.5, "value": 9.0}]


@pytest.mark.parametrize(
    ("form", "request_"),
    [(BodyFormat.OTLP_TRACES, traces_request()), (BodyFormat.OTLP_METRICS, metrics_request())],
    ids=["traces", "metrics"],
)
class TestBothSignals:
    def test_json_and_protobuf_give_the_same_events(
        self, form: BodyFormat, request_: ExportTraceServiceRequest | ExportMetricsServiceRequest
    ) -> None:
        as_json = events(form, MessageToJson(request_).encode(), "application/json")
        as_protobuf = events(form, request_.SerializeToString())
        assert [event.event_message for event in as_json] == [event.event_message for event in as_protobuf]
        assert [metadata(event) for event in as_json] == [metadata(event) for event in as_protobuf]

    def test_a_damaged_body_is_read_or_refused(
        self, form: BodyFormat, request_: ExportTraceServiceRequest | ExportMetricsServiceRequest
    ) -> None:
        chance = random.Random(1)
        for media, valid_body in (
            (PROTOBUF, request_.SerializeToString()),
            ("application/json", MessageToJson(request_, indent=None).encode()),
        ):
            for _ in range(1000):
                broken = bytearray(valid_body)
                for _ in range(chance.randrange(1, 4)):
                    broken[chance.randrange(len(broken))] = chance.randrange(256)
                try:
                    events(form, bytes(broken), media)
                except BadBody:
                    continue

    def test_events_beyond_the_limit_are_refused(
        self, form: BodyFormat, request_: ExportTraceServiceRequest | ExportMetricsServiceRequest
    ) -> None:
        with pytest.raises((BodyTooLarge, BadBody), match=r"too many|more than 1 item"):
            events(form, request_.SerializeToString(), limit=1)


def test_packed_numbers_are_counted_as_fields() -> None:
    request = metrics_request()
    point = request.resource_metrics[0].scope_metrics[0].metrics[3].exponential_histogram.data_points[0]
    point.positive.bucket_counts.extend([1] * 5000)
    with pytest.raises(BadBody, match="too many fields"):
        events(BodyFormat.OTLP_METRICS, request.SerializeToString(), limit=100)


@pytest.mark.parametrize(
    "odd", ["7", "[5]", '{"gauge": {"dataPoints": [5]}}', '{"name": {}, "sum": {"dataPoints": [{"asInt": "x"}]}}']
)
def test_malformed_metrics_are_refused_or_quarantined(odd: str) -> None:
    body = f'{{"resourceMetrics": [{{"scopeMetrics": [{{"metrics": [{odd}]}}]}}]}}'.encode()
    try:
        parsed = read_body(BodyFormat.OTLP_METRICS, Body(body, "application/json"))
    except BadBody:
        return
    assert len(parsed.events) + len(parsed.refused_items) == 1


def test_times_beyond_the_calendar_are_omitted() -> None:
    span = {"name": "n", "startTimeUnixNano": "9" * 400, "endTimeUnixNano": 10**30}
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
    (event,) = events(BodyFormat.OTLP_TRACES, body, "application/json")
    assert metadata(event) == {"type": "span"}
