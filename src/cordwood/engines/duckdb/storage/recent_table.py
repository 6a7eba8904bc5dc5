"""A stream's recent events once more, as texts in memory: a log page shows those, and nothing has to be put together."""

from contextlib import suppress
from typing import NamedTuple

import duckdb

from cordwood.engines.duckdb.storage.chunk import Chunk
from cordwood.engines.duckdb.storage.rows import first_row
from cordwood.engines.duckdb.storage.tables import StreamTables

# So many times as many as are wanted, and the oldest of them go.
_TOO_MANY = 1.5


class RecentTable:
    """A table of every event that is newer than some moment, flushed or not; or nothing, while it is not kept.

    The oldest of them may go at any time: whoever finds fewer than he wanted looks elsewhere. Everything but `flushed` is
    for whoever shows the stream's events.
    """

    def __init__(self, tables: StreamTables) -> None:
        # Every event below this number is in the table, if it is new enough.
        self.end = 0
        # How often the table was made anew: what a query was promised of one, it is not of the next.
        self.beginnings = 0
        self._tables = tables
        self._since_us: int | None = None
        self._most = self._rows = 0
        self._is_behind = False

    @property
    def is_kept(self) -> bool:
        return self._since_us is not None and not self._is_behind

    def begin(self, since_us: int, rows: int, most: int, end: int) -> None:
        """The table has been made of the flushed events that are newer than that, which are those below the number `end`."""
        self._since_us, self._rows, self._most, self.end = since_us, rows, most, end
        self._is_behind = False
        self.beginnings += 1

    def flushed(self, flushed_to: int) -> None:
        """For whoever has the stream's turn. What went to the file without coming here is not found any more."""
        self._is_behind = self._is_behind or self.end < flushed_to

    def is_too_much(self, pieces: list[Chunk]) -> bool:
        """A load that brings so many at once is not followed: to make texts of them would slow it down."""
        return sum(len(piece.events) for piece in pieces) > self._most // 2

    def add(self, piece: Chunk, cursor: duckdb.DuckDBPyConnection) -> None:
        """Events that follow each other, from `end` on."""
        piece.insert_mended(cursor, self._tables.insert_recent, since=self._since_us)
        self.end = piece.end
        self._rows += len(piece.events)
        if self._rows > self._most * _TOO_MANY:
            self._trim(cursor)

    def _trim(self, cursor: duckdb.DuckDBPyConnection) -> None:
        row = first_row(cursor, self._tables.time_of_newest(self._tables.recent), {"rank": self._most})
        if row is not None:
            self._since_us = int(row[0])
            cursor.execute(self._tables.trim_recent(), {"since": self._since_us})
        self._rows = self._most

    def drop_before(self, before_us: int, cursor: duckdb.DuckDBPyConnection) -> None:
        """What the stream does not keep is not kept here."""
        if self._since_us is not None and self._since_us < before_us:
            cursor.execute(self._tables.drop_recent_before(), {"before": before_us})

    def forget(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Whoever was about to look finds an empty table, or one to which nothing is added any more."""
        self._since_us = None
        if self._rows:
            self._rows = 0
            with suppress(duckdb.Error):
                cursor.execute(self._tables.empty_recent())


class RecentView(NamedTuple):
    """The cursor sees the stream's recent events as texts, for as long as they are the same table."""

    cursor: duckdb.DuckDBPyConnection
    recent: RecentTable
    beginning: int

    def has_held(self) -> bool:
        """To be asked when the rows have been fetched."""
        return self.recent.beginnings == self.beginning
