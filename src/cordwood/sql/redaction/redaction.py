"""Redaction of one query: its mode and rules, and the names of fields that they hide."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Final

import msgspec

from cordwood.bounded_cache import BoundedCache, bytes_of
from cordwood.model.redaction import RedactionRules, RedactMode
from cordwood.model.shape import Kinds, Shape
from cordwood.sql.redaction.detection import Detection, Stage

# Cached decisions on names, and shapes without hidden names: about 100 bytes for each path.
_NAME_CACHE_BYTES: Final = 4 * 2**20
_SHAPE_CACHE_BYTES: Final = 4 * 2**20
_PATH_BYTES: Final = 100


class Redaction(msgspec.Struct, frozen=True, dict=True):
    """The redaction rules in one mode. One instance per mode, because it caches decisions on names."""

    mode: RedactMode
    rules: RedactionRules = msgspec.field(default_factory=RedactionRules)

    @cached_property
    def detection(self) -> Detection:
        return Detection(self.rules)

    @cached_property
    def _hidden_names(self) -> BoundedCache[str, bool]:
        return BoundedCache(_NAME_CACHE_BYTES, lambda name, _: bytes_of(name))

    @cached_property
    def _visible_kinds(self) -> BoundedCache[int, tuple[Kinds, Kinds]]:
        return BoundedCache(_SHAPE_CACHE_BYTES, lambda _, kept: _PATH_BYTES * len(kept[0]))

    def is_secret_name(self, name: str) -> bool:
        return self.detection.is_secret_name(name)

    def is_hidden_name(self, name: str) -> bool:
        """Return whether the name of a field itself has to be hidden; a number that may be a card's is."""
        cached = self._hidden_names.get(name)
        if cached is None:
            cached = self._is_redacted_name(name)
            self._hidden_names.put(name, cached)
        return cached

    def visible_shapes(self, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
        """Return the shapes without hidden names, so that no hint and no list of columns reveals them."""
        return {stream: self._visible_shape(shape) for stream, shape in shapes.items()}

    def _visible_shape(self, shape: Shape) -> Shape:
        whole_shape = self._visible_shape(shape.whole) if shape.whole is not None else None
        return msgspec.structs.replace(shape, kinds=self._without_hidden(shape.kinds), whole=whole_shape)

    def _without_hidden(self, kinds: Kinds) -> Kinds:
        cached = self._visible_kinds.get(id(kinds))
        if cached is None or cached[0] is not kinds:
            visible = {
                path: path_kinds for path, path_kinds in kinds.items() if not any(map(self.is_hidden_name, path))
            }
            cached = (kinds, visible)
            self._visible_kinds.put(id(kinds), cached)
        return cached[1]

    def _is_redacted_name(self, name: str) -> bool:
        if self._hint is not None and self._hint.search(name) is None:
            return False
        return any(
            not any(match.group(number) for number in stage.kept_groups)
            for stage, pattern in self._patterns
            for match in pattern.finditer(name)
        )

    @cached_property
    def _hint(self) -> "re.Pattern[str] | None":
        return _compiled(self.detection.hint)

    @cached_property
    def _patterns(self) -> list[tuple[Stage, "re.Pattern[str]"]]:
        stages = (*self.detection.operator_stages, *self.detection.builtin_stages)
        return [(stage, pattern) for stage in stages if (pattern := _compiled(stage.pattern)) is not None]


def _compiled(pattern: str) -> "re.Pattern[str] | None":
    """Return the pattern compiled by Python; None for the few operator patterns with syntax that only RE2 has."""
    try:
        return re.compile(pattern, re.ASCII)
    except re.error:
        return None
