"""The lists of callable functions are sorted, name existing functions, and include all that the rules print."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from cordwood.engines.clickhouse import rules as clickhouse_rules
from cordwood.engines.clickhouse import statement_check as of_clickhouse
from cordwood.engines.duckdb import rules as duckdb_rules
from cordwood.engines.duckdb import statement_check as of_duckdb
from cordwood.sql import rules as shared_rules
from tests.chdb_databases import fresh_database

CALL_PATTERN = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\(")
# Names in the rules that look like calls: names in patterns, and names for which a rule only searches.
NAMES_THAT_ARE_NOT_CALLED = {"duckdb": {"uuid"}, "clickhouse": {"e"}}


def rule_templates(package: object) -> Iterator[str]:
    """Yield every string constant in the rules of an engine, and in the rules that all engines share."""
    folders = (Path(str(module.__file__)).parent for module in (package, shared_rules))  # type: ignore[attr-defined] # packages
    for file in (file for folder in folders for file in folder.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def functions_of_duckdb() -> set[str]:
    with duckdb.connect() as connection:
        return {name for (name,) in connection.execute("SELECT function_name FROM duckdb_functions()").fetchall()}


def functions_of_clickhouse() -> set[str]:
    session = importlib.import_module("cordwood.engines.clickhouse.session").Session(fresh_database())
    names = {str(name) for (name,) in session.fetch_rows("SELECT name FROM system.functions")}
    session.close()
    return names


@pytest.mark.parametrize(
    "lists",
    [of_duckdb._ALLOWED_BUILTIN_FUNCTIONS, of_clickhouse._ALLOWED_BUILTIN_FUNCTIONS, of_clickhouse._ALLOWED_AGGREGATES],
)
def test_the_names_are_sorted_and_unique(lists: str) -> None:
    names = [name for name in lists.split() if name[0].isalpha()]
    assert names == sorted(set(names))


def test_every_listed_function_exists_in_duckdb() -> None:
    # DuckDB's catalog does not have the functions that have their own parser node.
    in_the_grammar = {"cume_dist", "dense_rank", "first_value", "lag", "last_value", "lead", "nth_value", "ntile"}
    in_the_grammar |= {"percent_rank", "rank", "row_number"}
    assert set(of_duckdb._ALLOWED_BUILTIN_FUNCTIONS.split()) - functions_of_duckdb() <= in_the_grammar


def test_every_listed_function_exists_in_clickhouse() -> None:
    # ClickHouse accepts some names in any case, and its parser makes some functions from operators.
    known = {name.lower() for name in functions_of_clickhouse()} | {"exists", "grouping", "lambda"}
    assert {name.lower() for name in of_clickhouse._ALLOWED_BUILTIN_FUNCTIONS.split()} <= known


@pytest.mark.parametrize("engine", ["duckdb", "clickhouse"])
def test_every_function_that_a_rule_prints_is_listed(engine: str) -> None:
    package, known, listed = (
        (duckdb_rules, functions_of_duckdb(), of_duckdb.ALLOWED_FUNCTIONS)
        if engine == "duckdb"
        else (clickhouse_rules, functions_of_clickhouse(), of_clickhouse.ALLOWED_FUNCTIONS)
    )
    written = {name for text in rule_templates(package) for name in CALL_PATTERN.findall(text)}
    assert written & known - listed <= NAMES_THAT_ARE_NOT_CALLED[engine]


def test_no_listed_function_reads_anything_but_its_arguments() -> None:
    """Check the names of the functions, because functions that read something else have recognisable names."""
    suspicious = re.compile(
        r"(?i)read_|file|glob|pragma|duckdb_|current|setting|getenv|query|dict|join(get)|url|s3|remote|version|catalog"
        r"|schema|secret|user|host|sleep|nextval|execute|serialize|attach|load|macro|session|server|system"
    )
    names = of_duckdb.ALLOWED_FUNCTIONS | of_clickhouse.ALLOWED_FUNCTIONS | of_duckdb.ALLOWED_TABLE_FUNCTIONS
    assert [name for name in sorted(names) if suspicious.search(name)] == []
