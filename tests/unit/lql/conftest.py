"""Fixtures that open an engine with events of mixed types, missing fields and nested records, for queries in LQL and
SQL.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import NAMESPACE_DNS, uuid5

import msgspec
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, DuckDBOptions
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import AnswerLimits, ReadProgress
from cordwood.ingest.accept import Intake
from cordwood.lql.compile import check_lql_patterns, compile_lql
from cordwood.model.datatype import Cell, Row
from cordwood.model.definitions import Endpoint, Stream
from cordwood.sql.bind import bind_parameters
from cordwood.sql.compile import compile_sandbox_query, parse_and_check_endpoint
from cordwood.sql.program import EndpointProgram
from cordwood.sql.redaction.patterns import RedactionPolicy
from cordwood.sql.stages import Statement

NOW_US = 1_715_776_496_000_000  # 2024-05-15T12:34:56Z

EVENTS = r"""
{"id": "1", "timestamp": "2024-05-15T12:30:00Z", "event_message": "GET /rest 200", "project": "a", "metadata": {"status": 200, "path": "/rest", "ms": 1.5, "ok": true, "tags": ["prod", "eu"], "level": "info", "zip": "0123", "request": {"host": "x.y", "n": 5}}}
{"id": "2", "timestamp": "2024-05-15T11:59:59.999999Z", "event_message": "POST /auth 404", "project": "b", "metadata": {"status": "404", "path": "/auth", "ms": -3, "ok": "true", "tags": ["dev"], "level": "warning", "zip": 123, "request": {"host": "z"}}}
{"id": "3", "timestamp": "2024-05-14T23:59:59Z", "event_message": null, "project": null, "metadata": {"status": null, "path": "", "ok": false, "tags": [], "level": "error", "request": null}}
{"id": "4", "timestamp": "2024-05-15T00:00:00Z", "event_message": "wörd \"quoted\" \\ back", "metadata": {"path": "/rest/v1", "status": 503, "ms": "2.5", "level": "critical", "zip": "123", "calls": [{"to": "db", "ms": 3}, {"to": "cache", "ms": 9}]}}
{"id": "5", "timestamp": "2024-01-02T03:04:05.5Z", "event_message": "debug", "project": "a", "metadata": {"status": 99999999999, "tags": "prod", "request": {"host": "x.y", "n": "7"}}}
{"id": "6", "timestamp": "2024-01-01T00:00:00Z", "event_message": "", "metadata": {}}
{"id": "7", "timestamp": "2023-01-01T00:00:00Z", "event_message": "seen 10.0.0.1 here", "metadata": {"ip": "10.0.0.1", "hops": ["10.0.0.2"], "calls": [{"at": "10.0.0.3"}]}}
""".strip()

ENDPOINT_SQL = """
with edge_logs as (
  select t.id, t.timestamp, t.event_message, t.metadata, t.project, length(t.id) as size, t.timestamp_inferred as guessed
  from `edge` as t
)
select * from edge_logs
"""


class Uncancelled:
    """A cancel token that is never cancelled."""

    def on_cancel(self, stop: Callable[[], None]) -> None: ...

    def set_progress_reader(self, read: ReadProgress) -> None: ...


@dataclass(frozen=True)
class LqlEngine:
    """An engine and an endpoint with one sub-query. The methods `lql` and `sql` query it."""

    engine: DuckDBEngine
    program: EndpointProgram

    def lql(self, text: str, redaction: RedactionPolicy | None = None) -> list[Row]:
        check_lql_patterns(text, self.engine.regex_error)
        compiled = compile_lql(
            self.program, text, self.engine.compile_target, self.engine.shapes_by_stream(), redaction
        )
        return self._rows(compiled)

    def sql(self, text: str) -> list[Row]:
        return self._rows(
            compile_sandbox_query(self.program, text, self.engine.compile_target, self.engine.shapes_by_stream())
        )

    def _rows(self, statement: Statement) -> list[Row]:
        question = bind_parameters(statement, {}, NOW_US, self.engine.regex_error)
        rows = self.engine.answer(question, AnswerLimits(max_rows=1000, timeout_seconds=30), Uncancelled())
        return [tuple(map(_decode_cell, row)) for batch in rows.batches for row in batch]


def _decode_cell(cell: Cell) -> Cell:
    return msgspec.json.decode(cell) if isinstance(cell, msgspec.Raw) else cell


@pytest.fixture(scope="session")
def lql_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LqlEngine]:
    engine = DuckDBEngine(
        tmp_path_factory.mktemp("lql"), DuckDBTarget(), DuckDBOptions(threads=1), clock_us=lambda: NOW_US
    )
    stream = Stream("edge", uuid5(NAMESPACE_DNS, "edge"))
    engine.create_stream_tables([stream])
    intake = Intake(engine, lambda: NOW_US)
    asyncio.run(intake.ingest_body(stream, "application/x-ndjson", EVENTS.encode()))
    intake.close()
    endpoint = Endpoint("spec", uuid5(NAMESPACE_DNS, "spec"), ENDPOINT_SQL, "1", accepts_sandbox_queries=True)
    yield LqlEngine(engine, parse_and_check_endpoint(endpoint))
    engine.close()
