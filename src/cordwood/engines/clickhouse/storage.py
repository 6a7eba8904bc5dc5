"""The storage of events in ClickHouse's tables: deduplicated appends, counts, retention, shapes, and freed memory.

Tables of the server store the shape of each stream, and the shape of each project in a stream. From these tables, each
process reads the shapes that other processes have learnt.

Freed memory is returned to the operating system while events are inserted, and again once the engine is idle.
Otherwise, allocators would keep it, because one thread allocates the texts of events and another thread frees them. In
a measurement, a process held 250 MB more after a load of events than before.
"""

import hashlib
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, cast
from zlib import crc32

import msgspec

from cordwood.engines.clickhouse.session import NamedValues, Session
from cordwood.engines.clickhouse.tables import (
    INSERTED_COLUMNS,
    PROJECT_SHAPES_TABLE,
    SHAPES_TABLE,
    TableStatementBuilder,
    quote_identifier,
    text_literal,
)
from cordwood.engines.engine import BatchAppendResult, StreamStats
from cordwood.engines.free_memory import trim_heap
from cordwood.engines.project_shapes import ProjectShapes
from cordwood.errors import BadSetting, UnknownStream
from cordwood.model.definitions import Stream
from cordwood.model.event import (
    Event,
    EventKey,
    EventPath,
    EventShape,
    ReceivedEventBatch,
    ValueKind,
    ValueKindsByPath,
    encode_object_paths,
)

# An event is a duplicate if an event with the same project and id was received within the last `DEDUPLICATION_WINDOW_US`, or is
# among the stream's newest `DEDUPLICATION_WINDOW_EVENTS` events.
DEDUPLICATION_WINDOW_US: Final = 600 * 1_000_000
DEDUPLICATION_WINDOW_EVENTS: Final = 100_000

# The oldest supported release of ClickHouse.
_MIN_CLICKHOUSE_VERSION: Final = (26, 8)

# The maximum total size of the ids in one bound value, before they are escaped: see `split_into_parameter_lists`.
_MAX_BOUND_PARAMETER_BYTES: Final = 60 << 10

# The maximum number of checksums of keys in one bound value, and in one statement. All values of a statement are escaped
# and sent in the URL of a request, which a server limits to 1 MiB.
_MAX_CHECKSUMS_PER_VALUE: Final = 5_000
_MAX_CHECKSUMS_PER_STATEMENT: Final = 25_000
# A lookup of n keys by their checksums may also find other keys that have the same checksums. If it finds at least
# 2 n + `_MAX_CHECKSUM_COLLISIONS` keys, its result is discarded, and the keys themselves are compared instead.
_MAX_CHECKSUM_COLLISIONS: Final = 1_000
# The checksum of a key: that of its id, combined with that of its project if it has one. Projects are stored in a
# dictionary, so that the server computes a checksum only for each different project.
_KEY_CHECKSUM_SQL: Final = "bitXor(CRC32(id), ifNull(CRC32(project), 0))"
# A text that differs for different keys: the length of the project in bytes, or -1 without a project, the project and
# the id.
_KEY_TEXT_SQL: Final = "concat(toString(ifNull(toInt64(length(project)), -1)), ':', ifNull(project, ''), id)"
# Settings for a lookup of ids. The table's Bloom filters are not used: with thousands of ids, they exclude no block of
# rows, but would be read and checked for each id.
_ID_LOOKUP_SETTINGS: Final = {"use_skip_indexes": 0}

# The maximum number of characters of events in one INSERT. The server combines the blocks of a statement into a single
# block of at most 256 MB, so that a statement below this size is stored as a whole or not at all.
_MAX_INSERT_CHARACTERS: Final = 32 << 20

# How far a read of new shapes goes back before the newest row of the previous read. It goes back because a row may
# become visible later than rows whose `seen_at` is later.
_SHAPE_READ_OVERLAP_US: Final = 60 * 10**6

_SELECT_NEW_PROJECT_SHAPES_SQL: Final = (
    "SELECT stream, path, kind, groupUniqArray(project), toUnixTimestamp64Micro(max(seen_at))"  # noqa: S608 - our own name
    f" FROM {quote_identifier(PROJECT_SHAPES_TABLE)} WHERE seen_at >= fromUnixTimestamp64Micro({{since:Int64}}, 'UTC')"
    " GROUP BY stream, path, kind"
)
_PROJECT_SHAPE_COLUMN_TYPES: Final = ("String", "String", "Array(String)", "LowCardinality(String)")

