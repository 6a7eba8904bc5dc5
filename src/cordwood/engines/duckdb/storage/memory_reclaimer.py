"""Gives back what the process holds of memory and does not need: in times of quiet, and when it has become much."""

import threading
from collections import deque
from collections.abc import Callable

import duckdb

from cordwood.engines.duckdb.storage.allocator import heap_bytes, release_free_memory
from cordwood.engines.duckdb.storage.file_gate import URGENT, FileAccess
from cordwood.engines.duckdb.storage.session import Session

# Longer than between two looks, so that none who came between them is missed.
_REST_SECONDS = 6.0
# What the engine notes of row groups may grow by so much of its bound, beside that, before it has to forget it.
_GROWTH_SHARE = 12
# The least of so many looks is told apart from what is under way; and everybody is held up no more often.
_LOOKS = 6


class MemoryReclaimer:
    """`turn` is taken by whoever works on the file in the background. `held_bytes` is what events that wait take of the heap."""

    def __init__(self, session: Session, turn: threading.Lock, held_bytes: Callable[[], int]) -> None:
        self._session = session
        self._turn = turn
        self._held_bytes = held_bytes
        self._is_rested = False
        self._growth_bytes = session.memory_bytes // _GROWTH_SHARE
        self._first_bytes: int | None = None
        self._noted_bytes: int | None = None
        self._seen_bytes: deque[int] = deque(maxlen=_LOOKS)

    def stir(self) -> None:
        """Something was read or written that nobody asked for."""
        self._is_rested = False

    def look(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self.reopen_when_large(cursor)
        self.reclaim_when_quiet(cursor)

    def reclaim_when_quiet(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """What the engine keeps of the file is given back as long as nobody asks, whatever is stored or settled meanwhile;
        what queries and settling took, once in each time in which nothing is.
        """
        is_quiet = self._session.gate.idle_seconds >= _REST_SECONDS
        if is_quiet and self._is_rested:
            return
        self._is_rested = is_quiet
        self._release_unused_blocks(cursor)
        if is_quiet:
            release_free_memory()

    def reclaim_between_steps(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Of long work in the background: each step takes as much again."""
        self._release_unused_blocks(cursor)
        release_free_memory()

    def _release_unused_blocks(self, cursor: duckdb.DuckDBPyConnection) -> None:
        if self._session.gate.idle_seconds_of(FileAccess.QUERY) >= _REST_SECONDS:
            self._session.release_blocks(cursor)

    def reopen_when_large(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """How much is the engine's notes, nobody tells: what has come since the first look, and is there at each of six."""
        self._seen_bytes.append(self._in_use())
        if self._first_bytes is None:
            self._first_bytes = self._seen_bytes[0]
        if not self._session.is_open:
            self._forget(cursor)
        elif len(self._seen_bytes) == _LOOKS:
            in_use = min(self._seen_bytes)
            self._session.count_noted(cursor, max(0, in_use - self._first_bytes))
            if self._has_grown(in_use):
                self._forget(cursor)

    def _has_grown(self, in_use: int) -> bool:
        """Since it was forgotten; what is read all the time is there again at once."""
        if self._noted_bytes is None:
            self._noted_bytes = in_use
        return in_use > self._noted_bytes + self._growth_bytes

    def _in_use(self) -> int:
        """Always the same where it is not told."""
        found = heap_bytes()
        return 0 if found is None else found - self._held_bytes()

    def _forget(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._seen_bytes.clear()
        with self._turn, self._session.gate.exclusive(URGENT, throughout=True) as is_exclusive:
            is_forgotten = (is_exclusive or not self._session.is_open) and self._session.reopen(cursor)
        if is_forgotten:
            # Nothing is under way at this moment: what there is then is seen by the next looks.
            self._noted_bytes = None
            release_free_memory()
