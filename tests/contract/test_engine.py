"""The contract of the engine interface, tested with every engine."""

import json
import threading
from collections.abc import Callable
from contextlib import suppress

import msgspec
import pytest

from cordwood.engines.engine import (
    STORED_EVENT_COLUMNS,
    AnswerLimits,
    BatchAppendResult,
    CancelToken,
    Engine,
    QueryProgress,
    ReadProgress,
)
from cordwood.errors import Fault, IsolationCheckFailed, QueryCancelled, QueryOutOfTime
from cordwood.model.datatype import Kind
from cordwood.model.event import Event, ReceivedEventBatch, ValueKind, ValueKindsByPath
from cordwood.sql.plan import plan_without_placeholders
from cordwood.sql.stages import BoundStatement, Statement
from tests.contract.engine_asking import LIMITS, NEVER_CANCELLED, NOW_US, ask, batch, ids, rows, stream
from tests.waiting import until

SLOW_QUERY = "select count(*) as n from unnest(generate_array(1, 100000)) as a cross join unnest(generate_array(1, 100000)) as b where mod(a * b, 7) = 3"
# A slow query that compares each of 20,000 events with 3,000 others.
SLOW_JOIN = (
    "select count(*) as n from `s` as a cross join (select event_message from `s` limit 3000) as b"
    " where strpos(concat(a.event_message, b.event_message), 'in no message') > 0"
)


def event(event_id: str, metadata: object = None, **fields: object) -> Event:
    text = None if metadata is None else json.dumps(metadata)
    return Event(event_id, NOW_US, metadata=text, **fields)  # type: ignore[arg-type]


def test_appended_events_are_in_the_next_answer(engine: Engine) -> None:
    for number in range(5):
        assert engine.append([batch(event(f"e{number}"))]) == [BatchAppendResult(1, 0)]
        assert ids(engine) == [f"e{index}" for index in range(number + 1)]


def test_every_field_is_read_as_it_was_appended(engine: Engine) -> None:
    engine.append(
        [
            batch(
                Event(
                    "a",
                    NOW_US - 1,
                    "a message",
                    "proj",
                    '{"x":[1,{"y":"z"}]}',
                    '{"app":"web"}',
                    timestamp_inferred=True,
                )
            )
        ]
    )
    (row,) = rows(
        engine, "select id, timestamp, event_message, project, metadata, app, ingested_at, timestamp_inferred from `s`"
    )
    decoded_cells = [bytes(cell).decode() if isinstance(cell, msgspec.Raw) else cell for cell in row]
    assert decoded_cells == ["a", NOW_US - 1, "a message", "proj", '[{"x":[1,{"y":"z"}]}]', '"web"', NOW_US, True]


def test_an_event_without_optional_fields_is_stored(engine: Engine) -> None:
    engine.append([batch(Event("a", NOW_US))])
    assert rows(engine, "select event_message, project, metadata from `s`") == [(None, None, None)]


def test_a_query_of_one_stream_returns_no_events_of_another(engine: Engine) -> None:
    engine.append([batch(event("a")), batch(event("a"), to="other.stream-2")])
    assert ids(engine) == ids(engine, "other.stream-2") == ["a"]


def test_checking_streams_creates_nothing(engine: Engine) -> None:
    engine.check_streams([stream("s"), stream("checked.only")])
    assert "checked.only" not in engine.stream_stats()
    engine.create_stream_tables([stream("checked.only")])
    assert "checked.only" in engine.stream_stats()


def test_the_first_event_with_an_id_is_kept(engine: Engine) -> None:
    engine.append([batch(event("a", event_message="first"))])
    assert engine.append([batch(event("a", event_message="second"), event("b"))]) == [BatchAppendResult(1, 1, (0,))]
    assert rows(engine, "select event_message from `s` where id = 'a'") == [("first",)]