_EMPTY_STREAM_STATS: Final = StreamStats(0, None, None)
_MAX_EVENT_COUNT_WAIT_SECONDS: Final = 1.0


class Storage:
    """The events and shapes of all registered streams in a database, to which several processes may append."""

    def __init__(self, session: Session, tables: TableStatementBuilder, *, wait_for_async: bool = False) -> None:
        self._session = session
        self.memory_reclaimer = MemoryReclaimer(session)
        self._table_statements = tables
        self._insert_settings = _insert_settings(tables.cluster, wait_for_async=wait_for_async)
        self._streams: dict[str, Stream] = {}
        self._database_name = ""
        self._recent_ids_by_stream: dict[str, RecentIds] = {}
        self._shapes_by_stream: dict[str, EventShape] = {}
        self._project_shape_store = _ProjectShapeStore(session)
        self._stats_by_stream: dict[str, StreamStats] = {}
        # The streams whose tables have not been created yet.
        self._streams_without_table: dict[str, Stream] = {}
        self._append_lock = threading.Lock()
        self._table_creation_lock = threading.Lock()
        self._shapes_lock = threading.Lock()
        self._event_count_lock = threading.Lock()

    def register_streams(self, streams: Sequence[Stream]) -> None:
        """Register the streams, whose tables are created as soon as the server is available."""
        for stream in streams:
            self._streams[stream.name] = stream
            self._recent_ids_by_stream.setdefault(stream.name, RecentIds(self._session, stream.name))
        self._streams_without_table |= {stream.name: stream for stream in streams}

    def create_tables(self) -> None:
        """Create the tables of all registered streams."""
        if not self._streams_without_table:
            return
        with self._table_creation_lock:
            ((version, database),) = self._session.fetch_rows("SELECT version(), currentDatabase()")
            check_server_version(str(version))
            self._database_name = str(database)
            missing = dict(self._streams_without_table)
            for statement in self._table_statements.schema_statements(list(missing.values())):
                self._session.execute(statement)
            self._read_shapes()
            self._project_shape_store.read_new_rows()
            self._streams_without_table = {
                name: stream for name, stream in self._streams_without_table.items() if missing.get(name) is not stream
            }

    def run_maintenance(self) -> None:
        """Create missing tables, and read the shapes that other processes have learnt.

        If the engine is idle, also give freed memory back to the operating system.
        """
        self.create_tables()
        self._read_shapes()
        self._project_shape_store.read_new_rows()
        self.memory_reclaimer.reclaim_when_idle()

    def append(self, batches: Sequence[ReceivedEventBatch]) -> list[BatchAppendResult]:
        """Store each batch as a whole or not at all; after a failure, the caller may append the same batches again.

        Several batches of one stream are inserted together. The server then has fewer parts to merge, and the ids of
        these batches are looked up by one query.
        """
        self.create_tables()
        appended: dict[int, BatchAppendResult] = {}
        with self._append_lock:
            for positions in _group_batch_positions(batches):
                group = [batches[position] for position in positions]
                appended.update(zip(positions, self._append_to_stream(group), strict=True))
        return [appended[position] for position in range(len(batches))]

    def tables_of_other_streams(self, streams: Sequence[str]) -> list[str]:
        """Return the full names, with the database, of the tables of all registered streams except `streams`."""
        return [f"{self._database_name}.{name}" for name in sorted(self._streams.keys() - set(streams))]

    def shapes_by_stream(self) -> Mapping[str, EventShape]:
        """Return the known shapes without a request to the server, because callers must not block."""
        return {name: self._shapes_by_stream.get(name, EventShape()) for name in self._streams}

    def project_shapes_by_stream(self) -> Mapping[str, ProjectShapes]:
        return {name: self._project_shape_store.shapes_of(name) for name in self._streams}

    def stream_stats(self, *, refresh: bool = True) -> Mapping[str, StreamStats]:
        """Return the number of events and the time range of each stream.

        With `refresh`, one thread at a time queries the server. Each other thread waits for it for at most a second,
        and then returns the numbers that were read last.
        """
        if refresh and self._event_count_lock.acquire(timeout=_MAX_EVENT_COUNT_WAIT_SECONDS):
            try:
                self.create_tables()
                self._stats_by_stream = self._count_events()
            finally:
                self._event_count_lock.release()
        return {name: self._stats_by_stream.get(name, _EMPTY_STREAM_STATS) for name in self._streams}

    def stored_bytes_by_stream(self) -> Mapping[str, int]:
        """Return the bytes that each stream takes on disk; in a cluster, only on the connected server."""
        parts = "SELECT table, sum(bytes_on_disk) FROM system.parts WHERE active AND database = currentDatabase()"
        bytes_by_table = {
            str(table): int(str(size)) for table, size in self._session.fetch_rows(f"{parts} GROUP BY table")
        }
        return {
            name: bytes_by_table.get(f"{name} local" if self._table_statements.cluster else name, 0)
            for name in self._streams
        }

    def delete_expired_events(self, now_us: int) -> int:
        """Delete the events that are older than their stream's retention, and return the number of deleted events.

        If tables have a TTL, ClickHouse also drops a part of a table by itself once all events in it are too old.
        """
        return sum(self._delete_expired_of_stream(stream, now_us) for stream in self._streams.values())

    def _append_to_stream(self, batches: Sequence[ReceivedEventBatch]) -> list[BatchAppendResult]:
        """Insert the new events of several batches of one stream by a single statement."""
        name = batches[0].stream
        if name not in self._streams:
            raise UnknownStream(f"There is no stream {name!r}.")
        new_events = self._recent_ids_by_stream[name].select_new_events(batches)
        for batch, events in zip(batches, new_events, strict=True):
            if events:
                self._store_new_shapes(batch)
                self._project_shape_store.store_new_shapes(batch)
        if any(new_events):
            received = [batch.received_us for batch in batches]
            self._session.insert(
                quote_identifier(name),
                _columns_of_events(list(zip(new_events, received, strict=True))),
                list(INSERTED_COLUMNS.values()),
                self._insert_settings | {"insert_deduplication_token": _deduplication_token(name, new_events)},
            )
            self.memory_reclaimer.record_insert(
                sum(_count_characters(event) for events in new_events for event in events)
            )
        return [_make_append_result(batch, events) for batch, events in zip(batches, new_events, strict=True)]

    def _store_new_shapes(self, batch: ReceivedEventBatch) -> None:
        """Write the paths and kinds that are new in this batch to the table of shapes.

        This is done before the events are stored. If storing them then fails, the shape has superfluous paths, which do
        no harm. In the other order, events could be stored whose paths are missing from the shape.
        """
        known = self._shapes_by_stream.get(batch.stream, EventShape())
        new_kinds = [
            (path, kind.value)
            for path, kinds in batch.learnt.items()
            for kind in sorted(kinds - known.kinds_with_markers(path))
        ]
        if not new_kinds:
            return
        columns: dict[str, Sequence[object]] = {
            "stream": [batch.stream] * len(new_kinds),
            "path": [list(path) for path, _ in new_kinds],
            "kind": [kind for _, kind in new_kinds],
        }
        self._session.insert(
            quote_identifier(SHAPES_TABLE),
            columns,
            ["String", "Array(String)", "LowCardinality(String)"],
            {"insert_distributed_sync": 1},
        )
        self._merge_shape(batch.stream, batch.learnt)

    def _merge_shape(self, stream: str, kinds: ValueKindsByPath) -> None:
        """Merge paths and kinds into the known shape. Merging only adds, so an outdated read cannot remove anything."""
        with self._shapes_lock:
            self._shapes_by_stream[stream] = _set_shape_version(
                self._shapes_by_stream.get(stream, EventShape()).merged_with_kinds(kinds)
            )

    def _read_shapes(self) -> None:
        by_stream: dict[str, dict[EventPath, frozenset[ValueKind]]] = {}
        sql = f"SELECT DISTINCT stream, path, kind FROM {quote_identifier(SHAPES_TABLE)}"  # noqa: S608 - our own name
        for stream, path, kind in self._session.fetch_rows(sql):
            kinds = by_stream.setdefault(str(stream), {})
            path_key = tuple(map(str, cast("list[str]", path)))
            kinds[path_key] = kinds.get(path_key, frozenset()) | {ValueKind(str(kind))}
        for stream, kinds in by_stream.items():
            self._merge_shape(stream, kinds)

    def _count_events(self) -> dict[str, StreamStats]:
        aggregates = "count(), toUnixTimestamp64Micro(max(timestamp)), toUnixTimestamp64Micro(min(timestamp))"
        selects = [f"SELECT {text_literal(name)}, {aggregates} FROM {quote_identifier(name)}" for name in self._streams]  # noqa: S608 - our own names
        rows = self._session.fetch_rows(" UNION ALL ".join(selects)) if selects else []
        return {
            str(name): StreamStats(int(str(count)), int(str(newest)), int(str(oldest)))
            for name, count, newest, oldest in rows
            if count
        }

    def _delete_expired_of_stream(self, stream: Stream, now_us: int) -> int:
        if stream.retention_seconds is None:
            return 0
        before = {"before": epoch_seconds_text(now_us - int(stream.retention_seconds * 1_000_000))}
        count = f"SELECT count() FROM {quote_identifier(stream.name)} WHERE timestamp < {{before:DateTime64(6, 'UTC')}}"  # noqa: S608 - our own name
        deleted = int(str(self._session.fetch_rows(count, before)[0][0]))
        if deleted:
            self._session.execute(self._table_statements.delete_expired_statement(stream.name), before)
        return deleted


