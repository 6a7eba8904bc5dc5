"""The embedded engine: DuckDB on one folder, in one process."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import duckdb
import msgspec

from cordwood.engines.duckdb.faults import duckdb_faults, opening
from cordwood.engines.duckdb.query.answer_redaction import AnswerRedaction
from cordwood.engines.duckdb.query.answers import PARSED_BYTES, QueryRunner
from cordwood.engines.duckdb.statement_check import StatementCheck
from cordwood.engines.duckdb.storage.flusher import Means
from cordwood.engines.duckdb.storage.retention import Retention
from cordwood.engines.duckdb.storage.session import FILE, ROW_GROUP_ROWS, Session
from cordwood.engines.duckdb.storage.storage import Storage
from cordwood.engines.duckdb.storage.tables import StreamTables
from cordwood.engines.engine import AnswerLimits, Appended, Asked, Cancel, HeldFile, Run, StreamFacts
from cordwood.engines.isolation import Isolation
from cordwood.engines.project_shapes import ProjectShapes
from cordwood.engines.run import run_here
from cordwood.model.event import Batch
from cordwood.model.redaction import UNKEYED, Redacting
from cordwood.model.rows import Rows
from cordwood.model.shape import Shape
from cordwood.model.stream import Stream
from cordwood.model.timestamps import now_us
from cordwood.observe.observer import Note, Tell, note_nothing, tell_nobody
from cordwood.sql.stages import Question
from cordwood.sql.target import Target

_ENOUGH_FOR_TWO = 192 * 10**6
_ENOUGH_TO_KEEP = 600 * 10**6
# The bytes of pending events where row groups are flushed in parts, so that a whole one need not be buffered.
_PARTS_HELD_BYTES = 16 * 10**6
# The capacity of a stream's cache of its newest events: some ten thousand events of a gateway.
_MOST_NEWEST_BYTES = 16 * 10**6


class Options(msgspec.Struct, frozen=True):
    """Resources, callbacks and redaction keys of the engine."""

    memory_bytes: int = 256 * 1024 * 1024
    # The most bytes of events that are not flushed; above it `append` blocks.
    held_bytes: int = 96 * 1024 * 1024
    threads: int = 2
    tell: Tell = tell_nobody
    note: Note = note_nothing
    redacting: Redacting = UNKEYED
    store_bytes: int | None = None
    # The capacity of the cache of parsed statements.
    parsed_bytes: int = PARSED_BYTES


_ORDINARY = Options()


def _means(options: Options) -> Means:
    """Choose the flush limits: writing a row group takes 50 to 100 MB, and freed memory is some 200 MB."""
    if options.memory_bytes < _ENOUGH_FOR_TWO:
        return Means(1, min(_PARTS_HELD_BYTES, options.held_bytes), ROW_GROUP_ROWS // 5)
    workers = 2 if options.threads > 1 else 1
    return Means(workers, options.held_bytes, kept_seconds=10.0 if options.memory_bytes > _ENOUGH_TO_KEEP else 1.0)


class DuckDBEngine:
    """The embedded engine on the store in `folder`, which it opens or creates.

    Raises DataFolderInUse or DataFolderUnusable if that fails.
    """

    def __init__(
        self,
        folder: Path,
        target: Target,
        options: Options = _ORDINARY,
        *,
        clock_us: Callable[[], int] = now_us,
    ) -> None:
        self.target = target
        folder.mkdir(parents=True, exist_ok=True)
        self._session = Session(folder, memory_bytes=options.memory_bytes, threads=options.threads)
        self._file = folder / FILE
        with opening(self._file), ExitStack() as undone:
            undone.callback(self._session.close)
            self._storage = Storage(self._session, folder, clock_us, options.tell)
            undone.pop_all()
        self._storage.retention = Retention(self._session, options.store_bytes)
        self._storage.keeping.most_bytes = min(_MOST_NEWEST_BYTES, options.memory_bytes // 16)
        self._storage.start(_means(options))
        check = StatementCheck(Isolation(target.name, options.note))
        self._answering = QueryRunner(
            self._storage, AnswerRedaction(self._session.cursor, options.redacting), check, options.parsed_bytes
        )

    def prepare(self, streams: Sequence[Stream]) -> None:
        with opening(self._file):
            self._storage.prepare(streams)

    def append(self, batches: Sequence[Batch]) -> list[Appended]:
        with duckdb_faults():
            return self._storage.append(batches)

    def append_again(self, batches: Sequence[Batch], acknowledged: Mapping[str, int]) -> list[Appended]:
        """Append batches that an unacknowledged append may have stored already.

        Their stored events with numbers from `acknowledged` on count as accepted.
        """
        with duckdb_faults():
            return self._storage.append(batches, acknowledged)

    def tails(self) -> Mapping[str, int]:
        """Return the number of each stream's next event."""
        return self._storage.tails()

    def answer(self, question: Question, limits: AnswerLimits, cancel: Cancel) -> Rows:
        return self._answering.answer(question, limits, cancel)

    def run(self, asked: Asked, cancel: Cancel) -> Run:
        return run_here(self, asked, cancel)

    def stored(self, stream: str) -> str:
        return StreamTables(stream).stored()

    def shapes(self) -> Mapping[str, Shape]:
        return self._storage.shapes()

    def projects(self) -> Mapping[str, ProjectShapes]:
        return self._storage.projects()

    def facts(self) -> Mapping[str, StreamFacts]:
        with duckdb_faults():
            return self._storage.facts()

    def sizes(self) -> Mapping[str, int]:
        with duckdb_faults():
            return self._storage.sizes()

    def sweep(self, now_us: int) -> int:
        with duckdb_faults():
            return self._storage.sweep(now_us)

    @contextmanager
    def held(self) -> Iterator[Sequence[HeldFile]]:
        with duckdb_faults(), self._storage.held() as files:
            yield files

    def is_regex(self, pattern: str) -> str | None:
        cursor = self._session.cursor()
        try:
            cursor.execute("SELECT regexp_matches('', $pattern)", {"pattern": pattern}).fetchall()
        except duckdb.InvalidInputException as problem:
            return str(problem).removeprefix("Invalid Input Error: ").split("\n", 1)[0]
        finally:
            cursor.close()
        return None

    def close(self) -> None:
        self._answering.close()
        self._storage.close()
        self._session.close()
