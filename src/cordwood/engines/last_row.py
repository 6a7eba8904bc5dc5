"""The place of an answer's last row in the order of time, from which its next page begins."""

from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, closing, nullcontext

from cordwood.model.rows import LastRow, Row, Rows
from cordwood.sql.stages import Statement

# A longer id would make a cursor too long for an address.
_ID_CHARACTERS = 100


def without_places(rows: Rows, statement: Statement) -> Rows:
    """Remove the last two columns, time and id, of a statement that is paged by time; note those of the last row."""
    paging = statement.paging
    if paging is None or not paging.is_by_time:
        return rows
    rows.columns = rows.columns[: statement.answered_columns]
    batches = rows.batches
    taken = _whole_events(rows, batches) if paging.has_elements else _all_rows(rows, batches)
    # An engine's generator holds its cursor until it is exhausted or closed; other batches are there already.
    rows.batches = taken if isinstance(batches, Generator) else list(taken)
    return rows


def _all_rows(rows: Rows, batches: Iterable[list[Row]]) -> Generator[list[Row], None, None]:
    with _closing(batches):
        for batch in batches:
            if batch:
                _note(rows, batch)
            yield _answered(batch)


def _whole_events(rows: Rows, batches: Iterable[list[Row]]) -> Generator[list[Row], None, None]:
    """Leave out the last event's rows of an answer that is cut: another page has all of them.

    An event that has more rows than a page is cut, because no page could have it.
    """
    held: list[Row] = []
    has_others = False
    with _closing(batches):
        for batch in batches:
            pending = held + batch
            count = _last_group(pending)
            complete, held = pending[: len(pending) - count], pending[len(pending) - count :]
            if complete:
                has_others = True
                _note(rows, complete)
                yield _answered(complete)
    if held and not (rows.truncated and has_others):
        _note(rows, held)
        yield _answered(held)


def _closing(batches: Iterable[list[Row]]) -> AbstractContextManager[object]:
    return closing(batches) if isinstance(batches, Generator) else nullcontext()


def _note(rows: Rows, batch: list[Row]) -> None:
    place, count, before = _place(batch[-1]), _last_group(batch), rows.last_row
    if before is not None and count == len(batch) and (before.time_us, before.id) == place:
        count += before.rows
    rows.last_row = LastRow(*place, count)


def _last_group(batch: list[Row]) -> int:
    """Return how many of the last rows have the time and id of the last one."""
    places = (_place(row) for row in reversed(batch))
    last = _place(batch[-1]) if batch else None
    return next((index for index, place in enumerate(places) if place != last), len(batch))


def _answered(batch: list[Row]) -> list[Row]:
    return [row[:-2] for row in batch]


def _place(row: Row) -> tuple[int, str]:
    time_us, id_ = row[-2:]
    return int(str(time_us)), str(id_)[:_ID_CHARACTERS]
