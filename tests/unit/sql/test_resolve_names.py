"""Name resolution: columns, select aliases, tables, CTEs, parameters and the time of the call."""

from collections.abc import Callable
from uuid import UUID

import pytest

from cordwood.errors import AmbiguousName, BadEndpointFile, QueryRefused, QueryUnsupported, UnknownNameInQuery
from cordwood.model.definitions import Endpoint
from cordwood.model.event import EventShape, ValueKind
from cordwood.sql.admit import admit_query
from cordwood.sql.compile import compile_sandbox_query, parse_and_check_endpoint
from cordwood.sql.nodes import NOW_SLOT_NAME
from cordwood.sql.parse import parse_sql
from cordwood.sql.program import EndpointProgram
from cordwood.sql.resolve.queries import resolve_sandbox_query
from cordwood.sql.resolve.tables import implicit_alias
from cordwood.sql.stages import ResolvedQuery, Target
from tests.unit.sql.conftest import PlainTarget

ResolveBody = Callable[[str], str]


def test_a_select_alias_wins_over_a_column_in_group_by_and_order_by(resolve_body: ResolveBody) -> None:
    resolved = resolve_body(
        "select timestamp_trunc(timestamp, hour) as timestamp, count(*) as n from edge_logs"
        " group by timestamp order by timestamp desc"
    )
    assert "GROUP BY 1 ORDER BY 1 DESC" in resolved


