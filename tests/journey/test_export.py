"""A stream's events leave as a Parquet file and come back the same."""

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import httpx
import pyarrow.parquet
import pytest

from tests.journey.conftest import PRIVATE, PUBLIC, Service, Start
from tests.journey.test_cli_clients import Result, cordwood

Ask = Callable[..., Result]

STREAM = "postgres.logs"
EVENTS: list[dict[str, object]] = [
    {"id": "a", "timestamp": "2026-01-01T00:00:00.123456Z", "event_message": 'é \n"x"', "project": "acme"},
    {"id": "b", "timestamp": "2026-01-02T00:00:00Z", "project": "acme", "metadata": {"n": [1, {"b": None}], "a": {}}},
    {"id": "c", "timestamp": "2026-01-03T00:00:00Z", "metadata": [1, "two"], "level": "info", "odd key": {"deep": 1.5}},
    {"id": "d", "timestamp": "2026-01-04T00:00:00Z", "event_message": "m", "message": "another", "metadata": "text"},
]
COLUMNS = ["id", "timestamp", "event_message", "project", "metadata", "extras", "ingested_at", "timestamp_inferred"]
Row = tuple[object, ...]


@pytest.fixture(params=["over HTTP", "on the folder"])
def ask(request: pytest.FixtureRequest, start: Start) -> Ask:
    """Runs a client command against a service with the events, or against its folder after it has stopped."""
    service = start()
    service.send(STREAM, EVENTS)
    where: tuple[str, ...] = ("--url", service.url, "--key", PRIVATE)
    if request.param == "on the folder":
        service.stop()
        where = ("--data-dir", str(service.data_dir))
    return lambda *arguments: cordwood(*arguments, *where)


def rows(file: Path) -> list[Row]:
    """What a file says of its events, but for when they were received."""
    found = duckdb.read_parquet(str(file)).order("id")
    times = "epoch_us(timestamp) as timestamp"
    return found.project(f"id, {times}, event_message, project, metadata, extras, timestamp_inferred").fetchall()


def test_every_event_is_in_the_file_as_it_was_stored(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "e.parquet"
    exported = ask("export", str(file), "--stream", STREAM)
    assert (exported.returncode, exported.stderr) == (0, "")
    assert exported.stdout.startswith("4 events, ")
    read = pyarrow.parquet.read_table(file).sort_by("id")
    assert read.column_names == COLUMNS
    events = read.to_pylist()
    assert [event["id"] for event in events] == ["a", "b", "c", "d"]
    assert json.loads(events[1]["metadata"]) == EVENTS[1]["metadata"]
    assert json.loads(events[2]["extras"]) == {"level": "info", "odd key": {"deep": 1.5}}
    assert events[0]["timestamp"].isoformat() == "2026-01-01T00:00:00.123456+00:00"
    assert list(tmp_path.glob("*.part")) == []


def test_a_file_that_is_imported_elsewhere_is_exported_the_same(ask: Ask, tmp_path: Path) -> None:
    one, two = tmp_path / "one.parquet", tmp_path / "two.parquet"
    ask("export", str(one), "--stream", STREAM)
    elsewhere = ("--stream", STREAM, "--data-dir", str(tmp_path / "elsewhere"))
    for outcome in ("4 accepted", "0 accepted, 4 duplicates"):
        assert outcome in cordwood("import", str(one), *elsewhere).stdout
    cordwood("export", str(two), *elsewhere)
    assert rows(two) == rows(one)


def test_a_time_range_holds_its_start_and_not_its_end(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "e.parquet"
    ask("export", str(file), "--stream", STREAM, "--from", "2026-01-02", "--to", "2026-01-04T00:00:00Z")
    assert [row[0] for row in rows(file)] == ["b", "c"]


def test_a_file_is_never_written_over_and_a_refusal_leaves_none(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "e.parquet"
    unknown = ask("export", str(file), "--stream", "postgres.log")
    assert (unknown.returncode, "Did you mean postgres.logs?" in unknown.stderr) == (1, True)
    assert "no time" in ask("export", str(file), "--stream", STREAM, "--from", "soon").stderr
    assert list(tmp_path.glob("e.parquet*")) == []
    file.write_text("mine")
    assert "is there already" in ask("export", str(file), "--stream", STREAM).stderr
    assert file.read_text() == "mine"


def test_only_a_private_key_may_and_a_pinned_one_gets_its_project(start: Start, tmp_path: Path) -> None:
    service = start()
    service.send(STREAM, EVENTS)
    assert _asked(service, PUBLIC).status_code == 403
    assert _asked(service, _key(service, redact=True)).status_code == 403
    file = tmp_path / "e.parquet"
    file.write_bytes(_asked(service, _key(service, pins={"project": "acme"})).content)
    assert [row[0] for row in rows(file)] == ["a", "b"]


def _asked(service: Service, key: str) -> httpx.Response:
    return httpx.get(f"{service.url}/api/streams/{STREAM}/events", headers={"X-API-KEY": key})


def _key(service: Service, **terms: object) -> str:
    answer = service.client.post("/api/access-tokens", json={"scopes": "private", **terms})
    return str(answer.json()["token"])
