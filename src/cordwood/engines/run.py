"""Run a question on an engine in this process: encode its rows as they arrive, within the limits."""

from collections.abc import Generator, Iterable
from contextlib import ExitStack, closing

from cordwood.engines.engine import Asked, Cancel, Engine, Made
from cordwood.errors import TooManyBytes
from cordwood.model.rows import Row, Rows
from cordwood.settings.quantities import show_size
from cordwood.sql.redaction.flow import still_textless


class OutdatedError(Exception):
    """Raised when a path that is read unredacted has contained a text since: the statement must be recompiled."""


class RunHere:
    """The encoded pieces of an answer, and its receipt after the last of them."""

    def __init__(self, asked: Asked, rows: Rows) -> None:
        self._asked = asked
        self._rows = rows
        self._row_count = 0
        self._byte_count = 0
        self._batches = self._counted(rows.batches)
        rows.batches = self._batches

    def pieces(self) -> Generator[bytes, None, None]:
        """Yield the encoded pieces; closing the iterator frees the engine's cursor."""
        with closing(self._batches):
            for piece in self._asked.encode(self._rows):
                self._byte_count += len(piece)
                if self._asked.most_bytes is not None and self._byte_count > self._asked.most_bytes:
                    raise _too_large(self._asked.most_bytes)
                yield piece

    def made(self) -> Made:
        return Made(self._row_count, self._rows.truncated, self._rows.engine_seconds)

    def _counted(self, batches: Iterable[list[Row]]) -> Generator[list[Row], None, None]:
        with ExitStack() as stack:
            if isinstance(batches, Generator):
                stack.enter_context(closing(batches))
            for batch in batches:
                self._row_count += len(batch)
                yield batch


def _too_large(most_bytes: int) -> TooManyBytes:
    return TooManyBytes(f"The answer is larger than {show_size(most_bytes)}.", hint="Ask for fewer rows or columns.")


def run_here(engine: Engine, asked: Asked, cancel: Cancel) -> RunHere:
    """Run a question on an engine in this process.

    Raises OutdatedError where the statement may have read a text that it should have redacted: a path that had no text
    when the statement was compiled is read without redaction. A text that came before the rows were read is in the
    shape by now, so no row is returned for which the statement was out of date.
    """
    rows = engine.answer(asked.question, asked.limits, cancel)
    if not still_textless(asked.question.statement.textless_paths, engine.shapes()):
        _let_go(rows)
        raise OutdatedError
    return RunHere(asked, rows)


def _let_go(rows: Rows) -> None:
    if isinstance(rows.batches, Generator):
        # A generator that was not started does not run its `finally` blocks when it is closed.
        next(rows.batches, None)
        rows.batches.close()
