"""Store the events of listeners, in groups from many connections, and retry until they are stored.

The protocols of listeners have no answer that asks a sender to retry later. Storing may fail for a while, because the
disk is full, a rate limit is exceeded, or a stream or key is missing. Meanwhile the service keeps trying and does not
read the connections, so that back pressure slows down their senders.
"""

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import uuid4

import msgspec

from cordwood.access import require_ingest_permission
from cordwood.errors import Fault
from cordwood.ingest.accept import BodyFormat, BodyPartForStream
from cordwood.ingest.parsed_body import ParsedBody, StreamLabels
from cordwood.ingest.stream_mapping import StreamMapping
from cordwood.model.key import Caller
from cordwood.observe.observation import BugFound, EventsIngested, Observer, OperatorMessage
from cordwood.web.ingest import events_ingested_observation
from cordwood.web.services import Services, find_or_create_stream

# If fewer than MIN_GROUP_EVENTS events are waiting, the service collects more for GROUP_LINGER_SECONDS before it stores
# them together. Once a group has MAX_GROUP_EVENTS events, no more are added to it.
GROUP_LINGER_SECONDS: Final = 0.005
MIN_GROUP_EVENTS: Final = 100
MAX_GROUP_EVENTS: Final = 5000
# The pause between two attempts to store events grows from `_MIN_RETRY_SECONDS` to `_MAX_RETRY_SECONDS`.
# `_MIN_SECONDS_BETWEEN_WARNINGS` is the minimum time between two warnings to the operator about the same failure.
_MIN_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.1, 5.0
_MIN_SECONDS_BETWEEN_WARNINGS: Final = 30.0


class EventDestination(msgspec.Struct, frozen=True):
    """Where the events of a listener are stored, and with whose permissions.

    The events are stored in the stream `stream`. If `stream` is empty, they are stored in the streams that
    `stream_mapping` finds for their labels. The permissions and pins of `api_key` apply. Without a key, the events may
    go to any stream and have no pins. Quarantined items are recorded with the format `body_format`, so that a replay
    decodes them in the same way.
    """

    body_format: BodyFormat
    stream: str = ""
    api_key: str = ""
    stream_mapping: StreamMapping = StreamMapping()


class _QueuedEvents(msgspec.Struct):
    parsed_body: ParsedBody
    body_bytes: int
    outcome: "asyncio.Future[None]"


class ListenerEventWriter:
    """Stores the events of the listener that has the name `name`."""

    def __init__(self, name: str, destination: EventDestination, services: Services, observer: Observer) -> None:
        self._listener_name = name
        self._destination = destination
        self._services = services
        self._observer = observer
        self._queue_by_stream: dict[str, _StreamQueue] = {}
        self._last_warning_at_by_code: dict[str, float] = {}

    async def store_events_by_labels(self, parts: Mapping[StreamLabels, ParsedBody], body_bytes: int) -> None:
        """Store each part in the stream of its labels; return once all parts are durable.

        If the service stops before that, the call is cancelled.
        """
        by_stream = await self._merge_by_stream(parts)
        await asyncio.gather(*(self.store_events(stream, parsed, body_bytes) for stream, parsed in by_stream.items()))

    async def store_events(self, stream_name: str, parsed: ParsedBody, body_bytes: int) -> None:
        """Store events in a stream, together with events of other senders; return once they are durable."""
        _ensure_event_ids(parsed)
        queue = self._queue_by_stream.get(stream_name)
        if queue is None:
            queue = self._queue_by_stream[stream_name] = _StreamQueue(self, stream_name)
        await queue.put(parsed, body_bytes)

    def stream_name_for_labels(self, labels: StreamLabels) -> str:
        """Return the name of the stream for these labels; raise UnknownStream if none is configured."""
        return self._destination.stream or self._destination.stream_mapping.stream_name_for_labels(
            labels, lambda name: self._services.catalog.stream(name) is not None
        )

    async def _merge_by_stream(self, parts: Mapping[StreamLabels, ParsedBody]) -> dict[str, ParsedBody]:
        """Merge the parts that go to the same stream; return them by the name of the stream.

        If there is no stream for some labels, wait for one, because the operator may still add it.
        """
        found: dict[str, list[ParsedBody]] = {}
        for labels, parsed in parts.items():
            found.setdefault(await self._wait_for_stream(labels), []).append(parsed)
        return {name: merge_parsed_bodies(several) for name, several in found.items()}

    async def _wait_for_stream(self, labels: StreamLabels) -> str:
        while True:
            try:
                return self.stream_name_for_labels(labels)
            except Fault as fault:
                await self._wait_to_retry(fault, _MIN_RETRY_SECONDS)

    async def store_with_retries(self, stream_name: str, parsed: ParsedBody, body_bytes: int) -> None:
        """Store events in a stream, and retry for as long as that fails."""
        seconds = _MIN_RETRY_SECONDS
        while True:
            try:
                self._observer.record(await self._try_store(stream_name, parsed, body_bytes))
            except Fault as fault:
                await self._wait_to_retry(fault, seconds)
                seconds = min(2 * seconds, _MAX_RETRY_SECONDS)
            else:
                return

    async def _try_store(self, stream_name: str, parsed: ParsedBody, body_bytes: int) -> EventsIngested:
        services = self._services
        caller = self._find_caller()
        stream = await find_or_create_stream(services, caller, stream_name)
        require_ingest_permission(caller, stream)
        services.query_service.charge_request(caller)
        services.intake.check_stream_rate(stream)
        # Pass a copy of the part to `store`, which empties it: the part is needed for another attempt.
        attempt = msgspec.structs.replace(
            parsed, refused_items=list(parsed.refused_items), out_of_time_bounds_counts=Counter()
        )
        (accepted,) = await services.intake.store_body_parts(
            [BodyPartForStream(stream, attempt)], body_bytes, self._destination.body_format, caller.pins or None
        )
        return events_ingested_observation(stream, accepted)

    def _find_caller(self) -> Caller:
        key = self._destination.api_key
        return (
            self._services.authenticator.authenticate(key)
            if key
            else Caller(f"listener:{self._listener_name}", frozenset({"ingest"}))
        )

    async def _wait_to_retry(self, fault: Fault, seconds: float) -> None:
        """Wait before the next attempt, and warn the operator of the failure.

        Failures with the same code are reported at most once in `_MIN_SECONDS_BETWEEN_WARNINGS`.
        """
        now = time.monotonic()
        if (
            now - self._last_warning_at_by_code.get(fault.code, -_MIN_SECONDS_BETWEEN_WARNINGS)
            >= _MIN_SECONDS_BETWEEN_WARNINGS
        ):
            self._last_warning_at_by_code[fault.code] = now
            message = (
                f"The listener {self._listener_name} cannot store events and keeps trying: {fault.one_line_text()}"
            )
            self._observer.record(OperatorMessage(message=message, level="warning"))
        await asyncio.sleep(min(max(seconds, fault.retry_after or 0.0), _MAX_RETRY_SECONDS))

    def report_bug(self, problem: BaseException) -> None:
        """Log an internal error."""
        trace = "".join(traceback.format_exception(problem))
        self._observer.record(BugFound(incident=f"listener {self._listener_name}", trace=trace))

    def close(self) -> None:
        """Cancel all running attempts to store events."""
        for queue in self._queue_by_stream.values():
            queue.close()


