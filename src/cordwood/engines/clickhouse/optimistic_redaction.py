"""Runs a redacted statement first as if there were nothing to redact, where that is likely."""

from collections.abc import Callable, Generator
from typing import Final

from cordwood.errors import QueryValue
from cordwood.model.rows import Rows
from cordwood.sql.plan import Reads, print_segments
from cordwood.sql.redaction.masking import FOUND
from cordwood.sql.stages import Question

# An answer must be there as a whole for it to be known that nothing had to be redacted.
_MOST_ROWS: Final = 1000
_REMEMBERED: Final = 2000


class OptimisticRedaction:
    """Safe from several threads."""

    def __init__(self) -> None:
        # Digests of statements that had something to redact the last time.
        self._hides: set[bytes] = set()

    def rows(self, question: Question, run: Callable[[str], Rows]) -> Rows:
        """The answer to a question; `run` answers SQL."""
        statement = question.statement
        optimistic = statement.plan.choose(Reads.ALL, optimistic=True)
        if optimistic is not None and statement.digest not in self._hides:
            rows = _tried(print_segments(optimistic.segments), run)
            if rows is not None:
                return rows
            self._remember(statement.digest)
        return run(statement.sql)

    def _remember(self, digest: bytes) -> None:
        if len(self._hides) >= _REMEMBERED:
            self._hides.clear()
        self._hides.add(digest)


def _tried(sql: str, run: Callable[[str], Rows]) -> Rows | None:
    try:
        return _whole(run(sql))
    except QueryValue as fault:
        # The server leaves out the full stop, or puts its own words behind it.
        if not fault.message.startswith(FOUND.rstrip(".")):
            raise
    return None


def _whole(rows: Rows) -> Rows | None:
    kept, count, batches = [], 0, rows.batches
    for batch in batches:
        kept.append(batch)
        count += len(batch)
        if count >= _MOST_ROWS:
            if isinstance(batches, Generator):
                batches.close()
            return None
    rows.batches = kept
    return rows
