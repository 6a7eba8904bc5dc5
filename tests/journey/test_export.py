"""Export of a stream as Parquet, and import of this file without changes."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import duckdb
import httpx
import pyarrow.parquet
import pytest

from tests.journey.conftest import PRIVATE, PUBLIC, Service, Start, start_service
from tests.journey.test_cli_clients import Result, cordwood

RunCommand = Callable[..., Result]

STREAM = "postgres.logs"
EVENTS: list[dict[str, object]] = [
    {"id": "a", "timestamp": "2026-01-01T00:00:00.123456Z", "event_message": 'é \n"x"', "project": "acme"},
    {"id": "b", "timestamp": "2026-01-02T00:00:00Z", "project": "acme", "metadata": {"n": [1, {"b": None}], "a": {}}},
    {"id": "c", "timestamp": "2026-01-03T00:00:00Z", "metadata": [1, "two"], "level": "info", "odd key": {"deep": 1.5}},
    {"id": "d", "timestamp": "2026-01-04T00:00:00Z", "event_message": "m", "message": "another", "metadata": "text"},
    {"id": "e", "event_message": "no time of its own", "project": "acme"},
]
COLUMNS = ["id", "timestamp", "event_message", "project", "metadata", "extras", "ingested_at", "timestamp_inferred"]
Row = tuple[object, ...]


@pytest.fixture(scope="module", params=["over HTTP", "on the folder"])
def run_command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunCommand]:
    """Return a function that runs read-only commands, either over HTTP or on the folder of the stopped service."""
    service = start_service(tmp_path_factory.mktemp("export") / "data")
    service.send(STREAM, EVENTS)
    options: tuple[str, ...] = ("--url", service.url, "--key", PRIVATE)
    if request.param == "on the folder":
        service.stop()
        options = ("--data-dir", str(service.data_dir))
    yield lambda *arguments: cordwood(*arguments, *options)
    if service.process.poll() is None:
        service.stop()


def rows_of_file(file: Path) -> list[Row]:
    """Return all fields of the events in a file."""
    relation = duckdb.read_parquet(str(file)).order("id")
    times = "epoch_us(timestamp) as timestamp, epoch_us(ingested_at) as ingested_at"
    return relation.project(f"id, {times}, event_message, project, metadata, extras, timestamp_inferred").fetchall()


def test_a_file_has_every_event_as_it_was_stored(run_command: RunCommand, tmp_path: Path) -> None:
    file = tmp_path / "e.parquet"
    exported = run_command("export", str(file), "--stream", STREAM)
    assert (exported.returncode, exported.stderr) == (0, "")
    assert exported.stdout.startswith("5 events, ")
    read = pyarrow.parquet.read_table(file).sort_by("id")
    assert read.column_names == COLUMNS
    events = read.to_pylist()
    assert [event["id"] for event in events] == ["a", "b", "c", "d", "e"]
    assert json.loads(events[1]["metadata"]) == EVENTS[1]["metadata"]
    assert json.loads(events[2]["extras"]) == {"level": "info", "odd key": {"deep": 1.5}}
    assert events[0]["timestamp"].isoformat() == "2026-01-01T00:00:00.123456+00:00"
    assert list(tmp_path.glob("*.part")) == []


def test_an_export_without_times_has_the_events_of_all_years(tmp_path: Path) -> None:
    events, exported = tmp_path / "events.ndjson", tmp_path / "exported.parquet"
    years = ("0001", "1652", "5139", "9999")
    events.write_text("".join(f'{{"id": "{year}", "timestamp": "{year}-01-01T00:00:00Z"}}\n' for year in years))
    folder = ("--stream", STREAM, "--data-dir", str(tmp_path / "data"))
    assert cordwood("import", str(events), *folder).returncode == 0
    assert cordwood("export", str(exported), *folder).returncode == 0
    assert [row[0] for row in rows_of_file(exported)] == list(years)


def test_an_imported_export_is_exported_unchanged(run_command: RunCommand, tmp_path: Path) -> None:
    original, reexported = tmp_path / "one.parquet", tmp_path / "two.parquet"
    run_command("export", str(original), "--stream", STREAM)
    other_folder = ("--stream", STREAM, "--data-dir", str(tmp_path / "elsewhere"))
    for outcome in ("5 accepted", "0 accepted, 5 duplicates"):
        assert outcome in cordwood("import", str(original), *other_folder).stdout
    cordwood("export", str(reexported), *other_folder)
    assert rows_of_file(reexported) == rows_of_file(original)
    assert [row[-1] for row in rows_of_file(reexported)] == [False, False, False, False, True]


def test_an_export_may_be_imported_as_new_events(start: Start, run_command: RunCommand, tmp_path: Path) -> None:
    original_file, imported_file = tmp_path / "one.parquet", tmp_path / "two.parquet"
    run_command("export", str(original_file), "--stream", STREAM)
    other = start(data_dir=tmp_path / "elsewhere")
    by_public_key = ("--stream", STREAM, "--url", other.url, "--key", PUBLIC)
    refused = cordwood("import", str(original_file), *by_public_key)
    assert (refused.returncode, "needs a private key" in refused.stderr) == (1, True)
    assert "--as-new" in refused.stderr
    assert "5 accepted" in cordwood("import", str(original_file), "--as-new", *by_public_key).stdout
    cordwood("export", str(imported_file), "--stream", STREAM, "--url", other.url, "--key", PRIVATE)
    received = 2
    for original_row, imported_row in zip(rows_of_file(original_file), rows_of_file(imported_file), strict=True):
        assert str(imported_row[received]) > str(original_row[received])
        assert (
            imported_row[:received] + imported_row[received + 1 : -1]
            == original_row[:received] + original_row[received + 1 : -1]
        )


def test_clickhouse_reads_the_file(run_command: RunCommand, tmp_path: Path) -> None:
    file = tmp_path / "e.parquet"
    run_command("export", str(file), "--stream", STREAM)
    columns = "id, toUnixTimestamp64Micro(timestamp) as timestamp, toUnixTimestamp64Micro(ingested_at) as ingested_at,"
    query = f"select {columns} event_message, project, metadata, extras, timestamp_inferred from file('{file}', Parquet) order by id"
    # Read the file in a new process. chDB opens only one folder in a process, and other tests have opened one in this
    # process.
    command = [sys.executable, "-c", "import sys, chdb; print(chdb.query(sys.argv[1], 'JSONEachRow'))", query]
    read = [json.loads(line) for line in subprocess.check_output(command, text=True).splitlines() if line]
    assert [(int(row["timestamp"]), int(row["ingested_at"])) for row in read] == [
        row[1:3] for row in rows_of_file(file)
    ]
    texts = ("id", "event_message", "project", "metadata", "extras", "timestamp_inferred")
    assert [tuple(row[name] for name in texts) for row in read] == [(row[0], *row[3:]) for row in rows_of_file(file)]


def test_a_time_range_includes_its_start_and_excludes_its_end(run_command: RunCommand, tmp_path: Path) -> None:
    file = tmp_path / "e.parquet"
    run_command("export", str(file), "--stream", STREAM, "--from", "2026-01-02", "--to", "2026-01-04T00:00:00Z")
    assert [row[0] for row in rows_of_file(file)] == ["b", "c"]


def test_a_file_is_never_overwritten_and_a_refusal_leaves_none(run_command: RunCommand, tmp_path: Path) -> None:
    file = tmp_path / "e.parquet"
    unknown = run_command("export", str(file), "--stream", "postgres.log")
    assert (unknown.returncode, "Did you mean postgres.logs?" in unknown.stderr) == (1, True)
    assert "is not a time" in run_command("export", str(file), "--stream", STREAM, "--from", "soon").stderr
    turned = run_command("export", str(file), "--stream", STREAM, "--from", "2027-01-01", "--to", "2026-01-01")
    assert (turned.returncode, "to is not later" in turned.stderr) == (1, True)
    assert list(tmp_path.glob("e.parquet*")) == []
    file.write_text("mine")
    assert "exists already" in run_command("export", str(file), "--stream", STREAM).stderr
    assert file.read_text() == "mine"


def test_only_a_private_key_may_export_and_a_pinned_one_its_project(start: Start, tmp_path: Path) -> None:
    service = start()
    service.send(STREAM, EVENTS)
    assert _export(service, PUBLIC).status_code == 403
    assert _export(service, _create_key(service, redact=True)).status_code == 403
    file = tmp_path / "e.parquet"
    file.write_bytes(_export(service, _create_key(service, pins={"project": "acme"})).content)
    assert [row[0] for row in rows_of_file(file)] == ["a", "b", "e"]


def test_a_pinned_key_may_import_only_its_project(start: Start) -> None:
    service = start()
    key = _create_key(service, pins={"project": "acme"})
    line = {"id": "x", "timestamp": 1, "ingested_at": 2, "project": "acme", "metadata": '{"a":1}'}
    assert _import(service, key, line).json()["accepted"] == 1
    assert _import(service, key, line | {"id": "y", "project": "other"}).status_code == 403
    assert _import(service, PUBLIC, line).status_code == 403


@pytest.mark.parametrize("broken", [{"timestamp": "soon"}, {"ingested_at": 10**18}, {"id": None}, {"surprise": 1}])
def test_invalid_lines_are_refused_and_nothing_is_imported(service: Service, broken: dict[str, object]) -> None:
    new_id = uuid4().hex
    line: dict[str, object] = {"id": "x", "timestamp": 1, "ingested_at": 2}
    answer = _import(service, PRIVATE, line | {"id": new_id}, line | broken)
    assert (answer.status_code, answer.json()["error"]["status"]) == (400, "request.bad-body")
    assert _import(service, PRIVATE, line | {"id": new_id}).json()["duplicates"] == 0


def _import(service: Service, key: str, *lines: dict[str, object]) -> httpx.Response:
    body = "\n".join(json.dumps(line) for line in lines)
    return httpx.post(f"{service.url}/api/streams/{STREAM}/events", content=body, headers={"X-API-KEY": key})


def _export(service: Service, key: str) -> httpx.Response:
    return httpx.get(f"{service.url}/api/streams/{STREAM}/events", headers={"X-API-KEY": key})


def _create_key(service: Service, **terms: object) -> str:
    answer = service.client.post("/api/access-tokens", json={"scopes": "private", **terms})
    return str(answer.json()["token"])
