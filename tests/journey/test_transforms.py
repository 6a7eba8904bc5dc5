"""Transforms over HTTP: pins, quarantine, reload and limits."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journey.conftest import Service, start_service
from tests.journey.test_cli_clients import cordwood

STREAMS_FILE = """
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
def service_with_transforms(tmp_path: Path) -> Iterator[Service]:
    (tmp_path / "streams.toml").write_text(STREAMS_FILE)
    service = start_service(tmp_path / "data", "--streams", str(tmp_path / "streams.toml"))
    yield service
    service.stop()


def messages(service: Service) -> list[tuple[str, str | None]]:
    sql = "select event_message as m, project as p from `t` order by 1"
    return [(row["m"], row["p"]) for row in service.client.get("/api/query", params={"sql": sql}).json()["result"]]


def test_events_are_transformed_before_they_are_validated(service_with_transforms: Service, tmp_path: Path) -> None:
    old = {"event_message": "old", "timestamp": "2020-01-01T00:00:00Z"}
    answer = service_with_transforms.send(
        "t", [{"event_message": "noise"}, {"event_message": "a", "tenant": "x"}, 5, old]
    ).json()
    assert {name: answer[name] for name in ("accepted", "quarantined", "dropped")} == {
        "accepted": 1,
        "quarantined": 2,
        "dropped": 1,
    }
    assert [item["index"] for item in answer["reasons"]] == [2, 3]
    assert messages(service_with_transforms) == [("[a]", "x")]
    # A pin is checked against the event that the transforms return.
    key = service_with_transforms.client.post(
        "/api/access-tokens", json={"scopes": "ingest", "pins": {"project": "mine"}}
    ).json()["token"]
    event, headers = {"event_message": "b", "tenant": "others"}, {"X-API-KEY": key}
    answer = service_with_transforms.client.post("/api/logs?source_name=t", json=[event], headers=headers).json()
    assert (answer["accepted"], answer["quarantined"]) == (0, 1)
    # Quarantined events are stored as the transforms returned them.
    (tmp_path / "streams.toml").write_text(STREAMS_FILE.replace("quarantine", "accept").replace("[{", "<{"))
    assert cordwood("reload", "--data-dir", str(service_with_transforms.data_dir)).returncode == 0
    expected_messages = {
        item["beginning"][:400]: item["id"] for item in service_with_transforms.client.get("/api/quarantine").json()
    }
    (quarantined_id,) = (item_id for text, item_id in expected_messages.items() if "[old]" in text)
    assert service_with_transforms.client.post(f"/api/quarantine/{quarantined_id}/replay").json()["accepted"] == 1
    assert service_with_transforms.send("t", [{"event_message": "c"}]).json()["accepted"] == 1
    assert [message for message, _ in messages(service_with_transforms)] == ["<c]", "[a]", "[old]"]
    metrics = service_with_transforms.client.get("/metrics").text
    assert 'cordwood_ingest_transforms_total{stream="t",transform="1 drop",outcome="dropped"} 1' in metrics


def test_enrichment_of_many_events_is_limited(tmp_path: Path) -> None:
    """Refuse a batch whose events all get a large entry of an enrichment file.

    With the entry, 40,000 events would take 800 MB.
    """
    (tmp_path / "users.json").write_text(json.dumps({"7": "x" * 20_000}))
    transform = 'enrich = {file = "users.json", from = "metadata.uid", to = "metadata.user"}'
    (tmp_path / "streams.toml").write_text(f'[[stream]]\nname = "t"\n\n[[stream.transform]]\n{transform}\n')
    service = start_service(tmp_path / "data", "--streams", str(tmp_path / "streams.toml"))
    try:
        refused = service.send("t", [{"metadata": {"uid": "7"}}] * 40_000)
        assert (refused.status_code, refused.json()["error"]["status"]) == (413, "request.too-large")
        assert "The transforms of the stream t add more than 32 MiB" in refused.json()["error"]["message"]
        assert peak_memory(service.process.pid) < 400 * 2**20
        assert service.send("t", [{"metadata": {"uid": "7"}}] * 100).json()["accepted"] == 100
    finally:
        service.stop()


def peak_memory(pid: int) -> int:
    """Return the maximum memory that the process has used, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
