"""Both built-in endpoints return what plain Python computes from the same 130,000 imported events."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from tests.journey.conftest import Service, start_service

EVENT_GENERATOR = Path(__file__).resolve().parents[3] / "shared" / "bench" / "make_events.py"
# Number of events, which fill more than one row group of DuckDB.
EVENT_COUNT = 130_000
AREAS = ("rest", "storage", "auth", "realtime")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Count = dict[str, object]


class Request(msgspec.Struct):
    path: str
    url: str


class Metadata(msgspec.Struct):
    request: Request


class Event(msgspec.Struct):
    id: str
    timestamp: datetime
    project: str
    event_message: str
    metadata: Metadata


@dataclass
class ImportedEvents:
    """The events, and a service into which they were imported."""

    events: Sequence[Event]
    service: Service

    def of(self, project: str) -> list[Event]:
        return [event for event in self.events if event.project == project]


@pytest.fixture(scope="module")
def imported_events(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImportedEvents]:
    if not EVENT_GENERATOR.exists():
        pytest.skip("the maker of benchmark events is not beside this clone")
    folder = tmp_path_factory.mktemp("many")
    file = folder / "events.ndjson"
    arguments = {"rows": str(EVENT_COUNT), "days": "6.9", "end": datetime.now(UTC).isoformat(), "out": str(file)}
    run(str(EVENT_GENERATOR), *(word for name, value in arguments.items() for word in (f"--{name}", value)))
    imported = run(
        *("-m", "cordwood", "import", str(file), "--stream", "cloudflare.logs.prod", "--data-dir", str(folder / "data"))
    )
    assert f"{EVENT_COUNT:,} accepted" in imported
    decode = msgspec.json.Decoder(Event).decode
    with file.open("rb") as lines:
        events = [decode(line) for line in lines]
    service = start_service(folder / "data")
    yield ImportedEvents(events, service)
    service.stop()


def run(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=300).stdout


def count_by_area(
    events: Sequence[Event], pattern: str, start: datetime, bucket: Callable[[datetime], datetime]
) -> list[Count]:
    buckets: dict[datetime, Counter[str]] = {}
    matches = re.compile(pattern).search
    for event in events:
        if event.timestamp >= start and matches(event.metadata.request.url):
            areas = [area for area in AREAS if f"/{area}" in event.metadata.request.path]
            buckets.setdefault(bucket(event.timestamp), Counter()).update(areas)
    return [
        {"timestamp": at.strftime("%Y-%m-%dT%H:%M:%S"), **{f"total_{area}_requests": counts[area] for area in AREAS}}
        for at, counts in sorted(buckets.items())
    ]


def truncate_to_day(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


def truncate_to_hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def truncate_to_minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


@pytest.mark.parametrize(
    "pattern", ["proj001", "", r"^https://proj0(07|1\d)\.example\.co/rest/", "/auth/v1/user$", "nobody"]
)
def test_the_counts_of_seven_days_equal_those_of_plain_python(imported_events: ImportedEvents, pattern: str) -> None:
    start = datetime.now(UTC) - timedelta(days=7)
    rows = imported_events.service.rows("usage.api-counts", interval="daily", project=pattern)
    assert rows == count_by_area(imported_events.events, pattern, start, truncate_to_day)


@pytest.mark.parametrize(
    ("interval", "length", "bucket"),
    [
        ("hourly", timedelta(hours=1), truncate_to_hour),
        ("minutely", timedelta(minutes=60), truncate_to_minute),
        ("1hr", timedelta(hours=1), truncate_to_minute),
        ("1day", timedelta(hours=24), truncate_to_hour),
        ("7day", timedelta(days=7), truncate_to_day),
    ],
)
def test_the_counts_of_every_window_equal_those_at_some_moment_of_the_call(
    imported_events: ImportedEvents, interval: str, length: timedelta, bucket: Callable[[datetime], datetime]
) -> None:
    before = datetime.now(UTC)
    rows = imported_events.service.rows("usage.api-counts", interval=interval, project="example")
    after = datetime.now(UTC)
    starts = {
        event.timestamp for event in imported_events.events if before - length <= event.timestamp <= after - length
    }
    possible = [
        count_by_area(imported_events.events, "example", start, bucket)
        for start in (before - length, after - length, *starts)
    ]
    assert rows in possible


@pytest.mark.parametrize("project", ["proj000", "proj049"])
def test_the_newest_hundred_logs_equal_those_of_plain_python(imported_events: ImportedEvents, project: str) -> None:
    newest = sorted(imported_events.of(project), key=lambda event: event.timestamp, reverse=True)[:100]
    rows = imported_events.service.rows("logs.all", project=project)
    assert [comparable_row(row) for row in rows] == [expected_row(event) for event in newest]


def test_a_window_of_logs_excludes_its_start_and_includes_its_end(imported_events: ImportedEvents) -> None:
    events = sorted(imported_events.of("proj007"), key=lambda event: event.timestamp)
    first, last = events[1000].timestamp, events[1050].timestamp
    bounds = {"iso_timestamp_start": first.isoformat(), "iso_timestamp_end": last.isoformat()}
    rows = imported_events.service.rows("logs.all", project="proj007", **bounds)
    within = [event for event in reversed(events) if first < event.timestamp <= last]
    assert [comparable_row(row) for row in rows] == [expected_row(event) for event in within]


def expected_row(event: Event) -> tuple[object, ...]:
    microseconds = (event.timestamp - EPOCH) // timedelta(microseconds=1)
    return event.id, microseconds, event.event_message, event.metadata.request.path


def comparable_row(row: Mapping[str, object]) -> tuple[object, ...]:
    metadata = row["metadata"]
    assert isinstance(metadata, list)
    return row["id"], row["timestamp"], row["event_message"], metadata[0]["request"][0]["path"]
