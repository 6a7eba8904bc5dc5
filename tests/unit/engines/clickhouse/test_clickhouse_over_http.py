"""The engine and a server over HTTP: entering, asking, inserting, stopping, and what becomes of it when it is away."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cordwood.engines.clickhouse.clickhouse_engine import ClickHouse, Options
from cordwood.engines.clickhouse.session import Session
from cordwood.engines.clickhouse.tables import INSERTED
from cordwood.engines.engine import AnswerLimits
from cordwood.errors import Backlog, Cancelled, EngineUnreachable, OutOfTime, QueryValue
from cordwood.model.event import Batch, Event
from cordwood.model.shape import Kinds, ValueKind
from tests.clickhouse_server import ClickHouseServer
from tests.unit.engines.clickhouse.asking import EDGE, NOW_US, Pull, answered, event, question

pytestmark = pytest.mark.usefixtures("written_by_hand")

RETRY_SECONDS = 0.05


@pytest.fixture
def remote(server: ClickHouseServer, tmp_path: Path) -> Iterator[ClickHouse]:
    engine = ClickHouse(server.address(), Options(pending_folder=tmp_path / "pending", retry_seconds=RETRY_SECONDS))
    engine.prepare([EDGE])
    yield engine
    engine.close()


def batch(*ids: str) -> list[Batch]:
    return [Batch("edge.logs", [event(one) for one in ids], NOW_US)]


def eventually(seen: Callable[[], object], expected: object) -> bool:
    """Whether it comes to that within seconds; what cannot be asked yet is asked again."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with suppress(EngineUnreachable):
            if seen() == expected:
                return True
        time.sleep(RETRY_SECONDS)
    return False


def stored(engine: ClickHouse) -> list[object]:
    return [row[0] for row in answered(engine, "SELECT id FROM `edge.logs` ORDER BY id")]


def test_events_go_and_come_by_http(remote: ClickHouse) -> None:
    (told,) = remote.append(batch("1", "2", "1"))
    assert (told.accepted, told.duplicates) == (2, 1)
    assert stored(remote) == ["1", "2"]


def test_values_are_bound_by_http(remote: ClickHouse) -> None:
    text = "it's \\ \n {x} `&=%"
    assert answered(remote, "SELECT {a:String}, {b:Nullable(Int64)}", a=text, b=None) == [(text, None)]


def test_a_batch_of_many_ids_is_known_again_by_http(remote: ClickHouse) -> None:
    """No server takes them all as one value."""
    many = [f"{at:036}" for at in range(5000)]
    assert [(told.accepted, told.duplicates) for told in remote.append(batch(*many))] == [(5000, 0)]
    assert [(told.accepted, told.duplicates) for told in remote.append(batch(*many, "new"))] == [(1, 5000)]


def test_an_id_beyond_what_a_server_takes_is_stored(remote: ClickHouse) -> None:
    assert [told.accepted for told in remote.append(batch("é" * 200_000))] == [1]


def test_a_value_that_no_server_takes_is_told(remote: ClickHouse) -> None:
    assert answered(remote, "SELECT length({a:String})", a="x" * 100_000) == [(100_000,)]
    with pytest.raises(QueryValue, match="@a is longer than the 128 KiB"):
        answered(remote, "SELECT length({a:String})", a="x" * 200_000)


def test_limits_reach_the_server_as_settings(remote: ClickHouse) -> None:
    names = ("readonly", "max_execution_time", "max_result_rows", "max_memory_usage")
    sql = f"SELECT {', '.join(f'getSetting({name!r})' for name in names)}"
    assert answered(remote, sql) == [(2, 10, 1001, 1 << 30)]


def test_a_wrong_password_is_the_operators(server: ClickHouseServer) -> None:
    with pytest.raises(EngineUnreachable, match="does not let us in") as fault:
        ClickHouse(server.address("wrong"), Options()).prepare([EDGE])
    assert fault.value.retry_after
    assert "wrong" not in fault.value.message


def test_a_query_is_stopped_by_its_mark(remote: ClickHouse) -> None:
    pull = Pull()
    timer = threading.Timer(0.4, lambda: pull.stop())  # noqa: PLW0108 - set only when the query begins
    timer.start()
    endless = question("SELECT count() FROM system.numbers WHERE sipHash64(number) = 1")
    with pytest.raises(Cancelled):
        list(remote.answer(endless, AnswerLimits(max_rows=10, seconds=20), pull).batches)
    timer.join()


