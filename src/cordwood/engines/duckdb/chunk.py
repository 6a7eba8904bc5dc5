"""Neighbouring events of a stream that go into a table together."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from operator import attrgetter

import duckdb
import msgspec

from cordwood.engines.duckdb import arrow
from cordwood.engines.duckdb.journal import Record
from cordwood.engines.duckdb.tables import LISTED, OF_ANY_EVENT
from cordwood.engines.object_paths import object_paths
from cordwood.model.event import Event

# From this many on it pays to hand columns over where they lie; a statement's parameters are ready sooner.
_MANY = 512
# A query that waits for events to be converted goes on after about as many.
_PIECE = 4_096

# The columns of an event as it stands, by their letters in `StreamTables.insert_events`.
_TEXTS = {"i": "id", "e": "event_message", "p": "project", "m": "metadata", "x": "extras"}

_encode = msgspec.json.Encoder().encode


class Chunk(msgspec.Struct):
    """`first` is the number of its first event in the stream; the others follow it without a gap."""

    first: int
    events: list[Event] = msgspec.field(default_factory=list)
    received_us: list[int] = msgspec.field(default_factory=list)

    @property
    def end(self) -> int:
        return self.first + len(self.events)

    def take(self, record: Record, count: int) -> None:
        self.events += record.events[:count]
        self.received_us += [event.received_us or record.received_us for event in record.events[:count]]

    def records(self, stream: str) -> list[Record]:
        """What the chunk was taken from, an event a record."""
        return [
            Record(stream, self.first + place, received, [event])
            for place, (event, received) in enumerate(zip(self.events, self.received_us, strict=True))
        ]

    def rest(self, first: int) -> "Chunk":
        """The events from this number on."""
        gone = max(0, first - self.first)
        return Chunk(self.first + gone, self.events[gone:], self.received_us[gone:])

    def clustered(self) -> "Chunk":
        """The same events as they are to lie in the file: what is asked of one project lies together."""
        times = [event.timestamp_us for event in self.events]
        projects = [event.project or "" for event in self.events]
        # In two steps, each by values of one kind: half the time that pairs take.
        order = sorted(range(len(times)), key=times.__getitem__)
        order.sort(key=projects.__getitem__)
        return Chunk(self.first, [self.events[place] for place in order], [self.received_us[place] for place in order])

    def insert(self, cursor: duckdb.DuckDBPyConnection, into: Callable[[str], str], **values: object) -> None:
        """All events with one statement: `into` makes it of the relation that has them, and `values` are its other ones."""
        if len(self.events) < _MANY:
            cursor.execute(into(LISTED), self._lists() | values)
            return
        with closing(self._columns()) as columns:
            cursor.register("incoming", columns)
            try:
                cursor.execute(into("incoming"), values)
            finally:
                cursor.unregister("incoming")

    def insert_mended(self, cursor: duckdb.DuckDBPyConnection, into: Callable[[str], str], **values: object) -> None:
        """As `insert`, for when nothing else is in the transaction: what cannot be read is mended."""
        try:
            self.insert(cursor, into, **values)
        except duckdb.Error as problem:
            if not is_about_a_value(problem):
                raise
            self.mend(cursor)
            self.insert(cursor, into, **values)

    def _lists(self) -> dict[str, object]:
        lists: dict[str, object] = {letter: self._texts(name) for letter, name in _TEXTS.items()}
        return lists | {
            "t": [event.timestamp_us for event in self.events],
            "r": self.received_us,
            "f": [event.timestamp_inferred for event in self.events],
            "o": [object_paths(event) for event in self.events],
            "n": list(range(self.first, self.end)),
        }

    def _columns(self) -> arrow.ArrowColumns:
        columns = {letter: arrow.texts(self._texts(name)) for letter, name in _TEXTS.items()}
        columns |= {
            "t": arrow.times([event.timestamp_us for event in self.events]),
            "r": arrow.times(self.received_us),
            "f": arrow.truths([event.timestamp_inferred for event in self.events]),
            "o": arrow.texts([object_paths(event) for event in self.events]),
            "n": arrow.numbers(range(self.first, self.end)),
        }
        return arrow.ArrowColumns(columns, len(self.events))

    def _texts(self, name: str) -> list[str | None]:
        return list(map(attrgetter(name), self.events))

    def mend(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Where the engine cannot read an event's JSON, keep it as text: the event stays, and so do the others."""
        for place, event in enumerate(self.events):
            if not (_is_readable(cursor, event.metadata) and _is_readable(cursor, event.extras)):
                self.events[place] = msgspec.structs.replace(
                    event, metadata=_as_text(event.metadata), extras=_encode({"unreadable": event.extras}).decode()
                )


def pieces(records: Iterable[Record], until: int) -> list[Chunk]:
    """The events below `until` as chunks, some thousands each."""
    made: list[Chunk] = []
    for record in records:
        if not made or made[-1].end != record.first or len(made[-1].events) >= _PIECE:
            made.append(Chunk(record.first))
        made[-1].take(record, until - record.first)
    return made


def text_bytes(events: Sequence[Event]) -> int:
    """About what the events take in memory."""
    return sum(
        OF_ANY_EVENT + len(event.event_message or "") + len(event.metadata or "") + len(event.extras or "")
        for event in events
    )


def is_about_a_value(problem: duckdb.Error) -> bool:
    return isinstance(problem, duckdb.ConversionException | duckdb.InvalidInputException)


def _is_readable(cursor: duckdb.DuckDBPyConnection, text: str | None) -> bool:
    try:
        cursor.execute("SELECT variant_typeof($text::JSON::VARIANT)", {"text": text}).fetchall()
    except duckdb.Error:
        return False
    return True


def _as_text(text: str | None) -> str | None:
    return None if text is None else _encode(text).decode()
