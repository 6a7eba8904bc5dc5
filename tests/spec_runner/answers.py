"""What happened, in the spelling in which a page expects it."""

from collections.abc import Callable, Mapping

import msgspec

from cordwood.errors import Fault
from cordwood.model.rows import Cell
from cordwood.sql.stages import Statement
from tests.spec_runner.asking import compiled, explained, given
from tests.spec_runner.page import Case, Fence
from tests.spec_runner.world import World


def answered(case: Case, world: World, fence: Fence) -> str:
    """What stands in the fence when the page is right."""
    return ANSWERS[fence.kind](case, world, fence)


def _rows(case: Case, world: World, fence: Fence) -> str:
    """A line of names, then a line a row, cells as JSON; `rows unordered` are sorted."""
    return _table(case, world, is_sorted="unordered" in fence.notes)


def _table(case: Case, world: World, *, is_sorted: bool) -> str:
    rows = world.ask(_statement(case, world), given(case))
    lines = [" | ".join(map(_cell, row)) for batch in rows.batches for row in batch]
    heads = " | ".join(column.name for column in rows.columns)
    return "\n".join([heads, *(sorted(lines) if is_sorted else lines)])


def _refused(case: Case, world: World, fence: Fence) -> str:
    """`code at line:column`, and below it the sentence and the hint where the page has them."""
    try:
        _rows(case, world, fence)
    except Fault as fault:
        place = f" at {fault.span}" if fault.span else ""
        lines = [f"{fault.code}{place}", fault.message, *([fault.hint] if fault.hint else [])]
        return "\n".join(lines[: max(1, len(fence.text.splitlines()))])
    return "nothing was refused"


def instead(case: Case, world: World) -> str:
    """What happens where a page expects something else: the rows, or the refusal with its sentence."""
    try:
        return _table(case, world, is_sorted=False)
    except Fault as fault:
        place = f" at {fault.span}" if fault.span else ""
        return f"{fault.code}{place}\n{fault.message}"


def _means(case: Case, world: World, _: Fence) -> str:
    """The SQL that LQL means."""
    return explained(case, world.engine)


def _noticed(case: Case, world: World, _: Fence) -> str:
    """What the receipt says beside the rows."""
    return "\n".join(_statement(case, world).notices)


def _emitted(case: Case, world: World, _: Fence) -> str:
    """The engine's own text."""
    return _statement(case, world).sql


def _statement(case: Case, world: World) -> Statement:
    return compiled(case, world.engine)


def _cell(cell: Cell) -> str:
    value = msgspec.json.decode(cell) if isinstance(cell, msgspec.Raw) else cell
    return msgspec.json.encode(value).decode()


ANSWERS: Mapping[str, Callable[[Case, World, Fence], str]] = {
    "rows": _rows,
    "refused": _refused,
    "means": _means,
    "noticed": _noticed,
    "duckdb": _emitted,
    "clickhouse": _emitted,
}
