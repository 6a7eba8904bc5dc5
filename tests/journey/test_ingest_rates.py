"""Ingest rate limits: shippers that respect Retry-After lose no events."""

import gzip
import json
import re
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.journey.conftest import PUBLIC, Service, Start
from tests.journey.test_http_queries import checked_error

STREAMS_FILE = """
[[stream]]
name = "hasty"
rate = "200/s"

[[stream]]
name = "slow"
rate = "2/m"
"""
COUNT_ENDPOINT = """/*
name = "count"
*/
select count(*) as n, count(distinct id) as ids from `hasty`
"""


@pytest.fixture
def arguments(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "streams.toml").write_text(STREAMS_FILE)
    (tmp_path / "endpoints").mkdir()
    (tmp_path / "endpoints" / "count.sql").write_text(COUNT_ENDPOINT)
    (tmp_path / "endpoints" / "many.sql").write_text('/* name = "many" */ select count(*) as n from `postgres.logs`')
    return "--streams", str(tmp_path / "streams.toml"), "--endpoints", str(tmp_path / "endpoints")


class Shipper:
    """A shipper that respects Retry-After and repeats each batch until it is accepted."""

    def __init__(self, service: Service, stream: str) -> None:
        self.statuses: Counter[int] = Counter()
        self._client = httpx.Client(base_url=service.url, headers={"X-API-KEY": PUBLIC}, timeout=60)
        self._stream = stream

    def ship(self, batches: list[list[dict[str, object]]]) -> None:
        with self._client:
            for batch in batches:
                while self._is_refused(batch):
                    pass

    def _is_refused(self, batch: list[dict[str, object]]) -> bool:
        answer = self._client.post("/api/logs", params={"source_name": self._stream}, json=batch)
        self.statuses[answer.status_code] += 1
        if answer.status_code not in {429, 503}:
            assert answer.status_code == 200, answer.text
            return False
        time.sleep(int(answer.headers["retry-after"]))
        return True


def batches(writer: int, number: int, size: int, filler: int = 0) -> list[list[dict[str, object]]]:
    return [
        [{"id": f"{writer}-{batch}-{item}", "event_message": "x" * filler} for item in range(size)]
        for batch in range(number)
    ]


def ship_concurrently(shippers: list[Shipper], number: int, size: int, filler: int = 0) -> Counter[int]:
    """Run the shippers concurrently. Return the number of answers for each status."""
    threads = [
        threading.Thread(target=shipper.ship, args=(batches(writer, number, size, filler),))
        for writer, shipper in enumerate(shippers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return sum((shipper.statuses for shipper in shippers), Counter())


def test_the_rate_of_a_stream_is_enforced_without_loss_for_retrying_shippers(
    start: Start, arguments: tuple[str, ...]
) -> None:
    service = start(*arguments)
    began = time.monotonic()
    statuses = ship_concurrently([Shipper(service, "hasty") for _ in range(2)], number=5, size=70)
    assert time.monotonic() - began > 1
    assert statuses[429] > 0
    assert service.rows("count") == [{"n": 700, "ids": 700}]


def test_a_full_queue_is_429_without_loss_for_retrying_shippers(start: Start, arguments: tuple[str, ...]) -> None:
    service = start(*arguments, env={"CORDWOOD_INGEST_QUEUE_SIZE": "1MiB", "CORDWOOD_INGEST_STREAM_RATE": "1000000/s"})
    statuses = ship_concurrently(
        [Shipper(service, "postgres.logs") for _ in range(6)], number=2, size=20, filler=40_000
    )
    assert set(statuses) <= {200, 429}
    assert statuses[429] > 0
    assert service.rows("many") == [{"n": 240}]


def test_concurrent_decompression_bombs_take_bounded_memory(start: Start) -> None:
    service = start(env={"CORDWOOD_INGEST_QUEUE_SIZE": "8MiB", "CORDWOOD_LIMITS_MEMORY": "256MB"})
    bomb = gzip.compress(b" " * (100 * 2**20))
    headers = {"X-API-KEY": PUBLIC, "Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
    address = f"{service.url}/api/logs?source_name=postgres.logs"
    with ThreadPoolExecutor(12) as threads:
        sent = [threads.submit(httpx.post, address, content=bomb, headers=headers, timeout=60) for _ in range(24)]
    statuses = Counter(thread_headers.result().status_code for thread_headers in sent)
    assert set(statuses) <= {200, 429}
    assert statuses[429] > 0
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{service.process.pid}/status").read_text())
    assert peak
    assert int(peak[1]) < 900_000


def test_a_refusal_has_the_rate_of_the_stream_and_retry_after(start: Start, arguments: tuple[str, ...]) -> None:
    service = start(*arguments)
    assert service.send("slow", [{"id": "1"}, {"id": "2"}]).json()["accepted"] == 2
    refused = service.send("slow", {"id": "3"})
    error = checked_error(refused, 429, "limit.stream-rate")
    assert error["message"] == "The stream slow takes an event in 30 s, and more were sent."
    assert 25 <= int(refused.headers["retry-after"]) <= 31
    assert service.send("postgres.logs", {"id": "3"}).status_code == 200


def test_the_default_rate_of_streams_is_a_setting(start: Start) -> None:
    service = start(env={"CORDWOOD_INGEST_STREAM_RATE": "1/m"})
    assert service.send("postgres.logs", [{"id": str(number)} for number in range(5)]).status_code == 200
    checked_error(service.send("postgres.logs", {"id": "6"}), 429, "limit.stream-rate")


def test_the_rate_of_a_key_counts_requests(start: Start) -> None:
    service = start()
    terms = {"scopes": "ingest", "rate": "2/m"}
    key = service.client.post("/api/access-tokens", json=terms).json()["token"]
    url = f"{service.url}/api/logs?source_name=postgres.logs"
    events = [{"id": str(number)} for number in range(500)]
    assert httpx.post(url, headers={"X-API-KEY": key}, json=events).json()["accepted"] == 500
    checked_error(httpx.post(url, headers={"X-API-KEY": key}, json={"id": "one more"}), 429, "limit.rate")


def test_a_refusal_in_logflares_error_format_has_retry_after(start: Start) -> None:
    service = start(env={"CORDWOOD_COMPAT_ERRORS": "logflare", "CORDWOOD_LIMITS_KEY_RATE": "2/m"})
    answers = [service.query("logs.all", project="x") for _ in range(3)]
    assert answers[-1].status_code == 429
    assert isinstance(json.loads(answers[-1].content)["error"], str)
    assert int(answers[-1].headers["retry-after"]) >= 1
