"""Run a question on an engine in the same process, encode its answer, and limit the answer's size.

If a statement is paged by time (each page begins after the last row's time and id), the module also removes the columns
that the compiler added, and notes the last row.
"""

from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext

from cordwood.engines.engine import Cancellation, Engine, QueryRunRequest, QueryRunStats
from cordwood.errors import AnswerTooLarge
from cordwood.model.datatype import LastRow, Row, Rows
from cordwood.settings.quantities import format_size
from cordwood.sql.redaction.redaction_pass import are_paths_still_textless
from cordwood.sql.stages import Statement


class OutdatedStatementError(Exception):
    """An error for a statement that must be compiled again.

    The statement reads a path without redaction, because no texts were seen there; by now, a text may be stored there.
    """


class LocalQueryRun:
    """A query that runs on an engine in the same process. Its rows are encoded to chunks."""

    def __init__(self, request: QueryRunRequest, rows: Rows) -> None:
        self._request = request
        self._rows = rows
        self._row_count = 0
        self._encoded_byte_count = 0
        self._batches = self._count_rows_while_reading(rows.batches)
        rows.batches = self._batches

    def answer_chunks(self) -> Generator[bytes, None, None]:
        """Yield the encoded answer in chunks. If the iterator is closed early, the engine's cursor is freed."""
        with closing(self._batches):
            for chunk in self._request.encode(self._rows):
                self._encoded_byte_count += len(chunk)
                if self._request.max_bytes is not None and self._encoded_byte_count > self._request.max_bytes:
                    raise _too_large_answer_error(self._request.max_bytes)
                yield chunk

    def stats(self) -> QueryRunStats:
        return QueryRunStats(
            self._row_count,
            self._rows.is_truncated,
            self._rows.engine_seconds,
            self._rows.last_row,
        )

    def _count_rows_while_reading(self, batches: Iterable[list[Row]]) -> Generator[list[Row], None, None]:
        with ExitStack() as stack:
            if isinstance(batches, Generator):
                stack.enter_context(closing(batches))
            for batch in batches:
                self._row_count += len(batch)
                yield batch


def _too_large_answer_error(max_bytes: int) -> AnswerTooLarge:
    return AnswerTooLarge(f"The answer is larger than {format_size(max_bytes)}.", hint="Ask for fewer rows or columns.")


def run_query_locally(engine: Engine, request: QueryRunRequest, cancel: Cancellation) -> LocalQueryRun:
    """Run a question on an engine in the same process.

    If no text was seen at a path when the statement was compiled, the statement reads the path without redaction. If a
    text may be stored there by now, raise OutdatedStatementError before any row is returned. The shapes are checked
    after the query has started, so that they include every text which the query can read.
    """
    rows = engine.answer(request.bound_statement, request.limits, cancel)
    if not are_paths_still_textless(request.bound_statement.statement.textless_paths, engine.shapes_by_stream()):
        _close_batches(rows)
        raise OutdatedStatementError
    return LocalQueryRun(request, rows)


def _close_batches(rows: Rows) -> None:
    if isinstance(rows.batches, Generator):
        # The generator must be started before it is closed: otherwise its `finally` blocks would not run.
        next(rows.batches, None)
        rows.batches.close()


# The maximum length of an event's id in a cursor. A longer id would make the cursor too long for a URL.
_MAX_CURSOR_ID_CHARACTERS = 100


def remove_paging_columns(rows: Rows, statement: Statement) -> Rows:
    """Remove the columns time and id, which the compiler added for paging; `last_row` keeps their last values."""
    paging = statement.paging
    if paging is None or not paging.is_by_time:
        return rows
    rows.columns = rows.columns[: statement.answer_column_count]
    batches = rows.batches
    taken = (
        _strip_paging_and_partial_event(rows, batches)
        if paging.has_array_elements
        else _strip_paging_columns(rows, batches)
    )
    # A generator is wrapped in a generator, because it holds the engine's cursor until it is exhausted or closed.
    # Batches of other types are in memory already.
    rows.batches = taken if isinstance(batches, Generator) else list(taken)
    return rows


def _strip_paging_columns(rows: Rows, batches: Iterable[list[Row]]) -> Generator[list[Row], None, None]:
    with _close_when_done(batches):
        for batch in batches:
            if batch:
                _record_last_row(rows, batch)
            yield _drop_paging_columns(batch)


def _strip_paging_and_partial_event(rows: Rows, batches: Iterable[list[Row]]) -> Generator[list[Row], None, None]:
    """Remove the columns time and id. If the answer is cut off, also leave out all rows of the last event.

    An event may have several rows, and its last ones could be missing; the next page then has all of them. Only an
    event with more rows than a page is split between pages.
    """
    held: list[Row] = []
    has_others = False
    with _close_when_done(batches):
        for batch in batches:
            pending = held + batch
            count = _last_event_row_count(pending)
            complete, held = pending[: len(pending) - count], pending[len(pending) - count :]
            if complete:
                has_others = True
                _record_last_row(rows, complete)
                yield _drop_paging_columns(complete)
    if held and not (rows.is_truncated and has_others):
        _record_last_row(rows, held)
        yield _drop_paging_columns(held)


def _close_when_done(batches: Iterable[list[Row]]) -> AbstractContextManager[object]:
    return closing(batches) if isinstance(batches, Generator) else nullcontext()


def _record_last_row(rows: Rows, batch: list[Row]) -> None:
    place, count, before = _time_and_id_of_row(batch[-1]), _last_event_row_count(batch), rows.last_row
    if before is not None and count == len(batch) and (before.time_us, before.id) == place:
        count += before.tied_row_count
    rows.last_row = LastRow(*place, count)


def _last_event_row_count(batch: list[Row]) -> int:
    """Return the number of rows at the end of the batch that have the same time and id as the last row."""
    places = (_time_and_id_of_row(row) for row in reversed(batch))
    last = _time_and_id_of_row(batch[-1]) if batch else None
    return next((index for index, place in enumerate(places) if place != last), len(batch))


def _drop_paging_columns(batch: list[Row]) -> list[Row]:
    return [row[:-2] for row in batch]


def _time_and_id_of_row(row: Row) -> tuple[int, str]:
    time_us, id_ = row[-2:]
    return int(str(time_us)), str(id_)[:_MAX_CURSOR_ID_CHARACTERS]
