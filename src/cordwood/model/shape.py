"""What has been seen in a stream: every path of its events, and the kinds of value found there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Path = tuple[str, ...]


class ValueKind(StrEnum):
    OBJECT = "object"
    ARRAY = "array"
    TEXT = "text"
    NUMBER = "number"
    BOOL = "bool"


# The step of a path that stands for "any element of the array".
ELEMENT = "[]"


@dataclass(frozen=True, slots=True)
class Shape:
    """Paths begin at the event: ("metadata", "request", "path"), ("project",).

    Elements of arrays are the step `[]`. `version` grows with every change, and stands in the key of
    whatever was compiled with this shape.
    """

    kinds: Mapping[Path, frozenset[ValueKind]] = field(default_factory=dict)
    version: int = 0
