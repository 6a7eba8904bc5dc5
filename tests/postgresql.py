"""A temporary PostgreSQL server on loopback, from a Debian package."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.debian import require_program

USER, PASSWORD = "keeper", "open sesame"
# Options that turn off durability, which the tests do not need.
_FAST_OPTIONS = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_wal_size=512MB"


@contextmanager
def run_postgresql() -> Iterator[str]:
    """Run a server during the block, and yield its address without the password. Skip the test without PostgreSQL."""
    initdb, pg_ctl = require_program("initdb", "postgresql"), require_program("pg_ctl", "postgresql")
    with tempfile.TemporaryDirectory(prefix="postgresql-", ignore_cleanup_errors=True) as name:
        folder, port = Path(name), _free_port()
        data, password = folder / "data", folder / "password"
        password.write_text(PASSWORD)
        for path in (folder, password):
            _change_owner(path)
        _run(initdb, "-D", str(data), "-U", USER, "-A", "scram-sha-256", "--pwfile", str(password), "--no-sync")
        options = f"-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories='' {_FAST_OPTIONS}"
        _run(pg_ctl, "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://{USER}@127.0.0.1:{port}/postgres"
        finally:
            _run(pg_ctl, "-D", str(data), "-w", "-m", "immediate", "stop")


def _run(*command: str) -> None:
    """Run the command as an ordinary user, because PostgreSQL's server refuses to run as root."""
    user = "postgres" if os.geteuid() == 0 else None
    subprocess.run(
        command, check=True, capture_output=True, cwd="/", user=user, group=user, extra_groups=[] if user else None
    )


def _change_owner(path: Path) -> None:
    if os.geteuid() == 0:
        shutil.chown(path, "postgres", "postgres")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
