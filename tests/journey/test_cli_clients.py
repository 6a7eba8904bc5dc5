"""The commands `query` and `import`, over HTTP and directly on a data folder."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from tests.journey.conftest import PRIVATE, PUBLIC, Service, Start

Result = subprocess.CompletedProcess[str]


def cordwood(*arguments: str, **env: str) -> Result:
    command = [sys.executable, "-m", "cordwood", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **env}, check=False)


def edge_event(number: int, **more_fields: object) -> dict[str, object]:
    return {
        "id": f"e{number}",
        "timestamp": f"2026-01-01T00:00:{number % 60:02}Z",
        "event_message": f"event {number}",
        "project": "default",
        "metadata": {"request": {"path": f"/rest/v1/t{number}"}},
        **more_fields,
    }


def write_ndjson(file: Path, *events: object) -> Path:
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    return file


RunCommand = Callable[..., Result]


@pytest.fixture(params=["over HTTP", "on the folder"])
def run_command(request: pytest.FixtureRequest, start: Start, tmp_path: Path) -> RunCommand:
    """Return a function that runs a client command on a data folder, either with a service or without one."""
    if request.param == "over HTTP":
        service = start()
        return lambda *arguments: cordwood(*arguments, "--url", service.url, "--key", PRIVATE)
    (tmp_path / "data").mkdir()
    return lambda *arguments: cordwood(*arguments, "--data-dir", str(tmp_path / "data"))


def test_an_imported_file_is_in_the_next_answer(run_command: RunCommand, tmp_path: Path) -> None:
    imported = run_command(
        "import",
        str(write_ndjson(tmp_path / "e.ndjson", edge_event(1), edge_event(2))),
        "--stream",
        "cloudflare.logs.prod",
    )
    assert (imported.returncode, imported.stderr) == (0, "")
    assert "2 accepted" in imported.stdout
    result = run_command("query", "logs.all", "-p", "project=default", "--format", "json")
    assert [row["id"] for row in json.loads(result.stdout)["result"]] == ["e2", "e1"]


def test_a_repeated_import_stores_nothing_twice(run_command: RunCommand, tmp_path: Path) -> None:
    without_ids = ({"event_message": "same", "project": "default", "metadata": {}} for _ in range(3))
    file = write_ndjson(tmp_path / "e.ndjson", edge_event(1), *without_ids)
    assert "4 accepted" in run_command("import", str(file), "--stream", "cloudflare.logs.prod").stdout
    assert "0 accepted, 4 duplicates" in run_command("import", str(file), "--stream", "cloudflare.logs.prod").stdout


def test_rows_are_printed_as_a_table_csv_or_ndjson(run_command: RunCommand, tmp_path: Path) -> None:
    run_command(
        "import",
        str(write_ndjson(tmp_path / "e.ndjson", edge_event(1), edge_event(2))),
        "--stream",
        "cloudflare.logs.prod",
    )
    sql = "select id, timestamp, 5 as five from edge_logs order by id"
    query = ("query", "logs.all", "-p", "project=default", "--sql", sql, "--format")
    assert run_command(*query, "table").stdout.splitlines() == [
        "id  timestamp                    five",
        "--  ---------------------------  ----",
        "e1  2026-01-01T00:00:01.000000Z     5",
        "e2  2026-01-01T00:00:02.000000Z     5",
    ]
    csv_rows = list(csv.DictReader(io.StringIO(run_command(*query, "csv").stdout)))
    assert [row["id"] for row in csv_rows] == ["e1", "e2"]
    assert [json.loads(line)["id"] for line in run_command(*query, "ndjson").stdout.splitlines()] == ["e1", "e2"]


def test_a_query_may_be_read_from_a_file(run_command: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("select count(*) as n from edge_logs")
    result = run_command(
        "query", "logs.all", "-p", "project=none", "--sql", f"@{tmp_path / 'q.sql'}", "--format", "json"
    )
    assert json.loads(result.stdout) == {"result": [{"n": 0}]}


def test_a_query_may_be_written_in_lql(run_command: RunCommand, tmp_path: Path) -> None:
    run_command(
        "import",
        str(write_ndjson(tmp_path / "e.ndjson", edge_event(1), edge_event(2))),
        "--stream",
        "cloudflare.logs.prod",
    )
    result = run_command(
        "query", "logs.all", "-p", "project=default", "--lql", 'f:edge_logs "event 2" s:id', "--format", "json"
    )
    assert json.loads(result.stdout) == {"result": [{"id": "e2"}]}


def test_a_refusal_is_printed_with_its_position_and_hint(run_command: RunCommand) -> None:
    refused = run_command("query", "logs.all", "-p", "project=x", "--sql", "select 1\nfrom edge_lgs")
    assert refused.returncode == 1
    assert refused.stderr.startswith("cordwood query: line 2, column 6: ")
    assert "Did you mean edge_logs?" in refused.stderr
    missing = run_command("query", "logs.all")
    assert "project" in missing.stderr
    assert missing.returncode == 1


def test_an_invalid_line_is_reported_by_number_and_the_rest_is_stored(run_command: RunCommand, tmp_path: Path) -> None:
    file = write_ndjson(tmp_path / "e.ndjson", edge_event(1), [1], edge_event(3))
    imported = run_command("import", str(file), "--stream", "cloudflare.logs.prod")
    assert imported.returncode == 1
    assert "line 2:" in imported.stderr
    assert "2 accepted, 1 quarantined" in imported.stdout


def test_parquet_is_imported(run_command: RunCommand, tmp_path: Path) -> None:
    file = tmp_path / "e.parquet"
    duckdb.execute(
        """copy (select 'p' || i as id, timestamptz '2026-01-01 00:00:00.123456+00' as timestamp, 'default' as project,
          'm' as event_message, '{"request": {"path": "/rest/' || i || '"}}' as metadata from range(3) t(i))
        to '"""
        + str(file)
        + "' (format parquet)"
    )
    for outcome in ("3 accepted", "0 accepted, 3 duplicates"):
        assert outcome in run_command("import", str(file), "--stream", "cloudflare.logs.prod").stdout
    sql = "select id, timestamp, r.path from edge_logs cross join unnest(metadata) m cross join unnest(m.request) r order by id"
    result = run_command("query", "logs.all", "-p", "project=default", "--sql", sql, "--format", "json")
    rows = json.loads(result.stdout)["result"]
    assert rows[0] == {"id": "p0", "timestamp": 1767225600123456, "path": "/rest/0"}
    assert len(rows) == 3


