"""DuckDB's plans for shipped queries and dashboard queries: extracted paths, filters in the scan, and top-N."""

import json
from collections.abc import Iterator
from importlib import resources
from typing import Any
from uuid import UUID

import duckdb
import pytest

from cordwood.catalog.endpoint_file import read_endpoint_file
from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.model.definitions import Stream
from cordwood.model.event import Event, EventShape, ReceivedEventBatch, ValueKind
from cordwood.sql.compile import compile_sandbox_query, compile_saved_query, parse_and_check_endpoint
from cordwood.sql.program import EndpointProgram
from cordwood.sql.stages import Statement

STREAM = "cloudflare.logs.prod"
# 2026-01-01 UTC.
START_US = 1_767_225_600_000_000
OBJECT, TEXT, NUMBER = (frozenset({kind}) for kind in (ValueKind.OBJECT, ValueKind.TEXT, ValueKind.NUMBER))
SHAPES = {
    STREAM: EventShape({
        ("metadata",): OBJECT, ("metadata", "request"): OBJECT, ("metadata", "response"): OBJECT,
        ("metadata", "request", "path"): TEXT, ("metadata", "request", "url"): TEXT,
        ("metadata", "response", "status_code"): NUMBER,
    })
}  # fmt: skip
PARAMETER_VALUES = {
    "project": "p1",
    "iso_timestamp_start": "2026-01-01 01:00:00+00",
    "iso_timestamp_end": None,
    "interval": "minutely",
    "now": "2026-01-01 05:00:00+00",
}
FROM_UNNESTED_REQUESTS = (
    "edge_logs cross join unnest(metadata) as m cross join unnest(m.request) as r cross join unnest(m.response) as s"
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    duckdb_engine = DuckDBEngine(tmp_path_factory.mktemp("engine"), DuckDBTarget())
    duckdb_engine.create_stream_tables([Stream(STREAM, UUID(int=1))])
    duckdb_engine.append([ReceivedEventBatch(STREAM, [event(number) for number in range(20_000)], START_US)])
    with duckdb_engine._storage.open_query_view((STREAM,)) as (cursor, _):
        yield cursor
    duckdb_engine.close()


def event(number: int) -> Event:
    request, response = {"path": f"/rest/{number}", "url": "https://x"}, {"status_code": 200 + number % 400}
    metadata = json.dumps({"request": request, "response": response})
    at = START_US + number * 1_000_000
    return Event(str(number), at, "m", f"p{number % 3}", metadata, None)


def read_program(name: str) -> EndpointProgram:
    file = resources.files("cordwood") / "endpoints" / f"{name}.sql"
    return parse_and_check_endpoint(read_endpoint_file(file.name, file.read_text()))


def plan_nodes(engine: duckdb.DuckDBPyConnection, statement: Statement) -> list[dict[str, Any]]:
    values = {slot.name: PARAMETER_VALUES[slot.name] for slot in statement.slots if slot.is_read}
    return descendants(
        {"children": json.loads(engine.execute(f"explain (format json) {statement.sql}", values).fetchall()[0][1])}
    )


def descendants(top: dict[str, Any]) -> list[dict[str, Any]]:
    pending = list(top["children"])
    nodes_ = []
    while pending:
        node = pending.pop()
        pending += node.get("children", [])
        nodes_.append(node)
    return nodes_


def operator_names(plan: list[dict[str, Any]]) -> set[str]:
    return {node["name"].strip() for node in plan}


def sorts_only_the_first_few(plan: list[dict[str, Any]]) -> bool:
    """Return whether every full sort in the plan has a top-N operator below it."""
    sorts = [node for node in plan if node["name"].strip() == "ORDER_BY"]
    return all("TOP_N" in operator_names(descendants(node)) for node in sorts)


def scan_filters(plan: list[dict[str, Any]]) -> str:
    """Return the filters that the plan evaluates in scans."""
    return " ".join(str(node["extra_info"].get("Filters")) for node in plan if node["name"].strip() == "SEQ_SCAN")


def sandbox_plan(engine: duckdb.DuckDBPyConnection, sql: str) -> list[dict[str, Any]]:
    return plan_nodes(engine, compile_sandbox_query(read_program("logs.all"), sql, DuckDBTarget(), SHAPES))


def test_the_saved_query_uses_top_n_and_its_filters_reach_the_scan(engine: duckdb.DuckDBPyConnection) -> None:
    plan = plan_nodes(engine, compile_saved_query(read_program("logs.all"), DuckDBTarget(), SHAPES))
    assert "TOP_N" in operator_names(plan)
    assert sorts_only_the_first_few(plan)
    assert "project" in scan_filters(plan)
    assert "2026-01-01 01:00:00" in scan_filters(plan)


def test_the_counts_read_paths_and_filter_the_scan_by_start_time(engine: duckdb.DuckDBPyConnection) -> None:
    plan = plan_nodes(engine, compile_saved_query(read_program("usage.api-counts"), DuckDBTarget(), SHAPES))
    assert "UNNEST" not in operator_names(plan)
    assert not any("JOIN" in name for name in operator_names(plan))
    assert "2026-01-01 04:00:00" in scan_filters(plan)


@pytest.mark.parametrize(
    "order", ["order by timestamp desc limit 100", "order by edge_logs.timestamp desc", "limit 20", ""]
)
def test_unnests_of_objects_are_paths_and_the_newest_rows_are_read_by_top_n(
    engine: duckdb.DuckDBPyConnection, order: str
) -> None:
    plan = sandbox_plan(
        engine,
        f"select id, edge_logs.timestamp, r.path, s.status_code from {FROM_UNNESTED_REQUESTS} where s.status_code >= 500 {order}",
    )
    assert "UNNEST" not in operator_names(plan)
    assert "TOP_N" in operator_names(plan)
    assert sorts_only_the_first_few(plan)
    assert "project" in scan_filters(plan)
    assert "2026-01-01 01:00:00" in scan_filters(plan)


def test_counted_rows_are_not_sorted(engine: duckdb.DuckDBPyConnection) -> None:
    plan = sandbox_plan(engine, "select timestamp_trunc(timestamp, hour) as t, count(*) as n from edge_logs group by t")
    assert "ORDER_BY" not in operator_names(plan)


def test_a_time_filter_of_the_sandbox_query_reaches_the_scan(engine: duckdb.DuckDBPyConnection) -> None:
    plan = sandbox_plan(
        engine,
        "with p as (select timestamp('2026-01-01 02:00:00+00') as since)"
        " select count(*) as n from edge_logs, p where timestamp >= since",
    )
    assert "2026-01-01 02:00:00" in scan_filters(plan)


def test_a_sub_query_read_twice_is_filtered_twice(engine: duckdb.DuckDBPyConnection) -> None:
    plan = sandbox_plan(
        engine,
        "select id from edge_logs where timestamp > '2026-01-01T03:00:00Z'"
        " union all select id from edge_logs where timestamp < '2026-01-01T01:30:00Z'",
    )
    assert "2026-01-01 03:00:00" in scan_filters(plan)
    assert "2026-01-01 01:30:00" in scan_filters(plan)
