"""Export: every engine returns events as they were stored, so that they can be imported again."""

from uuid import UUID

from cordwood.engines.engine import STORED_EVENT_COLUMNS, Engine
from cordwood.ingest.build_events import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US
from cordwood.model.datatype import Row
from cordwood.model.definitions import Endpoint
from cordwood.model.event import Event, ReceivedEventBatch
from cordwood.model.key import Caller
from cordwood.serve.jobs import ExportRange, create_export_job
from cordwood.serve.query_request import QueryRequest
from cordwood.web.encode import ANSWER_FORMATS_BY_NAME
from tests.contract.engine_asking import NEVER_CANCELLED, NOW_US, batch

EXPORT_REQUEST = QueryRequest(
    Endpoint("test", UUID(int=1), "", "1"), Caller("k", frozenset()), ANSWER_FORMATS_BY_NAME["parquet"]
)


def export_rows(engine: Engine, time_range: ExportRange) -> list[Row]:
    job = create_export_job(EXPORT_REQUEST, time_range, engine, NOW_US)
    rows = engine.answer(job.bound_statement, job.limits, NEVER_CANCELLED)
    assert rows.columns == STORED_EVENT_COLUMNS
    return sorted((row for part in rows.batches for row in part), key=lambda row: str(row[0]))


def receive_time_step(engine: Engine) -> int:
    """Return the difference between the receive times of consecutive events of a batch, in microseconds."""
    return 0 if engine.newest_receipt_us() is None else 1


def test_every_field_of_an_event_is_exported(engine: Engine) -> None:
    full_event = Event(
        "a", NOW_US - 1, "m", "p", '{"x":[1,{"y":null}],"z":{}}', '{"app":"web"}', timestamp_inferred=True
    )
    engine.append([batch(full_event, Event("b", NOW_US))])
    assert export_rows(engine, ExportRange("s", 0, NOW_US + 1)) == [
        ("a", NOW_US - 1, "m", "p", '{"x":[1,{"y":null}],"z":{}}', '{"app":"web"}', NOW_US, True),
        ("b", NOW_US, None, None, None, None, NOW_US + receive_time_step(engine), False),
    ]


def test_a_range_includes_its_start_excludes_its_end_and_filters_by_project(engine: Engine) -> None:
    engine.append([batch(*(Event(f"e{n}", NOW_US + n, project="p" if n % 2 else None) for n in range(4)))])
    assert [row[0] for row in export_rows(engine, ExportRange("s", NOW_US + 1, NOW_US + 3))] == ["e1", "e2"]
    assert [row[0] for row in export_rows(engine, ExportRange("s", 0, NOW_US + 9, project="p"))] == ["e1", "e3"]


def test_the_range_of_all_times_includes_the_first_and_the_last_event(engine: Engine) -> None:
    times = MIN_TIMESTAMP_US, NOW_US, MAX_TIMESTAMP_US
    engine.append([batch(*(Event(f"e{number}", us) for number, us in enumerate(times)))])
    rows = export_rows(engine, ExportRange("s", MIN_TIMESTAMP_US, MAX_TIMESTAMP_US + 1))
    assert [row[0] for row in rows] == ["e0", "e1", "e2"]


def test_an_imported_event_keeps_its_receive_time(engine: Engine) -> None:
    long_ago = NOW_US - 10**15
    imported = Event("a", NOW_US - 1, received_us=long_ago), Event("b", NOW_US - 1, received_us=long_ago + 5)
    engine.append([batch(*imported, Event("c", NOW_US - 1))])
    times = [(row[0], row[6]) for row in export_rows(engine, ExportRange("s", 0, NOW_US + 1))]
    assert times == [("a", long_ago), ("b", long_ago + 5), ("c", NOW_US + 2 * receive_time_step(engine))]


def test_an_imported_event_keeps_a_receive_time_at_the_start_of_1970(engine: Engine) -> None:
    imported = Event("a", NOW_US - 1, received_us=0)
    engine.append([batch(imported)])
    assert [(row[0], row[6]) for row in export_rows(engine, ExportRange("s", 0, NOW_US + 1))] == [("a", 0)]
    (repeated,) = engine.append([batch(imported)])
    assert (repeated.accepted, repeated.duplicates) == (0, 1)


def test_receive_times_increase_strictly_if_the_engine_guarantees_it(
    engine: Engine,
) -> None:
    if engine.newest_receipt_us() is None:
        return
    for number, received_us in enumerate((NOW_US, NOW_US - 10**9, NOW_US)):
        events = [Event(f"{number} {position}", NOW_US) for position in range(3)]
        engine.append([ReceivedEventBatch(stream, events, received_us) for stream in ("s", "other.stream-2")])
    rows = [
        (row[6], stream, row[0])
        for stream in ("s", "other.stream-2")
        for row in export_rows(engine, ExportRange(stream, 0, NOW_US + 1))
    ]
    times = [time for time, *_ in sorted(rows)]
    assert times == [NOW_US + number for number in range(18)]
    assert [(stream, event) for _, stream, event in sorted(rows)] == [
        (stream, f"{number} {position}")
        for number in range(3)
        for stream in ("s", "other.stream-2")
        for position in range(3)
    ]
    assert engine.newest_receipt_us() == times[-1]


def test_a_repeated_import_of_old_events_is_recognised_as_duplicates(engine: Engine) -> None:
    imported = [Event(f"e{n}", NOW_US - 1, received_us=NOW_US - 10**15 + n) for n in range(4)]
    engine.append([batch(*imported[:3])])
    events = [Event(f"n{n}", NOW_US) for n in range(250_000)]
    for first in range(0, len(events), 50_000):
        engine.append([batch(*events[first : first + 50_000])])
    (appended,) = engine.append([batch(*imported)])
    assert (appended.accepted, appended.duplicates) == (1, 3)
