"""The engine's process may be killed at any time: it is replaced, and no acknowledged event is lost or duplicated."""

import itertools
import json
import os
import signal
import threading
import time
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from bench.process_family import descendants, kill
from tests.journey.conftest import PRIVATE, Service, Start
from tests.journey.test_cli_clients import cordwood
from tests.waiting import until

STREAM = "postgres.logs"
COUNT_QUERY = "select count(*) as n, count(distinct id) as ids from postgres_logs"
# A query that runs for minutes and ignores interrupts, because no pair of rows matches.
UNINTERRUPTIBLE_QUERY = (
    "select count(*) as n from postgres_logs a join postgres_logs b on a.timestamp < b.timestamp"
    " and a.event_message < b.event_message and regexp_contains(a.event_message, b.event_message)"
)
EVENTS = [{"project": "p", "event_message": f"{number:06} {'ab' * 40}"} for number in range(20_000)]


def engine_pid(service: Service) -> int:
    """Return the id of the engine's process, the last child process of the service's fork server."""
    return descendants(service.process.pid)[-1]


def stored_counts(service: Service) -> tuple[object, object]:
    (row,) = service.rows("logs.all", project="p", sql=f"{COUNT_QUERY} where '{uuid4()}' != ''")
    return row["n"], row["ids"]


def query_with_retries(service: Service, **parameters: str) -> httpx.Response:
    """Repeat the query while the service refuses it because the engine's process is being replaced."""
    answers: list[httpx.Response] = []

    def is_answered() -> bool:
        answers.append(service.query("logs.all", project="p", **parameters))
        return answers[-1].status_code != 503

    until(is_answered)
    return answers[-1]


class Sender(threading.Thread):
    """Thread that sends batches of events with ids, and counts the acknowledged events."""

    def __init__(self, service: Service) -> None:
        super().__init__(daemon=True)
        self.stopped = threading.Event()
        self.accepted = self.duplicates = 0
        self.statuses: set[int] = set()
        self._service = service

    def run(self) -> None:
        with httpx.Client(base_url=self._service.url, headers=self._service.client.headers, timeout=60) as client:
            while not self.stopped.is_set():
                events = [{"id": str(uuid4()), "project": "p", "event_message": "x"} for _ in range(50)]
                answer = client.post("/api/logs", params={"source_name": STREAM}, json=events)
                self.statuses.add(answer.status_code)
                self.accepted += answer.json()["accepted"]
                self.duplicates += answer.json()["duplicates"]


def test_counts_are_exact_after_repeated_kills_under_load(start: Start) -> None:
    service = start()
    senders = [Sender(service) for _ in range(2)]
    for sender in senders:
        sender.start()
    counts = []
    for _ in range(6):
        time.sleep(0.3)
        kill(engine_pid(service))
        counts.append(stored_counts(service))
    for sender in senders:
        sender.stopped.set()
        sender.join()
    accepted = sum(sender.accepted for sender in senders)
    assert {status for sender in senders for status in sender.statuses} == {200}
    assert sum(sender.duplicates for sender in senders) == 0
    assert stored_counts(service) == (accepted, accepted)
    assert all(number == ids for number, ids in counts)
    # Even after a kill of the serving process, its data folder can be opened at once, and has all events.
    child_processes = descendants(service.process.pid)
    service.kill()
    until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in child_processes))
    assert stored_counts(start(data_dir=service.data_dir)) == (accepted, accepted)


def test_a_killed_fork_server_is_replaced_while_the_engine_goes_on(start: Start) -> None:
    service = start()
    assert service.send(STREAM, EVENTS[:10]).status_code == 200
    fork_server, engine = descendants(service.process.pid)
    kill(fork_server)
    until(lambda: len(set(descendants(service.process.pid)) - {fork_server}) == 2)
    assert engine in descendants(service.process.pid)
    assert stored_counts(service) == (10, 10)
    kill(engine)
    assert service.send(STREAM, EVENTS[:10]).json()["accepted"] == 10
    assert stored_counts(service) == (20, 20)
    assert service.stop() == 0


