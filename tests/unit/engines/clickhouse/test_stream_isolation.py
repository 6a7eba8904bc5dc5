"""During a query, streams that its statement does not declare have no rows, even if the SQL passed every check."""

import pytest

from cordwood.engines.clickhouse.clickhouse_engine import ClickHouseEngine
from cordwood.engines.engine import AnswerLimits
from cordwood.model.definitions import Stream
from cordwood.model.event import ReceivedEventBatch
from cordwood.sql.plan import plan_without_placeholders
from cordwood.sql.stages import BoundStatement, Statement
from tests.unit.engines.clickhouse.direct_queries import AUTH_STREAM, EDGE_STREAM, LIMITS, NOW_US, ManualCancel, event

pytestmark = pytest.mark.usefixtures("without_isolation_check")

ODD_STREAM = Stream("it's a \\ name", AUTH_STREAM.id)

QUERIES_OF_TWO_STREAMS = (
    "SELECT (SELECT count() FROM `edge.logs`), (SELECT count() FROM auth)",
    "SELECT (SELECT count() FROM `edge.logs` AS auth), (SELECT count() FROM auth AS `edge.logs`)",
    "WITH a AS (SELECT * FROM `edge.logs`), b AS (SELECT * FROM auth) SELECT (SELECT count() FROM a), (SELECT count() FROM b)",
    "SELECT sum(e), sum(a) FROM (SELECT 1 AS e, 0 AS a FROM `edge.logs` UNION ALL SELECT 0, 1 FROM auth)",
    "SELECT (SELECT count() FROM `edge.logs`), countIf(id IN (SELECT id FROM auth)) FROM `edge.logs`",
)


@pytest.fixture
def engine_with_events(engine: ClickHouseEngine) -> ClickHouseEngine:
    engine.create_stream_tables([EDGE_STREAM, AUTH_STREAM, ODD_STREAM])
    engine.append([ReceivedEventBatch(stream.name, [event("1")], NOW_US) for stream in (EDGE_STREAM, AUTH_STREAM)])
    return engine


def counts(engine: ClickHouseEngine, sql: str, *streams: str) -> list[int]:
    statement = Statement(plan_without_placeholders(sql), (), (), streams)
    (batch,) = engine.answer(
        BoundStatement(statement), AnswerLimits(10, LIMITS.timeout_seconds), ManualCancel()
    ).batches
    return [int(str(count)) for count in batch[0]]


@pytest.mark.parametrize("sql", QUERIES_OF_TWO_STREAMS)
def test_a_query_reads_rows_only_of_its_declared_streams(engine_with_events: ClickHouseEngine, sql: str) -> None:
    assert counts(engine_with_events, sql, "edge.logs", "auth") == [1, 1]
    assert counts(engine_with_events, sql, "edge.logs") == [1, 0]


def test_an_alias_may_have_the_name_of_another_stream(engine_with_events: ClickHouseEngine) -> None:
    sql = "WITH auth AS (SELECT * FROM `edge.logs` AS auth) SELECT count() FROM auth"
    assert counts(engine_with_events, sql, "edge.logs") == [1]


def test_a_query_without_streams_reads_no_rows(engine_with_events: ClickHouseEngine) -> None:
    assert counts(engine_with_events, QUERIES_OF_TWO_STREAMS[0]) == [0, 0]
