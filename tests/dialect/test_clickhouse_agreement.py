"""Answers in ClickHouse's dialect equal those of ClickHouse. The same queries run on both engines and on chDB."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordwood.clickhouse_sql.permitted_syntax import PERMITTED_FUNCTIONS
from tests.dialect.log_events import Cordwood, PlainClickHouse, contents
from tests.dialect.queries import queries


class _ComparedEngines:
    def __init__(self, folder: Path) -> None:
        folder_contents = contents(folder)
        self.engines = {name: Cordwood(name, folder / name, folder_contents) for name in ("duckdb", "clickhouse")}
        plain = PlainClickHouse()
        self.answers = {sql: _comparable(plain.rows(sql)) for sql in queries()}
        plain.close()

    def close(self) -> None:
        for engine in self.engines.values():
            engine.close()


@pytest.fixture(scope="module")
def compared_engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_ComparedEngines]:
    opened = _ComparedEngines(tmp_path_factory.mktemp("logs"))
    yield opened
    opened.close()


def test_at_least_a_minimum_of_queries_is_compared() -> None:
    assert len(set(queries())) >= 300


def test_every_function_of_the_dialect_is_used() -> None:
    used = " ".join(queries()).lower()
    assert not [name for name in PERMITTED_FUNCTIONS if not re.search(rf"\b{name}(?:if)?\(", used)]


@pytest.mark.parametrize("engine", ["duckdb", "clickhouse"])
def test_every_answer_equals_that_of_clickhouse(compared_engines: _ComparedEngines, engine: str) -> None:
    wrong = [difference for sql in queries() if (difference := _difference(compared_engines, engine, sql))]
    assert not wrong, "\n".join([f"{len(wrong)} answers differ:", *wrong])


def _difference(compared_engines: _ComparedEngines, engine: str, sql: str) -> str | None:
    expected = _sorted_rows(sql, compared_engines.answers[sql])
    try:
        result_rows = _sorted_rows(sql, _comparable(compared_engines.engines[engine].rows(sql)))
    except Exception as problem:  # noqa: BLE001 - the comparison continues after an error
        return f"{sql}\n  raised {type(problem).__name__}: {problem} {problem.__cause__ or ''}"
    if _are_equal(expected, result_rows):
        return None
    pairs = zip(expected, result_rows, strict=False)
    at = next(
        (at for at, (left, right) in enumerate(pairs) if not _are_equal(left, right)),
        min(len(expected), len(result_rows)),
    )
    return f"{sql}\n  row {at}: {expected[at : at + 1]}\n  but {engine}: {result_rows[at : at + 1]} ({len(expected)}, {len(result_rows)})"


def _sorted_rows(sql: str, rows: list[list[Any]]) -> list[list[Any]]:
    """Sort the rows of a union, because their order is undefined."""
    return sorted(rows, key=str) if "UNION ALL" in sql else rows


def _comparable(rows: list[dict[str, Any]]) -> list[list[Any]]:
    return [list(row.values()) for row in rows]


def _are_equal(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_are_equal, left, right))
    if isinstance(left, float | int) and isinstance(right, float | int):
        return math.isclose(left, right, rel_tol=1e-6, abs_tol=1e-9)
    return bool(left == right)
