"""The steps from a request body to stored events: decode, build events, transform, infer the shape, store."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import msgspec

from cordwood.engines.engine import BatchAppendResult, Engine
from cordwood.errors import BadBody, ItemNotReplayable
from cordwood.ingest.build_events import build_events, read_exported_events
from cordwood.ingest.derived_fields import NO_DERIVED_FIELDS, DerivedFields, derived_fields_of_stream
from cordwood.ingest.event_validator import (
    EventValidator,
    count_events_past_retention,
    needs_validation,
    refusal_reasons_by_index,
)
from cordwood.ingest.event_values import is_too_deep
from cordwood.ingest.formats import BodyFormat, read_body
from cordwood.ingest.group_commit import GroupCommitter, OnEventsStored
from cordwood.ingest.limits import BodyMemoryBudget, LargeEventLimiter, StreamRateLimiter
from cordwood.ingest.parsed_body import (
    MAX_BODY_ITEMS,
    MAX_LABELLED_BODY_ITEMS,
    Body,
    DecodedItems,
    ItemOutcome,
    ParsedBody,
)
from cordwood.ingest.quarantine import (
    QUARANTINE_STREAM,
    ItemTruncator,
    QuarantinedItem,
    decode_quarantined_item,
    make_quarantine_batch,
    make_replay_marker_batch,
)
from cordwood.ingest.shape_inference import ShapeInferrer
from cordwood.ingest.transforms import StreamTransforms
from cordwood.model.definitions import Stream
from cordwood.model.event import Event, ReceivedEventBatch

__all__ = [
    "BodyDescription",
    "BodyFormat",
    "BodyPartForStream",
    "IngestOutcome",
    "Intake",
    "IntakeLimits",
    "QuarantinedItem",
]

# A body up to this size is decoded on the event loop. A larger body is decoded in a thread, because decoding it on the
# event loop would delay other requests.
_MAX_EVENT_LOOP_DECODED_BYTES = 32 * 1024
_MAX_REPORTED_QUARANTINE_REASONS = 10
# Decoding holds Python's global interpreter lock (GIL). More threads would not decode faster, but would hold more
# bodies in memory.
_DECODER_THREADS = 2


class IngestOutcome(msgspec.Struct, frozen=True):
    """The outcome of storing a request body, or those of its events that go to one stream.

    `quarantine_reasons` has the position in the body and the reason of each of the first ten quarantined items.
    `late_events` counts events that are older than a time bound or the retention of the stream, and `future_events`
    counts events that are too far in the future. Both count such events whether they were stored or not. `transformed`
    counts events by transform and by what the transform did. `dropped` is the number of events that transforms removed.
    If the caller asked for it, `item_outcomes` has the outcome of each item by its position in the body.
    """

    accepted: int
    duplicates: int
    quarantined: int
    quarantine_reasons: Sequence[tuple[int, str]] = ()
    late_events: int = 0
    future_events: int = 0
    transformed: Mapping[tuple[str, str], int] = msgspec.field(default_factory=dict)
    item_outcomes: Mapping[int, ItemOutcome] = msgspec.field(default_factory=dict)

    @property
    def dropped(self) -> int:
        return sum(count for (_, outcome), count in self.transformed.items() if outcome == "dropped")


class BodyDescription(msgspec.Struct, frozen=True):
    """The form in which a body was sent (such as events, syslog or OTLP), and its headers, with names in lower case."""

    body_format: BodyFormat = BodyFormat.EVENTS
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


DEFAULT_BODY_DESCRIPTION = BodyDescription()


class BodyPartForStream(msgspec.Struct, frozen=True):
    """The events of a request body that go to one stream."""

    stream: Stream
    parsed_body: ParsedBody


class _PreparedPart(msgspec.Struct, frozen=True):
    """What is to be stored for a `BodyPartForStream`, and how many of its items are rejected.

    One batch has the events of the stream, and another the quarantined items.
    """

    stream: Stream
    batches: list[ReceivedEventBatch]
    outcome_of_rejected_items: IngestOutcome
    decoded_items: DecodedItems | None = None

    @property
    def event_count(self) -> int:
        return sum(len(batch.events) for batch in self.batches)


class IntakeLimits(msgspec.Struct, frozen=True):
    """The limits on single events, on streams and on request bodies.

    `max_event_bytes` is the maximum size of an event. `default_events_per_second` is the rate limit of each stream that
    sets no limit of its own. `body_budget_bytes` is the memory for all bodies that are being read or stored.
    `max_body_items` is the maximum number of items in a body. `max_large_event_bytes` is the limit of
    `LargeEventLimiter` on large events that follow each other closely in a stream.
    """

    max_event_bytes: int = 2**20
    default_events_per_second: float | None = None
    body_budget_bytes: int = 64 * 2**20
    max_body_items: int = MAX_BODY_ITEMS
    max_large_event_bytes: int | None = None


DEFAULT_INTAKE_LIMITS = IntakeLimits()


_T = TypeVar("_T")


class Intake:
    """The entry point of ingestion, which decodes bodies and stores their events.

    The caller must reserve memory in `body_budget` before it reads a body. `clock_us` returns the wall-clock time in
    microseconds since 1970.
    """

    def __init__(
        self,
        engine: Engine,
        clock_us: Callable[[], int],
        limits: IntakeLimits = DEFAULT_INTAKE_LIMITS,
        hash_key: bytes = b"",
    ) -> None:
        self._clock_us = clock_us
        self._stream_transforms = StreamTransforms(hash_key, limits.body_budget_bytes // 2)
        self._limits = limits
        self._stream_rate_limiter = StreamRateLimiter(limits.default_events_per_second, time.monotonic)
        self.body_budget = BodyMemoryBudget(limits.body_budget_bytes)
        self._large_event_limiter = LargeEventLimiter(limits.max_large_event_bytes)
        self._item_truncator = ItemTruncator(limits.max_event_bytes, clock_us, self._large_event_limiter)
        engine.create_stream_tables([QUARANTINE_STREAM])
        self._group_committer = GroupCommitter(engine)
        self._decoder_executor = ThreadPoolExecutor(_DECODER_THREADS, thread_name_prefix="read")
        self._shape_inferrer = ShapeInferrer(engine.shapes_by_stream, engine.project_shapes_by_stream)

    @property
    def last_write_error(self) -> str | None:
        """The error of the last write to the engine, or None if that write succeeded."""
        return self._group_committer.last_write_error

    def set_events_stored_callback(self, tell: OnEventsStored | None) -> None:
        """Register the callback `tell`; None removes it.

        Whenever a group of batches is stored, the storing thread calls `tell` with the names of their streams and the
        time at which the newest stored event was received.
        """
        self._group_committer.on_events_stored = tell

    @property
    def max_item_bytes(self) -> int:
        """The maximum size of an item in bytes. A larger item is quarantined without being decoded."""
        return 2 * self._limits.max_event_bytes

    def check_stream_rate(self, stream: Stream) -> None:
        """Raise StreamRateExceeded if the stream has used up its rate limit. Call this before reading the body."""
        self._stream_rate_limiter.check_rate(stream)

    def ingest_body(
        self,
        stream: Stream,
        content_type: str,
        body: bytes,
        pins: Mapping[str, str] | None = None,
        sent: BodyDescription = DEFAULT_BODY_DESCRIPTION,
    ) -> Coroutine[Any, Any, IngestOutcome]:
        """Store the events of a request body; return once they are durable and visible to the next query."""
        return self._decode_and_store(
            stream, self._make_body(body, content_type, sent.headers), pins or {}, sent.body_format
        )

    async def _decode_and_store(
        self, stream: Stream, arrived: Body, pins: Mapping[str, str], form: BodyFormat
    ) -> IngestOutcome:
        reading = self.run_decoder(len(arrived.data), self._decode_and_prepare, stream, form, arrived, pins)
        # The prepared batches are copies of the body's content. Release the body before they are stored, because
        # storing may take long.
        del arrived
        (accepted,) = await self._store_prepared_parts([await reading])
        return accepted

    def decode_body(
        self,
        read: Callable[[Body], _T],
        body: bytes,
        content_type: str = "",
        headers: Mapping[str, str] | None = None,
        pinned_project: str | None = None,
    ) -> Coroutine[Any, Any, _T]:
        """Decode a request body with the function `read`; if the body is large, call `read` in a thread."""
        arrived = self._make_body(body, content_type, headers or {})
        max_items = min(arrived.max_items, MAX_LABELLED_BODY_ITEMS)
        arrived = msgspec.structs.replace(arrived, pinned_project=pinned_project, max_items=max_items)
        return self.run_decoder(len(body), read, arrived)

    async def store_body_parts(
        self,
        parts: Sequence[BodyPartForStream],
        body_bytes: int,
        form: BodyFormat,
        pins: Mapping[str, str] | None = None,
        *,
        is_itemized: bool = False,
    ) -> list[IngestOutcome]:
        """Store the parts of a decoded body together; return their outcomes once all of them are durable.

        If `is_itemized` is true, each outcome also says what happened to each single item. Quarantined items are
        recorded as sent in the form `form`, so that a replay decodes them in the same way. The events are removed from
        `parts`, so that they do not keep the body in memory during storing.
        """
        prepare = partial(self._prepare_parts, parts, body_bytes, form, pins or {}, is_itemized=is_itemized)
        return await self._store_prepared_parts(await self.run_decoder(body_bytes, prepare))

    async def _store_prepared_parts(self, prepared: Sequence[_PreparedPart]) -> list[IngestOutcome]:
        for one in prepared:
            self._stream_rate_limiter.charge_events(one.stream, one.event_count)
        batches = [batch for one in prepared for batch in one.batches]
        appended = iter(await self._group_committer.append(batches) if batches else ())
        return [_outcome_of_part(one, list(islice(appended, len(one.batches)))) for one in prepared]

    async def replay_quarantined_item(
        self, stream: Stream, item: QuarantinedItem, pins: Mapping[str, str] | None = None
    ) -> IngestOutcome:
        """Store a quarantined item as an event, and mark the item as replayed.

        Raise ItemNotReplayable if the item would be quarantined again.
        """
        batches = await self._run_in_decoder_thread(self._prepare_replay, stream, item, pins or {})
        events, _ = await self._group_committer.append(batches)
        late = count_events_past_retention(stream, batches[0].events, self._clock_us())
        return IngestOutcome(events.accepted, events.duplicates, 0, late_events=late)

    async def reimport_exported_events(
        self, stream: Stream, body: bytes, pinned_project: str | None = None
    ) -> IngestOutcome:
        """Store exported events without changes, keeping their times of receipt. Duplicates are counted and skipped."""
        batch = await self._run_in_decoder_thread(self._read_exported_batch, stream, body, pinned_project)
        (appended,) = await self._group_committer.append([batch])
        return IngestOutcome(
            appended.accepted,
            appended.duplicates,
            0,
            late_events=count_events_past_retention(stream, batch.events, self._clock_us()),
        )

    def close(self) -> None:
        """Store the pending events and stop the threads."""
        self._decoder_executor.shutdown()
        self._group_committer.close()

    def _make_body(self, data: bytes, content_type: str, headers: Mapping[str, str]) -> Body:
        limits = self._limits
        metadata_bytes = 2 * max(limits.body_budget_bytes, len(data))
        return Body(data, content_type, headers, limits.max_body_items, 2 * limits.max_event_bytes, metadata_bytes)

    async def run_decoder(self, body_bytes: int, read: Callable[..., _T], *about: object) -> _T:
        """Call `read` with the arguments `about`, in a decoder thread if the body is large, and return the result."""
        if body_bytes <= _MAX_EVENT_LOOP_DECODED_BYTES:
            return read(*about)
        return await self._run_in_decoder_thread(read, *about)

    def _run_in_decoder_thread(self, read: Callable[..., _T], *about: object) -> Awaitable[_T]:
        return asyncio.get_running_loop().run_in_executor(self._decoder_executor, read, *about)

    def _read_exported_batch(self, stream: Stream, body: bytes, pinned_project: str | None) -> ReceivedEventBatch:
        return self._make_batch(
            stream,
            read_exported_events(body, pinned_project, stream.project_at, self._limits.max_body_items),
            self._clock_us(),
        )

    def _decode_and_prepare(
        self, stream: Stream, form: BodyFormat, body: Body, pins: Mapping[str, str]
    ) -> _PreparedPart:
        return self._prepare_part(BodyPartForStream(stream, read_body(form, body)), len(body.data), form, pins)

    def _prepare_parts(
        self,
        parts: Sequence[BodyPartForStream],
        body_bytes: int,
        form: BodyFormat,
        pins: Mapping[str, str],
        *,
        is_itemized: bool,
    ) -> list[_PreparedPart]:
        return [self._prepare_part(part, body_bytes, form, pins, is_itemized=is_itemized) for part in parts]

    def _prepare_part(
        self,
        part: BodyPartForStream,
        body_bytes: int,
        form: BodyFormat,
        pins: Mapping[str, str],
        *,
        is_itemized: bool = False,
    ) -> _PreparedPart:
        received_us = self._clock_us()
        stream, parsed = part.stream, part.parsed_body
        decoded = build_events(parsed, received_us)
        # Drop the posted events, because they refer to the body and would keep it in memory.
        parsed.events, parsed.extras_by_event_number = [], {}
        items = DecodedItems.from_events(decoded, parsed) if is_itemized else None
        events, transformed = self._stream_transforms.apply(stream, decoded, parsed)
        is_changed = bool(stream.transforms)
        if (
            is_changed
            or needs_validation(stream, pins, body_bytes, self._limits.max_event_bytes)
            or any(map(is_too_deep, events))
        ):
            events = EventValidator(stream, pins, received_us, self._limits.max_event_bytes).validate_events(
                events, parsed
            )
        batches = [self._make_batch(stream, events, received_us, derived_fields_of_stream(stream))] if events else []
        if parsed.refused_items:
            parsed.refused_items = [self._item_truncator.truncate_if_needed(item) for item in parsed.refused_items]
            batches.append(
                make_quarantine_batch(stream.name, form, parsed.refused_items, pins.get("project"), received_us)
            )
        late, future = parsed.out_of_time_bounds_counts["late"], parsed.out_of_time_bounds_counts["future"]
        not_stored = IngestOutcome(
            0,
            0,
            len(parsed.refused_items),
            refusal_reasons_by_index(parsed, _MAX_REPORTED_QUARANTINE_REASONS),
            late,
            future,
            transformed,
        )
        return _PreparedPart(stream, batches, not_stored, items and items.with_quarantine_reasons(parsed.refused_items))

    def _prepare_replay(
        self, stream: Stream, item: QuarantinedItem, pins: Mapping[str, str]
    ) -> list[ReceivedEventBatch]:
        try:
            parsed = decode_quarantined_item(item)
        except BadBody as broken:
            raise ItemNotReplayable(f"It would be refused again: {broken.message}") from broken
        if not parsed.events and not parsed.refused_items:
            raise ItemNotReplayable("It has no event.")
        events = build_events(parsed, item.received_us)
        if not item.is_transformed:
            events, _ = self._stream_transforms.apply(stream, events, parsed)
            if not events and not parsed.refused_items:
                raise ItemNotReplayable("A transform of the stream drops it.")
        events = EventValidator(stream, pins, item.received_us, self._limits.max_event_bytes).validate_events(
            events, parsed
        )
        if parsed.refused_items:
            raise ItemNotReplayable(f"It would be quarantined again: {parsed.refused_items[0].reason}")
        now_us = self._clock_us()
        replayed = self._make_batch(stream, events, now_us, derived_fields_of_stream(stream))
        return [replayed, make_replay_marker_batch(item.id, stream.name, item.project, now_us)]

    def _make_batch(
        self, stream: Stream, events: list[Event], received_us: int, derived_fields: DerivedFields = NO_DERIVED_FIELDS
    ) -> ReceivedEventBatch:
        self._large_event_limiter.charge_events(stream.name, events)
        learnt = self._shape_inferrer.infer_shapes(stream, events, derived_fields)
        return ReceivedEventBatch(stream.name, learnt.events, received_us, learnt.stream_kinds, learnt.kinds_by_project)


def _outcome_of_part(prepared: _PreparedPart, appended: Sequence[BatchAppendResult]) -> IngestOutcome:
    """Return the outcome of a part: how its events were stored, and how many of its items were rejected.

    The quarantined items were stored as well, in another stream. The result of storing them does not count.
    """
    appended_own = BatchAppendResult(0, 0)
    events: Sequence[Event] = ()
    for batch, one in zip(prepared.batches, appended, strict=True):
        if batch.stream == prepared.stream.name:
            appended_own, events = one, batch.events
    items = (
        prepared.decoded_items.outcomes_by_position(events, appended_own.repeated_positions)
        if prepared.decoded_items
        else {}
    )
    return msgspec.structs.replace(
        prepared.outcome_of_rejected_items,
        accepted=appended_own.accepted,
        duplicates=appended_own.duplicates,
        item_outcomes=items,
    )
