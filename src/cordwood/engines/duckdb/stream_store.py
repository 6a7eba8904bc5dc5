"""One stream's events from the journal to the file: waiting as text, shown in memory, sealed in row groups."""

import threading
from collections import deque
from collections.abc import Sequence

import duckdb

from cordwood.engines.duckdb.chunk import Chunk, is_about_a_value, text_bytes
from cordwood.engines.duckdb.journal import Record
from cordwood.engines.duckdb.session import ROW_GROUP_ROWS
from cordwood.engines.duckdb.tables import StreamTables
from cordwood.engines.engine import StreamFacts
from cordwood.model.event import Event
from cordwood.model.shape import Kinds, Path, Shape, ValueKind
from cordwood.model.stream import Stream


class StreamStore:
    """Events are numbered from the stream's beginning; those below `hot_end` and not sealed are in memory tables.

    Every event is in exactly one of three places: sealed, in a chunk that is being sealed, or waiting.
    `turn` guards all of them, and the moment in which a chunk goes from memory to the file.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.name = stream.name
        self.tables = StreamTables(stream.name)
        self.shape = Shape()
        self.tail = 0
        # About what the texts of events that are not yet sealed take.
        self.held_bytes = 0
        self.turn = threading.Condition(threading.RLock())
        self._waiting: deque[Record] = deque()
        self._in_flight: list[Chunk] = []
        self._hot_first = 0
        self._hot_end = 0
        self._facts = StreamFacts(0, None, None)
        self._unsaved: dict[Path, frozenset[ValueKind]] = {}

    # What is known
        self._taken_bytes = self._taken_events = 0

    @property
    def waiting_rows(self) -> int:
        with self.turn:
            return sum(len(record.events) for record in self._waiting)

    @property
    def sealed_to(self) -> int:
        """Every event below this number is sealed."""
        with self.turn:
            starts = [chunk.first for chunk in self._in_flight]
            starts += [record.first for record in self._waiting]
            return min(starts, default=self.tail)

    @property
    def oldest_waiting_us(self) -> int | None:
        with self.turn:
            return self._waiting[0].received_us if self._waiting else None

    @property
    def has_hot(self) -> bool:
        return self._hot_end > self._hot_first

    @property
    def facts(self) -> StreamFacts:
        with self.turn:
            return self._facts

    def count_sealed(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Count what is in the file, beside what waits to go there."""
        with self.turn:
            row = cursor.execute(self.tables.count_sealed()).fetchone()
            events, newest, oldest = row or (0, None, None)
            self._facts = StreamFacts(events, newest, oldest)
            for record in self._waiting:
                self._count(record.events)

    def _count(self, events: Sequence[Event]) -> None:
        times = [event.timestamp_us for event in events]
        known = self._facts
        self._facts = StreamFacts(
            known.events + len(events),
            max(filter(None, (known.newest_us, *times)), default=None),
            min(filter(None, (known.oldest_us, *times)), default=None),
        )

    def size(self, cursor: duckdb.DuckDBPyConnection) -> int:
        """The blocks of the file that hold its events, those shared with other streams whole, and what waits.

        What is sealed and not yet in blocks of the file is taken to be as large as events were of late.
        """
        in_blocks, rows = cursor.execute(self.tables.size(), {"table": self.tables.sealed}).fetchone() or (0, 0)
        in_log = int(rows) * self._taken_bytes // max(1, self._taken_events)
        return int(in_blocks) + in_log + self.held_bytes

    # Adding

    def add(self, record: Record) -> None:
        with self.turn:
            self._count(record.events)
            self._waiting.append(record)
            taken = text_bytes(record.events)
            self.held_bytes += taken
            self._taken_bytes += taken
            self._taken_events += len(record.events)
            self.tail = record.end
            self.learn(dict(record.learnt))

    def learn(self, learnt: Kinds) -> None:
        if not learnt:
            return
        with self.turn:
            self.shape = self.shape.with_learnt(learnt)
            for path, kinds in learnt.items():
                self._unsaved[path] = self._unsaved.get(path, frozenset()) | kinds

    # Showing

    def show(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Make every event visible to the queries that begin while `turn` is held; `turn` must be held."""
        while self._hidden_in_flight():
            self.turn.wait()
        waiting = [self._rest(record) for record in self._waiting if record.end > self._hot_end]
        if not waiting:
            return
        chunk = Chunk(waiting[0].first)
        for record in waiting:
            chunk.take(record, len(record.events))
        if not self.has_hot:
            self._hot_first = chunk.first
        self._insert_hot(chunk, cursor)
        if self._hot_first == chunk.first:
            cursor.execute(self.tables.create_view(with_hot=True))
        self._hot_end = chunk.end

    def _insert_hot(self, chunk: Chunk, cursor: duckdb.DuckDBPyConnection) -> None:
        statement = self.tables.insert_events(self.tables.hot)
        try:
            chunk.insert(cursor, statement)
        except duckdb.Error as problem:
            if not is_about_a_value(problem):
                raise
            chunk.mend(cursor)
            chunk.insert(cursor, statement)

    def _hidden_in_flight(self) -> bool:
        return any(not (self._hot_first <= one.first and one.end <= self._hot_end) for one in self._in_flight)

    def _rest(self, record: Record) -> Record:
        return record if record.first >= self._hot_end else _cut(record, self._hot_end - record.first)

    # Sealing

    def take_chunk(self, *, whole_groups_only: bool) -> Chunk | None:
        """The oldest waiting events, at most a row group; with `whole_groups_only` none when there are fewer."""
        with self.turn:
            if not self._waiting or (whole_groups_only and self.waiting_rows < ROW_GROUP_ROWS):
                return None
            chunk = Chunk(self._waiting[0].first)
            while self._waiting and len(chunk.events) < ROW_GROUP_ROWS:
                self._move_into(chunk)
            self._in_flight.append(chunk)
            return chunk

    def _move_into(self, chunk: Chunk) -> None:
        record = self._waiting.popleft()
        room = ROW_GROUP_ROWS - len(chunk.events)
        chunk.take(record, room)
        if len(record.events) > room:
            self._waiting.appendleft(_cut(record, room))

    def give_back(self, chunk: Chunk) -> None:
        """The chunk could not be sealed: its events wait again, where they stood."""
        with self.turn:
            self._in_flight.remove(chunk)
            self._waiting = deque(sorted([*chunk.records(self.name), *self._waiting], key=lambda record: record.first))
            self.turn.notify_all()

    def seal(self, chunk: Chunk, cursor: duckdb.DuckDBPyConnection) -> None:
        """Write the chunk into the file, once: its number range is kept in the same transaction."""
        unsaved = self._take_unsaved()
        cursor.execute("BEGIN")
        try:
            chunk.clustered().insert(cursor, self.tables.insert_events(self.tables.sealed))
            cursor.execute(
                "INSERT INTO store.cordwood.sealed VALUES ($stream, $first, $last)",
                {"stream": self.name, "first": chunk.first, "last": chunk.end},
            )
            self._save_shape(cursor, unsaved)
            with self.turn:
                cursor.execute("COMMIT")
                self._forget(chunk, cursor)
        except BaseException:
            _roll_back(cursor)
            self.learn(unsaved)
            raise

    # Sweeping

    def sweep(self, now_us: int, cursor: duckdb.DuckDBPyConnection) -> int:
        """Drop the events that the stream no longer keeps; return how many went."""
        before_us = self._keeps_from_us(now_us, cursor)
        if before_us is None or (self.facts.oldest_us or now_us) >= before_us:
            return 0
        while chunk := self.take_chunk(whole_groups_only=False):
            self.seal(chunk, cursor)
        row = cursor.execute(self.tables.delete_before(), {"before": before_us}).fetchone()
        gone = int(row[0]) if row else 0
        if gone:
            self.count_sealed(cursor)
        return gone

    def _keeps_from_us(self, now_us: int, cursor: duckdb.DuckDBPyConnection) -> int | None:
        bounds = []
        if self.stream.retention_seconds is not None:
            bounds.append(now_us - round(self.stream.retention_seconds * 1e6))
        most = self.stream.max_events
        if most is not None and self.facts.events > most:
            row = cursor.execute(self.tables.time_of_newest(), {"rank": most}).fetchone()
            bounds += row or []
        return max(bounds, default=None)

    def _take_unsaved(self) -> Kinds:
        with self.turn:
            unsaved, self._unsaved = self._unsaved, {}
            return unsaved

    def _save_shape(self, cursor: duckdb.DuckDBPyConnection, unsaved: Kinds) -> None:
        rows = [(list(path), str(kind)) for path, kinds in unsaved.items() for kind in kinds]
        if rows:
            cursor.execute(
                "INSERT INTO store.cordwood.shape SELECT $stream, unnest($paths), unnest($kinds)",
                {"stream": self.name, "paths": [path for path, _ in rows], "kinds": [kind for _, kind in rows]},
            )

    def _forget(self, chunk: Chunk, cursor: duckdb.DuckDBPyConnection) -> None:
        self._in_flight.remove(chunk)
        self.held_bytes -= text_bytes(chunk.events)
        if self.has_hot and self._hot_first < chunk.end and chunk.first < self._hot_end:
            cursor.execute(self.tables.create_view(with_hot=False))
            cursor.execute(self.tables.create_empty_hot())
            self._hot_first = self._hot_end = 0
        self.turn.notify_all()


def _cut(record: Record, count: int) -> Record:
    """The record without its first events."""
    return Record(record.stream, record.first + count, record.received_us, record.events[count:])


def _roll_back(cursor: duckdb.DuckDBPyConnection) -> None:
    try:
        cursor.execute("ROLLBACK")
    except duckdb.Error:
        return
