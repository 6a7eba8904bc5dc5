"""The manifest in the database file: the version of its format, the flushed ranges of each stream, and the shapes.

For each stream, the manifest has a list of the pairs of path and kind that were seen. For each project of the stream,
it has a bit set, which tells which of these pairs were seen in the project.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import duckdb
import msgspec

from cordwood.engines.duckdb.faults import RESTORE_HINT
from cordwood.engines.duckdb.storage.blocks import CREATE_BLOCK_REGISTRY_SQL, CREATE_NGRAM_INDEX_SQL
from cordwood.engines.duckdb.storage.session import fetch_first_row, transaction
from cordwood.engines.project_shapes import PathAndKind, ProjectShapes
from cordwood.errors import DataFolderUnusable
from cordwood.model.event import EventPath, ValueKind, ValueKindsByPath

# The version of the data folder's format. It must be incremented if older releases can no longer read the folder.
STORE_FORMAT_VERSION = 4

EventNumberRanges = list[tuple[int, int]]

_NEWER_VERSION_HINT = "Start the cordwood that wrote it, or a newer one."

_CREATE_VERSION_TABLE_SQL = (
    "CREATE SCHEMA IF NOT EXISTS store.cordwood",
    "CREATE TABLE IF NOT EXISTS store.cordwood.stamp (version INTEGER)",
)
_CREATE_MANIFEST_TABLES_SQL = (
    "CREATE TABLE IF NOT EXISTS store.cordwood.sealed (stream VARCHAR, first BIGINT, last BIGINT)",
    "CREATE TABLE IF NOT EXISTS store.cordwood.shape (stream VARCHAR, path VARCHAR[], kind VARCHAR)",
)
# The bit set of a project tells which pairs of path and kind were seen in the project. It is stored as a little-endian
# number, whose bit n stands for the pair with the `place` n. A project may have several rows, whose bit sets are merged
# when they are read.
_CREATE_PROJECT_SHAPE_TABLES_SQL: Final = (
    "CREATE TABLE IF NOT EXISTS store.cordwood.pair (stream VARCHAR, place INTEGER, path VARCHAR[], kind VARCHAR)",
    "CREATE TABLE IF NOT EXISTS store.cordwood.project (stream VARCHAR, project VARCHAR, pairs BLOB)",
)


def open_manifest(cursor: duckdb.DuckDBPyConnection) -> None:
    """Create the tables of the manifest if they are missing.

    Raise DataFolderUnusable if a newer release wrote the file, or if the file has events but no version.
    """
    for statement in _CREATE_VERSION_TABLE_SQL:
        cursor.execute(statement)
    _check_format_version(cursor)
    for statement in (
        *_CREATE_MANIFEST_TABLES_SQL,
        *CREATE_NGRAM_INDEX_SQL,
        *_CREATE_PROJECT_SHAPE_TABLES_SQL,
        *CREATE_BLOCK_REGISTRY_SQL,
    ):
        cursor.execute(statement)


def _check_format_version(cursor: duckdb.DuckDBPyConnection) -> None:
    row = fetch_first_row(cursor, "SELECT max(version) FROM store.cordwood.stamp")
    version = row[0] if row else None
    if version is None and not _has_stream_tables(cursor):
        cursor.execute("INSERT INTO store.cordwood.stamp VALUES ($version)", {"version": STORE_FORMAT_VERSION})
    elif not isinstance(version, int) or version < 1:
        raise DataFolderUnusable(
            f"The version stamp of events.duckdb cannot be read: it says {version!r}, and should say 1 to {STORE_FORMAT_VERSION}.",
            hint=RESTORE_HINT,
        )
    elif version > STORE_FORMAT_VERSION:
        raise DataFolderUnusable(
            f"The data folder is of version {version}; this cordwood reads up to version {STORE_FORMAT_VERSION}.",
            hint=_NEWER_VERSION_HINT,
        )
    elif version < STORE_FORMAT_VERSION:
        cursor.execute("UPDATE store.cordwood.stamp SET version = $version", {"version": STORE_FORMAT_VERSION})


def _has_stream_tables(cursor: duckdb.DuckDBPyConnection) -> bool:
    """Return whether the file has a table of a stream; such tables are created only after the version was stored."""
    tables = "SELECT 1 FROM duckdb_tables() WHERE database_name = 'store' AND schema_name = 'main' LIMIT 1"
    return fetch_first_row(cursor, tables) is not None


def read_flushed_ranges(cursor: duckdb.DuckDBPyConnection) -> Mapping[str, EventNumberRanges]:
    """Return the flushed ranges of sequence numbers by stream; adjacent ranges are merged, also in the file."""
    by_stream: dict[str, EventNumberRanges] = defaultdict(list)
    rows = cursor.execute("SELECT stream, first, last FROM store.cordwood.sealed ORDER BY stream, first").fetchall()
    for stream, first, last in rows:
        _add_range(by_stream[stream], first, last)
    if sum(map(len, by_stream.values())) < len(rows):
        _rewrite_flushed_ranges(cursor, by_stream)
    return by_stream


def read_shapes(cursor: duckdb.DuckDBPyConnection) -> Mapping[str, ValueKindsByPath]:
    by_stream: dict[str, dict[EventPath, frozenset[ValueKind]]] = defaultdict(dict)
    for stream, path, kind in cursor.execute("SELECT DISTINCT stream, path, kind FROM store.cordwood.shape").fetchall():
        kinds = by_stream[stream]
        kinds[tuple(path)] = kinds.get(tuple(path), frozenset()) | {_parse_value_kind(kind)}
    return by_stream


def _parse_value_kind(name: str) -> ValueKind:
    try:
        return ValueKind(name)
    except ValueError:
        raise DataFolderUnusable(f"The events' shapes name a kind of value {name!r}.", hint=RESTORE_HINT) from None


def _add_range(ranges: EventNumberRanges, first: int, last: int) -> None:
    if ranges and first <= ranges[-1][1]:
        ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
    else:
        ranges.append((first, last))


def _rewrite_flushed_ranges(cursor: duckdb.DuckDBPyConnection, by_stream: Mapping[str, EventNumberRanges]) -> None:
    rows = [(stream, first, last) for stream, ranges in by_stream.items() for first, last in ranges]
    columns = {
        "streams": [row[0] for row in rows],
        "firsts": [row[1] for row in rows],
        "lasts": [row[2] for row in rows],
    }
    with transaction(cursor):
        cursor.execute("DELETE FROM store.cordwood.sealed")
        cursor.execute(
            "INSERT INTO store.cordwood.sealed SELECT unnest($streams), unnest($firsts), unnest($lasts)", columns
        )


class UnsavedProjectShapes(msgspec.Struct, frozen=True):
    """The changes of a stream's project shapes that must be saved: new pairs of path and kind, and changed bit sets.

    The pairs form a list, to which the new pairs are appended at the position `first_pair_position`. A project's bit
    set tells which of the pairs were seen in the project.
    """

    first_pair_position: int
    new_path_kind_pairs: Sequence[PathAndKind]
    bit_sets: Mapping[str, int]


class ProjectShapeSaver:
    """Records which project shapes of a stream have changed since they were last written, and writes them to the file.

    Its state is guarded by the stream's lock `state_lock`.
    """

    def __init__(self, stream: str, shapes: ProjectShapes) -> None:
        self._stream = stream
        self._shapes = shapes
        self._changed_projects: set[str] = set()
        self._saved_path_kind_pair_count = 0

    def apply_saved_shapes(self, pairs: Mapping[int, PathAndKind], sets: Mapping[str, int]) -> None:
        """Take over the pairs of path and kind, and the bit sets of projects, that were read from the file."""
        for position, pair in sorted(pairs.items()):
            if self._shapes.find_or_add_bit(pair) != 1 << position:
                raise DataFolderUnusable(
                    f"The paths of {self._stream} are not all there: number {position} is {pair}.", hint=RESTORE_HINT
                )
        self._saved_path_kind_pair_count = len(pairs)
        for project, bits in sets.items():
            self._shapes.add_bit_set(project, bits)

    def mark_changed(self, projects: Iterable[str]) -> None:
        self._changed_projects.update(projects)

    def take_unsaved_shapes(self) -> UnsavedProjectShapes:
        sets = {project: self._shapes.bit_set_of_project(project) for project in self._changed_projects}
        first, self._saved_path_kind_pair_count = self._saved_path_kind_pair_count, len(self._shapes.path_kind_pairs)
        self._changed_projects = set()
        return UnsavedProjectShapes(first, self._shapes.path_kind_pairs[first : self._saved_path_kind_pair_count], sets)

    def restore_unsaved_shapes(self, unsaved: UnsavedProjectShapes) -> None:
        """Mark changes that could not be written as unsaved again."""
        self._changed_projects |= unsaved.bit_sets.keys()
        self._saved_path_kind_pair_count = min(self._saved_path_kind_pair_count, unsaved.first_pair_position)

    def save(self, cursor: duckdb.DuckDBPyConnection, unsaved: UnsavedProjectShapes) -> None:
        """Write the changes; the caller does this in the transaction that flushes the events which caused them."""
        if unsaved.new_path_kind_pairs:
            cursor.execute(
                "INSERT INTO store.cordwood.pair SELECT $stream, $first + generate_subscripts($kinds, 1) - 1,"
                " unnest($paths), unnest($kinds)",
                {
                    "stream": self._stream,
                    "first": unsaved.first_pair_position,
                    "paths": [list(path) for path, _ in unsaved.new_path_kind_pairs],
                    "kinds": [kind.value for _, kind in unsaved.new_path_kind_pairs],
                },
            )
        if unsaved.bit_sets:
            _insert_project_bit_sets(cursor, self._stream, unsaved.bit_sets)


_PairsAndBitSets = tuple[dict[int, PathAndKind], dict[str, int]]


def load_project_shapes(cursor: duckdb.DuckDBPyConnection) -> Mapping[str, _PairsAndBitSets]:
    """Return each stream's pairs of path and kind, and its projects' bit sets.

    If a project has several rows, they are merged to one bit set, also in the file.
    """
    by_stream: dict[str, _PairsAndBitSets] = defaultdict(lambda: ({}, {}))
    for stream, position, path, kind in cursor.execute("SELECT * FROM store.cordwood.pair").fetchall():
        by_stream[stream][0][position] = (tuple(path), ValueKind(kind))
    rows = cursor.execute("SELECT stream, project, pairs FROM store.cordwood.project").fetchall()
    for stream, project, pairs in rows:
        sets = by_stream[stream][1]
        sets[project] = sets.get(project, 0) | int.from_bytes(pairs, "little")
    if sum(len(sets) for _, sets in by_stream.values()) < len(rows):
        _rewrite_project_bit_sets(cursor, by_stream)
    return by_stream


def _rewrite_project_bit_sets(cursor: duckdb.DuckDBPyConnection, by_stream: Mapping[str, _PairsAndBitSets]) -> None:
    with transaction(cursor):
        cursor.execute("DELETE FROM store.cordwood.project")
        for stream, (_, sets) in by_stream.items():
            if sets:
                _insert_project_bit_sets(cursor, stream, sets)


def _insert_project_bit_sets(cursor: duckdb.DuckDBPyConnection, stream: str, sets: Mapping[str, int]) -> None:
    cursor.execute(
        "INSERT INTO store.cordwood.project SELECT $stream, unnest($projects), unnest($sets::BLOB[])",
        {"stream": stream, "projects": list(sets), "sets": [_bit_set_to_bytes(bits) for bits in sets.values()]},
    )


def _bit_set_to_bytes(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8 or 1, "little")
