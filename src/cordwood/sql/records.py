"""What lies at a path of a stream's events, as far as it has been seen."""

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from cordwood.bounded_cache import BoundedCache, remember_short
from cordwood.model.shape import ELEMENT, NO_KINDS, Kinds, Path, Shape, ValueKind
from cordwood.sql.budget import spend
from cordwood.sql.dialects.suggestions import nearest
from cordwood.sql.scope import Nature, Origin
from cordwood.sql.stages import Facts

_CHILDREN_BYTES: Final = 8 * 2**20
_CHILD_BYTES: Final = 150
# An origin weighs as much as so many nodes: its path is as long as the value lies deep.
_SPENT_PER_ORIGIN: Final = 10
# A key that a query can name without quotes, and is not longer than names are.
_WRITTEN: Final = re.compile(r"[a-z_][a-z0-9_]{0,60}")
_MOST_LETTERS: Final = 3
_MOST_SIMILAR: Final = 100
_UNCLEAN: Final = re.compile(r"[^0-9a-z]")

_T = TypeVar("_T")
Children = Mapping[Path, tuple[str, ...]]
# The keys below every path, kept for the shapes last asked about: making them costs as much as a compile.
_children_of: BoundedCache[int, tuple[Kinds, Children]] = BoundedCache(
    _CHILDREN_BYTES, lambda _, kept: _CHILD_BYTES * len(kept[0])
)


