"""Group commit: while one group of batches is being made durable, the next group accumulates."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from cordwood.engines.engine import BatchAppendResult, Engine
from cordwood.errors import BacklogFull, EngineFault, OutOfDisk
from cordwood.model.event import ReceivedEventBatch

# New batches are refused if more than `_MAX_PENDING_EVENTS` events are queued. A group takes no further batch once it
# has `_MAX_GROUP_EVENTS` events.
_MAX_PENDING_EVENTS = 200_000
_MAX_GROUP_EVENTS = 20_000


OnEventsStored = Callable[[frozenset[str], int], None]


class _PendingAppend(msgspec.Struct, frozen=True):
    batches: Sequence[ReceivedEventBatch]
    loop: asyncio.AbstractEventLoop
    append_results: "asyncio.Future[list[BatchAppendResult]]"

    @property
    def event_count(self) -> int:
        return sum(len(batch.events) for batch in self.batches)


class GroupCommitter:
    """Stores groups of batches in a thread. `append` returns once its batches are durable, or raises the error."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queue: deque[_PendingAppend] = deque()
        self._waiting_event_count = 0
        self._queue_condition = threading.Condition()
        self._is_closing = False
        # The error message of the last write, or None if that write succeeded.
        self.last_write_error: str | None = None
        # Called in the storing thread whenever a group is stored, with the names of the streams that got events and the
        # time at which the newest event was received.
        self.on_events_stored: OnEventsStored | None = None
        self._thread = threading.Thread(target=self._run, name="flush", daemon=True)
        self._thread.start()

    async def append(self, batches: Sequence[ReceivedEventBatch]) -> list[BatchAppendResult]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[BatchAppendResult]] = loop.create_future()
        with self._queue_condition:
            if self._waiting_event_count > _MAX_PENDING_EVENTS:
                raise BacklogFull("Too many events are pending.", retry_after=3)
            waiting = _PendingAppend(batches, loop, done)
            self._queue.append(waiting)
            self._waiting_event_count += waiting.event_count
            self._queue_condition.notify()
        return await done

    def close(self) -> None:
        """Store the pending events and stop the thread."""
        with self._queue_condition:
            self._is_closing = True
            self._queue_condition.notify()
        self._thread.join()

    def _run(self) -> None:
        # Do not keep a reference to the stored group here, or its events would stay in memory until the next group
        # arrives.
        while self._store_group(self._wait_and_take_next_group()):
            pass

    def _wait_and_take_next_group(self) -> list[_PendingAppend]:
        with self._queue_condition:
            self._queue_condition.wait_for(lambda: self._queue or self._is_closing)
            group: list[_PendingAppend] = []
            events = 0
            while self._queue and (not group or events < _MAX_GROUP_EVENTS):
                group.append(self._queue.popleft())
                events += group[-1].event_count
            self._waiting_event_count -= events
            return group

    def _store_group(self, group: Sequence[_PendingAppend]) -> bool:
        """Store a group and wake its waiting callers; return False for the empty group that ends the thread."""
        try:
            appended = self._engine.append([batch for waiting in group for batch in waiting.batches])
        except Exception as problem:  # noqa: BLE001 - one of the two catch-alls: whoever waits must be told
            if isinstance(problem, OutOfDisk | EngineFault):
                self.last_write_error = problem.message
            for waiting in group:
                waiting.loop.call_soon_threadsafe(_set_exception_unless_done, waiting.append_results, problem)
            return bool(group)
        self.last_write_error = None
        if self.on_events_stored is not None:
            self._notify_stored(
                self.on_events_stored, [batch for waiting in group for batch in waiting.batches], appended
            )
        rest = iter(appended)
        for waiting in group:
            outcome = list(islice(rest, len(waiting.batches)))
            waiting.loop.call_soon_threadsafe(_set_result_unless_done, waiting.append_results, outcome)
        return bool(group)

    def _notify_stored(
        self, on_stored: OnEventsStored, batches: Sequence[ReceivedEventBatch], appended: Sequence[BatchAppendResult]
    ) -> None:
        streams = frozenset(batch.stream for batch, one in zip(batches, appended, strict=True) if one.accepted)
        newest_us = self._engine.newest_receipt_us()
        if streams and newest_us is not None:
            on_stored(streams, newest_us)


def _set_result_unless_done(done: "asyncio.Future[list[BatchAppendResult]]", outcome: list[BatchAppendResult]) -> None:
    if not done.done():
        done.set_result(outcome)


def _set_exception_unless_done(done: "asyncio.Future[list[BatchAppendResult]]", problem: Exception) -> None:
    if not done.done():
        done.set_exception(problem)
