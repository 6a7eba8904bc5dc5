"""Store in the file which paths and kinds were seen in each project, as a bit set per project."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import duckdb
import msgspec

from cordwood.engines.duckdb.faults import RESTORE_HINT
from cordwood.engines.duckdb.storage.transaction import transaction
from cordwood.engines.project_shapes import Pair, ProjectShapes
from cordwood.errors import DataFolderUnusable
from cordwood.model.shape import ValueKind

# A set's bytes are a little-endian number whose bits are the positions of its pairs. Several rows of a project are
# merged.
CREATE_PROJECT_SHAPES: Final = (
    "CREATE TABLE IF NOT EXISTS store.cordwood.pair (stream VARCHAR, place INTEGER, path VARCHAR[], kind VARCHAR)",
    "CREATE TABLE IF NOT EXISTS store.cordwood.project (stream VARCHAR, project VARCHAR, pairs BLOB)",
)


class UnsavedProjects(msgspec.Struct, frozen=True):
    """Changes to write; `first` is the position of the first new pair."""

    first: int
    pairs: Sequence[Pair]
    sets: Mapping[str, int]


class SavedProjects:
    """The changed sets of one stream that are not in the file yet; guarded by the stream's lock `state_lock`."""

    def __init__(self, stream: str, shapes: ProjectShapes) -> None:
        self._stream = stream
        self._shapes = shapes
        self._changed: set[str] = set()
        self._saved_pairs = 0

    def load(self, pairs: Mapping[int, Pair], sets: Mapping[str, int]) -> None:
        """Take over the sets as they were stored."""
        for position, pair in sorted(pairs.items()):
            if self._shapes.bit(pair) != 1 << position:
                raise DataFolderUnusable(
                    f"The paths of {self._stream} are not all there: number {position} is {pair}.", hint=RESTORE_HINT
                )
        self._saved_pairs = len(pairs)
        for project, bits in sets.items():
            self._shapes.add(project, bits)

    def mark_changed(self, projects: Iterable[str]) -> None:
        self._changed.update(projects)

    def take_changes(self) -> UnsavedProjects:
        sets = {project: self._shapes.set_of(project) for project in self._changed}
        first, self._saved_pairs = self._saved_pairs, len(self._shapes.pairs)
        self._changed = set()
        return UnsavedProjects(first, self._shapes.pairs[first : self._saved_pairs], sets)

    def restore(self, unsaved: UnsavedProjects) -> None:
        """Take back changes that could not be written."""
        self._changed |= unsaved.sets.keys()
        self._saved_pairs = min(self._saved_pairs, unsaved.first)

    def save(self, cursor: duckdb.DuckDBPyConnection, unsaved: UnsavedProjects) -> None:
        """Write the changes in the transaction that flushes the events from which they were learnt."""
        if unsaved.pairs:
            cursor.execute(
                "INSERT INTO store.cordwood.pair SELECT $stream, $first + generate_subscripts($kinds, 1) - 1,"
                " unnest($paths), unnest($kinds)",
                {
                    "stream": self._stream,
                    "first": unsaved.first,
                    "paths": [list(path) for path, _ in unsaved.pairs],
                    "kinds": [kind.value for _, kind in unsaved.pairs],
                },
            )
        if unsaved.sets:
            _insert(cursor, self._stream, unsaved.sets)


ProjectSets = tuple[dict[int, Pair], dict[str, int]]


def load_projects(cursor: duckdb.DuckDBPyConnection) -> Mapping[str, ProjectSets]:
    """Return the sets by stream; several rows of one project are merged."""
    by_stream: dict[str, ProjectSets] = defaultdict(lambda: ({}, {}))
    for stream, position, path, kind in cursor.execute("SELECT * FROM store.cordwood.pair").fetchall():
        by_stream[stream][0][position] = (tuple(path), ValueKind(kind))
    rows = cursor.execute("SELECT stream, project, pairs FROM store.cordwood.project").fetchall()
    for stream, project, pairs in rows:
        sets = by_stream[stream][1]
        sets[project] = sets.get(project, 0) | int.from_bytes(pairs, "little")
    if sum(len(sets) for _, sets in by_stream.values()) < len(rows):
        _rewrite(cursor, by_stream)
    return by_stream


def _rewrite(cursor: duckdb.DuckDBPyConnection, by_stream: Mapping[str, ProjectSets]) -> None:
    with transaction(cursor):
        cursor.execute("DELETE FROM store.cordwood.project")
        for stream, (_, sets) in by_stream.items():
            if sets:
                _insert(cursor, stream, sets)


def _insert(cursor: duckdb.DuckDBPyConnection, stream: str, sets: Mapping[str, int]) -> None:
    cursor.execute(
        "INSERT INTO store.cordwood.project SELECT $stream, unnest($projects), unnest($sets::BLOB[])",
        {"stream": stream, "projects": list(sets), "sets": [_to_bytes(bits) for bits in sets.values()]},
    )


def _to_bytes(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8 or 1, "little")
