"""Events whose timestamps are beyond a stream's bounds are accepted, clamped or quarantined, and counted."""

import time
from pathlib import Path

import httpx
import pytest

from tests.journey.conftest import Service, Start

STREAMS_FILE = """
[[stream]]
name = "accepts"
late = {after = "1h", policy = "accept"}
future = {after = "1h", policy = "accept"}
[[stream]]
name = "clamps"
late = {after = "1h", policy = "clamp"}
future = {after = "1h", policy = "clamp"}
[[stream]]
name = "refuses"
late = {after = "1h", policy = "quarantine"}
future = {after = "1h", policy = "quarantine"}
[[stream]]
name = "keeps"
retention = "1h"
[[stream]]
name = "keeps.less"
retention = "1h"
late = {after = "3h", policy = "quarantine"}
"""
HOUR_US = 3600 * 10**6


@pytest.fixture
def service(start: Start, tmp_path: Path) -> Service:
    (tmp_path / "streams.toml").write_text(STREAMS_FILE)
    return start("--streams", str(tmp_path / "streams.toml"))


@pytest.mark.parametrize(
    ("stream", "quarantined", "hours"),
    [
        ("accepts", 0, {"future": (2, False), "late": (-2, False), "within": (0, False)}),
        ("clamps", 0, {"future": (1, True), "late": (-1, True), "within": (0, False)}),
        ("refuses", 2, {"within": (0, False)}),
    ],
)
def test_the_policy_of_a_stream_applies_beyond_its_bounds(
    service: Service, stream: str, quarantined: int, hours: dict[str, tuple[int, bool]]
) -> None:
    now_us = time.time_ns() // 1000
    events = [
        {"id": name, "timestamp": now_us + offset_hours * HOUR_US}
        for name, offset_hours in (("late", -2), ("future", 2))
    ]
    answer = service.send(stream, [*events, {"id": "within", "timestamp": now_us}]).json()
    assert (answer["accepted"], answer["quarantined"]) == (3 - quarantined, quarantined)
    assert (answer["late"], answer["future"]) == (1, 1)
    sql = f"select id, timestamp_diff(timestamp, ingested_at, minute) / 60 as hours, timestamp_inferred from {stream}"
    rows = service.client.get("/api/query", params={"sql": sql}).json()["result"]
    result_by_id = {row["id"]: (round(row["hours"]), row["timestamp_inferred"]) for row in rows}
    assert result_by_id == hours
    metrics = httpx.get(f"{service.url}/metrics").text
    for clock in ("late", "future"):
        assert f'cordwood_ingest_beyond_bounds_total{{stream="{stream}",clock="{clock}"}} 1' in metrics


def hours_ago(hours: int) -> int:
    return time.time_ns() // 1000 - hours * HOUR_US


def test_events_older_than_the_retention_are_counted_as_late_by_every_route(service: Service) -> None:
    within = service.send("keeps", {"id": "within", "timestamp": hours_ago(0)}).json()
    assert within == {"message": "Logged!", "accepted": 1, "duplicates": 0, "quarantined": 0, "reasons": []}
    sent = service.send("keeps", [{"id": "old", "timestamp": hours_ago(2)}, {"id": "new"}]).json()
    assert (sent["accepted"], sent["quarantined"], sent["late"]) == (2, 0, 1)
    line = {"id": "exported", "timestamp": hours_ago(9), "ingested_at": hours_ago(9)}
    imported = service.client.post("/api/streams/keeps/events", json=line).json()
    assert (imported["accepted"], imported["late"]) == (1, 1)
    terms = {"scopes": "ingest", "pins": {"project": "acme"}}
    key = service.client.post("/api/access-tokens", json=terms).json()["token"]
    foreign = {"id": "foreign", "timestamp": hours_ago(2), "project": "other"}
    httpx.post(f"{service.url}/logs?source_name=keeps", headers={"X-API-KEY": key}, json=foreign)
    (item,) = service.client.get("/api/quarantine").json()
    replayed = service.client.post(f"/api/quarantine/{item['id']}/replay").json()
    assert replayed == {"message": "Replayed.", "accepted": 1, "duplicates": 0, "late": 1}
    metrics = httpx.get(f"{service.url}/metrics").text
    assert 'cordwood_ingest_beyond_bounds_total{stream="keeps",clock="late"} 3' in metrics


def test_a_bound_beyond_the_retention_is_the_retention(service: Service) -> None:
    answer = service.send("keeps.less", [{"id": "old", "timestamp": hours_ago(2)}, {"id": "new"}]).json()
    assert (answer["accepted"], answer["quarantined"], answer["late"]) == (1, 1, 1)
