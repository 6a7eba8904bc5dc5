"""The manifest in the database file: its version, the flushed ranges of each stream, and the shapes seen."""

from collections import defaultdict
from collections.abc import Mapping

import duckdb

from cordwood.engines.duckdb.faults import RESTORE_HINT
from cordwood.engines.duckdb.storage.ngram_index import CREATE_NGRAM_INDEX
from cordwood.engines.duckdb.storage.saved_projects import CREATE_PROJECT_SHAPES
from cordwood.engines.duckdb.storage.transaction import first_row, transaction
from cordwood.errors import DataFolderUnusable
from cordwood.model.shape import Kinds, Path, ValueKind

# The version of the folder's format; incremented whenever older releases could not read the folder any more.
VERSION = 3

Ranges = list[tuple[int, int]]

_NEWER_VERSION_HINT = "Start the cordwood that wrote it, or a newer one."

_CREATE_STAMP = (
    "CREATE SCHEMA IF NOT EXISTS store.cordwood",
    "CREATE TABLE IF NOT EXISTS store.cordwood.stamp (version INTEGER)",
)
_CREATE_TABLES = (
    "CREATE TABLE IF NOT EXISTS store.cordwood.sealed (stream VARCHAR, first BIGINT, last BIGINT)",
    "CREATE TABLE IF NOT EXISTS store.cordwood.shape (stream VARCHAR, path VARCHAR[], kind VARCHAR)",
)


def open_manifest(cursor: duckdb.DuckDBPyConnection) -> None:
    """Create the manifest in a new file; refuse a file of a newer cordwood, or one without a version."""
    for statement in _CREATE_STAMP:
        cursor.execute(statement)
    _check_version(cursor)
    for statement in (*_CREATE_TABLES, *CREATE_NGRAM_INDEX, *CREATE_PROJECT_SHAPES):
        cursor.execute(statement)


def _check_version(cursor: duckdb.DuckDBPyConnection) -> None:
    row = first_row(cursor, "SELECT max(version) FROM store.cordwood.stamp")
    version = row[0] if row else None
    if version is None and not _has_events(cursor):
        cursor.execute("INSERT INTO store.cordwood.stamp VALUES ($version)", {"version": VERSION})
    elif not isinstance(version, int) or version < 1:
        raise DataFolderUnusable(
            f"The version stamp of events.duckdb cannot be read: it says {version!r}, and should say 1 to {VERSION}.",
            hint=RESTORE_HINT,
        )
    elif version > VERSION:
        raise DataFolderUnusable(
            f"The data folder is of version {version}; this cordwood reads up to version {VERSION}.",
            hint=_NEWER_VERSION_HINT,
        )
    elif version < VERSION:
        cursor.execute("UPDATE store.cordwood.stamp SET version = $version", {"version": VERSION})


def _has_events(cursor: duckdb.DuckDBPyConnection) -> bool:
    """Return whether the file has tables of streams, which are created after the version stamp."""
    tables = "SELECT 1 FROM duckdb_tables() WHERE database_name = 'store' AND schema_name = 'main' LIMIT 1"
    return first_row(cursor, tables) is not None


def flushed_ranges(cursor: duckdb.DuckDBPyConnection) -> Mapping[str, Ranges]:
    """Return the ranges of flushed sequence numbers by stream; merge adjacent ranges, in the file as well."""
    by_stream: dict[str, Ranges] = defaultdict(list)
    rows = cursor.execute("SELECT stream, first, last FROM store.cordwood.sealed ORDER BY stream, first").fetchall()
    for stream, first, last in rows:
        _add_range(by_stream[stream], first, last)
    if sum(map(len, by_stream.values())) < len(rows):
        _rewrite(cursor, by_stream)
    return by_stream


def shapes(cursor: duckdb.DuckDBPyConnection) -> Mapping[str, Kinds]:
    by_stream: dict[str, dict[Path, frozenset[ValueKind]]] = defaultdict(dict)
    for stream, path, kind in cursor.execute("SELECT DISTINCT stream, path, kind FROM store.cordwood.shape").fetchall():
        kinds = by_stream[stream]
        kinds[tuple(path)] = kinds.get(tuple(path), frozenset()) | {_kind(kind)}
    return by_stream


def _kind(name: str) -> ValueKind:
    try:
        return ValueKind(name)
    except ValueError:
        raise DataFolderUnusable(f"The events' shapes name a kind of value {name!r}.", hint=RESTORE_HINT) from None


def _add_range(ranges: Ranges, first: int, last: int) -> None:
    if ranges and first <= ranges[-1][1]:
        ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
    else:
        ranges.append((first, last))


def _rewrite(cursor: duckdb.DuckDBPyConnection, by_stream: Mapping[str, Ranges]) -> None:
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
