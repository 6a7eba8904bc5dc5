"""The quarantine: queries, listing, replay and permissions."""

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import httpx
import pytest

from tests.journey.conftest import PRIVATE, PUBLIC, Service, Start
from tests.journey.test_cli_clients import Result, cordwood

QUARANTINE_ENDPOINT = """/*
name = "quarantine"
*/
select event_message, m.stream, m.reason, m.text
from `_quarantine` as t cross join unnest(t.metadata) as m
order by t.timestamp desc limit 100
"""


def test_an_endpoint_may_read_the_quarantine(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "endpoints"
    folder.mkdir()
    (folder / "quarantine.sql").write_text(QUARANTINE_ENDPOINT)
    service = start("--endpoints", str(folder))
    answer = service.send("postgres.logs", [{"id": "a"}, 7])
    assert (answer.json()["accepted"], answer.json()["quarantined"]) == (1, 1)
    reason = "The item is not an object."
    assert service.rows("quarantine") == [
        {"event_message": f"postgres.logs: {reason}", "stream": "postgres.logs", "reason": reason, "text": "7"}
    ]


def test_a_private_key_queries_the_quarantine_like_a_stream(start: Start) -> None:
    service = start()
    assert service.send("postgres.logs", [7]).json()["quarantined"] == 1
    sql = "select cast(m.text as string) as text from `_quarantine` as t cross join unnest(t.metadata) as m"
    answer = service.client.get("/api/query", params={"sql": sql})
    assert (answer.status_code, answer.json()) == (200, {"result": [{"text": "7"}]})
    public = httpx.get(f"{service.url}/api/query", params={"sql": sql}, headers={"X-API-KEY": PUBLIC})
    assert public.status_code == 403


RunCommand = Callable[..., Result]


@pytest.fixture
def pinned_service(start: Start) -> Service:
    """Start a service with two quarantined items, one of which is there because of its key's pin."""
    service = start()
    terms = {"scopes": "ingest", "pins": {"project": "acme"}}
    key = service.client.post("/api/access-tokens", json=terms).json()["token"]
    other = {"id": "e1", "timestamp": "2026-01-01T00:00:00Z", "project": "other", "metadata": {"n": 1}}
    answer = httpx.post(f"{service.url}/logs?source_name=postgres.logs", headers={"X-API-KEY": key}, json=[other, 7])
    assert answer.json()["quarantined"] == 2
    return service


@pytest.fixture(params=["over HTTP", "on the folder"])
def run_command(request: pytest.FixtureRequest, pinned_service: Service) -> RunCommand:
    """Return a function that runs a client command, either over HTTP or on the folder of the stopped service."""
    options: tuple[str, ...] = ("--url", pinned_service.url, "--key", PRIVATE)
    if request.param == "on the folder":
        pinned_service.stop()
        options = ("--data-dir", str(pinned_service.data_dir))
    return lambda *arguments: cordwood(*arguments, *options)


def listed_items(run_command: RunCommand, *more: str) -> dict[str, dict[str, object]]:
    """Return the quarantined items by the first character of their text."""
    items = json.loads(run_command("quarantine", "list", "--format", "json", *more).stdout)
    return {str(item["beginning"])[:1]: item for item in items}


def test_quarantined_items_are_listed_with_reasons_and_shown_completely(run_command: RunCommand) -> None:
    items = listed_items(run_command, "--stream", "postgres.logs")
    assert items["7"]["reason"] == "The item is not an object."
    assert "pinned to project 'acme'" in str(items["{"]["reason"])
    completed = run_command("quarantine", "show", str(items["{"]["id"]))
    assert json.loads(completed.stdout)["id"] == "e1"
    assert "pinned to project" in completed.stderr
    assert listed_items(run_command, "--stream", "cloudflare.logs.prod") == {}
    assert "not an object" in run_command("quarantine", "list").stdout


def test_an_item_is_replayed_once_and_invalid_ones_are_refused(run_command: RunCommand) -> None:
    item_id = str(listed_items(run_command)["{"]["id"])
    replayed = run_command("quarantine", "replay", "--all")
    assert (replayed.returncode, replayed.stdout) == (1, "1 stored, 0 duplicates, 1 refused\n")
    assert "would be quarantined again: The item is not an object." in replayed.stderr
    second_replay = run_command("quarantine", "replay", item_id)
    assert (second_replay.returncode, second_replay.stdout) == (0, "0 stored, 1 duplicates, 0 refused\n")
    sql = "select id, timestamp from postgres_logs"
    query_result = run_command("query", "logs.all", "-p", "project=other", "--sql", sql, "--format", "ndjson")
    assert json.loads(query_result.stdout) == {"id": "e1", "timestamp": 1767225600000000}
    items = listed_items(run_command)
    assert items["{"]["replayed_at"] is not None
    assert items["7"]["replayed_at"] is None


def test_an_unparsable_item_cannot_be_replayed(start: Start) -> None:
    service = start()
    body = b"<13>1 2026-01-01T00:00:00Z host app - - - fine\nno syslog\n"
    address = f"{service.url}/logs/syslogs?source_name=postgres.logs"
    headers = {"X-API-KEY": PRIVATE, "Content-Type": "application/logplex-1"}
    assert httpx.post(address, headers=headers, content=body).json()["quarantined"] == 1
    (item,) = service.client.get("/api/quarantine").json()
    answer = service.client.post(f"/api/quarantine/{item['id']}/replay")
    assert (answer.status_code, answer.json()["error"]["status"]) == (409, "request.not-replayable")


def test_a_replayed_event_keeps_the_time_of_its_arrival(start: Start) -> None:
    service = start()
    terms = {"scopes": "ingest", "pins": {"project": "acme"}}
    key = service.client.post("/api/access-tokens", json=terms).json()["token"]
    line = "connection received"
    event = {"project": "other", "event_message": line}
    httpx.post(f"{service.url}/logs?source_name=postgres.logs", headers={"X-API-KEY": key}, json=event)
    (item,) = service.client.get("/api/quarantine").json()
    assert service.client.post(f"/api/quarantine/{item['id']}/replay").json()["accepted"] == 1
    query_result = service.query("logs.all", project="other", sql="select event_message, timestamp from postgres_logs")
    (row,) = query_result.json()["result"]
    assert row["event_message"] == line
    arrived = datetime.fromisoformat(item["timestamp"])
    assert row["timestamp"] == round(arrived.timestamp() * 1e6)


def test_a_truncated_item_cannot_be_replayed(start: Start) -> None:
    service = start()
    (reason_given,) = service.send("postgres.logs", ["x" * 2_200_000]).json()["reasons"]
    (item,) = service.client.get("/api/quarantine").json()
    assert item["is_cut"] is True
    assert item["reason"] == reason_given["reason"]
    assert reason_given["reason"].endswith("Only its first 256 KiB are stored, and it cannot be replayed.")
    refused = service.client.post(f"/api/quarantine/{item['id']}/replay")
    assert (refused.status_code, refused.json()["error"]["status"]) == (409, "request.not-replayable")
    assert "Only the beginning" in refused.json()["error"]["message"]


def test_a_large_event_refused_by_a_pin_is_replayed_completely(start: Start) -> None:
    service = start()
    terms = {"scopes": "ingest", "pins": {"project": "acme"}}
    key = service.client.post("/api/access-tokens", json=terms).json()["token"]
    event = {"id": "large", "project": "other", "metadata": {"text": "y\n" * 300_000}}
    answer = httpx.post(f"{service.url}/logs?source_name=postgres.logs", headers={"X-API-KEY": key}, json=event)
    assert answer.json()["quarantined"] == 1
    (item,) = service.client.get("/api/quarantine").json()
    assert item["is_cut"] is False
    assert service.client.post(f"/api/quarantine/{item['id']}/replay").json()["accepted"] == 1
    sql = "select length(m.text) as n from postgres_logs cross join unnest(metadata) as m"
    assert service.rows("logs.all", project="other", sql=sql) == [{"n": 600_000}]


def test_an_event_that_was_too_large_is_replayed_after_the_limit_is_raised(start: Start) -> None:
    service = start(env={"CORDWOOD_INGEST_EVENT_SIZE": "1KiB"})
    service.send("postgres.logs", {"id": "long", "project": "p", "event_message": "z" * 1500})
    (item,) = service.client.get("/api/quarantine").json()
    refused = service.client.post(f"/api/quarantine/{item['id']}/replay")
    assert "larger than 1024 bytes" in refused.json()["error"]["message"]
    service.stop()
    service = start()
    assert service.client.post(f"/api/quarantine/{item['id']}/replay").json()["accepted"] == 1


def test_only_a_private_key_reads_the_quarantine_and_a_pinned_one_its_project(pinned_service: Service) -> None:
    client = pinned_service.client
    public = httpx.get(f"{pinned_service.url}/api/quarantine", headers={"X-API-KEY": PUBLIC})
    assert (public.status_code, httpx.get(f"{pinned_service.url}/api/quarantine").status_code) == (403, 401)
    for project, count in (("acme", 2), ("someone", 0)):
        terms = {"scopes": "private", "pins": {"project": project}}
        key = client.post("/api/access-tokens", json=terms).json()["token"]
        items = httpx.get(f"{pinned_service.url}/api/quarantine", headers={"X-API-KEY": key}).json()
        assert len(items) == count
    unknown_item = client.get("/api/quarantine/none")
    assert (unknown_item.status_code, unknown_item.json()["error"]["status"]) == (404, "request.unknown-item")
    assert client.get("/api/quarantine", params={"limit": "0"}).status_code == 400
