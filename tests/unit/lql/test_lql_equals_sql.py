"""LQL filters select the same events as equivalent SQL, and any text is answered or refused with a position."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cordwood.errors import QueryFault, QueryRefused
from tests.unit.lql.conftest import LqlEngine
from tests.unit.lql.queries import TEXTS_LIKE_QUERIES

SELECT_IDS = (
    "select t.id from edge_logs as t left join unnest(t.metadata) as m on true left join unnest(m.request) as r on true"
)

# LQL filters, each with the equivalent SQL condition.
LQL_AND_SQL = [
    ("error", "strpos(t.event_message, 'error') > 0"),
    ("GET", "strpos(t.event_message, 'GET') > 0"),
    ('"/auth 404"', "strpos(t.event_message, '/auth 404') > 0"),
    (r'"\"quoted\" \\ b"', r"""strpos(t.event_message, '"quoted" \\ b') > 0"""),
    ("~^(GET|POST)", r"regexp_contains(t.event_message, r'^(GET|POST)')"),
    ("project:a", "t.project = 'a'"),
    ("project:>a", "t.project > 'a'"),
    ("id:2", "t.id = '2'"),
    ("size:1", "t.size = 1"),
    ("size:>=2", "t.size >= 2"),
    ("guessed:false", "t.guessed = false"),
    ("m.status:200", "m.status = 200"),
    ("m.status:>=404", "m.status >= 404"),
    ("m.status:<500", "m.status < 500"),
    ('m.status:"404"', "m.status = '404'"),
    ("m.status:200..404", "m.status between 200 and 404"),
    ("m.ms:-3", "m.ms = -3"),
    ("m.ms:>1.4", "m.ms > 1.4"),
    ("m.ms:-3..1.5", "m.ms between -3 and 1.5"),
    ("m.ok:true", "m.ok = true"),
    ("m.ok:false", "m.ok = false"),
    ('m.ok:"true"', "m.ok = 'true'"),
    ("m.path:/rest", "m.path = '/rest'"),
    ('m.path:""', "m.path = ''"),
    ("m.path:~^/rest", "regexp_contains(m.path, r'^/rest')"),
    ("m.path:>/b", "m.path > '/b'"),
    ("m.status:NULL", "m.status is null"),
    ("m.never:NULL", "m.never is null"),
    ("m.never:5", "m.never = 5"),
    ("m.level:info..warning", "m.level in ('info', 'notice', 'warning')"),
    ("m.zip:0123", "(m.zip = '0123' or m.zip = 123)"),
    ("m.tags:@>prod", "exists(select 1 from unnest(m.tags) as e where e = 'prod') or m.tags = 'prod'"),
    ("m.tags:@>~.", "array_length(m.tags) > 0 or json_value(m.tags) is not null"),
    ('m.tags:@>"[]"', "false"),
    ("m.tags:@>~^e", "exists(select 1 from unnest(m.tags) as e where regexp_contains(e, '^e'))"),
    ("m.request.host:x.y", "r.host = 'x.y'"),
    ("m.request.n:>=6", "r.n >= 6"),
    ("m.calls.ms:>5", "exists(select 1 from unnest(m.calls) as c where c.ms > 5)"),
    ("t:2024-05-15", "t.timestamp >= timestamp '2024-05-15' and t.timestamp < timestamp '2024-05-16'"),
    ("t:>2024-05-14", "t.timestamp >= timestamp '2024-05-15'"),
    ("t:<=2024-01-02T03:04:05.5Z", "t.timestamp <= timestamp '2024-01-02 03:04:05.5'"),
    ("t:today", "date(t.timestamp) = date '2024-05-15'"),
    ("t:yesterday", "date(t.timestamp) = date '2024-05-14'"),
    ("t:last@5m", "t.timestamp between timestamp '2024-05-15 12:29:00' and timestamp '2024-05-15 12:34:56'"),
]
ANY_LQL_AND_SQL = st.sampled_from(LQL_AND_SQL)


def ids_by_lql(lql_engine: LqlEngine, lql: str) -> set[object]:
    return {row[0] for row in lql_engine.lql(f"s:id {lql}")}


def ids_by_sql(lql_engine: LqlEngine, condition: str) -> set[object]:
    return {row[0] for row in lql_engine.sql(f"{SELECT_IDS} where {condition}")}


@pytest.mark.parametrize(("lql", "condition"), LQL_AND_SQL)
def test_a_filter_selects_the_same_events_as_its_sql_condition(lql_engine: LqlEngine, lql: str, condition: str) -> None:
    assert ids_by_lql(lql_engine, lql) == ids_by_sql(lql_engine, condition)


@pytest.mark.parametrize(("lql", "condition"), LQL_AND_SQL)
def test_a_negated_filter_selects_all_other_events(lql_engine: LqlEngine, lql: str, condition: str) -> None:
    all_ids = {str(number) for number in range(1, 8)}
    assert ids_by_lql(lql_engine, f"-{lql}") == all_ids - ids_by_sql(lql_engine, condition)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(ANY_LQL_AND_SQL, ANY_LQL_AND_SQL, ANY_LQL_AND_SQL)
def test_or_groups_and_negation_combine_as_set_operations(
    lql_engine: LqlEngine, first: tuple[str, str], second: tuple[str, str], third: tuple[str, str]
) -> None:
    a, b, c = (ids_by_sql(lql_engine, condition) for _, condition in (first, second, third))
    assert ids_by_lql(lql_engine, f"{first[0]} OR {second[0]} {third[0]}") == a | (b & c)
    assert ids_by_lql(lql_engine, f"({first[0]} OR {second[0]}) -({third[0]} {first[0]})") == (a | b) - (c & a)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(TEXTS_LIKE_QUERIES)
def test_any_text_is_answered_or_refused_with_its_position(lql_engine: LqlEngine, text: str) -> None:
    try:
        lql_engine.lql(text)
    except QueryFault as fault:
        assert not isinstance(fault, QueryRefused)
        assert fault.span is not None
