"""A PostgreSQL of Debian's on loopback, in a folder of its own, that is gone after the test."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.debian import need

USER, PASSWORD = "keeper", "open sesame"
# What was written need not outlive the test.
_FAST = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_wal_size=512MB"


@contextmanager
def postgresql() -> Iterator[str]:
    """Its address, without a password; skips the test where PostgreSQL is missing."""
    initdb, pg_ctl = need("initdb", "postgresql"), need("pg_ctl", "postgresql")
    with tempfile.TemporaryDirectory(prefix="postgresql-", ignore_cleanup_errors=True) as name:
        folder, port = Path(name), _free_port()
        data, password = folder / "data", folder / "password"
        password.write_text(PASSWORD)
        for path in (folder, password):
            _give_away(path)
        _run(initdb, "-D", str(data), "-U", USER, "-A", "scram-sha-256", "--pwfile", str(password), "--no-sync")
        options = f"-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories='' {_FAST}"
        _run(pg_ctl, "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://{USER}@127.0.0.1:{port}/postgres"
        finally:
            _run(pg_ctl, "-D", str(data), "-w", "-m", "immediate", "stop")


def _run(*command: str) -> None:
    """As an ordinary user: the server refuses to run as root."""
    user = "postgres" if os.geteuid() == 0 else None
    subprocess.run(
        command, check=True, capture_output=True, cwd="/", user=user, group=user, extra_groups=[] if user else None
    )


def _give_away(path: Path) -> None:
    if os.geteuid() == 0:
        shutil.chown(path, "postgres", "postgres")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
