"""Lookups in the shapes of streams: which kinds of values, and which keys, events have at a path."""

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from cordwood.bounded_cache import BoundedCache, memoize_short_texts
from cordwood.model.event import ARRAY_ELEMENT_STEP, NO_VALUE_KINDS, EventPath, EventShape, ValueKind, ValueKindsByPath
from cordwood.sql.budget import charge_nodes
from cordwood.sql.diagnostics import most_similar_name
from cordwood.sql.scope import Lineage, ValueOrigin
from cordwood.sql.stages import ShapeLookups

_CHILD_KEYS_CACHE_BYTES: Final = 8 * 2**20
_BYTES_PER_CACHED_PATH: Final = 150
# The budget counts this number of nodes for each origin of a value, because an origin contains a whole path.
_BUDGET_NODES_PER_ORIGIN: Final = 10
# A key that needs no quotes in a query and is not longer than usual names.
_UNQUOTED_KEY_PATTERN: Final = re.compile(r"[a-z_][a-z0-9_]{0,60}")
_MAX_SIMILAR_KEY_LENGTH_DIFFERENCE: Final = 3
_MAX_SIMILAR_PATH_CANDIDATES: Final = 100
_NON_ALPHANUMERIC_PATTERN: Final = re.compile(r"[^0-9a-z]")

_LookupResult = TypeVar("_LookupResult")
KeysByPath = Mapping[EventPath, tuple[str, ...]]
# The keys below each path, cached for the latest shapes, because computing them takes as long as a compilation.
_child_keys_cache: BoundedCache[int, tuple[ValueKindsByPath, KeysByPath]] = BoundedCache(
    _CHILD_KEYS_CACHE_BYTES, lambda _, kept: _BYTES_PER_CACHED_PATH * len(kept[0])
)


