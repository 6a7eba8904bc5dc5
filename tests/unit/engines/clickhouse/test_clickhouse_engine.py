"""The engine on chDB: what is appended is answered, once; limits and faults are ours."""

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from cordwood.engines.clickhouse.clickhouse_engine import ClickHouse, Options
from cordwood.engines.engine import AnswerLimits
from cordwood.errors import Cancelled, EngineFailed, NothingToBackUp, OutOfMemory, OutOfTime, QueryValue, UnknownStream
from cordwood.model.datatype import Kind
from cordwood.model.event import Batch
from cordwood.model.shape import Path, ValueKind
from cordwood.model.stream import Stream
from tests.unit.engines.clickhouse.asking import (
    AUTH,
    EDGE,
    LIMITS,
    NOW_US,
    CancelledAtOnce,
    Pull,
    answered,
    event,
    question,
)

pytestmark = pytest.mark.usefixtures("written_by_hand")


@pytest.fixture
def prepared(engine: ClickHouse) -> ClickHouse:
    engine.prepare([EDGE, AUTH])
    return engine


def test_an_event_that_was_appended_is_in_the_next_answer(prepared: ClickHouse) -> None:
    metadata = '{"b":{"c":"x"},"a":[1,null,{"e":{}}],"d":null}'
    (told,) = prepared.append([Batch("edge.logs", [event("1", NOW_US + 1, metadata)], NOW_US)])
    assert (told.accepted, told.duplicates) == (1, 0)
    sql = "SELECT id, timestamp, event_message, project, metadata, timestamp_inferred FROM `edge.logs`"
    kinds = (None, None, None, None, Kind.VARIANT, None)
    rendered = b'[{"a":[1,null,{"e":[{}]}],"b":[{"c":"x"}],"d":null}]'
    assert answered(prepared, sql, kinds) == [("1", NOW_US + 1, "message 1", "default", rendered, False)]


def test_its_files_are_the_servers_own_to_back_up(prepared: ClickHouse) -> None:
    with pytest.raises(NothingToBackUp, match="its own backups"), prepared.snapshot():
        pass


def test_paths_of_the_metadata_are_columns_and_missing_ones_null(prepared: ClickHouse) -> None:
    prepared.append([Batch("edge.logs", [event("1", metadata='{"r":{"status":404}}'), event("2")], NOW_US)])
    sql = "SELECT id, accurateCastOrNull(metadata_paths.r.status, 'Int64') FROM `edge.logs` ORDER BY id"
    assert answered(prepared, sql) == [("1", 404), ("2", None)]


@pytest.mark.parametrize("metadata", ["[1,2]", '"text"', "17", '{"a":1,"a.b":2}', '{"a":' * 50 + "1" + "}" * 50])
def test_no_metadata_makes_an_event_impossible_to_store(prepared: ClickHouse, metadata: str) -> None:
    prepared.append([Batch("edge.logs", [event("1", metadata=metadata)], NOW_US)])
    assert answered(prepared, "SELECT metadata FROM `edge.logs`") == [(metadata,)]


def test_an_id_is_stored_once_in_a_batch_across_batches_and_across_engines(prepared: ClickHouse, address: str) -> None:
    (first,) = prepared.append([Batch("edge.logs", [event("1"), event("2"), event("1")], NOW_US)])
    other = ClickHouse(address, Options())
    other.prepare([EDGE])
    (second,) = other.append([Batch("edge.logs", [event("2"), event("3")], NOW_US)])
    other.close()
    assert (first.duplicates, second.duplicates, second.accepted) == (1, 1, 1)
    assert answered(prepared, "SELECT id FROM `edge.logs` ORDER BY id") == [("1",), ("2",), ("3",)]


def test_the_same_id_in_two_streams_is_two_events(prepared: ClickHouse) -> None:
    told = prepared.append([Batch("edge.logs", [event("1")], NOW_US), Batch("auth", [event("1")], NOW_US)])
    assert [one.accepted for one in told] == [1, 1]


def test_an_id_is_taken_again_once_it_has_left_the_window(prepared: ClickHouse) -> None:
    prepared.append([Batch("edge.logs", [event("old")], NOW_US - 3_600_000_000)])
    (told,) = prepared.append([Batch("edge.logs", [event("old")], NOW_US)])
    assert told.duplicates == 1, "among the last 100,000 events an id is known whatever its age"


