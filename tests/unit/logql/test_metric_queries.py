"""Metric queries of Loki's documentation, compared with samples that Python computes from the same entries."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from cordwood.logql.compile import compile_logql
from cordwood.logql.metrics import fold_constant
from cordwood.logql.parse import parse_logql
from cordwood.logql.syntax import LogqlRequest, Pipeline, ResultKind
from tests.unit.logql.conftest import LogqlEngine
from tests.unit.logql.entries import APP_EVENTS, EDGE_EVENTS, MINUTE_US, SECOND_US, START_US

Event = dict[str, Any]
Labels = tuple[tuple[str, str], ...]
Samples = dict[Labels, dict[int, float]]

# The events of the job `mysql`. A range of ten minutes that ends at END_US excludes the entry at START_US.
MYSQL_EVENTS = [event for event in APP_EVENTS if event["metadata"]["labels"].get("job") == "mysql"]


def time_of(event: Event) -> int:
    return int(event["timestamp"])


def expected_samples(
    events: Iterable[Event],
    range_us: int,
    steps: tuple[int, int, int],
    labels: Callable[[Event], dict[str, str]],
    compute: Callable[[list[Event]], float],
) -> Samples:
    """Return the expected samples by labels.

    The sample at each step T is the result of `compute` for the entries in (T - range, T].
    """
    start_us, end_us, step_us = steps
    samples: Samples = defaultdict(dict)
    for number, time_us in enumerate(range(start_us, end_us + 1, step_us)):
        groups: dict[Labels, list[Event]] = defaultdict(list)
        for event in events:
            if time_us - range_us < time_of(event) <= time_us:
                groups[tuple(sorted(labels(event).items()))].append(event)
        for key, group in groups.items():
            samples[key][number] = compute(group)
    return dict(samples)


def are_close(actual: Samples, expected: Samples) -> bool:
    return actual.keys() == expected.keys() and all(
        actual[key] == pytest.approx(expected[key], rel=1e-9) for key in expected
    )


STEP_TIMES = (START_US, START_US + 10 * MINUTE_US, MINUTE_US)


def no_labels(_: Event) -> dict[str, str]:
    return {}


def path_label(event: Event) -> dict[str, str]:
    request = event["metadata"].get("request")
    return {"request_path": request["path"]} if isinstance(request, dict) else {}


def message_size(event: Event) -> int:
    return len(str(event["event_message"] or "").encode())


def status(events: list[Event]) -> list[float]:
    return [float(event["metadata"]["status"]) for event in events if "status" in event["metadata"]]


def variance(values: list[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / len(values)


def quantile(level: float, values: list[float]) -> float:
    """Return the quantile, interpolated between the two nearest values as Prometheus does."""
    values = sorted(values)
    rank = level * (len(values) - 1)
    lower = math.floor(rank)
    upper = min(lower + 1, len(values) - 1)
    return values[lower] + (values[upper] - values[lower]) * (rank - lower)


@pytest.mark.parametrize(
    ("minutes", "step_us"),
    [(1, MINUTE_US), (3, MINUTE_US), (60, MINUTE_US), (1, 7 * SECOND_US), (3, 5 * MINUTE_US)],
)
def test_ranges_of_steps_may_overlap_touch_or_leave_gaps(logql: LogqlEngine, minutes: int, step_us: int) -> None:
    steps = (START_US - MINUTE_US, START_US + 10 * MINUTE_US, step_us)
    range_us = minutes * MINUTE_US
    for query, compute in (
        ("sum by (request_path) (count_over_time(%s))", len),
        ("sum by (request_path) (rate(%s))", lambda group: len(group) / (minutes * 60)),
        ("sum by (request_path) (bytes_over_time(%s))", lambda group: sum(map(message_size, group))),
        ("sum by (request_path) (bytes_rate(%s))", lambda group: sum(map(message_size, group)) / (minutes * 60)),
    ):
        text = query % f'{{source_name="edge_logs"}}[{minutes}m]'
        expected = expected_samples(EDGE_EVENTS, range_us, steps, path_label, compute)
        assert are_close(logql.samples(text, *steps), expected), text


@pytest.mark.parametrize(
    ("function", "compute"),
    [
        ("sum_over_time", math.fsum),
        ("avg_over_time", lambda values: math.fsum(values) / len(values)),
        ("min_over_time", min),
        ("max_over_time", max),
        ("first_over_time", lambda values: values[0]),
        ("last_over_time", lambda values: values[-1]),
        ("stdvar_over_time", variance),
        ("stddev_over_time", lambda values: math.sqrt(variance(values))),
        ("quantile_over_time", lambda values: quantile(0.75, values)),
        ("rate", lambda values: math.fsum(values) / 180),
    ],
)
def test_functions_of_unwrapped_values_equal_those_of_python(
    logql: LogqlEngine, function: str, compute: Callable[[list[float]], float]
) -> None:
    parameter = "0.75, " if function == "quantile_over_time" else ""
    grouping = " by ()" if function not in ("sum_over_time", "rate") else ""
    text = f'{function}({parameter}{{source_name="edge_logs"}} | unwrap status [3m]){grouping}'
    having = [event for event in EDGE_EVENTS if "status" in event["metadata"]]
    expected = expected_samples(having, 3 * MINUTE_US, STEP_TIMES, no_labels, lambda group: compute(status(group)))
    samples = logql.samples(text if grouping else f"sum({text})", *STEP_TIMES)
    assert are_close(samples, expected)


def documentation_entries(*numbers: int) -> list[dict[str, Any]]:
    return [json.loads(str(APP_EVENTS[number]["event_message"])) for number in numbers]


def test_the_rate_of_errors_by_host_equals_that_of_python(logql: LogqlEngine) -> None:
    text = 'sum by (host) (rate({job="mysql"} |= "error" != "timeout" | json | duration > 10s [10m]))'
    assert logql.samples(text) == {(("host", "db1"),): {0: pytest.approx(2 / 600)}}


def test_a_quantile_by_path_equals_that_of_python(logql: LogqlEngine) -> None:
    text = 'quantile_over_time(0.99, {job="mysql"} | json | __error__ = "" | unwrap request_time [10m]) by (path)'
    expected: Samples = {
        (("path", "/home"),): {0: quantile(0.99, [entry["request_time"] for entry in documentation_entries(5, 6)])},
        (("path", "/login"),): {0: 2.0},
    }
    assert are_close(logql.samples(text), expected)


def test_a_sum_by_organization_equals_that_of_python(logql: LogqlEngine) -> None:
    text = 'sum by (org) (sum_over_time({job="mysql"} |= "error" | json | unwrap duration_seconds(duration) [10m]))'
    assert logql.samples(text) == {(("org", "a"),): {0: 14.0}, (("org", "b"),): {0: 30.0}}


def test_topk_and_bottomk_return_the_highest_and_lowest_rates(logql: LogqlEngine) -> None:
    inner = 'sum(rate({source_name="app_logs"}[10m])) by (service_name)'
    assert logql.samples(f"topk(1, {inner})") == {
        (("service_name", "mysql"),): {0: pytest.approx(len(MYSQL_EVENTS) / 600)}
    }
    assert logql.samples(f"bottomk(2, {inner})").keys() == {
        (("service_name", "app_logs"),),
        (("service_name", "nginx"),),
    }


def test_a_range_may_stand_after_parentheses(logql: LogqlEngine) -> None:
    text = 'avg(rate(({job="mysql"} |= "error" | json | path="/home")[10m])) by (host)'
    assert logql.samples(text) == {(("host", "db1"),): {0: pytest.approx(2 / 600)}}


def test_a_range_may_stand_before_the_stages(logql: LogqlEngine) -> None:
    assert logql.sample('sum(count_over_time({job="mysql"}[10m] |= "error"))') == 5


def test_an_offset_moves_the_range_back(logql: LogqlEngine) -> None:
    text = 'sum(count_over_time({source_name="edge_logs"}[2m] offset 5m))'
    moved = [{**event, "timestamp": time_of(event) + 5 * MINUTE_US} for event in EDGE_EVENTS]
    assert are_close(
        logql.samples(text, *STEP_TIMES), expected_samples(moved, 2 * MINUTE_US, STEP_TIMES, no_labels, len)
    )


def test_without_aggregation_each_stream_has_a_series(logql: LogqlEngine) -> None:
    samples = logql.samples('count_over_time({job="mysql"}[10m])')
    shared = {"host": "db1", "job": "mysql", "service_name": "mysql", "source_name": "app_logs"}
    levels = {"error": 1.0, "warn": 1.0, "": 4.0}
    assert samples == {
        tuple(sorted((shared | ({"level": level} if level else {})).items())): {0: count}
        for level, count in levels.items()
    }


def test_aggregates_of_series_equal_those_of_python(logql: LogqlEngine) -> None:
    inner = 'count_over_time({job="mysql"}[10m])'
    for function, expected in (
        ("sum", 6.0),
        ("avg", 2.0),
        ("min", 1.0),
        ("max", 4.0),
        ("count", 3.0),
        ("stdvar", 2.0),
        ("stddev", math.sqrt(2)),
    ):
        assert logql.sample(f"{function}({inner})") == pytest.approx(expected)
    assert logql.samples(f"max without (level, host, job, source_name) ({inner})") == {
        (("service_name", "mysql"),): {0: 4.0}
    }
    assert logql.samples(f"sum by (level) (max by (level, host) ({inner}))") == {
        (): {0: 4.0},
        (("level", "error"),): {0: 1.0},
        (("level", "warn"),): {0: 1.0},
    }


def test_binary_operations_apply_to_numbers_and_between_vectors(logql: LogqlEngine) -> None:
    count_of_errors, count_of_all = (
        'sum(count_over_time({job="mysql"} |= "error"[10m]))',
        'sum(count_over_time({job="mysql"}[10m]))',
    )
    for text, expected in (
        (f"{count_of_errors} / {count_of_all}", 5 / 6),
        (f"100 * ({count_of_errors} / {count_of_all})", 500 / 6),
        (f"{count_of_all} - {count_of_errors} * 2 ^ 2 + 1", 6 - 5 * 4 + 1),
        (f"{count_of_all} % 4", 2),
        (f"{count_of_all} / 0", math.inf),
        (f"{count_of_all} > bool 5", 1),
        (f"{count_of_all} < bool 5", 0),
        (f"{count_of_all} >= 6", 6),
        (f"5 < {count_of_all}", 6),
        (f"{count_of_all} > {count_of_errors}", 6),
        (f"-1 * {count_of_all}", -6),
    ):
        assert logql.sample(text) == pytest.approx(expected), text
    assert logql.samples(f"{count_of_all} > 6") == {}
    by_level = 'sum by (level) (count_over_time({source_name="app_logs"}[10m]))'
    assert logql.samples(f"{by_level} == 1") == {(("level", name),): {0: 1.0} for name in ("error", "info", "warn")}
    ratio = logql.samples(f"{by_level} / {by_level}")
    assert ratio.keys() == logql.samples(by_level).keys()
    assert {value for values in ratio.values() for value in values.values()} == {1.0}


def test_durations_and_sizes_are_parsed_in_the_notation_of_go(logql: LogqlEngine) -> None:
    durations = 'sum(sum_over_time({job="mysql"} | logfmt | unwrap duration(duration) [10m]))'
    assert logql.sample(durations) == pytest.approx(90.25)
    sizes = 'sum(sum_over_time({job="mysql"} | logfmt | unwrap bytes(bytes_consumed) [10m]))'
    assert logql.sample(sizes) == 25_020_000


def test_a_range_without_entries_has_no_series(logql: LogqlEngine) -> None:
    assert logql.samples('sum(count_over_time({job="mysql"} |= "no such line" [10m]))') == {}
    assert logql.samples('sum(rate({job="nobody"}[10m]))') == {}


def test_labels_that_differ_by_case_are_two_labels(logql: LogqlEngine) -> None:
    text = 'sum by (Status, status) (count_over_time({source_name="edge_logs"} | status="500" [10m]))'
    assert logql.samples(text) == {(("status", "500"),): {0: 2.0}}


def test_only_the_sources_that_a_selector_names_are_read(logql: LogqlEngine) -> None:
    request = LogqlRequest(ResultKind.ENTRIES, ('{source_name="edge_logs"}',), START_US, START_US + 1)
    statement = compile_logql(
        logql.program, request.json_text, logql.engine.compile_target, logql.engine.shapes_by_stream()
    )
    assert statement.streams == ("edge",)


def test_or_vector_fills_the_steps_without_a_sample(logql: LogqlEngine) -> None:
    count_query = 'sum(count_over_time({source_name="edge_logs"}[1m]))'
    expected = expected_samples(EDGE_EVENTS, MINUTE_US, STEP_TIMES, no_labels, len)
    steps = {number: expected[()].get(number, 7.0) for number in range(11)}
    assert are_close(logql.samples(f"{count_query} or vector(7)", *STEP_TIMES), {(): steps})
    assert logql.sample('sum(count_over_time({job="nobody"}[5m])) or vector(0)') == 0
    by_path = 'sum by (request_path) (count_over_time({source_name="edge_logs"} | request_path!="" [10m]))'
    assert logql.samples(f"{by_path} or vector(0)") == logql.samples(by_path) | {(): {0: 0.0}}


def test_absent_over_time_is_1_at_the_steps_without_entries(logql: LogqlEngine) -> None:
    text = 'absent_over_time({source_name="edge_logs", level!="info"}[1m])'
    having = [event for event in EDGE_EVENTS if event["metadata"].get("level") != "info"]
    present = expected_samples(having, MINUTE_US, STEP_TIMES, no_labels, len)[()]
    absent = {number: 1.0 for number in range(11) if number not in present}
    assert logql.samples(text, *STEP_TIMES) == {(("source_name", "edge_logs"),): absent}
    assert logql.samples('absent_over_time({job="mysql"}[10m])') == {}
    assert logql.samples('absent_over_time({job="nobody"} |= "x" [10m])') == {(("job", "nobody"),): {0: 1.0}}


SUM_BY_PATH = 'sum by (request_path) (sum_over_time({source_name="edge_logs"} | unwrap status [11m]))'
# Three series: the one of /a has the value -100, the one without a path 200, and the one of /b NaN.
SERIES_WITH_NAN = f"({SUM_BY_PATH} - 904) / ({SUM_BY_PATH} - 904) * ({SUM_BY_PATH} - 300)"


def values_by_path(logql: LogqlEngine, query: str) -> dict[str, float | None]:
    """Return the value of each series of an instant query by the label `request_path`; NaN is returned as None."""
    samples = logql.samples(query)
    values = {dict(labels).get("request_path", ""): steps[0] for labels, steps in samples.items()}
    return {path: None if math.isnan(value) else value for path, value in values.items()}


@pytest.mark.parametrize(
    ("comparison", "expected"),
    [
        ("> 5", {"": 200.0}),
        (">= -100", {"": 200.0, "/a": -100.0}),
        ("< 500", {"": 200.0, "/a": -100.0}),
        ("<= -100", {"/a": -100.0}),
        ("== 200", {"": 200.0}),
        ("!= 200", {"/a": -100.0, "/b": None}),
        ("> bool 5", {"": 1.0, "/a": 0.0, "/b": 0.0}),
        ("!= bool 5", {"": 1.0, "/a": 1.0, "/b": 1.0}),
        (f"== ({SERIES_WITH_NAN})", {"": 200.0, "/a": -100.0}),
        (f"!= ({SERIES_WITH_NAN})", {"/b": None}),
        (f">= bool ({SERIES_WITH_NAN})", {"": 1.0, "/a": 1.0, "/b": 0.0}),
        ("== (0 / 0)", {}),
    ],
)
def test_a_comparison_with_nan_is_false(logql: LogqlEngine, comparison: str, expected: dict[str, float | None]) -> None:
    assert values_by_path(logql, f"({SERIES_WITH_NAN}) {comparison}") == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("max(%s)", {"": 200.0}),
        ("min(%s)", {"": -100.0}),
        ("max by (request_path) (%s)", {"": 200.0, "/a": -100.0, "/b": None}),
        ("topk(1, %s)", {"": 200.0}),
        ("topk(2, %s)", {"": 200.0, "/a": -100.0}),
        ("bottomk(2, %s)", {"": 200.0, "/a": -100.0}),
        ("topk(3, %s)", {"": 200.0, "/a": -100.0, "/b": None}),
        ("count(%s)", {"": 3.0}),
        ("sum(%s)", {"": None}),
    ],
)
def test_extremes_and_rankings_ignore_nan_unless_there_are_only_nans(
    logql: LogqlEngine, query: str, expected: dict[str, float | None]
) -> None:
    assert values_by_path(logql, query % f"({SERIES_WITH_NAN})") == expected


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("(%s - 2) ^ -1", {"": math.inf, "/a": -1.0, "/b": math.inf}),
        ("(%s - 3) ^ 0.5", {"": math.nan, "/a": math.nan, "/b": math.nan}),
        ("(%s - 12) ^ 401", {"": -math.inf, "/a": -math.inf, "/b": -math.inf}),
        ("(%s + 10) ^ 400", {"": math.inf, "/a": math.inf, "/b": math.inf}),
        ("0 ^ (%s - 3)", {"": math.inf, "/a": math.inf, "/b": math.inf}),
        ("%s * 1e308 * -10", {"": -math.inf, "/a": -math.inf, "/b": -math.inf}),
        ("%s * 1e308 + 1e308", {"": math.inf, "/a": math.inf, "/b": math.inf}),
        ("-1e308 - %s * 1e308", {"": -math.inf, "/a": -math.inf, "/b": -math.inf}),
        ("%s %% 0", {"": math.nan, "/a": math.nan, "/b": math.nan}),
        ("%s %% (1 / 0)", {"": 2.0, "/a": 1.0, "/b": 2.0}),
        ("(0 - %s - 0.5) %% 2", {"": -0.5, "/a": -1.5, "/b": -0.5}),
        ("%s / 0 %% 2", {"": math.nan, "/a": math.nan, "/b": math.nan}),
    ],
)
def test_arithmetic_yields_infinities_and_nan_instead_of_errors(
    logql: LogqlEngine, operation: str, expected: dict[str, float]
) -> None:
    count_by_path = 'sum by (request_path) (count_over_time({source_name="edge_logs"}[11m]))'
    samples = logql.samples(operation % count_by_path)
    values = {dict(labels).get("request_path", ""): steps[0] for labels, steps in samples.items()}
    assert values == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 ^ -1", math.inf),
        ("(-1 * 0) ^ -1", -math.inf),
        ("(-1 * 0) ^ -2", math.inf),
        ("-8 ^ 0.5", math.nan),
        ("-10 ^ 401", -math.inf),
        ("-10 ^ 400", math.inf),
        ("5 % 0", math.nan),
        ("1e308 * 10", math.inf),
    ],
)
def test_constants_are_computed_like_samples(text: str, expected: float) -> None:
    query = parse_logql(text)
    assert not isinstance(query, Pipeline)
    assert fold_constant(query) == pytest.approx(expected, nan_ok=True)
