"""Shapes: the paths seen in a stream's events, and the kinds of values at each path."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Optional

import msgspec

Path = tuple[str, ...]


class ValueKind(StrEnum):
    """The kind of a value. The last two are marks on a path.

    `UNLISTED`: paths below this one were seen that are not listed. `UNSURE`: the path was listed late, so that earlier
    events may have values of other kinds at it.
    """

    OBJECT = "object"
    ARRAY = "array"
    TEXT = "text"
    NUMBER = "number"
    BOOL = "bool"
    UNLISTED = "unlisted"
    UNSURE = "unsure"


Kinds = Mapping[Path, frozenset[ValueKind]]

# The step that stands for any element of an array.
ELEMENT = "[]"

# Limits on a listed path, in steps and characters. Without them, the size of shapes and decoders would depend on the
# nesting and the keys of a single event.
MAX_STEPS = 32
MAX_PATH_CHARACTERS = 1_000

NO_KINDS: frozenset[ValueKind] = frozenset()
_MARKS = frozenset({ValueKind.UNLISTED, ValueKind.UNSURE})


class Shape(msgspec.Struct, frozen=True):
    """The paths seen in a stream's events, with the kinds of their values.

    A path is a tuple such as ("metadata", "request", "path"). Elements of arrays are the step `[]`. `version` changes
    with every change. `unlisted` and `unsure` hold the paths with these marks; the empty path is the event itself.

    The shape of one project refers to that of the whole stream as `whole`: names come from the project's own paths,
    kinds of values from the whole.
    """

    kinds: Kinds = msgspec.field(default_factory=dict)
    version: int = 0
    unlisted: frozenset[Path] = frozenset()
    unsure: frozenset[Path] = frozenset()
    whole: Optional["Shape"] = None

    def with_learnt(self, learnt: Kinds) -> "Shape":
        """Return this shape with the new paths and kinds in `learnt`; return it unchanged if nothing is new."""
        new = {
            path: kinds
            for path, kinds in learnt.items()
            if not kinds <= self.kinds_with_marks(path) and is_listable(path)
        }
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

    def kinds_with_marks(self, path: Path) -> frozenset[ValueKind]:
        """Return the kinds at a path, with its marks."""
        kinds = self.kinds.get(path, NO_KINDS)
        if path in self.unlisted:
            kinds |= {ValueKind.UNLISTED}
        return kinds | {ValueKind.UNSURE} if path in self.unsure else kinds

    def stored_kinds(self, path: Path) -> frozenset[ValueKind] | None:
        """Return the kinds that events of any project have at a path; None if events may have other kinds."""
        whole = self.whole or self
        kinds = whole.kinds.get(path)
        if kinds is None:
            return None if whole.may_be_unlisted(path) else NO_KINDS
        return None if path in whole.unsure else kinds

    def may_be_unlisted(self, path: Path) -> bool:
        """Return whether events may have a path although it is not listed."""
        if not is_listable(path):
            return True
        return bool(self.unlisted) and any(path[:length] in self.unlisted for length in range(len(path)))


def is_listable(path: Path) -> bool:
    """Return whether a path is short enough to be listed."""
    return len(path) <= MAX_STEPS and sum(map(len, path)) <= MAX_PATH_CHARACTERS