class Records(msgspec.Struct):
    """Reads the shapes of streams: names are those that may be shown, kinds those of all events of the stream.

    Remembers in `facts` what it was asked, and which paths were asked for and never seen.
    """

    shapes: Mapping[str, Shape]
    unseen: dict[str, str | None] = msgspec.field(default_factory=dict)
    facts: dict[tuple[str, tuple[Hashable, ...]], object] = msgspec.field(default_factory=dict)

    def kinds(self, nature: Nature) -> frozenset[ValueKind] | None:
        """None when it cannot be known: some stream has no shape, or had no room for the path."""
        return self._noted("kinds", self._kinds(nature), nature)

    def keys(self, nature: Nature) -> tuple[str, ...]:
        """Every key seen in the objects there, by the alphabet: whose events came first changes no answer."""
        return self._noted("keys", self._keys(nature), nature)

    def keys_within(self, nature: Nature, dotted: str) -> tuple[str, ...]:
        """The keys there that are this dotted name, or its beginning up to a dot."""
        found = tuple(key for key in self._keys(nature) if key and (dotted == key or dotted.startswith(f"{key}.")))
        return self._noted("keys_within", found, nature, dotted)

    def depth(self, nature: Nature) -> int | None:
        """How many steps the longest path below has; None when it cannot be known."""
        return self._noted("depth", self._depth(nature), nature)

    def keys_for(self, nature: Nature, name: str, exact: bool) -> tuple[str, ...]:  # noqa: FBT001 - a fact's own words
        """The keys a name means: itself when seen or quoted, else those that only cleaning tells apart."""
        return self._noted("keys_for", (name,) if exact else self._keys_for(nature, name), nature, name, exact)

    def has(self, nature: Nature, name: str, exact: bool) -> bool:  # noqa: FBT001 - a fact's own words
        found = name in self._keys(nature) if exact else bool(self._keys_for(nature, name))
        return self._noted("has", found, nature, name, exact)

    def is_blank(self, nature: Nature) -> bool:
        """Whether no object has been seen there, so that any name may be one of its keys."""
        return self._noted("is_blank", not self._keys(nature), nature)

    def is_unseen(self, nature: Nature) -> bool:
        """Whether none of the events that may be shown has anything there."""
        return self._noted("is_unseen", all(map(self._is_unseen, nature.origins)), nature)

    def note_unseen(self, nature: Nature) -> None:
        if self.is_unseen(nature):
            for origin in sorted(nature.origins, key=str):
                self.unseen[".".join(origin.path)] = self.nearest(origin)

    def nearest(self, origin: Origin) -> str | None:
        """The path that was seen whose last step is most like this one's; None where none is like it."""
        return self._noted("nearest", self._nearest(origin), origin)

    def elements(self, nature: Nature) -> Nature:
        """The nature of what a repeated record repeats: an object is an array of itself, an array its elements.

        Only places where something may lie are followed; otherwise the origins would double with every level.
        """
        spend(_SPENT_PER_ORIGIN * len(nature.origins))
        found = frozenset(place for origin in nature.origins for place in self._elements(origin))
        return self._noted("elements", Nature(origins=found or nature.origins), nature)

    def child(self, nature: Nature, key: str) -> Nature:
        """The nature of a value below; of several places only those where something may lie are followed."""
        spend(_SPENT_PER_ORIGIN * len(nature.origins))
        every = below(nature, (key,))
        if len(every.origins) == 1:
            return every
        found = frozenset(
            origin for origin in every.origins if self._kinds(Nature(origins=frozenset({origin}))) != NO_KINDS
        )
        return self._noted("child", Nature(origins=found or every.origins), nature, key)

    def _elements(self, origin: Origin) -> Iterator[Origin]:
        shape = self.shapes.get(origin.stream)
        kinds = (shape.whole or shape).kinds if shape is not None else {}
        if shape is None or (origin.path not in kinds and shape.stored_kinds(origin.path) is None):
            # Nothing is known of it, nor of anything below it.
            yield origin
            return
        for path in (origin.path, (*origin.path, ELEMENT)):
            if shape.stored_kinds(path) != NO_KINDS:
                yield Origin(origin.stream, path)

    def _noted(self, asked: str, said: _T, *about: Hashable) -> _T:
        self.facts[asked, about] = said
        return said

    def _kinds(self, nature: Nature) -> frozenset[ValueKind] | None:
        found: set[ValueKind] = set()
        for origin in nature.origins:
            shape = self.shapes.get(origin.stream)
            kinds = shape.stored_kinds(origin.path) if shape is not None else None
            if kinds is None:
                return None
            found |= kinds
        return frozenset(found)

    def _depth(self, nature: Nature) -> int | None:
        longest = 0
        for origin in nature.origins:
            shape = self.shapes.get(origin.stream)
            whole = (shape.whole or shape) if shape is not None else None
            if whole is None or whole.unlisted:
                return None
            length = len(origin.path)
            lengths = (len(path) - length for path in whole.kinds if path[:length] == origin.path)
            longest = max(longest, max(lengths, default=0))
        return longest

    def _keys(self, nature: Nature) -> tuple[str, ...]:
        found = {key for origin in nature.origins for key in self._children(origin)}
        return tuple(sorted(found - {ELEMENT}))

    def _keys_for(self, nature: Nature, name: str) -> tuple[str, ...]:
        cleaned = _cleaned(name)
        alike = [key for key in self._keys(nature) if _cleaned(key) == cleaned]
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
    """Paths below a column whose last step may be like a name.

    Senders choose keys: most are told apart by their first letter and their length alone.
    """
    for path in shape.kinds:
        name = path[-1].lower() if len(path) > 1 and path[0] == root else ""
        is_near = name.startswith(wanted) or abs(len(name) - len(wanted)) <= _MOST_LETTERS
        if name[:1] == wanted[:1] and is_near and _WRITTEN.fullmatch(name):
            yield name, path


def _by_length(path: Path) -> tuple[int, Path]:
    return len(path), path


def below(nature: Nature, steps: Iterable[str]) -> Nature:
    """The nature of what lies further down."""
    further = tuple(steps)
    return Nature(origins=frozenset(Origin(origin.stream, origin.path + further) for origin in nature.origins))


def joined(natures: Iterable[Nature]) -> Nature:
    """The nature of what is one of several."""
    return Nature(origins=frozenset(origin for nature in natures for origin in nature.origins))


def still_hold(facts: Facts, shapes: Mapping[str, Shape]) -> bool:
    """Whether these shapes say the same: then whatever was compiled with them is what these would make."""
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
