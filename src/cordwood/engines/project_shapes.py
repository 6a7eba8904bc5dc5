"""The shapes of a stream's projects, as bit sets over a list of pairs of path and kind that all projects share.

The limits in this module apply only to this list and these bit sets. Events beyond a limit are stored and queried like
all others.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from cordwood.model.event import EventPath, EventShape, ValueKind, ValueKindsByPath

# The maximum number of projects per stream whose shapes are kept. A key that is pinned to any other project sees only
# the declared columns.
MAX_PROJECTS_PER_STREAM: Final = 10_000
# The maximum number of pairs of path and kind in the bit set of one project.
MAX_PATH_KINDS_PER_PROJECT: Final = 1_000
# The maximum number of pairs of path and kind in the list that all projects of a stream share.
MAX_PATH_KINDS_PER_STREAM: Final = 30_000
# The key of the bit set that all projects beyond `MAX_PROJECTS_PER_STREAM` share. It has the same limit as the bit set
# of one project, and callers never see it.
OTHER_PROJECTS_KEY: Final = ""
_MAX_CACHED_BIT_SETS: Final = 256

PathAndKind = tuple[EventPath, ValueKind]
KindsByProject = Mapping[str, ValueKindsByPath]


class _CachedKinds(msgspec.Struct, frozen=True):
    kinds: ValueKindsByPath
    unlisted_paths: frozenset[EventPath]


class ProjectShapes:
    """For each project of a stream, the paths and kinds of its events, as bit sets.

    The methods are safe from any thread; reads take no lock.
    """

    def __init__(self) -> None:
        self.path_kind_pairs: list[PathAndKind] = []
        self._position_by_path_kind_pair: dict[PathAndKind, int] = {}
        self._bit_set_by_project: dict[str, int] = {}
        # Maps each bit set to itself, so that equal bit sets of several projects are stored as one object.
        self._interned_bit_sets: dict[int, int] = {}
        self._shape_version_by_bit_set: dict[int, int] = {}
        self._next_version_number = 1
        self._cached_kinds_by_bit_set: OrderedDict[int, _CachedKinds] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._bit_set_by_project)

    def bit_sets_by_project(self) -> Mapping[str, int]:
        """Return the bit set of each project, by the project's name."""
        return dict(self._bit_set_by_project)

    def bit_set_of_project(self, project: str) -> int:
        return self._bit_set_by_project.get(project, 0)

    def can_store_project(self, project: str) -> bool:
        return (
            project in self._bit_set_by_project
            or project == OTHER_PROJECTS_KEY
            or len(self._bit_set_by_project) < MAX_PROJECTS_PER_STREAM
        )

    def find_bit(self, pair: PathAndKind) -> int:
        """Return the bit of a pair of path and kind; 0 if the pair is not in the shared list."""
        position = self._position_by_path_kind_pair.get(pair)
        return 0 if position is None else 1 << position

    def find_or_add_bit(self, pair: PathAndKind) -> int:
        """Return the bit of a pair of path and kind; add the pair to the shared list if necessary.

        Return 0 if the list is full.
        """
        with self._lock:
            if pair not in self._position_by_path_kind_pair and len(self.path_kind_pairs) < MAX_PATH_KINDS_PER_STREAM:
                self.path_kind_pairs.append(pair)
                self._position_by_path_kind_pair[pair] = len(self.path_kind_pairs) - 1
        return self.find_bit(pair)

    def bit_set_of_kinds(self, kinds: ValueKindsByPath) -> int:
        """Return the bit set of paths and kinds. Pairs for which the shared list has no room are left out."""
        bit_set = 0
        for path, path_kinds in kinds.items():
            for kind in path_kinds:
                bit_set |= self.find_bit((path, kind)) or self.find_or_add_bit((path, kind))
        return bit_set

    def kinds_of_bit_set(self, bits: int) -> ValueKindsByPath:
        """Return the paths and kinds of the pairs whose bits are set."""
        kinds_by_path: dict[EventPath, frozenset[ValueKind]] = {}
        for path, kind in self._pairs_of_bit_set(bits):
            kinds_by_path[path] = kinds_by_path.get(path, frozenset()) | {kind}
        return kinds_by_path

    def add_kinds(self, project: str, kinds: ValueKindsByPath) -> None:
        """Add paths and kinds to the shape of a project."""
        self.add_bit_set(project, self.bit_set_of_kinds(kinds))

    def add_bit_set(self, project: str, bits: int) -> None:
        with self._lock:
            if not self.can_store_project(project):
                return
            merged = self._bit_set_by_project.get(project, 0) | bits
            self._bit_set_by_project[project] = self._interned_bit_sets.setdefault(merged, merged)
            if len(self._interned_bit_sets) > 2 * MAX_PROJECTS_PER_STREAM:
                self._interned_bit_sets = {bit_set: bit_set for bit_set in self._bit_set_by_project.values()}

    def version_of_project(self, project: str | None) -> int:
        """Return a number that identifies the content of a project's shape: equal shapes have equal numbers."""
        bits = self._visible_bit_set(project)
        number = self._shape_version_by_bit_set.get(bits)
        if number is None:
            with self._lock:
                if len(self._shape_version_by_bit_set) > 2 * MAX_PROJECTS_PER_STREAM:
                    self._shape_version_by_bit_set.clear()
                self._next_version_number += 1
                number = self._shape_version_by_bit_set[bits] = self._next_version_number
        return number

    def shape_of_project(self, project: str | None, stream_shape: EventShape) -> EventShape:
        """Return the shape that a key pinned to `project` sees; if `project` is None, return a shape without paths."""
        bits = self._visible_bit_set(project)
        part = self._cached_kinds_by_bit_set.get(bits)
        if part is None:
            part = self._cache_kinds(bits)
        return EventShape(part.kinds, self.version_of_project(project), part.unlisted_paths, whole_shape=stream_shape)

    def _visible_bit_set(self, project: str | None) -> int:
        return self._bit_set_by_project.get(project, 0) if project and project != OTHER_PROJECTS_KEY else 0

    def _cache_kinds(self, bits: int) -> _CachedKinds:
        values = EventShape().merged_with_kinds(self.kinds_of_bit_set(bits))
        part = _CachedKinds(values.value_kinds_by_path, values.paths_with_unlisted_descendants)
        with self._lock:
            self._cached_kinds_by_bit_set[bits] = part
            while len(self._cached_kinds_by_bit_set) > _MAX_CACHED_BIT_SETS:
                self._cached_kinds_by_bit_set.popitem(last=False)
        return part

    def _pairs_of_bit_set(self, bits: int) -> Iterator[PathAndKind]:
        return (self.path_kind_pairs[position] for position in set_bit_positions(bits))


def set_bit_positions(bits: int) -> Iterator[int]:
    """Yield the positions of the bits that are set, the lowest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
