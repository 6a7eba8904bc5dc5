"""Cancellation of a query that runs on the engine."""

import threading
from collections.abc import Callable


class Halt:
    """A cancellation token: the engine registers how to stop, and the caller triggers it; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: list[Callable[[], None]] = []
        self.pulled = False

    def on_pull(self, stop: Callable[[], None]) -> None:
        with self._lock:
            if not self.pulled:
                self._stops.append(stop)
                return
        stop()

    def pull(self) -> None:
        with self._lock:
            self.pulled = True
            stops, self._stops = self._stops, []
        for stop in stops:
            stop()
