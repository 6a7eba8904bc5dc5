"""One stream's events in memory: converted when somebody asks for them before they are sealed."""

import duckdb
import msgspec

from cordwood.engines.duckdb.tables import StreamTables

# A part that has as many rows takes no more: a part goes when all of it is sealed.
_PART_ROWS = 8_192


class _Part(msgspec.Struct):
    """A table of neighbouring events."""

    number: int
    first: int
    end: int


class Hot:
    """Events that are in memory's tables and not sealed. No row is taken out of a table: it is hidden, then all goes.

    Everything but filling a table is for whoever has the stream's turn.
    """

    def __init__(self, tables: StreamTables) -> None:
        # Every event below this number that is not sealed is here.
        self.end = 0
        self._tables = tables
        self._parts: list[_Part] = []
        self._made = 0
        self._sealed_to = 0
        self._filling: _Part | None = None
        self._is_stale = False

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def begin(self, first: int, end: int, cursor: duckdb.DuckDBPyConnection) -> str:
        """The table to be filled with these events, none of which is in it; it stays at least until that is done."""
        part = self._parts[-1] if self._parts else None
        if part is None or part.end - part.first >= _PART_ROWS:
            self._made += 1
            part = _Part(self._made, first, end)
            cursor.execute(self._tables.create_hot_part(part.number))
            self._parts.append(part)
            self._is_stale = True
        part.end = end
        self._filling = part
        return self._tables.hot_part(part.number)

    def finish(self, *, filled: bool) -> None:
        if filled and self._filling is not None:
            self.end = self._filling.end
        self._filling = None

    def forget(self, sealed_to: int) -> None:
        """Everything below this number is in the file."""
        self._sealed_to = sealed_to
        self._is_stale = self._is_stale or any(part.first < sealed_to for part in self._parts)

    def refresh(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Let the views tell what is so; to be called before anybody looks."""
        if not self._is_stale:
            return
        stay = [part for part in self._parts if part.end > self._sealed_to or part is self._filling]
        cursor.execute(self._tables.create_hot([part.number for part in stay], self._sealed_to))
        cursor.execute(self._tables.create_view(with_hot=bool(stay)))
        gone = [part for part in self._parts if part not in stay]
        self._parts = stay
        self._is_stale = False
        for part in gone:
            cursor.execute(self._tables.drop_hot_part(part.number))
