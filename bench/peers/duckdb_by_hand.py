"""DuckDB in process, with SQL written by hand over the very file that our service stored."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from bench.events import STREAM
from bench.questions import Row

# Over the file that our service stored, and over a plain table that was filled at once.
BY_HAND = "DuckDB by hand"
PLAIN = "the same, plain table"


_COLUMNS = "id varchar, timestamp timestamptz, project varchar, event_message varchar, metadata variant"
_READ = (
    "select id, timestamp::timestamptz as timestamp, project, event_message, metadata::variant as metadata"
    " from read_json(?, columns = {id: 'VARCHAR', timestamp: 'TIMESTAMPTZ', project: 'VARCHAR',"
    " event_message: 'VARCHAR', metadata: 'JSON'})"
)
_OPEN = "attach '{}' as stored (read_only); use stored; set timezone = 'UTC'"
# A process of its own, from nothing to a first answer.
_FIRST = """
import sys, duckdb
opening, sql = sys.argv[1:]
connection = duckdb.connect()
connection.execute(opening)
assert connection.execute(sql).fetchall()
"""


class ByHand:
    def __init__(self, connection: duckdb.DuckDBPyConnection, file: Path) -> None:
        self._connection = connection
        self._file = file

    def rows(self, sql: str) -> list[Row]:
        return self._connection.execute(sql).fetchall()

    def milliseconds(self, sql: str) -> float:
        began = time.perf_counter()
        self._connection.execute(sql).fetchall()
        return (time.perf_counter() - began) * 1000

    def start(self, sql: str) -> None:
        """In a process that ends with the answer."""
        subprocess.run([sys.executable, "-c", _FIRST, _OPEN.format(self._file), sql], check=True)


@contextmanager
def by_hand(file: Path) -> Iterator[ByHand]:
    """`file` is that of a service that has stopped, all its events in it, or one of `bulk_insert_seconds`."""
    with duckdb.connect() as connection:
        connection.execute(_OPEN.format(file))
        yield ByHand(connection, file)


def bulk_insert_seconds(events: Path, file: Path) -> float:
    """The same events from NDJSON into a plain table of the same columns, in one statement."""
    with duckdb.connect(str(file)) as connection:
        began = time.perf_counter()
        connection.execute(f'create table "{STREAM}" as {_READ}', [str(events)])
        connection.execute("checkpoint")
        return time.perf_counter() - began


def batches_seconds(batches: Iterator[bytes], scratch: Path) -> float:
    """Of JSON arrays one after the other, each of them durable before the next, as a service has to."""
    seconds = 0.0
    batch, file = scratch / "batch.json", scratch / "batches.duckdb"
    file.unlink(missing_ok=True)
    with duckdb.connect(str(file)) as connection:
        connection.execute(f'create table "{STREAM}" ({_COLUMNS})')
        for body in batches:
            batch.write_bytes(body)
            began = time.perf_counter()
            connection.execute(f'insert into "{STREAM}" {_READ}', [str(batch)])
            seconds += time.perf_counter() - began
    batch.unlink()
    file.unlink()
    return seconds
