"""DuckDB in process, with handwritten SQL over the service's file or over a plain table."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from bench.events import STREAM
from bench.questions import Row

# Column headings of docs/performance.md: the service's file, and a plain table that was loaded in one statement.
HANDWRITTEN = "DuckDB by hand"
PLAIN_TABLE = "the same, plain table"

_COLUMNS = "id varchar, timestamp timestamptz, project varchar, event_message varchar, metadata variant"
_READ_FILE = (
    "select id, timestamp::timestamptz as timestamp, project, event_message, metadata::variant as metadata"
    " from read_json(?, columns = {id: 'VARCHAR', timestamp: 'TIMESTAMPTZ', project: 'VARCHAR',"
    " event_message: 'VARCHAR', metadata: 'JSON'})"
)
_OPEN_FILE = "attach '{}' as stored (read_only); use stored; set timezone = 'UTC'"
# A program that imports DuckDB, opens the file, and runs one query.
_FIRST_QUERY_PROGRAM = """
import sys, duckdb
opening, sql = sys.argv[1:]
connection = duckdb.connect()
connection.execute(opening)
assert connection.execute(sql).fetchall()
"""


class HandwrittenSql:
    """A connection to a DuckDB file that runs handwritten SQL."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, file: Path) -> None:
        self._connection = connection
        self._file = file

    def rows(self, sql: str) -> list[Row]:
        return self._connection.execute(sql).fetchall()

    def milliseconds(self, sql: str) -> float:
        started_at = time.perf_counter()
        self._connection.execute(sql).fetchall()
        return (time.perf_counter() - started_at) * 1000

    def start(self, sql: str) -> None:
        """Run the query in a new process, and wait until the process ends."""
        subprocess.run([sys.executable, "-c", _FIRST_QUERY_PROGRAM, _OPEN_FILE.format(self._file), sql], check=True)


@contextmanager
def open_handwritten(file: Path) -> Iterator[HandwrittenSql]:
    """Open the file of a stopped service that has flushed all its events, or a file from `bulk_insert_seconds`."""
    with duckdb.connect() as connection:
        connection.execute(_OPEN_FILE.format(file))
        yield HandwrittenSql(connection, file)


def bulk_insert_seconds(events: Path, file: Path) -> float:
    """Return the seconds to load an NDJSON file in one statement into a plain table with the service's columns."""
    with duckdb.connect(str(file)) as connection:
        started_at = time.perf_counter()
        connection.execute(f'create table "{STREAM}" as {_READ_FILE}', [str(events)])
        connection.execute("checkpoint")
        return time.perf_counter() - started_at


def batches_seconds(batches: Iterator[bytes], scratch: Path) -> float:
    """Return the seconds to insert JSON arrays one by one. As in the service, each is durable before the next."""
    seconds = 0.0
    batch, file = scratch / "batch.json", scratch / "batches.duckdb"
    file.unlink(missing_ok=True)
    with duckdb.connect(str(file)) as connection:
        connection.execute(f'create table "{STREAM}" ({_COLUMNS})')
        for body in batches:
            batch.write_bytes(body)
            started_at = time.perf_counter()
            connection.execute(f'insert into "{STREAM}" {_READ_FILE}', [str(batch)])
            seconds += time.perf_counter() - started_at
    batch.unlink()
    file.unlink()
    return seconds
