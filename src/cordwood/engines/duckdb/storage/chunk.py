"""A chunk: consecutive events of one stream that are inserted into a table by one statement."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from operator import attrgetter

import duckdb
import msgspec

from cordwood.engines.duckdb.storage import arrow_stream
from cordwood.engines.duckdb.storage.tables import LISTED, OF_ANY_EVENT
from cordwood.engines.duckdb.storage.wal import WalRecord
from cordwood.engines.object_paths import object_paths
from cordwood.model.event import Event

# From this number of events on Arrow columns are faster than statement parameters.
_MANY = 512
# About the number of events that are converted while a query waits.
_PIECE = 4_096
# An event of more bytes counts as large; typical gateway events have two or three thousand bytes.
_LARGE = 8_192
_LARGE_OF_A_PIECE = 4 * 2**20
# The most bytes of large events in one flush.
MOST_LARGE_BYTES = 8 * 2**20

# The columns of an event that are inserted as texts, by their letters in `StreamTables.insert_events`.
_TEXTS = {"i": "id", "e": "event_message", "p": "project", "m": "metadata", "x": "extras"}

_encode = msgspec.json.Encoder().encode


class Chunk(msgspec.Struct):
    """Consecutive events; `first` is the sequence number of the first of them in the stream."""

    first: int
    events: list[Event] = msgspec.field(default_factory=list)
    received_us: list[int] = msgspec.field(default_factory=list)
    # The approximate bytes of its large events' texts.
    large_bytes: int = 0

    @property
    def end(self) -> int:
        return self.first + len(self.events)

    def take(self, record: WalRecord, count: int) -> None:
        self.events += record.events[:count]
        self.large_bytes += large_bytes(record.events[:count])
        self.received_us += [event.received_us or record.received_us for event in record.events[:count]]

    def room(self, events: Sequence[Event], most_large_bytes: int) -> int:
        """Return how many of these events fit within the bytes for large events; at least one if the chunk is empty.

        The engine converts some thousand rows at once and holds several copies of them meanwhile.
        """
        large = self.large_bytes
        for place, event in enumerate(events):
            size = large_bytes((event,))
            large += size
            if size and large > most_large_bytes and (place or self.events):
                return place
        return len(events)

    def records(self, stream: str) -> list[WalRecord]:
        """Return the events as log records of one event each."""
        return [
            WalRecord(stream, self.first + place, received, [event])
            for place, (event, received) in enumerate(zip(self.events, self.received_us, strict=True))
        ]

    def rest(self, first: int) -> "Chunk":
        """Return the events from this sequence number on."""
        gone = max(0, first - self.first)
        return Chunk(self.first + gone, self.events[gone:], self.received_us[gone:])

    def clustered(self) -> "Chunk":
        """Return the same events ordered by project and time, as they are stored in the file."""
        times = [event.timestamp_us for event in self.events]
        projects = [event.project or "" for event in self.events]
        # Two stable sorts by values of one type take half the time of one sort by pairs.
        order = sorted(range(len(times)), key=times.__getitem__)
        order.sort(key=projects.__getitem__)
        return Chunk(self.first, [self.events[place] for place in order], [self.received_us[place] for place in order])

    def insert(self, cursor: duckdb.DuckDBPyConnection, into: Callable[[str], str], **values: object) -> None:
        """Insert all events by one statement, which `into` builds from the source relation.

        `values` are its other parameters.
        """
        if len(self.events) < _MANY:
            cursor.execute(into(LISTED), self._lists() | values)
            return
        with closing(self._columns()) as columns:
            cursor.register("incoming", columns)
            try:
                cursor.execute(into("incoming"), values)
            finally:
                # In a failed transaction this fails as well and would hide the original error.
                with suppress(duckdb.TransactionException):
                    cursor.unregister("incoming")

    def insert_mended(self, cursor: duckdb.DuckDBPyConnection, into: Callable[[str], str], **values: object) -> None:
        """Insert as `insert` does, outside a transaction; store JSON that the engine cannot parse as text."""
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

    def _columns(self) -> arrow_stream.ArrowColumns:
        columns = {letter: arrow_stream.texts(self._texts(name)) for letter, name in _TEXTS.items()}
        columns |= {
            "t": arrow_stream.times([event.timestamp_us for event in self.events]),
            "r": arrow_stream.times(self.received_us),
            "f": arrow_stream.truths([event.timestamp_inferred for event in self.events]),
            "o": arrow_stream.texts([object_paths(event) for event in self.events]),
            "n": arrow_stream.numbers(range(self.first, self.end)),
        }
        return arrow_stream.ArrowColumns(columns, len(self.events))

    def _texts(self, name: str) -> list[str | None]:
        return list(map(attrgetter(name), self.events))

    def mend(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Replace JSON that the engine cannot parse by its text, so that all events can be stored."""
        for place, event in enumerate(self.events):
            if not (_is_readable(cursor, event.metadata) and _is_readable(cursor, event.extras)):
                self.events[place] = msgspec.structs.replace(
                    event, metadata=_as_text(event.metadata), extras=_encode({"unreadable": event.extras}).decode()
                )


def pieces(records: Iterable[WalRecord], until: int) -> list[Chunk]:
    """Split the events below `until` into chunks of some thousands of events or some megabytes each."""
    made: list[Chunk] = []
    for record in records:
        rest = record
        while rest.events and rest.first < until:
            if not made or made[-1].end != rest.first or len(made[-1].events) >= _PIECE:
                made.append(Chunk(rest.first))
            count = min(until - rest.first, made[-1].room(rest.events, _LARGE_OF_A_PIECE))
            if count:
                made[-1].take(rest, count)
                rest = rest.without(count)
            else:
                made.append(Chunk(rest.first))
    return made


def text_bytes(events: Sequence[Event]) -> int:
    """Estimate how many bytes the events take in memory."""
    return sum(map(_text_bytes, events))


def large_bytes(events: Sequence[Event]) -> int:
    """Estimate how many bytes the large ones among the events take in memory."""
    return sum(size for size in map(_text_bytes, events) if size > _LARGE)


def _text_bytes(event: Event) -> int:
    return OF_ANY_EVENT + len(event.event_message or "") + len(event.metadata or "") + len(event.extras or "")


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
