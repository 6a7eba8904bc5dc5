"""A service that is killed at any moment has every event it acknowledged, once."""

import os
import random
import threading
import time
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import AnswerLimits
from tests.contract.engine_asking import rows, stream
from tests.journey.conftest import PUBLIC, Service, Start

ROUNDS = 40 if os.environ.get("TORTURE") == "full" else 3
WRITERS = 8
EDGE = "cloudflare.logs.prod"
ALL = AnswerLimits(max_rows=10_000_000, seconds=300.0)


class Writer(threading.Thread):
    """Posts batches of odd sizes until the service is gone; keeps the ids that were acknowledged."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__()
        self._url = url
        self._random = random.Random(seed)
        self.acknowledged: list[str] = []

    def run(self) -> None:
        with httpx.Client(base_url=self._url, headers={"X-API-KEY": PUBLIC}, timeout=30) as client:
            while self._post(client):
                pass

    def _post(self, client: httpx.Client) -> bool:
        ids = [str(uuid4()) for _ in range(self._random.choice([1, 1, 10, 100, 2500]))]
        events = [
            {"id": one, "project": "p", "metadata": {"request": {"path": "/rest", "n": place}}}
            for place, one in enumerate(ids)
        ]
        events += [{"id": f"old-{one}", "timestamp": "2026-01-01T00:00:00Z"} for one in ids[::3]]
        try:
            answer = client.post("/api/logs", params={"source_name": EDGE}, json=events)
        except httpx.HTTPError:
            return False
        if answer.status_code == 200:
            self.acknowledged += ids
        return answer.status_code in {200, 429, 503}


def load_and_kill(service: Service, seconds: float, seed: int) -> list[str]:
    writers = [Writer(service.url, seed * 100 + number) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    time.sleep(seconds)
    service.kill()
    for writer in writers:
        writer.join()
    return [one for writer in writers for one in writer.acknowledged]


# What keeps two days: the old half of what is sent is swept away beneath the rest.
STREAMS = f"""
[[stream]]
name = "{EDGE}"
retention = "2d"
"""
RESTLESS = (str(Path(__file__).with_name("restless_service.py")),)


def stored_ids(data_dir: Path) -> list[str]:
    engine = DuckDBEngine(data_dir, DuckDBTarget())
    engine.prepare([stream(EDGE)])
    found = [str(row[0]) for row in rows(engine, f"select id from `{EDGE}`", limits=ALL)]
    engine.close()
    return found


@pytest.mark.torture
def test_no_acknowledged_event_is_lost_or_doubled_when_the_process_is_killed(start: Start, tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    moments = random.Random(seed)
    acknowledged: set[str] = set()
    (tmp_path / "streams.toml").write_text(STREAMS)
    for number in range(ROUNDS):
        service = start("--streams", str(tmp_path / "streams.toml"), program=RESTLESS)
        acknowledged.update(load_and_kill(service, moments.uniform(0.2, 3.0), seed + number))
    stored = stored_ids(tmp_path / "data")
    found = [one for one in stored if not one.startswith("old-")]
    assert len(stored) - len(found) < len(acknowledged) // 3, "nothing was swept meanwhile"
    assert len(found) == len(set(found)), f"seed {seed}"
    assert acknowledged <= set(found), f"seed {seed}"
    assert acknowledged


@pytest.mark.torture
def test_what_a_killed_process_left_behind_is_swept(start: Start, tmp_path: Path) -> None:
    start().kill()
    spill = tmp_path / "data" / "spill"
    spill.mkdir(exist_ok=True)
    (spill / "duckdb_temp_storage.tmp").write_bytes(b"left behind")
    service = start()
    assert not (spill / "duckdb_temp_storage.tmp").exists()
    assert service.stop() == 0