def test_a_value_that_does_not_fit_is_the_authors_by_http_too(remote: ClickHouse) -> None:
    with pytest.raises(QueryValue, match="no such thing"):
        answered(remote, "SELECT throwIf(number = 1, 'cordwood: no such thing') FROM numbers(3)")
    assert answered(remote, "SELECT 7") == [(7,)]


def test_a_server_that_is_away_is_said_to_be_with_when_to_come_again(
    remote: ClickHouse, server: ClickHouseServer
) -> None:
    server.go()
    with pytest.raises(EngineUnreachable) as fault:
        answered(remote, "SELECT 1")
    assert fault.value.retry_after
    server.come()
    assert answered(remote, "SELECT 1") == [(1,)]


def test_a_server_that_went_and_came_between_two_queries_is_not_missed(
    remote: ClickHouse, server: ClickHouseServer
) -> None:
    assert answered(remote, "SELECT 1") == [(1,)]
    server.go()
    server.come()
    assert answered(remote, "SELECT 2") == [(2,)]
    server.go()
    server.come()
    assert [told.accepted for told in remote.append(batch("1"))] == [1]
    assert not remote.has_pending_events


def test_a_server_that_is_too_slow_is_out_of_time(server: ClickHouseServer) -> None:
    session = Session(server.address(), response_timeout_seconds=1)
    assert session.rows("SELECT 1") == [(1,)]
    server.mood.seconds_late = 2.5
    with pytest.raises(OutOfTime):
        session.rows("SELECT 1")
    server.mood.seconds_late = 0
    session.close()


def test_who_counts_while_another_does_goes_with_what_was_known_last(
    remote: ClickHouse, server: ClickHouseServer
) -> None:
    remote.append(batch("1"))
    assert remote.facts()["edge.logs"].events == 1
    server.mood.seconds_late = 30.0
    slow = threading.Thread(target=remote.facts)
    slow.start()
    assert eventually(lambda: sum("count()" in sql for sql, _ in server.mood.seen), 2)
    assert remote.facts()["edge.logs"].events == 1
    assert slow.is_alive()
    server.mood.seconds_late = 0.0
    slow.join()


def test_events_wait_on_disk_while_the_server_is_away_and_are_stored_once_when_it_is_back(
    remote: ClickHouse, server: ClickHouseServer
) -> None:
    remote.append(batch("1"))
    server.go()
    assert [told.accepted for told in remote.append(batch("1", "2"))] == [2]
    assert [told.accepted for told in remote.append(batch("3"))] == [1]
    server.come()
    remote.append(batch("3", "4"))
    assert eventually(lambda: stored(remote), ["1", "2", "3", "4"])


def test_an_insert_whose_answer_was_lost_is_sent_again_and_stored_once(
    remote: ClickHouse, server: ClickHouseServer
) -> None:
    server.mood.loses_answers = True
    assert [told.accepted for told in remote.append(batch("1", "2"))] == [2]
    assert sum(sql.startswith("INSERT") for sql, _ in server.mood.seen) > 0
    server.mood.loses_answers = False
    assert eventually(lambda: remote.has_pending_events, expected=False)
    assert stored(remote) == ["1", "2"]


def test_events_wait_on_disk_while_the_server_says_nothing(server: ClickHouseServer, tmp_path: Path) -> None:
    options = Options(pending_folder=tmp_path / "pending", retry_seconds=RETRY_SECONDS, response_timeout_seconds=1)
    engine = ClickHouse(server.address(), options)
    engine.prepare([EDGE])
    server.mood.seconds_late = 30.0
    assert [told.accepted for told in engine.append(batch("1"))] == [1]
    asked = sum(sql.startswith(("INSERT", "SELECT DISTINCT id")) for sql, _ in server.mood.seen)
    assert [told.accepted for told in engine.append(batch("2"))] == [1]
    assert sum(sql.startswith(("INSERT", "SELECT DISTINCT id")) for sql, _ in server.mood.seen) == asked
    server.mood.seconds_late = 0.0
    assert eventually(lambda: stored(engine), ["1", "2"])
    engine.close()


def test_a_server_that_is_away_at_the_start_is_waited_for(server: ClickHouseServer, tmp_path: Path) -> None:
    told: list[str] = []
    options = Options(pending_folder=tmp_path / "pending", retry_seconds=RETRY_SECONDS, report=told.append)
    server.go()
    engine = ClickHouse(server.address(), options)
    engine.prepare([EDGE])
    assert engine.shapes()["edge.logs"].version == 0
    assert engine.facts()["edge.logs"].events == 0
    assert engine.is_regex("(") is not None
    assert engine.is_regex("a+") is None
    with pytest.raises(EngineUnreachable):
        stored(engine)
    assert [one.accepted for one in engine.append(batch("1"))] == [1]
    assert eventually(lambda: len(told), 1)
    server.come()
    assert eventually(lambda: stored(engine) if not engine.has_pending_events else None, ["1"])
    assert eventually(lambda: len(told), 2)
    assert "cannot be reached" in told[0]
    assert "is back" in told[1]
    engine.close()


