"""The size of a plan is computed before its expansion. Plans that are too large are refused."""

import json
from importlib import resources
from pathlib import Path

import pytest
from sqlglot import parse_one

from cordwood.catalog.endpoint_file import read_endpoint_file
from cordwood.engines.clickhouse.target import ClickHouseTarget
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import CompilationTimeout, PlanTooLarge, QueryFault
from cordwood.sql import plan_size
from cordwood.sql.budget import (
    MAX_COMPILATION_NODES,
    MAX_PRINTED_CHARACTERS,
    CompilationBudget,
    allow_saved_query_cpu_time,
    budget_scope,
)
from cordwood.sql.compile import compile_sandbox_query, parse_and_check_endpoint
from cordwood.sql.plan_size import MAX_PLANNING_COST_POINTS, measure_plan
from cordwood.sql.program import EndpointProgram
from cordwood.sql.stages import Target

TARGETS: dict[str, Target] = {"duckdb": DuckDBTarget(), "clickhouse": ClickHouseTarget()}


@pytest.fixture(scope="module")
def logs() -> EndpointProgram:
    file = resources.files("cordwood") / "endpoints" / "logs.all.sql"
    return parse_and_check_endpoint(read_endpoint_file("logs.all.sql", file.read_text()))


def size_of_plan(sql: str) -> int:
    return measure_plan(parse_one(sql, read="duckdb")).size.total_cost_points


def chain_of_ctes(levels: int, body: str) -> str:
    steps = "".join(f", c{n} as ({body.format(p=f'c{n - 1}')})" for n in range(1, levels + 1))
    return f"with c0 as (select id as x, event_message as m from edge_logs){steps} select count(*) as n from c{levels}"


SELF_JOIN = "select a.x, a.m from {p} a, {p} b where a.x = b.x"


def test_a_sub_query_counts_as_often_as_it_is_read() -> None:
    points_once = measure_plan(parse_one("with c as (select 1 as x from t) select * from c")).size
    points_three_times = measure_plan(
        parse_one(
            "with c as (select 1 as x from t) select * from c union all select * from c union all select * from c"
        )
    ).size
    assert (points_once.relation_count, points_three_times.relation_count) == (1, 3)


def test_forty_levels_that_double_are_counted_without_expansion() -> None:
    steps = ", ".join(f"c{n} as (select a.x from c{n - 1} a, c{n - 1} b)" for n in range(1, 41))
    assert (
        measure_plan(parse_one(f"with c0 as (select x from t), {steps} select * from c40")).size.relation_count == 2**40
    )


def test_materialized_ctes_are_counted_once() -> None:
    steps = ", ".join(f"c{n} as materialized (select a.x from c{n - 1} a, c{n - 1} b)" for n in range(1, 41))
    assert (
        size_of_plan(f"with c0 as materialized (select x from t), {steps} select * from c40") < MAX_PLANNING_COST_POINTS
    )


@pytest.mark.parametrize(
    ("less", "more", "factor"),
    [
        ("select 1 from " + ", ".join(f"t{n}" for n in range(20)), "select 1 from " + ", ".join(f"t{n}" for n in range(40)), 4),
        ("select 1 from t group by cube(a, b, c)", "select 1 from t group by cube(a, b, c, d, e)", 4),
        ("select nullif(nullif(a, 1), 1) from t", "select " + "nullif(" * 12 + "a" + ", 1)" * 12 + " from t", 10),
    ],
    ids=["joins", "grouping sets", "NULLIF"],
)  # fmt: skip
def test_joins_and_grouping_sets_count_more_than_linearly(less: str, more: str, factor: int) -> None:
    assert size_of_plan(more) > factor * size_of_plan(less)


def test_a_column_counts_as_its_expanded_expression() -> None:
    def doubled_size(levels: int) -> int:
        steps = "".join(f", c{n} as (select c{n - 1}.x || c{n - 1}.x as x from c{n - 1})" for n in range(1, levels + 1))
        return size_of_plan(f"with c0 as (select x from t){steps} select 1 from c{levels} where c{levels}.x = 'a'")

    assert doubled_size(20) > 100 * doubled_size(10)


