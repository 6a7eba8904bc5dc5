"""Find the last row of an answer in the order of time, after which the next page begins."""

from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, closing, nullcontext

from cordwood.model.rows import LastRow, Row, Rows
from cordwood.sql.stages import Statement

# The maximum length of an id in a cursor; a longer one would make the cursor too long for a URL.
_MAX_ID_CHARACTERS = 100


def without_places(rows: Rows, statement: Statement) -> Rows:
    """Remove the columns time and id that are appended for paging; record their values in the last row."""
    paging = statement.paging
    if paging is None or not paging.is_by_time:
        return rows
    rows.columns = rows.columns[: statement.answered_columns]
    batches = rows.batches
    taken = _keep_whole_events(rows, batches) if paging.has_elements else _keep_all_rows(rows, batches)
    # The generator of an engine holds its cursor until it is exhausted or closed; other batches are in memory already.
    rows.batches = taken if isinstance(batches, Generator) else list(taken)
    return rows


def _keep_all_rows(rows: Rows, batches: Iterable[list[Row]]) -> Generator[list[Row], None, None]:
    with _close_when_done(batches):
        for batch in batches:
            if batch:
                _record_last_row(rows, batch)
            yield _without_position_columns(batch)


def _keep_whole_events(rows: Rows, batches: Iterable[list[Row]]) -> Generator[list[Row], None, None]:
    """Leave out the rows of the last event if the answer is cut off, because another page has all of them.

    An event with more rows than a page is cut, because no page could contain it.
    """
    held: list[Row] = []
    has_others = False
    with _close_when_done(batches):
        for batch in batches:
            pending = held + batch
            count = _last_group(pending)
            complete, held = pending[: len(pending) - count], pending[len(pending) - count :]
            if complete:
                has_others = True
                _record_last_row(rows, complete)
                yield _without_position_columns(complete)
    if held and not (rows.truncated and has_others):
        _record_last_row(rows, held)
        yield _without_position_columns(held)


def _close_when_done(batches: Iterable[list[Row]]) -> AbstractContextManager[object]:
    return closing(batches) if isinstance(batches, Generator) else nullcontext()


def _record_last_row(rows: Rows, batch: list[Row]) -> None:
    place, count, before = _position_of_row(batch[-1]), _last_group(batch), rows.last_row
    if before is not None and count == len(batch) and (before.time_us, before.id) == place:
        count += before.rows
    rows.last_row = LastRow(*place, count)


def _last_group(batch: list[Row]) -> int:
    """Return how many of the last rows have the time and id of the last one."""
    places = (_position_of_row(row) for row in reversed(batch))
    last = _position_of_row(batch[-1]) if batch else None
    return next((index for index, place in enumerate(places) if place != last), len(batch))


def _without_position_columns(batch: list[Row]) -> list[Row]:
    return [row[:-2] for row in batch]


def _position_of_row(row: Row) -> tuple[int, str]:
    time_us, id_ = row[-2:]
    return int(str(time_us)), str(id_)[:_MAX_ID_CHARACTERS]
