"""An event's journey: decode, stamp, derive, learn the shape, store durably, acknowledge."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cordwood.engines.engine import Engine
from cordwood.ingest.flush import Flusher
from cordwood.ingest.formats import format_of
from cordwood.ingest.posted import Reading, SetAside
from cordwood.ingest.shape import ShapeReader
from cordwood.ingest.stamp import stamped
from cordwood.model.event import Batch
from cordwood.model.stream import Stream

# A body up to this size is read where it arrived; reading a larger one would hold up other requests.
_READ_AT_ONCE_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a body's events; `reasons` are those of the first ten that were set aside, by their place."""

    accepted: int
    duplicates: int
    quarantined: int
    reasons: Sequence[tuple[int, str]] = ()


class Intake:
    """`clock_us` gives microseconds since 1970 and is the only clock the journey reads."""

    def __init__(self, engine: Engine, clock_us: Callable[[], int]) -> None:
        self._engine = engine
        self._clock_us = clock_us
        self._flusher = Flusher(engine)
        self._shapes = ShapeReader(engine.shapes)

    async def accept(
        self, stream: Stream, content_type: str, body: bytes, pins: Mapping[str, str] | None = None
    ) -> Accepted:
        """Returns once every stored event is durable, and in the answer of the next query."""
        if len(body) <= _READ_AT_ONCE_BYTES:
            batch, aside = self._read(stream, content_type, body)
        else:
            batch, aside = await asyncio.to_thread(self._read, stream, content_type, body)
        accepted, duplicates = 0, 0
        if batch.events:
            appended = await self._flusher.append(batch)
            accepted, duplicates = appended.accepted, appended.duplicates
        return Accepted(accepted, duplicates, len(aside), [(one.index, one.reason) for one in aside[:10]])

    def close(self) -> None:
        """Store what waits, then stop."""
        self._flusher.close()

    def _read(self, stream: Stream, content_type: str, body: bytes) -> tuple[Batch, list[SetAside]]:
        reading: Reading = format_of(content_type)(body.decode("utf-8", "replace"))
        received_us = self._clock_us()
        events = stamped(reading, received_us)
        learnt = self._shapes.learn(stream.name, events)
        return Batch(stream.name, events, received_us, learnt), reading.set_aside
