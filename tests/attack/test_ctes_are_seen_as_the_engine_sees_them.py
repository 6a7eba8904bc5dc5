"""Random nestings of CTEs that are called like tables: what the check lets pass reads none of the tables."""

import importlib
import random
from collections.abc import Callable, Iterator

import duckdb
import pytest

from cordwood.engines.clickhouse.target import with_settings
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
    """Makes queries of one column x over tables that are called as CTEs are; `near` are CTEs that may be seen."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def query(self, depth: int, near: tuple[str, ...] = ()) -> str:
        if depth == 0 or self._random.random() < 0.2:
            return self._body(depth, near)
        if self._random.random() < 0.25:
            return self._recursive(depth, near)
        ctes = []
        for name in self._random.sample(NAMES, self._random.choice((1, 1, 2))):
            ctes.append(f"{name} AS ({self.query(depth - 1, near)})")
            near = (*near, name)
        return f"WITH {', '.join(ctes)} {self._body(depth, near)}"

    def _recursive(self, depth: int, near: tuple[str, ...]) -> str:
        name = self._random.choice(NAMES)
        start, step = self.query(depth - 1, near), self._name((*near, name, name))
        looped = f"SELECT concat(x, '+') AS x FROM {step} WHERE length(x) < 9"
        cte = f"{name} AS (SELECT x FROM ({start}) AS s UNION ALL {looped})"
        return f"WITH RECURSIVE {cte} {self._body(depth, (*near, name))}"

    def _body(self, depth: int, near: tuple[str, ...]) -> str:
        kind = self._random.random()
        first, second = self._relation(depth, near), self._relation(depth, near)
        if depth and kind < 0.2:
            return f"SELECT x FROM {first} AS l UNION ALL SELECT x FROM {second} AS r"
        if depth and kind < 0.35:
            return f"SELECT x FROM {first} AS o WHERE x IN (SELECT x FROM {second} AS i)"
        if depth and kind < 0.45:
            return f"SELECT (SELECT x FROM {first} AS m LIMIT 1) AS x"
        return f"SELECT x FROM {first} AS q" if kind < 0.7 and (near or kind < 0.5) else "SELECT 'plain' AS x"

    def _relation(self, depth: int, near: tuple[str, ...]) -> str:
        if depth and self._random.random() < 0.3:
            return f"({self.query(depth - 1, near)})"
        return self._name(near)

    def _name(self, near: tuple[str, ...]) -> str:
        return self._random.choice(near if near and self._random.random() < 0.9 else NAMES)


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
        text = with_settings(sql)
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
    assert STATEMENTS * 0.2 < refused < STATEMENTS * 0.8
