"""Plans without redaction functions: the columns that they read hold no text, or are redacted only in the answer."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.ingest.shape_inference import ShapeInferrer
from cordwood.model.definitions import Endpoint, Stream
from cordwood.model.event import Event, ReceivedEventBatch
from cordwood.model.redaction import RedactMode
from cordwood.sql.compile import compile_saved_query, parse_and_check_endpoint
from cordwood.sql.redaction.patterns import RedactionPolicy
from cordwood.sql.stages import Statement
from tests.plans import flushed_sql, optimistic_sql

NUMERIC_QUERIES = [
    "select timestamp_trunc(timestamp, hour) as t, count(*) as n from s group by 1 order by 1",
    "select m.status as status, count(*) as n from s cross join unnest(s.metadata) as m where m.status >= 400 group by 1",
    "select avg(m.took) as a, max(m.took) as b, countif(m.hit) as c from s cross join unnest(s.metadata) as m",
    "select count(m.path) as n, countif(m.path is null) as none from s cross join unnest(s.metadata) as m",
    "select project, count(*) as n from s where project = 'default' group by project",
]
QUERIES_OF_OUTPUT_COLUMNS = [
    "select id, timestamp, event_message, metadata from s where project = 'default' order by timestamp desc limit 100",
    (
        "with logs as (select timestamp, event_message, metadata from s) select m.path, m.status, event_message"
        " from logs cross join unnest(metadata) as m where m.status = 500 order by timestamp desc limit 100"
    ),
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDBEngine]:
    folder: Path = tmp_path_factory.mktemp("plain")
    opened = DuckDBEngine(folder, DuckDBTarget())
    opened.create_stream_tables([Stream("s", UUID(int=1))])
    metadata = json.dumps({"status": 200, "took": 1.5, "hit": True, "path": "/a"})
    inspected, learnt = ShapeInferrer(opened.shapes_by_stream).infer_stream_shape(
        "s", [Event("1", 1, "a", "default", metadata, "{}")]
    )
    opened.append([ReceivedEventBatch("s", inspected, 0, learnt)])
    yield opened
    opened.close()


def compile_query(engine: DuckDBEngine, sql: str, redaction: RedactionPolicy | None = None) -> Statement:
    program = parse_and_check_endpoint(Endpoint("e", UUID(int=3), sql, "s"))
    return compile_saved_query(program, engine.compile_target, engine.shapes_by_stream(), redaction)


@pytest.mark.parametrize("mode", RedactMode)
@pytest.mark.parametrize("sql", NUMERIC_QUERIES)
def test_numbers_times_and_projects_are_not_redacted(engine: DuckDBEngine, sql: str, mode: RedactMode) -> None:
    unredacted, redacted = compile_query(engine, sql), compile_query(engine, sql, RedactionPolicy(mode))
    assert (redacted.sql, flushed_sql(redacted)) == (unredacted.sql, flushed_sql(unredacted))
    assert optimistic_sql(redacted) is None
    assert redacted.unredacted_column_indexes == ()


@pytest.mark.parametrize("sql", QUERIES_OF_OUTPUT_COLUMNS)
def test_output_columns_are_redacted_after_the_plan(engine: DuckDBEngine, sql: str) -> None:
    unredacted, redacted = compile_query(engine, sql), compile_query(engine, sql, RedactionPolicy(RedactMode.REPLACE))
    assert (redacted.sql, flushed_sql(redacted)) == (unredacted.sql, flushed_sql(unredacted))
    assert redacted.unredacted_column_indexes


def test_texts_read_by_the_plan_are_redacted_in_it(engine: DuckDBEngine) -> None:
    sql = "select count(*) as n from s cross join unnest(s.metadata) as m where starts_with(m.path, '/')"
    assert compile_query(engine, sql).sql != compile_query(engine, sql, RedactionPolicy(RedactMode.REPLACE)).sql
