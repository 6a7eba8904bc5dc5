"""Makes the macros of redaction when the first redacted question of a mode comes: making them all takes a third of a second."""

from collections.abc import Callable
from threading import Lock

import duckdb

from cordwood.engines.duckdb.redaction import macros
from cordwood.model.redaction import Redacting, RedactMode


class Hiding:
    """Safe from several threads. `cursor` gives a connection of the caller's own."""

    def __init__(self, cursor: Callable[[], duckdb.DuckDBPyConnection], redacting: Redacting) -> None:
        self._cursor = cursor
        self._redacting = redacting
        self._lock = Lock()
        self._made: set[RedactMode] = set()

    def make(self, mode: RedactMode) -> None:
        with self._lock:
            if mode in self._made:
                return
            with self._cursor() as cursor:
                for statement in macros(self._redacting.rules, self._redacting.key, mode):
                    cursor.execute(statement)
            self._made.add(mode)
