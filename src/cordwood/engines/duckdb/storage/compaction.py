"""Compact flushed row groups in the background: rewrite runs of ten row groups, sorted by project.

A flush writes row groups in order of arrival. So each row group has events of every project, and some are short. A
compacted run has full row groups with few projects each, so that a query for one project reads a tenth as many row
groups. Each run is compacted in one transaction. So queries see the run either unchanged or compacted, even after a
crash.
Afterwards the compaction thread indexes the n-grams of blocks, so that flushes do not have to index them.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection

import duckdb

from cordwood.engines.duckdb.storage.background import BackgroundJob
from cordwood.engines.duckdb.storage.blocks import (
    allocate_block_number,
    delete_filters_of_empty_blocks,
    insert_block_filter,
    next_unindexed_block,
    register_block,
    register_missing_blocks,
    replace_block_filter,
    unregister_compacted_blocks,
)
from cordwood.engines.duckdb.storage.locks import LockRank, ordered_lock
from cordwood.engines.duckdb.storage.memory_reclaimer import MemoryReclaimer, release_free_memory
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS, Session, roll_back
from cordwood.engines.duckdb.storage.stream_store import StreamStore, unflushed_bytes
from cordwood.engines.duckdb.storage.tables import StreamTableStatements
from cordwood.observe.observation import ReportOperatorMessage

# The number of row groups that one run rewrites.
ROW_GROUPS_PER_COMPACTED_RUN = 10
# The number of newest row groups that are left in order of arrival. If they were compacted, too, a query for the newest
# events of all projects would have to read a whole run instead of the last row groups.
MIN_UNCOMPACTED_ROW_GROUPS = 4
_DUE_WORK_POLL_SECONDS = 5.0
_FAILURE_PAUSE_SECONDS = 60.0
_LOCK_RELEASE_PAUSE_SECONDS = 0.05
# Compaction waits until no row group has been flushed for this time.
_COMPACTION_DELAY_AFTER_FLUSH_SECONDS = 5.0
# If events arrive without pauses, compaction runs only if flushes recently took less than this share of the time. The
# last `_FLUSH_SAMPLE_COUNT` samples show how long flushes took.
_MAX_FLUSHING_TIME_SHARE = 1 / 3
_FLUSH_SAMPLE_COUNT = 6


class Compactor:
    """The background job that compacts row groups, indexes n-grams and releases memory.

    `deletion_lock` is held while rows are removed from the tables of streams, and while the file is reopened to free
    memory. `is_busy` tells whether flushes lag behind the events that arrive. `runs_between_flushes` allows compaction
    while events arrive without pauses. `stopping` is set when the job must end.
    """

    def __init__(
        self,
        session: Session,
        stores: Callable[[], Collection[StreamStore]],
        is_busy: Callable[[], bool],
        report: ReportOperatorMessage,
        *,
        runs_between_flushes: bool,
        stopping: threading.Event,
    ) -> None:
        self.deletion_lock = ordered_lock(LockRank.COMPACTION)
        self.memory_reclaimer = MemoryReclaimer(session, self.deletion_lock, lambda: unflushed_bytes(stores()))
        self._session = session
        self._get_stores = stores
        self._are_flushes_behind = is_busy
        self._report_message = report
        self._last_flush_at = time.monotonic()
        self._may_compact_between_flushes = runs_between_flushes
        self._flushing_time_samples: deque[tuple[float, float]] = deque(maxlen=_FLUSH_SAMPLE_COUNT)
        # The value of `_last_flush_at` when nothing was left to compact or index. While `_last_flush_at` stays the
        # same, the search for work is skipped.
        self._last_flush_at_full_compaction: float | None = None
        self._failed_at = -_FAILURE_PAUSE_SECONDS
        self._stop_event = stopping
        self._cursor = session.cursor()
        # A second cursor for statements outside of the transaction of `_cursor`.
        self._cursor_outside_transaction = session.cursor()
        self.job = BackgroundJob("compact", self.run_due_work, first_pause=_DUE_WORK_POLL_SECONDS)

    def on_flush(self) -> None:
        self._last_flush_at = time.monotonic()

    def interrupt(self) -> None:
        """Interrupt the running statement of compaction, whose transaction is then rolled back."""
        self._cursor.interrupt()

    def close(self) -> None:
        """Close the cursors; the caller does this after the job has ended."""
        self._cursor.close()
        self._cursor_outside_transaction.close()

    def compact_all(self) -> None:
        """Compact and index until nothing is left to do; if this succeeds, do nothing again until the next flush."""
        last_flush = self._last_flush_at
        if self._last_flush_at_full_compaction == last_flush:
            return
        self._session.checkpoint_when_due(self._cursor)
        is_done = True
        # Compact before indexing. Compaction replaces blocks, so the n-grams of the replaced blocks would be indexed in
        # vain.
        for work in (self.compact_oldest_run, self.index_newest_block, self.register_legacy_blocks):
            for store in self._get_stores():
                while (may_begin := self._may_begin_compaction()) and work(store):
                    is_done = False
                    # Pause, so that a thread that waits for the lock gets it before the compaction thread takes it
                    # again.
                    self._stop_event.wait(_LOCK_RELEASE_PAUSE_SECONDS)
                is_done &= may_begin
        if is_done:
            self._last_flush_at_full_compaction = last_flush

    def compact_oldest_run(self, store: StreamStore) -> bool:
        """Compact the oldest uncompacted run; return False if there is none, or if compaction has to be postponed."""
        is_compacted = self._run_or_retry_without_shredding(self._rewrite_run, store.table_statements)
        if is_compacted:
            self.memory_reclaimer.record_activity()
            self._session.checkpoint(self._cursor)
            release_free_memory()
        return is_compacted

    def index_newest_block(self, store: StreamStore) -> bool:
        """Index the n-grams of the newest unindexed block; return False if there is none."""
        return self._run_or_retry_without_shredding(self._index_newest_block_in_transaction, store.table_statements)

    def register_legacy_blocks(self, store: StreamStore) -> bool:
        """Register some of the blocks that earlier releases left unregistered; return False if there are none."""
        if store.has_all_blocks_registered:
            return False
        is_changed = self._run_in_transaction(self._register_missing_blocks, store.table_statements)
        store.has_all_blocks_registered = not is_changed
        return is_changed

    def _register_missing_blocks(self, tables: StreamTableStatements) -> bool:
        return register_missing_blocks(self._cursor, tables, ROW_GROUPS_PER_COMPACTED_RUN)

    def _run_or_retry_without_shredding(
        self, change: Callable[[StreamTableStatements], bool], tables: StreamTableStatements
    ) -> bool:
        """Run `change` in one transaction; return whether it changed anything.

        If the change exceeds the memory limit, run it again without shredding, so that VARIANT values are written whole
        instead of in a column for each field.
        """
        try:
            return self._run_in_transaction(change, tables)
        except duckdb.OutOfMemoryException:
            if not self._session.pause_shredding(self._cursor):
                raise
            return self._run_in_transaction(change, tables)

    def _run_in_transaction(
        self, change: Callable[[StreamTableStatements], bool], tables: StreamTableStatements
    ) -> bool:
        """Run `change` in one transaction; if it changed nothing, roll back and return False."""
        cursor = self._cursor
        with self.deletion_lock:
            cursor.execute("BEGIN")
            try:
                is_changed = change(tables)
                cursor.execute("COMMIT" if is_changed else "ROLLBACK")
            except BaseException:
                roll_back(cursor)
                raise
        return is_changed

    def _index_newest_block_in_transaction(self, tables: StreamTableStatements) -> bool:
        block = next_unindexed_block(self._cursor, tables)
        if block is None:
            return False
        replace_block_filter(self._cursor, tables, block)
        return True

    def _rewrite_run(self, tables: StreamTableStatements) -> bool:
        last_rowid = self._last_rowid_of_run(tables)
        if last_rowid is None:
            return False
        self._cursor.execute(tables.create_row_group_assignment(), {"last": last_rowid, "rows": ROW_GROUP_ROWS})
        for part in range(ROW_GROUPS_PER_COMPACTED_RUN):
            # Give up the run, which rolls back the transaction, if other work is more important or if DuckDB's log has
            # become long. The log matters, because while this transaction is open, DuckDB keeps the log entries of
            # other transactions in memory.
            if self._stop_event.is_set() or self._are_flushes_behind() or self._session.is_database_log_long:
                return False
            started_at = time.monotonic()
            self._write_compacted_row_group(tables, part)
            self.memory_reclaimer.reclaim_between_background_steps(self._cursor_outside_transaction)
            # Wait as long as the step took, so that compaction uses at most half of one processor.
            self._stop_event.wait(time.monotonic() - started_at)
        unregister_compacted_blocks(self._cursor, tables, last_rowid)
        self._cursor.execute(tables.delete_run_rows(), {"last": last_rowid})
        delete_filters_of_empty_blocks(self._cursor, tables)
        return True

    def _write_compacted_row_group(self, tables: StreamTableStatements, part: int) -> None:
        block = allocate_block_number(self._cursor)
        self._cursor.execute(tables.insert_compacted_row_group(), {"part": part, "block": block})
        register_block(self._cursor, tables, block)
        insert_block_filter(self._cursor, tables, block)

    def _last_rowid_of_run(self, tables: StreamTableStatements) -> int | None:
        rows = ROW_GROUPS_PER_COMPACTED_RUN * ROW_GROUP_ROWS
        ((uncompacted_rows, last),) = self._cursor.execute(
            tables.select_uncompacted_run_end(), {"rows": rows}
        ).fetchall()
        return (
            None if last is None or uncompacted_rows < rows + MIN_UNCOMPACTED_ROW_GROUPS * ROW_GROUP_ROWS else int(last)
        )

    def run_due_work(self) -> float:
        """Run the work of the compaction job that is due; return the seconds until the next check."""
        self._flushing_time_samples.append((time.monotonic(), self._session.access_lock.flushing_seconds))
        is_paused = time.monotonic() < self._failed_at + _FAILURE_PAUSE_SECONDS
        if not is_paused and not self._run_and_report_errors(self.compact_all, "Row groups could not be compacted yet"):
            self._failed_at = time.monotonic()
        self._run_and_report_errors(
            lambda: self.memory_reclaimer.reclaim(self._cursor), "Memory could not be released yet"
        )
        self._run_and_report_errors(
            lambda: self._session.resume_shredding_when_due(self._cursor), "Shredding could not begin again yet"
        )
        return _DUE_WORK_POLL_SECONDS

    def _run_and_report_errors(self, work: Callable[[], None], failure_message: str) -> bool:
        try:
            work()
        except duckdb.Error as problem:
            if not self._stop_event.is_set():
                self._report_message(f"{failure_message}: {problem}".splitlines()[0])
            return False
        return True

    def _may_begin_compaction(self) -> bool:
        is_quiet = time.monotonic() - self._last_flush_at > _COMPACTION_DELAY_AFTER_FLUSH_SECONDS or (
            self._may_compact_between_flushes and self._is_flush_load_low()
        )
        return is_quiet and not self._stop_event.is_set() and not self._are_flushes_behind()

    def _is_flush_load_low(self) -> bool:
        if len(self._flushing_time_samples) < _FLUSH_SAMPLE_COUNT:
            return False
        since, flushing_seconds = self._flushing_time_samples[0]
        share = (self._session.access_lock.flushing_seconds - flushing_seconds) / (time.monotonic() - since)
        return share < _MAX_FLUSHING_TIME_SHARE