class RecordingShapeReader(msgspec.Struct):
    """Reader of keys and kinds of values in shapes, which records every lookup.

    Most lookups are for a lineage: the paths from which a value may come. Keys are looked up in the events that the
    caller may see, but kinds in the events of all projects. `shape_lookups` has every lookup with its result.
    `unseen_paths` has the paths that the query reads, but that no event has; each has the most similar known path as
    its value, or None.
    """

    shapes_by_stream: Mapping[str, EventShape]
    unseen_paths: dict[str, str | None] = msgspec.field(default_factory=dict)
    shape_lookups: dict[tuple[str, tuple[Hashable, ...]], object] = msgspec.field(default_factory=dict)

    def kinds(self, lineage: Lineage) -> frozenset[ValueKind] | None:
        """Return the kinds of value seen at the lineage's paths; None if they are unknown for one of the paths."""
        return self._record_lookup("kinds", self._find_kinds(lineage), lineage)

    def keys(self, lineage: Lineage) -> tuple[str, ...]:
        """Return all keys of objects seen at the lineage's paths, sorted, so that the order of events has no effect."""
        return self._record_lookup("keys", self._find_keys(lineage), lineage)

    def keys_starting_dotted_name(self, lineage: Lineage, dotted: str) -> tuple[str, ...]:
        """Return those keys at the lineage's paths with which the name `dotted` can begin.

        For `a.b.c`, these are `a`, `a.b` and `a.b.c`, as far as they exist.
        """
        keys = tuple(key for key in self._find_keys(lineage) if dotted == key or dotted.startswith(f"{key}."))
        return self._record_lookup("keys_starting_dotted_name", keys, lineage, dotted)

    def depth(self, lineage: Lineage) -> int | None:
        """Return the number of steps of the longest known path below the lineage's paths; None if it is unknown."""
        return self._record_lookup("depth", self._find_depth(lineage), lineage)

    def keys_matching_name(self, lineage: Lineage, name: str, exact: bool) -> tuple[str, ...]:  # noqa: FBT001 - recorded lookups have positional arguments
        """Return the keys to which a name refers: if `exact`, the name itself, else all keys with the same normal form.

        The normal form ignores letter case and leading special characters, and treats all special characters as equal.
        """
        return self._record_lookup(
            "keys_matching_name",
            (name,) if exact else self._find_keys_matching_name(lineage, name),
            lineage,
            name,
            exact,
        )

    def has_key(self, lineage: Lineage, name: str, exact: bool) -> bool:  # noqa: FBT001 - recorded lookups have positional arguments
        found = name in self._find_keys(lineage) if exact else bool(self._find_keys_matching_name(lineage, name))
        return self._record_lookup("has_key", found, lineage, name, exact)

    def has_no_seen_keys(self, lineage: Lineage) -> bool:
        """Return whether no keys are known at the lineage's paths, so that any name may be a key there."""
        return self._record_lookup("has_no_seen_keys", not self._find_keys(lineage), lineage)

    def is_unseen(self, lineage: Lineage) -> bool:
        """Return whether no event that the caller may see has a value at any of the lineage's paths."""
        return self._record_lookup("is_unseen", all(map(self._is_unseen_origin, lineage.origins)), lineage)

    def record_unseen_paths(self, lineage: Lineage) -> None:
        if self.is_unseen(lineage):
            for origin in sorted(lineage.origins, key=str):
                self.unseen_paths[".".join(origin.path)] = self.most_similar_path(origin)

    def most_similar_path(self, origin: ValueOrigin) -> str | None:
        """Return the known path whose last step is most similar to that of `origin`; None if none is similar."""
        return self._record_lookup("most_similar_path", self._find_nearest_path(origin), origin)

    def elements(self, lineage: Lineage) -> Lineage:
        """Return the lineage of the elements of a repeated record.

        For an object, this is the object's own lineage; for an array, it is the lineage of the array's elements. Only
        paths at which a value may exist are followed. Otherwise, the number of paths would double with every level.
        """
        charge_nodes(_BUDGET_NODES_PER_ORIGIN * len(lineage.origins))
        origins = frozenset(element for origin in lineage.origins for element in self._element_origins(origin))
        return self._record_lookup("elements", Lineage(origins=origins or lineage.origins), lineage)

    def child(self, lineage: Lineage, key: str) -> Lineage:
        """Return the lineage of the value at a key.

        If the value may come from several paths, only the paths at which a value may exist are kept.
        """
        charge_nodes(_BUDGET_NODES_PER_ORIGIN * len(lineage.origins))
        candidates = lineage_below(lineage, (key,))
        if len(candidates.origins) == 1:
            return candidates
        possible = frozenset(
            origin
            for origin in candidates.origins
            if self._find_kinds(Lineage(origins=frozenset({origin}))) != NO_VALUE_KINDS
        )
        return self._record_lookup("child", Lineage(origins=possible or candidates.origins), lineage, key)

    def _element_origins(self, origin: ValueOrigin) -> Iterator[ValueOrigin]:
        shape = self.shapes_by_stream.get(origin.stream)
        kinds = (shape.whole_shape or shape).value_kinds_by_path if shape is not None else {}
        if shape is None or (origin.path not in kinds and shape.stored_kinds(origin.path) is None):
            # Nothing is known about this path and the paths below it.
            yield origin
            return
        for path in (origin.path, (*origin.path, ARRAY_ELEMENT_STEP)):
            if shape.stored_kinds(path) != NO_VALUE_KINDS:
                yield ValueOrigin(origin.stream, path)

    def _record_lookup(self, method: str, result: _LookupResult, *arguments: Hashable) -> _LookupResult:
        self.shape_lookups[method, arguments] = result
        return result

    def _find_kinds(self, lineage: Lineage) -> frozenset[ValueKind] | None:
        kinds: set[ValueKind] = set()
        for origin in lineage.origins:
            shape = self.shapes_by_stream.get(origin.stream)
            stored = shape.stored_kinds(origin.path) if shape is not None else None
            if stored is None:
                return None
            kinds |= stored
        return frozenset(kinds)

    def _find_depth(self, lineage: Lineage) -> int | None:
        max_depth = 0
        for origin in lineage.origins:
            shape = self.shapes_by_stream.get(origin.stream)
            whole_shape = (shape.whole_shape or shape) if shape is not None else None
            if whole_shape is None or whole_shape.paths_with_unlisted_descendants:
                return None
            length = len(origin.path)
            lengths = (len(path) - length for path in whole_shape.value_kinds_by_path if path[:length] == origin.path)
            max_depth = max(max_depth, max(lengths, default=0))
        return max_depth

    def _find_keys(self, lineage: Lineage) -> tuple[str, ...]:
        keys = {key for origin in lineage.origins for key in self._child_keys(origin)}
        return tuple(sorted(keys - {ARRAY_ELEMENT_STEP}))

    def _find_keys_matching_name(self, lineage: Lineage, name: str) -> tuple[str, ...]:
        normalized = _normalized_key(name)
        matching = [key for key in self._find_keys(lineage) if _normalized_key(key) == normalized]
        return tuple(sorted(matching, key=lambda key: (key != name, key.lower() != name.lower(), key)))

    def _is_unseen_origin(self, origin: ValueOrigin) -> bool:
        shape = self.shapes_by_stream.get(origin.stream)
        return (
            shape is not None
            and origin.path not in shape.value_kinds_by_path
            and not shape.may_have_unlisted_path(origin.path)
        )

    def _find_nearest_path(self, origin: ValueOrigin) -> str | None:
        shape = self.shapes_by_stream.get(origin.stream)
        if shape is None or not origin.path:
            return None
        last_step = origin.path[-1].lower()
        prefixed: dict[str, EventPath] = {}
        similar: dict[str, EventPath] = {}
        for name, path in _similar_paths(shape, origin.path[0], last_step):
            if name == last_step or name.startswith(f"{last_step}_"):
                prefixed[name] = min(prefixed.get(name, path), path, key=_length_sort_key)
            elif name in similar or len(similar) < _MAX_SIMILAR_PATH_CANDIDATES:
                similar[name] = min(similar.get(name, path), path, key=_length_sort_key)
        closest_path = min(prefixed.values(), key=_length_sort_key, default=None)
        if closest_path is None:
            closest_path = similar.get(most_similar_name(last_step, similar) or "")
        return ".".join(step for step in closest_path if step != ARRAY_ELEMENT_STEP) if closest_path else None

    def _child_keys(self, origin: ValueOrigin) -> tuple[str, ...]:
        shape = self.shapes_by_stream.get(origin.stream)
        return _child_keys_by_path(shape.value_kinds_by_path).get(origin.path, ()) if shape is not None else ()


