"""Neighbouring events of a stream that go into a table together."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import duckdb
import msgspec

from cordwood.engines.duckdb.journal import Record
from cordwood.model.event import Event, written_paths
from cordwood.model.shape import Path

_PIECE = 4096

# The parameters of `StreamTables.insert_events` that are fields of an event as they stand.
_FIELDS = {
    "i": "id",
    "t": "timestamp_us",
    "e": "event_message",
    "p": "project",
    "m": "metadata",
    "x": "extras",
    "f": "timestamp_inferred",
}

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Chunk:
    """`first` is the number of its first event in the stream."""

    first: int
    events: list[Event] = field(default_factory=list)
    received_us: list[int] = field(default_factory=list)

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

    def clustered(self) -> "Chunk":
        """The same events as they are to lie in the file: what is asked of one project lies together."""
        order = sorted(range(len(self.events)), key=self._cluster)
        return Chunk(self.first, [self.events[place] for place in order], [self.received_us[place] for place in order])

    def _cluster(self, place: int) -> tuple[str, int]:
        event = self.events[place]
        return event.project or "", event.timestamp_us

    def insert(self, cursor: duckdb.DuckDBPyConnection, statement: str) -> None:
        """Run a statement of `StreamTables.insert_events`, piece by piece: each is in memory several times."""
        for first in range(0, len(self.events), _PIECE):
            piece = slice(first, first + _PIECE)
            fields = {
                parameter: [getattr(event, name) for event in self.events[piece]] for parameter, name in _FIELDS.items()
            }
            paths = [_object_paths(event) for event in self.events[piece]]
            cursor.execute(statement, {**fields, "r": self.received_us[piece], "o": paths})

    def mend(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Where the engine cannot read an event's JSON, keep it as text: the event stays, and so do the others."""
        for place, event in enumerate(self.events):
            if not (_is_readable(cursor, event.metadata) and _is_readable(cursor, event.extras)):
                self.events[place] = msgspec.structs.replace(
                    event, metadata=_as_text(event.metadata), extras=_encode({"unreadable": event.extras}).decode()
                )


def text_bytes(events: Sequence[Event]) -> int:
    """About what the events take in memory."""
    return sum(
        300 + len(event.event_message or "") + len(event.metadata or "") + len(event.extras or "") for event in events
    )


def is_about_a_value(problem: duckdb.Error) -> bool:
    return isinstance(problem, duckdb.ConversionException | duckdb.InvalidInputException)


def _object_paths(event: Event) -> str:
    """Found here for an event at which nobody has looked."""
    if event.object_paths is not None:
        return event.object_paths
    paths: list[Path] = []
    for place, text in ((("metadata",), event.metadata), ((), event.extras)):
        try:
            _find(json.loads(text) if text else None, place, paths)
        except (ValueError, RecursionError):
            continue
    return written_paths(path for path in paths if path)


def _find(value: object, path: Path, paths: list[Path]) -> None:
    if isinstance(value, dict):
        paths.append(path)
        for key, one in value.items():
            _find(one, (*path, key), paths)


def _is_readable(cursor: duckdb.DuckDBPyConnection, text: str | None) -> bool:
    try:
        cursor.execute("SELECT variant_typeof($text::JSON::VARIANT)", {"text": text}).fetchall()
    except duckdb.Error:
        return False
    return True


def _as_text(text: str | None) -> str | None:
    return None if text is None else _encode(text).decode()
