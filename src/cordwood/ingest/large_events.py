"""Limits on large events among the other events of a stream.

DuckDB processes 2,048 adjacent rows at once, and a whole row group when it writes or sorts. With 512 MB of memory, 216
adjacent events of 1 MB each are more than it can write, so that nothing more could be stored.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from cordwood.errors import LargeEventsExceeded
from cordwood.model.event import Event

# An event with more characters counts as large: 2,048 smaller ones fit into memory.
MIN_LARGE_CHARACTERS: Final = 32 * 1024
# How many events of a stream, large or not, share one budget.
_WINDOW: Final = 20_000
# The share of the budget for one project, because compaction sorts ten windows at once by project.
_OF_ONE_PROJECT: Final = 4


class _BudgetWindow(msgspec.Struct):
    events: int = 0
    large_bytes: int = 0
    by_project: Counter[str | None] = msgspec.field(default_factory=Counter)


class LargeEvents:
    """Byte budgets by stream. Thread-safe. Without a limit, every event is accepted."""

    def __init__(self, max_bytes: int | None) -> None:
        self._max_bytes = max_bytes
        self._windows: dict[str, _BudgetWindow] = {}
        self._turn = threading.Lock()

    def take(self, stream: str, events: Sequence[Event]) -> None:
        """Charge the large events to the budget; if they exceed it, raise LargeEventsExceeded and charge nothing."""
        large: Counter[str | None] = Counter()
        for event in events:
            size = size_of(event)
            if size > MIN_LARGE_CHARACTERS:
                large[event.project] += size
        if not self._try_take(stream, large, len(events)):
            raise LargeEventsExceeded(
                f"The stream {stream} has too many events of over {MIN_LARGE_CHARACTERS // 1024} KiB among its recent events.",
                hint="Send fewer of them, or shorter ones, or give the service more memory (limits.memory).",
                retry_after=60,
            )

    def try_take_text(self, stream: str, project: str | None, size: int) -> bool:
        """Charge a text to the budget and return True; return False if it does not fit."""
        return self._try_take(stream, Counter({project: size} if size > MIN_LARGE_CHARACTERS else {}), 1)

    def _try_take(self, stream: str, large_by_project: Counter[str | None], events: int) -> bool:
        if self._max_bytes is None:
            return True
        with self._turn:
            window = self._windows.setdefault(stream, _BudgetWindow())
            if window.events >= _WINDOW:
                window = self._windows[stream] = _BudgetWindow()
            has_room = window.large_bytes + large_by_project.total() <= self._max_bytes and all(
                window.by_project[project] + size <= self._max_bytes // _OF_ONE_PROJECT
                for project, size in large_by_project.items()
            )
            if has_room or not large_by_project:
                window.events += events
                window.large_bytes += large_by_project.total()
                window.by_project.update(large_by_project)
            return has_room or not large_by_project


UNBOUNDED: Final = LargeEvents(None)


def size_of(event: Event) -> int:
    """Return the number of characters of an event, which is at most the number of bytes that were sent."""
    message, metadata, extras = event.event_message, event.metadata, event.extras
    return len(event.id) + len(message or "") + len(metadata or "") + len(extras or "")
