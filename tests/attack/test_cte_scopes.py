"""Random nested CTEs with the names of tables: a statement that passes the isolation check reads none of the tables."""

import importlib
import random
from collections.abc import Callable, Iterator

import duckdb
import pytest

from cordwood.engines.clickhouse.target import add_settings_clause
from cordwood.engines.duckdb.statement_check import StatementChecker
from cordwood.engines.isolation import IsolationCheck
from cordwood.errors import Fault, IsolationCheckFailed
from tests.chdb_databases import fresh_database

NAMES = ("a", "b", "c")
SECRET_VALUE = "s3cret"
STATEMENT_COUNT = 600


@pytest.fixture(autouse=True)
def no_isolation_refusals() -> None:
    """Replace the fixture of conftest.py, which would fail these tests, because they expect refusals."""


class QueryGenerator:
    """A generator of queries that return one column, x, and read tables or CTEs.

    Tables and CTEs have the same names. `in_scope` are the names of the CTEs that are visible at a place.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def query(self, depth: int, in_scope: tuple[str, ...] = ()) -> str:
        if depth == 0 or self._random.random() < 0.2:
            return self._body(depth, in_scope)
        if self._random.random() < 0.25:
            return self._recursive(depth, in_scope)
        ctes = []
        for name in self._random.sample(NAMES, self._random.choice((1, 1, 2))):
            ctes.append(f"{name} AS ({self.query(depth - 1, in_scope)})")
            in_scope = (*in_scope, name)
        return f"WITH {', '.join(ctes)} {self._body(depth, in_scope)}"

    def _recursive(self, depth: int, in_scope: tuple[str, ...]) -> str:
        name = self._random.choice(NAMES)
        start, step = self.query(depth - 1, in_scope), self._name((*in_scope, name, name))
        looped = f"SELECT concat(x, '+') AS x FROM {step} WHERE length(x) < 9"
        cte = f"{name} AS (SELECT x FROM ({start}) AS s UNION ALL {looped})"
        return f"WITH RECURSIVE {cte} {self._body(depth, (*in_scope, name))}"

    def _body(self, depth: int, in_scope: tuple[str, ...]) -> str:
        kind = self._random.random()
        first, second = self._relation(depth, in_scope), self._relation(depth, in_scope)
        if depth and kind < 0.2:
            return f"SELECT x FROM {first} AS l UNION ALL SELECT x FROM {second} AS r"
        if depth and kind < 0.35:
            return f"SELECT x FROM {first} AS o WHERE x IN (SELECT x FROM {second} AS i)"
        if depth and kind < 0.45:
            return f"SELECT (SELECT x FROM {first} AS m LIMIT 1) AS x"
        return f"SELECT x FROM {first} AS q" if kind < 0.7 and (in_scope or kind < 0.5) else "SELECT 'plain' AS x"

    def _relation(self, depth: int, in_scope: tuple[str, ...]) -> str:
        if depth and self._random.random() < 0.3:
            return f"({self.query(depth - 1, in_scope)})"
        return self._name(in_scope)

    def _name(self, in_scope: tuple[str, ...]) -> str:
        return self._random.choice(in_scope if in_scope and self._random.random() < 0.9 else NAMES)


Answer = Callable[[str], str | None]


@pytest.fixture
def answer_on_duckdb() -> Iterator[Answer]:
    """Return a function that checks and runs a statement on DuckDB.

    The function returns the rows or the error as a text, or None if the isolation check refuses the statement.
    """
    checker = StatementChecker(IsolationCheck("duckdb"))
    with duckdb.connect() as connection:
        for name in NAMES:
            connection.execute(f"CREATE TABLE {name} AS SELECT '{SECRET_VALUE}' AS x")

        def answer(sql: str) -> str | None:
            try:
                checker.check(connection, sql, ())
            except IsolationCheckFailed:
                return None
            try:
                return str(connection.execute(f"SELECT * FROM ({sql}) LIMIT 50").fetchall())
            except duckdb.Error as failed:
                return str(failed)

        yield answer


@pytest.fixture
def answer_on_clickhouse() -> Iterator[Answer]:
    address = fresh_database()
    session = importlib.import_module("cordwood.engines.clickhouse.session").Session(address)
    checks = importlib.import_module("cordwood.engines.clickhouse.statement_check")
    checker = checks.StatementChecker(session, IsolationCheck("clickhouse"))
    for name in NAMES:
        session.execute(f"CREATE TABLE {name} (x String) ENGINE = Memory")
        session.execute(f"INSERT INTO {name} VALUES ('{SECRET_VALUE}')")

    def answer(sql: str) -> str | None:
        text = add_settings_clause(sql)
        try:
            checker.check(text, ())
        except IsolationCheckFailed:
            return None
        try:
            return str(session.fetch_rows(text, None, {"max_result_rows": 50, "result_overflow_mode": "break"}))
        except Fault as failed:
            return failed.message

    yield answer
    session.close()


@pytest.mark.parametrize("engine", ["duckdb", "clickhouse"])
def test_a_statement_that_passes_the_check_reads_no_table(request: pytest.FixtureRequest, engine: str) -> None:
    answer: Answer = request.getfixturevalue(f"answer_on_{engine}")
    refused = 0
    for seed in range(STATEMENT_COUNT):
        sql = QueryGenerator(seed).query(3).strip()
        result = answer(sql)
        refused += result is None
        assert result is None or SECRET_VALUE not in result, sql
    assert STATEMENT_COUNT * 0.2 < refused < STATEMENT_COUNT * 0.8
