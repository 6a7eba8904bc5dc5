"""The DuckDB instance of the process: its database file, memory limit, settings and checkpoints, and cursor helpers."""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from cordwood.engines.duckdb.faults import RESTORE_HINT, is_disk_full, is_out_of_memory, out_of_disk_fault
from cordwood.engines.duckdb.storage.backup_files import OpenFile
from cordwood.engines.duckdb.storage.locks import (
    URGENT_EXCLUSIVE_WAIT,
    DatabaseAccessLock,
    LockRank,
    SharedAccessKind,
    ordered_lock,
)
from cordwood.engines.duckdb.storage.tables import text_literal
from cordwood.errors import DataFolderInUse, DataFolderUnusable, EngineFailed, Fault

DATABASE_FILE_NAME = "events.duckdb"
# The number of rows of a row group. It is large enough to compress well, and small enough that a query for a time range
# can skip most row groups.
ROW_GROUP_ROWS = 20_480
# The size of a block, the unit in which DuckDB allocates space in the file. It is a quarter of DuckDB's default. As
# there are many short columns, smaller blocks make the file smaller by an eighth.
_DATABASE_BLOCK_BYTES = 65_536
# If DuckDB's log is longer than this, or than the memory limit divided by `_MEMORY_LIMIT_DIVISOR_FOR_LOG`, cordwood
# starts a checkpoint. The memory limit counts, because the content of the log is also in memory until the checkpoint.
# DuckDB's automatic checkpoints are off, so that checkpoints can be deferred while a backup reads the files.
_MAX_DATABASE_LOG_BYTES = 64 * 10**6
_MEMORY_LIMIT_DIVISOR_FOR_LOG = 4
_AUTOCHECKPOINT_OFF_SIZE = "1TB"
_MAX_SPILL_SIZE = "4GB"
# While no query runs, DuckDB's cache keeps at most this many bytes of the file's blocks.
_MAX_IDLE_BLOCK_CACHE_BYTES = 16 * 10**6
# SQL for the memory in use as DuckDB counts it: the total, and the part that cached blocks of the file take.
_MEMORY_USE_SQL = "SELECT sum(memory_usage_bytes)::BIGINT, sum(memory_usage_bytes) FILTER (tag = 'BASE_TABLE')::BIGINT FROM duckdb_memory()"
# The memory limit is lowered in steps of this size, to make room for DuckDB's metadata of row groups.
_MEMORY_LIMIT_STEP_BYTES = 4 * 10**6
_ATTACH_ATTEMPTS, _ATTACH_RETRY_SECONDS = 40, 0.05
# The maximum time to wait for another process to release the lock of the file. The data folder has a lock of its own,
# so the other process can only be the engine's process of a service that was just killed.
_FILE_LOCK_TIMEOUT_SECONDS = 5.0
# The pause before a failed checkpoint is tried again. It is long, because after each failure, all access to the file
# has to wait until the file is reopened.
_CHECKPOINT_RETRY_SECONDS = 30.0
# Row groups with at least `_SHREDDED_ROWS` rows are shredded: each field of their VARIANT values becomes a column.
_SHREDDED_ROWS, _NO_SHREDDING = 1024, -1
# The bytes of memory that shredding takes for each row and field, as measured with 60,000 rows and 500 fields.
_SHREDDING_BYTES_PER_VALUE = 11
# The time for which VARIANT values are written whole after shredding has exceeded the memory limit.
_SHREDDING_PAUSE_SECONDS = 300.0


