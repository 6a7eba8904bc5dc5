"""A chunk of consecutive events of one stream, which one statement inserts into a table."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from operator import attrgetter

import duckdb
import msgspec

from cordwood.engines.duckdb.storage import arrow_stream
from cordwood.engines.duckdb.storage.tables import EVENT_MEMORY_OVERHEAD_BYTES, EVENTS_FROM_PARAMETERS_SQL
from cordwood.engines.duckdb.storage.wal import WalRecord
from cordwood.model.event import Event, EventShape, encode_object_paths

# A chunk with at least this many events is passed to DuckDB as Arrow columns, which is then faster than passing the
# events as parameters of the statement.
_MIN_ARROW_EVENTS = 512
# The approximate maximum number of events, and of their bytes, in one INSERT. They are small, because queries have to
# wait until an INSERT has ended.
_CHUNK_EVENTS, _CHUNK_BYTES = 4_096, 8 * 2**20
# The maximum number of keys and elements in the JSON of a chunk with more than one event. It limits the time for which
# queries have to wait, because DuckDB converts 2,048 rows at a time, and cannot be interrupted meanwhile. Converting a
# distinct key takes 2 µs, or 4 µs if there are 300,000 distinct keys.
_MAX_CHUNK_JSON_MEMBERS = 150_000
# An event with more bytes than this counts as large. Typical events of HTTP gateways have 2,000 to 3,000 bytes.
_MIN_LARGE_EVENT_BYTES = 8_192
_MAX_CHUNK_LARGE_EVENT_BYTES = 4 * 2**20
# The maximum total bytes of the large events in one flush.
MAX_FLUSHED_LARGE_EVENT_BYTES = 8 * 2**20

# The columns of an event that are inserted as texts, by the single letters that `StreamTableStatements.insert_events`
# uses as their names.
_TEXT_COLUMN_BY_PARAMETER_NAME = {"i": "id", "e": "event_message", "p": "project", "m": "metadata", "x": "extras"}

# A tree of field names: each field of an object, with the fields of the objects that occur as its values.
_FieldTree = dict[str, "_FieldTree"]

_encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder().decode


class EventChunk(msgspec.Struct):
    """A chunk of consecutive events of one stream; `first_event_number` is the sequence number of the first event."""

    first_event_number: int
    events: list[Event] = msgspec.field(default_factory=list)
    received_us: list[int] = msgspec.field(default_factory=list)
    # The approximate bytes of the large events' texts.
    large_event_bytes: int = 0

    @property
    def end_event_number(self) -> int:
        return self.first_event_number + len(self.events)

    def add_events(self, record: WalRecord, count: int) -> None:
        self.events += record.events[:count]
        self.large_event_bytes += estimate_large_event_bytes(record.events[:count])
        # An imported event keeps its original receive time. The other events get the receive time of the record, plus
        # one microsecond for each event before them in the record.
        times = enumerate(record.events[:count], start=record.received_us)
        self.received_us += [
            received_us if event.received_us is None else event.received_us for received_us, event in times
        ]

    def count_fitting_events(self, events: Sequence[Event], max_large_bytes: int) -> int:
        """Return how many of `events` can be added without exceeding `max_large_bytes` bytes of large events.

        An empty chunk can always take one event. The limit is needed, because DuckDB converts some thousand rows at
        once, and holds several copies of them in memory.
        """
        total_large_bytes = self.large_event_bytes
        for position, event in enumerate(events):
            size = estimate_large_event_bytes((event,))
            total_large_bytes += size
            if size and total_large_bytes > max_large_bytes and (position or self.events):
                return position
        return len(events)

    def to_wal_records(self, stream: str) -> list[WalRecord]:
        """Return the events as records of the write-ahead log, with one event in each record."""
        return [
            WalRecord(stream, self.first_event_number + offset, received, [event])
            for offset, (event, received) in enumerate(zip(self.events, self.received_us, strict=True))
        ]

    def events_from_number(self, first: int) -> "EventChunk":
        """Return the part of the chunk from the sequence number `first` on."""
        return self._slice(max(0, first - self.first_event_number), len(self.events))

    def split_for_insert(self) -> Iterator["EventChunk"]:
        """Yield the same events in chunks that are small enough for DuckDB to insert each of them quickly."""
        start = size = parts = 0
        for position, event in enumerate(self.events):
            event_bytes, event_parts = _event_bytes(event), _estimate_json_member_count(event)
            size += event_bytes
            parts += event_parts
            is_full = position - start >= _CHUNK_EVENTS or size > _CHUNK_BYTES or parts > _MAX_CHUNK_JSON_MEMBERS
            if position > start and is_full:
                yield self._slice(start, position)
                start, size, parts = position, event_bytes, event_parts
        yield self._slice(start, len(self.events))

    def _slice(self, start: int, end: int) -> "EventChunk":
        return EventChunk(self.first_event_number + start, self.events[start:end], self.received_us[start:end])

    def sorted_by_project(self) -> "EventChunk":
        """Return a chunk with the same events in order of project and time, as they are stored in the file."""
        times = [event.timestamp_us for event in self.events]
        projects = [event.project or "" for event in self.events]
        # Sort twice by a single value instead of once by pairs, because that takes half the time. Sorting is stable, so
        # the result is the same.
        order = sorted(range(len(times)), key=times.__getitem__)
        order.sort(key=projects.__getitem__)
        return EventChunk(
            self.first_event_number,
            [self.events[position] for position in order],
            [self.received_us[position] for position in order],
        )

    def has_more_fields_than(self, limit: int, shape: EventShape) -> bool:
        """Return whether the events have more than `limit` different fields, including fields of objects in arrays.

        The JSON of the events is decoded only if there may be so many fields: if `shape`, which lists the stream's
        known fields, is large enough, or if the number of colons in an event is.
        """
        may_have_more = (
            bool(shape.paths_with_unlisted_descendants)
            or len(shape.value_kinds_by_path) > limit
            or any(_count_in_json(event, ":") > limit for event in self.events)
        )
        return may_have_more and any(count > limit for count in _count_fields_so_far(self.events))

    def insert(self, cursor: duckdb.DuckDBPyConnection, insert_sql: Callable[[str], str], **values: object) -> None:
        """Insert all events by one statement.

        `insert_sql` is called with SQL for a relation of the events, and returns the INSERT statement. `values` are the
        other parameters of this statement.
        """
        if len(self.events) < _MIN_ARROW_EVENTS:
            cursor.execute(insert_sql(EVENTS_FROM_PARAMETERS_SQL), self._parameter_lists() | values)
            return
        with closing(self._make_arrow_columns()) as columns:
            cursor.register("incoming", columns)
            try:
                cursor.execute(insert_sql("incoming"), values)
            finally:
                # In a failed transaction, this statement fails as well. Its error is suppressed, because it would hide
                # the original error.
                with suppress(duckdb.TransactionException):
                    cursor.unregister("incoming")

    def insert_with_json_repair(
        self, cursor: duckdb.DuckDBPyConnection, insert_sql: Callable[[str], str], **values: object
    ) -> None:
        """Insert all events, outside of a transaction; if DuckDB cannot parse JSON, store its text as a JSON string."""
        try:
            self.insert(cursor, insert_sql, **values)
        except duckdb.Error as problem:
            if not is_conversion_error(problem):
                raise
            self.replace_unreadable_json(cursor)
            self.insert(cursor, insert_sql, **values)

    def _parameter_lists(self) -> dict[str, object]:
        lists: dict[str, object] = {
            letter: self._texts_of_column(name) for letter, name in _TEXT_COLUMN_BY_PARAMETER_NAME.items()
        }
        return lists | {
            "t": [event.timestamp_us for event in self.events],
            "r": self.received_us,
            "f": [event.timestamp_inferred for event in self.events],
            "o": [encode_object_paths(event) for event in self.events],
            "n": list(range(self.first_event_number, self.end_event_number)),
        }

    def _make_arrow_columns(self) -> arrow_stream.ArrowColumnStream:
        columns = {
            letter: arrow_stream.text_column(self._texts_of_column(name))
            for letter, name in _TEXT_COLUMN_BY_PARAMETER_NAME.items()
        }
        columns |= {
            "t": arrow_stream.time_column([event.timestamp_us for event in self.events]),
            "r": arrow_stream.time_column(self.received_us),
            "f": arrow_stream.boolean_column([event.timestamp_inferred for event in self.events]),
            "o": arrow_stream.text_column([encode_object_paths(event) for event in self.events]),
            "n": arrow_stream.number_column(range(self.first_event_number, self.end_event_number)),
        }
        return arrow_stream.ArrowColumnStream(columns, len(self.events))

    def _texts_of_column(self, name: str) -> list[str | None]:
        return list(map(attrgetter(name), self.events))

    def replace_unreadable_json(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Put each JSON text that DuckDB cannot parse into a JSON string, so that all events can be stored."""
        for position, event in enumerate(self.events):
            if not (_is_readable_json(cursor, event.metadata) and _is_readable_json(cursor, event.extras)):
                self.events[position] = msgspec.structs.replace(
                    event,
                    metadata=_encode_as_json_string(event.metadata),
                    extras=_encode_json({"unreadable": event.extras}).decode(),
                )


