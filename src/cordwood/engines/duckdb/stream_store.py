"""One stream's events from the journal to the file: waiting as text, shown in memory, sealed in row groups."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

import duckdb

from cordwood.engines.duckdb.chunk import MOST_LARGE_BYTES, Chunk, large_bytes, pieces, text_bytes
from cordwood.engines.duckdb.hot import Hot
from cordwood.engines.duckdb.journal import Record
from cordwood.engines.duckdb.newest import Newest
from cordwood.engines.duckdb.pieces import list_block, new_block
from cordwood.engines.duckdb.rows import first_row
from cordwood.engines.duckdb.saved_projects import SavedProjects, Unsaved
from cordwood.engines.duckdb.session import ROW_GROUP_ROWS
from cordwood.engines.duckdb.tables import StreamTables
from cordwood.engines.duckdb.transaction import roll_back
from cordwood.engines.engine import StreamFacts
from cordwood.engines.project_shapes import ProjectShapes
from cordwood.model.event import Event
from cordwood.model.shape import Kinds, Path, Shape, ValueKind
from cordwood.model.stream import Stream


class OutOfTurnError(Exception):
    """Earlier events could not be sealed, so these may not be either."""


class StreamStore:
    """Events are numbered from the stream's beginning, and sealed in this order.

    Every event is in exactly one of three places: sealed, in a chunk that is being sealed, or waiting.
    `turn` guards all of them, and the moment in which a chunk goes from memory to the file. `showing` is for whoever
    puts events where queries see them, and is taken before `turn`.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.name = stream.name
        self.tables = StreamTables(stream.name)
        self.shape = Shape()
        self.tail = 0
        # About what the texts of events that are not yet sealed take.
        self.held_bytes = 0
        self._taken_bytes = self._taken_events = 0
        self._stored_bytes: float | None = None
        self.turn = threading.Condition(threading.RLock())
        self._waiting: deque[Record] = deque()
        self._waiting_large_bytes = 0
        self._in_flight: list[Chunk] = []
        self._hot = Hot(self.tables)
        self.newest = Newest(self.tables)
        self.showing = threading.Lock()
        # How often sealed events were dropped.
        self.drops = 0
        self._facts = StreamFacts(0, None, None)
        self._unsaved: dict[Path, frozenset[ValueKind]] = {}
        self.projects = ProjectShapes()
        self.saved_projects = SavedProjects(stream.name, self.projects)

    # What is known

    @property
    def waiting_rows(self) -> int:
        with self.turn:
            return sum(len(record.events) for record in self._waiting)

    @property
    def is_being_sealed(self) -> bool:
        with self.turn:
            return bool(self._in_flight)

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
        return not self._hot.is_empty

    @property
    def facts(self) -> StreamFacts:
        with self.turn:
            return self._facts

    def sealed_events(self, cursor: duckdb.DuckDBPyConnection) -> int:
        row = first_row(cursor, self.tables.rows())
        return int(row[0]) if row else 0

    def count_sealed(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Count what is in the file, beside what waits to go there."""
        with self.turn:
            events = self.sealed_events(cursor)
            # Of most streams there is nothing, and a start asks all of them.
            row = first_row(cursor, self.tables.newest_and_oldest()) if events else None
            self._facts = StreamFacts(events, *(row or (None, None)))
            for record in self._waiting:
                self._count(record.events)

    def text_bytes(self, cursor: duckdb.DuckDBPyConnection) -> float:
        """About what the texts of an event take: of those that came of late, or of some that are stored."""
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

    def unsealed_ids(self, first: int) -> set[str]:
        """The ids of events that are not sealed, from the number `first` on."""
        return {event.id for piece in self._unsealed(first, self.tail) for event in piece.events}

    # Adding

    def add(self, record: Record) -> None:
        with self.turn:
            self._count(record.events)
            self._waiting.append(record)
            self._waiting_large_bytes += large_bytes(record.events)
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

    # Showing

    def show(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Put every event that is here now and not sealed where queries see it; sealing and appending go on."""
        until = self.tail
        with self.showing:
            for piece in self._unsealed(self._hot.end, until):
                self._put_hot(piece, cursor)

    def show_newest(self, cursor: duckdb.DuckDBPyConnection) -> bool:
        """Whether every new enough event that is here now is kept as text; some may be lacking where too many came."""
        until = self.tail
        with self.showing:
            self._keep(until, cursor)
            return self.newest.is_kept

    def _keep(self, until: int, cursor: duckdb.DuckDBPyConnection) -> None:
        if not self.newest.is_kept:
            return
        pieces = self._unsealed(self.newest.end, until)
        try:
            if self.newest.is_too_much(pieces):
                self.newest.forget(cursor)
            else:
                for piece in pieces:
                    self.newest.add(piece, cursor)
        except duckdb.Error:
            # They are in the other places, too.
            self.newest.forget(cursor)

    def refresh(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Let the views tell what is so; `turn` must be held until the query has begun."""
        self._hot.refresh(cursor)

    def _unsealed(self, first: int, until: int) -> list[Chunk]:
        """What is not sealed, from the number `first` on, in pieces; of what waits only what is below `until`."""
        with self.turn:
            being_sealed = [chunk.rest(first) for chunk in self._in_flight if chunk.end > first]
            waiting = [record for record in self._waiting if first < record.end and record.first < until]
        found = being_sealed + pieces([record.without(max(0, first - record.first)) for record in waiting], until)
        return sorted(found, key=lambda piece: piece.first)

    def _put_hot(self, piece: Chunk, cursor: duckdb.DuckDBPyConnection) -> None:
        """It may be sealed before it is there: then nobody sees it here."""
        with self.turn:
            if piece.end <= self.sealed_to:
                return
            table = self._hot.begin(piece.first, piece.end, cursor)
        filled = False
        try:
            piece.insert_mended(cursor, partial(self.tables.insert_events, table, numbered=True))
            filled = True
        finally:
            with self.turn:
                self._hot.finish(filled=filled)

    # Sealing

    def take_chunk(
        self, *, whole_groups_only: bool, rows: int = ROW_GROUP_ROWS, most_large_bytes: int = MOST_LARGE_BYTES
    ) -> Chunk | None:
        """The oldest waiting events, at most so many, and so many bytes of large ones.

        With `whole_groups_only` none when there are less of both.
        """
        with self.turn:
            is_less = self.waiting_rows < rows and self._waiting_large_bytes < most_large_bytes
            if not self._waiting or (whole_groups_only and is_less):
                return None
            chunk = Chunk(self._waiting[0].first)
            while self._waiting and self._waiting[0].first == chunk.end and len(chunk.events) < rows:
                record = self._waiting[0]
                count = min(rows - len(chunk.events), chunk.room(record.events, most_large_bytes))
                if not count:
                    break
                self._move_into(chunk, count)
            self._in_flight.append(chunk)
            return chunk

    def _move_into(self, chunk: Chunk, count: int) -> None:
        record = self._waiting.popleft()
        chunk.take(record, count)
        self._waiting_large_bytes -= large_bytes(record.events[:count])
        if len(record.events) > count:
            self._waiting.appendleft(record.without(count))

    def give_back(self, chunk: Chunk) -> None:
        """The chunk could not be sealed: its events wait again, where they stood."""
        with self.turn:
            self._in_flight.remove(chunk)
            self._waiting_large_bytes += chunk.large_bytes
            self._waiting = deque(sorted([*chunk.records(self.name), *self._waiting], key=lambda record: record.first))
            self.turn.notify_all()

    def seal(self, chunk: Chunk, cursor: duckdb.DuckDBPyConnection) -> None:
        """Write the chunk into the file, once: its number range is kept in the same transaction."""
        if self.newest.is_kept:
            with self.showing:
                self._keep(chunk.end, cursor)
        unsaved, unsaved_projects = self._take_unsaved()
        cursor.execute("BEGIN")
        try:
            block = new_block(cursor)
            into = partial(self.tables.insert_events, self.tables.sealed, numbered=False)
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
        self.turn.wait_for(lambda: chunk.first == min(one.first for one in self._in_flight))
        if self.sealed_to != chunk.first:
            raise OutOfTurnError(f"Events of {self.name} from number {self.sealed_to} on could not be sealed.")

    def _forget(self, chunk: Chunk) -> None:
        self._in_flight.remove(chunk)
        self.held_bytes -= text_bytes(chunk.events)
        self._hot.forget(self.sealed_to)
        self.newest.sealed(self.sealed_to)
        self.turn.notify_all()

    def _let_go(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Free what is sealed now; where this fails, the next query does it."""
        with self.turn, suppress(duckdb.Error):
            self._hot.refresh(cursor)

    # Sweeping

    def sweep(self, now_us: int, cursor: duckdb.DuckDBPyConnection) -> int:
        """Drop the events that the stream no longer keeps; return how many went."""
        before_us = self._keeps_from_us(now_us, cursor)
        if before_us is None or (self.facts.oldest_us or now_us) >= before_us:
            return 0
        if self._waits(lambda record: any(event.timestamp_us < before_us for event in record.events)):
            self._seal_below(self.tail, cursor)
        return self.drop_before(before_us, cursor)

    def _seal_below(self, end: int, cursor: duckdb.DuckDBPyConnection) -> None:
        """Seal what waits now; what arrives meanwhile is not this sweep's, or it would never end."""
        while self._waits(lambda record: record.first < end):
            chunk = self.take_chunk(whole_groups_only=False)
            if chunk is not None:
                self._seal_or_give_back(chunk, cursor)

    def _waits(self, is_meant: Callable[[Record], bool]) -> bool:
        with self.turn:
            return any(map(is_meant, self._waiting))

    def drop_before(self, before_us: int, cursor: duckdb.DuckDBPyConnection) -> int:
        """Drop what is sealed and older; its space is free after the next checkpoint."""
        row = first_row(cursor, self.tables.delete_before(), {"before": before_us})
        with self.showing:
            # Whoever reads them from the file now has not seen that they went.
            self.drops += 1
            self.newest.drop_before(before_us, cursor)
        gone = int(row[0]) if row else 0
        if gone:
            self.count_sealed(cursor)
        return gone

    def _seal_or_give_back(self, chunk: Chunk, cursor: duckdb.DuckDBPyConnection) -> None:
        try:
            self.seal(chunk, cursor)
        except BaseException:
            self.give_back(chunk)
            raise

    def _keeps_from_us(self, now_us: int, cursor: duckdb.DuckDBPyConnection) -> int | None:
        bounds = []
        if self.stream.retention_seconds is not None:
            bounds.append(now_us - round(self.stream.retention_seconds * 1e6))
        most = self.stream.max_events
        if most is not None and self.facts.events > most:
            # What waits to be sealed is the newest, and counts too.
            row = first_row(cursor, self.tables.time_of_newest(), {"rank": max(1, most - self.waiting_rows)})
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
