"""The engine's process may be killed at any moment: it is replaced, and nothing that was acknowledged is lost or doubled."""

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

from bench.process_family import children, kill
from tests.journey.conftest import PRIVATE, Service, Start
from tests.journey.test_cli_clients import cordwood
from tests.waiting import until

STREAM = "postgres.logs"
COUNT = "select count(*) as n, count(distinct id) as ids from postgres_logs"
# Looks at no interrupt for minutes: no pair of rows ever comes out of it.
STUCK = (
    "select count(*) as n from postgres_logs a join postgres_logs b on a.timestamp < b.timestamp"
    " and a.event_message < b.event_message and regexp_contains(a.event_message, b.event_message)"
)
EVENTS = [{"project": "p", "event_message": f"{number:06} {'ab' * 40}"} for number in range(20_000)]


def engine_of(service: Service) -> int:
    """The last process below the service: a child of its fork server."""
    return children(service.process.pid)[-1]


def counted(service: Service) -> tuple[object, object]:
    (row,) = service.rows("logs.all", project="p", sql=f"{COUNT} where '{uuid4()}' != ''")
    return row["n"], row["ids"]


def answer_of_an_engine(service: Service, **parameters: str) -> httpx.Response:
    """Ask again, as the refusal says, while a process is replaced for longer than the query may take."""
    answers: list[httpx.Response] = []

    def is_answered() -> bool:
        answers.append(service.query("logs.all", project="p", **parameters))
        return answers[-1].status_code != 503

    until(is_answered)
    return answers[-1]


class Sender(threading.Thread):
    """Sends batches with ids and adds up what was acknowledged."""

    def __init__(self, service: Service) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.accepted = self.duplicates = 0
        self.statuses: set[int] = set()
        self._service = service

    def run(self) -> None:
        with httpx.Client(base_url=self._service.url, headers=self._service.client.headers, timeout=60) as client:
            while not self.over.is_set():
                events = [{"id": str(uuid4()), "project": "p", "event_message": "x"} for _ in range(50)]
                answer = client.post("/api/logs", params={"source_name": STREAM}, json=events)
                self.statuses.add(answer.status_code)
                self.accepted += answer.json()["accepted"]
                self.duplicates += answer.json()["duplicates"]


def test_counts_are_exact_however_often_the_engine_is_killed_under_ingest_and_queries(start: Start) -> None:
    service = start()
    senders = [Sender(service) for _ in range(2)]
    for sender in senders:
        sender.start()
    seen = []
    for _ in range(6):
        time.sleep(0.3)
        kill(engine_of(service))
        seen.append(counted(service))
    for sender in senders:
        sender.over.set()
        sender.join()
    accepted = sum(sender.accepted for sender in senders)
    assert {status for sender in senders for status in sender.statuses} == {200}
    assert sum(sender.duplicates for sender in senders) == 0
    assert counted(service) == (accepted, accepted)
    assert all(number == ids for number, ids in seen)
    # The serving process itself: the folder is free at once, and has everything.
    below = children(service.process.pid)
    service.kill()
    until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in below))
    assert counted(start(data_dir=service.data_dir)) == (accepted, accepted)


def test_a_killed_fork_server_is_replaced_too(start: Start) -> None:
    service = start()
    assert service.send(STREAM, EVENTS[:10]).status_code == 200
    kill(children(service.process.pid)[0])
    assert counted(service) == (10, 10)
    assert service.send(STREAM, EVENTS[:10]).json()["accepted"] == 10
    assert service.stop() == 0


