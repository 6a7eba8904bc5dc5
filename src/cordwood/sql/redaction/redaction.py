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
_JUDGED_BYTES: Final = 4 * 2**20
_PRUNED_BYTES: Final = 4 * 2**20
_PATH_BYTES: Final = 100


class Redaction(msgspec.Struct, frozen=True, dict=True):
    """The redaction rules in one mode. One instance per mode, because it caches decisions on names."""

    mode: RedactMode
    rules: RedactionRules = msgspec.field(default_factory=RedactionRules)

    @cached_property
    def look(self) -> Detection:
        return Detection(self.rules)

    @cached_property
    def _judged(self) -> BoundedCache[str, bool]:
        return BoundedCache(_JUDGED_BYTES, lambda name, _: bytes_of(name))

    @cached_property
    def _pruned(self) -> BoundedCache[int, tuple[Kinds, Kinds]]:
        return BoundedCache(_PRUNED_BYTES, lambda _, kept: _PATH_BYTES * len(kept[0]))

    def is_secret_name(self, name: str) -> bool:
        return self.check_time.is_secret_name(name)

    def hides(self, name: str) -> bool:
        """Return whether the name of a field itself has to be hidden; a number that may be a card's is."""
        known = self._judged.get(name)
        if known is None:
            known = self._finds(name)
            self._judged.put(name, known)
        return known

    def shown(self, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
        """Return the shapes without hidden names, so that no hint and no list of columns reveals them."""
        return {stream: self._shown(shape) for stream, shape in shapes.items()}

    def _shown(self, shape: Shape) -> Shape:
        whole = self._shown(shape.whole) if shape.whole is not None else None
        return msgspec.structs.replace(shape, kinds=self._without_hidden(shape.kinds), whole=whole)

    def _without_hidden(self, kinds: Kinds) -> Kinds:
        known = self._pruned.get(id(kinds))
        if known is None or known[0] is not kinds:
            left = {path: of_path for path, of_path in kinds.items() if not any(map(self.hides, path))}
            known = (kinds, left)
            self._pruned.put(id(kinds), known)
        return known[1]

    def _finds(self, name: str) -> bool:
        if self._hint is not None and self._hint.search(name) is None:
            return False
        return any(
            not any(found.group(number) for number in stage.keeps)
            for stage, pattern in self._patterns
            for found in pattern.finditer(name)
        )

    @cached_property
    def _hint(self) -> "re.Pattern[str] | None":
        return _compiled(self.check_time.hint)

    @cached_property
    def _patterns(self) -> list[tuple[Stage, "re.Pattern[str]"]]:
        stages = (*self.check_time.own, *self.check_time.stages)
        return [(stage, pattern) for stage in stages if (pattern := _compiled(stage.pattern)) is not None]


def _compiled(pattern: str) -> "re.Pattern[str] | None":
    """Return the pattern compiled by Python; None for the few operator patterns with syntax that only RE2 has."""
    try:
        return re.compile(pattern, re.ASCII)
    except re.error:
        return None
