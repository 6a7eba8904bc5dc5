"""A service that may keep so much, and no more: the oldest events of all streams go, the newest can be asked for."""

import base64
import os
import random
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.journey.conftest import Service, Start
from tests.waiting import until

STREAMS = ("postgres.logs", "gotrue.logs.prod")
MOST, BATCHES, BATCH = 64_000_000, 22, 4000
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
# Sweeps all the time.
RESTLESS = (str(Path(__file__).with_name("restless_service.py")),)
BOUND = {"CORDWOOD_LIMITS_STORE_SIZE": f"{MOST}B"}
# A busy machine with a slow disk took up to 50.
SECONDS = 240
KILLS = 12 if os.environ.get("TORTURE") == "full" else 2


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
    answer = service.client.get("/api/status")
    assert answer.status_code == 200, answer.text
    streams = answer.json()["streams"].values()
    return sum(told["events"] for told in streams), sum(told["bytes"] or 0 for told in streams)


def is_small_enough(service: Service) -> bool:
    return kept(service)[1] <= MOST


def asked(service: Service, sql: str) -> dict[str, int]:
    (row,) = service.client.post("/api/query", params={"sql": sql}).json()["result"]
    assert isinstance(row, dict)
    return row


def extent(service: Service, stream: str) -> tuple[datetime, datetime]:
    row = asked(service, f"select min(timestamp) as oldest, max(timestamp) as newest from `{stream}`")
    oldest, newest = (BEGAN + timedelta(microseconds=row[name] - round(BEGAN.timestamp() * 1e6)) for name in row)
    return oldest, newest


@pytest.mark.torture
def test_the_oldest_events_go_when_the_store_is_too_large_and_the_newest_stay(start: Start) -> None:
    service = start(env=BOUND, program=RESTLESS)
    for number in range(BATCHES):
        assert service.send(STREAMS[number % 2], batch(number)).json()["accepted"] == BATCH
    until(partial(is_small_enough, service), SECONDS)
    events, _ = kept(service)
    assert 0 < events <= BATCHES * BATCH * 0.6
    for behind, stream in enumerate(reversed(STREAMS)):
        oldest, newest = extent(service, stream)
        assert oldest > BEGAN + timedelta(hours=BATCHES * 0.3)
        assert newest > BEGAN + timedelta(hours=BATCHES - 1 - behind)
    assert service.stop() == 0


@pytest.mark.torture
def test_a_kill_while_room_is_made_loses_none_of_the_newest_and_doubles_none(start: Start) -> None:
    number, chance = 0, random.Random(1)
    for _ in range(KILLS):
        service = start(env=BOUND, program=RESTLESS)
        for _ in range(9):
            number += 1
            assert service.send(STREAMS[number % 2], batch(number)).json()["accepted"] == BATCH
        time.sleep(chance.uniform(0, 2))
        service.kill()
        service = start(env=BOUND, program=RESTLESS)
        for stream in STREAMS:
            told = asked(service, f"select count(*) as events, count(distinct id) as ids from `{stream}`")
            assert told["events"] == told["ids"] > 0
        newest = asked(service, f"select countif(id like '{number}-%') as events from `{STREAMS[number % 2]}`")
        assert newest["events"] == BATCH
        until(partial(is_small_enough, service), SECONDS)
        service.kill()
