"""Access to the kinds and keys of values at a path of a stream's events, as recorded in shapes."""

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from cordwood.bounded_cache import BoundedCache, remember_short
from cordwood.model.shape import ELEMENT, NO_KINDS, Kinds, Path, Shape, ValueKind
from cordwood.sql.budget import spend
from cordwood.sql.dialects.suggestions import nearest
from cordwood.sql.scope import Lineage, Origin
from cordwood.sql.stages import Facts

_CHILDREN_BYTES: Final = 8 * 2**20
_CHILD_BYTES: Final = 150
# The budget of an origin, in nodes: its path is as long as the value is deep.
_SPENT_PER_ORIGIN: Final = 10
# A key that needs no quotes in a query and is at most as long as usual names.
_WRITTEN: Final = re.compile(r"[a-z_][a-z0-9_]{0,60}")
_MOST_LETTERS: Final = 3
_MOST_SIMILAR: Final = 100
_UNCLEAN: Final = re.compile(r"[^0-9a-z]")

_T = TypeVar("_T")
Children = Mapping[Path, tuple[str, ...]]
# The keys below every path, cached for the latest shapes, because computing them costs as much as a compilation.
_children_of: BoundedCache[int, tuple[Kinds, Children]] = BoundedCache(
    _CHILDREN_BYTES, lambda _, kept: _CHILD_BYTES * len(kept[0])
)


class Records(msgspec.Struct):
    """A recorder of lookups in shapes: names are those that may be shown, kinds those of all events of the stream.

    `facts` records every lookup with its result, and `unseen` the paths that were read but never seen.
    """

    shapes: Mapping[str, Shape]
    unseen: dict[str, str | None] = msgspec.field(default_factory=dict)
    facts: dict[tuple[str, tuple[Hashable, ...]], object] = msgspec.field(default_factory=dict)

    def kinds(self, lineage: Lineage) -> frozenset[ValueKind] | None:
        """Return the kinds seen there; None if unknown, because a stream has no shape or its shape omits the path."""
        return self._noted("kinds", self._kinds(lineage), lineage)

    def keys(self, lineage: Lineage) -> tuple[str, ...]:
        """Return every key seen in the objects there, sorted, so that the order of arrival changes no answer."""
        return self._noted("keys", self._keys(lineage), lineage)

    def keys_within(self, lineage: Lineage, dotted: str) -> tuple[str, ...]:
        """Return the keys there that equal this dotted name, or are a prefix of it that ends before a dot."""
        found = tuple(key for key in self._keys(lineage) if key and (dotted == key or dotted.startswith(f"{key}.")))
        return self._noted("keys_within", found, lineage, dotted)

    def depth(self, lineage: Lineage) -> int | None:
        """Return the length of the longest path below; None if unknown."""
        return self._noted("depth", self._depth(lineage), lineage)

    def keys_for(self, lineage: Lineage, name: str, exact: bool) -> tuple[str, ...]:  # noqa: FBT001 - a fact's own words
        """Return the keys to which a name refers: the exact key if seen or quoted, else those of equal normal form."""
        return self._noted("keys_for", (name,) if exact else self._keys_for(lineage, name), lineage, name, exact)

    def has(self, lineage: Lineage, name: str, exact: bool) -> bool:  # noqa: FBT001 - a fact's own words
        found = name in self._keys(lineage) if exact else bool(self._keys_for(lineage, name))
        return self._noted("has", found, lineage, name, exact)

    def is_blank(self, lineage: Lineage) -> bool:
        """Return whether no object has been seen there, so that any name may be one of its keys."""
        return self._noted("is_blank", not self._keys(lineage), lineage)

    def is_unseen(self, lineage: Lineage) -> bool:
        """Return whether no event that may be shown has a value there."""
        return self._noted("is_unseen", all(map(self._is_unseen, lineage.origins)), lineage)

    def note_unseen(self, lineage: Lineage) -> None:
        if self.is_unseen(lineage):
            for origin in sorted(lineage.origins, key=str):
                self.unseen[".".join(origin.path)] = self.nearest(origin)

    def nearest(self, origin: Origin) -> str | None:
        """Return the known path whose last step is most similar to this one's; None if none is similar."""
        return self._noted("nearest", self._nearest(origin), origin)

    def elements(self, lineage: Lineage) -> Lineage:
        """Return the lineage of a repeated record's elements: an object is its own element, an array has its elements.

        Only paths where a value may exist are followed; otherwise the origins would double with every level.
        """
        spend(_SPENT_PER_ORIGIN * len(lineage.origins))
        found = frozenset(place for origin in lineage.origins for place in self._elements(origin))
        return self._noted("elements", Lineage(origins=found or lineage.origins), lineage)

    def child(self, lineage: Lineage, key: str) -> Lineage:
        """Return the lineage of the value at a key; of several paths only those where a value may exist are followed."""
        spend(_SPENT_PER_ORIGIN * len(lineage.origins))
        every = below(lineage, (key,))
        if len(every.origins) == 1:
            return every
        found = frozenset(
            origin for origin in every.origins if self._kinds(Lineage(origins=frozenset({origin}))) != NO_KINDS
        )
        return self._noted("child", Lineage(origins=found or every.origins), lineage, key)

    def _elements(self, origin: Origin) -> Iterator[Origin]:
        shape = self.shapes.get(origin.stream)
        kinds = (shape.whole or shape).kinds if shape is not None else {}
        if shape is None or (origin.path not in kinds and shape.stored_kinds(origin.path) is None):
            # Nothing is known of this path, nor of any below it.
            yield origin
            return
        for path in (origin.path, (*origin.path, ELEMENT)):
            if shape.stored_kinds(path) != NO_KINDS:
                yield Origin(origin.stream, path)

    def _noted(self, asked: str, said: _T, *about: Hashable) -> _T:
        self.facts[asked, about] = said
        return said

    def _kinds(self, lineage: Lineage) -> frozenset[ValueKind] | None:
        found: set[ValueKind] = set()
        for origin in lineage.origins:
            shape = self.shapes.get(origin.stream)
            kinds = shape.stored_kinds(origin.path) if shape is not None else None
            if kinds is None:
                return None
            found |= kinds
        return frozenset(found)

    def _depth(self, lineage: Lineage) -> int | None:
        longest = 0
        for origin in lineage.origins:
            shape = self.shapes.get(origin.stream)
            whole = (shape.whole or shape) if shape is not None else None
            if whole is None or whole.unlisted:
                return None
            length = len(origin.path)
            lengths = (len(path) - length for path in whole.kinds if path[:length] == origin.path)
            longest = max(longest, max(lengths, default=0))
        return longest

    def _keys(self, lineage: Lineage) -> tuple[str, ...]:
        found = {key for origin in lineage.origins for key in self._children(origin)}
        return tuple(sorted(found - {ELEMENT}))

    def _keys_for(self, lineage: Lineage, name: str) -> tuple[str, ...]:
        cleaned = _cleaned(name)
        alike = [key for key in self._keys(lineage) if _cleaned(key) == cleaned]
        return tuple(sorted(alike, key=lambda key: (key != name, key.lower() != name.lower(), key)))

    def _is_unseen(self, origin: Origin) -> bool:
        shape = self.shapes.get(origin.stream)
        return shape is not None and origin.path not in shape.kinds and not shape.may_lack(origin.path)

    def _nearest(self, origin: Origin) -> str | None:
        shape = self.shapes.get(origin.stream)
        if shape is None or not origin.path:
            return None
        wanted = origin.path[-1].lower()
        named: dict[str, Path] = {}
        similar: dict[str, Path] = {}
        for name, path in _alike(shape, origin.path[0], wanted):
            if name == wanted or name.startswith(f"{wanted}_"):
                named[name] = min(named.get(name, path), path, key=_by_length)
            elif name in similar or len(similar) < _MOST_SIMILAR:
                similar[name] = min(similar.get(name, path), path, key=_by_length)
        found = min(named.values(), key=_by_length, default=None)
        if found is None:
            found = similar.get(nearest(wanted, similar) or "")
        return ".".join(step for step in found if step != ELEMENT) if found else None

    def _children(self, origin: Origin) -> tuple[str, ...]:
        shape = self.shapes.get(origin.stream)
        return _children(shape.kinds).get(origin.path, ()) if shape is not None else ()