def test_a_query_that_does_not_stop_is_killed_quarantined_and_reported(start: Start) -> None:
    service = start(env={"CORDWOOD_LIMITS_QUERY_TIME": "1s"})
    for first in range(0, len(EVENTS), 5_000):
        assert service.send(STREAM, EVENTS[first : first + 5_000]).status_code == 200
    before = engine_pid(service)
    killed = service.query("logs.all", project="p", sql=UNINTERRUPTIBLE_QUERY)
    assert (killed.status_code, killed.json()["error"]["status"]) == (422, "limit.killed")
    until(lambda: engine_pid(service) != before)
    # A query that differs from the killed one only in literals is refused too.
    refused = query_with_retries(service, sql=f"{UNINTERRUPTIBLE_QUERY} and 7 = 7")
    assert (refused.status_code, refused.json()["error"]["status"]) in {
        (422, "limit.killed"),
        (422, "limit.quarantined-query"),
    }
    second_answer = query_with_retries(service, sql=UNINTERRUPTIBLE_QUERY)
    assert (second_answer.status_code, second_answer.json()["error"]["status"]) == (422, "limit.quarantined-query")
    assert 1 <= int(second_answer.headers["retry-after"]) <= 600
    # A key whose ad hoc queries are refused may still run saved queries.
    assert query_with_retries(service).status_code == 200
    metrics = service.client.get("/metrics").text
    assert 'cordwood_engine_process_ends_total{cause="time"}' in metrics
    assert "cordwood_quarantine_refusals_total{" in metrics
    process_status = service.client.get("/api/status").json()["engine_process"]
    assert process_status["ends"]["time"] >= 1
    assert process_status["quarantined_queries"] >= 1
    doctor = cordwood("doctor", "--url", service.url, "--key", PRIVATE)
    assert "are refused, because the engine's process was killed with them" in doctor.stdout
    assert '"event":"query_quarantined"' in service.stop_and_read()


def test_the_service_stops_within_its_drain_time_during_a_flush_without_loss(start: Start) -> None:
    service = start(env={"CORDWOOD_WEB_DRAIN_TIME": "1s"})
    # These events are deeply nested, because they take the longest to flush.
    deep = [{"project": "p", "metadata": json.loads('{"a":' * 90 + "1" + "}" * 90)}] * 100
    for _ in range(100):
        assert service.send(STREAM, deep).status_code == 200
    assert service.stop() == 0
    assert stored_counts(start()) == (10_000, 10_000)


@pytest.mark.parametrize("request_name", [signal.SIGTERM, signal.SIGINT])
def test_the_service_stops_within_its_drain_time_despite_an_uninterruptible_query(
    start: Start, request_name: signal.Signals
) -> None:
    service = start(env={"CORDWOOD_WEB_DRAIN_TIME": "1s", "CORDWOOD_LIMITS_QUERY_TIME": "60s"})
    for first in range(0, len(EVENTS), 5_000):
        assert service.send(STREAM, EVENTS[first : first + 5_000]).status_code == 200
    child_processes = descendants(service.process.pid)
    query_thread = threading.Thread(target=send_stuck_query, args=(service,))
    query_thread.start()
    until(lambda: service.client.get("/api/status").json()["queries"]["under_way"] != [])
    time.sleep(0.5)
    for pid in (service.process.pid, *child_processes):
        os.kill(pid, request_name)
    assert service.process.wait(20) == 0
    query_thread.join()
    assert not any(Path(f"/proc/{pid}/exe").exists() for pid in child_processes)


def send_stuck_query(service: Service) -> None:
    try:
        httpx.get(
            f"{service.url}/api/endpoints/query/logs.all",
            params={"project": "p", "sql": UNINTERRUPTIBLE_QUERY},
            headers=service.client.headers,
            timeout=60,
        )
    except httpx.HTTPError:
        return


def test_readiness_reports_an_engine_that_cannot_be_opened(start: Start) -> None:
    service = start()
    assert service.send(STREAM, EVENTS[:10]).status_code == 200
    file, aside = service.data_dir / "events.duckdb", service.data_dir / "aside"
    file.rename(aside)
    file.write_bytes(b"no file of events")
    kill(engine_pid(service))
    until(lambda: service.client.get("/ready").status_code == 503)
    assert "reasons" in service.client.get("/ready").json()
    aside.rename(file)
    until(lambda: service.client.get("/ready").status_code == 200)
    assert stored_counts(service) == (10, 10)


def test_a_slow_reader_does_not_block_other_queries(start: Start) -> None:
    service = start(env={"CORDWOOD_LIMITS_QUERY_TIME": "60s"})
    large = [{"project": "p", "event_message": "y" * 20_000} for _ in range(2_000)]
    for first in range(0, len(large), 500):
        assert service.send(STREAM, large[first : first + 500]).status_code == 200
    with service.client.stream("GET", f"/api/streams/{STREAM}/events") as slow:
        next(slow.iter_raw())
        for _ in itertools.repeat(None, 20):
            assert stored_counts(service) == (2_000, 2_000)