def test_an_unknown_stream_or_file_is_refused(run_command: RunCommand, tmp_path: Path) -> None:
    file = write_ndjson(tmp_path / "e.ndjson", edge_event(1))
    assert "Did you mean postgres.logs?" in run_command("import", str(file), "--stream", "postgres.log").stderr
    missing_file = run_command("import", str(tmp_path / "gone"), "--stream", "postgres.logs")
    assert (missing_file.returncode, "cannot be read" in missing_file.stderr) == (1, True)


def test_the_owner_of_the_data_folder_is_found_and_its_key_used(start: Start) -> None:
    service = start()
    service.send("cloudflare.logs.prod", [edge_event(1)])
    result = cordwood(
        "query", "logs.all", "-p", "project=default", "--format", "ndjson", "--data-dir", str(service.data_dir)
    )
    assert json.loads(result.stdout)["id"] == "e1"


def test_address_and_key_may_come_from_the_environment(start: Start) -> None:
    service = start()
    query = ("query", "logs.all", "-p", "project=default")
    assert cordwood(*query, CORDWOOD_URL=service.url, CORDWOOD_KEY=PRIVATE).stdout == "no rows\n"
    assert "may not query" in cordwood(*query, CORDWOOD_URL=service.url, CORDWOOD_KEY=PUBLIC).stderr


