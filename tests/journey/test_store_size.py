"""A service that may keep so much, and no more: the oldest events of all streams go, the newest can be asked for."""

import base64
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.journey.conftest import Service, Start

STREAMS = ("postgres.logs", "gotrue.logs.prod")
MOST, BATCHES, BATCH = 64_000_000, 22, 4000
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
# Sweeps all the time.
RESTLESS = (str(Path(__file__).with_name("restless_service.py")),)


def batch(number: int) -> list[dict[str, object]]:
    """An hour of events, of texts that take about two kilobytes each."""
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


def kept(service: Service) -> tuple[int, int]:
    """How many events there are, and the bytes that they take."""
    streams = service.client.get("/api/status").json()["streams"].values()
    return sum(told["events"] for told in streams), sum(told["bytes"] or 0 for told in streams)


def extent(service: Service, stream: str) -> tuple[datetime, datetime]:
    sql = f"select min(timestamp) as oldest, max(timestamp) as newest from `{stream}`"
    (row,) = service.client.post("/api/query", params={"sql": sql}).json()["result"]
    oldest, newest = (BEGAN + timedelta(microseconds=row[name] - round(BEGAN.timestamp() * 1e6)) for name in row)
    return oldest, newest


@pytest.mark.torture
def test_the_oldest_events_go_when_the_store_is_too_large_and_the_newest_stay(start: Start) -> None:
    service = start(env={"CORDWOOD_LIMITS_STORE_SIZE": f"{MOST}B"}, program=RESTLESS)
    for number in range(BATCHES):
        assert service.send(STREAMS[number % 2], batch(number)).json()["accepted"] == BATCH
    deadline = time.monotonic() + 60
    while kept(service)[1] > MOST and time.monotonic() < deadline:
        time.sleep(0.5)
    events, taken = kept(service)
    assert taken <= MOST
    assert 0 < events <= BATCHES * BATCH * 0.6
    for behind, stream in enumerate(reversed(STREAMS)):
        oldest, newest = extent(service, stream)
        assert oldest > BEGAN + timedelta(hours=BATCHES * 0.3)
        assert newest > BEGAN + timedelta(hours=BATCHES - 1 - behind)
    assert service.stop() == 0