def test_a_duplicate_id_in_one_append_is_stored_once(engine: Engine) -> None:
    assert engine.append([batch(event("a"), event("a"), event("b")), batch(event("b"), event("c"))]) == [
        BatchAppendResult(2, 1, (1,)),
        BatchAppendResult(1, 1, (0,)),
    ]
    assert ids(engine) == ["a", "b", "c"]


def test_an_event_is_a_duplicate_only_of_events_of_its_own_project(engine: Engine) -> None:
    assert engine.append([batch(event("a", project="p"))]) == [BatchAppendResult(1, 0)]
    mixed = [event("a", project=project) for project in ("q", None, "", "p", "q", None)]
    assert engine.append([batch(*mixed), batch(event("a", project="q"), event("a", project="r"))]) == [
        BatchAppendResult(3, 3, (3, 4, 5)),
        BatchAppendResult(1, 1, (0,)),
    ]
    # These two inserts differ only in the project. An engine must not take the second for a repetition of the first.
    assert engine.append([batch(event("b", project="p"))]) == engine.append([batch(event("b", project="q"))])
    found = rows(engine, "select coalesce(project, 'none'), id from `s` order by id, 1")
    assert found == [("", "a"), ("none", "a"), ("p", "a"), ("q", "a"), ("r", "a"), ("p", "b"), ("q", "b")]


def test_an_imported_event_is_a_duplicate_only_of_events_of_its_own_project(engine: Engine) -> None:
    imported = event("a", project="p", received_us=NOW_US - 10**15)
    assert engine.append([batch(imported)]) == [BatchAppendResult(1, 0)]
    other = event("a", project="q", received_us=NOW_US - 10**15)
    assert engine.append([batch(imported, other)]) == [BatchAppendResult(1, 1, (0,))]


def test_an_id_with_a_separator_is_not_the_ids_of_two_events(engine: Engine) -> None:
    assert engine.append([batch(event("x\0y", project="p"))]) == [BatchAppendResult(1, 0)]
    assert engine.append([batch(event("x", project="p"), event("y", project="p"))]) == [BatchAppendResult(2, 0)]
    assert ids(engine) == ["x", "x\0y", "y"]


def test_duplicates_among_100_000_events_are_dropped(engine: Engine) -> None:
    for start in range(0, 100_000, 20_000):
        engine.append([batch(*[event(f"e{number}") for number in range(start, start + 20_000)])])
    assert engine.append([batch(event("e0"), event("e99999"), event("new"))]) == [BatchAppendResult(1, 2, (0, 1))]
    assert rows(engine, "select count(*), count(distinct id) from `s`") == [(100_001, 100_001)]


@pytest.mark.parametrize(
    "metadata",
    [
        '{"a":"x\\u0000y","b\\u0000":1}',
        '{"k":1,"k":2}',
        '{"n":123456789012345678901234567890,"f":1e400,"m":-0.0,"u":18446744073709551615}',
        '{"":{"":[[],{},null]}}',
        '{"A":1,"a":2}',
        '"text"',
        "7",
        "[]",
        "true",
        '{"a":' * 400 + "1" + "}" * 400,
        "{broken",
    ],
)
def test_unusual_metadata_does_not_fail_its_batch(engine: Engine, metadata: str) -> None:
    assert engine.append([batch(event("a"), Event("odd", NOW_US, metadata=metadata), event("b"))]) == [
        BatchAppendResult(3, 0)
    ]
    assert ids(engine) == ["a", "b", "odd"]
    for row in rows(engine, "select metadata from `s` where id = 'odd'"):
        assert isinstance(row[0], msgspec.Raw)
        json.loads(bytes(row[0]))


def test_answers_are_truncated_at_their_row_limit(engine: Engine) -> None:
    engine.append([batch(*[event(f"e{number}") for number in range(2500)])])
    for limit, truncated in ((2499, True), (2500, False), (2501, False), (1000, True), (1, True)):
        answer = ask(engine, "select id from `s`", AnswerLimits(limit, 20.0))
        assert sum(map(len, answer.batches)) == min(limit, 2500)
        assert answer.is_truncated is truncated


