"""BigQuery's repeated records over plain JSON: paths, elements, and fields without a table name."""

from collections.abc import Callable

import pytest

from cordwood.errors import AmbiguousName, UnknownNameInQuery
from cordwood.sql.nodes import EventValueElements, find_operations
from cordwood.sql.stages import ResolvedQuery

ResolveBody = Callable[[str], str]
FROM_EDGE_LOGS = "FROM edge_logs AS edge_logs"


def test_unnest_of_an_object_becomes_a_path_and_drops_rows_without_it(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select m.status from edge_logs cross join unnest(metadata) as m")
    assert (
        resolved
        == f"SELECT PATH(edge_logs.metadata, 'status') AS status {FROM_EDGE_LOGS} WHERE IS_RECORD(edge_logs.metadata)"
    )


def test_of_nested_objects_only_the_innermost_is_tested(resolve_body: ResolveBody) -> None:
    """Test only the presence of the innermost object, because it implies that the objects around it are present."""
    resolved = resolve_body(
        "select r.path from edge_logs cross join unnest(metadata) as m cross join unnest(m.request) as r"
    )
    assert resolved == (
        f"SELECT PATH(edge_logs.metadata, 'request', 'path') AS path {FROM_EDGE_LOGS}"
        " WHERE IS_RECORD(PATH(edge_logs.metadata, 'request'))"
    )


def test_sibling_objects_and_objects_of_other_events_are_each_tested(resolve_body: ResolveBody) -> None:
    resolved = resolve_body(
        "select 1 from edge_logs e cross join unnest(e.metadata) as m cross join unnest(m.request) as r"
        " cross join unnest(m.response) as s cross join auth_logs a cross join unnest(a.metadata) as am"
    )
    assert resolved.endswith(
        "WHERE (IS_RECORD(PATH(e.metadata, 'request')) AND IS_RECORD(PATH(e.metadata, 'response')))"
        " AND IS_RECORD(a.metadata)"
    )


def test_a_comma_join_of_unnest_is_a_cross_join(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select m.status from edge_logs, unnest(metadata) as m")
    assert (
        resolved
        == f"SELECT PATH(edge_logs.metadata, 'status') AS status {FROM_EDGE_LOGS} WHERE IS_RECORD(edge_logs.metadata)"
    )


@pytest.mark.parametrize("source", ["edge_logs as t, t.metadata as m", "edge_logs as t cross join t.metadata as m"])
def test_a_path_of_an_earlier_table_is_unnested_implicitly(resolve_body: ResolveBody, source: str) -> None:
    resolved = resolve_body(f"select m.status from {source}")
    assert resolved == ("SELECT PATH(t.metadata, 'status') AS status FROM edge_logs AS t WHERE IS_RECORD(t.metadata)")


def test_a_left_join_keeps_the_row(resolve_body: ResolveBody) -> None:
    resolved = resolve_body(
        "select r.path from edge_logs left join unnest(metadata) m on true left join unnest(m.request) as r on true"
    )
    assert resolved == f"SELECT PATH(edge_logs.metadata, 'request', 'path') AS path {FROM_EDGE_LOGS}"


def test_a_left_join_on_a_condition_keeps_the_unnest(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select m.status from edge_logs left join unnest(metadata) as m on m.status > 1")
    assert "LEFT JOIN UNNEST(ELEMENTS(edge_logs.metadata)) AS m(m) ON PATH(m.m, 'status') > 1" in resolved


def test_an_inner_join_on_a_condition_filters_by_it(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select 1 from edge_logs join unnest(metadata) as m on m.status > 1")
    assert resolved.endswith("WHERE IS_RECORD(edge_logs.metadata) AND (PATH(edge_logs.metadata, 'status') > 1)")


def test_an_array_is_unnested_to_its_elements(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select tag from edge_logs cross join unnest(metadata.tags) as tag")
    assert resolved == (
        f"SELECT tag.tag AS tag {FROM_EDGE_LOGS} CROSS JOIN UNNEST(ARRAY_ELEMENTS(PATH(edge_logs.metadata, 'tags'))) AS tag(tag)"
    )


def test_the_fields_of_an_arrays_records_are_paths_into_the_element(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select s.name, at from edge_logs, unnest(metadata.steps) as s with offset as at")
    assert resolved.startswith("SELECT PATH(s.s, 'name') AS name, s.at AS at FROM")


def test_a_path_that_is_both_object_and_array_is_unnested_in_the_general_form(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select p.code, p.detail from edge_logs, unnest(metadata) m, unnest(m.parsed) p")
    assert "UNNEST(ELEMENTS(PATH(edge_logs.metadata, 'parsed'))) AS p(p)" in resolved


def test_unseen_streams_get_the_general_form(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select p.code from silent_logs, unnest(metadata) p")
    assert "UNNEST(ELEMENTS(silent_logs.metadata)) AS p(p)" in resolved


def test_the_offset_of_a_single_record_is_zero(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select o from edge_logs, unnest(metadata) as m with offset as o")
    assert resolved.startswith("SELECT 0 AS o FROM")


def test_the_first_element_of_a_record_is_the_record(resolve_body: ResolveBody) -> None:
    assert resolve_body("select metadata[0].request[offset(0)].path from edge_logs") == (
        f"SELECT PATH(edge_logs.metadata, 'request', 'path') AS path {FROM_EDGE_LOGS}"
    )


def test_a_subscript_of_a_possible_array_reads_its_elements(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select metadata.tags[0], metadata.request[1] from edge_logs")
    assert "ELEMENTS(PATH(edge_logs.metadata, 'tags'))[" in resolved
    assert "ELEMENTS(PATH(edge_logs.metadata, 'request'))[" in resolved


def test_event_arrays_are_elements_where_arrays_are_required(resolve: Callable[[str], ResolvedQuery]) -> None:
    tree = resolve(
        "select 1 from edge_logs where 'x' in unnest(metadata.tags) and array_length(metadata.tags) > 1"
    ).tree
    assert [elements.were_only_arrays_seen for _, elements in find_operations(tree, EventValueElements)] == [True, True]


def test_an_unqualified_name_is_a_field_of_the_records_in_scope(resolve_body: ResolveBody) -> None:
    resolved = resolve_body(
        "select path from edge_logs, unnest(metadata) as m, unnest(m.request) as r where status_code > 1 or true".replace(
            "status_code", "status"
        )
    )
    assert resolved.startswith("SELECT PATH(edge_logs.metadata, 'request', 'path') AS path")
    assert "PATH(edge_logs.metadata, 'status') > 1" in resolved


def test_a_column_comes_before_a_field_of_that_name(resolve_body: ResolveBody) -> None:
    assert resolve_body("select id from auth_logs, unnest(metadata) m").startswith("SELECT auth_logs.id AS id")


def test_a_field_of_two_records_is_ambiguous_and_both_are_named(resolve_body: ResolveBody) -> None:
    with pytest.raises(AmbiguousName, match=r"r\.method and s\.method") as raised:
        resolve_body("select method from edge_logs, unnest(metadata) m, unnest(m.request) r, unnest(m.response) s")
    assert str(raised.value.span) == "1:8"


def test_an_unknown_name_is_reported_with_the_most_similar_one(resolve_body: ResolveBody) -> None:
    with pytest.raises(UnknownNameInQuery) as raised:
        resolve_body("select\n  pth from edge_logs, unnest(metadata) m, unnest(m.request) r")
    assert str(raised.value.span) == "2:3"
    assert raised.value.hint == 'Did you mean "path"?'


def test_a_record_without_a_shape_may_have_any_field(resolve_body: ResolveBody) -> None:
    assert "PATH(r.r, 'anything') AS anything" in resolve_body("select anything from silent_logs, unnest(metadata) r")


def test_an_unseen_path_is_reported(resolve: Callable[[str], ResolvedQuery]) -> None:
    resolved = resolve("select m.request.pth, m.status from edge_logs, unnest(metadata) m")
    assert resolved.unseen_paths == ("metadata.request.pth; did you mean metadata.request.path?",)


def test_a_key_with_a_dash_is_found_by_its_cleaned_name(resolve_body: ResolveBody) -> None:
    for name in ("user_agent", "_user_agent", "User_Agent", "`user-agent`"):
        resolved = resolve_body(
            f"select h.{name} as x from edge_logs, unnest(metadata) m, unnest(m.request) r, unnest(r.headers) h"
        )
        assert "'headers', 'user-agent') AS x" in resolved


def test_a_key_matches_in_any_case_unless_backquoted(resolve_body: ResolveBody) -> None:
    assert "'headers', 'Host')" in resolve_body("select metadata.request.headers.host from edge_logs")
    assert "'headers', 'host')" in resolve_body("select metadata.request.headers.`host` from edge_logs")


def test_an_alias_may_be_the_column_that_it_unnests(resolve_body: ResolveBody) -> None:
    resolved = resolve_body(
        "select metadata.status, edge_logs.timestamp from edge_logs cross join unnest(metadata) as metadata"
    )
    assert resolved.startswith("SELECT PATH(edge_logs.metadata, 'status') AS status, edge_logs.timestamp AS timestamp")


def test_filters_of_a_parenthesised_join_apply_before_the_outer_join(resolve_body: ResolveBody) -> None:
    resolved = resolve_body(
        "select e.id from auth_logs a cross join unnest(a.metadata) as am"
        " left join (edge_logs as e cross join unnest(metadata) as em cross join unnest(em.request) as er)"
        " on am.level = er.path"
    )
    assert "LEFT JOIN edge_logs AS e ON PATH(a.metadata, 'level') = PATH(e.metadata, 'request', 'path') AND" in resolved
    assert "'path') AND IS_RECORD(PATH(e.metadata, 'request')) WHERE" in resolved
    assert resolved.endswith("WHERE IS_RECORD(a.metadata)")


def test_a_later_right_join_keeps_its_rows(resolve_body: ResolveBody) -> None:
    resolved = resolve_body(
        "select 1 from edge_logs e cross join unnest(e.metadata) m right join auth_logs a on m.status = a.id"
    )
    assert "CROSS JOIN UNNEST(ELEMENTS(e.metadata)) AS m(m)" in resolved
    assert "WHERE" not in resolved


def test_a_correlated_sub_query_unnests_the_outer_record(resolve_body: ResolveBody) -> None:
    resolved = resolve_body(
        "select (select count(*) from unnest(m.steps) s where s.name = 'x') as n from edge_logs, unnest(metadata) m"
    )
    assert "FROM UNNEST(ARRAY_ELEMENTS(PATH(edge_logs.metadata, 'steps'))) AS s(s)" in resolved


def test_records_pass_through_sub_queries(resolve_body: ResolveBody) -> None:
    resolved = resolve_body(
        "with r as (select id, m.request as req from edge_logs, unnest(metadata) m) select req.path from r"
    )
    assert resolved.endswith("SELECT PATH(r.req, 'path') AS path FROM r AS r")


def test_a_star_over_a_record_is_its_seen_fields(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select r.* except (headers) from edge_logs, unnest(metadata) m, unnest(m.request) r")
    assert resolved.startswith(
        "SELECT PATH(edge_logs.metadata, 'request', 'method') AS method,"
        " PATH(edge_logs.metadata, 'request', 'path') AS path FROM"
    )


def test_coalesce_with_an_empty_array_is_removed(resolve_body: ResolveBody) -> None:
    resolved = resolve_body(
        "select r.path from edge_logs, unnest(metadata) m left join unnest(coalesce(m.request, [])) r on true"
    )
    assert resolved.startswith(
        "SELECT PATH(edge_logs.metadata, 'request', 'path') AS path FROM edge_logs AS edge_logs WHERE"
    )


def test_the_fields_of_a_struct_have_the_names_of_its_columns(resolve_body: ResolveBody) -> None:
    resolved = resolve_body("select struct(e.id, m.status, 1 as one) as s from edge_logs e, unnest(metadata) m")
    assert "'id': e.id, 'status': PATH(e.metadata, 'status'), 'one': 1" in resolved


def test_the_alias_of_a_table_is_its_row(resolve_body: ResolveBody) -> None:
    assert "'id': e.id, 'timestamp': e.timestamp" in resolve_body("select e from edge_logs e")
