"""Run the optimistic variant of a redacted statement first, unless its last run found something to redact."""

from collections.abc import Callable, Generator
from typing import Final

from cordwood.errors import QueryValue
from cordwood.model.rows import Rows
from cordwood.sql.plan import Reads
from cordwood.sql.redaction.masking import MAY_NEED_REDACTION
from cordwood.sql.stages import Statement

# The rows are buffered up to this number, because only after the last row is it known that nothing had to be redacted.
_MAX_BUFFERED_ROWS: Final = 1000
_MAX_REMEMBERED: Final = 2000

# A function that runs the optimistic variant for True, and the redacting one for False.
RunVariant = Callable[[bool], Rows]


class OptimisticRedaction:
    """The set of statements whose optimistic run found something to redact; safe from several threads."""

    def __init__(self) -> None:
        self._digests_with_findings: set[bytes] = set()

    def rows(self, statement: Statement, run: RunVariant) -> Rows:
        """Return the rows of the optimistic variant if it found nothing to redact, else those of the redacting one."""
        if (
            statement.plan.choose(Reads.ALL, optimistic=True) is not None
            and statement.digest not in self._digests_with_findings
        ):
            rows = _try_optimistic(run)
            if rows is not None:
                return rows
            if len(self._digests_with_findings) >= _MAX_REMEMBERED:
                self._digests_with_findings.clear()
            self._digests_with_findings.add(statement.digest)
        return run(False)  # noqa: FBT003 - what the callback takes


def _try_optimistic(run: RunVariant) -> Rows | None:
    """Return the optimistic rows; None if a text may have to be redacted, or if there are too many rows to buffer."""
    try:
        return _fetch_all(run(True))  # noqa: FBT003 - what the callback takes
    except QueryValue as fault:
        # ClickHouse omits the full stop, or appends its own message.
        if not fault.message.startswith(MAY_NEED_REDACTION.rstrip(".")):
            raise
    return None


def _fetch_all(rows: Rows) -> Rows | None:
    """Fetch all rows; stop the query and return None if there are too many."""
    fetched, row_count, batches = [], 0, rows.batches
    for batch in batches:
        fetched.append(batch)
        row_count += len(batch)
        if row_count >= _MAX_BUFFERED_ROWS:
            if isinstance(batches, Generator):
                batches.close()
            return None
    rows.batches = fetched
    return rows
