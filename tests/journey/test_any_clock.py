"""Events whose clocks are wrong are stored, moved to the bound or set aside, as their stream says; and are counted."""

import time
from pathlib import Path

import httpx
import pytest

from tests.journey.conftest import Service, Start

STREAMS = """
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
"""
HOUR_US = 3600 * 10**6


@pytest.fixture
def service(start: Start, tmp_path: Path) -> Service:
    (tmp_path / "streams.toml").write_text(STREAMS)
    return start("--streams", str(tmp_path / "streams.toml"))


@pytest.mark.parametrize(
    ("stream", "quarantined", "hours"),
    [
        ("accepts", 0, {"future": (2, False), "late": (-2, False), "within": (0, False)}),
        ("clamps", 0, {"future": (1, True), "late": (-1, True), "within": (0, False)}),
        ("refuses", 2, {"within": (0, False)}),
    ],
)
def test_a_stream_s_policies_decide_beyond_its_bounds(
    service: Service, stream: str, quarantined: int, hours: dict[str, tuple[int, bool]]
) -> None:
    now_us = time.time_ns() // 1000
    events = [{"id": name, "timestamp": now_us + away * HOUR_US} for name, away in (("late", -2), ("future", 2))]
    told = service.send(stream, [*events, {"id": "within", "timestamp": now_us}]).json()
    assert (told["accepted"], told["quarantined"]) == (3 - quarantined, quarantined)
    sql = f"select id, timestamp_diff(timestamp, ingested_at, minute) / 60 as hours, timestamp_inferred from {stream}"
    rows = service.client.get("/api/query", params={"sql": sql}).json()["result"]
    found = {row["id"]: (round(row["hours"]), row["timestamp_inferred"]) for row in rows}
    assert found == hours
    metrics = httpx.get(f"{service.url}/metrics").text
    for clock in ("late", "future"):
        assert f'cordwood_ingest_beyond_bounds_total{{stream="{stream}",clock="{clock}"}} 1' in metrics
