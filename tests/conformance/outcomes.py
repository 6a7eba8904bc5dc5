"""Conformance cases, compiled and run on a bare engine, and their outcomes.

An outcome is one of:

- `right`: the engine returns the documented rows
- `refused`: the compiler refuses the query with a fault, before it runs
- `error`: the engine failed, or the compiler crashed (`bug.*`)
- `wrong`: the engine returns other rows than the documented ones
"""

import importlib
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import duckdb
import msgspec

from cordwood.engines.clickhouse.target import ClickHouseTarget
from cordwood.engines.duckdb.statement_check import StatementChecker
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.isolation import IsolationCheck
from cordwood.errors import Fault, IsolationCheckFailed, QueryFault, QueryUnsupported
from cordwood.sql.compile import compile_standalone_query
from cordwood.sql.stages import Target
from tests.chdb_databases import bare_connection, fresh_database
from tests.conformance.cases import Case, load_comparison

RIGHT, REFUSED, ERROR, WRONG = "right", "refused", "error", "wrong"
# The outcomes, ordered from best to worst. A wrong answer is worse than no answer.
OUTCOMES = (RIGHT, REFUSED, ERROR, WRONG)


class EngineOutcomes(msgspec.Struct):
    """The outcomes of all cases on one engine."""

    engine: str
    outcomes: dict[str, str] = {}
    # For each case whose outcome is not `right`, the reason: code and message, or the result of the comparison.
    details: dict[str, str] = {}
    # For each statement that the isolation check refuses, the reason.
    breaches: dict[str, str] = {}
    unreadable: list[str] = []


class Runner(Protocol):
    name: ClassVar[str]

    def run(self, cases: Sequence[Case]) -> EngineOutcomes: ...

    def close(self) -> None: ...


class DuckDB:
    name = "duckdb"

    def __init__(self) -> None:
        # Compiled SQL relies on no other setting of DuckDB than the time zone.
        self._connection = duckdb.connect(config={"threads": 1})
        self._connection.execute("SET TimeZone='UTC'")
        self._check = StatementChecker(IsolationCheck("duckdb"))

    def run(self, cases: Sequence[Case]) -> EngineOutcomes:
        return _run_cases(self, DuckDBTarget(), cases)

    def check(self, sql: str) -> None:
        self._check.check(self._connection, sql, ())

    def rows(self, sql: str) -> Any:
        return load_comparison().table_rows(self._connection.sql(sql).to_arrow_table())

    def close(self) -> None:
        self._connection.close()


class ClickHouse:
    name = "clickhouse"

    def __init__(self) -> None:
        # This setting is the format of JSON values in answers. All other settings are in the statement.
        self._connection = bare_connection()
        self._connection.query("SET output_format_binary_write_json_as_string = 1")
        self._session = importlib.import_module("cordwood.engines.clickhouse.session").Session(fresh_database())
        checks = importlib.import_module("cordwood.engines.clickhouse.statement_check")
        self._check = checks.StatementChecker(self._session, IsolationCheck("clickhouse"))

    def run(self, cases: Sequence[Case]) -> EngineOutcomes:
        return _run_cases(self, ClickHouseTarget(), cases)

    def check(self, sql: str) -> None:
        self._check.check(sql, ())

    def rows(self, sql: str) -> Any:
        try:
            answer = self._connection.query(sql, "RowBinaryWithNamesAndTypes").bytes()
        except Exception:
            # Without this trivial query, the output of the failed query would precede the next answer.
            self._connection.query("SELECT 1", "RowBinary")
            raise
        return load_comparison().rowbinary_rows(answer)[1]

    def close(self) -> None:
        self._session.close()
        self._connection.close()


def _run_cases(runner: "DuckDB | ClickHouse", target: Target, cases: Sequence[Case]) -> EngineOutcomes:
    engine_outcomes = EngineOutcomes(runner.name)
    for case in cases:
        outcome, detail = _run_case(runner, target, case, engine_outcomes)
        engine_outcomes.outcomes[case["id"]] = outcome
        if detail:
            engine_outcomes.details[case["id"]] = detail
    return engine_outcomes


def _run_case(
    runner: "DuckDB | ClickHouse", target: Target, case: Case, engine_outcomes: EngineOutcomes
) -> tuple[str, str]:
    try:
        sql = compile_standalone_query(case["sql"], target).sql
    except Fault as fault:
        return REFUSED if isinstance(fault, QueryFault) else ERROR, f"{fault.code}: {fault}"
    try:
        runner.check(sql)
    except IsolationCheckFailed as breach:
        engine_outcomes.breaches[case["id"]] = str(breach.__cause__)
    except (QueryUnsupported, duckdb.Error):
        engine_outcomes.unreadable.append(case["id"])
    try:
        rows = runner.rows(sql)
    except Exception as error:  # noqa: BLE001 - chDB fails in many ways, and each one is an outcome
        return ERROR, str(error)[:600]
    is_right, reason = load_comparison().compare(case, rows)
    return (RIGHT, "") if is_right else (WRONG, reason)