def _alike(shape: Shape, root: str, wanted: str) -> Iterator[tuple[str, Path]]:
    """Yield the paths below a column whose last step may be similar to a name.

    Senders choose keys, so most are excluded cheaply by their first letter and length.
    """
    for path in shape.kinds:
        name = path[-1].lower() if len(path) > 1 and path[0] == root else ""
        is_near = name.startswith(wanted) or abs(len(name) - len(wanted)) <= _MOST_LETTERS
        if name[:1] == wanted[:1] and is_near and _WRITTEN.fullmatch(name):
            yield name, path


def _by_length(path: Path) -> tuple[int, Path]:
    return len(path), path


def below(lineage: Lineage, steps: Iterable[str]) -> Lineage:
    """Return the lineage of the value at a path below."""
    further = tuple(steps)
    return Lineage(origins=frozenset(Origin(origin.stream, origin.path + further) for origin in lineage.origins))


def joined(lineages: Iterable[Lineage]) -> Lineage:
    """Return the lineage of a value that is one of several."""
    return Lineage(origins=frozenset(origin for lineage in lineages for origin in lineage.origins))


def still_hold(facts: Facts, shapes: Mapping[str, Shape]) -> bool:
    """Return whether the recorded lookups give the same results in these shapes, so the statement is still valid."""
    records = Records(shapes)
    return all(getattr(records, asked)(*about) == said for (asked, about), said in facts.items())


def _children(kinds: Kinds) -> Children:
    kept = _children_of.get(id(kinds))
    if kept is not None and kept[0] is kinds:
        return kept[1]
    found: dict[Path, list[str]] = {}
    for path in kinds:
        if path:
            siblings = found.setdefault(path[:-1], [])
            siblings.append(path[-1])
    children = {path: tuple(keys) for path, keys in found.items()}
    _children_of.put(id(kinds), (kinds, children))
    return children


@remember_short(longest=128, most=4096)
def _cleaned(key: str) -> str:
    return _UNCLEAN.sub("_", key.lower()).lstrip("_")