def split_into_chunks(records: Iterable[WalRecord], until: int) -> list[EventChunk]:
    """Split the events with sequence numbers below `until` into chunks.

    A chunk has at most some thousands of events, and at most some megabytes of large events.
    """
    chunks: list[EventChunk] = []
    for record in records:
        remaining = record
        while remaining.events and remaining.first_event_number < until:
            if (
                not chunks
                or chunks[-1].end_event_number != remaining.first_event_number
                or len(chunks[-1].events) >= _CHUNK_EVENTS
            ):
                chunks.append(EventChunk(remaining.first_event_number))
            count = min(
                until - remaining.first_event_number,
                chunks[-1].count_fitting_events(remaining.events, _MAX_CHUNK_LARGE_EVENT_BYTES),
            )
            if count:
                chunks[-1].add_events(remaining, count)
                remaining = remaining.without_first_events(count)
            else:
                chunks.append(EventChunk(remaining.first_event_number))
    return chunks


def estimate_event_bytes(events: Sequence[Event]) -> int:
    """Estimate how many bytes the events take in memory."""
    return sum(map(_event_bytes, events))


def estimate_large_event_bytes(events: Sequence[Event]) -> int:
    """Estimate how many bytes the large events among `events` take in memory."""
    return sum(size for size in map(_event_bytes, events) if size > _MIN_LARGE_EVENT_BYTES)


