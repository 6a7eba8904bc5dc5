"""The ClickHouse engine on chDB: appending, deduplication, answers, limits and faults."""

import threading
from collections.abc import Iterator
from contextlib import closing
from zlib import crc32

import pytest

from cordwood.engines.clickhouse import storage
from cordwood.engines.clickhouse.clickhouse_engine import ClickHouseEngine, ClickHouseOptions
from cordwood.engines.engine import AnswerLimits
from cordwood.errors import (
    BadQueryValue,
    EngineFailed,
    NothingToBackUp,
    OutOfMemory,
    QueryCancelled,
    QueryOutOfTime,
    UnknownStream,
)
from cordwood.model.datatype import Kind
from cordwood.model.definitions import Stream
from cordwood.model.event import Event, EventPath, ReceivedEventBatch, ValueKind
from tests.unit.engines.clickhouse.direct_queries import (
    AUTH_STREAM,
    EDGE_STREAM,
    LIMITS,
    NOW_US,
    AlreadyCancelled,
    ManualCancel,
    answer_rows,
    event,
    question,
)

pytestmark = pytest.mark.usefixtures("without_isolation_check")


@pytest.fixture
def prepared_engine(engine: ClickHouseEngine) -> ClickHouseEngine:
    engine.create_stream_tables([EDGE_STREAM, AUTH_STREAM])
    return engine


def test_an_appended_event_is_in_the_next_answer(prepared_engine: ClickHouseEngine) -> None:
    metadata = '{"b":{"c":"x"},"a":[1,null,{"e":{}}],"d":null}'
    (appended,) = prepared_engine.append([ReceivedEventBatch("edge.logs", [event("1", NOW_US + 1, metadata)], NOW_US)])
    assert (appended.accepted, appended.duplicates) == (1, 0)
    sql = "SELECT id, timestamp, event_message, project, metadata, timestamp_inferred FROM `edge.logs`"
    kinds = (None, None, None, None, Kind.VARIANT, None)
    rendered = b'[{"a":[1,null,{"e":[{}]}],"b":[{"c":"x"}],"d":null}]'
    assert answer_rows(prepared_engine, sql, kinds) == [("1", NOW_US + 1, "message 1", "default", rendered, False)]


def test_a_snapshot_is_refused(prepared_engine: ClickHouseEngine) -> None:
    with pytest.raises(NothingToBackUp, match="its own backups"), prepared_engine.open_backup_snapshot():
        pass


def test_paths_of_the_metadata_are_columns_and_missing_ones_null(prepared_engine: ClickHouseEngine) -> None:
    prepared_engine.append(
        [ReceivedEventBatch("edge.logs", [event("1", metadata='{"r":{"status":404}}'), event("2")], NOW_US)]
    )
    sql = "SELECT id, accurateCastOrNull(metadata_paths.r.status, 'Int64') FROM `edge.logs` ORDER BY id"
    assert answer_rows(prepared_engine, sql) == [("1", 404), ("2", None)]


@pytest.mark.parametrize("metadata", ["[1,2]", '"text"', "17", '{"a":1,"a.b":2}', '{"a":' * 50 + "1" + "}" * 50])
def test_no_metadata_makes_an_event_impossible_to_store(prepared_engine: ClickHouseEngine, metadata: str) -> None:
    prepared_engine.append([ReceivedEventBatch("edge.logs", [event("1", metadata=metadata)], NOW_US)])
    assert answer_rows(prepared_engine, "SELECT metadata FROM `edge.logs`") == [(metadata,)]


def test_an_id_is_stored_once_in_a_batch_across_batches_and_across_engines(
    prepared_engine: ClickHouseEngine, address: str
) -> None:
    (first,) = prepared_engine.append([ReceivedEventBatch("edge.logs", [event("1"), event("2"), event("1")], NOW_US)])
    other = ClickHouseEngine(address, ClickHouseOptions())
    other.create_stream_tables([EDGE_STREAM])
    (second,) = other.append([ReceivedEventBatch("edge.logs", [event("2"), event("3")], NOW_US)])
    other.close()
    assert (first.duplicates, second.duplicates, second.accepted) == (1, 1, 1)
    assert answer_rows(prepared_engine, "SELECT id FROM `edge.logs` ORDER BY id") == [("1",), ("2",), ("3",)]


def test_events_of_two_streams_may_have_the_same_id(prepared_engine: ClickHouseEngine) -> None:
    appended = prepared_engine.append(
        [ReceivedEventBatch("edge.logs", [event("1")], NOW_US), ReceivedEventBatch("auth", [event("1")], NOW_US)]
    )
    assert [outcome.accepted for outcome in appended] == [1, 1]


