"""The demo's events: an incident at a known time, ids that several streams share, and live events.

Live events arrive at the rate of the generated week.
"""

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest

from cordwood.app.demo import (
    AUTH_STREAM,
    BACKGROUND_EVENT_GENERATORS_BY_STREAM,
    EDGE_STREAM,
    FUNCTIONS_STREAM,
    INCIDENT_DURATION,
    INCIDENT_PATH,
    INCIDENT_SLOW_PHASE_DURATION,
    LIVE_REQUEST_INTERVAL_SECONDS,
    POSTGRES_STREAM,
    RELAY_STREAM,
    STORAGE_STREAM,
    LiveTraffic,
    history_events,
    incident_start,
)

NOW = datetime(2026, 3, 4, 17, 31, tzinfo=UTC)


@cache
def events_of_week() -> dict[str, list[dict[str, Any]]]:
    return dict(history_events(NOW))


@cache
def live_hours_of_events(hours: int) -> Sequence[tuple[str, datetime]]:
    traffic = LiveTraffic(NOW, random.Random(1))
    ticks = (NOW + timedelta(seconds=second) for second in range(hours * 3600))
    return [(stream, time_of(event)) for tick in ticks for stream, event in traffic.due_events(tick)]


def time_of(event: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(event["timestamp"])


def edge_calls(path: str) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Yield the events of the edge whose path begins with `path`, each with its request and response."""
    for event in events_of_week()[EDGE_STREAM]:
        request, response = event["metadata"]["request"], event["metadata"]["response"]
        if request["path"].startswith(path):
            yield event, request, response


def ids_in(stream: str, *path: str) -> set[str]:
    ids = set()
    for event in events_of_week()[stream]:
        value: Any = event["metadata"]
        for step in path:
            value = value.get(step, {})
        ids |= {value} if isinstance(value, str) else set()
    return ids


@pytest.mark.parametrize("minute", range(0, 60, 7))
def test_the_incident_begins_at_five_past_an_hour_about_three_hours_ago(minute: int) -> None:
    now = NOW.replace(minute=minute)
    start = incident_start(now)
    assert (start.minute, start.second) == (5, 0)
    assert timedelta(hours=2, minutes=50) < now - start < timedelta(hours=4)


def test_one_path_is_slow_and_fails_between_two_deployments() -> None:
    start = incident_start(NOW)
    slow = [time_of(event) for event, _, response in edge_calls(INCIDENT_PATH) if response["origin_time"] > 1_900]
    failed = [time_of(event) for event, _, response in edge_calls(INCIDENT_PATH) if response["status_code"] >= 500]
    failures_by_time = [
        time for time in failed if start + INCIDENT_SLOW_PHASE_DURATION <= time < start + INCIDENT_DURATION
    ]
    assert len(failures_by_time) > 100
    assert len(failed) - len(failures_by_time) < 10
    assert start < min(slow) < start + INCIDENT_SLOW_PHASE_DURATION
    assert max(slow) < start + INCIDENT_DURATION
    deployed = [
        time_of(event) for event in events_of_week()[FUNCTIONS_STREAM] if event["metadata"]["event_type"] == "Deploy"
    ]
    assert deployed == [start, start + INCIDENT_DURATION]


def test_no_other_path_fails_as_often() -> None:
    failed = Counter(request["path"] for _, request, response in edge_calls("/") if response["status_code"] >= 500)
    (first, limit), (_, second) = failed.most_common(2)
    assert first == INCIDENT_PATH
    assert limit > 4 * second


def test_a_request_of_the_incident_has_one_id_in_every_stream() -> None:
    start = incident_start(NOW)
    ids = {
        request["headers"]["x_request_id"]
        for event, request, response in edge_calls(INCIDENT_PATH)
        if start < time_of(event) < start + INCIDENT_DURATION and response["origin_time"] > 1_900
    }
    assert len(ids) > 140
    for stream, path in (
        (AUTH_STREAM, ["request_id"]),
        (RELAY_STREAM, ["request_id"]),
        (FUNCTIONS_STREAM, ["request_id"]),
        (POSTGRES_STREAM, ["parsed", "request_id"]),
    ):
        assert ids <= ids_in(stream, *path)


def test_ordinary_requests_share_their_ids_too() -> None:
    for path, stream, name in (("/auth", AUTH_STREAM, "request_id"), ("/storage", STORAGE_STREAM, "reqId")):
        ids = {request["headers"]["x_request_id"] for _, request, _ in edge_calls(path)}
        assert len(ids) > 200
        assert ids <= ids_in(stream, name)


def test_live_events_are_at_most_three_times_as_frequent_as_in_a_busy_hour() -> None:
    incident = incident_start(NOW).replace(minute=0)
    of_week, of_live = (
        Counter((stream, time.replace(minute=0, second=0, microsecond=0)) for stream, time in events)
        for events in (
            [(stream, time_of(event)) for stream, events in events_of_week().items() for event in events],
            live_hours_of_events(24),
        )
    )
    busiest: Counter[str] = Counter()
    for (stream, hour), count in of_week.items():
        if hour != incident:
            busiest[stream] = max(busiest[stream], count)
    assert set(busiest) == {
        *BACKGROUND_EVENT_GENERATORS_BY_STREAM,
        EDGE_STREAM,
        AUTH_STREAM,
        STORAGE_STREAM,
        RELAY_STREAM,
    }
    live_hours = {hour for _, hour in of_live}
    for stream, limit in busiest.items():
        mean = sum(of_live[stream, hour] for hour in live_hours) / len(live_hours)
        assert mean <= 3 * limit
    assert sum(of_live.values()) < sum(of_week.values())


def test_a_request_arrives_at_once_and_then_about_every_half_minute() -> None:
    times = sorted(time for stream, time in live_hours_of_events(24) if stream == EDGE_STREAM)
    assert times[0] == NOW
    least, limit = (timedelta(seconds=seconds) for seconds in LIVE_REQUEST_INTERVAL_SECONDS)
    assert all(least <= after - before <= limit for before, after in itertools.pairwise(times))


def test_every_stream_gets_live_events_within_a_day() -> None:
    assert {stream for stream, _ in live_hours_of_events(24)} == set(events_of_week())
