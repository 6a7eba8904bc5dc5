"""Optimistic redaction: a redacted statement first runs without redaction, and after a match again with redaction."""

import json
import uuid
from collections.abc import Iterator

import pytest

from cordwood.engines.clickhouse.clickhouse_engine import ClickHouseEngine, ClickHouseOptions
from cordwood.engines.engine import AnswerLimits
from cordwood.errors import BadQueryValue
from cordwood.ingest.shape_inference import ShapeInferrer
from cordwood.model.datatype import Row
from cordwood.model.definitions import Endpoint
from cordwood.model.event import Event, ReceivedEventBatch
from cordwood.model.redaction import RedactMode
from cordwood.sql.bind import bind_parameters
from cordwood.sql.compile import compile_saved_query, parse_and_check_endpoint
from cordwood.sql.redaction.masking import REDACT_TEXT_FUNCTION_PREFIX
from cordwood.sql.redaction.patterns import RedactionPolicy
from tests.clickhouse_server import ClickHouseServer, serve_clickhouse
from tests.plans import optimistic_sql
from tests.unit.engines.clickhouse.direct_queries import EDGE_STREAM, NOW_US, ManualCancel

COUNT_BY_PATH = "select cast(m.path as string) as path, count(*) as n from `edge.logs` cross join unnest(metadata) as m group by 1 order by 1"
EVERY_PATH = "select concat(m.path, '!') as path from `edge.logs` as t cross join unnest(t.metadata) as m order by t.id"
SAFE_FUNCTION_QUERY = (
    "select safe.substr(m.path, 1, 99) as path from `edge.logs` cross join unnest(metadata) as m order by 1"
)
FAILING_QUERY = "select error(concat('no ', m.path)) as x from `edge.logs` cross join unnest(metadata) as m"

PATHS_QUERY = "select concat(m.path, '!') as path from `edge.logs` cross join unnest(metadata) as m"
UNION_QUERIES = [
    f"{PATHS_QUERY} union all {PATHS_QUERY} limit 99",
    f"({PATHS_QUERY} limit 9) union all ({PATHS_QUERY} limit 9)",
    f"with e as ({PATHS_QUERY}) (select upper(path) as path from e limit 9) union all select path from e",
    f"with recursive r as (select 1 as n union all select n + 1 from r where n < 2) select p.path from ({PATHS_QUERY}) as p cross join r",
]


class RecordedEngine:
    """An engine to which a test adds events. Its server records the statements."""

    def __init__(self, server: ClickHouseServer) -> None:
        self.engine = ClickHouseEngine(server.address(), ClickHouseOptions())
        self.engine.create_stream_tables([EDGE_STREAM])
        self._server = server
        self._count = 0

    def add(self, *paths: str) -> None:
        events = [
            Event(f"{self._count + at:06}", NOW_US + at, "", "p", json.dumps({"path": path}), "{}")
            for at, path in enumerate(paths)
        ]
        self._count += len(events)
        events_with_paths, learnt = ShapeInferrer(self.engine.shapes_by_stream).infer_stream_shape("edge.logs", events)
        self.engine.append([ReceivedEventBatch("edge.logs", events_with_paths, NOW_US, learnt)])

    def ask(self, sql: str) -> list[Row]:
        program = parse_and_check_endpoint(Endpoint("e", uuid.UUID(int=3), sql, "s", max_rows=5000))
        redaction = RedactionPolicy(RedactMode.REPLACE)
        statement = compile_saved_query(program, self.engine.compile_target, self.engine.shapes_by_stream(), redaction)
        assert optimistic_sql(statement) is not None
        rows = self.engine.answer(
            bind_parameters(statement, {}, 0, self.engine.regex_error), AnswerLimits(5000, 30.0), ManualCancel()
        )
        return [tuple(row) for batch in rows.batches for row in batch]

    def redacted_runs(self) -> list[bool]:
        """Return for each query that ran whether it ran with redaction."""
        queries = [sql for sql, _ in self._server.control.statements if "metadata" in sql and sql.startswith("WITH")]
        return [f"{REDACT_TEXT_FUNCTION_PREFIX}_" in sql for sql in queries]


@pytest.fixture
def store(address: str) -> Iterator[RecordedEngine]:
    with serve_clickhouse(address) as server:
        opened = RecordedEngine(server)
        opened.add("/rest", "/auth", "/rest")
        yield opened
        opened.engine.close()


def test_without_private_texts_no_redaction_is_prepared(store: RecordedEngine) -> None:
    assert store.ask(COUNT_BY_PATH) == store.ask(COUNT_BY_PATH) == [("/auth", 1), ("/rest", 2)]
    assert store.redacted_runs() == [False, False]


def test_after_a_match_the_statement_is_run_with_redaction_first(store: RecordedEngine) -> None:
    store.ask(COUNT_BY_PATH)
    store.add("/user/203.0.113.7")
    assert store.ask(COUNT_BY_PATH) == store.ask(COUNT_BY_PATH) == [("/auth", 1), ("/rest", 2), ("/user/REDACTED", 1)]
    assert store.redacted_runs() == [False, False, True, True]


def test_a_streamed_answer_is_never_run_optimistically(store: RecordedEngine) -> None:
    store.add(*["/rest"] * 1500, "/user/203.0.113.7")
    assert store.ask(EVERY_PATH)[-2:] == [("/rest!",), ("/user/REDACTED!",)]


def test_a_match_in_a_safe_function_does_not_become_null(store: RecordedEngine) -> None:
    store.add("/user/203.0.113.7")
    assert store.ask(SAFE_FUNCTION_QUERY)[-1] == ("/user/REDACTED",)


def test_an_error_of_the_query_is_reported_unchanged(store: RecordedEngine) -> None:
    with pytest.raises(BadQueryValue, match="ERROR"):
        store.ask(FAILING_QUERY)


@pytest.mark.parametrize("sql", UNION_QUERIES)
def test_redaction_functions_are_defined_in_every_part_of_a_query(store: RecordedEngine, sql: str) -> None:
    store.add("/user/203.0.113.7")
    result_rows = sorted(str(row[0]).lower() for row in store.ask(sql))
    assert result_rows == sorted(["/rest!", "/auth!", "/rest!", "/user/redacted!"] * 2)
