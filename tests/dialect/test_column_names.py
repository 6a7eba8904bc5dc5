"""Columns without an alias have the names that ClickHouse gives them."""

from collections.abc import Iterator

import pytest

from tests.dialect.log_events import PlainClickHouse
from tests.dialect.translated import column_names

# The SELECT lists of queries over `logs`.
SELECT_LISTS = (
    "toStartOfHour(timestamp), toStartOfHour(timestamp, 'UTC'), toMonday(timestamp), date_trunc('hour', timestamp), toDate(timestamp)",
    "length(id), LENGTH(id), lcase(id), substr(id, 2), SUBSTRING(id FROM 1 FOR 3), position(id, 'x'), POSITION('x' IN id), splitByChar(',', id)",
    "trim(id), ltrim(id), trimRight(id), trim(BOTH ' ' FROM id), trim(LEADING 'x' FROM id), CEILING(1.5), ROUND(1.5, 1), power(2, 3)",
    "log_attributes['status'], logs.log_attributes['a.b'], lower(logs.source), log_attributes[lower('A')], mapKeys(log_attributes)",
    '(id), `id`, "source", (1 + 1), 1 + 2 * 3, (1 + 2) * 3, 1 - 2 - 3, 7 / 2, 7 % 3, -1, -(-1), -length(id), 3 - -5',
    "source = 'x', source != 'x', source <> 'x', 1 < 2, 1 <= 2, 1 > 2, 1 >= 2, NOT 1, 1 AND 1 AND 0, (1 OR 0) AND 1, equals(1, 1), and(1, 0), not(1)",
    "id IN ('a', 'b'), id IN ('a'), id NOT IN ('a', 'b'), 1 BETWEEN 0 AND 2, 1 NOT BETWEEN 0 AND 2, id LIKE 'x%', id NOT LIKE 'x', id ILIKE 'x', id NOT ILIKE 'x'",
    "id IS NULL, id IS NOT NULL, NOT (id IN ('a')), NOT id LIKE 'a', isNull(id), xor(1, 0)",
    "'a' || 'b' || 'c', 'a' || ('b' || 'c'), concat('a', 'b'), 'it''s', 'tab\\tq', 'a\\\\b', 'ä'",
    "CASE WHEN 1 THEN 2 ELSE 3 END, CASE WHEN 1 THEN 2 END, CASE source WHEN 'a' THEN 1 END, if(1, 2, 3), multiIf(1, 2, 3), 1 ? 2 : 3",
    "CAST(id AS String), id::Nullable(String), CAST(5, 'String'), CAST(timestamp AS DateTime64(3, 'UTC'))",
    "[1, 2], [1, 2, 3][1], [1, 2][-1], [[1], [2]], map('a', 1), map('a', 'b')['a'], arrayJoin(['a', 'b'])",
    "1.5, 1.10, 1e3, .5, 1e-7, 1.5e-5, 1e20, 1e21, 1e100, 0.0, 123456789012.5, 5, NULL, true, false",
    "timestamp + 1, timestamp - INTERVAL 1 HOUR, INTERVAL '30 minutes' + timestamp, now() - toIntervalDay(1), date_add(HOUR, 1, timestamp), dateSub(timestamp, INTERVAL 2 DAY)",
    "dateDiff('second', timestamp, now()), date_diff('second', timestamp, now()), EXTRACT(HOUR FROM timestamp), toStartOfInterval(timestamp, INTERVAL 5 MINUTE)",
    "id AS a, concat(a, 'x'), lower(a) AS b, upper(b), JSONExtractString(event_message, 'a', 'b'), JSONExtract(event_message, 'a', 'Int64')",
    "count(), count(*), COUNT(*), count(id), count(DISTINCT id), COUNT(DISTINCT id), countIf(source = 'x'), SUM(1), sumIf(1, 1), uniqExact(id), argMax(id, timestamp)",
    "quantile(0.9)(length(id)), quantile(length(id)), median((1)), medianIf(1, 1), quantileIf(0.5)(1, source = 'x'), count() + 1, min(timestamp) + INTERVAL 1 DAY",
)


@pytest.fixture(scope="module")
def plain_clickhouse() -> Iterator[PlainClickHouse]:
    opened = PlainClickHouse()
    yield opened
    opened.close()


@pytest.mark.parametrize("select_list", SELECT_LISTS)
def test_columns_without_an_alias_have_the_names_of_clickhouse(
    plain_clickhouse: PlainClickHouse, select_list: str
) -> None:
    expected = plain_clickhouse.column_names(f"SELECT {select_list} FROM logs LIMIT 1")
    assert column_names(f"SELECT {select_list} FROM logs LIMIT 1") == expected


def test_a_column_of_a_derived_table_can_be_read_by_the_name_of_clickhouse(plain_clickhouse: PlainClickHouse) -> None:
    sql = "SELECT `count()`, lower(`upper(source)`) FROM (SELECT upper(source), count() FROM logs GROUP BY source)"
    assert column_names(sql) == plain_clickhouse.column_names(sql) == ["count()", "lower(upper(source))"]
