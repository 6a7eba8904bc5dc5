"""Reads work while nothing can be written. Writes are refused with 507 and resume afterwards."""

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import httpx

from bench.process_family import descendants
from tests.journey.conftest import Service, Start
from tests.small_disks import mount_small_disk

PROJECT = "full"
EVENT_COUNT = 3000
COUNT_QUERY = "select count(*) as events, count(distinct id) as ids from postgres_logs"
READ_REQUESTS: tuple[tuple[str, dict[str, str]], ...] = (
    ("logs.all", {"project": PROJECT}),
    ("logs.all", {"project": PROJECT, "sql": COUNT_QUERY}),
    ("logs.all", {"project": PROJECT, "sql": "select event_message, count(*) as n from postgres_logs group by 1 order by 2 desc"}),
    ("logs.all", {"project": PROJECT, "sql": "select id, m.text from postgres_logs cross join unnest(metadata) as m order by id limit 50"}),
    ("logs.all", {"project": PROJECT, "lql": "f:postgres_logs m1 c:count(*) c:group_by(t::hour)"}),
    ("usage.api-counts", {"project": PROJECT, "interval": "1day"}),
)  # fmt: skip
READ_PATHS = (
    "/ready",
    "/health",
    "/metrics",
    "/api/sources",
    "/api/endpoints",
    "/api/access-tokens",
    "/api/quarantine",
    "/",
)
# A query of nine million distinct strings, which do not fit into the engine's memory with LIMIT_SETTINGS.
SPILLING_QUERY = "select count(*) as n from (select distinct concat(a.id, b.id, a.id) as both from postgres_logs a cross join postgres_logs b)"
LIMIT_SETTINGS = {"CORDWOOD_LIMITS_MEMORY": "300MB", "CORDWOOD_LIMITS_QUERY_TIME": "60s"}


def send(service: Service, first: int, count: int = 500) -> int:
    """Send `count` events with ids from `first` on, and return the status."""
    events = [
        {"id": f"e{at}", "project": PROJECT, "event_message": f"m{at % 7}", "metadata": {"text": os.urandom(100).hex()}}
        for at in range(first, first + count)
    ]
    return service.send("postgres.logs", events).status_code


def send_and_flush(service: Service) -> None:
    """Send events and wait until they are flushed, so that no later flush frees disk space."""
    for first in range(0, EVENT_COUNT, 500):
        assert send(service, first) == 200
    deadline = time.monotonic() + 30
    while any((service.data_dir / "journal").glob("*.log")):
        assert time.monotonic() < deadline, "the events are not in the file yet"
        time.sleep(0.1)


def assert_readable(service: Service, events: int) -> None:
    for endpoint, parameters in READ_REQUESTS:
        answer = service.query(endpoint, **parameters)
        assert answer.status_code == 200, (endpoint, parameters, answer.text)
    assert service.rows("logs.all", project=PROJECT, sql=COUNT_QUERY) == [{"events": events, "ids": events}]
    for page in READ_PATHS:
        assert service.client.get(page).status_code == 200, page


def assert_not_writable(service: Service) -> None:
    ingest_response = service.send("postgres.logs", [{"project": PROJECT, "id": "refused"}])
    assert (ingest_response.status_code, ingest_response.json()["error"]["status"]) == (507, "limit.disk")
    assert ingest_response.headers["retry-after"]
    key_response = service.client.post("/api/access-tokens", json={"scopes": "query"})
    assert (key_response.status_code, key_response.json()["error"]["status"]) == (507, "limit.disk")


def assert_writable(service: Service, first: int) -> int:
    """Check that ingest resumes within a minute. Return the total number of events."""
    deadline = time.monotonic() + 60
    while (status := send(service, first)) != 200:
        assert status in {429, 507}
        assert time.monotonic() < deadline, "events are refused although they can be written again"
        time.sleep(0.5)
    assert service.client.post("/api/access-tokens", json={"scopes": "query"}).status_code == 201
    return first + 500


def assert_spilling_query_refused(service: Service) -> httpx.Response:
    answer = service.query("logs.all", project=PROJECT, sql=SPILLING_QUERY)
    assert (answer.status_code, answer.json()["error"]["status"]) == (507, "limit.disk"), answer.text
    assert "memory" in answer.json()["error"]["message"]
    return answer


@contextmanager
def fill_disk(disk: Path) -> Iterator[None]:
    """Fill the disk to its last byte during the block."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        for size in (65_536, 1):
            try:
                while filler.write(b"x" * size):
                    pass
            except OSError:
                continue
    yield
    (disk / "filler").unlink()


@contextmanager
def forbid_writes(service: Service) -> Iterator[None]:
    """Set a resource limit that forbids the service's processes to write files, during the block."""
    pids = (service.process.pid, *descendants(service.process.pid))
    before = [resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids]
    for pid, (_, hard) in zip(pids, before, strict=True):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    yield
    for pid, limits in zip(pids, before, strict=True):
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


def check_reads_and_writes(service: Service, without_writes: Callable[[], AbstractContextManager[None]]) -> int:
    """Check that reads work and writes are refused without disk space. Return the number of events at the end."""
    send_and_flush(service)
    with without_writes():
        for _ in range(2):
            assert_not_writable(service)
            assert_readable(service, EVENT_COUNT)
        assert_spilling_query_refused(service)
        assert_readable(service, EVENT_COUNT)
    events = assert_writable(service, EVENT_COUNT)
    assert_readable(service, events)
    assert service.stop() == 0
    return events


def test_a_process_that_cannot_write_answers_reads_and_recovers(start: Start) -> None:
    service = start(env=LIMIT_SETTINGS)
    events = check_reads_and_writes(service, lambda: forbid_writes(service))
    assert_readable(start(data_dir=service.data_dir), events)


def test_a_full_disk_is_read_and_later_written(start: Start, tmp_path: Path) -> None:
    with mount_small_disk(tmp_path / "disk", "80m") as disk:
        service = start(data_dir=disk / "data", env=LIMIT_SETTINGS)
        events = check_reads_and_writes(service, lambda: fill_disk(disk))
        restarted = start(data_dir=disk / "data")
        assert_readable(restarted, events)
        assert restarted.stop() == 0


def test_without_a_spill_folder_only_a_query_that_must_spill_is_refused(start: Start) -> None:
    service = start(env=LIMIT_SETTINGS)
    send_and_flush(service)
    folder = service.data_dir / "spill"
    assert not folder.exists(), "the engine makes it when it needs it"
    folder.write_text("in its place")
    assert_readable(service, EVENT_COUNT)
    assert_spilling_query_refused(service)
    assert_readable(service, EVENT_COUNT)
    folder.unlink()
    assert service.query("logs.all", project=PROJECT, sql=SPILLING_QUERY).status_code in {200, 504}
    assert service.stop() == 0


def test_the_service_stops_within_its_drain_time_while_nothing_can_be_written(start: Start) -> None:
    service = start(env={**LIMIT_SETTINGS, "CORDWOOD_WEB_DRAIN_TIME": "1s"})
    send_and_flush(service)
    with forbid_writes(service):
        assert_not_writable(service)
        assert service.stop() == 0
    assert_readable(start(env=LIMIT_SETTINGS), EVENT_COUNT)
