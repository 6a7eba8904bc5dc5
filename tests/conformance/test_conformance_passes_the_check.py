"""Every statement of the conformance cases passes the check by the engine's own parser."""

import importlib
from collections.abc import Sequence

import duckdb

from cordwood.engines.clickhouse.target import ClickHouseTarget
from cordwood.engines.duckdb.statement_check import StatementCheck
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.isolation import Isolation
from cordwood.errors import QueryFault, QueryUnsupported
from cordwood.sql.compile import compile_alone
from cordwood.sql.target import Target
from tests.chdb_databases import fresh_database
from tests.conformance.conftest import Case


def statements(cases: Sequence[Case], target: Target) -> list[str]:
    found = []
    for case in cases:
        try:
            found.append(compile_alone(case["sql"], target).sql)
        except QueryFault:
            continue
    assert len(found) > 0.9 * len(cases)
    return found


def test_statements_for_duckdb_pass(cases: list[Case], bare_duckdb: duckdb.DuckDBPyConnection) -> None:
    checking = StatementCheck(Isolation("duckdb"))
    for sql in statements(cases, DuckDBTarget()):
        checking.check(bare_duckdb, sql, ())


def test_statements_for_clickhouse_pass(cases: list[Case]) -> None:
    session = importlib.import_module("cordwood.engines.clickhouse.session").Session(fresh_database())
    checks = importlib.import_module("cordwood.engines.clickhouse.statement_check")
    checking = checks.StatementCheck(session, Isolation("clickhouse"))
    not_sql = 0
    for sql in statements(cases, ClickHouseTarget()):
        try:
            checking.check(sql, ())
        except QueryUnsupported:
            not_sql += 1
    session.close()
    # What the compiler makes and the engine cannot read was no statement before either.
    assert not_sql <= 1
