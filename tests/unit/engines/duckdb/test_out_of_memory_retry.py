"""A query that fails early for lack of memory is retried once, because another query may have used the memory."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.query.query_runner import QueryRunner
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import OutOfMemory
from cordwood.model.datatype import Rows
from cordwood.model.event import Event
from cordwood.sql.stages import BoundStatement
from tests.contract.engine_asking import NOW_US, batch, rows, stream
from tests.machine_speed import scaled

MAX_SECONDS = 1.0


def fail_attempts(monkeypatch: pytest.MonkeyPatch, attempts: int, seconds: float = 0.0) -> list[BoundStatement]:
    """Let the first attempts fail for lack of memory, each after some seconds. Return the questions that ran."""
    questions: list[BoundStatement] = []
    real = QueryRunner._run_statement

    def attempt(answering: QueryRunner, question: BoundStatement, *arguments: Any, **options: Any) -> Rows:
        questions.append(question)
        if len(questions) <= attempts:
            time.sleep(seconds)
            raise OutOfMemory("The query needs more memory than it may have.")
        return real(answering, question, *arguments, **options)

    monkeypatch.setattr(QueryRunner, "_run_statement", attempt)
    return questions


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDBEngine]:
    folder: Path = tmp_path_factory.mktemp("held")
    engine = DuckDBEngine(folder / "data", DuckDBTarget(), clock_us=lambda: NOW_US)
    engine.create_stream_tables([stream("s")])
    engine.append([batch(Event("a", NOW_US))])
    yield engine
    engine.close()


def test_a_query_is_retried_once(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = fail_attempts(monkeypatch, attempts=1)
    assert rows(engine, "select id from `s`") == [("a",)]
    assert len(questions) == 2


def test_a_second_failure_is_raised(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = fail_attempts(monkeypatch, attempts=2)
    began = time.monotonic()
    with pytest.raises(OutOfMemory):
        rows(engine, "select id from `s`")
    assert len(questions) == 2
    assert time.monotonic() - began < scaled(MAX_SECONDS)


def test_a_query_that_ran_for_some_time_is_not_retried(engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = fail_attempts(monkeypatch, attempts=1, seconds=0.1)
    with pytest.raises(OutOfMemory):
        rows(engine, "select id from `s`")
    assert len(questions) == 1