def test_an_old_id_is_still_a_duplicate_among_the_last_events(prepared_engine: ClickHouseEngine) -> None:
    prepared_engine.append([ReceivedEventBatch("edge.logs", [event("old")], NOW_US - 3_600_000_000)])
    (appended,) = prepared_engine.append([ReceivedEventBatch("edge.logs", [event("old")], NOW_US)])
    assert appended.duplicates == 1, "among the last 100,000 events an id is known whatever its age"


def test_batches_that_arrive_together_are_one_part_and_have_outcomes_of_their_own(
    prepared_engine: ClickHouseEngine,
) -> None:
    batches = [
        ReceivedEventBatch("edge.logs", [event("1"), event("2")], NOW_US - 2),
        ReceivedEventBatch("auth", [event("1")], NOW_US - 1),
        ReceivedEventBatch("edge.logs", [event("2"), event("3")], NOW_US),
    ]
    outcomes = [
        (outcome.accepted, outcome.duplicates, outcome.repeated_positions)
        for outcome in prepared_engine.append(batches)
    ]
    assert outcomes == [(2, 0, ()), (1, 0, ()), (1, 1, (0,))]
    sql = "SELECT id, ingested_at, _part FROM `edge.logs` ORDER BY id"
    ids, received, parts = zip(*answer_rows(prepared_engine, sql), strict=True)
    assert ids == ("1", "2", "3")
    assert received == (NOW_US - 2, NOW_US - 2, NOW_US)
    assert len(set(parts)) == 1


