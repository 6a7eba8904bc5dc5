"""The events of one stream from the log to the file: pending, in the memtable, being flushed, flushed."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

import duckdb

from cordwood.engines.duckdb.storage.chunk import MOST_LARGE_BYTES, Chunk, large_bytes, pieces, text_bytes
from cordwood.engines.duckdb.storage.lock_order import Rank, ordered_condition, ordered_lock
from cordwood.engines.duckdb.storage.memtable import Memtable
from cordwood.engines.duckdb.storage.ngram_index import list_block, new_block
from cordwood.engines.duckdb.storage.recent_table import RecentTable
from cordwood.engines.duckdb.storage.rows import first_row
from cordwood.engines.duckdb.storage.saved_projects import SavedProjects, Unsaved
from cordwood.engines.duckdb.storage.session import ROW_GROUP_ROWS
from cordwood.engines.duckdb.storage.tables import StreamTables
from cordwood.engines.duckdb.storage.transaction import roll_back
from cordwood.engines.duckdb.storage.wal import WalRecord
from cordwood.engines.engine import StreamFacts
from cordwood.engines.project_shapes import ProjectShapes
from cordwood.model.event import Event
from cordwood.model.shape import Kinds, Path, Shape, ValueKind
from cordwood.model.stream import Stream


class OutOfOrderError(Exception):
    """Raised if earlier events could not be flushed: flushes of a stream commit in order."""


class StreamStore:
    """The events of one stream; they have consecutive sequence numbers and are flushed in this order.

    Every event is in exactly one of three states: pending, in a chunk that is being flushed, or flushed. `turn` guards
    all three, and the commit that moves a chunk into the file. `showing` guards the filling of the memtable and of the
    recent table, and is taken before `turn`.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.name = stream.name
        self.tables = StreamTables(stream.name)
        self.shape = Shape()
        self.tail = 0
        # The approximate bytes of the texts of events that are not flushed yet.
        self.held_bytes = 0
        self._taken_bytes = self._taken_events = 0
        self._stored_bytes: float | None = None
        self.turn = ordered_condition(Rank.STREAM)
        self._pending: deque[WalRecord] = deque()
        self._pending_large_bytes = 0
        self._flushing: list[Chunk] = []
        self._memtable = Memtable(self.tables)
        self.recent = RecentTable(self.tables)
        self.showing = ordered_lock(Rank.SHOWING)
        # How often flushed events were deleted.
        self.drops = 0
        self._facts = StreamFacts(0, None, None)
        self._unsaved: dict[Path, frozenset[ValueKind]] = {}
        self.projects = ProjectShapes()
        self.saved_projects = SavedProjects(stream.name, self.projects)

    # State

    @property
    def pending_rows(self) -> int:
        with self.turn:
            return sum(len(record.events) for record in self._pending)

    @property
    def is_flushing(self) -> bool:
        with self.turn:
            return bool(self._flushing)

    @property
    def flushed_to(self) -> int:
        """The sequence number below which every event is flushed."""
        with self.turn:
            starts = [chunk.first for chunk in self._flushing]
            starts += [record.first for record in self._pending]
            return min(starts, default=self.tail)

    @property
    def oldest_pending_us(self) -> int | None:
        with self.turn:
            return self._pending[0].received_us if self._pending else None

    @property
    def has_memtable(self) -> bool:
        return not self._memtable.is_empty

    @property
    def facts(self) -> StreamFacts:
        with self.turn:
            return self._facts

    def stored_events(self, cursor: duckdb.DuckDBPyConnection) -> int:
        row = first_row(cursor, self.tables.rows())
        return int(row[0]) if row else 0

    def count_stored(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Count the events in the file and those that are pending."""
        with self.turn:
            events = self.stored_events(cursor)
            # Empty streams are common, and each start counts all of them.
            row = first_row(cursor, self.tables.newest_and_oldest()) if events else None
            self._facts = StreamFacts(events, *(row or (None, None)))
            for record in self._pending:
                self._count(record.events)

    def text_bytes(self, cursor: duckdb.DuckDBPyConnection) -> float:
        """Estimate the bytes of an event's texts, from recent events or from a sample of the stored ones."""
        if self._taken_events:
            return self._taken_bytes / self._taken_events
        if self._stored_bytes is None:
            row = first_row(cursor, self.tables.text_bytes())
            self._stored_bytes = float(row[0] or 0) if row else 0.0
        return self._stored_bytes

    def _count(self, events: Sequence[Event]) -> None:
        times = [event.timestamp_us for event in events]
        known = self._facts
        self._facts = StreamFacts(
            known.events + len(events),
            max(filter(None, (known.newest_us, *times)), default=None),
            min(filter(None, (known.oldest_us, *times)), default=None),
        )

    def unflushed_ids(self, first: int) -> set[str]:
        """Return the ids of unflushed events from the sequence number `first` on."""
        return {event.id for piece in self._unflushed(first, self.tail) for event in piece.events}

    # Adding

    def add(self, record: WalRecord) -> None:
        with self.turn:
            self._count(record.events)
            self._pending.append(record)
            self._pending_large_bytes += large_bytes(record.events)
            taken = text_bytes(record.events)
            self.held_bytes += taken
            self._taken_bytes += taken
            self._taken_events += len(record.events)
            self.tail = record.end
            self.learn(dict(record.learnt))
            for project, kinds in record.by_project:
                self.projects.learn(project, dict(kinds))
                self.saved_projects.changed([project])

    def learn(self, learnt: Kinds) -> None:
        if not learnt:
            return
        with self.turn:
            self.shape = self.shape.with_learnt(learnt)
            for path, kinds in learnt.items():
                self._unsaved[path] = self._unsaved.get(path, frozenset()) | kinds

    # Making events visible to queries

    def show(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Put every pending event into the memtable; flushes and appends continue meanwhile."""
        until = self.tail
        with self.showing:
            for piece in self._unflushed(self._memtable.end, until):
                self._fill_memtable(piece, cursor)

    def refresh_recent(self, cursor: duckdb.DuckDBPyConnection) -> bool:
        """Update the recent table; return whether it is maintained."""
        until = self.tail
        with self.showing:
            self._keep(until, cursor)
            return self.recent.is_kept

    def _keep(self, until: int, cursor: duckdb.DuckDBPyConnection) -> None:
        if not self.recent.is_kept:
            return
        pieces = self._unflushed(self.recent.end, until)
        try:
            if self.recent.is_too_much(pieces):
                self.recent.forget(cursor)
            else:
                for piece in pieces:
                    self.recent.add(piece, cursor)
        except duckdb.Error:
            # A failure loses nothing: the events are in the memtable or the file as well.
            self.recent.forget(cursor)

    def refresh(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Update the views; hold `turn` until the query has begun."""
        self._memtable.refresh(cursor)

    def _unflushed(self, first: int, until: int) -> list[Chunk]:
        """Return the unflushed events from the number `first` on; pending ones only below `until`."""
        with self.turn:
            being_flushed = [chunk.rest(first) for chunk in self._flushing if chunk.end > first]
            waiting = [record for record in self._pending if first < record.end and record.first < until]
        found = being_flushed + pieces([record.without(max(0, first - record.first)) for record in waiting], until)
        return sorted(found, key=lambda piece: piece.first)

    def _fill_memtable(self, piece: Chunk, cursor: duckdb.DuckDBPyConnection) -> None:
        """Insert the events into the memtable; the view hides those that are flushed meanwhile."""
        with self.turn:
            if piece.end <= self.flushed_to:
                return
            table = self._memtable.begin(piece.first, piece.end, cursor)
        filled = False
        try:
            piece.insert_mended(cursor, partial(self.tables.insert_events, table, numbered=True))
            filled = True
        finally:
            with self.turn:
                self._memtable.finish(filled=filled)

    # Flushing

    def take_chunk(
        self, *, whole_groups_only: bool, rows: int = ROW_GROUP_ROWS, most_large_bytes: int = MOST_LARGE_BYTES
    ) -> Chunk | None:
        """Take the oldest pending events for a flush, within a number of rows and of bytes of large events.

        With `whole_groups_only` return None if there are fewer of both.
        """
        with self.turn:
            is_less = self.pending_rows < rows and self._pending_large_bytes < most_large_bytes
            if not self._pending or (whole_groups_only and is_less):
                return None
            chunk = Chunk(self._pending[0].first)
            while self._pending and self._pending[0].first == chunk.end and len(chunk.events) < rows:
                record = self._pending[0]
                count = min(rows - len(chunk.events), chunk.room(record.events, most_large_bytes))
                if not count:
                    break
                self._move_into(chunk, count)
            self._flushing.append(chunk)
            return chunk

    def _move_into(self, chunk: Chunk, count: int) -> None:
        record = self._pending.popleft()
        chunk.take(record, count)
        self._pending_large_bytes -= large_bytes(record.events[:count])
        if len(record.events) > count:
            self._pending.appendleft(record.without(count))

    def give_back(self, chunk: Chunk) -> None:
        """Return the events of a chunk that could not be flushed to the pending ones."""
        with self.turn:
            self._flushing.remove(chunk)
            self._pending_large_bytes += chunk.large_bytes
            self._pending = deque(sorted([*chunk.records(self.name), *self._pending], key=lambda record: record.first))
            self.turn.notify_all()

    def flush(self, chunk: Chunk, cursor: duckdb.DuckDBPyConnection) -> None:
        """Write the chunk into the file exactly once: its range of numbers is stored in the same transaction."""
        if self.recent.is_kept:
            with self.showing:
                self._keep(chunk.end, cursor)
        unsaved, unsaved_projects = self._take_unsaved()
        cursor.execute("BEGIN")
        try:
            block = new_block(cursor)
            into = partial(self.tables.insert_events, self.tables.table, numbered=False)
            chunk.clustered().insert(cursor, into, block=block)
            list_block(cursor, self.tables, block)
            cursor.execute(
                "INSERT INTO store.cordwood.sealed VALUES ($stream, $first, $last)",
                {"stream": self.name, "first": chunk.first, "last": chunk.end},
            )
            self._save_shape(cursor, unsaved)
            self.saved_projects.save(cursor, unsaved_projects)
            with self.turn:
                self._wait_for_those_before(chunk)
                cursor.execute("COMMIT")
                self._forget(chunk)
        except BaseException:
            roll_back(cursor)
            self.learn(unsaved)
            with self.turn:
                self.saved_projects.give_back(unsaved_projects)
            raise
        self._let_go(cursor)

    def _wait_for_those_before(self, chunk: Chunk) -> None:
        self.turn.wait_for(lambda: chunk.first == min(one.first for one in self._flushing))
        if self.flushed_to != chunk.first:
            raise OutOfOrderError(f"Events of {self.name} from number {self.flushed_to} on could not be flushed.")

    def _forget(self, chunk: Chunk) -> None:
        self._flushing.remove(chunk)
        self.held_bytes -= text_bytes(chunk.events)
        self._memtable.forget(self.flushed_to)
        self.recent.flushed(self.flushed_to)
        self.turn.notify_all()

    def _let_go(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Drop memtables that are flushed; if this fails, the next query does so."""
        with self.turn, suppress(duckdb.Error):
            self._memtable.refresh(cursor)

    # Retention

    def sweep(self, now_us: int, cursor: duckdb.DuckDBPyConnection) -> int:
        """Delete events beyond the stream's retention; return how many were deleted."""
        before_us = self._keeps_from_us(now_us, cursor)
        if before_us is None or (self.facts.oldest_us or now_us) >= before_us:
            return 0
        if self._waits(lambda record: any(event.timestamp_us < before_us for event in record.events)):
            self._flush_below(self.tail, cursor)
        return self.drop_before(before_us, cursor)

    def _flush_below(self, end: int, cursor: duckdb.DuckDBPyConnection) -> None:
        """Flush the events that are pending now, and none that arrive meanwhile."""
        while self._waits(lambda record: record.first < end):
            chunk = self.take_chunk(whole_groups_only=False)
            if chunk is not None:
                self._flush_or_give_back(chunk, cursor)

    def _waits(self, is_meant: Callable[[WalRecord], bool]) -> bool:
        with self.turn:
            return any(map(is_meant, self._pending))

    def drop_before(self, before_us: int, cursor: duckdb.DuckDBPyConnection) -> int:
        """Delete flushed events older than that; a later checkpoint frees their space."""
        row = first_row(cursor, self.tables.delete_before(), {"before": before_us})
        with self.showing:
            # A concurrent fill of the recent table has not seen the deletion.
            self.drops += 1
            self.recent.drop_before(before_us, cursor)
        gone = int(row[0]) if row else 0
        if gone:
            self.count_stored(cursor)
        return gone

    def _flush_or_give_back(self, chunk: Chunk, cursor: duckdb.DuckDBPyConnection) -> None:
        try:
            self.flush(chunk, cursor)
        except BaseException:
            self.give_back(chunk)
            raise

    def _keeps_from_us(self, now_us: int, cursor: duckdb.DuckDBPyConnection) -> int | None:
        bounds = []
        if self.stream.retention_seconds is not None:
            bounds.append(now_us - round(self.stream.retention_seconds * 1e6))
        most = self.stream.max_events
        if most is not None and self.facts.events > most:
            # Events that are not in the file are the newest and count as well; the lock prevents a flush meanwhile.
            with self.turn:
                rank = max(1, most - (self.tail - self.flushed_to))
                row = first_row(cursor, self.tables.time_of_newest(), {"rank": rank})
            bounds += row or []
        return max(bounds, default=None)

    def _take_unsaved(self) -> tuple[Kinds, Unsaved]:
        with self.turn:
            unsaved, self._unsaved = self._unsaved, {}
            return unsaved, self.saved_projects.take()

    def _save_shape(self, cursor: duckdb.DuckDBPyConnection, unsaved: Kinds) -> None:
        rows = [(list(path), str(kind)) for path, kinds in unsaved.items() for kind in kinds]
        if rows:
            cursor.execute(
                "INSERT INTO store.cordwood.shape SELECT $stream, unnest($paths), unnest($kinds)",
                {"stream": self.name, "paths": [path for path, _ in rows], "kinds": [kind for _, kind in rows]},
            )


def held_bytes(stores: Iterable[StreamStore]) -> int:
    return sum(store.held_bytes for store in stores)
