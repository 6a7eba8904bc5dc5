"""The ClickHouse engine over HTTP: connecting, querying, inserting, cancelling, and outages of the server."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cordwood.engines.clickhouse.clickhouse_engine import ClickHouseEngine, ClickHouseOptions
from cordwood.engines.clickhouse.session import Session
from cordwood.engines.clickhouse.tables import INSERTED_COLUMNS
from cordwood.engines.engine import AnswerLimits, CancelToken
from cordwood.errors import BacklogFull, BadQueryValue, EngineUnreachable, Fault, QueryCancelled, QueryOutOfTime
from cordwood.model.event import Event, ReceivedEventBatch, ValueKind, ValueKindsByPath
from tests.clickhouse_server import ClickHouseServer
from tests.unit.engines.clickhouse.direct_queries import EDGE_STREAM, NOW_US, ManualCancel, answer_rows, event, question

pytestmark = pytest.mark.usefixtures("without_isolation_check")

RETRY_SECONDS = 0.05
LONG_LIMITS = AnswerLimits(10, 120.0)


@pytest.fixture
def remote_engine(server: ClickHouseServer, tmp_path: Path) -> Iterator[ClickHouseEngine]:
    engine = ClickHouseEngine(
        server.address(), ClickHouseOptions(pending_folder=tmp_path / "pending", retry_interval_seconds=RETRY_SECONDS)
    )
    engine.create_stream_tables([EDGE_STREAM])
    yield engine
    engine.close()


def make_batch(*ids: str) -> list[ReceivedEventBatch]:
    return [ReceivedEventBatch("edge.logs", [event(event_id) for event_id in ids], NOW_US)]


def is_reached(read_value: Callable[[], object], expected: object) -> bool:
    """Return whether the value becomes the expected one within 20 seconds, ignoring an unreachable server."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with suppress(EngineUnreachable):
            if read_value() == expected:
                return True
        time.sleep(RETRY_SECONDS)
    return False


def stored_ids(engine: ClickHouseEngine) -> list[object]:
    return [row[0] for row in answer_rows(engine, "SELECT id FROM `edge.logs` ORDER BY id")]


def test_events_are_stored_and_read_over_http(remote_engine: ClickHouseEngine) -> None:
    (appended,) = remote_engine.append(make_batch("1", "2", "1"))
    assert (appended.accepted, appended.duplicates) == (2, 1)
    assert stored_ids(remote_engine) == ["1", "2"]


def test_values_are_bound_over_http(remote_engine: ClickHouseEngine) -> None:
    text = "it's \\ \n {x} `&=%"
    assert answer_rows(remote_engine, "SELECT {a:String}, {b:Nullable(Int64)}", a=text, b=None) == [(text, None)]


def test_duplicates_of_a_large_batch_are_recognized(remote_engine: ClickHouseEngine) -> None:
    """Send a batch whose ids together exceed the limit of one bound value."""
    ids = [f"{at:036}" for at in range(5000)]
    assert [(appended.accepted, appended.duplicates) for appended in remote_engine.append(make_batch(*ids))] == [
        (5000, 0)
    ]
    assert [(appended.accepted, appended.duplicates) for appended in remote_engine.append(make_batch(*ids, "new"))] == [
        (1, 5000)
    ]


def test_an_id_above_the_limit_of_one_value_is_stored(remote_engine: ClickHouseEngine) -> None:
    assert [appended.accepted for appended in remote_engine.append(make_batch("é" * 200_000))] == [1]


def test_a_value_above_the_limit_is_refused(remote_engine: ClickHouseEngine) -> None:
    assert answer_rows(remote_engine, "SELECT length({a:String})", a="x" * 100_000) == [(100_000,)]
    with pytest.raises(BadQueryValue, match="@a is longer than the 128 KiB"):
        answer_rows(remote_engine, "SELECT length({a:String})", a="x" * 200_000)


def test_limits_are_sent_as_settings(remote_engine: ClickHouseEngine) -> None:
    settings = ("readonly", "max_execution_time", "max_result_rows", "max_memory_usage")
    sql = f"SELECT {', '.join(f'getSetting({name!r})' for name in settings)}"
    assert answer_rows(remote_engine, sql) == [(2, 10, 1001, 1 << 30)]


