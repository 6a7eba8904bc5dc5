"""What has been seen in a stream: every path of its events, and the kinds of value found there."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

Path = tuple[str, ...]


class ValueKind(StrEnum):
    OBJECT = "object"
    ARRAY = "array"
    TEXT = "text"
    NUMBER = "number"
    BOOL = "bool"


Kinds = Mapping[Path, frozenset[ValueKind]]

# The step of a path that stands for "any element of the array".
ELEMENT = "[]"


class Shape(msgspec.Struct, frozen=True):
    """Paths begin at the event: ("metadata", "request", "path"), ("project",).

    Elements of arrays are the step `[]`. `version` grows with every change, and stands in the key of
    whatever was compiled with this shape.
    """

    kinds: Kinds = msgspec.field(default_factory=dict)
    version: int = 0

    def with_learnt(self, learnt: Kinds) -> "Shape":
        """This shape with what is new in `learnt`; itself when nothing is."""
        new = {path: kinds for path, kinds in learnt.items() if not kinds <= self.kinds.get(path, frozenset())}
        if not new:
            return self
        merged = dict(self.kinds)
        for path, kinds in new.items():
            merged[path] = merged.get(path, frozenset()) | kinds
        return Shape(merged, self.version + 1)
