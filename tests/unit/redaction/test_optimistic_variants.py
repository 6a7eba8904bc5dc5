"""Optimistic redaction: the first run has no redaction functions; a second run has them if a text matches the hint."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.query.query_runner import QueryRunner
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import AnswerLimits, ReadProgress
from cordwood.errors import BadQueryValue
from cordwood.ingest.shape_inference import ShapeInferrer
from cordwood.model.datatype import Row
from cordwood.model.definitions import Endpoint, Stream
from cordwood.model.event import Event, ReceivedEventBatch
from cordwood.model.redaction import RedactMode
from cordwood.sql.bind import bind_parameters
from cordwood.sql.compile import compile_saved_query, parse_and_check_endpoint
from cordwood.sql.plan import EventRange
from cordwood.sql.redaction.patterns import RedactionPolicy
from cordwood.sql.stages import BoundStatement, Statement
from tests.plans import optimistic_sql, sql_of

COUNT_BY_PATH = "select cast(m.path as string) as path, count(*) as n from s cross join unnest(s.metadata) as m group by 1 order by 1"
EVERY_PATH = "select concat(m.path, '!') as path from s cross join unnest(s.metadata) as m order by s.id"
SAFE_FUNCTION_QUERY = "select safe.substr(m.path, 1, 99) as path from s cross join unnest(s.metadata) as m order by 1"
FAILING_QUERY = "select error(concat('no ', m.path)) as x from s cross join unnest(s.metadata) as m"

RunQuery = Callable[[str], list[Row]]


class _Uncancelled:
    def on_cancel(self, stop: Callable[[], None]) -> None: ...

    def set_progress_reader(self, read: ReadProgress) -> None: ...


class RecordingEngine:
    """An engine that records the SQL it runs."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = DuckDBEngine(folder, DuckDBTarget())
        self.engine.create_stream_tables([Stream("s", UUID(int=1))])
        self.executed_sql: list[str | None] = []
        self.count = 0
        answer = QueryRunner._answer_from_all_events

        def record_sql(
            answering: QueryRunner, question: BoundStatement, *arguments: Any, optimistic: bool = False
        ) -> object:
            self.executed_sql.append(sql_of(question.statement, EventRange.ALL, optimistic=optimistic))
            return answer(answering, question, *arguments, optimistic=optimistic)

        monkeypatch.setattr(QueryRunner, "_answer_from_all_events", record_sql)

    def add(self, *paths: str) -> None:
        events = [
            Event(f"{self.count + at:06}", at, "", "p", json.dumps({"path": path}), "{}")
            for at, path in enumerate(paths)
        ]
        self.count += len(events)
        inspected, learnt = ShapeInferrer(self.engine.shapes_by_stream).infer_stream_shape("s", events)
        self.engine.append([ReceivedEventBatch("s", inspected, 0, learnt)])

    def compile(self, sql: str) -> Statement:
        program = parse_and_check_endpoint(Endpoint("e", UUID(int=3), sql, "s", max_rows=5000))
        return compile_saved_query(
            program, self.engine.compile_target, self.engine.shapes_by_stream(), RedactionPolicy(RedactMode.REPLACE)
        )

    def rows_of(self, sql: str) -> list[Row]:
        question = bind_parameters(self.compile(sql), {}, 0, self.engine.regex_error)
        rows = self.engine.answer(question, AnswerLimits(5000, 30.0), _Uncancelled())
        return [tuple(row) for batch in rows.batches for row in batch]


@pytest.fixture
def recording_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingEngine]:
    opened = RecordingEngine(tmp_path, monkeypatch)
    opened.add("/rest", "/auth", "/rest")
    yield opened
    opened.engine.close()


def test_without_private_texts_only_the_optimistic_variant_runs(recording_engine: RecordingEngine) -> None:
    without_redaction = optimistic_sql(recording_engine.compile(COUNT_BY_PATH))
    assert without_redaction is not None
    assert "redacted_text" not in without_redaction
    assert (
        recording_engine.rows_of(COUNT_BY_PATH)
        == recording_engine.rows_of(COUNT_BY_PATH)
        == [("/auth", 1), ("/rest", 2)]
    )
    assert recording_engine.executed_sql == [without_redaction, without_redaction]


def test_after_a_match_the_optimistic_variant_is_skipped(recording_engine: RecordingEngine) -> None:
    recording_engine.rows_of(COUNT_BY_PATH)
    recording_engine.add("/user/203.0.113.7")
    assert (
        recording_engine.rows_of(COUNT_BY_PATH)
        == recording_engine.rows_of(COUNT_BY_PATH)
        == [("/auth", 1), ("/rest", 2), ("/user/REDACTED", 1)]
    )
    statement = recording_engine.compile(COUNT_BY_PATH)
    assert recording_engine.executed_sql == [
        optimistic_sql(statement),
        optimistic_sql(statement),
        statement.sql,
        statement.sql,
    ]


def test_a_streamed_answer_is_redacted_to_the_last_row(recording_engine: RecordingEngine) -> None:
    recording_engine.add(*["/rest"] * 1500, "/user/203.0.113.7")
    assert recording_engine.rows_of(EVERY_PATH)[-2:] == [("/rest!",), ("/user/REDACTED!",)]


def test_safe_functions_have_no_optimistic_variant(recording_engine: RecordingEngine) -> None:
    recording_engine.add("/user/203.0.113.7")
    assert optimistic_sql(recording_engine.compile(SAFE_FUNCTION_QUERY)) is None
    assert recording_engine.rows_of(SAFE_FUNCTION_QUERY)[-1] == ("/user/REDACTED",)


def test_window_functions_have_an_optimistic_variant(recording_engine: RecordingEngine) -> None:
    recording_engine.add("/user/203.0.113.7")
    order = "select lag(m.path) over (order by m.path) as path from s cross join unnest(s.metadata) as m order by 1"
    assert optimistic_sql(recording_engine.compile(order)) is not None
    assert len(recording_engine.rows_of(order)) == 4


def test_an_error_of_the_query_is_reported_unchanged(recording_engine: RecordingEngine) -> None:
    with pytest.raises(BadQueryValue, match="no /"):
        recording_engine.rows_of(FAILING_QUERY)


def test_without_redaction_there_is_no_optimistic_variant(recording_engine: RecordingEngine) -> None:
    program = parse_and_check_endpoint(Endpoint("e", UUID(int=3), COUNT_BY_PATH, "s"))
    assert (
        optimistic_sql(
            compile_saved_query(
                program, recording_engine.engine.compile_target, recording_engine.engine.shapes_by_stream()
            )
        )
        is None
    )
