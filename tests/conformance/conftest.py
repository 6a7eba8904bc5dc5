"""Finds the conformance cases beside the project; they are read where they lie and never copied."""

import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

Case = Mapping[str, Any]
Compare = Callable[[Case, list[list[object]]], tuple[bool, str]]

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "conformance"


@pytest.fixture(scope="session")
def folder() -> Path:
    if not (FOLDER / "cases.jsonl").exists():
        pytest.skip("the conformance cases do not lie beside the project")
    return FOLDER


@pytest.fixture(scope="session")
def cases(folder: Path) -> list[Case]:
    with (folder / "cases.jsonl").open() as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="session")
def comparison(folder: Path) -> Any:
    """The module that knows when an answer is right."""
    spec = importlib.util.spec_from_file_location("conformance_compare", folder / "compare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def bare_duckdb() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection as compiled SQL may expect one: nothing but its time zone is set."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone='UTC'")
    yield connection
    connection.close()
