"""One run of the engine, in a thread: rows become bytes as they come, within the limits."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from math import inf

import msgspec

from cordwood.engines.engine import AnswerLimits, Cancel, Engine
from cordwood.errors import TooManyBytes
from cordwood.model.rows import Row, Rows
from cordwood.serve.ask import Ask
from cordwood.serve.finished import Finished, Receipt
from cordwood.settings.units import show_size
from cordwood.sql.redaction.leaves import still_textless
from cordwood.sql.stages import Question, Statement


class Job(msgspec.Struct, frozen=True):
    """A question with all that its run needs; `asked_us` is the moment of the call.

    `answer_bytes` bounds an answer that is held whole.
    """

    ask: Ask
    question: Question
    limits: AnswerLimits
    answer_bytes: int
    asked_us: int
    compile_seconds: float


class OutdatedError(Exception):
    """A text came to a path that the statement reads as having none: it must be compiled again, for today's shapes."""


class Run:
    """The pieces of an answer as the engine yields them, and its receipt once they are out."""

    def __init__(self, job: Job, rows: Rows, most_bytes: float) -> None:
        self._job = job
        self._most_bytes = most_bytes
        self._rows = rows
        self._row_count = 0
        self._byte_count = 0
        self._batches = self._counted(rows.batches)
        rows.batches = self._batches

    def pieces(self) -> Iterator[bytes]:
        """Closing this iterator lets go of the engine's cursor, whatever is left in it."""
        with closing(self._batches):
            for piece in self._job.ask.format.encode(self._rows):
                self._byte_count += len(piece)
                if self._byte_count > self._most_bytes:
                    raise self._too_large()
                yield piece

    def _too_large(self) -> TooManyBytes:
        return TooManyBytes(
            f"The answer is larger than {show_size(int(self._most_bytes))}.", hint="Ask for fewer rows or columns."
        )

    def receipt(self) -> Receipt:
        job = self._job
        return Receipt(
            rows=self._row_count,
            truncated=f"max_rows={job.limits.max_rows}" if self._rows.truncated else None,
            notices=_notices(job.question.statement),
            revision=job.ask.endpoint.revision,
            made_us=job.asked_us,
            compile_seconds=round(job.compile_seconds, 6),
            engine_seconds=round(self._rows.engine_seconds, 6),
        )

    def _counted(self, batches: Iterable[list[Row]]) -> Generator[list[Row], None, None]:
        with ExitStack() as stack:
            if isinstance(batches, Generator):
                stack.enter_context(closing(batches))
            for batch in batches:
                self._row_count += len(batch)
                yield batch


def _notices(statement: Statement) -> tuple[str, ...]:
    return (*(f"path never seen: {path}" for path in statement.unseen_paths), *statement.notices)


def start(job: Job, engine: Engine, cancel: Cancel) -> Run:
    """A run whose pieces leave as they come: it holds few bytes, however many there are in all."""
    return Run(job, _answered(job, engine, cancel), inf)


def finish(job: Job, engine: Engine, cancel: Cancel) -> Finished:
    """The whole answer at once."""
    run = Run(job, _answered(job, engine, cancel), job.answer_bytes)
    body = b"".join(run.pieces())
    return Finished(body, run.receipt())


def _answered(job: Job, engine: Engine, cancel: Cancel) -> Rows:
    """The rows; OutdatedError where the statement may have read a text that it should have redacted.

    A path that had no text when the statement was compiled is read without redaction. A text that came before the
    rows were read is in the shape by now, so no row is handed out for which the statement did not hold.
    """
    rows = engine.answer(job.question, job.limits, cancel)
    if not still_textless(job.question.statement.textless, engine.shapes()):
        _let_go(rows)
        raise OutdatedError
    return rows


def _let_go(rows: Rows) -> None:
    if isinstance(rows.batches, Generator):
        # One that was never begun has nothing to let go of.
        next(rows.batches, None)
        rows.batches.close()
