"""Databases of chDB (ClickHouse in this process). All of them are in one folder, because chDB opens only one."""

import atexit
import importlib
import importlib.util
import shutil
import tempfile
from functools import cache
from itertools import count
from typing import Any

import pytest

IS_INSTALLED = (
    importlib.util.find_spec("chdb") is not None and importlib.util.find_spec("clickhouse_connect") is not None
)
SKIP_REASON = "chdb and clickhouse-connect are not installed: they come with the development dependencies"

_numbers = count(1)


@cache
def _folder() -> str:
    folder = tempfile.mkdtemp(prefix="chdb-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _permanent_connection() -> Any:
    """Keep one connection open until the process ends.

    Closing the last connection stops the engine and leaks ten threads. Reopening the engine loads the tables of all
    earlier tests.
    """
    connection = importlib.import_module("chdb").connect(_folder())
    atexit.register(connection.close)
    return connection


def fresh_database() -> str:
    """Create an empty database and return its address. Skip the test if chDB is not installed."""
    if not IS_INSTALLED:
        pytest.skip(SKIP_REASON)
    name = f"test_{next(_numbers)}"
    _permanent_connection().query(f"CREATE DATABASE {name}")
    return f"chdb://{_folder()}?database={name}"


def bare_connection() -> Any:
    """Return a connection of chDB, instead of cordwood's client. Skip the test if chDB is not installed."""
    if not IS_INSTALLED:
        pytest.skip(SKIP_REASON)
    return importlib.import_module("chdb").connect(_folder())
