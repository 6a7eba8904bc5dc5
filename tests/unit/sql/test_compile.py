"""The whole compiler on endpoints: the row limit, the slots, and faults with positions in the file."""

import msgspec
import pytest

from cordwood.errors import BadEndpointFile, QueryRefused, UnknownNameInQuery
from cordwood.model.datatype import Kind
from cordwood.model.definitions import Parameter
from cordwood.sql.compile import (
    compile_sandbox_query,
    compile_saved_query,
    compile_standalone_query,
    parse_and_check_endpoint,
)
from cordwood.sql.program import EndpointProgram
from tests.unit.sql.conftest import SHAPES, PlainTarget, make_endpoint


def sandbox(program: EndpointProgram, text: str) -> str:
    return compile_sandbox_query(program, text, PlainTarget(), SHAPES).sql


@pytest.mark.parametrize(
    ("limit", "expected", "row_limit"),
    [
        ("", "LIMIT 1001", 1001),
        ("limit 5", "LIMIT 5", 5),
        ("limit 5000", "LIMIT 1001", 1001),
        ("limit 5 offset 7", "LIMIT 5 OFFSET 7", 5),
        ("limit @project", "LIMIT $project", None),
    ],
)
def test_the_limit_is_one_more_than_max_rows_and_is_part_of_the_statement(
    program: EndpointProgram, limit: str, expected: str, row_limit: int | None
) -> None:
    statement_ = compile_sandbox_query(program, f"select id from edge_logs {limit}", PlainTarget(), SHAPES)
    assert statement_.sql.endswith(expected)
    assert statement_.row_limit == row_limit


def test_the_limit_applies_to_a_whole_set_operation(program: EndpointProgram) -> None:
    statement_ = sandbox(program, "select id from edge_logs union all select id from auth_logs")
    assert statement_.endswith("LIMIT 1001")
    assert statement_.count("LIMIT") == 1


def test_the_limit_of_the_saved_query_does_not_apply_to_sandbox_queries(program: EndpointProgram) -> None:
    assert "LIMIT 100 " not in sandbox(program, "select id from edge_logs") + " "
    assert compile_saved_query(program, PlainTarget(), SHAPES).sql.endswith("LIMIT 100")


def test_every_declared_parameter_is_a_slot_with_its_use(program: EndpointProgram) -> None:
    statement = compile_sandbox_query(program, "select current_timestamp() as t, 1 as one", PlainTarget(), {})
    assert [(slot.name, slot.is_read) for slot in statement.slots] == [
        ("project", False),
        ("since", False),
        ("now", True),
    ]


def test_a_statement_lists_its_columns_sub_queries_and_streams(program: EndpointProgram) -> None:
    statement = compile_sandbox_query(
        program, "select a.id, count(*) from auth_logs a join edge_logs e using (id) group by 1", PlainTarget(), SHAPES
    )
    assert statement.column_names == ("id", "f0_")
    assert statement.sub_queries == ("edge_logs", "auth_logs")
    assert set(statement.streams) == {"edge.stream", "auth"}


def test_compilation_is_deterministic(program: EndpointProgram) -> None:
    text = "select m.status, count(*) as n from edge_logs, unnest(metadata) m group by 1"
    assert sandbox(program, text) == sandbox(program, text)


@pytest.mark.parametrize(
    ("sql", "place", "words"),
    [
        ("select id\nfrom `edge.stream`\nwhere nope(id)", "test.sql:13:7", "NOPE"),
        ("select id from `edge.stream` where project = @nope", "test.sql:11:46", "@nope"),
        ("select id\n  fro `edge.stream` x", "test.sql:12:3", "Syntax"),
        ("with a as (select 1 as x) select a.nope from a", "test.sql:11:36", "nope"),
        ("with a as (select id from `other.stream`) select 1 as x", "test.sql:11:27", "other.stream"),
        ("drop table x", "test.sql:11:1", "DROP"),
    ],
)
def test_an_error_in_an_endpoint_has_its_position_in_the_file(sql: str, place: str, words: str) -> None:
    broken = msgspec.structs.replace(make_endpoint(sql), query_first_line=11)
    with pytest.raises(BadEndpointFile) as raised:
        parse_and_check_endpoint(broken, ["edge.stream", "auth"])
    assert str(raised.value.span) == place
    assert words in raised.value.message


def test_a_sub_query_that_is_never_read_is_checked_too() -> None:
    with pytest.raises(BadEndpointFile):
        parse_and_check_endpoint(
            make_endpoint("with unread as (select 1 from `edge.stream` where ghost(1)) select 1 as x")
        )


def test_a_parameter_cannot_be_called_now() -> None:
    with pytest.raises(BadEndpointFile):
        parse_and_check_endpoint(make_endpoint("select @now as t", Parameter("now", Kind.STRING)))


def test_standalone_sql_reads_only_its_own_ctes() -> None:
    assert compile_standalone_query("with a as (select 1 as x) select x from a", PlainTarget()).sql
    with pytest.raises(QueryRefused):
        compile_standalone_query("select * from edge_logs", PlainTarget())


def test_standalone_sql_has_no_slots_and_no_limit() -> None:
    statement = compile_standalone_query("select current_timestamp() as t", PlainTarget())
    assert statement.slots == ()
    assert "LIMIT" not in statement.sql
    assert statement.row_limit is None
    with pytest.raises(UnknownNameInQuery):
        compile_standalone_query("select @x", PlainTarget())


def test_a_star_over_pivot_has_the_columns_of_the_pivot(program: EndpointProgram) -> None:
    pivoted = "(select id, event_message as m from edge_logs) pivot(count(id) for m in ('a', 'b'))"
    assert ' AS "b" ' in sandbox(program, f"select * from {pivoted}")
