"""The place of an answer's last row in the order of time, from which its next page begins."""

from collections.abc import Generator
from contextlib import ExitStack, closing

from cordwood.model.rows import LastRow, Row, Rows
from cordwood.sql.stages import Statement

# A longer id would make a cursor too long for an address.
_ID_CHARACTERS = 100


def without_places(rows: Rows, statement: Statement) -> Rows:
    """Remove the last two columns, time and id, of a statement that is paged by time; note those of the last row."""
    if statement.answered_columns < len(statement.column_names):
        rows.columns = rows.columns[: statement.answered_columns]
        batches = rows.batches
        rows.batches = (
            _remove(rows, batches) if isinstance(batches, Generator) else [_take(rows, batch) for batch in batches]
        )
    return rows


def _remove(rows: Rows, batches: Generator[list[Row], None, None]) -> Generator[list[Row], None, None]:
    with ExitStack() as stack:
        stack.enter_context(closing(batches))
        for batch in batches:
            yield _take(rows, batch)


def _take(rows: Rows, batch: list[Row]) -> list[Row]:
    if not batch:
        return batch
    place = _place(batch[-1])
    others = (index for index, row in enumerate(reversed(batch)) if _place(row) != place)
    count = next(others, len(batch))
    before = rows.last_row
    if before is not None and count == len(batch) and (before.time_us, before.id) == place:
        count += before.rows
    rows.last_row = LastRow(*place, count)
    return [row[:-2] for row in batch]


def _place(row: Row) -> tuple[int, str]:
    time_us, id_ = row[-2:]
    return int(str(time_us)), str(id_)[:_ID_CHARACTERS]
