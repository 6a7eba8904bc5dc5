"""Files to which answers and exports are written: a file is complete, or it does not exist."""

import csv
import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.journey.conftest import PRIVATE, Run, Service, stored_events


@pytest.fixture(scope="module")
def service_with_events(service: Service) -> Service:
    """Return the service after sending three events to it."""
    for number in range(3):
        event = {
            "id": f"q{number}",
            "timestamp": f"2026-01-01T00:00:0{number}Z",
            "project": "files",
            "event_message": "é",
        }
        assert service.send("cloudflare.logs.prod", [event]).status_code == 200
    return service


QUERY_ARGUMENTS = (
    "query",
    "logs.all",
    "-p",
    "project=files",
    "--sql",
    "select id, timestamp from edge_logs order by id",
)
EVENT_IDS = ["q0", "q1", "q2"]


def ids_in_file(file: Path) -> list[object]:
    content = file.read_bytes()
    read: dict[str, Callable[[], list[dict[str, object]]]] = {
        ".csv": lambda: [dict(row) for row in csv.DictReader(io.StringIO(content.decode(), newline=""))],
        ".json": lambda: json.loads(content)["result"],
        ".jsonl": lambda: [json.loads(line) for line in content.splitlines()],
        ".arrow": lambda: pa.ipc.open_stream(content).read_all().to_pylist(),
        ".parquet": lambda: pq.read_table(io.BytesIO(content)).to_pylist(),
    }
    return [row["id"] for row in read[file.suffix]()]


@pytest.mark.parametrize("ending", ["csv", "json", "jsonl", "arrow", "parquet"])
@pytest.mark.usefixtures("service_with_events")
def test_an_answer_is_written_to_a_file_in_the_format_of_its_ending(run: Run, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"rows.{ending}"
    assert run(*QUERY_ARGUMENTS, "-o", str(file)) == (0, "", "")
    assert ids_in_file(file) == EVENT_IDS
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.usefixtures("service_with_events")
def test_a_file_is_replaced_only_by_force_and_only_by_a_complete_answer(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("mine")
    code, _, errors = run(*QUERY_ARGUMENTS, "-o", str(file))
    assert (code, "--force" in errors, file.read_text()) == (1, True, "mine")
    code, _, _ = run(*QUERY_ARGUMENTS[:-1], "select nothing from nowhere", "-o", str(file), "--force")
    assert (code, file.read_text()) == (1, "mine")
    assert run(*QUERY_ARGUMENTS, "-o", str(file), "--force")[0] == 0
    assert ids_in_file(file) == EVENT_IDS
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.usefixtures("service_with_events")
def test_a_device_is_written_to_and_not_replaced(run: Run) -> None:
    assert run(*QUERY_ARGUMENTS, "-o", "/dev/null", "--format", "csv") == (0, "", "")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.parametrize("format_name", ["table", "json", "ndjson"])
@pytest.mark.usefixtures("service_with_events")
def test_a_standard_output_that_cannot_be_written_is_reported_as_such(service: Service, format_name: str) -> None:
    environment = {**os.environ, "CORDWOOD_URL": service.url, "CORDWOOD_KEY": PRIVATE}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cordwood", *QUERY_ARGUMENTS, "--format", format_name],
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    problem = "cordwood query: Standard output cannot be written: No space left on device.\n"
    assert (done.returncode, done.stderr) == (1, problem)


@pytest.mark.usefixtures("service_with_events")
def test_times_in_csv_are_iso_8601(run: Run) -> None:
    code, output, _ = run(*QUERY_ARGUMENTS, "--format", "csv")
    assert code == 0
    assert output.splitlines()[1] == "q0,2026-01-01T00:00:00.000000Z"


@pytest.mark.parametrize("ending", ["ndjson", "json"])
def test_an_export_as_text_can_be_imported_again(
    service_with_events: Service, run: Run, tmp_path: Path, ending: str
) -> None:
    file = tmp_path / f"e.{ending}"
    target = {"ndjson": "deno-subhosting-events", "json": "pgbouncer.logs.prod"}[ending]
    code, output, _ = run("export", "-o", str(file), "--stream", "cloudflare.logs.prod")
    assert (code, "MB" in output) == (0, True)
    assert "3 accepted" in run("import", str(file), "--stream", target)[1]
    assert stored_events(service_with_events, target) == stored_events(service_with_events, "cloudflare.logs.prod")


@pytest.mark.usefixtures("service_with_events")
def test_an_export_as_csv_has_the_columns_of_parquet(run: Run) -> None:
    code, output, _ = run("export", "-", "--format", "csv", "--stream", "cloudflare.logs.prod")
    rows = list(csv.DictReader(io.StringIO(output)))
    assert code == 0
    assert sorted(row["id"] for row in rows) == EVENT_IDS
    assert {row["timestamp_inferred"] for row in rows} == {"false"}
    assert all(row["ingested_at"].endswith("Z") for row in rows)


def test_an_unknown_format_of_an_export_is_406(service: Service) -> None:
    answer = service.client.get("/api/streams/postgres.logs/events?format=xml")
    assert (answer.status_code, answer.json()["error"]["status"]) == (406, "request.not-acceptable")
