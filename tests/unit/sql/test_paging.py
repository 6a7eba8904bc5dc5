"""Which queries are paged by the time of events, and which by the number of rows."""

from importlib import resources

import msgspec
import pytest

from cordwood.catalog.endpoint_file import read_endpoint_file
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.sql.budget import CompilationBudget, budget_scope
from cordwood.sql.compile import compile_sandbox_query, parse_and_check_endpoint
from cordwood.sql.paging import FIRST_PAGE, Page
from cordwood.sql.program import EndpointProgram
from cordwood.sql.stages import Statement


@pytest.fixture(scope="module")
def logs() -> EndpointProgram:
    file = resources.files("cordwood") / "endpoints" / "logs.all.sql"
    return parse_and_check_endpoint(read_endpoint_file("logs.all.sql", file.read_text()))


REQUESTED_PAGE = Page(is_paging_requested=True)


def compile_query(program: EndpointProgram, sql: str, page: Page = REQUESTED_PAGE) -> Statement:
    return compile_sandbox_query(msgspec.structs.replace(program, page=page), sql, DuckDBTarget(), {})


@pytest.mark.parametrize(
    ("sql", "is_paged"),
    [
        ("select event_message from edge_logs order by event_message", True),
        ("select id from edge_logs", True),
        ("select event_message, count(*) as n from edge_logs group by 1", False),
        ("select id from edge_logs union all select id from auth_logs", False),
    ],
)
def test_aggregates_and_unions_are_paged_only_on_request(logs: EndpointProgram, sql: str, *, is_paged: bool) -> None:
    assert (compile_query(logs, sql, FIRST_PAGE).paging is not None) == is_paged
    assert compile_query(logs, sql).paging is not None


@pytest.mark.parametrize("tail", ["limit 1000", "order by timestamp desc limit 10", "limit 5 offset 3"])
def test_a_query_with_a_limit_within_the_page_is_not_paged(logs: EndpointProgram, tail: str) -> None:
    statement = compile_query(logs, f"select id from edge_logs {tail}")
    assert statement.paging is None
    assert '"t"."id" ASC' not in statement.sql


QUERIES_PAGED_BY_TIME = (
    "select id from edge_logs order by timestamp",
    "select id from edge_logs",
    "select timestamp as t from edge_logs order by t desc limit 2000",
    "select e.id from edge_logs as e left join auth_logs as a on a.id = e.id order by e.timestamp",
    "select id from (select id, timestamp as t from edge_logs) order by t",
)
QUERIES_PAGED_BY_ROWS = (
    "select id from edge_logs order by timestamp, event_message",
    "select id from edge_logs order by event_message",
    "select id from edge_logs order by timestamp limit 2000 offset 1",
    "select id, row_number() over (order by timestamp) as n from edge_logs order by timestamp",
    "select e.id from auth_logs as a left join edge_logs as e on a.id = e.id order by e.timestamp",
    "select e.id from edge_logs as e right join auth_logs as a on a.id = e.id order by e.timestamp",
    "select e.id from auth_logs as a left join (edge_logs as e join auth_logs as b on b.id = e.id) on a.id = b.id order by e.timestamp",
    "select timestamp, count(*) as n from edge_logs group by timestamp order by timestamp",
    "select distinct timestamp from edge_logs order by timestamp",
    "select max(timestamp) as t from edge_logs",
    "select id from edge_logs union all select id from auth_logs",
    "select id from edge_logs order by timestamp_trunc(timestamp, hour)",
)


@pytest.mark.parametrize("sql", [*QUERIES_PAGED_BY_TIME, *QUERIES_PAGED_BY_ROWS])
def test_pages_are_by_time_if_the_first_sort_key_is_a_timestamp_that_is_never_null(
    logs: EndpointProgram, sql: str
) -> None:
    statement = compile_query(logs, sql)
    assert statement.paging is not None
    assert statement.paging.is_by_time == (sql in QUERIES_PAGED_BY_TIME)
    assert statement.answer_column_count == len(statement.column_names) - 2 * (sql in QUERIES_PAGED_BY_TIME)


def test_a_page_skips_rows_and_keeps_to_the_limit_of_the_query(logs: EndpointProgram) -> None:
    sql = "select id from edge_logs order by timestamp limit 1500"
    assert compile_query(logs, sql).sql.endswith("LIMIT 1001")
    last_page = compile_query(
        logs, sql, Page(rows_sent_before=3, begins_after_last_row=True, remaining_rows=500, is_paging_requested=True)
    )
    assert last_page.sql.endswith("LIMIT 500 OFFSET 3")
    assert {slot.name for slot in last_page.slots} >= {"time_of_last_row", "id_of_last_row"}


def compile_over_all_projects(inner_columns: str, sql: str) -> str:
    text = f"""/*
name = "all"
max_rows = 90
sandbox = true
redact_pii = false
*/
with logs as (select {inner_columns} from `cloudflare.logs.prod` as t)
select id from logs
"""
    program = parse_and_check_endpoint(read_endpoint_file("all.sql", text))
    return compile_query(program, sql).sql


@pytest.mark.parametrize("order", ["", "order by timestamp", "order by event_message"])
def test_events_of_several_projects_with_one_id_are_ordered_by_project(order: str) -> None:
    passes_on = compile_over_all_projects(
        "t.id, t.timestamp, t.event_message, t.project", f"select id from logs {order}"
    )
    lacks = compile_over_all_projects("t.id, t.timestamp, t.event_message", f"select id from logs {order}")
    key = '"t"."id" ASC NULLS FIRST'
    assert f'{key}, "t"."project" ASC NULLS FIRST' in passes_on
    assert key in lacks
    assert '"project"' not in lacks


def test_ctes_that_are_read_twice_are_analysed_once(logs: EndpointProgram) -> None:
    steps = "".join(
        f", c{n} as (select id, timestamp from c{n - 1} union all select id, timestamp from c{n - 1})"
        for n in range(1, 7)
    )
    sql = f"with c0 as (select id, timestamp from edge_logs){steps} select id from c6 order by timestamp"
    with budget_scope(CompilationBudget()) as budget_of_few:
        compile_query(logs, f"{sql} limit 10")
    with budget_scope(CompilationBudget()) as paged:
        assert compile_query(logs, sql).paging is not None
    assert paged.counted_nodes < budget_of_few.counted_nodes * 1.5
