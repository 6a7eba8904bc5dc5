"""Databases of ClickHouse inside this process: one folder for all, since chDB opens no second one."""

import atexit
import importlib
import importlib.util
import shutil
import tempfile
from functools import cache
from itertools import count
from typing import Any

import pytest

IS_THERE = importlib.util.find_spec("chdb") is not None and importlib.util.find_spec("clickhouse_connect") is not None
REASON = "chdb and clickhouse-connect are not installed: they come with the development dependencies"

_numbers = count(1)


@cache
def _folder() -> str:
    folder = tempfile.mkdtemp(prefix="chdb-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def fresh_database() -> str:
    """The address of a database that is empty and nobody else's; skips the test where chDB is missing."""
    if not IS_THERE:
        pytest.skip(REASON)
    from clickhouse_connect import get_client  # noqa: PLC0415 - it may not be there

    name = f"test_{next(_numbers)}"
    client = get_client(dsn=f"chdb://{_folder()}")
    client.command(f"CREATE DATABASE {name}")
    client.close()
    return f"chdb://{_folder()}?database={name}"


def bare_connection() -> Any:
    """A connection of chDB's own, past the client; skips the test where chDB is missing."""
    if not IS_THERE:
        pytest.skip(REASON)
    return importlib.import_module("chdb").connect(_folder())
