"""Bodies whose events go to several streams: the events are stored together, and each item has an outcome."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, DuckDBOptions
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import BodyTooLarge
from cordwood.ingest.accept import BodyFormat, BodyPartForStream, Intake, IntakeLimits
from cordwood.ingest.formats.datadog import read_logs
from cordwood.ingest.formats.splunk import read_events, read_raw_lines
from cordwood.ingest.parsed_body import Body, ItemOutcome, ItemState, LabelledBody, PostedEvent
from cordwood.ingest.quarantine import QuarantinedItem, decode_quarantined_item
from cordwood.model.definitions import Stream, Transform, TransformAction

NOW_US = 1_700_000_000_000_000
PLAIN_STREAM = Stream("plain", UUID(int=1))
DROPPING_STREAM = Stream(
    "dropping", UUID(int=2), transforms=(Transform(TransformAction.DROP_EVENT, lql_filter="m.drop:true"),)
)


@pytest.fixture(scope="module")
def intake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Intake]:
    folder: Path = tmp_path_factory.mktemp("labelled")
    engine = DuckDBEngine(folder, DuckDBTarget(), DuckDBOptions(threads=1), clock_us=lambda: NOW_US)
    engine.create_stream_tables([PLAIN_STREAM, DROPPING_STREAM])
    opened = Intake(engine, lambda: NOW_US, IntakeLimits(max_event_bytes=1000))
    yield opened
    opened.close()
    engine.close()


def posted_item(event_id: str, **metadata: object) -> PostedEvent:
    return PostedEvent(id=event_id, event_message="m", metadata=msgspec.Raw(msgspec.json.encode(metadata)))


def test_parts_are_stored_together_and_every_item_has_its_outcome(intake: Intake) -> None:
    def read(body: Body) -> LabelledBody:
        labelled = LabelledBody(max_item_bytes=body.max_item_bytes)
        labelled.part_for_labels("a").add_event(posted_item("x"), 0)
        labelled.part_for_labels("b").add_event(posted_item("y"), 1)
        labelled.part_for_labels("a").add_event(posted_item("x"), 2)
        labelled.part_for_labels("b").add_event(posted_item("gone", drop=True), 3)
        labelled.part_for_labels("a").refuse_item(4, "broken", "text")
        labelled.part_for_labels("a").add_event(posted_item("large", text="x" * 1000), 5)
        labelled.part_for_labels("b").add_event(posted_item("y"), 6)
        labelled.part_for_labels("a").add_event(posted_item("z"), 7)
        return labelled

    async def stored() -> None:
        body = await intake.decode_body(read, b"x" * 1001)
        parts = [
            BodyPartForStream(PLAIN_STREAM, body.parts_by_labels["a",]),
            BodyPartForStream(DROPPING_STREAM, body.parts_by_labels["b",]),
        ]
        plain, dropping = await intake.store_body_parts(parts, 1001, BodyFormat.EVENTS, is_itemized=True)
        assert not any(part.parsed_body.events for part in parts)
        assert (plain.accepted, plain.duplicates, plain.quarantined) == (2, 1, 2)
        assert (dropping.accepted, dropping.duplicates, dropping.dropped) == (1, 1, 1)
        assert plain.item_outcomes == {
            0: ItemOutcome(ItemState.STORED, "x"),
            2: ItemOutcome(ItemState.DUPLICATE, "x"),
            4: ItemOutcome(ItemState.QUARANTINED, reason="broken"),
            5: ItemOutcome(ItemState.QUARANTINED, "large", "The event is larger than 1000 bytes."),
            7: ItemOutcome(ItemState.STORED, "z"),
        }
        assert dropping.item_outcomes == {
            1: ItemOutcome(ItemState.STORED, "y"),
            3: ItemOutcome(ItemState.DROPPED, "gone"),
            6: ItemOutcome(ItemState.DUPLICATE, "y"),
        }

    asyncio.run(stored())


def test_repeated_parts_are_duplicates_and_items_are_listed_only_on_request(intake: Intake) -> None:
    async def stored() -> None:
        body = LabelledBody()
        for number in range(3):
            body.part_for_labels("a").add_event(posted_item(f"again-{number}"), number)
        (first,) = await intake.store_body_parts(
            [BodyPartForStream(PLAIN_STREAM, body.part_for_labels("a"))], 100, BodyFormat.EVENTS
        )
        assert (first.accepted, first.item_outcomes) == (3, {})
        body = LabelledBody()
        for number in range(1, 4):
            body.part_for_labels("a").add_event(posted_item(f"again-{number}"), number)
        (second_outcome,) = await intake.store_body_parts(
            [BodyPartForStream(PLAIN_STREAM, body.part_for_labels("a"))], 100, BodyFormat.EVENTS, is_itemized=True
        )
        assert [outcome.state for outcome in second_outcome.item_outcomes.values()] == [
            "duplicate",
            "duplicate",
            "stored",
        ]

    asyncio.run(stored())


@pytest.mark.parametrize("form", [BodyFormat.DATADOG, BodyFormat.ELASTIC, BodyFormat.SPLUNK])
def test_a_quarantined_item_of_a_labelled_form_is_decoded_again_by_itself(form: BodyFormat) -> None:
    item = QuarantinedItem("q1", NOW_US, "plain", form, '{"message":"again","service":"s","k":1,"event":"again"}')
    (event,) = decode_quarantined_item(item).events
    assert (event.id, event.event_message) == ("q1", "again")


def test_the_copies_of_query_parameters_have_a_limit() -> None:
    shared = {"ddtags": "t" * 1000, "source": "s" * 1000}
    lines = Body(b"x\n" * 100, "text/plain", max_metadata_bytes=50_000)
    objects = Body(b'{"event":"x","message":"m"}' * 100, max_metadata_bytes=50_000)
    array = Body(b"[" + b'{"message":"m"},' * 99 + b"{}]", max_metadata_bytes=50_000)
    for read, body in ((read_logs, lines), (read_logs, array), (read_raw_lines, lines), (read_events, objects)):
        with pytest.raises(BodyTooLarge):
            read(shared, body)
