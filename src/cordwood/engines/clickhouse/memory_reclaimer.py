"""Return freed memory to the operating system: while events are loaded, and once when the engine is idle.

Texts of events are freed by one thread in blocks of another, which the allocators keep: after a load a process held
250 MB more than before it.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from cordwood.engines.clickhouse.session import Session
from cordwood.engines.free_memory import trim_heap

_IDLE_SECONDS: Final = 6.0
# The characters of inserted events after which memory is returned during a load; it takes milliseconds.
_CHARACTERS: Final = 64 << 20

# The in-process engine has an allocator of its own.
_PURGE: Final = "SYSTEM JEMALLOC PURGE"


class MemoryReclaimer:
    """The decisions when to return memory; safe from several threads."""

    def __init__(self, session: Session, clock: Callable[[], float] = time.monotonic) -> None:
        self._session = session
        self._clock = clock
        self._lock = threading.Lock()
        self._active_at = clock()
        self._is_reclaimed = True
        self._inserted_characters = 0

    def mark_active(self) -> None:
        """Record that a query runs."""
        self._active_at = self._clock()
        self._is_reclaimed = False

    def mark_inserted(self, characters: int) -> None:
        """Record an insert of that many characters."""
        self.mark_active()
        with self._lock:
            self._inserted_characters += characters
            is_due = self._inserted_characters >= _CHARACTERS
            if is_due:
                self._inserted_characters = 0
        if is_due:
            trim_heap()

    def reclaim_when_idle(self) -> None:
        """Return memory once after each activity."""
        if self._is_reclaimed or self._clock() - self._active_at < _IDLE_SECONDS:
            return
        self._is_reclaimed = True
        trim_heap()
        if self._session.is_in_process:
            self._session.command(_PURGE)
