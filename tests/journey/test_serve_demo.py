"""`cordwood serve --demo`: what a first look sees."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.debian import need
from tests.demo import Demo, demo_in


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with demo_in(tmp_path_factory.mktemp("demo")) as running:
        yield running


def rows(demo: Demo, endpoint: str, **parameters: str) -> list[dict[str, object]]:
    address = f"{demo.url}/api/endpoints/query/{endpoint}"
    answer = httpx.get(address, params=parameters, headers={"X-API-KEY": demo.key})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, object]] = answer.json()["result"]
    return found


def test_three_lines_to_paste_give_rows_at_once(demo: Demo) -> None:
    assert len(demo.calls()) == 3
    need("curl", "curl")
    for line in demo.calls():
        said = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, timeout=30).stdout
        assert said.startswith('{"result":[{'), said


def test_every_day_of_the_week_has_requests_of_every_kind(demo: Demo) -> None:
    found = rows(demo, "usage.api-counts", interval="daily", project="default")
    assert 7 <= len(found) <= 8
    whole_days = found[1:-1]
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
        found = rows(demo, "logs.all", project=project, sql=f"select count(*) as n from {logs}")
        assert isinstance(found[0]["n"], int)
        assert found[0]["n"] > 5


def test_events_are_still_arriving(demo: Demo) -> None:
    def newest() -> object:
        return rows(demo, "logs.all", project="default", sql="select max(timestamp) as at from edge_logs")[0]["at"]

    before, deadline = newest(), time.monotonic() + 30
    while newest() == before and time.monotonic() < deadline:
        time.sleep(0.2)
    assert newest() != before


def test_the_folder_is_thrown_away_at_the_end(demo: Demo) -> None:
    assert list(demo.temporary.glob("cordwood-demo-*"))
    demo.process.send_signal(signal.SIGTERM)
    assert demo.process.wait(30) == 0
    assert not list(demo.temporary.glob("cordwood-demo-*"))


def test_a_demo_has_no_use_for_a_data_folder(tmp_path: Path) -> None:
    refused = subprocess.run(
        [sys.executable, "-m", "cordwood", "serve", "--demo", "--data-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert refused.returncode == 1
    assert "--data-dir" in refused.stderr
