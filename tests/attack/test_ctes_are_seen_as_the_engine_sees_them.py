"""Random nestings of CTEs that are called like tables: what the check lets pass reads none of the tables."""

import importlib
import random
from collections.abc import Callable, Iterator

import duckdb
import pytest

from cordwood.engines.clickhouse.target import as_it_must_be_run
from cordwood.engines.duckdb.statement_check import StatementCheck
from cordwood.engines.isolation import Isolation
from cordwood.errors import Fault, IsolationBroken
from tests.chdb_databases import fresh_database

NAMES = ("a", "b", "c")
SECRET = "s3cret"
STATEMENTS = 600


@pytest.fixture(autouse=True)
def second_wall_is_silent() -> None:
    """Not here."""


class Nested:
    """Makes queries of one column x over tables that are called as CTEs are."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def query(self, depth: int) -> str:
        body = self._body(depth)
        return f"{self._with(depth)} {body}" if depth and self._random.random() < 0.7 else body

    def _with(self, depth: int) -> str:
        names = self._random.sample(NAMES, self._random.choice((1, 1, 2)))
        if self._random.random() < 0.25:
            start, step = self.query(depth - 1), self._random.choice(NAMES)
            first = f"{names[0]} AS (SELECT x FROM ({start}) AS s UNION ALL SELECT concat(x, '+') AS x FROM {step} WHERE length(x) < 9)"
            return f"WITH RECURSIVE {first}"
        return "WITH " + ", ".join(f"{name} AS ({self.query(depth - 1)})" for name in names)

    def _body(self, depth: int) -> str:
        kind = self._random.random()
        if depth and kind < 0.2:
            return f"SELECT x FROM {self._relation(depth)} AS l UNION ALL SELECT x FROM {self._relation(depth)} AS r"
        if depth and kind < 0.35:
            return f"SELECT x FROM {self._relation(depth)} AS o WHERE x IN (SELECT x FROM {self._relation(depth)} AS i)"
        if depth and kind < 0.45:
            return f"SELECT (SELECT max(x) FROM {self._relation(depth)} AS m) AS x"
        return f"SELECT x FROM {self._relation(depth)} AS q" if kind < 0.85 else "SELECT 'plain' AS x"

    def _relation(self, depth: int) -> str:
        return f"({self.query(depth - 1)})" if depth and self._random.random() < 0.3 else self._random.choice(NAMES)


Answer = Callable[[str], str | None]


@pytest.fixture
def on_duckdb() -> Iterator[Answer]:
    """The rows of a statement; None where it is refused."""
    checking = StatementCheck(Isolation("duckdb"))
    with duckdb.connect() as connection:
        for name in NAMES:
            connection.execute(f"CREATE TABLE {name} AS SELECT '{SECRET}' AS x")

        def answer(sql: str) -> str | None:
            try:
                checking.check(connection, sql, ())
            except IsolationBroken:
                return None
            try:
                return str(connection.execute(f"SELECT * FROM ({sql}) LIMIT 50").fetchall())
            except duckdb.Error as failed:
                return str(failed)

        yield answer


@pytest.fixture
def on_clickhouse() -> Iterator[Answer]:
    address = fresh_database()
    session = importlib.import_module("cordwood.engines.clickhouse.session").Session(address)
    checks = importlib.import_module("cordwood.engines.clickhouse.statement_check")
    checking = checks.StatementCheck(session, Isolation("clickhouse"))
    for name in NAMES:
        session.command(f"CREATE TABLE {name} (x String) ENGINE = Memory")
        session.command(f"INSERT INTO {name} VALUES ('{SECRET}')")

    def answer(sql: str) -> str | None:
        text = as_it_must_be_run(sql)
        try:
            checking.check(text, ())
        except IsolationBroken:
            return None
        try:
            return str(session.rows(text, None, {"max_result_rows": 50, "result_overflow_mode": "break"}))
        except Fault as failed:
            return failed.message

    yield answer
    session.close()


@pytest.mark.parametrize("engine", ["duckdb", "clickhouse"])
def test_what_passes_reads_no_table(request: pytest.FixtureRequest, engine: str) -> None:
    answer: Answer = request.getfixturevalue(f"on_{engine}")
    refused = 0
    for seed in range(STATEMENTS):
        sql = Nested(seed).query(3).strip()
        told = answer(sql)
        refused += told is None
        assert told is None or SECRET not in told, sql
    assert STATEMENTS * 0.2 < refused < STATEMENTS * 0.95