def test_an_answer_without_rows_has_its_columns(engine: Engine) -> None:
    answer = ask(engine, "select id, timestamp from `s`")
    assert [(column.name, column.datatype.kind) for column in answer.columns] == [
        ("id", Kind.STRING),
        ("timestamp", Kind.TIMESTAMP),
    ]
    assert [row for part in answer.batches for row in part] == []


@pytest.mark.parametrize(
    ("expression", "cell"),
    [
        ("timestamp_micros(1700000000123456)", 1_700_000_000_123_456),
        ("datetime '2023-01-02 03:04:05'", "2023-01-02T03:04:05"),
        ("datetime '2023-01-02 03:04:05.5'", "2023-01-02T03:04:05.500000"),
        ("date '2023-01-02'", "2023-01-02"),
        ("time '03:04:05'", "03:04:05"),
        ("b'abc'", "YWJj"),
        ("9007199254740993", 9_007_199_254_740_993),
        ("cast('nan' as float64)", "NaN"),
        ("cast('-inf' as float64)", "-Infinity"),
        ("1.5", 1.5),
        ("true", True),
        ("cast(null as string)", None),
        ("[1, 2]", "[1,2]"),
        ("[struct(1 as a, struct('x' as c) as b)]", '[{"a":1,"b":{"c":"x"}}]'),
        ("struct(1 as a)", '{"a":1}'),
        ("[timestamp_micros(1)]", "[1]"),
        ("cast('1.50' as numeric)", "1.5"),
    ],
)
def test_cells_are_converted_to_json_values(engine: Engine, expression: str, cell: object) -> None:
    ((result_rows,),) = rows(engine, f"select {expression} as x from unnest([1])")
    assert (bytes(result_rows).decode() if isinstance(result_rows, msgspec.Raw) else result_rows) == cell


def test_a_query_is_stopped_at_its_time_limit(engine: Engine) -> None:
    with pytest.raises(QueryOutOfTime, match=r"0\.2 s"):
        rows(engine, SLOW_QUERY, AnswerLimits(10, 0.2))
    assert ids(engine) == []


def test_a_query_is_stopped_when_it_is_cancelled(engine: Engine) -> None:
    class CancelledSoon:
        def on_cancel(self, stop: Callable[[], None]) -> None:
            threading.Timer(0.2, stop).start()

        def set_progress_reader(self, read: ReadProgress) -> None: ...

    with pytest.raises(QueryCancelled):
        rows(engine, SLOW_QUERY, cancel=CancelledSoon())


def test_an_invalid_value_is_a_query_fault_without_the_engine_s_message(engine: Engine) -> None:
    with pytest.raises(Fault) as fault:
        rows(engine, "select cast('x' as int64) as n from unnest([1])")
    assert fault.value.code == "query.value"
    assert "Conversion Error" not in fault.value.message


def test_shapes_and_facts_include_the_last_append(engine: Engine) -> None:
    learnt: ValueKindsByPath = {("metadata", "a"): frozenset({ValueKind.NUMBER})}
    before = engine.shapes_by_stream()["s"].version
    engine.append([ReceivedEventBatch("s", [event("a", {"a": 1})], NOW_US, learnt)])
    assert engine.shapes_by_stream()["s"].value_kinds_by_path == learnt
    assert engine.shapes_by_stream()["s"].version > before
    facts = engine.stream_stats()["s"]
    assert (facts.events, facts.newest_us, facts.oldest_us) == (1, NOW_US, NOW_US)
    assert engine.stored_bytes_by_stream()["s"] > 0


@pytest.mark.parametrize("pattern", ["a.*b", "", "(?i)x", r"\d+$", "[[:alpha:]]"])
def test_valid_regular_expressions_are_accepted(engine: Engine, pattern: str) -> None:
    assert engine.regex_error(pattern) is None


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "(?<!x)y", r"\1", "[z-a]"])
def test_an_invalid_regular_expression_is_refused_with_a_reason(engine: Engine, pattern: str) -> None:
    assert engine.regex_error(pattern)