def test_a_wrong_password_is_reported_as_unreachable(server: ClickHouseServer) -> None:
    with pytest.raises(EngineUnreachable, match="refuses the service's login") as fault:
        ClickHouseEngine(server.address("wrong"), ClickHouseOptions()).create_stream_tables([EDGE_STREAM])
    assert fault.value.retry_after
    assert "wrong" not in fault.value.message


def test_a_query_is_cancelled_on_the_server(remote_engine: ClickHouseEngine) -> None:
    cancel = ManualCancel()
    timer = threading.Timer(0.4, lambda: cancel.stop())  # noqa: PLW0108 - set only when the query begins
    timer.start()
    endless = question("SELECT count() FROM system.numbers WHERE sipHash64(number) = 1")
    with pytest.raises(QueryCancelled):
        list(remote_engine.answer(endless, AnswerLimits(max_rows=10, timeout_seconds=20), cancel).batches)
    timer.join()


def test_an_error_of_a_value_is_reported_over_http(remote_engine: ClickHouseEngine) -> None:
    with pytest.raises(BadQueryValue, match="no such thing"):
        answer_rows(remote_engine, "SELECT throwIf(number = 1, 'cordwood: no such thing') FROM numbers(3)")
    assert answer_rows(remote_engine, "SELECT 7") == [(7,)]


def test_an_unreachable_server_is_reported_with_retry_after(
    remote_engine: ClickHouseEngine, server: ClickHouseServer
) -> None:
    server.stop_listening()
    with pytest.raises(EngineUnreachable) as fault:
        answer_rows(remote_engine, "SELECT 1")
    assert fault.value.retry_after
    server.start_listening()
    assert answer_rows(remote_engine, "SELECT 1") == [(1,)]


def test_a_restart_between_two_queries_is_not_noticed(
    remote_engine: ClickHouseEngine, server: ClickHouseServer
) -> None:
    assert answer_rows(remote_engine, "SELECT 1") == [(1,)]
    server.stop_listening()
    server.start_listening()
    assert answer_rows(remote_engine, "SELECT 2") == [(2,)]
    server.stop_listening()
    server.start_listening()
    assert [appended.accepted for appended in remote_engine.append(make_batch("1"))] == [1]
    assert not remote_engine.has_pending_events


def test_a_slow_server_is_out_of_time(server: ClickHouseServer) -> None:
    session = Session(server.address(), response_timeout_seconds=1)
    assert session.fetch_rows("SELECT 1") == [(1,)]
    server.control.seconds_late = 2.5
    with pytest.raises(QueryOutOfTime):
        session.fetch_rows("SELECT 1")
    server.control.seconds_late = 0
    session.close()


def test_facts_return_the_last_known_counts_during_a_slow_count(
    remote_engine: ClickHouseEngine, server: ClickHouseServer
) -> None:
    remote_engine.append(make_batch("1"))
    assert remote_engine.stream_stats()["edge.logs"].events == 1
    server.control.seconds_late = 30.0
    slow = threading.Thread(target=remote_engine.stream_stats)
    slow.start()
    assert is_reached(lambda: sum("count()" in sql for sql, _ in server.control.statements), 2)
    assert remote_engine.stream_stats()["edge.logs"].events == 1
    assert slow.is_alive()
    server.control.seconds_late = 0.0
    slow.join()


def test_pending_events_are_stored_once_after_an_outage(
    remote_engine: ClickHouseEngine, server: ClickHouseServer
) -> None:
    remote_engine.append(make_batch("1"))
    server.stop_listening()
    assert [appended.accepted for appended in remote_engine.append(make_batch("1", "2"))] == [2]
    assert [appended.accepted for appended in remote_engine.append(make_batch("3"))] == [1]
    server.start_listening()
    remote_engine.append(make_batch("3", "4"))
    assert is_reached(lambda: stored_ids(remote_engine), ["1", "2", "3", "4"])


def test_an_insert_without_a_response_is_repeated_and_stored_once(
    remote_engine: ClickHouseEngine, server: ClickHouseServer
) -> None:
    server.control.loses_answers = True
    assert [appended.accepted for appended in remote_engine.append(make_batch("1", "2"))] == [2]
    assert sum(sql.startswith("INSERT") for sql, _ in server.control.statements) > 0
    server.control.loses_answers = False
    assert is_reached(lambda: remote_engine.has_pending_events, expected=False)
    assert stored_ids(remote_engine) == ["1", "2"]


