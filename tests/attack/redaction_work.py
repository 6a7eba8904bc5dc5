"""What an engine does for a statement, told without a clock: its plan, the rows that pass each step, the texts it redacts.

Two stores that differ in private values alone must have it the same: then they need the same time, too, as far as that
hangs on what is done.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import duckdb

from cordwood.engines.duckdb.storage.storage import Storage
from cordwood.errors import QueryFault
from cordwood.model.redaction import RedactMode
from cordwood.sql.plan import Reads, print_segments
from cordwood.sql.redaction.masking import OPTIMISTIC_TEXT, REDACT_EVENT, REDACT_TEXT
from cordwood.sql.stages import Question, Statement
from tests.attack.twins import Twin

# Of a step's description, what is an estimate of the engine's own, or a time.
_ESTIMATES: Final = frozenset({"Estimated Cardinality", "Total Time"})
# What a plan calls its database, and a set that it makes of a sub-query by a digest with the database in it.
_NAMES_OF_ITS_OWN: Final = re.compile(r"\btest_\d+\.|__set_\d+_\d+")
_MODE: Final = RedactMode.REPLACE
_COUNTED: Final = (REDACT_TEXT, REDACT_EVENT, OPTIMISTIC_TEXT)
_CALLS: Final = re.compile(rf"\b({'|'.join(_COUNTED)})_{_MODE}\(")


def work(twin: Twin, question: Question) -> list[object]:
    """For each text that the engine may run for the question."""
    statement = question.statement
    if twin.engine_name == "clickhouse":
        return [_clickhouse_plan(twin, statement.sql, question)]
    return list(_duckdb_work(twin, question))


def _clickhouse_plan(twin: Twin, sql: str, question: Question) -> object:
    session = twin.components.engine._session  # type: ignore[attr-defined]
    from_engine = {name: str(value) for name, value in question.values.items()}
    try:
        plan = session.rows(f"SELECT explain FROM (EXPLAIN PLAN indexes = 1 {sql})", from_engine)
    except QueryFault as fault:  # scalar sub-queries are worked out for the plan
        return fault.message
    return [_NAMES_OF_ITS_OWN.sub("", str(row[0])) for row in plan]


def _duckdb_work(twin: Twin, question: Question) -> Iterator[object]:
    """Each run in a transaction of its own: one that fails takes it along."""
    storage = twin.components.engine._storage  # type: ignore[attr-defined]
    with twin.components.engine._session.cursor() as beside:  # type: ignore[attr-defined]
        _count_by(beside)
        yield from _each_way(storage, question, beside)


def _count_by(cursor: duckdb.DuckDBPyConnection) -> None:
    """Functions that count how often they are called, in a sequence: no failure takes that back."""
    cursor.execute("CREATE SEQUENCE IF NOT EXISTS memory.main.calls")
    for name in _COUNTED:
        counted = f"CASE WHEN nextval('memory.main.calls') > 0 THEN {name}_{_MODE}(t) END"
        cursor.execute(f"CREATE OR REPLACE MACRO memory.main.counted_{name}(t) AS {counted}")


def _each_way(storage: Storage, question: Question, beside: duckdb.DuckDBPyConnection) -> Iterator[object]:
    for told in (_plan, _redacted):
        for is_trusting in (False, True):
            with storage.query_view(question.statement.streams) as shown:
                sql = _way(question.statement, at_rest=shown.at_rest, is_trusting=is_trusting)
                if sql is not None:
                    before = _calls(beside)
                    yield told(shown.cursor, sql, question.values), _calls(beside) - before


def _way(statement: Statement, *, at_rest: bool, is_trusting: bool) -> str | None:
    variant = statement.plan.choose(Reads.FLUSHED if at_rest else Reads.ALL, optimistic=is_trusting)
    return None if variant is None else print_segments(variant.segments)


def _plan(cursor: duckdb.DuckDBPyConnection, sql: str, values: Mapping[str, object]) -> object:
    told = _run(cursor, f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", values)
    if isinstance(told, str):
        return told
    (plan,) = json.loads(told[0][1])["operator"]
    return _step(plan)


def _step(step: dict[str, Any]) -> object:
    """A step of the plan with the rows that left it and those that it read, and the steps before it."""
    facts = {name: fact for name, fact in step["extra_info"].items() if name not in _ESTIMATES}
    rows = [step.get(count) for count in ("intermediate_rows", "rows_scanned", "row_groups_scanned")]
    return step["type"], rows, facts, [_step(before) for before in step.get("children", ())]


def _redacted(cursor: duckdb.DuckDBPyConnection, sql: str, values: Mapping[str, object]) -> object:
    """Looks through texts by the functions that count; the same sentence where the engine will not count there."""
    told = _run(cursor, _CALLS.sub(r"counted_\1(", sql), values)
    return told if isinstance(told, str) else len(told)


def _calls(cursor: duckdb.DuckDBPyConnection) -> int:
    return int(cursor.execute("SELECT nextval('memory.main.calls')").fetchall()[0][0])


def _run(cursor: duckdb.DuckDBPyConnection, sql: str, values: Mapping[str, object]) -> Any:
    (read,) = cursor.extract_statements(sql)
    try:
        return cursor.execute(read, {name: values[name] for name in read.named_parameters}).fetchall()
    except duckdb.Error as problem:
        return str(problem)
