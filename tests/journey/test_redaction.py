"""Redaction over HTTP, set by a header, a key or an endpoint, and the clients' queries with redaction."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.journey.conftest import Service, Start

CLIENTS_FOLDER = Path(__file__).resolve().parents[3] / "shared" / "clients"
STREAM = "cloudflare.logs.prod"
EVENT_WITH_ADDRESS = {
    "event_message": "from 203.0.113.7",
    "metadata": {"request": {"headers": {"x_real_ip": "203.0.113.7"}}},
}
REDACTION_HEADER = "LF-ENDPOINT-REDACT-PII"

# Clients' queries that group or filter by redacted values, so that the number of rows may differ with redaction.
GROUPED_BY_REDACTED: dict[str, str] = {}


def redacted_message(service: Service, project: str, **headers: str) -> str:
    answer = service.client.get(
        "/api/endpoints/query/logs.all", params={"project": project}, headers={k: v for k, v in headers.items() if v}
    )
    assert answer.status_code == 200, answer.text
    rows = answer.json()["result"]
    assert len(rows) == 1
    return str(rows[0]["event_message"])


@pytest.mark.parametrize("value", ["true", "TRUE", "?1"])
def test_the_header_enables_redaction(service: Service, value: str) -> None:
    service.send(STREAM, [{**EVENT_WITH_ADDRESS, "project": f"asks{value}"}])
    assert redacted_message(service, f"asks{value}") == "from 203.0.113.7"
    assert redacted_message(service, f"asks{value}", **{REDACTION_HEADER: value}) == "from REDACTED"


@pytest.mark.parametrize("value", ["1", "yes", "on", "", "truthy", "?2"])
def test_any_other_value_of_the_header_is_refused(service: Service, value: str) -> None:
    answer = service.client.get(
        "/api/endpoints/query/logs.all", params={"project": "x"}, headers={REDACTION_HEADER: value}
    )
    assert answer.status_code == 400


def test_the_header_sent_twice_is_refused(service: Service) -> None:
    for first, second in (("true", "false"), ("false", "true")):
        headers = [(REDACTION_HEADER, first), (REDACTION_HEADER, second)]
        answer = service.client.get("/api/endpoints/query/logs.all", params={"project": "x"}, headers=headers)
        assert answer.status_code == 400
        assert answer.json()["error"]["status"] == "request.bad-parameter"


def test_metadata_and_every_format_are_redacted(service: Service) -> None:
    service.send(STREAM, [{**EVENT_WITH_ADDRESS, "project": "formats"}])
    for accept in ("application/json", "application/x-ndjson", "text/csv", "application/vnd.apache.arrow.stream"):
        answer = service.client.get(
            "/api/endpoints/query/logs.all",
            params={"project": "formats"},
            headers={REDACTION_HEADER: "true", "Accept": accept},
        )
        assert answer.status_code == 200
        assert b"REDACTED" in answer.content
        assert b"203.0.113" not in answer.content


def test_the_header_does_not_disable_redaction_of_a_key(service: Service) -> None:
    service.send(STREAM, [{**EVENT_WITH_ADDRESS, "project": "always"}])
    created = service.client.post("/api/access-tokens", json={"scopes": "query", "redact": True})
    assert created.status_code in (200, 201), created.text
    key = created.json()["token"]
    assert redacted_message(service, "always", **{"X-API-KEY": key}) == "from REDACTED"
    assert redacted_message(service, "always", **{"X-API-KEY": key, REDACTION_HEADER: "false"}) == "from REDACTED"


def test_an_endpoint_has_its_own_redaction_mode(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "endpoints"
    folder.mkdir()
    for mode in ("replace", "hash", "truncate"):
        settings = f'name = "{mode}"\nid = "00000000-0000-4000-8000-{mode:0<12.12}"\nredact_pii = true\nredact_mode = "{mode}"\ncache = "60s"'
        uuid = {"replace": 1, "hash": 2, "truncate": 3}[mode]
        settings = settings.replace(f"{mode:0<12.12}", f"{uuid:012d}")
        (folder / f"{mode}.sql").write_text(
            f"/*\n{settings}\n*/\nselect event_message from `{STREAM}` order by timestamp desc limit 5"
        )
    service = start("--endpoints", str(folder))
    service.send(STREAM, [{**EVENT_WITH_ADDRESS, "project": "mode"}])
    assert service.rows("replace") == [{"event_message": "from REDACTED"}]
    assert service.rows("truncate") == [{"event_message": "from 203.0.113.0/24"}]
    hashed = service.rows("hash")
    assert str(hashed[0]["event_message"]).startswith("from REDACTED-")
    off = service.client.get("/api/endpoints/query/hash", headers={REDACTION_HEADER: "false"}).json()["result"]
    assert off == [{"event_message": "from 203.0.113.7"}]
    assert service.rows("hash") == hashed
    service.stop()
    assert start("--endpoints", str(folder)).rows("hash") == hashed


def test_an_invalid_pattern_stops_the_start_with_one_message(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cordwood", "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    environment = {**os.environ, "CORDWOOD_REDACTION_PATTERNS": "mine = ("}
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert completed.returncode == 1
    assert completed.stdout == ""
    assert completed.stderr.startswith("cordwood serve: redaction.patterns: mine: ")
    # The failed start must close its resources, because the engine would otherwise print messages about leaks.
    assert completed.stderr.count("\n") == 1


def test_patterns_and_detectors_of_the_settings_apply(start: Start) -> None:
    service = start(
        env={"CORDWOOD_REDACTION_DETECTORS": "email", "CORDWOOD_REDACTION_PATTERNS": "customer = cust_[0-9]+"}
    )
    service.send(STREAM, [{"event_message": "cust_12 a@b.io 10.0.0.1", "project": "own"}])
    assert redacted_message(service, "own", **{REDACTION_HEADER: "true"}) == "REDACTED REDACTED 10.0.0.1"


@pytest.mark.skipif(not CLIENTS_FOLDER.is_dir(), reason="the clients' queries are not beside this checkout")
def test_every_client_query_keeps_its_columns_and_number_of_rows(start: Start) -> None:
    service = start(env={"CORDWOOD_LIMITS_MEMORY": "512MB"})
    now = int(time.time())
    for line in _run_duckdb_oracle(now, "--emit", "events"):
        assert service.send(line["source_name"], [line["event"]]).status_code == 200
    wrong = {}
    for query in _run_duckdb_oracle(now, "--emit", "queries"):
        plain, redacted = (_query_summary(service, query, value) for value in ("false", "true"))
        if plain != redacted and query["id"] not in GROUPED_BY_REDACTED:
            wrong[query["id"]] = (plain, redacted)
    assert wrong == {}


def _run_duckdb_oracle(now: int, *arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(CLIENTS_FOLDER / "oracle.py"), "--now", str(now), *arguments]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def _query_summary(service: Service, query: dict[str, Any], redact: str) -> tuple[int, int, tuple[str, ...]]:
    """Return the status, the number of rows and the columns of an answer."""
    parameters = {**query["params"], **({"sql": query["sql"]} if query["sql"] else {})}
    answer = service.client.get(
        f"/api/endpoints/query/{query['endpoint']}",
        params=parameters,
        headers={**query["headers"], REDACTION_HEADER: redact, "Cache-Control": "no-cache"},
    )
    rows = answer.json().get("result") or []
    return answer.status_code, len(rows), tuple(rows[0]) if rows else ()