class _StreamQueue:
    """The events that wait to be stored in one stream. While one group is stored, the next one accumulates."""

    def __init__(self, store: ListenerEventWriter, stream: str) -> None:
        self._event_writer = store
        self._stream_name = stream
        self._queued_events: list[_QueuedEvents] = []
        self._queued_event_count = 0
        self._task: asyncio.Task[None] | None = None

    def put(self, parsed: ParsedBody, body_bytes: int) -> "asyncio.Future[None]":
        loop = asyncio.get_running_loop()
        waiting = _QueuedEvents(parsed, body_bytes, loop.create_future())
        self._queued_events.append(waiting)
        self._queued_event_count += len(parsed.events)
        if self._task is None:
            self._task = loop.create_task(self._run())
        return waiting.outcome

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while self._queued_events:
                if self._queued_event_count < MIN_GROUP_EVENTS:
                    await asyncio.sleep(GROUP_LINGER_SECONDS)
                group = self._take_next_group()
                try:
                    await self._event_writer.store_with_retries(
                        self._stream_name,
                        merge_parsed_bodies([one.parsed_body for one in group]),
                        sum(one.body_bytes for one in group),
                    )
                except Exception as problem:  # noqa: BLE001 - whoever waits must be told
                    _resolve_outcomes(group, problem)
                except asyncio.CancelledError:
                    _cancel_outcomes([*group, *self._queued_events])
                    raise
                else:
                    _resolve_outcomes(group, None)
        finally:
            self._task = None

    def _take_next_group(self) -> list[_QueuedEvents]:
        group: list[_QueuedEvents] = []
        events = 0
        while self._queued_events and (not group or events < MAX_GROUP_EVENTS):
            group.append(self._queued_events.pop(0))
            events += len(group[-1].parsed_body.events)
        self._queued_event_count -= events
        return group


def _resolve_outcomes(group: Sequence[_QueuedEvents], problem: Exception | None) -> None:
    for one in group:
        if one.outcome.done():
            continue
        if problem is None:
            one.outcome.set_result(None)
        else:
            one.outcome.set_exception(problem)


def _cancel_outcomes(group: Sequence[_QueuedEvents]) -> None:
    for one in group:
        one.outcome.cancel()


def merge_parsed_bodies(parts: Sequence[ParsedBody]) -> ParsedBody:
    """Merge several decoded bodies into one."""
    if len(parts) == 1:
        return parts[0]
    whole = ParsedBody(item_indexes=[])
    for part in parts:
        for place, event in enumerate(part.events):
            whole.add_event(event, part.item_index(place), part.extras_by_event_number.get(place))
        whole.refused_items += part.refused_items
    return whole


def _ensure_event_ids(parsed: ParsedBody) -> None:
    """Give an id to each event without one, so that a retry does not store the event a second time."""
    for event in parsed.events:
        if event.id in {None, ""}:
            event.id = str(uuid4())