def check_server_version(version: str) -> None:
    """Require a supported release of ClickHouse.

    In earlier releases, tables with descending sort keys silently lose rows.
    """
    if tuple(int(part) for part in version.split(".")[:2]) < _MIN_CLICKHOUSE_VERSION:
        minimum = ".".join(map(str, _MIN_CLICKHOUSE_VERSION))
        raise BadSetting(f"engine: ClickHouse {version} is too old: {minimum} or later is needed.", hint="Upgrade it.")


class RecentIds:
    """Looks up which projects and ids were stored recently in a stream's table, which has those from all processes."""

    def __init__(self, session: Session, stream: str) -> None:
        self._session = session
        self._quoted_table_name = quote_identifier(stream)
        self._cached_window_start_us: int | None = None
        self._events_since_window_read = 0

    def select_new_events(self, batches: Sequence[ReceivedEventBatch]) -> list[list[Event]]:
        """Return the new events of each batch; of several events with one project and id, only the first is new."""
        seen_keys = self._find_stored_keys(batches)
        new_events: list[list[Event]] = []
        for batch in batches:
            new_events.append([])
            for event in batch.events:
                if event.key not in seen_keys:
                    seen_keys.add(event.key)
                    new_events[-1].append(event)
            self._events_since_window_read += len(new_events[-1])
        return new_events

    def _find_stored_keys(self, batches: Sequence[ReceivedEventBatch]) -> set[EventKey]:
        events = [event for batch in batches for event in batch.events]
        received_times = (event.received_us for event in events if event.received_us is not None)
        since = min(
            self._window_start_us(),
            *(batch.received_us - DEDUPLICATION_WINDOW_US for batch in batches),
            *received_times,
        )
        keys = [event.key for event in events]
        stored_keys = self._find_keys_by_checksum(epoch_seconds_text(since), keys)
        return self._find_keys_exactly(epoch_seconds_text(since), keys) if stored_keys is None else stored_keys

    def _find_keys_by_checksum(self, since: str, keys: Sequence[EventKey]) -> set[EventKey] | None:
        """Return the stored keys whose checksum equals that of a given key; return None if there are too many.

        Binding, parsing and searching checksums takes a third of the time that the ids themselves would take. Of random
        ids, one pair in four billion has equal checksums, but a sender can make ids with equal checksums on purpose.
        """
        checksums = iter(_checksums_of_keys(keys))
        most = 2 * len(keys) + _MAX_CHECKSUM_COLLISIONS
        found: set[EventKey] = set()
        while chunk := list(islice(checksums, _MAX_CHECKSUMS_PER_STATEMENT)):
            starts = range(0, len(chunk), _MAX_CHECKSUMS_PER_VALUE)
            lists = ", ".join(f"{{sums{start}:Array(UInt32)}}" for start in starts)
            values = {f"sums{start}": chunk[start : start + _MAX_CHECKSUMS_PER_VALUE] for start in starts}
            condition = f"has(arrayConcat({lists}), {_KEY_CHECKSUM_SQL})"
            found.update(self._select_keys(condition, values | {"since": since}, most))
            if len(found) >= most:
                return None
        return found

    def _find_keys_exactly(self, since: str, keys: Sequence[EventKey]) -> set[EventKey]:
        """Return those of the given keys that are stored; keys that are too long for a bound value are left out."""
        texts = (_key_text(key) for key in keys)
        chunks = split_into_parameter_lists([text for text in texts if len(text) < _MAX_BOUND_PARAMETER_BYTES // 4])
        values = ({"keys": chunk, "since": since} for chunk in chunks)
        condition = f"has({{keys:Array(String)}}, {_KEY_TEXT_SQL})"
        found = (self._select_keys(condition, bound, len(keys)) for bound in values)
        return {key for chunk in found for key in chunk}

    def _select_keys(self, condition: str, values: NamedValues, most: int) -> Iterator[EventKey]:
        sql = (
            f"SELECT DISTINCT project, id FROM {self._quoted_table_name} WHERE ingested_at >= {{since:DateTime64(6, 'UTC')}}"  # noqa: S608 - our own name
            f" AND {condition} LIMIT {most}"
        )
        rows = self._session.fetch_rows(sql, values, _ID_LOOKUP_SETTINGS)
        return ((None if project is None else str(project), str(id_)) for project, id_ in rows)

    def _window_start_us(self) -> int:
        """Return the earliest receive time among the newest `DEDUPLICATION_WINDOW_EVENTS` events of the stream.

        The time is read from the table again only after many appends. An outdated time only makes the window longer.
        """
        if self._cached_window_start_us is None or self._events_since_window_read > DEDUPLICATION_WINDOW_EVENTS // 4:
            window = f"SELECT ingested_at FROM {self._quoted_table_name} ORDER BY ingested_at DESC LIMIT {DEDUPLICATION_WINDOW_EVENTS}"  # noqa: S608 - our own name
            sql = f"SELECT toUnixTimestamp64Micro(min(ingested_at)) FROM ({window})"  # noqa: S608 - the same
            self._cached_window_start_us = int(str(self._session.fetch_rows(sql)[0][0]))
            self._events_since_window_read = 0
        return self._cached_window_start_us


def _checksums_of_keys(keys: Sequence[EventKey]) -> set[int]:
    """Return the different checksums of the keys, which `_KEY_CHECKSUM_SQL` computes for stored events."""
    checksum_by_project = {
        project: 0 if project is None else crc32(project.encode("utf-8", "surrogatepass")) for project, _ in keys
    }
    return {crc32(id_.encode("utf-8", "surrogatepass")) ^ checksum_by_project[project] for project, id_ in keys}


def _key_text(key: EventKey) -> str:
    """Return the text of a key, which `_KEY_TEXT_SQL` computes for stored events."""
    project, id_ = key
    length = -1 if project is None else len(project.encode("utf-8", "surrogatepass"))
    return f"{length}:{project or ''}{id_}"


def split_into_parameter_lists(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split texts into lists that each fit into one bound value.

    A server accepts 128 KiB for a bound value, and escaping may double the size of the texts.
    """
    chunk: list[str] = []
    size = 0
    for text in texts:
        width = len(text.encode("utf-8", "surrogatepass")) + 2
        if chunk and size + width > _MAX_BOUND_PARAMETER_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(text)
        size += width
    if chunk:
        yield chunk


# The columns of a stream's table that hold an event's field unchanged, each with the name of the field in `Event`.
_EVENT_FIELD_BY_COLUMN: Final[Mapping[str, str]] = {
    "id": "id",
    "timestamp": "timestamp_us",
    "event_message": "event_message",
    "project": "project",
    "metadata": "metadata",
    "extras": "extras",
    "timestamp_inferred": "timestamp_inferred",
}


def _group_batch_positions(batches: Sequence[ReceivedEventBatch]) -> Iterator[list[int]]:
    """Yield groups of batches that are inserted together, each group as a list of positions in `batches`.

    All batches of a group belong to one stream. The events of a group have at most `_MAX_INSERT_CHARACTERS` characters,
    unless the group is a single larger batch.
    """
    open_groups: dict[str, tuple[list[int], int]] = {}
    for position, batch in enumerate(batches):
        positions, size = open_groups.get(batch.stream, ([], 0))
        added = sum(map(_count_characters, batch.events))
        if positions and size + added > _MAX_INSERT_CHARACTERS:
            yield positions
            positions, size = [], 0
        open_groups[batch.stream] = ([*positions, position], size + added)
    yield from (positions for positions, _ in open_groups.values())


def _count_characters(event: Event) -> int:
    return len(event.metadata or "") + len(event.event_message or "") + len(event.extras or "")


def _make_append_result(batch: ReceivedEventBatch, stored: Sequence[Event]) -> BatchAppendResult:
    if len(stored) == len(batch.events):
        return BatchAppendResult(len(stored), 0)
    # Recognise the stored events by object identity, because a batch may contain equal events as distinct objects.
    stored_objects = set(map(id, stored))
    repeated = tuple(position for position, event in enumerate(batch.events) if id(event) not in stored_objects)
    return BatchAppendResult(len(stored), len(repeated), repeated)


def _columns_of_events(batches: Sequence[tuple[Sequence[Event], int]]) -> dict[str, Sequence[object]]:
    """Return the events of all batches as columns, in the order of `INSERTED_COLUMNS`.

    Each batch is given as a pair of its events and its receive time.
    """
    events = [event for batch, _ in batches for event in batch]
    columns: dict[str, Sequence[object]] = {
        name: [getattr(event, field) for event in events] for name, field in _EVENT_FIELD_BY_COLUMN.items()
    }
    columns["ingested_at"] = [
        received_us if event.received_us is None else event.received_us
        for batch, received_us in batches
        for event in batch
    ]
    columns["object_paths"] = [encode_object_paths(event) for event in events]
    return {name: columns[name] for name in INSERTED_COLUMNS}


# Settings for how the server parses JSON text into the JSON columns. Texts that look like times or numbers stay texts.
# A dot in a key is part of the key. If a key occurs twice, the first value is kept, as it is when the JSON text is
# read.
_JSON_PARSING_SETTINGS: Final[Mapping[str, object]] = {
    "input_format_try_infer_dates": 0,
    "input_format_try_infer_datetimes": 0,
    "input_format_json_try_infer_numbers_from_strings": 0,
    "json_type_escape_dots_in_keys": 1,
    "type_json_skip_duplicated_paths": 1,
}


def _deduplication_token(stream: str, batches: Sequence[Sequence[Event]]) -> str:
    """Return a token for an INSERT, which is the same whenever the same events are inserted, and only then.

    If the response to an INSERT is lost and the events are sent again, the server recognises the token and stores them
    only once. The projects and ids are encoded as JSON, so that a separator in an id cannot make the token equal to
    that of other events, which would then be lost.
    """
    keys = json.dumps([stream, [event.key for events in batches for event in events]])
    return hashlib.sha256(keys.encode()).hexdigest()


def _insert_settings(cluster: str, *, wait_for_async: bool) -> dict[str, object]:
    settings: dict[str, object] = {"insert_deduplicate": 1, **_JSON_PARSING_SETTINGS}
    if cluster:
        settings |= {"insert_distributed_sync": 1, "insert_quorum": "auto"}
    if wait_for_async:
        settings |= {"async_insert": 1, "wait_for_async_insert": 1, "async_insert_deduplicate": 1}
    return settings


def _set_shape_version(shape: EventShape) -> EventShape:
    """Set the shape's version to the number of its entries: the kinds of its paths, and its marked paths.

    Shapes only grow, so this number grows with every change. Processes that know the same shape get the same number.
    """
    fact_count = (
        sum(map(len, shape.value_kinds_by_path.values()))
        + len(shape.paths_with_unlisted_descendants)
        + len(shape.paths_with_unsure_kinds)
    )
    return shape if shape.version == fact_count else msgspec.structs.replace(shape, version=fact_count)


def epoch_seconds_text(micros: int) -> str:
    """Return a time in the form that ClickHouse parses in a bound value: seconds since 1970 with a fraction."""
    seconds, fraction = divmod(micros, 1_000_000)
    return f"{seconds}.{fraction:06d}"


class _ProjectShapeStore:
    """The shapes of single projects, which are kept in a table of the server.

    Shapes only grow, so it does no harm if a row is read again by an overlapping read.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._shapes_by_stream: dict[str, ProjectShapes] = defaultdict(ProjectShapes)
        self._read_until_us = 0
        self._lock = threading.Lock()

    def shapes_of(self, stream: str) -> ProjectShapes:
        return self._shapes_by_stream[stream]

    def store_new_shapes(self, batch: ReceivedEventBatch) -> None:
        """Write the paths and kinds that are new for a project in this batch to the table of project shapes.

        This is done before the events are stored. If storing them then fails, the shape has superfluous paths, which do
        no harm. In the other order, events could be stored whose paths are missing from the shape.
        """
        shapes = self._shapes_by_stream[batch.stream]
        rows = [row for project, kinds in batch.by_project.items() for row in _new_project_rows(shapes, project, kinds)]
        if rows:
            projects, paths, names = zip(*rows, strict=True)
            columns: dict[str, Sequence[object]] = {
                "stream": [batch.stream] * len(rows),
                "project": projects,
                "path": paths,
                "kind": names,
            }
            self._session.insert(
                quote_identifier(PROJECT_SHAPES_TABLE),
                columns,
                list(_PROJECT_SHAPE_COLUMN_TYPES),
                {"insert_distributed_sync": 1},
            )
        for project, kinds in batch.by_project.items():
            shapes.add_kinds(project, kinds)

    def read_new_rows(self) -> None:
        """Read the rows of project shapes that any process has written since the last call."""
        with self._lock:
            since = {"since": max(0, self._read_until_us - _SHAPE_READ_OVERLAP_US)}
            for stream, path, kind, projects, seen_us in self._session.fetch_rows(
                _SELECT_NEW_PROJECT_SHAPES_SQL, since
            ):
                kinds: ValueKindsByPath = {tuple(map(str, cast("list[str]", path))): frozenset({ValueKind(str(kind))})}
                for project in cast("list[str]", projects):
                    self._shapes_by_stream[str(stream)].add_kinds(str(project), kinds)
                self._read_until_us = max(self._read_until_us, int(str(seen_us)))


def _new_project_rows(
    shapes: ProjectShapes, project: str, kinds: ValueKindsByPath
) -> Iterator[tuple[str, list[str], str]]:
    """Yield rows for all paths and kinds in `kinds`, or no rows if the project's shape has all of them already."""
    if shapes.bit_set_of_kinds(kinds) & ~shapes.bit_set_of_project(project):
        yield from (
            (project, list(path), kind.value) for path, path_kinds in kinds.items() for kind in sorted(path_kinds)
        )


# How long the engine must be idle before memory is returned to the operating system.
_MIN_IDLE_SECONDS_BEFORE_RECLAIM: Final = 6.0
# After this number of inserted characters, memory is returned even though the engine is not idle. This is done rarely,
# because it takes milliseconds.
_INSERTED_CHARACTERS_PER_RECLAIM: Final = 64 << 20

# The statement that makes the in-process engine return memory. It is needed because this engine has its own allocator.
_PURGE_ALLOCATOR_SQL: Final = "SYSTEM JEMALLOC PURGE"


class MemoryReclaimer:
    """Gives freed memory back to the operating system at suitable times; safe from several threads."""

    def __init__(self, session: Session, clock: Callable[[], float] = time.monotonic) -> None:
        self._session = session
        self._clock = clock
        self._lock = threading.Lock()
        self._last_active_at = clock()
        self._has_reclaimed_since_activity = True
        self._inserted_characters = 0

    def record_activity(self) -> None:
        """Record that the engine is active now, for example because a query runs."""
        self._last_active_at = self._clock()
        self._has_reclaimed_since_activity = False

    def record_insert(self, characters: int) -> None:
        """Record an insert of this many characters.

        If enough characters were inserted since the last time, give freed memory back to the operating system.
        """
        self.record_activity()
        with self._lock:
            self._inserted_characters += characters
            is_due = self._inserted_characters >= _INSERTED_CHARACTERS_PER_RECLAIM
            if is_due:
                self._inserted_characters = 0
        if is_due:
            trim_heap()

    def reclaim_when_idle(self) -> None:
        """Give freed memory back to the operating system if the engine is idle, and was active since the last time."""
        if (
            self._has_reclaimed_since_activity
            or self._clock() - self._last_active_at < _MIN_IDLE_SECONDS_BEFORE_RECLAIM
        ):
            return
        self._has_reclaimed_since_activity = True
        trim_heap()
        if self._session.is_in_process:
            self._session.execute(_PURGE_ALLOCATOR_SQL)
