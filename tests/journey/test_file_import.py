"""Import of files in many formats from the command line."""

import gzip
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cordwood.cli import commands
from tests.journey.conftest import PRIVATE, Run, Service, stored_events
from tests.waiting import until

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CSV_TEXT = (
    "id,timestamp,event_message,status,metadata\n"
    'c1,2026-01-01T00:00:00Z,"two\nlines",200,"{""a"":[1]}"\n'
    "c2,2026-01-01T00:00:01Z,short\n"
    "c3,2026-01-01T00:00:02Z,a,n/a,\n"
)


def test_a_csv_file_is_imported_once_and_a_ragged_record_is_quarantined(
    service: Service, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "a.csv.gz"
    file.write_bytes(gzip.compress(CSV_TEXT.encode()))
    importing = ("import", str(file), "--types", "status=number", "--stream", "postgres.logs")
    code, output, errors = run(*importing)
    assert (code, "2 accepted, 1 quarantined" in output) == (1, True)
    assert "line 4: The record has 3 fields, but the header has 5." in errors
    assert "0 accepted, 2 duplicates, 1 quarantined" in run(*importing)[1]
    assert stored_events(service, "postgres.logs") == [
        {
            "id": "c1",
            "timestamp": "2026-01-01T00:00:00.000000Z",
            "event_message": "two\nlines",
            "metadata": {"a": [1]},
            "status": 200,
        },
        {"id": "c3", "timestamp": "2026-01-01T00:00:02.000000Z", "event_message": "a", "status": "n/a"},
    ]
    quarantined_texts = [
        item["beginning"] for item in service.client.get("/api/quarantine?stream=postgres.logs").json()
    ]
    assert quarantined_texts == ['"c2,2026-01-01T00:00:01Z,short"'] * 2


def test_csv_over_http_is_stored_as_from_a_file(service: Service) -> None:
    answer = service.client.post(
        "/api/logs?source_name=gotrue.logs.prod", content=CSV_TEXT, headers={"Content-Type": "text/csv; types=auto"}
    )
    output = answer.json()
    assert (output["accepted"], output["quarantined"], [reason["index"] for reason in output["reasons"]]) == (2, 1, [3])
    assert [event.get("status") for event in stored_events(service, "gotrue.logs.prod")] == [200, "n/a"]


def test_standard_input_is_imported_and_a_truncation_reported_with_its_line(service: Service) -> None:
    events = ",\n".join(json.dumps({"id": f"j{number}", "project": "json"}, indent=1) for number in range(3))
    command = [sys.executable, "-m", "cordwood", "import", "-", "--stream", "storage.logs.prod.2"]
    options = ["--url", service.url, "--key", PRIVATE]
    for text, code, output in (
        (f"[{events}]", 0, "3 accepted"),
        (f"[{events}\n", 1, "Line 13: the text is not JSON: the array is not closed"),
    ):
        packed = zstd.compress(text.encode())
        done = subprocess.run([*command, *options], input=packed, capture_output=True, check=False, timeout=60)
        assert (done.returncode, output in (done.stdout + done.stderr).decode()) == (code, True), done.stderr
    assert [event["id"] for event in stored_events(service, "storage.logs.prod.2")] == ["j0", "j1", "j2"]


def test_an_access_log_is_imported_if_its_format_is_named(service: Service, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "access.log"
    file.write_text('1.2.3.4 - - [10/Oct/2000:13:55:36 +0000] "GET /x HTTP/1.1" 200 5 "-" "curl"\nnonsense\n')
    refused = run("import", str(file), "--stream", "deno-relay-logs")
    assert (refused[0], "--as combined" in refused[2]) == (1, True)
    code, output, errors = run("import", str(file), "--as", "combined", "--stream", "deno-relay-logs")
    assert (code, "1 accepted, 1 quarantined" in output, "line 2: The line is not in" in errors) == (1, True, True)
    (event,) = stored_events(service, "deno-relay-logs")
    assert event["timestamp"] == "2000-10-10T13:55:36.000000Z"
    assert event["metadata"]["request"]["path"] == "/x"  # type: ignore[index]


def test_a_last_batch_of_malformed_lines_is_quarantined(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "a.ndjson"
    file.write_text("".join(f'{{"id": "n{number}"}}\n' for number in range(5000)) + "broken\n[1]\n")
    code, output, errors = run("import", str(file), "--stream", "realtime.logs.prod")
    assert (code, "5,000 accepted, 2 quarantined" in output) == (1, True)
    assert "line 5001: " in errors
    file.write_text("broken\n")
    code, output, errors = run("import", str(file), "--stream", "realtime.logs.prod")
    assert (code, output, "No line can be read" in errors) == (1, "", True)


def test_an_interrupted_import_can_be_repeated(service: Service, tmp_path: Path) -> None:
    lines = [f'{{"n": {number}}}\n'.encode() for number in range(12_000)]
    command = [sys.executable, "-m", "cordwood", "import", "--stream", "postgREST.logs.prod"]
    command += ["--url", service.url, "--key", PRIVATE]
    # Python's handler is set for the import, because the tests may run as a background job, which ignores SIGINT.
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [*command, "-", "--as", "ndjson"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    signal.signal(signal.SIGINT, ignored)
    with process:
        assert process.stdin is not None
        process.stdin.write(b"".join(lines[:11_000]))
        process.stdin.flush()
        until(lambda: len(stored_events(service, "postgREST.logs.prod")) >= 5000)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, b"nothing is stored twice" in errors) == (130, True)
    assert b"000 accepted" in output
    before = len(stored_events(service, "postgREST.logs.prod"))
    file = tmp_path / "all.ndjson"
    file.write_bytes(b"".join(lines))
    second_import = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False, timeout=60)
    # A batch that the import had sent may be stored after `before` was counted.
    accepted, duplicates = (
        int(count.replace(",", "")) for count in re.findall(r"([\d,]+) (?:accepted|dup)", second_import.stdout)
    )
    assert accepted + duplicates == 12_000
    assert duplicates >= before
    assert len(stored_events(service, "postgREST.logs.prod")) == 12_000


READ_ALL_PROGRAM = """
import resource, sys
from pathlib import Path
from cordwood.app.event_files import ReadOptions, open_event_file
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name in sys.argv[1:]:
    with open_event_file(Path(name), ReadOptions()) as file:
        print(sum(1 for record in file.events()))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_large_files_are_read_in_bounded_memory(tmp_path: Path) -> None:
    """Read three files of 120 MB each and one line of 240 MB."""
    text, count = "x" * 20_000, 6_000
    contents = {
        "a.ndjson": ("", f'{{"id": "1", "event_message": "{text}"}}\n', ""),
        "a.json": ("[", f'{{"id": "1", "event_message": "{text}"}},\n', "{}]"),
        "a.csv": ("id,event_message\n", f"1,{text}\n", ""),
        "bomb.ndjson": ("", text * 2, "\n"),
    }
    files = [tmp_path / f"{name}.zst" for name in contents]
    for file, (head, item, end) in zip(files, contents.values(), strict=True):
        with zstd.open(file, "wt") as out:
            out.write(head)
            for _ in range(count // 100):
                out.write(item * 100)
            out.write(end)
    done = subprocess.run(
        [sys.executable, "-c", READ_ALL_PROGRAM, *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    *counts, grown = map(int, done.stdout.split())
    assert counts == [count, count + 1, count, 1]
    assert grown < 100


def test_sniff_shows_format_and_events_of_a_file_and_stores_nothing(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "a.csv.gz"
    file.write_bytes(gzip.compress(CSV_TEXT.encode()))
    assert commands.run_command_line(["sniff", str(file), "--types", "auto"]) == 0
    output, errors = capfd.readouterr()
    assert "CSV, compressed with gzip" in output
    assert "two lines" in output
    assert f"cordwood import {file} --as csv --stream NAME" in output
    assert "Line 4 would be quarantined: The record has 3 fields" in errors
    assert commands.run_command_line(["sniff", str(file), "--types", "auto", "--format", "json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert (report["compression"], report["formats"][0]["name"]) == ("gzip", "csv")
    assert [event["status"] for event in report["events"]] == [200, "n/a"]
    assert report["quarantined"] == [{"place": "line 4", "reason": "The record has 3 fields, but the header has 5."}]