def test_an_unknown_stream_is_a_fault(prepared: ClickHouse) -> None:
    with pytest.raises(UnknownStream):
        prepared.append([Batch("nowhere", [event("1")], NOW_US)])


def test_a_shape_outlives_its_process_and_reaches_the_others(prepared: ClickHouse, address: str) -> None:
    learnt: dict[Path, frozenset[ValueKind]] = {("metadata", "a"): frozenset({ValueKind.TEXT, ValueKind.NUMBER})}
    prepared.append([Batch("edge.logs", [event("1")], NOW_US, learnt)])
    other = ClickHouse(address, Options())
    other.prepare([EDGE])
    assert other.shapes()["edge.logs"].kinds == learnt
    assert other.shapes()["edge.logs"].version == prepared.shapes()["edge.logs"].version == 2
    other.close()


def test_facts_count_events_and_tell_the_newest_and_the_oldest(prepared: ClickHouse) -> None:
    prepared.append([Batch("edge.logs", [event("1", NOW_US), event("2", NOW_US - 5)], NOW_US)])
    facts = prepared.facts()
    assert (facts["edge.logs"].events, facts["edge.logs"].newest_us, facts["edge.logs"].oldest_us) == (
        2,
        NOW_US,
        NOW_US - 5,
    )
    assert (facts["auth"].events, facts["auth"].newest_us) == (0, None)


@pytest.fixture
def keeping(address: str) -> Iterator[ClickHouse]:
    """One whose server drops nothing by its own clock: it may be there first, and then nothing is left to sweep."""
    with closing(ClickHouse(address, Options(with_ttl=False))) as engine:
        engine.prepare([EDGE, AUTH])
        yield engine


def test_events_past_their_retention_are_swept_and_counted(keeping: ClickHouse) -> None:
    keeping.append([Batch("auth", [event("old", NOW_US - 3_600_000_001), event("new")], NOW_US)])
    keeping.append([Batch("edge.logs", [event("old", NOW_US - 3_600_000_001)], NOW_US)])
    assert keeping.sweep(NOW_US) == 1
    assert keeping.sweep(NOW_US) == 0
    assert answered(keeping, "SELECT id FROM auth") == [("new",)]


def test_a_retention_that_changes_is_that_of_the_table_at_the_next_preparation(prepared: ClickHouse) -> None:
    longer = Stream("auth", AUTH.id, retention_seconds=7200)
    prepared.prepare([EDGE, longer])
    prepared.append([Batch("auth", [event("1", NOW_US - 3_600_000_001)], NOW_US)])
    assert prepared.sweep(NOW_US) == 0


def test_rows_are_cut_at_their_limit_and_it_is_told(engine: ClickHouse) -> None:
    rows = engine.answer(question("SELECT number FROM numbers(10)"), AnswerLimits(max_rows=3, seconds=10), Pull())
    assert [row for batch in rows.batches for row in batch] == [(0,), (1,), (2,)]
    assert rows.truncated
    rows = engine.answer(question("SELECT number FROM numbers(3)"), AnswerLimits(max_rows=3, seconds=10), Pull())
    assert len([row for batch in rows.batches for row in batch]) == 3
    assert not rows.truncated


def test_values_are_bound(engine: ClickHouse) -> None:
    text = "it's \\ \n {x} `"
    sql = "SELECT {a:String}, {b:Nullable(Int64)}, {c:Nullable(String)}"
    assert answered(engine, sql, a=text, b=None, c="null") == [(text, None, "null")]


def test_cells_are_in_answer_form(engine: ClickHouse) -> None:
    sql = """SELECT toDateTime64('2024-01-02 03:04:05.000006', 6, 'UTC') a, toDateTime64('2024-01-02 03:04:05', 6) b,
        toDate32('1960-02-03') c, 1 = 1 d, 'x' e, '{"k":{"l":1}}' f, '{"k":{"l":1}}' g, [toNullable(1), NULL] h,
        tuple('x', [tuple(1)]) i, toDecimal128(1.5, 9) j, 0 / 0 k, 18446744073709551615 l"""
    kinds = (*(None,) * 3, Kind.BOOL, Kind.BYTES, Kind.JSON, Kind.VARIANT, *(None,) * 5)
    assert answered(engine, sql, kinds) == [
        (
            1704164645000006,
            "2024-01-02T03:04:05",
            "1960-02-03",
            True,
            "eA==",
            b'{"k":{"l":1}}',
            b'[{"k":[{"l":1}]}]',
            b"[1,null]",
            b'{"_field_1":"x","_field_2":[{"_field_1":1}]}',
            b"1.5",
            "NaN",
            18446744073709551615,
        )
    ]


