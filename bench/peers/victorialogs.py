"""VictoriaLogs in a separate process on loopback, if the path of its binary is given."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlencode

import httpx

from bench.process_family import family_bytes
from bench.questions import LogsQuery, Row
from bench.service import Target, post_all

_START_SECONDS = 60
# Each project is a separate log stream, so that a filter by project reads only the project's blocks.
_INSERT_TARGET = Target(
    "/insert/jsonline?_stream_fields=project&_time_field=timestamp&_msg_field=event_message",
    {"Content-Type": "application/stream+json"},
    frozenset({200, 204}),
)
_MICROSECOND_DIGITS = 26


class VictoriaLogs:
    """A running server of VictoriaLogs, which is queried over HTTP."""

    name = "VictoriaLogs"

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._url = httpx.URL(f"http://127.0.0.1:{port}")
        self._connection = HTTPConnection("127.0.0.1", port, timeout=600)

    @property
    def resident_mb(self) -> float:
        return family_bytes(self._process.pid) / 1e6

    @property
    def disk_mb(self) -> float:
        return sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file()) / 1e6

    def load(self, bodies: Iterator[bytes], connections: int) -> float:
        """Post bodies of NDJSON. Return the seconds until the last is acknowledged, before it is on disk."""
        seconds = post_all(self._url, bodies, connections, _INSERT_TARGET)
        # VictoriaLogs searches recent events only after they have been written to a part.
        self._fetch("/internal/force_flush")
        return seconds

    def rows(self, query: LogsQuery) -> list[Row]:
        """Return the fields of the query, with times in microseconds and all other values as texts."""
        lines = self._query(query).splitlines()
        return [tuple(_converted_value(json.loads(line), field) for field in query.fields) for line in lines]

    def milliseconds(self, query: LogsQuery) -> float:
        """Return the time of the query, until the last byte of its answer."""
        started_at = time.perf_counter()
        self._query(query)
        return (time.perf_counter() - started_at) * 1000

    def close(self) -> None:
        self._connection.close()

    def _query(self, query: LogsQuery) -> bytes:
        return self._fetch(f"/select/logsql/query?{urlencode({'query': query.text, 'start': query.start})}")

    def _fetch(self, address: str) -> bytes:
        self._connection.request("GET", address)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != httpx.codes.OK:
            raise SystemExit(f"VictoriaLogs: {address}: {answer.status} {content.decode()[:500]}")
        return content


@contextmanager
def victorialogs(binary: Path, folder: Path) -> Iterator[VictoriaLogs]:
    """Start the server on an empty folder, and stop it at the end."""
    if not os.access(binary, os.X_OK):
        raise SystemExit(f"--victorialogs: {binary} is not a program")
    port = _free_port()
    options = [f"-storageDataPath={folder}", f"-httpListenAddr=127.0.0.1:{port}", "-retentionPeriod=100y"]
    with (folder.with_suffix(".log")).open("wb") as log:
        process = subprocess.Popen([str(binary), *options], stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait_until_ready(process, port, folder.with_suffix(".log"))
        server = VictoriaLogs(process, port, folder)
        yield server
        server.close()
    finally:
        process.terminate()
        process.wait(120)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _wait_until_ready(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        connection = HTTPConnection("127.0.0.1", port, timeout=1)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == httpx.codes.OK:
                return
        except (OSError, HTTPException):
            time.sleep(0.05)
        finally:
            connection.close()
    raise SystemExit(f"VictoriaLogs did not start:\n{log.read_text(errors='replace')}")


def _converted_value(row: dict[str, str], field: str) -> object:
    value = row.get(field, "")
    if field != "_time":
        return value
    # The time has nanoseconds, which `fromisoformat` does not read, so it is cut to microseconds.
    return int(datetime.fromisoformat(f"{value.rstrip('Z')[:_MICROSECOND_DIGITS]}+00:00").timestamp() * 1e6)
