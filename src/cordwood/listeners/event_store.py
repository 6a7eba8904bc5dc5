"""Store the events of listeners: the events of many connections together, for as long as it takes.

No sender of these protocols can be told to try again later. While events cannot be stored, because the disk is full, a
rate is exceeded, or a stream or a key is missing, the service keeps trying and the connections are not read, so that
their senders notice that nothing is taken.
"""

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import uuid4

import msgspec

from cordwood.access import require_ingest
from cordwood.errors import Fault
from cordwood.ingest.accept import Form, Part
from cordwood.ingest.parsed_body import Labels, ParsedBody
from cordwood.ingest.stream_mapping import StreamMapping
from cordwood.model.key import Caller
from cordwood.observe.observation import BugFound, Ingested, Noted, Observer
from cordwood.web.catalog_lookup import stream_of_events
from cordwood.web.ingest import ingested
from cordwood.web.lifecycle import Services

# The events of single lines are collected for this long, and fewer than this many of them.
LINGER_SECONDS: Final = 0.005
FULL_EVENTS: Final = 100
MOST_EVENTS: Final = 5000
# Between two attempts to store, and between two messages about it.
_LEAST_SECONDS, _MOST_SECONDS = 0.1, 5.0
_TOLD_SECONDS: Final = 30.0


class Destination(msgspec.Struct, frozen=True):
    """Where the events of a listener go: the stream, or else by their labels; and the key that is used for them.

    Without a key, the events may go to any stream, without pins.
    """

    form: Form
    stream: str = ""
    key: str = ""
    mapping: StreamMapping = StreamMapping()


class _Waiting(msgspec.Struct):
    parsed: ParsedBody
    body_bytes: int
    done: "asyncio.Future[None]"


class EventStore:
    """Stores the events of one listener, named `name`."""

    def __init__(self, name: str, destination: Destination, services: Services, observer: Observer) -> None:
        self._name = name
        self._destination = destination
        self._services = services
        self._observer = observer
        self._queues: dict[str, _StreamQueue] = {}
        self._told_at: dict[str, float] = {}

    async def store(self, parts: Mapping[Labels, ParsedBody], body_bytes: int) -> None:
        """Return once all parts are durable; raise the error if the service stops before that."""
        by_stream = await self._by_stream(parts)
        await asyncio.gather(*(self.store_part(stream, parsed, body_bytes) for stream, parsed in by_stream.items()))

    async def store_part(self, stream_name: str, parsed: ParsedBody, body_bytes: int) -> None:
        """Return once the events are durable in the stream, stored together with those of other senders."""
        _identify(parsed)
        queue = self._queues.get(stream_name)
        if queue is None:
            queue = self._queues[stream_name] = _StreamQueue(self, stream_name)
        await queue.put(parsed, body_bytes)

    def stream_name(self, labels: Labels) -> str:
        """Return the name of the stream of these labels; raise UnknownStream if none is configured."""
        return self._destination.stream or self._destination.mapping.stream_name(
            labels, lambda name: self._services.catalog.stream(name) is not None
        )

    async def _by_stream(self, parts: Mapping[Labels, ParsedBody]) -> dict[str, ParsedBody]:
        """Return the parts by the name of their stream. An unknown one is waited for: the operator may add it."""
        found: dict[str, list[ParsedBody]] = {}
        for labels, parsed in parts.items():
            found.setdefault(await self._mapped(labels), []).append(parsed)
        return {name: merged(several) for name, several in found.items()}

    async def _mapped(self, labels: Labels) -> str:
        while True:
            try:
                return self.stream_name(labels)
            except Fault as fault:
                await self._later(fault, _LEAST_SECONDS)

    async def store_in(self, stream_name: str, parsed: ParsedBody, body_bytes: int) -> None:
        """Store events in a stream, and try again for as long as that fails."""
        seconds = _LEAST_SECONDS
        while True:
            try:
                self._observer.note(await self._attempt(stream_name, parsed, body_bytes))
            except Fault as fault:
                await self._later(fault, seconds)
                seconds = min(2 * seconds, _MOST_SECONDS)
            else:
                return

    async def _attempt(self, stream_name: str, parsed: ParsedBody, body_bytes: int) -> Ingested:
        services = self._services
        caller = self._caller()
        stream = await stream_of_events(services, caller, stream_name)
        require_ingest(caller, stream)
        services.answers.admit(caller)
        services.intake.admit(stream)
        # Storing empties the part, and another attempt may be needed.
        attempt = msgspec.structs.replace(parsed, refused=list(parsed.refused), beyond=Counter())
        (accepted,) = await services.intake.store(
            [Part(stream, attempt)], body_bytes, self._destination.form, caller.pins or None
        )
        return ingested(stream, accepted)

    def _caller(self) -> Caller:
        key = self._destination.key
        return self._services.access.who(key) if key else Caller(f"listener:{self._name}", frozenset({"ingest"}))

    async def _later(self, fault: Fault, seconds: float) -> None:
        """Wait before the next attempt; tell the operator why, now and then."""
        now = time.monotonic()
        if now - self._told_at.get(fault.code, -_TOLD_SECONDS) >= _TOLD_SECONDS:
            self._told_at[fault.code] = now
            message = f"The listener {self._name} cannot store events and keeps trying: {fault.told()}"
            self._observer.note(Noted(message=message, level="warning"))
        await asyncio.sleep(min(max(seconds, fault.retry_after or 0.0), _MOST_SECONDS))

    def note_bug(self, problem: BaseException) -> None:
        """Log an internal error."""
        trace = "".join(traceback.format_exception(problem))
        self._observer.note(BugFound(incident=f"listener {self._name}", trace=trace))

    def close(self) -> None:
        """End the attempts that are still going on."""
        for queue in self._queues.values():
            queue.close()