@pytest.mark.parametrize("engine", TARGETS)
@pytest.mark.parametrize(
    "text",
    [
        chain_of_ctes(40, "select x || x as x, m from {p} where x || m <> ''"),
        "select count(*) as n from " + ", ".join(f"edge_logs t{n}" for n in range(100)),
        "select count(*) as n from edge_logs group by cube(" + ", ".join(f"substr(id, {n})" for n in range(10)) + ")",
        "select "
        + ", ".join(f"max(id) over (order by substr(id, {n})) as c{n}" for n in range(1000))
        + " from edge_logs",
    ],
    ids=["expressions", "joins", "grouping sets", "windows"],
)
def test_a_plan_that_is_too_large_is_refused_with_its_size_and_the_limit(
    logs: EndpointProgram, engine: str, text: str
) -> None:
    # The budget is that of saved queries, because a slow machine needs more time than callers have.
    with allow_saved_query_cpu_time(), pytest.raises(PlanTooLarge, match=f"{MAX_PLANNING_COST_POINTS:,}") as raised:
        compile_sandbox_query(logs, text, TARGETS[engine], {})
    assert raised.value.span is not None
    assert raised.value.hint is not None


@pytest.mark.parametrize("engine", TARGETS)
def test_rows_of_values_that_double_are_refused_before_their_expansion(logs: EndpointProgram, engine: str) -> None:
    steps = ", ".join(f"c{n} as (select x + x as x from c{n - 1})" for n in range(1, 41))
    with (
        budget_scope(CompilationBudget()) as budget,
        pytest.raises(PlanTooLarge, match=f"{MAX_PLANNING_COST_POINTS:,}"),
    ):
        compile_sandbox_query(logs, f"with c0 as (select 1 as x), {steps} select x from c40", TARGETS[engine], {})
    assert budget.counted_nodes < MAX_COMPILATION_NODES // 5


def test_duckdb_materializes_ctes_of_large_plans(logs: EndpointProgram) -> None:
    assert "AS MATERIALIZED" in compile_sandbox_query(logs, chain_of_ctes(40, SELF_JOIN), DuckDBTarget(), {}).sql


def test_duckdb_materializes_no_ctes_of_small_plans(logs: EndpointProgram) -> None:
    assert "AS MATERIALIZED" not in compile_sandbox_query(logs, chain_of_ctes(2, SELF_JOIN), DuckDBTarget(), {}).sql


def test_clickhouse_cannot_materialize_ctes_so_large_plans_are_refused(logs: EndpointProgram) -> None:
    with pytest.raises(PlanTooLarge, match="relations"):
        compile_sandbox_query(logs, chain_of_ctes(40, SELF_JOIN), ClickHouseTarget(), {})


def test_every_client_query_needs_at_most_a_tenth_of_the_limits(
    logs: EndpointProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compile all recorded queries of clients with a tenth of each limit."""
    queries = Path(__file__).parents[4] / "shared" / "clients" / "queries.jsonl"
    if not queries.exists():
        pytest.skip("the clients' queries are not beside the checkout")
    monkeypatch.setattr(plan_size, "MAX_PLANNING_COST_POINTS", MAX_PLANNING_COST_POINTS // 10)
    monkeypatch.setattr(plan_size, "MAX_PRINTED_SQL_CHARACTERS", plan_size.MAX_PRINTED_SQL_CHARACTERS // 10)
    lines = map(json.loads, queries.read_text().splitlines())
    texts = [line["sql"] for line in lines if line.get("sql") and line["endpoint"] == "logs.all"]
    refused = [text for text in texts for target in TARGETS.values() if is_too_large(logs, text, target)]
    assert texts
    assert not refused


def is_too_large(logs: EndpointProgram, text: str, target: Target) -> bool:
    try:
        with budget_scope(
            CompilationBudget(nodes=MAX_COMPILATION_NODES // 10, characters=MAX_PRINTED_CHARACTERS // 10)
        ):
            compile_sandbox_query(logs, text, target, {})
    except (PlanTooLarge, CompilationTimeout):
        return True
    except QueryFault:
        return False
    return False


@pytest.mark.parametrize("target", TARGETS)
def test_stars_expand_to_at_most_ten_thousand_columns_as_in_bigquery(logs: EndpointProgram, target: str) -> None:
    doubled = "(select *, * from " * 14 + "(select 1 as x)" + ")" * 14
    with pytest.raises(PlanTooLarge, match="more than 10,000 columns after its stars are expanded"):
        compile_sandbox_query(logs, f"select count(*) as n from {doubled}", TARGETS[target], {})
    many = ", ".join(f"1 as c{number}" for number in range(2_000))
    compile_sandbox_query(logs, f"select count(*) as n from (select * from (select {many}))", TARGETS[target], {})
