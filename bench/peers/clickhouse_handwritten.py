"""ClickHouse in this process (chDB), with handwritten SQL over the service's table or over a separate table."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chdb

from bench.events import STREAM
from bench.questions import LOGS_TABLE, METADATA_TEXT, PATHS_COLUMN, Question, Row

SERVICE_TABLE = "by hand, its table"
OWN_TABLE = "by hand, own table"

_TABLE = "by_hand"
_CREATE_TABLE = (
    "CREATE TABLE {} (id String, timestamp DateTime64(6, 'UTC'), project LowCardinality(String), event_message String,"
    " metadata JSON) ENGINE = MergeTree ORDER BY (project, timestamp)"
)
_INSERT_FILE = "INSERT INTO {} FROM INFILE '{}' SETTINGS date_time_input_format = 'best_effort' FORMAT JSONEachRow"
_DISK_SPACE_QUERY = "SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND table = '{}'"
_RUNNING_MERGES_QUERY = "SELECT count() FROM system.merges"


@dataclass(frozen=True)
class Table:
    """A table with events: its name, its JSON column, and the expression for an event's metadata as text."""

    name: str
    paths_column: str
    metadata_text: str

    def sql(self, question: Question) -> str:
        sql = question.clickhouse
        for slot, value in (
            (LOGS_TABLE, f"`{self.name}`"),
            (PATHS_COLUMN, self.paths_column),
            (METADATA_TEXT, self.metadata_text),
        ):
            sql = sql.replace(slot, value)
        return sql


TABLES = {
    SERVICE_TABLE: Table(STREAM, "metadata_paths", "metadata"),
    OWN_TABLE: Table(_TABLE, "metadata", "metadata"),
}


class HandwrittenClickHouse:
    """A connection to a folder of chDB, of which a process can open only one."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(self, sql: str) -> list[Row]:
        # By default, ClickHouse prints whole numbers of 64 bits as texts.
        lines = self._run(f"{sql} SETTINGS output_format_json_quote_64bit_integers = 0").splitlines()
        return [tuple(json.loads(line)) for line in lines]

    def milliseconds(self, sql: str) -> float:
        started_at = time.perf_counter()
        self._run(sql)
        return (time.perf_counter() - started_at) * 1000

    def load_in_batches(self, batches: Iterator[bytes], scratch: Path) -> float:
        """Insert JSON arrays one by one into a new table. Return the seconds that the inserts took."""
        self._connection.query(_CREATE_TABLE.format(_TABLE))
        seconds = 0.0
        file = scratch / "batch.json"
        for body in batches:
            file.write_bytes(body)
            started_at = time.perf_counter()
            self._connection.query(_INSERT_FILE.format(_TABLE, file))
            seconds += time.perf_counter() - started_at
        file.unlink()
        return seconds

    def bulk_insert_seconds(self, lines: Path) -> float:
        """Return the seconds to insert an NDJSON file in one statement. The table is dropped afterwards."""
        self._connection.query(_CREATE_TABLE.format("in_bulk"))
        started_at = time.perf_counter()
        self._connection.query(_INSERT_FILE.format("in_bulk", lines))
        seconds = time.perf_counter() - started_at
        self._connection.query("DROP TABLE in_bulk SYNC")
        return seconds

    def wait_for_merges(self) -> None:
        """Wait until no merge is running. The engine begins a merge within seconds of an insert."""
        idle_checks = 0
        while idle_checks < 3:
            time.sleep(1)
            idle_checks = idle_checks + 1 if self.rows(_RUNNING_MERGES_QUERY) == [(0,)] else 0

    def merged_mb(self, name: str) -> float:
        """Merge all parts of a table, and return the table's size in megabytes."""
        table = TABLES[name].name
        self._connection.query(f"OPTIMIZE TABLE `{table}` FINAL")
        ((size,),) = self.rows(_DISK_SPACE_QUERY.format(table))
        return float(str(size)) / 1e6

    def _run(self, sql: str) -> bytes:
        answer: bytes = self._connection.query(sql, "JSONCompactEachRow").bytes()
        return answer


@contextmanager
def open_clickhouse(folder: Path) -> Iterator[HandwrittenClickHouse]:
    connection = chdb.connect(str(folder))  # type: ignore[no-untyped-call] # chdb declares no types
    try:
        yield HandwrittenClickHouse(connection)
    finally:
        connection.close()
