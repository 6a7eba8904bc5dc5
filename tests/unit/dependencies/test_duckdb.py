"""Internals of DuckDB on which the engine relies: error messages, types, variants and storage."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from duckdb.sqltypes import DuckDBPyType

from cordwood.engines.duckdb.faults import reword_message


@pytest.fixture
def cursor() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection:
        yield connection


@pytest.mark.parametrize(
    ("sql", "kind", "message"),
    [
        ("select a from (select 1 as a, 2 as b) group by b", duckdb.BinderException, "neither grouped nor aggregated"),
        ("select abs([1])", duckdb.BinderException, "No matching signature for ABS"),
        (
            "select x < y from (select [1] as x, date '2026-01-01' as y)",
            duckdb.BinderException,
            "No matching signature for the comparison",
        ),
        (
            "select (select x from range(2) t(x))",
            duckdb.InvalidInputException,
            "Scalar subquery produced more than one",
        ),
        ("select 1 where sum(1) > 1", duckdb.BinderException, "Aggregates are not allowed in WHERE"),
        ("select sum(sum(x)) from range(2) t(x)", duckdb.BinderException, "Aggregations of aggregations"),
        ("select decode('\\xFF'::blob)", duckdb.ConversionException, "The bytes are not valid UTF-8"),
        ("select 'x'::timestamp", duckdb.ConversionException, 'Invalid timestamp: "x"'),
        ("select regexp_matches('a', '(')", duckdb.InvalidInputException, "Cannot parse regular expression: missing )"),
    ],
)
def test_errors_have_the_class_and_text_that_error_messages_rewords(
    cursor: duckdb.DuckDBPyConnection, sql: str, kind: type[duckdb.Error], message: str
) -> None:
    with pytest.raises(kind) as caught:
        cursor.execute(sql).fetchall()
    error_text = str(caught.value).split(": ", 1)[1].split("\n")[0].strip()
    assert message in (reword_message(error_text) or "words that are not known")


def test_a_type_has_a_name_and_children(cursor: duckdb.DuckDBPyConnection) -> None:
    cursor.execute("select {'a': 1, 'b': [true]} as s, 1::variant as v, '{}'::json as j")
    struct, variant, json = (column[1] for column in cursor.description or ())
    assert isinstance(struct, DuckDBPyType)
    assert struct.id == "struct"
    children = [(name, child) for name, child in struct.children if isinstance(child, DuckDBPyType)]
    assert [(name, child.id) for name, child in children] == [("a", "integer"), ("b", "list")]
    assert (variant.id, str(json)) == ("variant", "JSON")


def test_statements_are_parsed_before_they_are_run(cursor: duckdb.DuckDBPyConnection) -> None:
    first, second = cursor.extract_statements("select 1; drop table t")
    assert first.type is duckdb.StatementType.SELECT
    assert second.type is not duckdb.StatementType.SELECT
    assert cursor.execute(first).fetchall() == [(1,)]


def test_an_interrupt_without_a_running_query_has_no_effect(cursor: duckdb.DuckDBPyConnection) -> None:
    cursor.interrupt()
    assert cursor.execute("select 1").fetchall() == [(1,)]
    assert issubclass(duckdb.InterruptException, duckdb.Error)


def test_json_is_unchanged_by_storage_as_a_variant(cursor: duckdb.DuckDBPyConnection) -> None:
    text = '{"a":{"b":[1,2.5,"x",null,true]},"c":18446744073709551615}'
    assert cursor.execute("select ?::json::variant::json::varchar", [text]).fetchall() == [(text,)]
    assert cursor.execute("select variant_typeof(?::json::variant)", [text]).fetchall()[0][0].startswith("OBJECT")


def test_a_scan_continues_after_an_empty_row_group(cursor: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Scan a table with an empty row group.

    A thread of an INSERT that finds no rows leaves an empty row group until the next checkpoint.
    """
    cursor.execute("set threads = 2")
    cursor.execute(f"attach '{tmp_path / 'events'}' as store (row_group_size 2048)")
    cursor.execute("create table store.t as select range as n from range(4096)")
    cursor.execute("checkpoint store")
    cursor.execute("begin")
    for condition in ("n < 0", "true"):
        cursor.execute(f"insert into store.t select n + 4096 from store.t where {condition}")
    cursor.execute("commit")
    assert cursor.execute("select count(distinct n), count(*) from store.t").fetchall() == [(8192, 8192)]
