"""PostgreSQL 15 with Logflare's table, in a private cluster that listens only on a Unix socket in its own folder."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from bench.questions import Row

_PROGRAMS_FOLDER = Path("/usr/lib/postgresql/15/bin")
_CREATE_TABLE = "create table log_events (id text primary key, event_message text, timestamp timestamptz, body jsonb)"


class Postgres:
    """A running cluster, which is queried through psql. `load` creates the table."""

    name = "PostgreSQL"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rows(self, sql: str) -> list[Row]:
        text = self._psql("-At", "-c", f"select row_to_json(r) from ({sql}) r")
        return [tuple(json.loads(line).values()) for line in text.splitlines()]

    def milliseconds(self, sql: str) -> float:
        """Return the time that psql reports for the query, until the last row is received."""
        text = self._psql("-c", r"\timing on", "-c", r"\o /dev/null", "-c", sql)
        reported = re.search(r"^Time: ([0-9.]+) ms", text, re.MULTILINE)
        assert reported, text
        return float(reported[1])

    def load(self, events: Path) -> float:
        """Load the events. Return the seconds of the COPY, without the time to write its CSV file."""
        file = self.folder / "events.csv"
        duckdb.execute(
            f"copy (select id, event_message, timestamp, json_object('id', id, 'timestamp', timestamp,"
            f" 'project', project, 'event_message', event_message, 'metadata', metadata::json) as body"
            f" from '{events}') to '{file}' (format csv, header false)"
        )
        self._psql("-c", _CREATE_TABLE)
        started_at = time.perf_counter()
        self._psql("-c", rf"\copy log_events from '{file}' csv")
        seconds = time.perf_counter() - started_at
        file.unlink()
        self._psql("-c", "vacuum analyze log_events")
        return seconds

    @property
    def disk_mb(self) -> float:
        return float(self._psql("-At", "-c", "select pg_total_relation_size('log_events')")) / 1e6

    def _psql(self, *arguments: str) -> str:
        command = [
            str(_PROGRAMS_FOLDER / "psql"),
            "-X",
            "-q",
            "-h",
            str(self.folder),
            "-U",
            "postgres",
            "-v",
            "ON_ERROR_STOP=1",
        ]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"PostgreSQL: {done.stderr}")
        return done.stdout


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Create and start a cluster, and install PostgreSQL if it is missing. At the end, stop and delete the cluster."""
    _install()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        data = folder / "data"
        data.mkdir()
        if _is_root():
            shutil.chown(folder, "postgres")
            shutil.chown(data, "postgres")
        _run("initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c max_wal_size=4GB"
        _run("pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield Postgres(folder)
        finally:
            _run("pg_ctl", "-D", str(data), "-w", "-m", "immediate", "stop")


def _run(program: str, *arguments: str) -> None:
    """Run a program of PostgreSQL. If this process is root, run it as the user postgres, because the server refuses
    root.
    """
    as_user = ["runuser", "-u", "postgres", "--"] if _is_root() else []
    subprocess.run(
        [*as_user, str(_PROGRAMS_FOLDER / program), *arguments], check=True, stdout=subprocess.DEVNULL, cwd="/"
    )


def _install() -> None:
    if _PROGRAMS_FOLDER.exists():
        return
    if not _is_root() or not shutil.which("apt-get"):
        raise SystemExit("the benchmark needs PostgreSQL 15: apt-get install postgresql-15 (or --without-postgres)")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "install", "-qq", "--no-install-recommends", "postgresql-15"], check=True, env=quiet)


def _is_root() -> bool:
    return os.geteuid() == 0
