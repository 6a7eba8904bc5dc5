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


@cache
def _keeper() -> Any:
    """Open for as long as the process lives: with its last connection the engine goes, leaving ten threads each time.

    It would come again with every table of every test before.
    """
    opened = importlib.import_module("chdb").connect(_folder())
    atexit.register(opened.close)
    return opened


def fresh_database() -> str:
    """The address of a database that is empty and nobody else's; skips the test where chDB is missing."""
    if not IS_THERE:
        pytest.skip(REASON)
    name = f"test_{next(_numbers)}"
    _keeper().query(f"CREATE DATABASE {name}")
    return f"chdb://{_folder()}?database={name}"


def bare_connection() -> Any:
    """A connection of chDB's own, past the client; skips the test where chDB is missing."""
    if not IS_THERE:
        pytest.skip(REASON)
    return importlib.import_module("chdb").connect(_folder())
