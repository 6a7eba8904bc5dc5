"""Syntax of other SQL dialects is refused with its position, and their keywords remain valid names."""

import pytest

from cordwood.errors import BadQuerySyntax, QueryFault, QueryRefused
from cordwood.sql.admit import admit_query
from cordwood.sql.parse import parse_sql


def refusal(text: str) -> QueryFault:
    with pytest.raises(QueryFault) as raised:
        admit_query(parse_sql(text))
    return raised.value


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("select a -> 'b' from t", 10),
        ("select a ->> 'b' from t", 10),
        ("select a == b from t", 10),
        ("select a <=> b from t", 10),
        ("select !a from t", 8),
        ("select a % 2 from t", 10),
        ("select a && b from t", 10),
        ("select a[1:2] from t", 11),
        ("select {'a': 1}", 8),
        ("select n'a'", 8),
        ("select 0b101", 9),
        ("select 1_000", 9),
        ("select 9223372036854775809", 8),
        ("select 1 as 'x'", 13),
        ("select 1 as r'x'", 13),
        ("select * exclude (a) from t", 10),
        ("select interval '1 day'", 17),
        ("select cast(1 as varchar)", 18),
        ("select safe_cast(1 as double)", 23),
    ],
)
def test_operators_and_keywords_of_other_dialects_are_syntax_errors_with_position(text: str, column: int) -> None:
    fault = refusal(text)
    assert isinstance(fault, BadQuerySyntax)
    assert fault.span is not None
    assert (fault.span.line, fault.span.column) == (1, column)


@pytest.mark.parametrize(
    "name", ["iif", "arg_max", "char", "convert", "try_cast", "position", "xor", "nvl", "len", "json_objectagg"]
)
def test_a_function_under_the_name_of_another_dialect_cannot_be_called(name: str) -> None:
    fault = refusal(f"select\n  {name}(a, b, c) from t")
    assert isinstance(fault, QueryRefused)
    assert name.upper() in fault.message
    assert fault.span is not None
    assert (fault.span.line, fault.span.column) == (2, 3)


@pytest.mark.parametrize("word", ["ilike", "rlike", "regexp", "glob", "xor"])
def test_operator_words_of_other_dialects_are_names(word: str) -> None:
    assert isinstance(refusal(f"select a {word} b from t"), BadQuerySyntax)


@pytest.mark.parametrize("word", ["regexp", "ilike", "rlike", "glob", "xor", "drop", "insert", "lock", "current_user"])
def test_words_that_bigquery_does_not_reserve_are_names(word: str) -> None:
    tree = admit_query(
        parse_sql(f"select t.{word}, {word} as {word}, {word} + 1 from {word} as t where {word} = 1")
    ).tree
    assert tree.expressions[1].alias == word


@pytest.mark.parametrize(
    ("literal", "expected"),
    [(r"rb'\n'", "\\n"), (r'bR"é"', "Ã©"), (r"Rb'''a'b'''", "a'b"), (r"br''", ""), (r"rb'a\x\d'", "a\\x\\d")],
)
def test_raw_bytes_are_bytes_with_their_backslashes(literal: str, expected: str) -> None:
    tree = admit_query(parse_sql(f"select {literal}")).tree
    assert tree.expressions[0].this == expected


def test_the_cast_that_self_hosted_studio_sends_is_accepted() -> None:
    assert admit_query(parse_sql("select event_message::text from t")).tree is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select from t", "SELECT list must not be empty"),
        ("select 1 where true", "Query without FROM clause cannot have a WHERE clause"),
        ("select 1 having true", "Query without FROM clause cannot have a HAVING clause"),
        ("select a from t offset 1", "OFFSET stands after LIMIT only"),
        ("select a from t join u", "INNER JOIN must have an immediately following ON or USING clause"),
        ("select a from t left join u", "LEFT JOIN must have an immediately following ON or USING clause"),
        ("select a from t limit 1.5", "LIMIT expects a whole number that is not negative"),
        ("select a from t limit null", "LIMIT expects a whole number that is not negative"),
        ("select a from t limit 1, 2", "LIMIT takes one number"),
        ("select a from t limit 1 by a", "EXPRESSIONS cannot stand in LIMIT here"),
        ("select a from t group by a with rollup", "ROLLUP cannot stand in GROUP here"),
        ("select * rename (a as b) from t", "RENAME cannot stand in STAR here"),
        ("select * from unnest([1]) with ordinality", "no clause WITH ORDINALITY"),
        ("select a from (select 1) as t(a)", "An alias of a table cannot name its columns"),
        ("select count() from t", "COUNT needs an argument"),
    ],
)
def test_a_misplaced_clause_is_a_syntax_error(text: str, message: str) -> None:
    fault = refusal(text)
    assert isinstance(fault, BadQuerySyntax)
    assert message in fault.message


@pytest.mark.parametrize(
    "text",
    [
        "select a from t join t.items",
        "select a from t left join unnest(items) as item",
        "select a from t cross join u",
        "select a from t, u",
        "select a from t join u join v using (x) using (y)",
        "select a from t limit @rows offset @start",
        "select a like any ('x%', 'y%'), a not like all ('x', 'y') from t",
        "select a from t intersect all select 1",
        "select true and (a or b), not (a) from t",
    ],
)
def test_syntax_of_bigquery_is_accepted(text: str) -> None:
    assert admit_query(parse_sql(text)).tree is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select a from t where sum(a) > 1", "Aggregate function SUM not allowed in WHERE clause"),
        ("select (select 1 from u where max(t.a) > 1) from t", "Aggregate function MAX not allowed in WHERE clause"),
        ("select a from t group by a, count(*)", "Aggregate function COUNT not allowed in GROUP BY"),
        ("select a from t join u on avg(t.a) = u.a", "Aggregate function AVG not allowed in JOIN ON clause"),
        ("select sum(sum(a)) from t", "Aggregations of aggregations are not allowed"),
        ("select a from t where row_number() over () = 1", "Analytic function not allowed in WHERE clause"),
        ("select a from t group by a having sum(a) over () > 1", "Analytic function not allowed in HAVING clause"),
    ],
)
def test_an_aggregate_in_where_or_group_by_is_a_syntax_error(text: str, message: str) -> None:
    fault = refusal(text)
    assert isinstance(fault, BadQuerySyntax)
    assert message in fault.message
    assert fault.span is not None


@pytest.mark.parametrize(
    "text",
    [
        "select sum(sum(a)) over () from t",
        "select a, rank() over (order by sum(b)) from t group by a",
        "select a from t where a > (select avg(b) from u)",
        "select max((select count(*) from u)) from t",
        "select a from t qualify sum(a) over () > 1",
    ],
)
def test_an_aggregate_in_a_window_or_a_sub_query_is_accepted(text: str) -> None:
    assert admit_query(parse_sql(text)).tree is not None
