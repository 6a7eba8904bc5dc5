"""Actual results of a case, in the notation of each kind of fence."""

from collections.abc import Callable, Mapping

import msgspec

from cordwood.errors import Fault
from cordwood.model.datatype import Cell
from cordwood.sql.stages import Statement
from tests.spec_runner.compiling import compile_case, parameter_values, translated_sql
from tests.spec_runner.page import Case, Fence
from tests.spec_runner.world import CaseEngine


def result_text(case: Case, world: CaseEngine, fence: Fence) -> str:
    """Return the text that the fence must have if its case passes."""
    return RESULT_WRITERS[fence.kind](case, world, fence)


def _rows(case: Case, world: CaseEngine, fence: Fence) -> str:
    """Return a line with the column names, and a line for each row, with cells as JSON.

    For the fence `rows unordered`, the lines are sorted.
    """
    return _table(case, world, is_sorted="unordered" in fence.options)


def _table(case: Case, world: CaseEngine, *, is_sorted: bool) -> str:
    rows = world.ask(_statement(case, world), parameter_values(case))
    lines = [" | ".join(map(_cell, row)) for batch in rows.batches for row in batch]
    heading = " | ".join(column.name for column in rows.columns)
    return "\n".join([heading, *(sorted(lines) if is_sorted else lines)])


def _format_refusal(case: Case, world: CaseEngine, fence: Fence) -> str:
    """Return `code at line:column`, followed by the message and the hint if the fence has lines for them."""
    try:
        _rows(case, world, fence)
    except Fault as fault:
        position = f" at {fault.span}" if fault.span else ""
        lines = [f"{fault.code}{position}", fault.message, *([fault.hint] if fault.hint else [])]
        return "\n".join(lines[: max(1, len(fence.text.splitlines()))])
    return "nothing was refused"


def actual_result(case: Case, world: CaseEngine) -> str:
    """Return the actual result for a report of a failure: the rows, or the fault with its message."""
    try:
        return _table(case, world, is_sorted=False)
    except Fault as fault:
        position = f" at {fault.span}" if fault.span else ""
        return f"{fault.code}{position}\n{fault.message}"


def _translated_sql(case: Case, world: CaseEngine, _: Fence) -> str:
    """Return the SQL into which the case's LQL is translated."""
    return translated_sql(case, world.engine)


def _format_notices(case: Case, world: CaseEngine, _: Fence) -> str:
    """Return the notices of the statement."""
    return "\n".join(_statement(case, world).notices)


def _format_sql(case: Case, world: CaseEngine, _: Fence) -> str:
    """Return the SQL that the engine runs."""
    return _statement(case, world).sql


def _statement(case: Case, world: CaseEngine) -> Statement:
    return compile_case(case, world.engine)


def _cell(cell: Cell) -> str:
    value = msgspec.json.decode(cell) if isinstance(cell, msgspec.Raw) else cell
    return msgspec.json.encode(value).decode()


RESULT_WRITERS: Mapping[str, Callable[[Case, CaseEngine, Fence], str]] = {
    "rows": _rows,
    "refused": _format_refusal,
    "means": _translated_sql,
    "noticed": _format_notices,
    "duckdb": _format_sql,
    "clickhouse": _format_sql,
}