def test_a_query_stops_when_its_time_is_over(engine: ClickHouse) -> None:
    endless = question("SELECT count() FROM system.numbers WHERE sipHash64(number) = 1")
    with pytest.raises(OutOfTime):
        list(engine.answer(endless, AnswerLimits(max_rows=10, seconds=0.3), Pull()).batches)


def test_a_query_stops_when_it_is_pulled(engine: ClickHouse) -> None:
    pull = Pull()
    timer = threading.Timer(0.3, lambda: pull.stop())  # noqa: PLW0108 - set only when the query begins
    timer.start()
    endless = question("SELECT count() FROM system.numbers WHERE sipHash64(number) = 1")
    with pytest.raises(Cancelled):
        list(engine.answer(endless, AnswerLimits(max_rows=10, seconds=20), pull).batches)
    timer.join()


def test_a_query_that_is_pulled_before_it_begins_stops_too(engine: ClickHouse) -> None:
    endless = question("SELECT count() FROM system.numbers WHERE sipHash64(number) = 1")
    with pytest.raises(Cancelled):
        list(engine.answer(endless, AnswerLimits(max_rows=10, seconds=20), CancelledAtOnce()).batches)


def test_a_query_has_no_more_memory_than_is_set(address: str) -> None:
    small = ClickHouse(address, Options(memory_bytes=20_000_000))
    greedy = question("SELECT length(groupArray(number)) FROM numbers(50000000)")
    with pytest.raises(OutOfMemory):
        list(small.answer(greedy, LIMITS, Pull()).batches)
    small.close()


def test_a_query_writes_nothing(prepared: ClickHouse) -> None:
    with pytest.raises(EngineFailed) as raised:
        answered(prepared, "INSERT INTO `edge.logs` (id) SELECT 'x'")
    assert "readonly" in str(raised.value.__cause__)
    assert answered(prepared, "SELECT count() FROM `edge.logs`") == [(0,)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT intDiv(1, number) FROM numbers(3)",
        "SELECT CAST('x', 'Int64')",
        "SELECT match('a', '(')",
        "SELECT throwIf(number = 1, 'cordwood: no such thing') FROM numbers(3)",
    ],
)
def test_a_value_that_does_not_fit_is_the_authors(engine: ClickHouse, sql: str) -> None:
    with pytest.raises(QueryValue):
        answered(engine, sql)


def test_what_the_compiler_raises_is_told_in_its_own_words(engine: ClickHouse) -> None:
    with pytest.raises(QueryValue) as problem:
        answered(engine, "SELECT throwIf(number = 1, 'cordwood: no such thing') FROM numbers(3)")
    assert problem.value.message == "no such thing"


def test_an_answer_after_a_failure_is_its_own(engine: ClickHouse) -> None:
    late = question("SELECT throwIf(number = 99999) FROM numbers(100000) SETTINGS max_block_size = 1000")
    with pytest.raises(QueryValue):
        list(engine.answer(late, AnswerLimits(max_rows=10**6, seconds=10), Pull()).batches)
    assert answered(engine, "SELECT 7") == [(7,)]


def test_an_answer_that_is_not_read_to_its_end_stops_and_harms_nobody(engine: ClickHouse) -> None:
    rows = engine.answer(question("SELECT number FROM system.numbers"), AnswerLimits(10**9, 10), Pull())
    batches = iter(rows.batches)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert answered(engine, "SELECT 7") == [(7,)]


def test_answers_run_side_by_side(engine: ClickHouse) -> None:
    seen: list[list[tuple[object, ...]]] = []
    threads = [
        threading.Thread(target=lambda: seen.append(answered(engine, "SELECT sum(number) FROM numbers(1000)")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [[(499500,)]] * 4


def test_a_pattern_is_tried_by_the_engine(engine: ClickHouse) -> None:
    assert engine.is_regex("a|b[0-9]+") is None
    assert engine.is_regex("(") == "missing ): ("
    assert engine.is_regex("(?=x)") is not None
