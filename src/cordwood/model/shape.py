"""What has been seen in a stream: every path of its events, and the kinds of value found there."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Optional

import msgspec

Path = tuple[str, ...]


class ValueKind(StrEnum):
    """The last two are no kinds of values but marks, in what is learnt of a path.

    `UNLISTED`: below the path others were seen that are not listed. `UNSURE`: the path was listed after it may have been
    seen, so that values of other kinds may lie there.
    """

    OBJECT = "object"
    ARRAY = "array"
    TEXT = "text"
    NUMBER = "number"
    BOOL = "bool"
    UNLISTED = "unlisted"
    UNSURE = "unsure"


Kinds = Mapping[Path, frozenset[ValueKind]]

# The step of a path that stands for "any element of the array".
ELEMENT = "[]"

# A path with more steps, or with more letters in them, is never listed: what is kept of a stream's paths, and the types
# that its decoders are made of, would grow with the nesting and the keys of a single event.
MAX_STEPS = 32
MAX_LETTERS = 1_000

NO_KINDS: frozenset[ValueKind] = frozenset()
_MARKS = frozenset({ValueKind.UNLISTED, ValueKind.UNSURE})


class Shape(msgspec.Struct, frozen=True):
    """Paths begin at the event: ("metadata", "request", "path"), ("project",).

    Elements of arrays are the step `[]`. `version` changes with every change. `unlisted` and `unsure` are the paths
    with these marks; the empty path is the event itself.

    The shape of one project's events has the shape of all events of the stream as `whole`: its own names are those
    that may be shown, and the kinds of the whole say how a value is read, whoever's it is.
    """

    kinds: Kinds = msgspec.field(default_factory=dict)
    version: int = 0
    unlisted: frozenset[Path] = frozenset()
    unsure: frozenset[Path] = frozenset()
    whole: Optional["Shape"] = None

    def with_learnt(self, learnt: Kinds) -> "Shape":
        """This shape with what is new in `learnt`, but for paths that are too long; itself when nothing is."""
        new = {path: kinds for path, kinds in learnt.items() if not kinds <= self.known_at(path) and is_listable(path)}
        if not new:
            return self
        merged = dict(self.kinds)
        for path, kinds in new.items():
            values = merged.get(path, NO_KINDS) | (kinds - _MARKS)
            if values:
                merged[path] = values
        unlisted = self.unlisted.union(path for path, kinds in new.items() if ValueKind.UNLISTED in kinds)
        unsure = self.unsure.union(path for path, kinds in new.items() if ValueKind.UNSURE in kinds)
        return Shape(merged, self.version + 1, unlisted, unsure)

    def known_at(self, path: Path) -> frozenset[ValueKind]:
        """The kinds of the path with its marks, as `learnt` has them."""
        kinds = self.kinds.get(path, NO_KINDS)
        if path in self.unlisted:
            kinds |= {ValueKind.UNLISTED}
        return kinds | {ValueKind.UNSURE} if path in self.unsure else kinds

    def stored_kinds(self, path: Path) -> frozenset[ValueKind] | None:
        """The kinds of value that events of any project have at the path; None where others may be there."""
        whole = self.whole or self
        kinds = whole.kinds.get(path)
        if kinds is None:
            return None if whole.may_lack(path) else NO_KINDS
        return None if path in whole.unsure else kinds

    def may_lack(self, path: Path) -> bool:
        """Whether a path that is not listed may have been seen all the same."""
        if not is_listable(path):
            return True
        return bool(self.unlisted) and any(path[:length] in self.unlisted for length in range(len(path)))


def is_listable(path: Path) -> bool:
    """Whether the path is short enough to be listed in a shape."""
    return len(path) <= MAX_STEPS and sum(map(len, path)) <= MAX_LETTERS