def _event_bytes(event: Event) -> int:
    return (
        EVENT_MEMORY_OVERHEAD_BYTES
        + len(event.event_message or "")
        + len(event.metadata or "")
        + len(event.extras or "")
    )


def _estimate_json_member_count(event: Event) -> int:
    """Estimate the number of keys and elements in an event's JSON by counting colons and commas, also within texts."""
    return _count_in_json(event, ":") + _count_in_json(event, ",")


def _count_in_json(event: Event, character: str) -> int:
    return sum(text.count(character) for text in (event.metadata, event.extras) if text)


def _count_fields_so_far(events: Iterable[Event]) -> Iterator[int]:
    """After each event, yield the number of different fields in all events up to this event."""
    known: _FieldTree = {}
    count = 0
    for event in events:
        for text in filter(None, (event.metadata, event.extras)):
            try:
                count += _add_and_count_new_fields(_decode_json(text), known)
            except (msgspec.DecodeError, RecursionError):
                # The decoder refuses the text, because it is nested too deeply, or contains a number that is too large.
                # So its colons are counted instead, because there is at least one colon for each field.
                count += text.count(":")
        yield count


def _add_and_count_new_fields(document: object, known: _FieldTree) -> int:
    """Add the fields of a document to the known fields; return the number of new fields."""
    count = 0
    values = [(document, known)]
    while values:
        value, fields = values.pop()
        if isinstance(value, list):
            values += [(item, fields) for item in value if isinstance(item, list | dict)]
        elif isinstance(value, dict):
            new_names = value.keys() - fields.keys()
            count += len(new_names)
            fields.update((name, {}) for name in new_names)
            values += [(item, fields[name]) for name, item in value.items() if isinstance(item, list | dict)]
    return count


def is_conversion_error(problem: duckdb.Error) -> bool:
    return isinstance(problem, duckdb.ConversionException | duckdb.InvalidInputException)


def _is_readable_json(cursor: duckdb.DuckDBPyConnection, text: str | None) -> bool:
    try:
        cursor.execute("SELECT variant_typeof($text::JSON::VARIANT)", {"text": text}).fetchall()
    except duckdb.Error:
        return False
    return True


def _encode_as_json_string(text: str | None) -> str | None:
    return None if text is None else _encode_json(text).decode()
