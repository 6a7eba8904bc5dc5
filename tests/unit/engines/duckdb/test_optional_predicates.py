"""Optional predicates: of `(@p IS NULL OR …)`, only the operand that matters for the parameter's value is run.

The rows are the same as with the whole predicate.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from uuid import UUID

import msgspec
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.model.datatype import Kind, Row
from cordwood.model.definitions import Endpoint, Parameter
from cordwood.model.event import Event, ReceivedEventBatch
from cordwood.model.redaction import RedactMode
from cordwood.sql.bind import bind_parameters
from cordwood.sql.compile import compile_saved_query, parse_and_check_endpoint
from cordwood.sql.plan import OptionalPredicate, Plan, PlanVariant, print_segments
from cordwood.sql.redaction.patterns import RedactionPolicy
from cordwood.sql.stages import Statement
from tests.contract.engine_asking import LIMITS, NEVER_CANCELLED, NOW_US, stream
from tests.unit.engines.duckdb.flushing import flush_pending

PARAMETERS = (Parameter("who"), Parameter("since", Kind.TIMESTAMP), Parameter("n", Kind.INT64))
VALUES = {"who": "p1", "since": "2023-11-14T22:13:30Z", "n": "3"}
PARAMETER_VALUES = [
    {name: value for name, value in value_pairs if value is not None}
    for value_pairs in product(*(((name, None), (name, value)) for name, value in VALUES.items()))
]
SINCE_CONDITION = "(@since is null or timestamp >= @since)"

QUERIES = {
    "guards of an endpoint": f"select id from `s` where (@who is null or project = @who) and {SINCE_CONDITION} order by id",
    "the newest": f"select id, metadata from `s` where {SINCE_CONDITION} and (@who is null or project = @who) order by timestamp desc limit 5",
    "one in another": f"select id from `s` where @who is null or (project = @who and {SINCE_CONDITION}) order by id",
    "another order": "select id from `s` where (project = @who or @who is null) order by id",
    "of two parameters": f"select id from `s` where @who is null or @n is null or (project = @who and mod(length(id), @n) = 0) and {SINCE_CONDITION} order by id",
    "negated": "select id from `s` where not (@who is null or project = @who) order by id",
    "both sides may be NULL": "select id from `s` where (@who is null or nullif(project, @who) is null) order by id",
    "nothing of it is used": f"select id from `s` where (@who is null or project = 'p2') and {SINCE_CONDITION} order by id",
    "in a sub-query": f"select count(*) as c from `s` as t where t.id in (select id from `s` where {SINCE_CONDITION}) and (@n is null or length(t.id) < @n)",
    "in groups": f"select project, count(*) as c from `s` where {SINCE_CONDITION} group by project having @n is null or count(*) > @n order by project",
    "a text that says the same": 'select id from `s` where (@who is null or project != \'($who IS NULL OR "s"."project" <> 1)\' and project = @who) order by id',
    "a union": f"select id from `s` where {SINCE_CONDITION} union all select id from `s` where (@n is null or length(id) = @n) order by id",
}


@pytest.fixture(scope="module", params=["in memory", "in the file"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDBEngine]:
    engine = DuckDBEngine(tmp_path_factory.mktemp("guards") / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    engine.append([ReceivedEventBatch("s", [event(number) for number in range(25)], NOW_US)])
    if request.param == "in the file":
        flush_pending(engine)
    yield engine
    engine.close()


def event(number: int) -> Event:
    project = None if number % 5 == 4 else f"p{number % 4}"
    return Event(
        f"e{number}",
        NOW_US + number * 1_000_000,
        f"from 10.0.0.{number}",
        metadata=f'{{"number":{number}}}',
        project=project,
    )


def compile_query(engine: DuckDBEngine, sql: str, redaction: RedactionPolicy | None = None) -> Statement:
    endpoint = Endpoint("test", UUID(int=1), sql, "1", parameters=PARAMETERS)
    return compile_saved_query(
        parse_and_check_endpoint(endpoint), engine.compile_target, engine.shapes_by_stream(), redaction
    )


def without_optional_predicates(statement: Statement) -> Statement:
    """Return the statement with the whole predicates in place of its optional predicates."""
    variants = [
        PlanVariant((print_segments(variant.segments),), variant.event_range, variant.has_optimistic_redaction)
        for variant in statement.plan.variants
    ]
    return msgspec.structs.replace(statement, plan=Plan(tuple(variants)))


def variants_of(statement: Statement) -> set[tuple[str, bool]]:
    return {(variant.event_range.value, variant.has_optimistic_redaction) for variant in statement.plan.variants}


def has_optional(variant: PlanVariant) -> bool:
    return any(isinstance(segment, OptionalPredicate) for segment in variant.segments)


def answer_rows(engine: DuckDBEngine, statement: Statement, values: Mapping[str, str]) -> list[Row]:
    question = bind_parameters(statement, values, NOW_US, engine.regex_error)
    return [row for part in engine.answer(question, LIMITS, NEVER_CANCELLED).batches for row in part]


@pytest.mark.parametrize("values", PARAMETER_VALUES, ids=lambda values: " ".join(values) or "none")
@pytest.mark.parametrize("query", QUERIES)
def test_the_rows_are_those_of_the_full_predicate(engine: DuckDBEngine, query: str, values: Mapping[str, str]) -> None:
    statement = compile_query(engine, QUERIES[query])
    assert answer_rows(engine, statement, values) == answer_rows(engine, without_optional_predicates(statement), values)


@pytest.mark.parametrize("values", PARAMETER_VALUES, ids=lambda values: " ".join(values) or "none")
def test_redacted_rows_are_those_of_the_full_predicate(engine: DuckDBEngine, values: Mapping[str, str]) -> None:
    sql = f"select upper(event_message) as text from `s` where {SINCE_CONDITION} and (@who is null or project = @who) order by id"
    statement = compile_query(engine, sql, RedactionPolicy(RedactMode.REPLACE))
    assert variants_of(statement) == {
        (reads, is_optimistic) for reads in ("all", "flushed") for is_optimistic in (0, 1)
    }
    assert all(has_optional(variant) for variant in statement.plan.variants)
    result_rows = answer_rows(engine, statement, values)
    assert result_rows == answer_rows(engine, without_optional_predicates(statement), values)
    assert result_rows[0] == ("FROM REDACTED",)


def test_most_comparisons_have_rows(engine: DuckDBEngine) -> None:
    comparisons_with_rows = [
        len(answer_rows(engine, compile_query(engine, sql), values))
        for sql in QUERIES.values()
        for values in PARAMETER_VALUES
    ]
    assert sum(count > 0 for count in comparisons_with_rows) > len(comparisons_with_rows) / 2


def where_clause(engine: DuckDBEngine, sql: str, **values: object) -> str:
    """Return the WHERE clause of the SQL that DuckDB runs, without parentheses and quotes."""
    statement = compile_query(engine, sql)
    printed = print_segments(statement.plan.variants[0].segments, dict.fromkeys(VALUES) | values)
    return re.sub(r'[()"]', "", printed[printed.index("WHERE") : printed.index(" ORDER")])


def test_without_a_value_only_the_null_check_remains(engine: DuckDBEngine) -> None:
    printed = where_clause(engine, QUERIES["guards of an endpoint"])
    assert printed == "WHERE $who IS NULL AND $since IS NULL"


def test_with_a_value_the_null_check_is_removed(engine: DuckDBEngine) -> None:
    printed = where_clause(engine, QUERIES["guards of an endpoint"], who="p1", since=NOW_US)
    assert printed == "WHERE s.project = $who AND s.timestamp >= CAST$since AS TIMESTAMPTZ"


def test_each_predicate_is_decided_by_itself_also_when_nested(engine: DuckDBEngine) -> None:
    nested_predicates = QUERIES["one in another"]
    assert where_clause(engine, nested_predicates, since=NOW_US) == "WHERE $who IS NULL"
    assert (
        where_clause(engine, nested_predicates, who="p1")
        == "WHERE s.project = $who AND $since IS NULL OR s.timestamp >= CAST$since AS TIMESTAMPTZ"
    )


def test_a_value_that_no_remaining_side_uses_is_not_bound(engine: DuckDBEngine) -> None:
    sql = QUERIES["nothing of it is used"]
    assert where_clause(engine, sql, who="p1", since=None) == "WHERE s.project = 'p2' AND $since IS NULL"
    assert answer_rows(engine, compile_query(engine, sql), {"who": "p1"}) == [
        ("e10",),
        ("e18",),
        ("e2",),
        ("e22",),
        ("e6",),
    ]


def test_a_negated_predicate_is_not_optional(engine: DuckDBEngine) -> None:
    assert "$who IS NULL OR" in where_clause(engine, QUERIES["negated"], who="p1")


def test_the_sql_that_is_displayed_has_both_sides(engine: DuckDBEngine) -> None:
    statement = compile_query(engine, QUERIES["guards of an endpoint"])
    assert '($who IS NULL) OR ("s"."project" = $who)' in statement.sql
    statement.sql.encode()
    assert variants_of(statement) == {("all", False), ("flushed", False)}
    assert all(has_optional(variant) for variant in statement.plan.variants)