def test_a_query_that_does_not_stop_is_killed_refused_and_told_of(start: Start) -> None:
    service = start(env={"CORDWOOD_LIMITS_QUERY_TIME": "1s"})
    for first in range(0, len(EVENTS), 5_000):
        assert service.send(STREAM, EVENTS[first : first + 5_000]).status_code == 200
    before = engine_of(service)
    killed = service.query("logs.all", project="p", sql=STUCK)
    assert (killed.status_code, killed.json()["error"]["status"]) == (422, "limit.killed")
    until(lambda: engine_of(service) != before)
    # Other literals make it no other query.
    refused = answer_of_an_engine(service, sql=f"{STUCK} and 7 = 7")
    assert (refused.status_code, refused.json()["error"]["status"]) in {
        (422, "limit.killed"),
        (422, "limit.quarantined-query"),
    }
    again = answer_of_an_engine(service, sql=STUCK)
    assert (again.status_code, again.json()["error"]["status"]) == (422, "limit.quarantined-query")
    assert 1 <= int(again.headers["retry-after"]) <= 600
    # A key whose own queries were refused still has the saved ones.
    assert answer_of_an_engine(service).status_code == 200
    metrics = service.client.get("/metrics").text
    assert 'cordwood_engine_process_ends_total{cause="time"}' in metrics
    assert "cordwood_quarantine_refusals_total{" in metrics
    told = service.client.get("/api/status").json()["engine_process"]
    assert told["ends"]["time"] >= 1
    assert told["quarantined_queries"] >= 1
    doctor = cordwood("doctor", "--url", service.url, "--key", PRIVATE)
    assert "are refused, because the engine's process was killed with them" in doctor.stdout
    assert '"event":"query_quarantined"' in service.stop_and_read()


def test_the_service_ends_in_its_drain_time_while_events_are_flushed_and_loses_none(start: Start) -> None:
    service = start(env={"CORDWOOD_WEB_DRAIN_TIME": "1s"})
    # Deep events take the engine the longest.
    deep = [{"project": "p", "metadata": json.loads('{"a":' * 90 + "1" + "}" * 90)}] * 100
    for _ in range(100):
        assert service.send(STREAM, deep).status_code == 200
    assert service.stop() == 0
    assert counted(start()) == (10_000, 10_000)


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_the_service_ends_in_its_drain_time_while_a_query_does_not_stop(start: Start, asked: signal.Signals) -> None:
    service = start(env={"CORDWOOD_WEB_DRAIN_TIME": "1s", "CORDWOOD_LIMITS_QUERY_TIME": "60s"})
    for first in range(0, len(EVENTS), 5_000):
        assert service.send(STREAM, EVENTS[first : first + 5_000]).status_code == 200
    below = children(service.process.pid)
    asking = threading.Thread(target=ask_for_nothing, args=(service,))
    asking.start()
    until(lambda: service.client.get("/api/status").json()["queries"]["under_way"] != [])
    time.sleep(0.5)
    for pid in (service.process.pid, *below):
        os.kill(pid, asked)
    assert service.process.wait(20) == 0
    asking.join()
    assert not any(Path(f"/proc/{pid}/exe").exists() for pid in below)


def ask_for_nothing(service: Service) -> None:
    try:
        httpx.get(
            f"{service.url}/api/endpoints/query/logs.all",
            params={"project": "p", "sql": STUCK},
            headers=service.client.headers,
            timeout=60,
        )
    except httpx.HTTPError:
        return


def test_readiness_says_when_the_engine_cannot_be_opened_and_when_it_can_again(start: Start) -> None:
    service = start()
    assert service.send(STREAM, EVENTS[:10]).status_code == 200
    file, aside = service.data_dir / "events.duckdb", service.data_dir / "aside"
    file.rename(aside)
    file.write_bytes(b"no file of events")
    kill(engine_of(service))
    until(lambda: service.client.get("/ready").status_code == 503)
    assert "reasons" in service.client.get("/ready").json()
    aside.rename(file)
    until(lambda: service.client.get("/ready").status_code == 200)
    assert counted(service) == (10, 10)


def test_an_answer_whose_reader_is_slow_fills_no_memory_and_holds_up_no_other(start: Start) -> None:
    service = start(env={"CORDWOOD_LIMITS_QUERY_TIME": "60s"})
    large = [{"project": "p", "event_message": "y" * 20_000} for _ in range(2_000)]
    for first in range(0, len(large), 500):
        assert service.send(STREAM, large[first : first + 500]).status_code == 200
    with service.client.stream("GET", f"/api/streams/{STREAM}/events") as slow:
        next(slow.iter_raw())
        for _ in itertools.repeat(None, 20):
            assert counted(service) == (2_000, 2_000)
