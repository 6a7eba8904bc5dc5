"""Fixtures that open each engine with the entries of Loki's documentation and others, for queries in LogQL."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import msgspec
import pytest

from cordwood.engines.engine import AnswerLimits, Engine
from cordwood.ingest.accept import Intake
from cordwood.logql.compile import check_logql_patterns, compile_logql
from cordwood.logql.labels import label_name_of_column
from cordwood.logql.syntax import LogqlRequest, ResultKind
from cordwood.model.datatype import Cell, Row, Rows
from cordwood.model.definitions import Endpoint, Stream
from cordwood.model.redaction import RedactionConfig, RedactionRules
from cordwood.sql.bind import bind_parameters
from cordwood.sql.compile import parse_and_check_endpoint
from cordwood.sql.program import EndpointProgram
from cordwood.sql.redaction.patterns import RedactionPolicy
from tests.spec_runner.world import ENGINES, EngineKind, Unstoppable
from tests.unit.logql.entries import END_US, NOW_US, START_US, STREAMS

ENDPOINT_SQL = """
with edge_logs as (
  select t.id, t.timestamp, t.event_message, t.metadata, t.project from `edge` as t
),
app_logs as (
  select t.id, t.timestamp, t.event_message, t.metadata from `app` as t
),
counts as (
  select count(*) as n from `edge` as t
)
select * from edge_logs
"""


@dataclass(frozen=True)
class LogqlEngine:
    """An engine and an endpoint with three sub-queries, two of which have entries."""

    engine: Engine
    program: EndpointProgram

    def answer(self, request: LogqlRequest, redaction: RedactionPolicy | None = None) -> Rows:
        check_logql_patterns(request.json_text, self.engine.regex_error)
        statement = compile_logql(
            self.program, request.json_text, self.engine.compile_target, self.engine.shapes_by_stream(), redaction
        )
        question = bind_parameters(statement, {}, NOW_US, self.engine.regex_error)
        return self.engine.answer(question, AnswerLimits(max_rows=1000, timeout_seconds=30), Unstoppable())

    def rows(self, request: LogqlRequest, redaction: RedactionPolicy | None = None) -> tuple[list[str], list[Row]]:
        rows = self.answer(request, redaction)
        decoded_rows = [tuple(map(_decode_cell, row)) for batch in rows.batches for row in batch]
        return [column.name for column in rows.columns], decoded_rows

    def lines(self, query: str, **more: object) -> list[str]:
        """Return the lines that a log query finds, oldest first."""
        request = LogqlRequest(ResultKind.ENTRIES, (query,), START_US, END_US, is_oldest_first=True)
        names, rows = self.rows(msgspec.structs.replace(request, **more))
        return [str(row[names.index("event_message")]) for row in rows]

    def samples(
        self, query: str, start_us: int = END_US, end_us: int = END_US, step_us: int = 1
    ) -> dict[tuple[tuple[str, str], ...], dict[int, float]]:
        """Return the samples of a metric query.

        The result has a dictionary for each set of labels, with the value at each step, by the step's number.
        """
        request = LogqlRequest(ResultKind.SAMPLES, (query,), start_us, end_us, step_us)
        names, rows = self.rows(request)
        values_by_labels: dict[tuple[tuple[str, str], ...], dict[int, float]] = {}
        for row in rows:
            *labels, steps, values = row
            if not steps:
                continue
            assert isinstance(steps, Sequence)
            assert isinstance(values, Sequence)
            label_pairs = zip(map(label_name_of_column, names), labels, strict=False)
            key = tuple((name, str(value)) for name, value in sorted(label_pairs) if value)
            values_by_labels[key] = {
                int(str(step)): float(str(value)) for step, value in zip(steps, values, strict=True)
            }
        return values_by_labels

    def sample(self, query: str, **more: int) -> float:
        """Return the value of an instant query whose result has only one series."""
        ((_, values),) = self.samples(query, **more).items()
        return values[0]


def _decode_cell(cell: Cell) -> Cell:
    return msgspec.json.decode(cell) if isinstance(cell, msgspec.Raw) else cell


def open_logql_engine(
    kind: EngineKind, folder: Path, events_by_stream: Mapping[str, Sequence[Mapping[str, Any]]], endpoint_sql: str
) -> LogqlEngine:
    """Open an engine with these events, and an endpoint with this SQL. The caller closes the engine."""
    engine = kind.open(folder, lambda: NOW_US, RedactionConfig(RedactionRules(), "key"))
    intake = Intake(engine, lambda: NOW_US)
    streams = {name: Stream(name, uuid5(NAMESPACE_DNS, name)) for name in events_by_stream}
    engine.create_stream_tables([*streams.values()])
    for name, events in events_by_stream.items():
        body = "\n".join(map(json.dumps, events)).encode()
        asyncio.run(intake.ingest_body(streams[name], "application/x-ndjson", body))
    intake.close()
    endpoint = Endpoint("spec", uuid5(NAMESPACE_DNS, "spec"), endpoint_sql, "1", accepts_sandbox_queries=True)
    return LogqlEngine(engine, parse_and_check_endpoint(endpoint))


@pytest.fixture(scope="session", params=ENGINES, ids=lambda kind: kind.name)
def logql(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogqlEngine]:
    opened = open_logql_engine(request.param, tmp_path_factory.mktemp("logql"), STREAMS, ENDPOINT_SQL)
    yield opened
    opened.engine.close()
