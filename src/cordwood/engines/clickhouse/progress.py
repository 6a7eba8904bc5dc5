"""The progress of running queries, which ClickHouse lists with the rows that they have read."""

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from cordwood.engines.clickhouse.session import MARK, Session
from cordwood.engines.engine import Progress

# How old the progress may be before it is read again.
_SECONDS: Final = 0.4
_SETTINGS: Final = {"max_execution_time": 2, "log_queries": 0}
_RUNNING: Final = (
    "SELECT Settings[{name:String}], read_rows, total_rows_approx FROM system.processes"
    " WHERE has({marks:Array(String)}, Settings[{name:String}])"
)


class RunningProgress:
    """The progress of queries by their marks. It is read only when it is asked for, in a thread, for all that asked."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._wanted: set[str] = set()
        self._found: Mapping[str, Progress] = {}
        self._is_reading = False
        self._read_at = 0.0

    def of(self, mark: str) -> Progress | None:
        """Return the progress as it was read last; have it read again if that is long ago."""
        with self._lock:
            self._wanted.add(mark)
            is_due = not self._is_reading and time.monotonic() > self._read_at + _SECONDS
            self._is_reading = self._is_reading or is_due
        if is_due:
            threading.Thread(target=self._read, name="progress", daemon=True).start()
        return self._found.get(mark)

    def _read(self) -> None:
        with self._lock:
            marks, self._wanted = sorted(self._wanted), set()
        found: dict[str, Progress] = {}
        # A server that cannot be reached, or that hides its processes from this user, tells no progress.
        with suppress(Exception):
            values = {"name": MARK, "marks": marks}
            for mark, rows_read, rows_total in self._session.rows(_RUNNING, values, _SETTINGS):
                found[str(mark)] = _progress(int(str(rows_read)), int(str(rows_total)))
        with self._lock:
            self._found, self._is_reading, self._read_at = found, False, time.monotonic()


def _progress(rows_read: int, rows_total: int) -> Progress:
    """Return the progress; how many rows a query will read is an estimate, which is 0 before the query is planned.

    The part of the rows is not the part that is done: they may be read long before they have been joined or sorted.
    """
    return Progress(rows_read=rows_read, rows_total=max(rows_read, rows_total) if rows_total else None)