def test_events_are_pending_on_disk_while_the_server_does_not_respond(server: ClickHouseServer, tmp_path: Path) -> None:
    options = ClickHouseOptions(
        pending_folder=tmp_path / "pending", retry_interval_seconds=RETRY_SECONDS, response_timeout_seconds=1
    )
    engine = ClickHouseEngine(server.address(), options)
    engine.create_stream_tables([EDGE_STREAM])
    server.control.seconds_late = 30.0
    assert [appended.accepted for appended in engine.append(make_batch("1"))] == [1]
    statement_count = sum(sql.startswith(("INSERT", "SELECT DISTINCT id")) for sql, _ in server.control.statements)
    assert [appended.accepted for appended in engine.append(make_batch("2"))] == [1]
    assert (
        sum(sql.startswith(("INSERT", "SELECT DISTINCT id")) for sql, _ in server.control.statements) == statement_count
    )
    server.control.seconds_late = 0.0
    assert is_reached(lambda: stored_ids(engine), ["1", "2"])
    engine.close()


def test_an_unreachable_server_at_the_start_is_retried(server: ClickHouseServer, tmp_path: Path) -> None:
    reports: list[str] = []
    options = ClickHouseOptions(
        pending_folder=tmp_path / "pending", retry_interval_seconds=RETRY_SECONDS, report_message=reports.append
    )
    server.stop_listening()
    engine = ClickHouseEngine(server.address(), options)
    engine.create_stream_tables([EDGE_STREAM])
    assert engine.shapes_by_stream()["edge.logs"].version == 0
    assert engine.stream_stats()["edge.logs"].events == 0
    assert engine.regex_error("(") is not None
    assert engine.regex_error("a+") is None
    with pytest.raises(EngineUnreachable):
        stored_ids(engine)
    assert [outcome.accepted for outcome in engine.append(make_batch("1"))] == [1]
    assert is_reached(lambda: len(reports), 1)
    server.start_listening()
    assert is_reached(lambda: stored_ids(engine) if not engine.has_pending_events else None, ["1"])
    assert is_reached(lambda: len(reports), 2)
    assert "cannot be reached" in reports[0]
    assert "is reachable again" in reports[1]
    engine.close()


def test_events_go_directly_to_disk_until_the_next_retry(server: ClickHouseServer, tmp_path: Path) -> None:
    options = ClickHouseOptions(pending_folder=tmp_path / "pending", retry_interval_seconds=3600.0)
    engine = ClickHouseEngine(server.address(), options)
    engine.create_stream_tables([EDGE_STREAM])
    server.stop_listening()
    engine.append(make_batch("1"))
    server.start_listening()
    statement_count = len(server.control.statements)
    engine.append(make_batch("2"))
    assert engine.stream_stats()["edge.logs"].events == 0
    assert len(server.control.statements) == statement_count
    engine.close()


def test_shapes_learnt_by_one_process_reach_the_others(server: ClickHouseServer, tmp_path: Path) -> None:
    options = ClickHouseOptions(pending_folder=tmp_path / "pending", retry_interval_seconds=RETRY_SECONDS)
    engines = [ClickHouseEngine(server.address(), options) for _ in range(2)]
    for engine in engines:
        engine.create_stream_tables([EDGE_STREAM])
    learnt: ValueKindsByPath = {("metadata", "a"): frozenset({ValueKind.TEXT})}
    engines[0].append([ReceivedEventBatch("edge.logs", [event("1", metadata='{"a": "x"}')], NOW_US, learnt)])
    assert is_reached(lambda: engines[1].shapes_by_stream()["edge.logs"].value_kinds_by_path, learnt)
    for engine in engines:
        engine.close()


def test_pending_events_survive_a_restart(server: ClickHouseServer, tmp_path: Path) -> None:
    options = ClickHouseOptions(pending_folder=tmp_path / "pending")
    first = ClickHouseEngine(server.address(), options)
    first.create_stream_tables([EDGE_STREAM])
    server.stop_listening()
    first.append(make_batch("1"))
    first.close()
    server.start_listening()
    second = ClickHouseEngine(server.address(), options)
    second.create_stream_tables([EDGE_STREAM])
    assert stored_ids(second) == ["1"]
    second.close()


