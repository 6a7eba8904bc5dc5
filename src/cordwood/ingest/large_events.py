"""The bound on large events among a stream's other events.

DuckDB works on 2,048 neighbouring rows at once, and on a row group when it writes or orders them. At 512 MB, 216 events
of 1 MB that follow each other are more than it can write into its file: then nothing is stored any more, of anybody.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from cordwood.errors import LargeEventsExceeded
from cordwood.model.event import Event

# An event of more characters is large: 2,048 of fewer are not too much.
LARGE: Final = 32 * 1024
# So many events of a stream, large or not, have one budget.
_WINDOW: Final = 20_000
# The part of the budget that one project may have. The engine lays events of a project together, of ten windows at once.
_OF_ONE_PROJECT: Final = 4


class _Window(msgspec.Struct):
    events: int = 0
    large_bytes: int = 0
    by_project: Counter[str | None] = msgspec.field(default_factory=Counter)


class LargeEvents:
    """Budgets of bytes, one a stream; may be used from any thread. Without a bound everything has room."""

    def __init__(self, most_bytes: int | None) -> None:
        self._most_bytes = most_bytes
        self._windows: dict[str, _Window] = {}
        self._turn = threading.Lock()

    def take(self, stream: str, events: Sequence[Event]) -> None:
        """LargeEventsExceeded, and nothing taken, when the large ones among the events find no room."""
        large: Counter[str | None] = Counter()
        for event in events:
            size = size_of(event)
            if size > LARGE:
                large[event.project] += size
        if not self._has_taken(stream, large, len(events)):
            raise LargeEventsExceeded(
                f"The stream {stream} has no room for more events of over {LARGE // 1024} KiB among its others.",
                hint="Send fewer of them, or shorter ones, or give the service more memory (limits.memory).",
                retry_after=60,
            )

    def takes_text(self, stream: str, project: str | None, size: int) -> bool:
        """Whether one text finds room, which is taken then."""
        return self._has_taken(stream, Counter({project: size} if size > LARGE else {}), 1)

    def _has_taken(self, stream: str, large: Counter[str | None], events: int) -> bool:
        if self._most_bytes is None:
            return True
        with self._turn:
            window = self._windows.setdefault(stream, _Window())
            if window.events >= _WINDOW:
                window = self._windows[stream] = _Window()
            has_room = window.large_bytes + large.total() <= self._most_bytes and all(
                window.by_project[project] + size <= self._most_bytes // _OF_ONE_PROJECT
                for project, size in large.items()
            )
            if has_room or not large:
                window.events += events
                window.large_bytes += large.total()
                window.by_project.update(large)
            return has_room or not large


UNBOUNDED: Final = LargeEvents(None)


def size_of(event: Event) -> int:
    """In characters, which is at most the bytes that were sent."""
    message, metadata, extras = event.event_message, event.metadata, event.extras
    return len(event.id) + len(message or "") + len(metadata or "") + len(extras or "")
