"""Columns that a query only returns are redacted after they are fetched, by a second statement."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from cordwood.engines.clickhouse.clickhouse_engine import ClickHouseEngine, ClickHouseOptions
from cordwood.engines.engine import AnswerLimits
from cordwood.errors import QueryOutOfTime
from cordwood.model.datatype import Datatype, Kind
from cordwood.model.event import Event, ReceivedEventBatch
from cordwood.model.redaction import RedactionConfig, RedactMode
from cordwood.sql.plan import plan_without_placeholders
from cordwood.sql.stages import BoundStatement, Statement
from tests.clickhouse_server import ClickHouseServer
from tests.unit.engines.clickhouse.direct_queries import EDGE_STREAM, LIMITS, NOW_US, ManualCancel

pytestmark = pytest.mark.usefixtures("without_isolation_check")

SQL = "SELECT id, event_message, metadata FROM `edge.logs` ORDER BY id"


@pytest.fixture
def remote_engine(server: ClickHouseServer, tmp_path: Path) -> Iterator[ClickHouseEngine]:
    options = ClickHouseOptions(pending_folder=tmp_path / "pending", redaction=RedactionConfig(hash_key="key"))
    engine = ClickHouseEngine(server.address(), options)
    engine.create_stream_tables([EDGE_STREAM])
    yield engine
    engine.close()


def store_events(engine: ClickHouseEngine, *events: tuple[str, str | None]) -> None:
    stored_events = [
        Event(str(at), NOW_US, message, "default", metadata) for at, (message, metadata) in enumerate(events)
    ]
    engine.append([ReceivedEventBatch("edge.logs", stored_events, NOW_US)])


def redacted_rows(
    engine: ClickHouseEngine,
    mode: RedactMode = RedactMode.REPLACE,
    sql: str = SQL,
    limits: AnswerLimits = LIMITS,
    values: Mapping[str, object] | None = None,
) -> list[tuple[object, ...]]:
    types = (Kind.STRING, Kind.STRING, Kind.VARIANT)
    statement = Statement(
        plan_without_placeholders(sql),
        (),
        (),
        ("edge.logs",),
        column_names=("id", "event_message", "metadata"),
        column_types=tuple(Datatype(kind) for kind in types),
        redact_mode=mode,
        unredacted_column_indexes=(1, 2),
    )
    rows = engine.answer(BoundStatement(statement, values or {}), limits, ManualCancel())
    return [
        tuple(bytes(cell).decode() if isinstance(cell, msgspec.Raw) else cell for cell in row)
        for batch in rows.batches
        for row in batch
    ]


def redaction_statements(server: ClickHouseServer) -> int:
    return sum("piece0" in sql for sql, _ in server.control.statements)


def test_texts_and_json_of_an_answer_are_redacted(remote_engine: ClickHouseEngine) -> None:
    store_events(
        remote_engine, ("from 10.0.0.1", '{"a": [1, "x@example.org"], "b": null}'), ("none", None), ("\t\\ \x04 é", "7")
    )
    assert redacted_rows(remote_engine) == [
        ("0", "from REDACTED", '[{"a":[1,"REDACTED"],"b":null}]'),
        ("1", "none", None),
        ("2", "\t\\ \x04 é", "7"),
    ]


def test_a_text_without_private_data_is_cached(remote_engine: ClickHouseEngine, server: ClickHouseServer) -> None:
    store_events(remote_engine, ("a plain text", '{"a": "b"}'))
    assert redacted_rows(remote_engine) == redacted_rows(remote_engine)
    assert redaction_statements(server) == 1


def test_a_text_with_private_data_is_not_cached(remote_engine: ClickHouseEngine, server: ClickHouseServer) -> None:
    """Redact a text with private data again for each answer.

    If its result were cached, the time of an answer would reveal whether the same private text was queried before.
    """
    store_events(remote_engine, ("from 10.0.0.1", None), ("from 10.0.0.2", None))
    assert [row[1] for row in redacted_rows(remote_engine) + redacted_rows(remote_engine)] == ["from REDACTED"] * 4
    assert redaction_statements(server) == 2


def test_each_mode_has_its_own_cache(remote_engine: ClickHouseEngine) -> None:
    store_events(remote_engine, ("from 10.0.0.1", None))
    messages = [
        redacted_rows(remote_engine, mode)[0][1] for mode in (RedactMode.REPLACE, RedactMode.TRUNCATE, RedactMode.HASH)
    ]
    assert messages[:2] == ["from REDACTED", "from 10.0.0.0/24"]
    assert str(messages[2]).startswith("from REDACTED-")


def test_an_event_above_the_limit_of_one_value_is_redacted(remote_engine: ClickHouseEngine) -> None:
    padding = "é" * 150_000
    store_events(remote_engine, (f"{padding} 10.0.0.1", f'{{"a": "{padding}", "b": "10.0.0.1"}}'))
    assert redacted_rows(remote_engine) == [("0", f"{padding} REDACTED", f'[{{"a":"{padding}","b":"REDACTED"}}]')]


def test_rows_redacted_in_several_batches_keep_their_order(remote_engine: ClickHouseEngine) -> None:
    sql = "SELECT toString(number), '10.0.0.' || toString(number % 200), '\"' || toString(number) || '\"' FROM numbers(2500)"
    rows = redacted_rows(remote_engine, RedactMode.TRUNCATE, sql, AnswerLimits(max_rows=3000, timeout_seconds=20))
    assert rows == [(str(at), "10.0.0.0/24", f'"{at}"') for at in range(2500)]


def test_redaction_counts_toward_the_time_limit(remote_engine: ClickHouseEngine) -> None:
    sql = "SELECT '', '10.0.0.1 ' || repeat('1.2.3.4 ', 100000) || toString(number), NULL FROM numbers(40)"
    with pytest.raises(QueryOutOfTime):
        redacted_rows(remote_engine, sql=sql, limits=AnswerLimits(max_rows=100, timeout_seconds=0.5))
