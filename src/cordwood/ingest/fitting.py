"""A shape made into a decoder: whether an event holds nothing new is then one validation, without a step in Python
for each of its values.
"""

import re
from typing import Any

import msgspec

from cordwood.model.event import Event
from cordwood.model.shape import ELEMENT, Shape, ValueKind

_SCALARS: dict[ValueKind, Any] = {
    ValueKind.TEXT: str,
    ValueKind.NUMBER: int | float,
    ValueKind.BOOL: bool,
}


# Keys that the decoder cannot be told of: an event that has one never fits, and is looked at closely.
_UNNAMEABLE = re.compile(r'[\x00-\x1f"\\]')


class _Node:
    """One step of the paths, with the kinds seen there and the steps that follow."""

    __slots__ = ("kinds", "steps")

    def __init__(self) -> None:
        self.kinds: frozenset[ValueKind] = frozenset()
        self.steps: dict[str, _Node] = {}

    def step(self, name: str) -> "_Node":
        return self.steps.setdefault(name, _Node())


class Fitting:
    """With `is_full` keys that are not in the shape are passed over: they would not be learnt."""

    def __init__(self, shape: Shape, built: float, *, is_full: bool) -> None:
        self.version = shape.version
        self.built = built
        root = _tree(shape)
        metadata = root.steps.pop("metadata", _Node())
        self._has_project = "project" in root.steps
        self._metadata = msgspec.json.Decoder(_type(metadata, is_full=is_full))
        self._extras = msgspec.json.Decoder(_record(root, is_full=is_full))

    def fits(self, event: Event) -> bool:
        if event.project is not None and not self._has_project:
            return False
        try:
            if event.metadata is not None:
                self._metadata.decode(event.metadata)
            if event.extras is not None:
                self._extras.decode(event.extras)
        except (msgspec.DecodeError, RecursionError):
            return False
        return True


def _tree(shape: Shape) -> _Node:
    root = _Node()
    for path, kinds in shape.kinds.items():
        node = root
        for name in path:
            node = node.step(name)
        node.kinds = kinds
    return root


def _type(node: _Node, *, is_full: bool) -> Any:
    """The union of what was seen there; null is always allowed, for it teaches nothing."""
    union: Any = None
    for kind in node.kinds:
        if kind is ValueKind.OBJECT:
            union |= _record(node, is_full=is_full)
        elif kind is ValueKind.ARRAY:
            union |= list[_type(node.steps.get(ELEMENT, _Node()), is_full=is_full)]  # type: ignore[misc]
        else:
            union |= _SCALARS[kind]
    return union


def _record(node: _Node, *, is_full: bool) -> Any:
    names = [name for name in node.steps if not _UNNAMEABLE.search(name)]
    attributes = {f"f{place}": name for place, name in enumerate(names)}
    return msgspec.defstruct(
        "Record",
        [(attribute, _type(node.steps[name], is_full=is_full), None) for attribute, name in attributes.items()],
        rename=attributes,
        forbid_unknown_fields=not is_full,
        gc=False,
    )
