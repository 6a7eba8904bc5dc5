"""Cancellation of a query that runs on the engine."""

import threading
from collections.abc import Callable


class CancelToken:
    """A cancellation token: the engine registers how to stop, and the caller triggers it; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: list[Callable[[], None]] = []
        self.is_cancelled = False

    def on_cancel(self, stop: Callable[[], None]) -> None:
        with self._lock:
            if not self.is_cancelled:
                self._stops.append(stop)
                return
        stop()

    def cancel(self) -> None:
        with self._lock:
            self.is_cancelled = True
            stops, self._stops = self._stops, []
        for stop in stops:
            stop()