def test_pending_events_have_a_byte_limit(server: ClickHouseServer, tmp_path: Path) -> None:
    engine = ClickHouseEngine(
        server.address(), ClickHouseOptions(pending_folder=tmp_path / "pending", max_pending_bytes=300)
    )
    engine.create_stream_tables([EDGE_STREAM])
    server.stop_listening()
    engine.append(make_batch("1"))
    with pytest.raises(BacklogFull) as fault:
        engine.append([ReceivedEventBatch("edge.logs", [Event("2", NOW_US, "x" * 500)], NOW_US)])
    assert fault.value.retry_after
    engine.close()


def test_without_a_pending_folder_events_are_refused_during_an_outage(server: ClickHouseServer) -> None:
    engine = ClickHouseEngine(server.address(), ClickHouseOptions())
    engine.create_stream_tables([EDGE_STREAM])
    server.stop_listening()
    with pytest.raises(EngineUnreachable):
        engine.append(make_batch("1"))
    engine.close()


def test_each_insert_has_its_own_deduplication_token(remote_engine: ClickHouseEngine, server: ClickHouseServer) -> None:
    remote_engine.append(make_batch("1"))
    remote_engine.append(make_batch("2"))
    tokens = [
        settings["insert_deduplication_token"]
        for sql, settings in server.control.statements
        if sql.startswith("INSERT")
    ]
    assert len(set(tokens)) == 2


def test_asynchronous_inserts_are_optional_and_awaited(
    remote_engine: ClickHouseEngine, server: ClickHouseServer
) -> None:
    remote_engine.append(make_batch("1"))
    collecting = ClickHouseEngine(server.address(), ClickHouseOptions(async_inserts=True))
    collecting.create_stream_tables([EDGE_STREAM])
    collecting.append(make_batch("2"))
    collecting.close()
    direct_settings, collected_settings = [
        settings for sql, settings in server.control.statements if sql.startswith("INSERT")
    ]
    assert "async_insert" not in direct_settings
    assert (collected_settings["async_insert"], collected_settings["wait_for_async_insert"]) == ("1", "1")
    assert stored_ids(remote_engine) == ["1", "2"]


def test_a_repeated_block_is_stored_once(remote_engine: ClickHouseEngine, server: ClickHouseServer) -> None:
    """Repeat an insert with the same deduplication token.

    The engine does so if a response was lost and the rows are not visible yet.
    """
    session = Session(server.address())
    columns: dict[str, list[object]] = {"id": ["1"], "timestamp": [NOW_US], "ingested_at": [NOW_US]}
    kinds = [INSERTED_COLUMNS[name] for name in columns]
    for _ in range(2):
        session.insert("`edge.logs`", columns, kinds, {"insert_deduplication_token": "t", "insert_deduplicate": 1})
    session.close()
    assert stored_ids(remote_engine) == ["1"]


def test_the_number_of_rows_read_is_reported_until_the_query_ends(
    remote_engine: ClickHouseEngine, server: ClickHouseServer
) -> None:
    token = CancelToken()
    faults: list[type[Fault]] = []

    def run() -> None:
        try:
            rows = remote_engine.answer(
                question("SELECT count() FROM numbers(1e12) WHERE sipHash64(number) = 7"), LONG_LIMITS, token
            )
            list(rows.batches)
        except Fault as fault:
            faults.append(type(fault))

    thread = threading.Thread(target=run)
    thread.start()
    first = None
    while first is None or (token.query_progress() or first).rows_read == first.rows_read:
        assert thread.is_alive(), faults
        first = first or token.query_progress()
        time.sleep(RETRY_SECONDS)
    assert (first.fraction_done, first.rows_total) == (None, 10**12)
    progress_queries = [
        (sql, settings)
        for sql, settings in server.control.statements
        if "system.processes" in sql and "KILL" not in sql
    ]
    assert {settings["log_queries"] for _, settings in progress_queries} == {"0"}
    token.cancel()
    thread.join()
    assert faults == [QueryCancelled]
    assert token.query_progress() is None
