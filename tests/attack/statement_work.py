"""Measure the engine's work for a statement without a clock: the plan, the rows of each operator, and redaction calls.

The work must be equal in two stores that differ only in private values. Otherwise, the time that a query takes would
reveal these values.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import duckdb

from cordwood.engines.duckdb.storage.storage import Storage
from cordwood.errors import QueryFault
from cordwood.model.redaction import RedactMode
from cordwood.sql.plan import EventRange, print_segments
from cordwood.sql.redaction.masking import (
    OPTIMISTIC_TEXT_FUNCTION_PREFIX,
    REDACT_EVENT_FUNCTION_PREFIX,
    REDACT_TEXT_FUNCTION_PREFIX,
)
from cordwood.sql.stages import BoundStatement, Statement
from tests.attack.twins import Twin

# Properties of an operator that are estimates or times.
_ESTIMATED_FIELDS: Final = frozenset({"Estimated Cardinality", "Total Time"})
# Names in a plan that contain the name of the database.
_DATABASE_NAMES: Final = re.compile(r"\btest_\d+\.|__set_\d+_\d+")
_REDACT_MODE: Final = RedactMode.REPLACE
_COUNTED_FUNCTIONS: Final = (REDACT_TEXT_FUNCTION_PREFIX, REDACT_EVENT_FUNCTION_PREFIX, OPTIMISTIC_TEXT_FUNCTION_PREFIX)
_REDACTION_CALL: Final = re.compile(rf"\b({'|'.join(_COUNTED_FUNCTIONS)})_{_REDACT_MODE}\(")


def work_of_statement(twin: Twin, question: BoundStatement) -> list[object]:
    """Return the engine's work for each variant of a statement that the engine may choose."""
    statement = question.statement
    if twin.engine_name == "clickhouse":
        return [_clickhouse_plan(twin, statement.sql, question)]
    return list(_duckdb_work(twin, question))


def _clickhouse_plan(twin: Twin, sql: str, question: BoundStatement) -> object:
    session = twin.components.engine._session  # type: ignore[attr-defined]
    from_engine = {name: str(value) for name, value in question.values.items()}
    try:
        plan = session.fetch_rows(f"SELECT explain FROM (EXPLAIN PLAN indexes = 1 {sql})", from_engine)
    except QueryFault as fault:  # ClickHouse runs scalar sub-queries while it plans.
        return fault.message
    return [_DATABASE_NAMES.sub("", str(row[0])) for row in plan]


def _duckdb_work(twin: Twin, question: BoundStatement) -> Iterator[object]:
    """Yield DuckDB's plan and its result for each variant of a statement, with the number of redaction calls.

    The variants are those for stores that are at rest or not, with or without optimistic redaction. Each variant runs
    in a separate transaction, because a failed statement aborts its transaction.
    """
    storage = twin.components.engine._storage  # type: ignore[attr-defined]
    with twin.components.engine._session.cursor() as own_cursor:  # type: ignore[attr-defined]
        _define_counting_macros(own_cursor)
        yield from _work_of_variants(storage, question, own_cursor)


def _define_counting_macros(cursor: duckdb.DuckDBPyConnection) -> None:
    """Define variants of the redaction macros that count their calls in a sequence.

    A sequence is used because a rollback does not reset it.
    """
    cursor.execute("CREATE SEQUENCE IF NOT EXISTS memory.main.calls")
    for name in _COUNTED_FUNCTIONS:
        counted = f"CASE WHEN nextval('memory.main.calls') > 0 THEN {name}_{_REDACT_MODE}(t) END"
        cursor.execute(f"CREATE OR REPLACE MACRO memory.main.counted_{name}(t) AS {counted}")


def _work_of_variants(
    storage: Storage, question: BoundStatement, own_cursor: duckdb.DuckDBPyConnection
) -> Iterator[object]:
    for result in (_plan, _run_with_counting):
        for is_trusting in (False, True):
            with storage.open_query_view(question.statement.streams) as view:
                sql = _variant_sql(question.statement, at_rest=view.reads_only_flushed_events, is_trusting=is_trusting)
                if sql is not None:
                    before = _call_count(own_cursor)
                    yield result(view.cursor, sql, question.values), _call_count(own_cursor) - before


def _variant_sql(statement: Statement, *, at_rest: bool, is_trusting: bool) -> str | None:
    variant = statement.plan.find_variant_or_fallback(
        EventRange.FLUSHED if at_rest else EventRange.ALL, optimistic=is_trusting
    )
    return None if variant is None else print_segments(variant.segments)


def _plan(cursor: duckdb.DuckDBPyConnection, sql: str, values: Mapping[str, object]) -> object:
    result = _run(cursor, f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", values)
    if isinstance(result, str):
        return result
    (plan,) = json.loads(result[0][1])["operator"]
    return _operator(plan)


def _operator(step: dict[str, Any]) -> object:
    """Return an operator of a plan: its type, its row counts, its properties and the operators that are its inputs."""
    facts = {name: fact for name, fact in step["extra_info"].items() if name not in _ESTIMATED_FIELDS}
    rows = [step.get(count) for count in ("intermediate_rows", "rows_scanned", "row_groups_scanned")]
    return step["type"], rows, facts, [_operator(before) for before in step.get("children", ())]


def _run_with_counting(cursor: duckdb.DuckDBPyConnection, sql: str, values: Mapping[str, object]) -> object:
    """Run a statement with counting macros; return the number of rows, or the engine's error message."""
    result = _run(cursor, _REDACTION_CALL.sub(r"counted_\1(", sql), values)
    return result if isinstance(result, str) else len(result)


def _call_count(cursor: duckdb.DuckDBPyConnection) -> int:
    return int(cursor.execute("SELECT nextval('memory.main.calls')").fetchall()[0][0])


def _run(cursor: duckdb.DuckDBPyConnection, sql: str, values: Mapping[str, object]) -> Any:
    (read,) = cursor.extract_statements(sql)
    try:
        return cursor.execute(read, {name: values[name] for name in read.named_parameters}).fetchall()
    except duckdb.Error as problem:
        return str(problem)