class Session:
    """The DuckDB instance, which all threads share; each thread uses its own cursors (connections) to it."""

    def __init__(self, folder: Path, *, memory_bytes: int, threads: int) -> None:
        self._database_file = folder / DATABASE_FILE_NAME
        self._database_log_file = folder / f"{DATABASE_FILE_NAME}.wal"
        self._database_descriptor = -1
        self._checkpoint_lock = ordered_lock(LockRank.CHECKPOINT)
        self._open_backup_count = 0
        self._checkpoint_failed_at = -_CHECKPOINT_RETRY_SECONDS
        # Whether the last checkpoint failed because the disk was full.
        self._is_disk_full = False
        # The time until which VARIANT values are written whole; None while they are shredded.
        self._shredding_paused_until: float | None = None
        self.access_lock = DatabaseAccessLock()
        self.memory_bytes = self._memory_limit = memory_bytes
        self._spill_folder = folder / "spill"
        shutil.rmtree(self._spill_folder, ignore_errors=True)
        self._root_connection = duckdb.connect(":memory:")
        self._open_database()
        self._opened_file_id = self._current_file_id()
        self.is_open = True
        self._configure_database(memory_bytes, threads)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        if not self.is_open:
            raise EngineFailed("The events cannot be read: their file could not be opened again.", hint=RESTORE_HINT)
        return self._root_connection.cursor()

    def is_usable(self) -> bool:
        """Return whether statements can read the file; a failed reopening or a fatal error of DuckDB prevents this."""
        try:
            with self.cursor_with_shared_access() as cursor:
                cursor.execute("SELECT 1 FROM store.cordwood.sealed LIMIT 0")
        except duckdb.OutOfMemoryException:
            return True
        except (duckdb.Error, EngineFailed):
            return False
        return True

    @contextmanager
    def cursor_with_shared_access(
        self, stop_early: Callable[[], None] = lambda: None
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a cursor with shared access to the file.

        While the access is blocked, `stop_early` is called regularly; it raises an error if a query must stop.
        """
        with self.access_lock.shared_access(SharedAccessKind.QUERY, stop_early), closing(self.cursor()) as cursor:
            yield cursor

    def pause_shredding(self, cursor: duckdb.DuckDBPyConnection) -> bool:
        """Write VARIANT values whole for a while, which needs much less memory; return False if this is done already.

        Shredding stores each field of a row group's events as a column. With thousands of different fields, it needs
        too much memory, so that the events would never be flushed, and the log would grow without limit.
        """
        was_shredding = self._shredding_paused_until is None
        self._shredding_paused_until = time.monotonic() + _SHREDDING_PAUSE_SECONDS
        if was_shredding:
            self._set_min_shredded_rows(cursor, _NO_SHREDDING)
        return was_shredding

    def max_shredded_fields(self, rows: int) -> int:
        """Return the number of fields up to which shredding `rows` rows stays within the memory limit.

        The number is estimated, because DuckDB does not count this memory. Each row takes some bytes for every field
        that any row of the row group has.
        """
        return max(1, self._memory_limit // (_SHREDDING_BYTES_PER_VALUE * max(1, rows)))

    def resume_shredding_when_due(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Resume shredding if VARIANT values have been written whole for long enough."""
        if self._shredding_paused_until is not None and time.monotonic() > self._shredding_paused_until:
            self._shredding_paused_until = None
            self._set_min_shredded_rows(cursor, _SHREDDED_ROWS)

    def _set_min_shredded_rows(self, cursor: duckdb.DuckDBPyConnection, rows: int) -> None:
        cursor.execute("SET GLOBAL variant_minimum_shredding_size = $value", {"value": rows})

    def checkpoint(self, cursor: duckdb.DuckDBPyConnection) -> bool:
        """Run a checkpoint of DuckDB's log; return False if another transaction or a backup prevents it.

        If a checkpoint fails for lack of memory or disk space, nothing is lost, because the changes stay in the log. A
        checkpoint that exceeds the memory limit is tried again without shredding.
        """
        try:
            with self._checkpoint_lock:
                if self._open_backup_count:
                    return False
                cursor.execute("CHECKPOINT store")
        except duckdb.TransactionException:
            return False
        except duckdb.IOException as problem:
            self._checkpoint_failed_at = time.monotonic()
            self._is_disk_full = is_disk_full(str(problem))
            # After a failed checkpoint, DuckDB refuses to read the file until the file is reopened. So reopen it.
            with (
                self.access_lock.exclusive_access(URGENT_EXCLUSIVE_WAIT, until_block_ends=True),
                suppress(duckdb.Error),
            ):
                self.is_open = False
                self.reopen_database(cursor)
            if self.is_open and is_out_of_memory(problem) and self.pause_shredding(cursor):
                return self.checkpoint(cursor)
            raise
        self._checkpoint_failed_at = -_CHECKPOINT_RETRY_SECONDS
        return True

    def checkpoint_when_due(self, cursor: duckdb.DuckDBPyConnection, *, now: bool = False) -> bool:
        is_due = (now or self.is_database_log_long) and (self._may_retry_checkpoint or self._has_disk_space_again())
        return is_due and self.checkpoint(cursor)

    @property
    def is_checkpoint_stuck(self) -> bool:
        """Whether a checkpoint failed and DuckDB's log is too long; flushes then wait, so that it does not grow."""
        return self.is_database_log_long and self._checkpoint_failed_at > 0

    @property
    def _may_retry_checkpoint(self) -> bool:
        return time.monotonic() > self._checkpoint_failed_at + _CHECKPOINT_RETRY_SECONDS

    def _has_disk_space_again(self) -> bool:
        facts = os.statvfs(self._database_file.parent)
        return self._is_disk_full and facts.f_bavail * facts.f_frsize > 2 * self._database_log_bytes()

    def release_cached_blocks(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Release all but a few of DuckDB's cached blocks of the file, which the operating system caches as well.

        Other statements continue meanwhile. The memory limit is lowered for a moment, so that DuckDB evicts blocks.
        DuckDB first evicts cached blocks of the file, so the limit is chosen such that it evicts no other data.
        """
        in_use, cached = cursor.execute(_MEMORY_USE_SQL).fetchall()[0]
        if cached > _MAX_IDLE_BLOCK_CACHE_BYTES:
            for memory_limit in (in_use - cached + _MAX_IDLE_BLOCK_CACHE_BYTES, self._memory_limit):
                self._set_memory_limit(cursor, memory_limit)

    def reserve_memory_for_metadata(self, cursor: duckdb.DuckDBPyConnection, metadata_bytes: int) -> None:
        """Lower the memory limit by the size of DuckDB's metadata of row groups, but at most by a third."""
        memory_limit = self.memory_bytes - min(
            metadata_bytes // _MEMORY_LIMIT_STEP_BYTES * _MEMORY_LIMIT_STEP_BYTES, self.memory_bytes // 3
        )
        if memory_limit != self._memory_limit and self._set_memory_limit(cursor, memory_limit):
            self._memory_limit = memory_limit

    def _set_memory_limit(self, cursor: duckdb.DuckDBPyConnection, memory_limit: int) -> bool:
        """Set DuckDB's memory limit; if running statements need more memory, return False and leave the old limit."""
        with suppress(duckdb.OutOfMemoryException):
            cursor.execute("SET GLOBAL memory_limit = $value", {"value": f"{memory_limit}B"})
            return True
        return False

    def reopen_database(self, cursor: duckdb.DuckDBPyConnection) -> bool:
        """Detach and attach the file, so that DuckDB frees its metadata of row groups, which grows without limit.

        The caller must have exclusive access. The file is unavailable for some milliseconds, plus the time of a
        checkpoint. If a backup reads the files, or the file was replaced by another file, do nothing and return False.
        """
        with self._checkpoint_lock:
            if self._open_backup_count or self._current_file_id() != self._opened_file_id:
                return False
            if self.is_open:
                # Run a checkpoint first. If it fails, the entries of DuckDB's log are replayed when the file is opened
                # again.
                with suppress(duckdb.IOException):
                    cursor.execute("CHECKPOINT store")
            cursor.execute("DETACH DATABASE IF EXISTS store")
            self._attach_with_retries(cursor)
        return True

    def used_disk_bytes(self, cursor: duckdb.DuckDBPyConnection) -> int:
        """Return the bytes that the store uses: the used blocks of the file, and DuckDB's log.

        Free blocks do not count, because the file does not shrink when blocks become free.
        """
        row = fetch_first_row(
            cursor, "SELECT block_size * used_blocks FROM pragma_database_size() WHERE database_name = 'store'"
        )
        return (int(row[0]) if row else 0) + self._database_log_bytes()

    def row_counts_including_deleted(self, cursor: duckdb.DuckDBPyConnection) -> Mapping[str, int]:
        """Return for each stream the number of events that take space in the file.

        The number includes deleted events whose space is not freed yet.
        """
        tables = "SELECT table_name, estimated_size FROM duckdb_tables() WHERE database_name = 'store' AND schema_name = 'main'"
        return {name: int(rows) for name, rows in cursor.execute(tables).fetchall()}

    @property
    def is_database_log_long(self) -> bool:
        return self._database_log_bytes() > min(
            _MAX_DATABASE_LOG_BYTES, self.memory_bytes // _MEMORY_LIMIT_DIVISOR_FOR_LOG
        )

    @contextmanager
    def defer_checkpoints(self) -> Iterator[None]:
        """Defer checkpoints during the `with` block, so that the file and its log can be read for a backup.

        Flushes continue; they write new row groups to other places in the file.
        """
        with self._checkpoint_lock:
            self._open_backup_count += 1
        try:
            yield
        finally:
            with self._checkpoint_lock:
                self._open_backup_count -= 1

    def open_files_for_backup(self) -> list[OpenFile]:
        """Return the database file and DuckDB's log, opened for a backup, with their lengths.

        The caller must call this method, and read the files, while checkpoints are deferred by `defer_checkpoints`.
        """
        open_files = [
            OpenFile(
                self._database_file.name,
                self._open_database_descriptor(),
                self._database_file.stat().st_size,
                is_owned_elsewhere=True,
            )
        ]
        with suppress(FileNotFoundError):
            open_files.append(
                OpenFile(
                    self._database_log_file.name,
                    os.open(self._database_log_file, os.O_RDONLY),
                    self._database_log_file.stat().st_size,
                )
            )
        return open_files

    def close(self) -> None:
        self._root_connection.close()
        if self._database_descriptor >= 0:
            os.close(self._database_descriptor)
        shutil.rmtree(self._spill_folder, ignore_errors=True)

    def _open_database_descriptor(self) -> int:
        """Return a descriptor of the file; it stays open until `close`.

        It is not closed earlier, because closing any descriptor of the file would release the lock that the process has
        on the file.
        """
        if self._database_descriptor < 0:
            self._database_descriptor = os.open(self._database_file, os.O_RDONLY)
        return self._database_descriptor

    def _database_log_bytes(self) -> int:
        try:
            return self._database_log_file.stat().st_size
        except FileNotFoundError:
            return 0

    def _open_database(self) -> None:
        """Attach the file; if a process that was just killed still holds the file's lock, wait for a while."""
        deadline = time.monotonic() + _FILE_LOCK_TIMEOUT_SECONDS
        while True:
            try:
                self._root_connection.execute(self._attach_sql)
            except duckdb.Error as problem:
                fault = _fault_of_open_error(self._database_file, str(problem))
                if not isinstance(fault, DataFolderInUse) or time.monotonic() > deadline:
                    self._root_connection.close()
                    raise fault from problem
                time.sleep(_ATTACH_RETRY_SECONDS)
            else:
                return

    @property
    def _attach_sql(self) -> str:
        return f"ATTACH {text_literal(str(self._database_file))} AS store (ROW_GROUP_SIZE {ROW_GROUP_ROWS}, BLOCK_SIZE {_DATABASE_BLOCK_BYTES})"

    def _attach_with_retries(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Attach the file after it was detached; retry while a running transaction still holds the detached file."""
        for attempts_left in reversed(range(_ATTACH_ATTEMPTS)):
            try:
                cursor.execute(self._attach_sql)
            except duckdb.Error:
                if not attempts_left:
                    self.is_open = False
                    raise
                time.sleep(_ATTACH_RETRY_SECONDS)
            else:
                self.is_open = True
                return

    def _current_file_id(self) -> tuple[int, int] | None:
        try:
            status = self._database_file.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _configure_database(self, memory_bytes: int, threads: int) -> None:
        settings: dict[str, object] = {
            "memory_limit": f"{memory_bytes}B",
            "threads": threads,
            "temp_directory": str(self._spill_folder),
            "max_temp_directory_size": _MAX_SPILL_SIZE,
            "wal_autocheckpoint": _AUTOCHECKPOINT_OFF_SIZE,
            "variant_minimum_shredding_size": _SHREDDED_ROWS,
            # DuckDB's own late materialization is off, because `scan_planning.py` decides when it saves time.
            "late_materialization_max_rows": 0,
            "TimeZone": "UTC",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            # Only the database file is accessible, so that it can be reopened; all other files are inaccessible.
            "allowed_paths": [str(self._database_file)],
            "enable_external_access": False,
            # These settings stay unlocked, because `release_cached_blocks`, `pause_shredding` and the query runner
            # change them. Callers' queries cannot change them, because no permitted statement can change a setting.
            "allowed_configs": [
                "memory_limit",
                "variant_minimum_shredding_size",
                "enable_progress_bar",
                "enable_progress_bar_print",
            ],
            "lock_configuration": True,
        }
        for schema in ("memtable", "parts", "recent", "arrived"):
            self._root_connection.execute(f"CREATE SCHEMA memory.{schema}")
        for name, value in settings.items():
            self._root_connection.execute(f"SET GLOBAL {name} = $value", {"value": value})


def _fault_of_open_error(file: Path, problem: str) -> Fault:
    if "Could not set lock" in problem:
        return DataFolderInUse(
            f"The events in {file.parent} are in use by another process.",
            hint="Stop it, or choose another folder with --data-dir.",
        )
    if is_disk_full(problem):
        return out_of_disk_fault()
    message = problem.splitlines()[0].partition("Error: ")[2] or problem.splitlines()[0]
    hint = "Start the cordwood that wrote it, or a newer one." if "storage version" in message else RESTORE_HINT
    return DataFolderUnusable(f"The events in {file} cannot be read: {message.rstrip('.!')}.", hint=hint)


@contextmanager
def transaction(cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    cursor.execute("BEGIN")
    try:
        yield
        cursor.execute("COMMIT")
    except BaseException:
        roll_back(cursor)
        raise


def roll_back(cursor: duckdb.DuckDBPyConnection) -> None:
    """Roll back the cursor's transaction, unless DuckDB has already rolled it back."""
    with suppress(duckdb.Error):
        cursor.execute("ROLLBACK")


def fetch_first_row(
    cursor: duckdb.DuckDBPyConnection, statement: str, values: Mapping[str, object] | None = None
) -> tuple[Any, ...] | None:
    """Return the first row of a statement that yields one row or none."""
    rows = cursor.execute(statement, values).fetchall()
    return rows[0] if rows else None