def test_batches_that_are_too_large_together_are_stored_apart(
    prepared_engine: ClickHouseEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_MAX_INSERT_CHARACTERS", 3000)
    batches = [
        ReceivedEventBatch("edge.logs", [event(str(number), metadata=f'"{"x" * 1000}"')], NOW_US) for number in range(7)
    ]
    batches.append(ReceivedEventBatch("edge.logs", [event("0")], NOW_US))
    outcomes = [outcome.accepted for outcome in prepared_engine.append(batches)]
    assert outcomes == [1] * 7 + [0], "an id of another insert of the same append is a duplicate"


def test_duplicates_are_found_among_many_ids(
    prepared_engine: ClickHouseEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_MAX_CHECKSUMS_PER_VALUE", 300)
    monkeypatch.setattr(storage, "_MAX_CHECKSUMS_PER_STATEMENT", 700)
    ids = [f"{number:060}" for number in range(2000)]
    prepared_engine.append(
        [ReceivedEventBatch("edge.logs", [event(id_) for id_ in (ids[0], ids[1000], ids[-1])], NOW_US)]
    )
    (appended,) = prepared_engine.append([ReceivedEventBatch("edge.logs", [event(id_) for id_ in ids], NOW_US)])
    assert appended.repeated_positions == (0, 1000, 1999)


@pytest.mark.parametrize("collisions", [0, 1000])
def test_an_id_with_the_checksum_of_another_is_another_id(
    prepared_engine: ClickHouseEngine, monkeypatch: pytest.MonkeyPatch, collisions: int
) -> None:
    """Distinguish two ids with the same checksum.

    If few ids have the same checksum, the engine compares the ids that it has read. If many ids have it, the engine
    looks up the ids themselves.
    """
    monkeypatch.setattr(storage, "_MAX_CHECKSUM_COLLISIONS", collisions)
    first_outcome, other = "plumless", "buckeroo"
    assert crc32(first_outcome.encode()) == crc32(other.encode())
    (first,) = prepared_engine.append([ReceivedEventBatch("edge.logs", [event(first_outcome), event("x")], NOW_US)])
    (second,) = prepared_engine.append([ReceivedEventBatch("edge.logs", [event(other), event("x" * 80_000)], NOW_US)])
    (third,) = prepared_engine.append([ReceivedEventBatch("edge.logs", [event(other)], NOW_US)])
    assert [(outcome.accepted, outcome.duplicates) for outcome in (first, second, third)] == [(2, 0), (2, 0), (0, 1)]


@pytest.mark.parametrize("collisions", [0, -1000])
def test_an_id_of_many_projects_is_found_only_in_its_own(
    prepared_engine: ClickHouseEngine, monkeypatch: pytest.MonkeyPatch, collisions: int
) -> None:
    """Look up one id, which other projects have too, by its checksum and, with `collisions` below 0, by its text."""
    monkeypatch.setattr(storage, "_MAX_CHECKSUM_COLLISIONS", collisions)
    others = [Event("1", NOW_US, project=f"p{number}") for number in range(50)]
    prepared_engine.append([ReceivedEventBatch("edge.logs", others, NOW_US)])
    # The text of each of these keys would be the same if the project's length were not part of the text.
    projects_and_ids = (("p7", "1"), ("p", "71"), (None, "p71"), ("", "p71"), ("p71", ""), ("p50", "1"))
    events = [Event(id_, NOW_US, project=project) for project, id_ in projects_and_ids]
    (first,) = prepared_engine.append([ReceivedEventBatch("edge.logs", events, NOW_US)])
    (second,) = prepared_engine.append([ReceivedEventBatch("edge.logs", events, NOW_US)])
    assert (first.repeated_positions, second.repeated_positions) == ((0,), (0, 1, 2, 3, 4, 5))


def test_an_unknown_stream_is_a_fault(prepared_engine: ClickHouseEngine) -> None:
    with pytest.raises(UnknownStream):
        prepared_engine.append([ReceivedEventBatch("nowhere", [event("1")], NOW_US)])


def test_a_shape_survives_its_process_and_reaches_other_processes(
    prepared_engine: ClickHouseEngine, address: str
) -> None:
    learnt: dict[EventPath, frozenset[ValueKind]] = {("metadata", "a"): frozenset({ValueKind.TEXT, ValueKind.NUMBER})}
    prepared_engine.append([ReceivedEventBatch("edge.logs", [event("1")], NOW_US, learnt)])
    other = ClickHouseEngine(address, ClickHouseOptions())
    other.create_stream_tables([EDGE_STREAM])
    assert other.shapes_by_stream()["edge.logs"].value_kinds_by_path == learnt
    assert other.shapes_by_stream()["edge.logs"].version == prepared_engine.shapes_by_stream()["edge.logs"].version == 2
    other.close()


def test_facts_have_the_count_and_the_newest_and_oldest_times(prepared_engine: ClickHouseEngine) -> None:
    prepared_engine.append([ReceivedEventBatch("edge.logs", [event("1", NOW_US), event("2", NOW_US - 5)], NOW_US)])
    facts = prepared_engine.stream_stats()
    assert (facts["edge.logs"].events, facts["edge.logs"].newest_us, facts["edge.logs"].oldest_us) == (
        2,
        NOW_US,
        NOW_US - 5,
    )
    assert (facts["auth"].events, facts["auth"].newest_us) == (0, None)


@pytest.fixture
def without_ttl(address: str) -> Iterator[ClickHouseEngine]:
    """Yield an engine without TTL, because with TTL, ClickHouse might drop events before the tested sweep."""
    with closing(ClickHouseEngine(address, ClickHouseOptions(has_ttl=False))) as engine:
        engine.create_stream_tables([EDGE_STREAM, AUTH_STREAM])
        yield engine


def test_events_past_their_retention_are_swept_and_counted(without_ttl: ClickHouseEngine) -> None:
    without_ttl.append([ReceivedEventBatch("auth", [event("old", NOW_US - 3_600_000_001), event("new")], NOW_US)])
    without_ttl.append([ReceivedEventBatch("edge.logs", [event("old", NOW_US - 3_600_000_001)], NOW_US)])
    assert without_ttl.delete_expired_events(NOW_US) == 1
    assert without_ttl.delete_expired_events(NOW_US) == 0
    assert answer_rows(without_ttl, "SELECT id FROM auth") == [("new",)]


def test_preparing_applies_a_changed_retention(prepared_engine: ClickHouseEngine) -> None:
    longer = Stream("auth", AUTH_STREAM.id, retention_seconds=7200)
    prepared_engine.create_stream_tables([EDGE_STREAM, longer])
    prepared_engine.append([ReceivedEventBatch("auth", [event("1", NOW_US - 3_600_000_001)], NOW_US)])
    assert prepared_engine.delete_expired_events(NOW_US) == 0


def test_rows_above_the_limit_are_truncated_and_marked(engine: ClickHouseEngine) -> None:
    rows = engine.answer(
        question("SELECT number FROM numbers(10)"), AnswerLimits(max_rows=3, timeout_seconds=10), ManualCancel()
    )
    assert [row for batch in rows.batches for row in batch] == [(0,), (1,), (2,)]
    assert rows.is_truncated
    rows = engine.answer(
        question("SELECT number FROM numbers(3)"), AnswerLimits(max_rows=3, timeout_seconds=10), ManualCancel()
    )
    assert len([row for batch in rows.batches for row in batch]) == 3
    assert not rows.is_truncated


def test_values_are_bound(engine: ClickHouseEngine) -> None:
    text = "it's \\ \n {x} `"
    sql = "SELECT {a:String}, {b:Nullable(Int64)}, {c:Nullable(String)}"
    assert answer_rows(engine, sql, a=text, b=None, c="null") == [(text, None, "null")]


def test_cells_are_in_answer_form(engine: ClickHouseEngine) -> None:
    sql = """SELECT toDateTime64('2024-01-02 03:04:05.000006', 6, 'UTC') a, toDateTime64('2024-01-02 03:04:05', 6) b,
        toDate32('1960-02-03') c, 1 = 1 d, 'x' e, '{"k":{"l":1}}' f, '{"k":{"l":1}}' g, [toNullable(1), NULL] h,
        tuple('x', [tuple(1)]) i, toDecimal128(1.5, 9) j, 0 / 0 k, 18446744073709551615 l"""
    kinds = (*(None,) * 3, Kind.BOOL, Kind.BYTES, Kind.JSON, Kind.VARIANT, *(None,) * 5)
    assert answer_rows(engine, sql, kinds) == [
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


def test_a_query_stops_at_its_time_limit(engine: ClickHouseEngine) -> None:
    endless = question("SELECT count() FROM system.numbers WHERE sipHash64(number) = 1")
    with pytest.raises(QueryOutOfTime):
        list(engine.answer(endless, AnswerLimits(max_rows=10, timeout_seconds=0.3), ManualCancel()).batches)


def test_a_query_stops_when_it_is_cancelled(engine: ClickHouseEngine) -> None:
    cancel = ManualCancel()
    timer = threading.Timer(0.3, lambda: cancel.stop())  # noqa: PLW0108 - set only when the query begins
    timer.start()
    endless = question("SELECT count() FROM system.numbers WHERE sipHash64(number) = 1")
    with pytest.raises(QueryCancelled):
        list(engine.answer(endless, AnswerLimits(max_rows=10, timeout_seconds=20), cancel).batches)
    timer.join()


def test_a_query_that_was_cancelled_before_it_began_stops(engine: ClickHouseEngine) -> None:
    endless = question("SELECT count() FROM system.numbers WHERE sipHash64(number) = 1")
    with pytest.raises(QueryCancelled):
        list(engine.answer(endless, AnswerLimits(max_rows=10, timeout_seconds=20), AlreadyCancelled()).batches)


def test_a_query_above_its_memory_limit_fails(address: str) -> None:
    limits = ClickHouseEngine(address, ClickHouseOptions(max_query_memory_bytes=20_000_000))
    query = question("SELECT length(groupArray(number)) FROM numbers(50000000)")
    with pytest.raises(OutOfMemory):
        list(limits.answer(query, LIMITS, ManualCancel()).batches)
    limits.close()


def test_a_query_cannot_write(prepared_engine: ClickHouseEngine) -> None:
    with pytest.raises(EngineFailed) as raised:
        answer_rows(prepared_engine, "INSERT INTO `edge.logs` (id) SELECT 'x'")
    assert "readonly" in str(raised.value.__cause__)
    assert answer_rows(prepared_engine, "SELECT count() FROM `edge.logs`") == [(0,)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT intDiv(1, number) FROM numbers(3)",
        "SELECT CAST('x', 'Int64')",
        "SELECT match('a', '(')",
        "SELECT throwIf(number = 1, 'cordwood: no such thing') FROM numbers(3)",
    ],
)
def test_an_error_of_a_value_is_a_query_error(engine: ClickHouseEngine, sql: str) -> None:
    with pytest.raises(BadQueryValue):
        answer_rows(engine, sql)


def test_errors_raised_by_compiled_checks_keep_their_message(engine: ClickHouseEngine) -> None:
    with pytest.raises(BadQueryValue) as error_text:
        answer_rows(engine, "SELECT throwIf(number = 1, 'cordwood: no such thing') FROM numbers(3)")
    assert error_text.value.message == "no such thing"


def test_an_answer_after_a_failure_is_complete(engine: ClickHouseEngine) -> None:
    last_answer = question("SELECT throwIf(number = 99999) FROM numbers(100000) SETTINGS max_block_size = 1000")
    with pytest.raises(BadQueryValue):
        list(engine.answer(last_answer, AnswerLimits(max_rows=10**6, timeout_seconds=10), ManualCancel()).batches)
    assert answer_rows(engine, "SELECT 7") == [(7,)]


def test_an_answer_that_is_not_read_to_its_end_does_not_affect_later_queries(engine: ClickHouseEngine) -> None:
    rows = engine.answer(question("SELECT number FROM system.numbers"), AnswerLimits(10**9, 10), ManualCancel())
    batches = iter(rows.batches)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert answer_rows(engine, "SELECT 7") == [(7,)]


def test_queries_run_concurrently(engine: ClickHouseEngine) -> None:
    results: list[list[tuple[object, ...]]] = []
    threads = [
        threading.Thread(target=lambda: results.append(answer_rows(engine, "SELECT sum(number) FROM numbers(1000)")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[(499500,)]] * 4


def test_patterns_are_checked_by_the_engine(engine: ClickHouseEngine) -> None:
    assert engine.regex_error("a|b[0-9]+") is None
    assert engine.regex_error("(") == "missing ): ("
    assert engine.regex_error("(?=x)") is not None
