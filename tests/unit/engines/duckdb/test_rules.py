"""DuckDB's rules for BigQuery functions: the SQL that they print, and its errors. Results are tested in spec/sql."""

from collections.abc import Iterator

import duckdb
import pytest

from cordwood.engines.duckdb.faults import translate_duckdb_errors
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import BadQueryValue, QueryUnsupported
from cordwood.sql.compile import compile_standalone_query
from cordwood.sql.rules.strings import count_capturing_groups, may_capturing_group_be_unmatched


def compile_sql(sql: str) -> str:
    return compile_standalone_query(sql, DuckDBTarget()).sql


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    opened = duckdb.connect(config={"threads": 1})
    opened.execute("SET TimeZone='UTC'")
    yield opened
    opened.close()


def answer(connection: duckdb.DuckDBPyConnection, expression: str) -> object:
    (row,) = connection.execute(compile_sql(f"select {expression}")).fetchall()
    return row[0]


def test_timestamp_trunc_uses_utc_wall_clock_time() -> None:
    sql = compile_sql("select timestamp_trunc(x, hour) as h from unnest([timestamp '2024-01-01 00:00:00+00']) as x")
    assert 'make_timestamptz(epoch_us(date_trunc(\'hour\', make_timestamp(epoch_us("x"."x")))))' in sql


def test_a_column_used_twice_is_not_bound_to_a_name() -> None:
    assert "list_transform" not in compile_sql("select 1 / x as y from unnest([1]) as x")


def test_an_expensive_expression_is_evaluated_once() -> None:
    sql = compile_sql("select 1 / length(regexp_replace(x, 'a', 'b')) as y from unnest(['a']) as x")
    assert sql.count("regexp_replace") == 1


def test_a_constant_divisor_is_not_checked_for_zero() -> None:
    assert "CASE" not in compile_sql("select x / 2 as y from unnest([1]) as x")


def test_one_element_of_approx_quantiles_computes_one_quantile() -> None:
    sql = compile_sql("select approx_quantiles(x, 100)[offset(95)] as p from unnest([1, 2]) as x")
    assert 'quantile_disc("x"."x", 0.95)' in sql


def test_a_format_that_is_not_a_literal_is_refused() -> None:
    with pytest.raises(QueryUnsupported, match=r"format that is not a literal"):
        compile_sql("select format_date(f, date '2024-01-01') as d from (select '%Y' as f)")


def test_more_than_one_capturing_group_is_an_error_with_a_position() -> None:
    with pytest.raises(BadQueryValue, match="more than 1 capturing group") as caught:
        compile_sql("select regexp_extract('ab', '(a)(b)') as x")
    assert caught.value.span is not None


@pytest.mark.parametrize(
    ("pattern", "count"),
    [("a", 0), ("(a)", 1), ("(?:a)", 0), (r"\(a\)", 0), ("[(]", 0), ("[]()]", 0), ("[^](]", 0), ("(?P<n>a)(b)", 2)],
)
def test_groups_are_counted_as_re2_does(pattern: str, count: int) -> None:
    assert count_capturing_groups(pattern) == count


@pytest.mark.parametrize("pattern", ["(z)?b", "a|(b)", "(?:a|(b))", "(?:(a)b)*", "((?:a))?"])
def test_a_capturing_group_that_may_not_match_is_optional(pattern: str) -> None:
    assert may_capturing_group_be_unmatched(pattern)


@pytest.mark.parametrize("pattern", ["(a|b)c", "(?:(a)b)+", "[|](a)", r"\|(b)", "(?:a|b)(c)", "(z?)"])
def test_a_capturing_group_that_always_matches_is_not_optional(pattern: str) -> None:
    assert not may_capturing_group_be_unmatched(pattern)


def test_runtime_errors_have_our_messages(connection: duckdb.DuckDBPyConnection) -> None:
    for expression, message in [
        ("1 / x from unnest([0]) as x", "division by zero"),
        ("cast(x as int64) from unnest(['a']) as x", "Bad int64 value"),
        ("[1][offset(x)] from unnest([5]) as x", "Array index is out of bounds"),
        ("substr('abc', 1, x) from unnest([-1]) as x", "cannot be negative"),
        ("repeat('x', x) from unnest([3000000000]) as x", "longer than 16384 bytes"),
        ("parse_date('%Y', x) from unnest(['z']) as x", "Failed to parse input string"),
    ]:
        with pytest.raises(duckdb.Error, match=f"cordwood: .*{message}"):
            answer(connection, expression)


@pytest.mark.parametrize("expression", ["mod(1, x)", "div(1, x)"])
def test_messages_omit_duckdbs_hints(connection: duckdb.DuckDBPyConnection, expression: str) -> None:
    with pytest.raises(BadQueryValue) as caught, translate_duckdb_errors():
        answer(connection, f"{expression} from unnest([0]) as x")
    assert caught.value.message == "Division by zero"


def test_a_format_with_a_huge_width_is_refused_at_compile_time() -> None:
    with pytest.raises(QueryUnsupported, match="So wide a field"):
        compile_sql("select format('%1000000000d', 1) as x")


def test_placeholders_in_literals_are_not_expanded(connection: duckdb.DuckDBPyConnection) -> None:
    assert answer(connection, "format('{0} @a %s {1}', 'x{2}')") == "{0} @a x{2} {1}"
    assert answer(connection, "format_date('{0} %Y @b', date '2024-01-01')") == "{0} 2024 @b"
    assert answer(connection, "json_value('{\"a{0}\": 1}', '$.a{0}')") == "1"