def test_without_a_service_or_folder_nothing_is_created(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cordwood", "query", "logs.all"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert "cordwood serve" in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_missing_data_folder_is_an_error(tmp_path: Path) -> None:
    result = cordwood("query", "logs.all", "-p", "project=default", "--data-dir", str(tmp_path / "slip"))
    assert (result.returncode, "the data folder does not exist" in result.stderr) == (1, True)
    assert not list(tmp_path.iterdir())


def test_a_truncated_answer_is_reported(start: Start, tmp_path: Path) -> None:
    (tmp_path / "few.sql").write_text('/* name = "few"\nmax_rows = 2 */ select x from unnest([1, 2, 3]) as x')
    service = start("--endpoints", str(tmp_path))
    result = cordwood("query", "few", "--url", service.url, "--key", PRIVATE)
    assert "max_rows=2; --all fetches all" in result.stderr


LARGE_ENDPOINT = """/* name = "counted"
max_rows = 2 */ select x, concat('a "quoted"', chr(10), 'text ', cast(x as string)) as `two``lines` from unnest([3, 1, 2, 5, 4]) as x order by x
""".replace("``", " ")


def test_all_pages_of_an_answer_are_fetched_and_joined(start: Start, tmp_path: Path) -> None:
    (tmp_path / "counted.sql").write_text(LARGE_ENDPOINT)
    service = start("--endpoints", str(tmp_path))
    service_options = "--url", service.url, "--key", PRIVATE, "--all"
    printed = {
        query_format: cordwood("query", "counted", "--format", query_format, *service_options)
        for query_format in ("table", "json", "csv", "ndjson")
    }
    assert {query_format: result.returncode for query_format, result in printed.items()} == dict.fromkeys(printed, 0)
    assert [row["x"] for row in json.loads(printed["json"].stdout)["result"]] == [1, 2, 3, 4, 5]
    assert [json.loads(line)["x"] for line in printed["ndjson"].stdout.splitlines()] == [1, 2, 3, 4, 5]
    assert [row["x"] for row in csv.DictReader(io.StringIO(printed["csv"].stdout))] == ["1", "2", "3", "4", "5"]
    assert len(printed["table"].stdout.splitlines()) == 7
    assert "truncated" not in "".join(result.stderr for result in printed.values())
    refused = cordwood("query", "counted", "--format", "arrow", *service_options)
    assert (refused.returncode, "Several pages cannot be joined as arrow" in refused.stderr) == (1, True)


@pytest.fixture
def stopped(start: Start) -> Service:
    service = start()
    service.stop()
    return service


def test_healthcheck_distinguishes_a_ready_service_from_a_stopped_one(start: Start) -> None:
    service = start()
    assert cordwood("healthcheck", "--url", service.url).returncode == 0
    assert cordwood("healthcheck", "--data-dir", str(service.data_dir)).returncode == 0
    assert cordwood("healthcheck", CORDWOOD_WEB_PORT=service.url.rpartition(":")[2]).returncode == 0
    service.stop()
    failed_check = cordwood("healthcheck", "--url", service.url)
    assert (failed_check.returncode, "No service answers" in failed_check.stderr) == (1, True)


def test_check_compiles_files_without_a_service(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text('/* name = "a" */ select 1 as x')
    valid_check = cordwood("check", str(tmp_path), "--format", "json")
    assert [file["name"] for file in json.loads(valid_check.stdout)["endpoints"]] == [
        "a",
        "logs.all",
        "logs.all.otel",
        "usage.api-counts",
    ]
    (tmp_path / "a.alert.toml").write_text(
        'endpoint = "a"\nevery = "1m"\ncondition = "x > 1"\nsend_to = ["elsewhere"]\n'
    )
    watched = cordwood("check", str(tmp_path))
    assert re.search(r"^alert +a +[0-9a-f-]{36}$", watched.stdout, re.MULTILINE)
    assert [
        file["name"] for file in json.loads(cordwood("check", str(tmp_path), "--format", "json").stdout)["alerts"]
    ] == ["a"]
    (tmp_path / "b.sql").write_text('/* name = "b" */ select @x')
    (tmp_path / "c.sql").write_text('/* name = "c" */ selct 1')
    failed_check = cordwood("check", str(tmp_path))
    assert failed_check.returncode == 1
    assert "b.sql:1:" in failed_check.stderr
    assert "c.sql:1:" in failed_check.stderr
    assert "2 broken." in failed_check.stderr
