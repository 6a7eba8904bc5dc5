"""One timer thread for the time limits of all queries."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec


class _Alarm(msgspec.Struct, order=True):
    due_at: float
    number: int
    callback: Callable[[], None]
    is_cancelled: bool = False


class DeadlineTimer:
    def __init__(self) -> None:
        self._alarms: list[_Alarm] = []
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._closed = False
        self._thread = threading.Thread(target=self._run_timer, name="watch", daemon=True)
        self._thread.start()

    @contextmanager
    def after(self, seconds: float, callback: Callable[[], None]) -> Iterator[None]:
        """Call `callback` once if the block lasts longer than `seconds`."""
        alarm = _Alarm(time.monotonic() + seconds, next(self._numbers), callback)
        with self._changed:
            heapq.heappush(self._alarms, alarm)
            if self._alarms[0] is alarm:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                alarm.is_cancelled = True

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run_timer(self) -> None:
        with self._changed:
            while not self._closed:
                self._call_due_alarms()
                self._changed.wait(self._seconds_until_next_alarm())

    def _call_due_alarms(self) -> None:
        """Call due alarms while holding the lock, so that none is called after its block has ended."""
        while self._alarms and (self._alarms[0].is_cancelled or self._alarms[0].due_at <= time.monotonic()):
            alarm = heapq.heappop(self._alarms)
            if not alarm.is_cancelled:
                alarm.callback()

    def _seconds_until_next_alarm(self) -> float | None:
        return self._alarms[0].due_at - time.monotonic() if self._alarms else None
