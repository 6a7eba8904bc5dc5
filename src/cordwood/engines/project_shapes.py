"""What has been seen in each project of a stream: a set of places in one list of paths and kinds, as the bits of a number."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from cordwood.model.shape import Kinds, Path, Shape, ValueKind

# A stream keeps sets for so many projects. Beyond, a project's events are stored and queried like all others, and a
# key that is pinned to it is shown the declared columns alone.
MAX_PROJECTS: Final = 10_000
# A project's set holds so many pairs of a path and a kind.
MAX_OF_ONE_PROJECT: Final = 1_000
# All sets of a stream together refer to so many.
MAX_PAIRS: Final = 30_000
# Projects for which no set is kept share one, which is shown to no key: together they have the room of one.
OTHERS: Final = ""
_READY: Final = 256

Pair = tuple[Path, ValueKind]
ByProject = Mapping[str, Kinds]


class _Part(msgspec.Struct, frozen=True):
    kinds: Kinds
    unlisted: frozenset[Path]


class ProjectShapes:
    """The sets of one stream. Methods may be called from any thread; reading never waits."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []
        self._places: dict[Pair, int] = {}
        self._sets: dict[str, int] = {}
        # One object for equal sets.
        self._equal: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._next_number = 1
        self._parts: OrderedDict[int, _Part] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._sets)

    def sets(self) -> Mapping[str, int]:
        """The set of each project."""
        return dict(self._sets)

    def set_of(self, project: str) -> int:
        return self._sets.get(project, 0)

    def has_room_for(self, project: str) -> bool:
        return project in self._sets or project == OTHERS or len(self._sets) < MAX_PROJECTS

    def listed(self, pair: Pair) -> int:
        """The bit of the pair; 0 when it is not in the list."""
        place = self._places.get(pair)
        return 0 if place is None else 1 << place

    def bit(self, pair: Pair) -> int:
        """The bit of the pair, which is listed now if it was not; 0 when the list is full."""
        with self._lock:
            if pair not in self._places and len(self.pairs) < MAX_PAIRS:
                self.pairs.append(pair)
                self._places[pair] = len(self.pairs) - 1
        return self.listed(pair)

    def bits(self, kinds: Kinds) -> int:
        """The set of these pairs, without those for which the list has no room."""
        found = 0
        for path, of_path in kinds.items():
            for kind in of_path:
                found |= self.listed((path, kind)) or self.bit((path, kind))
        return found

    def kinds(self, bits: int) -> Kinds:
        """The pairs of a set."""
        found: dict[Path, frozenset[ValueKind]] = {}
        for path, kind in self._pairs_in(bits):
            found[path] = found.get(path, frozenset()) | {kind}
        return found

    def learn(self, project: str, kinds: Kinds) -> None:
        """Add these pairs to the project's set."""
        self.add(project, self.bits(kinds))

    def add(self, project: str, bits: int) -> None:
        with self._lock:
            if not self.has_room_for(project):
                return
            merged = self._sets.get(project, 0) | bits
            self._sets[project] = self._equal.setdefault(merged, merged)
            if len(self._equal) > 2 * MAX_PROJECTS:
                self._equal = {one: one for one in self._sets.values()}

    def version(self, project: str | None) -> int:
        """A number for the content of the project's set: equal sets have the same."""
        bits = self._bits(project)
        number = self._numbers.get(bits)
        if number is None:
            with self._lock:
                if len(self._numbers) > 2 * MAX_PROJECTS:
                    self._numbers.clear()
                self._next_number += 1
                number = self._numbers[bits] = self._next_number
        return number

    def shape(self, project: str | None, whole: Shape) -> Shape:
        """What may be shown of the stream to a key that reads one project; None reads nothing that is known."""
        bits = self._bits(project)
        part = self._parts.get(bits)
        if part is None:
            part = self._part(bits)
        return Shape(part.kinds, self.version(project), part.unlisted, whole=whole)

    def _bits(self, project: str | None) -> int:
        return self._sets.get(project, 0) if project and project != OTHERS else 0

    def _part(self, bits: int) -> _Part:
        values = Shape().with_learnt(self.kinds(bits))
        part = _Part(values.kinds, values.unlisted)
        with self._lock:
            self._parts[bits] = part
            while len(self._parts) > _READY:
                self._parts.popitem(last=False)
        return part

    def _pairs_in(self, bits: int) -> Iterator[Pair]:
        return (self.pairs[place] for place in places_in(bits))


def places_in(bits: int) -> Iterator[int]:
    """The numbers of the bits that are set."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
