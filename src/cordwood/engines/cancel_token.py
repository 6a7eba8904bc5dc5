"""Cancellation and progress of a query that runs on the engine."""

import threading
from collections.abc import Callable

from cordwood.engines.engine import Progress, ReadProgress


class CancelToken:
    """A cancellation token, which also tells the progress; safe from any thread.

    The engine registers how to stop its work and how to read its progress.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: list[Callable[[], None]] = []
        self._read_progress: ReadProgress = _no_progress
        self.is_cancelled = False

    def on_cancel(self, stop: Callable[[], None]) -> None:
        with self._lock:
            if not self.is_cancelled:
                self._stops.append(stop)
                return
        stop()

    def on_progress(self, read: ReadProgress) -> None:
        self._read_progress = read

    def progress(self) -> Progress | None:
        """Return the progress of the query; None while it is unknown."""
        return self._read_progress()

    def cancel(self) -> None:
        with self._lock:
            self.is_cancelled = True
            stops, self._stops = self._stops, []
        for stop in stops:
            stop()


def _no_progress() -> None:
    return None
