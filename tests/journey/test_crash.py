"""A service that is killed at any time has stored each acknowledged event exactly once."""

import os
import random
import threading
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from bench.process_family import descendants
from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import AnswerLimits
from cordwood.model.event import Event, ReceivedEventBatch
from tests.contract.engine_asking import rows, stream
from tests.journey.conftest import PRIVATE, PUBLIC, Service, Start
from tests.journey.modified_service import CONSTANT_SWEEPS
from tests.waiting import until_flushed

KILL_COUNT = 40 if os.environ.get("TORTURE") == "full" else 3
EVENT_COUNT = 2_000_000 if os.environ.get("TORTURE") == "full" else 5 * ROW_GROUP_ROWS
WRITER_COUNT = 8
EDGE_STREAM = "cloudflare.logs.prod"
UNLIMITED = AnswerLimits(max_rows=10_000_000, timeout_seconds=300.0)


class Writer(threading.Thread):
    """A thread that sends batches of various sizes until the service is killed, and records the acknowledged ids."""

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
            {"id": event_id, "project": "p", "metadata": {"request": {"path": "/rest", "n": place}}}
            for place, event_id in enumerate(ids)
        ]
        events += [{"id": f"old-{event_id}", "timestamp": "2026-01-01T00:00:00Z"} for event_id in ids[::3]]
        try:
            answer = client.post("/api/logs", params={"source_name": EDGE_STREAM}, json=events)
        except httpx.HTTPError:
            return False
        if answer.status_code == 200:
            self.acknowledged += ids
        return answer.status_code in {200, 429, 503}


def load_and_kill(service: Service, seconds: float, seed: int) -> list[str]:
    writers = [Writer(service.url, seed * 100 + number) for number in range(WRITER_COUNT)]
    for writer in writers:
        writer.start()
    time.sleep(seconds)
    service.kill()
    for writer in writers:
        writer.join()
    return [event_id for writer in writers for event_id in writer.acknowledged]


# The retention is two days, so that retention deletes some of the events during the test.
STREAMS_FILE = f"""
[[stream]]
name = "{EDGE_STREAM}"
retention = "2d"
"""


def stored_ids(data_dir: Path) -> list[str]:
    engine = DuckDBEngine(data_dir, DuckDBTarget())
    engine.create_stream_tables([stream(EDGE_STREAM)])
    result_rows = [str(row[0]) for row in rows(engine, f"select id from `{EDGE_STREAM}`", limits=UNLIMITED)]
    ((count,),) = rows(engine, f"select count(*) as n from `{EDGE_STREAM}`")
    engine.close()
    assert len(result_rows) == count, "not all were asked for"
    return result_rows


@pytest.mark.torture
def test_no_acknowledged_event_is_lost_or_duplicated_by_a_kill(start: Start, tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    acknowledged: set[str] = set()
    (tmp_path / "streams.toml").write_text(STREAMS_FILE)
    for number in range(KILL_COUNT):
        service = start("--streams", str(tmp_path / "streams.toml"), program=CONSTANT_SWEEPS)
        acknowledged.update(load_and_kill(service, rng.uniform(0.2, 3.0), seed + number))
    stored = stored_ids(tmp_path / "data")
    ids_of_senders = [event_id for event_id in stored if not event_id.startswith("old-")]
    assert len(stored) - len(ids_of_senders) < len(acknowledged) // 3, "nothing was swept meanwhile"
    assert len(ids_of_senders) == len(set(ids_of_senders)), f"seed {seed}"
    assert acknowledged <= set(ids_of_senders), f"seed {seed}"
    assert acknowledged


def store_events(data_dir: Path, count: int) -> None:
    """Store events with texts that compress badly, and wait until they are flushed."""
    text_rng = random.Random(count)
    engine = DuckDBEngine(data_dir, DuckDBTarget())
    engine.create_stream_tables([stream(EDGE_STREAM)])
    now_us = time.time_ns() // 1000
    for first in range(0, count, ROW_GROUP_ROWS):
        texts = [f"{text_rng.getrandbits(1600):x}" for _ in range(min(ROW_GROUP_ROWS, count - first))]
        events = [Event(f"e{first + place}", now_us, text, project="p") for place, text in enumerate(texts)]
        engine.append([ReceivedEventBatch(EDGE_STREAM, events, now_us)])
    until_flushed(data_dir)
    engine.close()


def bytes_read_to_start_after_a_crash(start: Start, data_dir: Path) -> int:
    """Return how many bytes a service reads after a kill under load until it listens, without its write-ahead log.

    The size of the log depends on how many events the writers sent before the kill.
    """
    load_and_kill(start(data_dir=data_dir), 0.4, 0)
    log_bytes = sum(path.stat().st_size for path in (data_dir / "journal").iterdir())
    service = start(data_dir=data_dir)
    pids = (service.process.pid, *descendants(service.process.pid))
    counters = [Path(f"/proc/{pid}/io").read_text().split() for pid in pids]
    service.kill()
    return sum(int(words[words.index("rchar:") + 1]) for words in counters) - log_bytes


@pytest.mark.torture
def test_a_start_after_a_crash_reads_a_constant_part_of_the_stored_events(start: Start, tmp_path: Path) -> None:
    store_events(tmp_path / "many", EVENT_COUNT)
    stored_bytes = sum(path.stat().st_size for path in (tmp_path / "many").rglob("*") if path.is_file())
    store_events(tmp_path / "few", ROW_GROUP_ROWS)
    read_with_many = bytes_read_to_start_after_a_crash(start, tmp_path / "many")
    read_with_few = bytes_read_to_start_after_a_crash(start, tmp_path / "few")
    assert read_with_many - read_with_few < stored_bytes / 50


def run_spilling_query(service: Service) -> None:
    """Run a query that sorts more than fits into the engine's memory. The query ends when the service is killed."""
    sql = f"select max(n) as n from (select row_number() over (order by event_message) as n, id from `{EDGE_STREAM}`)"
    with suppress(httpx.HTTPError):
        httpx.post(f"{service.url}/api/query", params={"sql": sql}, headers={"X-API-KEY": PRIVATE}, timeout=60)


@pytest.mark.torture
def test_spill_files_of_a_killed_process_are_deleted_at_the_start(start: Start, tmp_path: Path) -> None:
    store_events(tmp_path / "data", 3 * ROW_GROUP_ROWS)
    spill = tmp_path / "data" / "spill"
    service = start(env={"CORDWOOD_DUCKDB_MEMORY": "32MB", "CORDWOOD_DUCKDB_THREADS": "1"})
    query_thread = threading.Thread(target=run_spilling_query, args=(service,))
    query_thread.start()
    deadline = time.monotonic() + 60
    while not (spill.exists() and any(spill.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.001)
    service.kill()
    query_thread.join()
    assert any(spill.iterdir()), "nothing was spilled"
    service = start()
    assert not spill.exists() or not any(spill.iterdir())
    assert service.rows("logs.all", project="p", sql="select count(*) as n from edge_logs") == [
        {"n": 3 * ROW_GROUP_ROWS}
    ]
    assert service.stop() == 0
