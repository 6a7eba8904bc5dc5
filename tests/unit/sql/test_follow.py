"""Followed queries: each scan has a range of receive times, and hidden columns follow the query's columns.

Queries that cannot be followed are refused.
"""

import re

import msgspec
import pytest

from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import QueryFault, QueryRefused
from cordwood.model.definitions import Parameter
from cordwood.model.redaction import DEFAULT_REDACTION_RULES, RedactMode
from cordwood.sql.compile import (
    MAX_FOLLOWED_PAGE_ROWS,
    compile_sandbox_query,
    compile_saved_query,
    parse_and_check_endpoint,
)
from cordwood.sql.follow import EVENT_POSITION_COLUMN_COUNT, RECEIPT_TIME_RANGE_PARAMETERS
from cordwood.sql.paging import Page
from cordwood.sql.plan import EventRange, print_segments
from cordwood.sql.redaction.patterns import RedactionPolicy
from cordwood.sql.stages import Statement
from tests.unit.sql.conftest import SHAPES, make_endpoint

TARGET = DuckDBTarget()
FOLLOWED_PAGE = Page(is_of_followed_query=True)
PROGRAM = msgspec.structs.replace(parse_and_check_endpoint(make_endpoint()), page=FOLLOWED_PAGE)


def compile_followed(text: str, redaction: RedactionPolicy | None = None) -> Statement:
    return compile_sandbox_query(PROGRAM, text, TARGET, SHAPES, redaction)


def arrival_condition(statement: Statement) -> str:
    variant = statement.plan.find_variant(EventRange.NEWLY_ARRIVED)
    assert variant is not None
    return print_segments(variant.segments)


@pytest.mark.parametrize(
    "text",
    [
        "select event_message as m, id from edge_logs",
        "select e.event_message as m, a.id from (select * from edge_logs) e cross join (select 1 as id) a",
        "with mine as (select event_message as m, id from edge_logs where id != 'x') select m, id from mine",
        "select event_message as m, id from edge_logs union all select event_message, id from auth_logs",
        "select event_message as m, s.name as id from edge_logs cross join unnest(metadata) x cross join unnest(x.steps) s",
    ],
)
def test_the_hidden_columns_come_after_those_of_the_query_and_order_the_rows(text: str) -> None:
    statement = compile_followed(text)
    assert statement.column_names[:-EVENT_POSITION_COLUMN_COUNT] == ("m", "id")
    assert statement.row_limit == MAX_FOLLOWED_PAGE_ROWS + 1
    assert {slot.name for slot in statement.slots if slot.is_read} >= RECEIPT_TIME_RANGE_PARAMETERS.keys()
    sql = arrival_condition(statement)
    assert "ORDER BY 3 ASC NULLS FIRST, 4 ASC NULLS FIRST, 5 ASC NULLS FIRST LIMIT 501" in sql


def test_each_scan_has_the_range_and_reads_only_arrived_events() -> None:
    sql = arrival_condition(
        compile_followed(
            "select id from edge_logs union all select id from auth_logs union all select id from edge_logs"
        )
    )
    tables = re.findall(r"FROM (memory\.\w+|store\.\w+)", sql)
    assert set(tables) == {"memory.arrived"}
    assert sql.count(">= CAST($cordwood_first_receipt") == len(tables)
    assert sql.count("<= CAST($cordwood_last_receipt") == len(tables)


def test_rows_are_ordered_by_the_digest_of_a_redacted_id() -> None:
    redaction = RedactionPolicy(RedactMode.REPLACE, DEFAULT_REDACTION_RULES)
    statement = compile_followed("select event_message from edge_logs", redaction)
    sql = arrival_condition(statement)
    assert 'md5("edge.stream"."id")' in sql or 'md5("stream"."id")' in sql
    assert statement.unredacted_column_indexes == (0,)


def test_order_and_limit_of_a_saved_query_are_removed() -> None:
    statement = compile_saved_query(PROGRAM, TARGET, SHAPES)
    assert statement.column_names[:-EVENT_POSITION_COLUMN_COUNT] == ("id",)
    assert "LIMIT 100" not in arrival_condition(statement)


@pytest.mark.parametrize("name", ["receipt of the event", "time of the event", "key of the event"])
def test_a_query_that_uses_the_names_of_hidden_columns_is_refused(name: str) -> None:
    with pytest.raises(QueryRefused, match="cannot use the names"):
        compile_followed(f"select id as `{name}` from edge_logs")
    with pytest.raises(QueryFault):
        compile_followed(f"select `{name}` from edge_logs")


@pytest.mark.parametrize("name", RECEIPT_TIME_RANGE_PARAMETERS)
def test_callers_and_endpoints_cannot_set_the_range(name: str) -> None:
    with pytest.raises(QueryFault, match="is not declared"):
        compile_followed(f"select id from edge_logs where timestamp > @{name}")
    sql = f"with a as (select id from `s` where id = @{name}) select id from a"
    program = msgspec.structs.replace(parse_and_check_endpoint(make_endpoint(sql, Parameter(name))), page=FOLLOWED_PAGE)
    with pytest.raises(QueryRefused, match="cannot use the names"):
        compile_saved_query(program, TARGET, {})


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("select id from edge_logs intersect distinct select id from auth_logs", "INTERSECT"),
        ("select e.id from edge_logs e full join (select 'a' as id) c on e.id = c.id", "FULL JOIN"),
        ("select c.id from (select 'a' as id) c left join edge_logs e on e.id = c.id", "LEFT JOIN"),
        ("select id from edge_logs where exists (select 1 from auth_logs)", "a sub-query over events in an expression"),
        ("select array(select id from auth_logs) as ids from edge_logs", "a sub-query over events in an expression"),
        (
            "with recursive r as (select id from edge_logs union all select id from r) select id from r",
            "WITH RECURSIVE",
        ),
    ],
)
def test_operators_that_need_earlier_events_are_refused(text: str, part: str) -> None:
    with pytest.raises(QueryRefused, match=re.escape(f"cannot have {part}")):
        compile_followed(text)