def _similar_paths(shape: EventShape, root: str, last_step: str) -> Iterator[tuple[str, EventPath]]:
    """Yield the paths below the column `root` whose last step may be similar to `last_step`, each with its last step.

    Senders choose the keys, so there may be many paths. Most are excluded quickly, by the first letter and length of
    their last step.
    """
    for path in shape.value_kinds_by_path:
        name = path[-1].lower() if len(path) > 1 and path[0] == root else ""
        is_similar = name.startswith(last_step) or abs(len(name) - len(last_step)) <= _MAX_SIMILAR_KEY_LENGTH_DIFFERENCE
        if name[:1] == last_step[:1] and is_similar and _UNQUOTED_KEY_PATTERN.fullmatch(name):
            yield name, path


def _length_sort_key(path: EventPath) -> tuple[int, EventPath]:
    return len(path), path


def lineage_below(lineage: Lineage, steps: Iterable[str]) -> Lineage:
    """Return the lineage of the value at the path `steps` below a value with this lineage."""
    steps_below = tuple(steps)
    return Lineage(
        origins=frozenset(ValueOrigin(origin.stream, origin.path + steps_below) for origin in lineage.origins)
    )


def join_lineages(lineages: Iterable[Lineage]) -> Lineage:
    """Return the lineage of a value that comes from one of several values, such as the value of COALESCE."""
    return Lineage(origins=frozenset(origin for lineage in lineages for origin in lineage.origins))


def are_lookups_valid(shape_lookups: ShapeLookups, shapes: Mapping[str, EventShape]) -> bool:
    """Return whether all recorded lookups give the same results in `shapes`, so that the statement is still valid."""
    records = RecordingShapeReader(shapes)
    return all(getattr(records, method)(*arguments) == result for (method, arguments), result in shape_lookups.items())


def _child_keys_by_path(kinds: ValueKindsByPath) -> KeysByPath:
    cached = _child_keys_cache.get(id(kinds))
    if cached is not None and cached[0] is kinds:
        return cached[1]
    keys_by_parent: dict[EventPath, list[str]] = {}
    for path in kinds:
        if path:
            siblings = keys_by_parent.setdefault(path[:-1], [])
            siblings.append(path[-1])
    children = {path: tuple(keys) for path, keys in keys_by_parent.items()}
    _child_keys_cache.put(id(kinds), (kinds, children))
    return children


@memoize_short_texts(max_length=128, max_entries=4096)
def _normalized_key(key: str) -> str:
    return _NON_ALPHANUMERIC_PATTERN.sub("_", key.lower()).lstrip("_")
