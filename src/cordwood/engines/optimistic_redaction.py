"""Run the optimistic variant of a redacted statement first, unless it found something to redact the last time."""

from collections.abc import Callable, Generator
from typing import Final

from cordwood.errors import QueryValue
from cordwood.model.rows import Rows
from cordwood.sql.plan import Reads
from cordwood.sql.redaction.masking import FOUND
from cordwood.sql.stages import Statement

# An answer must be there as a whole for it to be known that nothing had to be redacted.
_MOST_ROWS: Final = 1000
_REMEMBERED: Final = 2000

# Runs the variant that is optimistic, or the one that redacts.
Run = Callable[[bool], Rows]


class OptimisticRedaction:
    """The statements that had something to redact; safe from several threads."""

    def __init__(self) -> None:
        self._found: set[bytes] = set()

    def rows(self, statement: Statement, run: Run) -> Rows:
        """Return the rows of the optimistic variant if it has found nothing, or else those of the other one."""
        if statement.plan.choose(Reads.ALL, optimistic=True) is not None and statement.digest not in self._found:
            rows = _tried(run)
            if rows is not None:
                return rows
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found.add(statement.digest)
        return run(False)  # noqa: FBT003 - what the callback takes


def _tried(run: Run) -> Rows | None:
    """Return the optimistic rows; None where a text may have to be redacted, or where they are too many to wait for."""
    try:
        return _whole(run(True))  # noqa: FBT003 - what the callback takes
    except QueryValue as fault:
        # ClickHouse leaves out the full stop, or puts its own words behind it.
        if not fault.message.startswith(FOUND.rstrip(".")):
            raise
    return None


def _whole(rows: Rows) -> Rows | None:
    """Fetch all rows; None, and the query is stopped, where there are too many."""
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