class _StreamQueue:
    """The events that wait to be stored in one stream. While some are stored, the next ones collect."""

    def __init__(self, store: EventStore, stream: str) -> None:
        self._store = store
        self._stream = stream
        self._waiting: list[_Waiting] = []
        self._events = 0
        self._task: asyncio.Task[None] | None = None

    def put(self, parsed: ParsedBody, body_bytes: int) -> "asyncio.Future[None]":
        loop = asyncio.get_running_loop()
        waiting = _Waiting(parsed, body_bytes, loop.create_future())
        self._waiting.append(waiting)
        self._events += len(parsed.events)
        if self._task is None:
            self._task = loop.create_task(self._work())
        return waiting.done

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _work(self) -> None:
        try:
            while self._waiting:
                if self._events < FULL_EVENTS:
                    await asyncio.sleep(LINGER_SECONDS)
                group = self._next_group()
                try:
                    await self._store.store_in(
                        self._stream, merged([one.parsed for one in group]), sum(one.body_bytes for one in group)
                    )
                except Exception as problem:  # noqa: BLE001 - whoever waits must be told
                    _end(group, problem)
                except asyncio.CancelledError:
                    _cancel([*group, *self._waiting])
                    raise
                else:
                    _end(group, None)
        finally:
            self._task = None

    def _next_group(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        events = 0
        while self._waiting and (not group or events < MOST_EVENTS):
            group.append(self._waiting.pop(0))
            events += len(group[-1].parsed.events)
        self._events -= events
        return group


def _end(group: Sequence[_Waiting], problem: Exception | None) -> None:
    for one in group:
        if one.done.done():
            continue
        if problem is None:
            one.done.set_result(None)
        else:
            one.done.set_exception(problem)


def _cancel(group: Sequence[_Waiting]) -> None:
    for one in group:
        one.done.cancel()


def merged(parts: Sequence[ParsedBody]) -> ParsedBody:
    """Return the events and refused items of several readings as one."""
    if len(parts) == 1:
        return parts[0]
    whole = ParsedBody(indexes=[])
    for part in parts:
        for place, event in enumerate(part.events):
            whole.add(event, part.index_of(place), part.extras.get(place))
        whole.refused += part.refused
    return whole


def _identify(parsed: ParsedBody) -> None:
    """Give an id to each event without one, so that a second attempt to store it stores it once."""
    for event in parsed.events:
        if event.id in {None, ""}:
            event.id = str(uuid4())
