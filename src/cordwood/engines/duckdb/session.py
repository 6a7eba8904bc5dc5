"""The one DuckDB instance of the process: opened, bounded, and locked down."""

import shutil
from contextlib import suppress
from pathlib import Path

import duckdb

from cordwood.engines.duckdb.tables import quoted
from cordwood.errors import DataFolderInUse, DataFolderUnusable

# A row group is sealed as a whole once it is full: large enough to compress well, small enough to skip by time.
ROW_GROUP_ROWS = 20_480
# A quarter of DuckDB's own: many short columns share a block, and an eighth of the file is saved.
_BLOCK_BYTES = 65_536
_WAL_BYTES = "64MB"
_SPILL_BYTES = "4GB"


class Session:
    """Hands out cursors: a cursor is one thread's own connection to the shared instance."""

    def __init__(self, folder: Path, *, memory_bytes: int, threads: int) -> None:
        self._spill = folder / "spill"
        shutil.rmtree(self._spill, ignore_errors=True)
        self._root = duckdb.connect(":memory:")
        self._attach(folder / "events.duckdb")
        self._lock_down(memory_bytes, threads)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        return self._root.cursor()

    def checkpoint(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Write what the engine's own log holds into the file; later when others are writing now."""
        with suppress(duckdb.TransactionException):
            cursor.execute("CHECKPOINT store")

    def close(self) -> None:
        self._root.close()
        shutil.rmtree(self._spill, ignore_errors=True)

    def _attach(self, file: Path) -> None:
        place = quoted(str(file)).replace('"', "'")
        try:
            self._root.execute(f"ATTACH {place} AS store (ROW_GROUP_SIZE {ROW_GROUP_ROWS}, BLOCK_SIZE {_BLOCK_BYTES})")
        except duckdb.IOException as problem:
            self._root.close()
            raise _unusable(file, str(problem)) from problem

    def _lock_down(self, memory_bytes: int, threads: int) -> None:
        settings: dict[str, object] = {
            "memory_limit": f"{memory_bytes}B",
            "threads": threads,
            "temp_directory": str(self._spill),
            "max_temp_directory_size": _SPILL_BYTES,
            "wal_autocheckpoint": _WAL_BYTES,
            "variant_minimum_shredding_size": 1024,
            "TimeZone": "UTC",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "enable_external_access": False,
            "lock_configuration": True,
        }
        self._root.execute("CREATE SCHEMA memory.hot")
        for name, value in settings.items():
            self._root.execute(f"SET GLOBAL {name} = $value", {"value": value})


def _unusable(file: Path, problem: str) -> DataFolderInUse | DataFolderUnusable:
    if "lock" in problem:
        return DataFolderInUse(
            f"The events in {file.parent} are in use by another process.",
            hint="Stop it, or choose another folder with --data-dir.",
        )
    return DataFolderUnusable(
        f"The events in {file} cannot be read: {problem.splitlines()[0]}",
        hint="They may come from a newer cordwood, or be damaged: restore a backup.",
    )