def test_events_past_their_retention_are_deleted(engine: Engine) -> None:
    engine.create_stream_tables([stream("s", retention_seconds=60.0)])
    old_events = [Event(f"old{number}", NOW_US - 61_000_000) for number in range(3)]
    engine.append([batch(*old_events, event("young"))])
    assert engine.delete_expired_events(NOW_US) == 3
    assert ids(engine) == ["young"]
    assert engine.stream_stats()["s"].events == 1


def test_an_event_at_the_start_of_1970_is_the_oldest_and_expires(engine: Engine) -> None:
    engine.create_stream_tables([stream("s", retention_seconds=60.0)])
    engine.append([batch(Event("epoch", 0), event("young"))])
    assert engine.stream_stats()["s"].oldest_us == 0
    assert engine.delete_expired_events(NOW_US) == 1
    assert ids(engine) == ["young"]


def test_concurrent_reads_and_appends_neither_duplicate_nor_miss_events(engine: Engine) -> None:
    done = threading.Event()
    appended = [0]

    def append() -> None:
        for start in range(0, 60_000, 3_000):
            engine.append([batch(*[event(f"e{number}", {"n": number}) for number in range(start, start + 3_000)])])
            appended[0] = start + 3_000
        done.set()

    writer = threading.Thread(target=append)
    writer.start()
    while not done.is_set():
        before = appended[0]
        ((count, distinct),) = rows(engine, "select count(*), count(distinct id) from `s`")
        assert count == distinct
        assert isinstance(count, int)
        assert count >= before
    writer.join()
    assert rows(engine, "select count(*), count(distinct id) from `s`") == [(60_000, 60_000)]


def test_a_statement_that_reads_an_undeclared_stream_is_refused(engine: Engine) -> None:
    sql, values = engine.stored_events_sql("other.stream-2"), {"since": 0, "until": NOW_US, "project": None}
    own = Statement(
        plan_without_placeholders(sql),
        (),
        (),
        ("other.stream-2",),
        column_names=tuple(column.name for column in STORED_EVENT_COLUMNS),
    )
    assert [
        row for part in engine.answer(BoundStatement(own, values), LIMITS, NEVER_CANCELLED).batches for row in part
    ] == []
    with pytest.raises(IsolationCheckFailed) as raised:
        engine.answer(BoundStatement(msgspec.structs.replace(own, streams=("s",)), values), LIMITS, NEVER_CANCELLED)
    assert "other.stream-2" not in raised.value.one_line_text()


def test_a_running_query_has_progress_until_it_ends(engine: Engine) -> None:
    for row_limit in range(0, 20_000, 5_000):
        events = [
            event(f"e{number}", event_message=f"{number:06}" * 10) for number in range(row_limit, row_limit + 5_000)
        ]
        engine.append([batch(*events)])
    token = CancelToken()
    progress_reports: list[QueryProgress] = []

    def run() -> None:
        with suppress(QueryCancelled):
            rows(engine, SLOW_JOIN, AnswerLimits(10, 300.0), token)

    def has_growing_progress() -> bool:
        progress = token.query_progress()
        if progress is not None:
            progress_reports.append(progress)
        # Progress grows in steps of whole blocks of the engine, and these events fill only a few blocks.
        return not thread.is_alive() or (
            bool(progress_reports)
            and (
                progress_reports[-1].fraction_done is None
                or progress_reports[-1].fraction_done > (progress_reports[0].fraction_done or 0)
            )
        )

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    until(has_growing_progress, 100)
    token.cancel()
    thread.join()
    assert token.query_progress() is None
    assert progress_reports
    if engine.compile_target.name == "clickhouse":
        assert progress_reports[-1] == QueryProgress(rows_read=25_000, rows_total=25_000)
    else:
        read_fractions = [progress.fraction_done or 0 for progress in progress_reports]
        assert read_fractions == sorted(read_fractions)
        assert 0 < read_fractions[0] <= read_fractions[-1] <= 1
