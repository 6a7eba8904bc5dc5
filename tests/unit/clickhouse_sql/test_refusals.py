"""Refusals of ClickHouse SQL, with their position and hint."""

import pytest

from cordwood.clickhouse_sql.functions import TRANSLATOR_BY_FUNCTION
from cordwood.clickhouse_sql.functions.aggregates import AGGREGATE_NAMES
from cordwood.clickhouse_sql.parse import parse_clickhouse_sql, require_permitted_syntax
from cordwood.clickhouse_sql.permitted_syntax import PERMITTED_AGGREGATES
from cordwood.clickhouse_sql.permitted_syntax import PERMITTED_FUNCTIONS as PERMITTED
from cordwood.clickhouse_sql.select import QueryTranslator
from cordwood.errors import QueryFault
from cordwood.sql.budget import compilation_scope


@pytest.mark.parametrize(
    ("sql", "column", "message", "hint"),
    [
        ("SELECT * FROM logs", 8, '"*" is refused.', "Name the columns"),
        ("SELECT id FROM logs PREWHERE id = ''", 30, "PREWHERE is refused.", "Write WHERE."),
        ("SELECT id FROM logs LIMIT 1 BY id", 32, "LIMIT … BY is refused.", "Write GROUP BY"),
        ("SELECT id FROM logs LIMIT 1 WITH TIES", None, "WITH TIES is refused.", "Leave it out."),
        ("SELECT a.id FROM logs AS a JOIN logs AS b ON a.id = b.id", None, "JOIN is refused.", "There is one table"),
        ("SELECT row_number() OVER () FROM logs", None, "A window function is refused.", "Aggregate with GROUP BY"),
        ("SELECT id FROM logs WHERE id IN (SELECT id FROM logs)", None, "A query in IN is refused.", "in FROM"),
        ("SELECT arrayMap(x -> x, [1])", 8, "arrayMap is refused.", "arrayJoin"),
        ("SELECT id FROM logs SETTINGS max_threads = 1", 30, "SETTINGS is refused.", "Leave it out."),
        ("SELECT id FROM logs FORMAT JSON", 28, "FORMAT is refused.", "Leave it out."),
        ("SELECT toInt32OrZeros('1')", 8, "The function toInt32OrZeros cannot be called here.", "toInt32OrZero?"),
        ("SELECT toTypeName(1)", 8, "The function toTypeName cannot be called here.", "listed in the guide"),
        ("SELECT Year(timestamp)", 8, "The function Year cannot be called here.", "Did you mean toYear?"),
        (f"SELECT {'1' * 5000}", 8, "The number is too large: whole numbers have 64 bits.", "fewer digits"),
        (
            f"SELECT id FROM logs LIMIT {'1' * 5000}",
            27,
            "The number is too large: whole numbers have 64 bits.",
            "digits",
        ),
        ("SELECT file('x')", 8, "The function file cannot be called here.", "listed in the guide"),
    ],
)
def test_a_refusal_has_a_position_and_a_hint(sql: str, column: int | None, message: str, hint: str) -> None:
    with pytest.raises(QueryFault) as caught:
        require_permitted_syntax(parse_clickhouse_sql(sql))
    fault = caught.value
    assert fault.message == message
    assert hint in (fault.hint or "")
    assert fault.span is not None
    assert column in (None, fault.span.column)


@pytest.mark.parametrize(
    ("sql", "message", "hint"),
    [
        ("SELECT concat(['a'], 'x')", "An Array(String) cannot be made a text.", "arrayStringConcat"),
        ("SELECT 'x' || map('a', 'b')", "A Map cannot be made a text.", "a value of the map"),
        ("SELECT concat('x', INTERVAL 1 DAY)", "An Interval cannot be made a text.", ""),
        ("SELECT coalesce(map('a', 'b'), map())", "A map cannot stand here.", "a value of the map"),
        ("SELECT if(1 = 1, map('a', 'b'), map())", "A map cannot stand here.", "a value of the map"),
        ("SELECT CASE WHEN 1 = 1 THEN map('a', 'b') END", "A map cannot stand here.", "a value of the map"),
        ("SELECT greatest(map('a', 'b'))", "A map cannot stand here.", "a value of the map"),
        ("SELECT [map('a', 'b')]", "A map cannot stand here.", "a value of the map"),
        ("SELECT map('a', map('b', 'c'))", "A map cannot stand here.", "a value of the map"),
        ("SELECT nullIf(map('a', 1), map('a', 1))", "A Map cannot be NULL.", "Compare a value"),
        ("SELECT nullIf([1], [1])", "An Array(Int64) cannot be NULL.", "Compare a value"),
        ("SELECT true AS x UNION ALL SELECT 5", 'The column "x" is a Bool in one branch and an Int64 in another.', ""),
        (
            "SELECT [1] AS x UNION ALL SELECT NULL",
            'The column "x" is an Array(Int64) in one branch and a Nothing in another.',
            "",
        ),
        (
            "SELECT 1 AS x UNION ALL SELECT 'a'",
            'The column "x" is an Int64 in one branch and a String in another.',
            "Convert",
        ),
        ("SELECT 1 AS x UNION ALL SELECT 2, 3", "The branches of UNION ALL have 1 and 2 columns.", "as many in each"),
        (
            "SELECT map('a', 1) AS m UNION ALL SELECT map('a', 'b')",
            'The values of the map "m" have different types in the branches.',
            "Convert",
        ),
        (
            "SELECT m FROM (SELECT map('a', today()) AS m)",
            'A query cannot read the map "m", whose values are of the type Date.',
            "columns of their own",
        ),
        ("SELECT 1e400", "The number is too large: floats have 64 bits.", ""),
        ("SELECT uniq(map('a', 'b'))", "Maps cannot be counted so.", "a value of the map"),
        ("SELECT count(DISTINCT map('a', 'b'))", "Maps cannot be counted so.", "a value of the map"),
    ],
)
def test_a_value_of_an_unsuitable_type_is_refused(sql: str, message: str, hint: str) -> None:
    parsed = require_permitted_syntax(parse_clickhouse_sql(sql))
    with compilation_scope(), pytest.raises(QueryFault) as caught:
        QueryTranslator(sql, list, {}, 1000).translate_to_answer(parsed.tree)
    fault = caught.value
    assert fault.message == message
    assert hint in (fault.hint or "")
    assert fault.span is not None


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT id FROM logs WHERE", 'an expression is missing near "WHERE"'),
        ("SELECT id FROM logs GROUP BY where", 'an expression is missing near "where"'),
        ("SELECT id FROM", 'the name of a table is missing near "FROM"'),
        ("SELECT id FROM logs ORDER x", 'unexpected word near "x"'),
        ("SELECT CAST(id String) FROM logs", 'AS is missing after CAST near "String"'),
        ("WITH 1 AS x id FROM logs", 'a SELECT is missing after WITH near "FROM"'),
        ("SELECT CASE WHEN 1 THEN 2 FROM logs", 'END is missing after CASE near "2"'),
        ("SELECT id FROM logs WHERE id = 'a' WHERE id = 'b'", 'there are several WHERE clauses near "WHERE"'),
    ],
)
def test_a_syntax_error_has_no_words_of_the_parser(sql: str, message: str) -> None:
    with pytest.raises(QueryFault) as caught:
        parse_clickhouse_sql(sql)
    assert caught.value.message == f"Syntax error: {message}."


def test_permitted_and_translated_functions_are_the_same() -> None:
    assert set(PERMITTED) == {*TRANSLATOR_BY_FUNCTION, *AGGREGATE_NAMES}
    assert PERMITTED_AGGREGATES == AGGREGATE_NAMES
