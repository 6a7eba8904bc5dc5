"""Read OpenTelemetry metrics: each data point becomes an event at its time."""

from collections.abc import Iterator

from cordwood.errors import BadBody
from cordwood.ingest.formats import otlp_protobuf
from cordwood.ingest.formats.otlp import Json, Signal, attributes, event, finite, integer, messages, nanoseconds
from cordwood.ingest.formats.otlp_traces import time_text, word_of
from cordwood.ingest.parsed_body import PostedEvent

# The name of a metric's data in JSON, and the `metric_type` of its events.
_TYPES = {
    "gauge": "gauge",
    "sum": "sum",
    "histogram": "histogram",
    "exponentialHistogram": "exponential_histogram",
    "summary": "summary",
}
_TEMPORALITIES = ("unspecified", "delta", "cumulative")


def _metric_events(metric: Json, resource: Json, around: Json) -> Iterator[PostedEvent]:
    name = metric.get("name")
    for data_name, told_type in _TYPES.items():
        data = metric.get(data_name)
        if not isinstance(data, dict):
            continue
        shared = {
            "type": "metric",
            "metric_type": told_type,
            "unit": metric.get("unit") or None,
            "description": metric.get("description") or None,
            "aggregation_temporality": word_of(
                data.get("aggregationTemporality"), "AGGREGATION_TEMPORALITY_", _TEMPORALITIES
            ),
            "is_monotonic": data.get("isMonotonic"),
            **around,
        }
        for point in _points(data):
            timestamp = nanoseconds(point.get("timeUnixNano"))
            yield event(None if name is None else str(name), timestamp, resource, {**shared, **_point(point)})


def _points(data: Json) -> list[Json]:
    """Return the data points; an item that is not one is an error, because it may hide any number of points."""
    points = data.get("dataPoints") or []
    if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
        raise BadBody("The body is no ExportMetricsServiceRequest: dataPoints holds something that is not an object.")
    return points


def _point(point: Json) -> Json:
    return {
        "value": _number(point.get("asInt"), point.get("asDouble")),
        "count": integer(point.get("count")),
        "sum": finite(point.get("sum")),
        "min": finite(point.get("min")),
        "max": finite(point.get("max")),
        "bucket_counts": _numbers(point.get("bucketCounts")),
        "explicit_bounds": _numbers(point.get("explicitBounds")),
        "scale": integer(point.get("scale")),
        "zero_count": integer(point.get("zeroCount")),
        "zero_threshold": finite(point.get("zeroThreshold")),
        "positive": _buckets(point.get("positive")),
        "negative": _buckets(point.get("negative")),
        "quantiles": [
            {"quantile": finite(one.get("quantile", 0.0)), "value": finite(one.get("value", 0.0))}
            for one in messages(point, "quantileValues")
        ]
        or None,
        "start_time": time_text(nanoseconds(point.get("startTimeUnixNano"))),
        "attributes": attributes(point) or None,
        "flags": point.get("flags") or None,
    }


def _number(as_integer: object, as_double: object) -> object:
    return integer(as_integer) if as_integer is not None else finite(as_double)


def _numbers(values: object) -> list[object] | None:
    """Return a list of numbers; 64-bit integers may be strings."""
    if not isinstance(values, list) or not values:
        return None
    return [integer(one) if isinstance(one, str) else finite(one) for one in values]


def _buckets(buckets: object) -> Json | None:
    if not isinstance(buckets, dict):
        return None
    return {"offset": integer(buckets.get("offset", 0)), "bucket_counts": _numbers(buckets.get("bucketCounts")) or []}


METRICS = Signal(
    "ExportMetricsServiceRequest",
    "resourceMetrics",
    "scopeMetrics",
    "metrics",
    "metric",
    otlp_protobuf.METRICS,
    _metric_events,
)
