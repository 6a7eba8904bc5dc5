"""Retention by size: if the store exceeds its limit, the oldest events of all streams are deleted."""

import base64
import os
import random
import time
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from tests.journey.conftest import Service, Start
from tests.journey.modified_service import CONSTANT_SWEEPS
from tests.waiting import until

STREAMS = ("postgres.logs", "gotrue.logs.prod")
MAX_STORE_BYTES, BATCH_COUNT, EVENTS_PER_BATCH = 64_000_000, 22, 4000
FIRST_TIME = datetime(2026, 1, 1, tzinfo=UTC)
SIZE_LIMIT = {"CORDWOOD_LIMITS_STORE_SIZE": f"{MAX_STORE_BYTES}B"}
# Maximum wait for a sweep, which runs a checkpoint. It takes 20 s, or 240 s and more while other tests use the disk.
MAX_WAIT_SECONDS = 480
KILL_COUNT = 12 if os.environ.get("TORTURE") == "full" else 1


def events_of_hour(number: int) -> list[dict[str, object]]:
    """Return events of one hour, each of about two kilobytes."""
    began = FIRST_TIME + timedelta(hours=number)
    return [
        {
            "id": f"{number}-{place}",
            "project": "p",
            "timestamp": (began + timedelta(milliseconds=900 * place)).isoformat(),
            "metadata": {"text": base64.b64encode(os.urandom(1500)).decode()},
        }
        for place in range(EVENTS_PER_BATCH)
    ]


def stored_counts_and_bytes(service: Service) -> tuple[int, int]:
    """Return the number of events and their size in bytes, over all streams."""
    answer = service.client.get("/api/status")
    assert answer.status_code == 200, answer.text
    streams = answer.json()["streams"].values()
    return sum(counts["events"] for counts in streams), sum(counts["bytes"] or 0 for counts in streams)


def is_small_enough(service: Service) -> bool:
    return stored_counts_and_bytes(service)[1] <= MAX_STORE_BYTES


def query_row(service: Service, sql: str) -> dict[str, int]:
    (row,) = service.client.post("/api/query", params={"sql": sql}).json()["result"]
    assert isinstance(row, dict)
    return row


def first_and_last_time(service: Service, stream: str) -> tuple[datetime, datetime]:
    row = query_row(service, f"select min(timestamp) as oldest, max(timestamp) as newest from `{stream}`")
    oldest, newest = (
        FIRST_TIME + timedelta(microseconds=row[name] - round(FIRST_TIME.timestamp() * 1e6)) for name in row
    )
    return oldest, newest


@pytest.mark.torture
def test_the_oldest_events_are_deleted_when_the_store_is_too_large(start: Start) -> None:
    service = start(env=SIZE_LIMIT, program=CONSTANT_SWEEPS)
    for number in range(BATCH_COUNT):
        assert service.send(STREAMS[number % 2], events_of_hour(number)).json()["accepted"] == EVENTS_PER_BATCH
    until(partial(is_small_enough, service), MAX_WAIT_SECONDS)
    events, _ = stored_counts_and_bytes(service)
    assert 0 < events <= BATCH_COUNT * EVENTS_PER_BATCH * 0.6
    for newest_before, stream in enumerate(reversed(STREAMS)):
        oldest, newest = first_and_last_time(service, stream)
        assert oldest > FIRST_TIME + timedelta(hours=BATCH_COUNT * 0.3)
        assert newest > FIRST_TIME + timedelta(hours=BATCH_COUNT - 1 - newest_before)
    assert service.stop() == 0


@pytest.mark.torture
def test_a_kill_during_a_sweep_neither_loses_nor_duplicates_new_events(start: Start) -> None:
    number, rng = 0, random.Random(1)
    for _ in range(KILL_COUNT):
        service = start(env=SIZE_LIMIT, program=CONSTANT_SWEEPS)
        for _ in range(9):
            number += 1
            assert service.send(STREAMS[number % 2], events_of_hour(number)).json()["accepted"] == EVENTS_PER_BATCH
        time.sleep(rng.uniform(0, 2))
        service.kill()
        service = start(env=SIZE_LIMIT, program=CONSTANT_SWEEPS)
        for stream in STREAMS:
            counts = query_row(service, f"select count(*) as events, count(distinct id) as ids from `{stream}`")
            assert counts["events"] == counts["ids"] > 0
        newest = query_row(service, f"select countif(id like '{number}-%') as events from `{STREAMS[number % 2]}`")
        assert newest["events"] == EVENTS_PER_BATCH
        until(partial(is_small_enough, service), MAX_WAIT_SECONDS)
        service.kill()
