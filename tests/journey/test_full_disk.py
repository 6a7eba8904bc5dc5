"""A full disk: events are refused, queries are answered, and no event is lost. Ingest resumes when there is space."""

import json
import os
import time
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from tests.journey.conftest import Service, Start
from tests.small_disks import mount_small_disk

STREAM = "postgres.logs"
PROJECT = "full"
COUNT_QUERY = "select count(*) as events, count(distinct id) as ids from postgres_logs"


def send_random_events(service: Service) -> tuple[int, int]:
    """Send a batch of random events. Return the status and the number of events."""
    events = [{"id": str(uuid4()), "project": PROJECT, "metadata": {"text": os.urandom(400).hex()}} for _ in range(500)]
    return service.send(STREAM, events).status_code, len(events)


def send_by_shippers(service: Service) -> dict[str, int]:
    """Send random events by the protocols of several shippers. Return the status for each path."""
    texts = [os.urandom(400).hex() for _ in range(500)]
    elastic = "".join(f'{{"create":{{}}}}\n{{"message":"{text}"}}\n' for text in texts)
    splunk = "".join(f'{{"event":"{text}","index":"{STREAM}"}}' for text in texts)
    datadog = json.dumps([{"message": text, "service": STREAM} for text in texts])
    sent = {f"/{STREAM}/_bulk": elastic, "/services/collector": splunk, "/api/v2/logs": datadog}
    return {path: service.client.post(path, content=body).status_code for path, body in sent.items()}


def stored_count(service: Service) -> dict[str, object]:
    answer = service.query("logs.all", project=PROJECT, sql=COUNT_QUERY)
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, object]] = answer.json()["result"]
    return rows[0]


def send_until_accepted(service: Service) -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        status, count = send_random_events(service)
        if status == 200:
            return count
        assert status in {429, 503, 507}
        time.sleep(0.5)
    pytest.fail("events are refused although there is room again")


@pytest.mark.torture
def test_a_service_survives_a_full_disk_and_resumes_by_itself(start: Start, tmp_path: Path) -> None:
    with mount_small_disk(tmp_path / "disk", "48m") as disk:
        filler = disk / "filler"
        filler.write_bytes(b"x" * 24_000_000)
        service = start(data_dir=disk / "data")
        stored, status = 0, 200
        while status == 200:
            status, count = send_random_events(service)
            stored += count if status == 200 else 0
        assert status in {503, 507}
        assert set(send_by_shippers(service).values()) <= {429, 503}
        assert stored_count(service) == {"events": stored, "ids": stored}
        assert httpx.get(f"{service.url}/ready").status_code == 200
        filler.unlink()
        stored += send_until_accepted(service)
        assert stored_count(service) == {"events": stored, "ids": stored}
        assert service.stop() == 0
        restarted = start(data_dir=disk / "data")
        assert stored_count(restarted) == {"events": stored, "ids": stored}
        assert restarted.stop() == 0
