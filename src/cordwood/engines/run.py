"""Run a question on an engine in this process: encode its rows as they arrive, within the limits."""

from collections.abc import Generator, Iterable
from contextlib import ExitStack, closing

from cordwood.engines.engine import Cancel, Engine, RunRequest, RunStats
from cordwood.errors import TooManyBytes
from cordwood.model.rows import Row, Rows
from cordwood.settings.quantities import show_size
from cordwood.sql.redaction.flow import still_textless


class OutdatedError(Exception):
    """Raised if a path that is read unredacted has contained a text since: the statement must be recompiled."""


class LocalRun:
    """The encoded chunks of an answer, and its statistics after the last chunk."""

    def __init__(self, request: RunRequest, rows: Rows) -> None:
        self._request = request
        self._rows = rows
        self._row_count = 0
        self._byte_count = 0
        self._batches = self._count_rows(rows.batches)
        rows.batches = self._batches

    def chunks(self) -> Generator[bytes, None, None]:
        """Yield the encoded chunks; closing the iterator frees the engine's cursor."""
        with closing(self._batches):
            for chunk in self._request.encode(self._rows):
                self._byte_count += len(chunk)
                if self._request.max_bytes is not None and self._byte_count > self._request.max_bytes:
                    raise _too_large_error(self._request.max_bytes)
                yield chunk

    def stats(self) -> RunStats:
        return RunStats(
            self._row_count,
            self._rows.truncated,
            self._rows.engine_seconds,
            self._rows.last_row,
        )

    def _count_rows(self, batches: Iterable[list[Row]]) -> Generator[list[Row], None, None]:
        with ExitStack() as stack:
            if isinstance(batches, Generator):
                stack.enter_context(closing(batches))
            for batch in batches:
                self._row_count += len(batch)
                yield batch


def _too_large_error(max_bytes: int) -> TooManyBytes:
    return TooManyBytes(f"The answer is larger than {show_size(max_bytes)}.", hint="Ask for fewer rows or columns.")


def run_locally(engine: Engine, request: RunRequest, cancel: Cancel) -> LocalRun:
    """Run a question on an engine in this process.

    A path that had no text when the statement was compiled is read without redaction. Raises OutdatedError if such a
    path may have a text now, before any row is returned: a text that was stored before the rows were read is in the
    shape by then.
    """
    rows = engine.answer(request.question, request.limits, cancel)
    if not still_textless(request.question.statement.textless_paths, engine.shapes()):
        _close_batches(rows)
        raise OutdatedError
    return LocalRun(request, rows)


def _close_batches(rows: Rows) -> None:
    if isinstance(rows.batches, Generator):
        # Close a generator that was not started by its run, because its `finally` blocks would not be executed.
        next(rows.batches, None)
        rows.batches.close()
