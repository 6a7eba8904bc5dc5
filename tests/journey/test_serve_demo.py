"""`cordwood serve --demo`: its output, its events, and its end."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.debian import require_program
from tests.demo import Demo, start_demo
from tests.journey.guide_walk import steps_of
from tests.waiting import until


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with start_demo(tmp_path_factory.mktemp("demo")) as running:
        yield running


def rows(demo: Demo, endpoint: str, **parameters: str) -> list[dict[str, object]]:
    address = f"{demo.url}/api/endpoints/query/{endpoint}"
    answer = httpx.get(address, params=parameters, headers={"X-API-KEY": demo.key})
    assert answer.status_code == 200, answer.text
    result_rows: list[dict[str, object]] = answer.json()["result"]
    return result_rows


def test_the_printed_commands_return_rows_at_once(demo: Demo) -> None:
    assert len(demo.curl_commands()) == 3
    require_program("curl", "curl")
    for line in demo.curl_commands():
        output = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, timeout=30).stdout
        assert output.startswith('{"result":[{'), output


def test_every_day_of_the_week_has_requests_of_every_kind(demo: Demo) -> None:
    result_rows = rows(demo, "usage.api-counts", interval="daily", project="default")
    assert 7 <= len(result_rows) <= 8
    whole_days = result_rows[1:-1]
    for row in whole_days:
        assert all(isinstance(count, int) and count > 0 for name, count in row.items() if name != "timestamp")


@pytest.mark.parametrize(
    "logs",
    [
        "edge_logs",
        "postgres_logs",
        "function_edge_logs",
        "function_logs",
        "auth_logs",
        "realtime_logs",
        "storage_logs",
        "postgrest_logs",
        "pgbouncer_logs",
    ],
)
def test_every_stream_has_events_of_two_projects(demo: Demo, logs: str) -> None:
    for project in ("default", "acme"):
        result_rows = rows(demo, "logs.all", project=project, sql=f"select count(*) as n from {logs}")
        assert isinstance(result_rows[0]["n"], int)
        assert result_rows[0]["n"] > 5


@pytest.fixture(scope="module")
def guide_queries() -> dict[str, str]:
    """Return the queries on the guide's page about the incident, by file name."""
    return {step.saved_as: step.text for step in steps_of("docs/guide/incident.md") if step.saved_as}


def test_the_queries_of_the_guide_find_the_incident_and_its_cause(demo: Demo, guide_queries: dict[str, str]) -> None:
    incident_time = re.search(r"incident at (\d\d:\d\d) UTC", demo.output)
    assert incident_time is not None

    def run_guide_query(name: str) -> list[dict[str, object]]:
        return rows(demo, "logs.all", project="default", sql=guide_queries[f"{name}.sql"], format="json")

    failed = run_guide_query("failed")
    assert failed[0]["path"] == "/functions/v1/checkout"
    assert int(str(failed[0]["failed"])) > 4 * int(str(failed[1]["failed"]))
    minutes = [
        minute
        for minute in run_guide_query("minutes")
        if int(str(minute["failed"])) + int(str(minute["slowest_ms"])) > 0
    ]
    times = [format_time_of_day(minute["minute"]) for minute in minutes]
    began = next(place for place, time_of_day in enumerate(times) if time_of_day == incident_time[1])
    of_incident = minutes[began : began + 14]
    assert len(of_incident) == 14
    assert [int(str(minute["failed"])) > 0 for minute in of_incident] == [False] * 6 + [True] * 8
    deployed = run_guide_query("deployments")
    assert [format_time_of_day(event["timestamp"]) for event in deployed] == [
        times[began],
        format_time_of_day(next_minute(of_incident[-1]["minute"])),
    ]
    assert ["checkout_4 is live" in str(event["event_message"]) for event in deployed] == [True, False]


def format_time_of_day(microseconds: object) -> str:
    return time.strftime("%H:%M", time.gmtime(int(str(microseconds)) // 1_000_000))


def next_minute(microseconds: object) -> int:
    return int(str(microseconds)) + 60_000_000


def test_a_query_of_the_guide_joins_one_request_across_streams(demo: Demo, guide_queries: dict[str, str]) -> None:
    result_rows = rows(demo, "logs.all", project="default", sql=guide_queries["requests.sql"])
    assert len(result_rows) == 5
    assert len({str(row["request_id"]) for row in result_rows}) == 5
    assert {row["status"] for row in result_rows} <= {500, 504}
    assert {row["postgres"] for row in result_rows} == {"canceling statement due to lock timeout"}


def test_the_printed_link_has_the_key_in_its_fragment(demo: Demo) -> None:
    link = re.search(r"^  (\S+/sign-in)#(\S+)$", demo.output, re.MULTILINE)
    assert link is not None
    assert link[2] == demo.key
    page = httpx.get(link[1])
    assert (page.status_code, page.headers["referrer-policy"]) == (200, "no-referrer")
    assert "unsafe" not in page.headers["content-security-policy"]
    assert demo.key not in page.text
    script = re.search(r'src="(explorer/[^"]+/sign-in\.js)"', page.text)
    assert script is not None
    assert httpx.get(f"{demo.url}/{script[1]}").status_code == 200


def test_events_keep_arriving(demo: Demo) -> None:
    def newest() -> int:
        sql = "select max(timestamp) as at from edge_logs"
        return max(
            int(str(rows(demo, "logs.all", project=project, sql=sql)[0]["at"])) for project in ("default", "acme")
        )

    printed_at = (demo.temporary / "told.log").stat().st_mtime
    # The first new request arrives about when the demo prints its link, and the next ones within 45 seconds.
    until(lambda: newest() > printed_at * 1_000_000, 120)


def test_the_folder_is_deleted_at_the_end(demo: Demo) -> None:
    assert list(demo.temporary.glob("cordwood-demo-*"))
    demo.process.send_signal(signal.SIGTERM)
    assert demo.process.wait(30) == 0
    assert not list(demo.temporary.glob("cordwood-demo-*"))


def test_a_demo_refuses_a_data_folder(tmp_path: Path) -> None:
    refused = subprocess.run(
        [sys.executable, "-m", "cordwood", "serve", "--demo", "--data-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert refused.returncode == 1
    assert "--data-dir" in refused.stderr
