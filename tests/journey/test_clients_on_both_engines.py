"""Every recorded query of real clients returns the same rows on ClickHouse as on DuckDB."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from cordwood.app.in_process import InProcessApp, open_in_process_app
from cordwood.settings.settings import ServeSettings, Settings
from tests.chdb_databases import fresh_database
from tests.isolation_check import forbid_isolation_refusals

CLIENTS_FOLDER = Path(__file__).resolve().parents[3] / "shared" / "clients"

# Queries with several correct results: ties at a LIMIT, ANY_VALUE, ARRAY_AGG without an order.
NONDETERMINISTIC = {"rep_top_error_routes", "uni_rows_all", "uni_rows_fn", "flow_edge_function"}

REDACTION_HEADERS = {"LF-ENDPOINT-REDACT-PII": "true"}
# Only every n-th query also runs with redaction, because test_redaction.py runs all of them with it on one engine.
REDACTED_STRIDE = 1 if os.environ.get("TORTURE") == "full" else 3


def client_records(kind: str, now: int) -> list[dict[str, Any]]:
    """Return the clients' recorded events or queries, with times relative to now."""
    completed = subprocess.run(
        [sys.executable, str(CLIENTS_FOLDER / "oracle.py"), "--now", str(now), "--emit", kind],
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in completed.stdout.splitlines()]


def answers_by_query(engine: str, folder: Path, now: int) -> dict[str, Any]:
    """Return the engine's answers to all queries, and to every third (in the full run, every) query with redaction."""
    settings = Settings(engine=engine, serve=msgspec.structs.replace(ServeSettings(), data_dir=str(folder)))
    with forbid_isolation_refusals(), open_in_process_app(settings) as components:
        send(components, client_records("events", now))
        queries = client_records("queries", now)
        comparable_row = {query["id"]: answer_of(components, query) for query in queries}
        return comparable_row | {
            f"{query['id']} redacted": answer_of(components, query, REDACTION_HEADERS)
            for query in queries[::REDACTED_STRIDE]
        }


def send(components: InProcessApp, events: Sequence[Mapping[str, Any]]) -> None:
    streams: dict[str, list[Any]] = {}
    for event in events:
        streams.setdefault(event["source_name"], []).append(event["event"])
    for stream, batch in streams.items():
        body = json.dumps(batch).encode()
        status, _, _ = components.send(
            "POST", f"/api/logs?{urlencode({'source_name': stream})}", body, {"content-type": "application/json"}
        )
        assert status == 200


def answer_of(
    components: InProcessApp, query: Mapping[str, Any], more_parameters: Mapping[str, str] | None = None
) -> Any:
    """Return the sorted rows with normalised numbers, or the status if the query is refused."""
    values = {**query["params"], **({"sql": query["sql"]} if query["sql"] else {})}
    path = f"/api/endpoints/query/{query['endpoint']}?{urlencode(values)}"
    status, _, body = components.send("GET", path, b"", {**query["headers"], **(more_parameters or {})})
    return sorted(map(comparable_row, json.loads(body)["result"])) if status == 200 else status


def comparable_row(row: object) -> str:
    return json.dumps(row, sort_keys=True).replace(".0,", ",").replace(".0}", "}")


@pytest.mark.torture
@pytest.mark.skipif(not CLIENTS_FOLDER.exists(), reason="the clients' queries do not lie beside the project")
def test_both_engines_return_the_same_rows(tmp_path: Path) -> None:
    now = int(time.time())
    clickhouse = answers_by_query(fresh_database(), tmp_path / "clickhouse", now)
    duckdb = answers_by_query("duckdb", tmp_path / "duckdb", now)
    differing = {name.removesuffix(" redacted") for name, rows in duckdb.items() if rows != clickhouse[name]}
    assert differing <= NONDETERMINISTIC
    assert all(len(clickhouse[name]) == len(duckdb[name]) for name in NONDETERMINISTIC)
    assert any("REDACTED" in str(rows) for rows in clickhouse.values())
