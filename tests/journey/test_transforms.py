"""Transforms over HTTP: pins hold whatever they write, what is set aside is changed once, and a reload changes them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journey.conftest import Service, start_service
from tests.journey.test_cli_clients import cordwood

STREAMS = """
[[stream]]
name = "t"
late = {after = "7d", policy = "quarantine"}

[[stream.transform]]
drop = "noise"

[[stream.transform]]
rename = {"tenant" = "project"}

[[stream.transform]]
message = "[{event_message}]"
"""


@pytest.fixture
def changed(tmp_path: Path) -> Iterator[Service]:
    (tmp_path / "streams.toml").write_text(STREAMS)
    service = start_service(tmp_path / "data", "--streams", str(tmp_path / "streams.toml"))
    yield service
    service.stop()


def messages(service: Service) -> list[tuple[str, str | None]]:
    sql = "select event_message as m, project as p from `t` order by 1"
    return [(row["m"], row["p"]) for row in service.client.get("/api/query", params={"sql": sql}).json()["result"]]


def test_events_are_changed_before_they_are_judged(changed: Service, tmp_path: Path) -> None:
    old = {"event_message": "old", "timestamp": "2020-01-01T00:00:00Z"}
    told = changed.send("t", [{"event_message": "noise"}, {"event_message": "a", "tenant": "x"}, 5, old]).json()
    assert {name: told[name] for name in ("accepted", "quarantined", "dropped")} == {
        "accepted": 1,
        "quarantined": 2,
        "dropped": 1,
    }
    assert [item["index"] for item in told["reasons"]] == [2, 3]
    assert messages(changed) == [("[a]", "x")]
    # A pin holds for what a transform has written.
    key = changed.client.post("/api/access-tokens", json={"scopes": "ingest", "pins": {"project": "mine"}}).json()[
        "token"
    ]
    event, headers = {"event_message": "b", "tenant": "others"}, {"X-API-KEY": key}
    told = changed.client.post("/api/logs?source_name=t", json=[event], headers=headers).json()
    assert (told["accepted"], told["quarantined"]) == (0, 1)
    # What was set aside was changed already.
    (tmp_path / "streams.toml").write_text(STREAMS.replace("quarantine", "accept").replace("[{", "<{"))
    assert cordwood("reload", "--data-dir", str(changed.data_dir)).returncode == 0
    kept = {item["beginning"][:400]: item["id"] for item in changed.client.get("/api/quarantine").json()}
    (late,) = (item_id for text, item_id in kept.items() if "[old]" in text)
    assert changed.client.post(f"/api/quarantine/{late}/replay").json()["accepted"] == 1
    assert changed.send("t", [{"event_message": "c"}]).json()["accepted"] == 1
    assert [message for message, _ in messages(changed)] == ["<c]", "[a]", "[old]"]
    metrics = changed.client.get("/metrics").text
    assert 'cordwood_ingest_transforms_total{stream="t",transform="1 drop",outcome="dropped"} 1' in metrics
