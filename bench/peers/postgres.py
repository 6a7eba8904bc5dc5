"""PostgreSQL 15 with the incumbent's table, in a private cluster that only a socket in its own folder reaches."""

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

_BIN = Path("/usr/lib/postgresql/15/bin")
_TABLE = "create table log_events (id text primary key, event_message text, timestamp timestamptz, body jsonb)"


class Postgres:
    name = "PostgreSQL"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rows(self, sql: str) -> list[Row]:
        text = self._psql("-At", "-c", f"select row_to_json(r) from ({sql}) r")
        return [tuple(json.loads(line).values()) for line in text.splitlines()]

    def milliseconds(self, sql: str) -> float:
        """As its own client tells it, the answer received whole."""
        text = self._psql("-c", r"\timing on", "-c", r"\o /dev/null", "-c", sql)
        told = re.search(r"^Time: ([0-9.]+) ms", text, re.MULTILINE)
        assert told, text
        return float(told[1])

    def load(self, events: Path) -> float:
        """Seconds that COPY takes, sent from a file of its own form; the making of that file is left out."""
        file = self.folder / "events.csv"
        duckdb.execute(
            f"copy (select id, event_message, timestamp, json_object('id', id, 'timestamp', timestamp,"
            f" 'project', project, 'event_message', event_message, 'metadata', metadata::json) as body"
            f" from '{events}') to '{file}' (format csv, header false)"
        )
        self._psql("-c", _TABLE)
        began = time.perf_counter()
        self._psql("-c", rf"\copy log_events from '{file}' csv")
        taken = time.perf_counter() - began
        file.unlink()
        self._psql("-c", "vacuum analyze log_events")
        return taken

    @property
    def disk_mb(self) -> float:
        return float(self._psql("-At", "-c", "select pg_total_relation_size('log_events')")) / 1e6

    def _psql(self, *arguments: str) -> str:
        command = [str(_BIN / "psql"), "-X", "-q", "-h", str(self.folder), "-U", "postgres", "-v", "ON_ERROR_STOP=1"]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"PostgreSQL: {done.stderr}")
        return done.stdout


@contextmanager
def postgres() -> Iterator[Postgres]:
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
    """As an ordinary user: the server refuses to run as root."""
    as_user = ["runuser", "-u", "postgres", "--"] if _is_root() else []
    subprocess.run([*as_user, str(_BIN / program), *arguments], check=True, stdout=subprocess.DEVNULL, cwd="/")


def _install() -> None:
    if _BIN.exists():
        return
    if not _is_root() or not shutil.which("apt-get"):
        raise SystemExit("the benchmark needs PostgreSQL 15: apt-get install postgresql-15 (or --without-postgres)")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "install", "-qq", "--no-install-recommends", "postgresql-15"], check=True, env=quiet)


def _is_root() -> bool:
    return os.geteuid() == 0