def test_a_silent_server_keeps_no_event_waiting_twice(server: ClickHouseServer, tmp_path: Path) -> None:
    """Once it was missed, what comes goes to disk at once until it is time to look again."""
    options = Options(pending_folder=tmp_path / "pending", retry_seconds=3600.0)
    engine = ClickHouse(server.address(), options)
    engine.prepare([EDGE])
    server.go()
    engine.append(batch("1"))
    server.come()
    asked = len(server.mood.seen)
    engine.append(batch("2"))
    assert engine.facts()["edge.logs"].events == 0
    assert len(server.mood.seen) == asked
    engine.close()


def test_what_one_process_has_seen_the_others_know_soon(server: ClickHouseServer, tmp_path: Path) -> None:
    options = Options(pending_folder=tmp_path / "pending", retry_seconds=RETRY_SECONDS)
    engines = [ClickHouse(server.address(), options) for _ in range(2)]
    for engine in engines:
        engine.prepare([EDGE])
    learnt: Kinds = {("metadata", "a"): frozenset({ValueKind.TEXT})}
    engines[0].append([Batch("edge.logs", [event("1", metadata='{"a": "x"}')], NOW_US, learnt)])
    assert eventually(lambda: engines[1].shapes()["edge.logs"].kinds, learnt)
    for engine in engines:
        engine.close()


def test_what_waits_on_disk_outlives_the_process(server: ClickHouseServer, tmp_path: Path) -> None:
    options = Options(pending_folder=tmp_path / "pending")
    first = ClickHouse(server.address(), options)
    first.prepare([EDGE])
    server.go()
    first.append(batch("1"))
    first.close()
    server.come()
    second = ClickHouse(server.address(), options)
    second.prepare([EDGE])
    assert stored(second) == ["1"]
    second.close()


def test_no_more_waits_on_disk_than_is_allowed(server: ClickHouseServer, tmp_path: Path) -> None:
    engine = ClickHouse(server.address(), Options(pending_folder=tmp_path / "pending", pending_bytes=300))
    engine.prepare([EDGE])
    server.go()
    engine.append(batch("1"))
    with pytest.raises(Backlog) as fault:
        engine.append([Batch("edge.logs", [Event("2", NOW_US, "x" * 500)], NOW_US)])
    assert fault.value.retry_after
    engine.close()


def test_without_a_folder_nothing_is_taken_while_the_server_is_away(server: ClickHouseServer) -> None:
    engine = ClickHouse(server.address(), Options())
    engine.prepare([EDGE])
    server.go()
    with pytest.raises(EngineUnreachable):
        engine.append(batch("1"))
    engine.close()


def test_an_insert_carries_a_token_of_its_events(remote: ClickHouse, server: ClickHouseServer) -> None:
    remote.append(batch("1"))
    remote.append(batch("2"))
    tokens = [settings["insert_deduplication_token"] for sql, settings in server.mood.seen if sql.startswith("INSERT")]
    assert len(set(tokens)) == 2


def test_inserts_are_collected_by_the_server_where_that_is_wanted_and_waited_for(
    remote: ClickHouse, server: ClickHouseServer
) -> None:
    remote.append(batch("1"))
    collecting = ClickHouse(server.address(), Options(async_inserts=True))
    collecting.prepare([EDGE])
    collecting.append(batch("2"))
    collecting.close()
    usual, collected = [settings for sql, settings in server.mood.seen if sql.startswith("INSERT")]
    assert "async_insert" not in usual
    assert (collected["async_insert"], collected["wait_for_async_insert"]) == ("1", "1")
    assert stored(remote) == ["1", "2"]


def test_a_block_that_is_sent_twice_is_stored_once(remote: ClickHouse, server: ClickHouseServer) -> None:
    """As when the answer to an insert is lost, and it is sent again before its rows can be seen."""
    session = Session(server.address())
    columns: dict[str, list[object]] = {"id": ["1"], "timestamp": [NOW_US], "ingested_at": [NOW_US]}
    kinds = [INSERTED[name] for name in columns]
    for _ in range(2):
        session.insert("`edge.logs`", columns, kinds, {"insert_deduplication_token": "t", "insert_deduplicate": 1})
    session.close()
    assert stored(remote) == ["1"]
