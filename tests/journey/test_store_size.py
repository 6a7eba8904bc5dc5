"""Retention by size: the oldest events of all streams are deleted when the store exceeds its limit."""

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
MOST, BATCHES, BATCH = 64_000_000, 22, 4000
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
SIZE_LIMIT = {"CORDWOOD_LIMITS_STORE_SIZE": f"{MOST}B"}
# Each sweep runs a checkpoint, which takes 20 s alone, and 240 s and more beside other tests that wait for the disk.
SECONDS = 480
KILLS = 12 if os.environ.get("TORTURE") == "full" else 1


def batch(number: int) -> list[dict[str, object]]:
    """Return events of one hour, about two kilobytes each."""
    began = BEGAN + timedelta(hours=number)
    return [
        {
            "id": f"{number}-{place}",
            "project": "p",
            "timestamp": (began + timedelta(milliseconds=900 * place)).isoformat(),
            "metadata": {"text": base64.b64encode(os.urandom(1500)).decode()},
        }
        for place in range(BATCH)
    ]


def stored_size(service: Service) -> tuple[int, int]:
    """Return the number of events and their size in bytes."""
    answer = service.client.get("/api/status")
    assert answer.status_code == 200, answer.text
    streams = answer.json()["streams"].values()
    return sum(counts["events"] for counts in streams), sum(counts["bytes"] or 0 for counts in streams)


def is_small_enough(service: Service) -> bool:
    return stored_size(service)[1] <= MOST


def query_row(service: Service, sql: str) -> dict[str, int]:
    (row,) = service.client.post("/api/query", params={"sql": sql}).json()["result"]
    assert isinstance(row, dict)
    return row


def first_and_last_time(service: Service, stream: str) -> tuple[datetime, datetime]:
    row = query_row(service, f"select min(timestamp) as oldest, max(timestamp) as newest from `{stream}`")
    oldest, newest = (BEGAN + timedelta(microseconds=row[name] - round(BEGAN.timestamp() * 1e6)) for name in row)
    return oldest, newest


@pytest.mark.torture
def test_the_oldest_events_are_deleted_when_the_store_is_too_large(start: Start) -> None:
    service = start(env=SIZE_LIMIT, program=CONSTANT_SWEEPS)
    for number in range(BATCHES):
        assert service.send(STREAMS[number % 2], batch(number)).json()["accepted"] == BATCH
    until(partial(is_small_enough, service), SECONDS)
    events, _ = stored_size(service)
    assert 0 < events <= BATCHES * BATCH * 0.6
    for behind, stream in enumerate(reversed(STREAMS)):
        oldest, newest = first_and_last_time(service, stream)
        assert oldest > BEGAN + timedelta(hours=BATCHES * 0.3)
        assert newest > BEGAN + timedelta(hours=BATCHES - 1 - behind)
    assert service.stop() == 0


@pytest.mark.torture
def test_a_kill_during_a_sweep_neither_loses_nor_duplicates_new_events(start: Start) -> None:
    number, rng = 0, random.Random(1)
    for _ in range(KILLS):
        service = start(env=SIZE_LIMIT, program=CONSTANT_SWEEPS)
        for _ in range(9):
            number += 1
            assert service.send(STREAMS[number % 2], batch(number)).json()["accepted"] == BATCH
        time.sleep(rng.uniform(0, 2))
        service.kill()
        service = start(env=SIZE_LIMIT, program=CONSTANT_SWEEPS)
        for stream in STREAMS:
            counts = query_row(service, f"select count(*) as events, count(distinct id) as ids from `{stream}`")
            assert counts["events"] == counts["ids"] > 0
        newest = query_row(service, f"select countif(id like '{number}-%') as events from `{STREAMS[number % 2]}`")
        assert newest["events"] == BATCH
        until(partial(is_small_enough, service), SECONDS)
        service.kill()
