"""The steps from a request body to stored events: decode, stamp, transform, infer the shape, store, acknowledge."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from cordwood.engines.engine import Appended, Engine
from cordwood.errors import BadBody, NotReplayable
from cordwood.ingest.derive import NOTHING_DERIVED, Filling, filling
from cordwood.ingest.flush import Flusher
from cordwood.ingest.formats import Form, read_body
from cordwood.ingest.holding import HoldingRoom
from cordwood.ingest.large_events import LargeEvents
from cordwood.ingest.nesting import is_too_deep
from cordwood.ingest.pace import Pace
from cordwood.ingest.posted import MOST_ITEMS, Body
from cordwood.ingest.quarantine import QUARANTINE, Shelf, quarantined, replay_mark
from cordwood.ingest.replay import Kept, read_again
from cordwood.ingest.scrutiny import Scrutiny, needs_scrutiny, outlived, reasons
from cordwood.ingest.shape import ShapeReader
from cordwood.ingest.stamp import stamped
from cordwood.ingest.stored import read_stored
from cordwood.ingest.transforms import StreamTransforms
from cordwood.model.event import Batch, Event
from cordwood.model.stream import Stream

__all__ = ["Accepted", "Form", "Intake", "IntakeLimits", "Kept", "Sent"]

# A body up to this size is decoded on the event loop; a larger one in a thread, so that it delays no other request.
_READ_AT_ONCE_BYTES = 32 * 1024
_REASONS_TOLD = 10
# Decoding holds the GIL: more threads would only compete for it, and hold more bodies in memory at once.
_READERS = 2


class Accepted(msgspec.Struct, frozen=True):
    """The outcome of a body. `reasons` are the positions and reasons of the first ten quarantined items.

    `late` and `future` count events beyond the stream's time bounds or its retention, whatever was done with them.
    `transformed` counts results by transform and outcome; `dropped` is the number of events that transforms removed.
    """

    accepted: int
    duplicates: int
    quarantined: int
    reasons: Sequence[tuple[int, str]] = ()
    late: int = 0
    future: int = 0
    transformed: Mapping[tuple[str, str], int] = msgspec.field(default_factory=dict)

    @property
    def dropped(self) -> int:
        return sum(count for (_, outcome), count in self.transformed.items() if outcome == "dropped")


class Sent(msgspec.Struct, frozen=True):
    """How a body was sent: the kind of route and the headers, with names in lower case."""

    form: Form = Form.EVENTS
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


AS_EVENTS = Sent()


class IntakeLimits(msgspec.Struct, frozen=True):
    """The limits of one event, the default rate of a stream, and the memory of bodies that are being stored.

    `items` bounds the items of one body, `large_bytes` the bytes of large events among a stream's others.
    """

    event_bytes: int = 2**20
    events_per_second: float | None = None
    bytes_under_way: int = 64 * 2**20
    items: int = MOST_ITEMS
    large_bytes: int | None = None


AS_SHIPPED = IntakeLimits()


_T = TypeVar("_T")


class Intake:
    """Accepts bodies of events. `clock_us` returns the wall-clock time in microseconds since 1970.

    Reserve the memory of a body in `holding` before reading it.
    """

    def __init__(
        self, engine: Engine, clock_us: Callable[[], int], limits: IntakeLimits = AS_SHIPPED, hash_key: bytes = b""
    ) -> None:
        self._clock_us = clock_us
        self._transforms = StreamTransforms(hash_key)
        self._limits = limits
        self._pace = Pace(limits.events_per_second, time.monotonic)
        self.holding = HoldingRoom(limits.bytes_under_way)
        self._large = LargeEvents(limits.large_bytes)
        self._shelf = Shelf(limits.event_bytes, clock_us, self._large)
        engine.prepare([QUARANTINE])
        self._flusher = Flusher(engine)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="read")
        self._shapes = ShapeReader(engine.shapes, engine.projects)

    @property
    def fault(self) -> str | None:
        """The reason why the last write failed; None if it succeeded."""
        return self._flusher.fault

    def admit(self, stream: Stream) -> None:
        """Check the stream's rate before the body is read; raise StreamRateExceeded beyond it."""
        self._pace.admit(stream)

    def accept(
        self,
        stream: Stream,
        content_type: str,
        body: bytes,
        pins: Mapping[str, str] | None = None,
        sent: Sent = AS_EVENTS,
    ) -> Coroutine[Any, Any, Accepted]:
        """Return once every stored event is durable and visible to the next query."""
        limits = self._limits
        arrived = Body(body, content_type, sent.headers, limits.items, 2 * limits.event_bytes)
        return self._accepted(stream, arrived, pins or {}, sent.form)

    async def _accepted(self, stream: Stream, arrived: Body, pins: Mapping[str, str], form: Form) -> Accepted:
        if len(arrived.data) <= _READ_AT_ONCE_BYTES:
            batches, aside = self._read(stream, form, arrived, pins)
        else:
            batches, aside = await self._in_a_thread(self._read, stream, form, arrived, pins)
        # The events are copies: release the body, since storing them may take long.
        del arrived
        self._pace.charge(stream, sum(len(batch.events) for batch in batches))
        appended = await self._flusher.append(batches) if batches else []
        return _told(stream, batches, appended, aside)

    async def replay(self, stream: Stream, item: Kept, pins: Mapping[str, str] | None = None) -> Accepted:
        """Store a quarantined item and mark it as replayed; raise NotReplayable if it would be quarantined again."""
        batches = await self._in_a_thread(self._read_again, stream, item, pins or {})
        events, _ = await self._flusher.append(batches)
        late = outlived(stream, batches[0].events, self._clock_us())
        return Accepted(events.accepted, events.duplicates, 0, late=late)

    async def take_back(self, stream: Stream, body: bytes, pinned_project: str | None = None) -> Accepted:
        """Store exported events unchanged, with their time of receipt; duplicates are counted and skipped."""
        batch = await self._in_a_thread(self._read_stored, stream, body, pinned_project)
        (told,) = await self._flusher.append([batch])
        return Accepted(told.accepted, told.duplicates, 0, late=outlived(stream, batch.events, self._clock_us()))

    def close(self) -> None:
        """Store the pending events, then stop."""
        self._readers.shutdown()
        self._flusher.close()

    def _in_a_thread(self, read: Callable[..., _T], *about: object) -> Awaitable[_T]:
        return asyncio.get_running_loop().run_in_executor(self._readers, read, *about)

    def _read_stored(self, stream: Stream, body: bytes, pinned_project: str | None) -> Batch:
        return self._batch(
            stream, read_stored(body, pinned_project, stream.project_at, self._limits.items), self._clock_us()
        )

    def _read(self, stream: Stream, form: Form, body: Body, pins: Mapping[str, str]) -> tuple[list[Batch], Accepted]:
        """Return the batches to store, and the counts of the items that are not stored."""
        received_us = self._clock_us()
        reading = read_body(form, body)
        events, transformed = self._transforms.applied(stream, stamped(reading, received_us), reading)
        is_changed = bool(stream.transforms)
        if (
            is_changed
            or needs_scrutiny(stream, pins, len(body.data), self._limits.event_bytes)
            or any(map(is_too_deep, events))
        ):
            events = Scrutiny(stream, pins, received_us, self._limits.event_bytes).passed(events, reading)
        batches = [self._batch(stream, events, received_us, filling(stream))] if events else []
        if reading.set_aside:
            reading.set_aside = [self._shelf.fitted(item) for item in reading.set_aside]
            batches.append(quarantined(stream.name, form, reading.set_aside, pins.get("project"), received_us))
        late, future = reading.beyond["late"], reading.beyond["future"]
        return batches, Accepted(
            0, 0, len(reading.set_aside), reasons(reading, _REASONS_TOLD), late, future, transformed
        )

    def _read_again(self, stream: Stream, item: Kept, pins: Mapping[str, str]) -> list[Batch]:
        try:
            reading = read_again(item)
        except BadBody as broken:
            raise NotReplayable(f"It would be refused again: {broken.message}") from broken
        events = stamped(reading, item.received_us)
        if not item.is_transformed:
            events, _ = self._transforms.applied(stream, events, reading)
            if not events and not reading.set_aside:
                raise NotReplayable("A transform of the stream drops it.")
        events = Scrutiny(stream, pins, item.received_us, self._limits.event_bytes).passed(events, reading)
        if reading.set_aside:
            raise NotReplayable(f"It would be set aside again: {reading.set_aside[0].reason}")
        now_us = self._clock_us()
        replayed = self._batch(stream, events, now_us, filling(stream))
        return [replayed, replay_mark(item.id, stream.name, item.project, now_us)]

    def _batch(
        self, stream: Stream, events: list[Event], received_us: int, filling: Filling = NOTHING_DERIVED
    ) -> Batch:
        self._large.take(stream.name, events)
        learnt = self._shapes.read(stream, events, filling)
        return Batch(stream.name, learnt.events, received_us, learnt.kinds, learnt.by_project)


def _told(stream: Stream, batches: Sequence[Batch], appended: Sequence[Appended], aside: Accepted) -> Accepted:
    stored = [one for batch, one in zip(batches, appended, strict=True) if batch.stream == stream.name]
    accepted, duplicates = sum(one.accepted for one in stored), sum(one.duplicates for one in stored)
    return msgspec.structs.replace(aside, accepted=accepted, duplicates=duplicates)