def test_a_column_wins_over_a_select_alias_in_where(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select upper(id) as id from edge_logs where id = 'x'")
    assert resolved.endswith("WHERE edge_logs.id = 'x'")


def test_an_alias_inside_an_expression_of_order_by_is_expanded(resolve_body: ResolveBody) -> None:
    assert "ORDER BY UPPER(edge_logs.id) || 'x'" in resolve_body(
        "select upper(id) as n from edge_logs order by n || 'x'"
    )


def test_inside_an_aggregate_a_column_wins_over_an_alias(resolve_body: ResolveBody) -> None:
    resolved = resolve_body(
        "select max(timestamp) as timestamp from edge_logs group by id having max(timestamp) > '2026-01-01'"
    )
    assert "HAVING MAX(edge_logs.timestamp) >" in resolved


def test_having_sees_select_aliases(resolve_body: ResolveBody) -> None:
    assert resolve_body("select id, count(*) as n from edge_logs group by id having n > 1").endswith(
        "HAVING COUNT(*) > 1"
    )


def test_a_selected_group_key_becomes_an_ordinal(resolve_body: ResolveBody) -> None:
    assert resolve_body("select lower(id), 1 from edge_logs group by lower(id)").endswith("GROUP BY 1")


def test_the_last_part_of_a_name_is_its_implicit_alias(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select metadata.status, count(*) from edge_logs group by status")
    assert (
        resolved
        == "SELECT PATH(edge_logs.metadata, 'status') AS status, COUNT(*) AS f0_ FROM edge_logs AS edge_logs GROUP BY 1"
    )


def test_an_alias_that_two_columns_have_is_ambiguous(resolve_body: ResolveBody) -> None:
    with pytest.raises(AmbiguousName):
        resolve_body("select id as a, event_message as a from edge_logs order by a")


def test_unnamed_columns_are_numbered_among_themselves(resolve_body: ResolveBody) -> None:
    assert resolve_body("select 1, 2 as a, 3") == "SELECT 1 AS f0_, 2 AS a, 3 AS f1_"


def test_a_column_of_two_tables_is_ambiguous(resolve_body: ResolveBody) -> None:
    with pytest.raises(AmbiguousName, match=r"a\.id and b\.id"):
        resolve_body("select id from edge_logs a join auth_logs b on a.id = b.id")


def test_columns_of_using_are_merged(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select id, a.event_message from edge_logs a left join auth_logs b using (id)")
    assert resolved == (
        "SELECT a.id AS id, a.event_message AS event_message FROM edge_logs AS a LEFT JOIN auth_logs AS b ON a.id = b.id"
    )


def test_columns_of_using_in_a_full_join_are_coalesced(resolve_body: ResolveBody) -> None:
    assert resolve_body("select id from edge_logs a full join auth_logs b using (id)").startswith(
        "SELECT COALESCE(a.id, b.id) AS id"
    )


def test_a_star_is_every_column_once(resolve_body: ResolveBody) -> None:
    resolved = resolve_body(
        "select * from (select id, event_message from edge_logs) a join (select id from auth_logs) b using (id)"
    )
    assert resolved.startswith("SELECT a.id AS id, a.event_message AS event_message FROM")


def test_except_removes_and_replace_replaces_columns_of_a_star(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select * except (metadata, timestamp) replace (upper(id) as id) from edge_logs")
    assert resolved.startswith("SELECT UPPER(edge_logs.id) AS id, edge_logs.event_message AS event_message FROM")


def test_except_of_an_unknown_column_is_an_error(resolve_body: ResolveBody) -> None:
    with pytest.raises(UnknownNameInQuery, match="nope"):
        resolve_body("select * except (nope) from edge_logs")


@pytest.mark.parametrize("name", ["EDGE_LOGS", "Edge_Logs", "`edge_logs`", "`EDGE_LOGS`"])
def test_sub_queries_are_named_in_any_case_with_or_without_backquotes(resolve_body: ResolveBody, name: str) -> None:
    assert "FROM edge_logs AS " in resolve_body(f"select id from {name}")


def test_a_table_without_an_alias_is_named_by_its_name(resolve_body: ResolveBody) -> None:
    assert resolve_body("select Edge_Logs.id from edge_logs") == "SELECT edge_logs.id AS id FROM edge_logs AS edge_logs"


def test_a_callers_own_cte_may_shadow_a_sub_query_and_read_it(resolve: Callable[[str], ResolvedQuery]) -> None:
    resolved = resolve("with edge_logs as (select id from edge_logs where id = 'x') select * from edge_logs")
    sql = resolved.tree.sql("duckdb").replace('"', "")
    assert "edge_logs_2 AS (SELECT t.id" not in sql
    assert "FROM edge_logs_2 AS edge_logs" in sql or "FROM edge_logs AS edge_logs" in sql
    assert len(resolved.tree.args["with_"].expressions) == 2
    assert resolved.sub_queries == ("edge_logs",)


def test_only_sub_queries_that_are_read_are_compiled(resolve: Callable[[str], ResolvedQuery]) -> None:
    resolved = resolve("select id from auth_logs")
    assert resolved.sub_queries == ("auth_logs",)
    assert resolved.streams == ("auth",)
    assert len(resolved.tree.args["with_"].expressions) == 1


def test_a_query_without_from_reads_no_stream(resolve: Callable[[str], ResolvedQuery]) -> None:
    resolved = resolve("select 'hello' as world")
    assert (resolved.sub_queries, resolved.streams) == ((), ())


def test_a_sandbox_query_cannot_read_a_stream(resolve_body: ResolveBody) -> None:
    with pytest.raises(QueryRefused) as raised:
        resolve_body("select *\nfrom `edge.stream`")
    assert str(raised.value.span) == "2:6"
    assert raised.value.hint == "These can be read: auth_logs, edge_logs, silent_logs."


def test_the_most_similar_sub_query_is_suggested(resolve_body: ResolveBody) -> None:
    with pytest.raises(QueryRefused) as raised:
        resolve_body("select 1 from edge_log")
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("Did you mean edge_logs?")


def test_a_derived_table_does_not_see_its_siblings(resolve_body: ResolveBody) -> None:
    with pytest.raises(UnknownNameInQuery):
        resolve_body("select 1 from edge_logs e, (select e.id as x) d")


def test_a_sub_query_sees_the_enclosing_query(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select id from edge_logs e where exists (select 1 from auth_logs a where a.id = e.id)")
    assert "WHERE EXISTS(SELECT 1 AS f0_ FROM auth_logs AS a WHERE a.id = e.id)" in resolved


def test_set_operations_order_by_their_columns(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select id as a from edge_logs union all select id from auth_logs order by a desc limit 3")
    assert resolved.endswith("ORDER BY 1 DESC LIMIT 3")


def test_set_operations_of_different_widths_are_refused(resolve_body: ResolveBody) -> None:
    with pytest.raises(QueryRefused, match="2 and 1 columns"):
        resolve_body("select 1, 2 union all select 3")


def test_by_name_pairs_columns_by_their_names(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select 1 as a, 2 as b union all by name select 3 as b, 4 as a")
    assert resolved.endswith("UNION ALL SELECT _side.a AS a, _side.b AS b FROM (SELECT 3 AS b, 4 AS a) AS _side")


def test_qualify_sees_select_aliases(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select id, row_number() over (order by id) as n from edge_logs qualify n = 1")
    assert "QUALIFY (ROW_NUMBER() OVER (ORDER BY edge_logs.id NULLS FIRST)) = 1" in resolved


def test_a_recursive_query_knows_its_own_columns(resolve_body: ResolveBody) -> None:
    resolved = resolve_body(
        "with recursive n as (select 1 as i union all select i + 1 from n where i < 3) select i from n"
    )
    assert "UNION ALL SELECT n.i + 1 AS f0_ FROM n AS n WHERE n.i < 3" in resolved


def test_distinct_on_and_semi_joins_are_not_supported(resolve_body: ResolveBody) -> None:
    with pytest.raises(QueryUnsupported):
        resolve_body("select a.id from edge_logs a semi join auth_logs b on a.id = b.id")


def test_a_declared_parameter_is_a_slot(resolve_body: ResolveBody) -> None:
    assert resolve_body("select @project as p, @SINCE as s") == "SELECT $project AS p, $since AS s"


def test_an_undeclared_parameter_is_reported_with_the_most_similar_one(resolve_body: ResolveBody) -> None:
    with pytest.raises(UnknownNameInQuery) as raised:
        resolve_body("select id from edge_logs where id = @projct")
    assert raised.value.hint == "Did you mean @project?"
    assert str(raised.value.span) == "1:37"


@pytest.mark.parametrize("written", ["current_timestamp()", "current_timestamp", "CURRENT_TIMESTAMP ()"])
def test_the_time_of_the_call_is_a_slot(resolve_body: ResolveBody, written: str) -> None:
    assert resolve_body(f"select {written} as now") == f"SELECT ${NOW_SLOT_NAME} AS now"


def test_current_date_keeps_its_time_zone(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select current_date('Asia/Tokyo') as d, current_date() as u")
    assert "$now" in resolved
    assert "CURRENT" not in resolved
    assert "'Asia/Tokyo'" in resolved


def test_an_owner_reads_streams_by_their_dotted_names(resolve_owner: Callable[[str], str]) -> None:
    resolved = resolve_owner("select id, project from `edge.stream` where project = @project")
    assert "FROM edge.stream AS stream" in resolved


@pytest.mark.parametrize("name", ["a.", ".", "..", "a.b."])
def test_the_implicit_alias_of_a_name_whose_last_part_is_empty_is_the_whole_name(
    resolve_owner: Callable[[str], str], name: str
) -> None:
    assert implicit_alias(name) == name
    assert f"FROM {name} AS {name} WHERE" in resolve_owner(f"select id from `{name}` where project = @project")


def test_other_keys_of_a_stream_are_read_from_its_events(resolve_owner: Callable[[str], str]) -> None:
    resolved = resolve_owner("select tenant, t.region from `edge.stream` as t")
    assert resolved.startswith("SELECT PATH(t.extras, 'tenant') AS tenant, PATH(t.extras, 'region') AS region")


def test_the_order_of_a_sub_query_becomes_that_of_the_answer(resolve_owner: Callable[[str], str]) -> None:
    resolved = resolve_owner(
        "with e as (select id, timestamp from `edge.stream` order by timestamp desc) select id from e"
    )
    assert resolved.count("ORDER BY") == 1
    assert resolved.endswith("FROM e AS e ORDER BY e.timestamp DESC")


def test_the_order_of_a_counted_sub_query_is_removed(resolve_owner: Callable[[str], str]) -> None:
    resolved = resolve_owner("with e as (select id from `edge.stream` order by id) select count(*) as n from e")
    assert "ORDER BY" not in resolved


def test_the_order_of_a_limited_sub_query_stays(resolve_owner: Callable[[str], str]) -> None:
    resolved = resolve_owner("with e as (select id from `edge.stream` order by id limit 5) select count(*) as n from e")
    assert "ORDER BY 1 NULLS FIRST LIMIT 5" in resolved


def test_a_row_of_constants_is_inlined(resolve_body: ResolveBody) -> None:
    resolved = resolve_body(
        "with p as (select timestamp('2026-01-01') as t) select id from edge_logs, p where timestamp > p.t"
    )
    assert "CAST('2026-01-01' AS TIMESTAMPTZ)" in resolved.split("WHERE")[1]
    assert "FROM edge_logs AS edge_logs WHERE" in resolved


def test_a_sub_query_without_a_stream_is_inlined(resolve_body: ResolveBody) -> None:
    resolved = resolve_body(
        "with p as (select @since as t) select id from edge_logs where timestamp > (select t from p)"
    )
    assert resolved.endswith("WHERE edge_logs.timestamp > (($since))")


def test_constants_beside_an_outer_join_stay_a_table(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("with p as (select 1 as x) select e.id, x from edge_logs e left join p on e.id = 'a'")
    assert "LEFT JOIN p AS p ON" in resolved


def test_a_star_reads_all_columns_with_the_same_name(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select * from (select id as a, event_message as a from edge_logs) as t")
    assert resolved.startswith("SELECT t.a AS a, t.a_2 AS a FROM (SELECT")


def test_a_name_that_several_columns_have_is_ambiguous(resolve_body: ResolveBody) -> None:
    with pytest.raises(AmbiguousName, match="several columns have this name"):
        resolve_body("with t as (select id as a, event_message as a from edge_logs) select a from t")


def test_suggestions_omit_keys_that_cannot_be_written_as_names(program: EndpointProgram, target: Target) -> None:
    """Suggest only keys that can be written as names.

    Comparing thousands of long, similar keys with the unknown name took seconds.
    """
    odd = ("", "\x00", "$.a", " a", "a.b", "*", "'", "k" * 300)
    paths: list[tuple[str, ...]] = [("metadata",), *(("metadata", key) for key in (*odd, "plain"))]
    shapes = {"edge.stream": EventShape(dict.fromkeys(paths, frozenset({ValueKind.OBJECT})), 1)}
    for written, hint in (
        ("never_sent", "There are: edge_logs, event_message, id, m, "),
        ("k" * 301, "There are: edge_logs"),
    ):
        text = f"select {written} from edge_logs cross join unnest(metadata) as m"
        with pytest.raises(UnknownNameInQuery) as refused:
            resolve_sandbox_query(program, admit_query(parse_sql(text)), target, shapes)
        assert str(refused.value.hint).startswith(hint)
        assert "plain" in str(refused.value.hint)


def _endpoint(sql: str) -> Endpoint:
    return Endpoint("ordered", UUID(int=7), sql, "1", accepts_sandbox_queries=True)


@pytest.mark.parametrize("recursive", ["", "recursive "])
def test_a_sub_query_of_an_endpoint_reads_later_ones_only_with_recursive(recursive: str) -> None:
    endpoint = _endpoint(f"with {recursive}a as (select id from b), b as (select id from `edge`) select id from a")
    if recursive:
        assert parse_and_check_endpoint(endpoint, ["edge"]).sub_query_names == ("a", "b")
        return
    with pytest.raises(BadEndpointFile, match='"b" cannot be read here') as raised:
        parse_and_check_endpoint(endpoint, ["edge"])
    assert raised.value.span is not None
    assert (raised.value.span.line, raised.value.span.column) == (1, 27)
    assert raised.value.hint == "b is defined later in this WITH: move it before a, or write WITH RECURSIVE."


@pytest.mark.parametrize(
    ("sub_queries", "query"),
    [
        ("a as (select id from edge), edge as (select id from a)", "select id from edge"),
        # With this query, the second sub-query is resolved first.
        ("a as (select id from edge), edge as (select id from a)", "select e.id from edge e join a on true"),
        ("edge as (select id from edge)", "select id from edge"),
    ],
)
def test_a_sub_query_may_be_named_after_a_stream(sub_queries: str, query: str) -> None:
    program = parse_and_check_endpoint(_endpoint(f"with {sub_queries} select id from edge"), ["edge"])
    statement = compile_sandbox_query(program, query, PlainTarget(), {})
    assert statement.streams == ("edge",)
    assert statement.sql.count('FROM "edge" AS') == 1, statement.sql
    assert '"edge_2" AS ' in statement.sql
