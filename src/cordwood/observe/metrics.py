"""Metrics, counted from observations and written in Prometheus's text format, and the event rates of streams."""

import math
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from cordwood.observe.observation import (
    AdmissionAwaited,
    AlertEvaluated,
    AlertSent,
    CachedAnswerRefreshed,
    EngineEnded,
    EngineQueried,
    EventsIngested,
    IsolationBreachRefused,
    ListenerOutcomeCounted,
    PartialAnswersUsed,
    QuarantinedQueryRefused,
    RequestAnswered,
)

ARRIVAL_RATE_WINDOW_SECONDS = 60


class ArrivalRateCounter:
    """Counts the events that arrive for each stream, in steps of a second, over the last minute.

    `count_events` is not thread-safe.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started_at = clock()
        self._counts_per_second_by_stream: dict[str, deque[tuple[int, int]]] = {}

    def count_events(self, ingested: EventsIngested) -> None:
        if not ingested.accepted:
            return
        counts = self._counts_per_second_by_stream.setdefault(
            ingested.stream, deque(maxlen=ARRIVAL_RATE_WINDOW_SECONDS + 1)
        )
        second = int(self._clock())
        if counts and counts[-1][0] == second:
            counts[-1] = (second, counts[-1][1] + ingested.accepted)
        else:
            counts.append((second, ingested.accepted))

    def events_per_second(self, stream: str) -> float:
        now = self._clock()
        since = now - ARRIVAL_RATE_WINDOW_SECONDS
        events = sum(
            count for second, count in list(self._counts_per_second_by_stream.get(stream, ())) if second >= since
        )
        return events / max(1.0, min(ARRIVAL_RATE_WINDOW_SECONDS, now - self._started_at))


METRICS_CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
MetricLabels = tuple[str, ...]
HISTOGRAM_BUCKET_BOUNDS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Counter:
    """A counter metric, with a separate sum for each combination of label values."""

    metric_type = "counter"

    def __init__(self, name: str, meaning: str, labels: MetricLabels) -> None:
        self.name, self.meaning, self._labels = name, meaning, labels
        self._sums_by_label_values: dict[MetricLabels, float] = {}

    def add(self, values: MetricLabels, amount: float = 1) -> None:
        self._sums_by_label_values[values] = self._sums_by_label_values.get(values, 0) + amount

    def sums_by_label(self, index: int) -> dict[str, int]:
        """Return a sum for each value of one label, over all values of the other labels.

        `index` is the position of this label in the counter's labels.
        """
        sums: dict[str, int] = {}
        for values, amount in self._sums_by_label_values.items():
            sums[values[index]] = sums.get(values[index], 0) + int(amount)
        return sums

    def sample_lines(self) -> Iterable[str]:
        for values, amount in sorted(self._sums_by_label_values.items()):
            yield f"{self.name}{_format_labels(self._labels, values)} {_format_metric_value(amount)}"


class Histogram:
    """A histogram of durations, with separate buckets for each combination of label values."""

    metric_type = "histogram"

    def __init__(self, name: str, meaning: str, labels: MetricLabels) -> None:
        self.name, self.meaning, self._labels = name, meaning, labels
        self._bucket_counts_by_labels: dict[MetricLabels, list[int]] = {}
        self._total_seconds_by_labels: dict[MetricLabels, float] = {}

    def add_duration(self, values: MetricLabels, seconds: float) -> None:
        counts = self._bucket_counts_by_labels.get(values)
        if counts is None:
            counts = self._bucket_counts_by_labels[values] = [0] * (len(HISTOGRAM_BUCKET_BOUNDS_SECONDS) + 1)
            self._total_seconds_by_labels[values] = 0.0
        counts[bisect_left(HISTOGRAM_BUCKET_BOUNDS_SECONDS, seconds)] += 1
        self._total_seconds_by_labels[values] += seconds

    def sample_lines(self) -> Iterable[str]:
        bounds = [*(f"{bound:g}" for bound in HISTOGRAM_BUCKET_BOUNDS_SECONDS), "+Inf"]
        for values, counts in sorted(self._bucket_counts_by_labels.items()):
            total = 0
            for bound, count in zip(bounds, counts, strict=True):
                total += count
                yield f"{self.name}_bucket{_format_labels((*self._labels, 'le'), (*values, bound))} {total}"
            yield f"{self.name}_sum{_format_labels(self._labels, values)} {self._total_seconds_by_labels[values]:.6f}"
            yield f"{self.name}_count{_format_labels(self._labels, values)} {total}"


class Metrics:
    """The service's metrics: counters of observations, and functions (`gauges`) that return current values."""

    def __init__(self, version: str, gauges: Mapping[str, Callable[[], float]] | None = None) -> None:
        self._service_version = version
        self.gauge_readers = dict(gauges or {})
        self.arrival_rate_counter = ArrivalRateCounter()
        self._lock = threading.Lock()
        self._engine_queries = Counter(
            "cordwood_engine_queries_total", "Queries that the engine ran.", ("endpoint", "engine", "outcome")
        )
        self._partial_answer_uses = Counter(
            "cordwood_partial_answers_total", "Answers from partial answers, by outcome.", ("outcome",)
        )
        self._cache_requests = Counter(
            "cordwood_cache_requests_total", "Queries by cache outcome.", ("endpoint", "outcome")
        )
        self._cache_refreshes = Counter(
            "cordwood_cache_refreshes_total", "Refreshes of cached answers.", ("endpoint", "outcome")
        )
        self._ingested_events = Counter(
            "cordwood_ingest_events_total", "Received events by outcome.", ("stream", "outcome")
        )
        self._events_beyond_time_bounds = Counter(
            "cordwood_ingest_beyond_bounds_total",
            "Events whose time was outside of the bounds of their stream.",
            ("stream", "clock"),
        )
        self._transformed_events = Counter(
            "cordwood_ingest_transforms_total",
            "Events by transform and its outcome.",
            ("stream", "transform", "outcome"),
        )
        self._listener_outcomes = Counter(
            "cordwood_listener_total",
            "Messages and connections of the listeners beside HTTP, by outcome.",
            ("listener", "outcome"),
        )
        self._alert_evaluations = Counter(
            "cordwood_alert_evaluations_total", "Evaluations of alerts, by outcome.", ("alert", "outcome")
        )
        self._alert_notifications = Counter(
            "cordwood_alert_notifications_total", "Notifications of alerts, by outcome.", ("target", "outcome")
        )
        self._isolation_refusals = Counter(
            "cordwood_isolation_refusals_total", "Statements refused by the isolation check.", ("engine",)
        )
        self._request_seconds = Histogram("cordwood_requests_seconds", "Duration of requests.", ("route", "status"))
        self._engine_process_ends = Counter(
            "cordwood_engine_process_ends_total", "Restarts of the engine's process by cause.", ("cause",)
        )
        self._quarantined_query_refusals = Counter(
            "cordwood_quarantine_refusals_total", "Refused queries that are quarantined, or whose key is.", ("by",)
        )
        self._admission_requests = Counter(
            "cordwood_places_claims_total", "Runs that requested admission, by outcome.", ("places", "lane", "outcome")
        )
        self._admission_wait_seconds = Histogram(
            "cordwood_places_wait_seconds", "Time that runs waited for admission.", ("places", "lane")
        )

    def record(self, observation: object) -> None:
        with self._lock:
            match observation:
                case RequestAnswered():
                    self._count_request(observation)
                case EngineQueried() | PartialAnswersUsed():
                    self._count_engine_query(observation)
                case AdmissionAwaited():
                    self._admission_requests.add((observation.places, observation.lane, observation.outcome))
                    self._admission_wait_seconds.add_duration(
                        (observation.places, observation.lane), observation.seconds
                    )
                case IsolationBreachRefused():
                    self._isolation_refusals.add((observation.engine,))
                case EngineEnded():
                    self._engine_process_ends.add((observation.cause,))
                case QuarantinedQueryRefused():
                    self._quarantined_query_refusals.add((observation.by,))
                case CachedAnswerRefreshed():
                    self._cache_refreshes.add((observation.endpoint, observation.outcome))
                case AlertEvaluated():
                    self._alert_evaluations.add((observation.alert, observation.outcome))
                case AlertSent():
                    self._alert_notifications.add((observation.target, observation.outcome))
                case ListenerOutcomeCounted():
                    self._listener_outcomes.add((observation.listener, observation.outcome), observation.count)
                case EventsIngested():
                    self._count_events(observation)
                    self.arrival_rate_counter.count_events(observation)

    def cache_outcome_counts(self) -> Mapping[str, int]:
        """Return the number of queries for each cache outcome (such as a hit or a miss), over all endpoints."""
        with self._lock:
            return self._cache_requests.sums_by_label(1)

    def engine_end_counts(self) -> Mapping[str, int]:
        """Return how often the engine's process has ended, for each cause."""
        with self._lock:
            return self._engine_process_ends.sums_by_label(0)

    def format_text(self) -> bytes:
        with self._lock:
            families: list[Counter | Histogram] = [
                self._engine_queries,
                self._partial_answer_uses,
                self._cache_requests,
                self._cache_refreshes,
                self._ingested_events,
                self._events_beyond_time_bounds,
                self._transformed_events,
                self._listener_outcomes,
                self._alert_evaluations,
                self._alert_notifications,
                self._isolation_refusals,
                self._engine_process_ends,
                self._quarantined_query_refusals,
                self._admission_requests,
                self._request_seconds,
                self._admission_wait_seconds,
            ]
            lines = [line for family in families for line in _metric_family_lines(family)]
        for name, read in self.gauge_readers.items():
            lines += [f"# TYPE {name} gauge", f"{name} {_format_metric_value(read())}"]
        lines += ["# TYPE cordwood_build_info gauge", f'cordwood_build_info{{version="{self._service_version}"}} 1', ""]
        return "\n".join(lines).encode()

    def _count_engine_query(self, observation: EngineQueried | PartialAnswersUsed) -> None:
        if isinstance(observation, EngineQueried):
            self._engine_queries.add((observation.endpoint, observation.engine, observation.outcome))
        else:
            self._partial_answer_uses.add((observation.outcome,))

    def _count_request(self, request: RequestAnswered) -> None:
        self._request_seconds.add_duration((request.route, str(request.status)), request.seconds)
        if request.cache:
            self._cache_requests.add((request.endpoint, request.cache))

    def _count_events(self, ingested: EventsIngested) -> None:
        for outcome, events in (
            ("accepted", ingested.accepted),
            ("duplicate", ingested.duplicates),
            ("quarantined", ingested.quarantined),
        ):
            if events:
                self._ingested_events.add((ingested.stream, outcome), events)
        for clock, events in (("late", ingested.late), ("future", ingested.future)):
            if events:
                self._events_beyond_time_bounds.add((ingested.stream, clock), events)
        for transform, outcome, events in ingested.transformed:
            self._transformed_events.add((ingested.stream, transform, outcome), events)


def _metric_family_lines(family: Counter | Histogram) -> Iterable[str]:
    yield f"# HELP {family.name} {family.meaning}"
    yield f"# TYPE {family.name} {family.metric_type}"
    yield from family.sample_lines()


def _format_labels(names: MetricLabels, values: MetricLabels) -> str:
    pairs = ",".join(f'{name}="{_escape_label_value(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}"


def _escape_label_value(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _format_metric_value(value: float) -> str:
    if math.isinf(value):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)
