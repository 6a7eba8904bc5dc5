"""Cache warming with the real clock: answers are renewed while they are requested, and when their file changes."""

import signal
import time
from pathlib import Path

import pytest

from tests.journey.conftest import Service, Start
from tests.waiting import until

ENDPOINT = """/*
name = "{name}"
cache = "{cache}"
{warm}
*/
with logs as (select t.id from `postgres.logs` as t) select count(*) as {column} from logs
"""


def write_endpoint(
    folder: Path, name: str, column: str = "events", cache: str = "4s", warm: str = 'warm = "1s"'
) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.sql").write_text(ENDPOINT.format(name=name, column=column, cache=cache, warm=warm))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_endpoint(tmp_path / "endpoints", "warmed")
    write_endpoint(tmp_path / "endpoints", "other", cache="900s", warm="")
    return tmp_path / "endpoints"


def run_count(service: Service, endpoint: str) -> int:
    line = f'cordwood_engine_queries_total{{endpoint="{endpoint}",engine="duckdb",outcome="ok"}} '
    metrics = service.client.get("/metrics").text.splitlines()
    return next((int(metric.rpartition(" ")[2]) for metric in metrics if metric.startswith(line)), 0)


def test_requested_answers_are_renewed_and_others_expire(start: Start, folder: Path) -> None:
    service = start("--endpoints", str(folder))
    assert service.query("warmed").headers["cache-status"] == "cordwood; fwd=miss; stored"
    service.send("postgres.logs", {"id": "one", "event_message": "x"})
    until(lambda: run_count(service, "warmed") >= 3)
    requested_count = service.query("warmed")
    assert requested_count.headers["cache-status"].startswith("cordwood; hit")
    assert requested_count.json() == {"result": [{"events": 1}]}
    assert int(requested_count.headers["age"]) <= 2
    time.sleep(5.5)
    runs_before = run_count(service, "warmed")
    time.sleep(2.5)
    assert run_count(service, "warmed") == runs_before


def test_a_changed_file_invalidates_only_its_own_answers(start: Start, folder: Path) -> None:
    service = start("--endpoints", str(folder))
    before = {name: service.query(name).headers["cordwood-revision"] for name in ("warmed", "other")}
    write_endpoint(folder, "warmed", column="counted")
    service.process.send_signal(signal.SIGHUP)
    until(lambda: service.query("warmed").headers["cordwood-revision"] != before["warmed"])
    assert service.query("warmed").json() == {"result": [{"counted": 0}]}
    assert service.query("other").headers["cache-status"].startswith("cordwood; hit")
    assert run_count(service, "other") == 1


def test_a_warming_service_stops_cleanly(start: Start, folder: Path) -> None:
    service = start("--endpoints", str(folder))
    service.query("warmed")
    assert service.stop() == 0
