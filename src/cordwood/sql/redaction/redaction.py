"""How one query is redacted, and what that means for the names of fields."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Final

import msgspec

from cordwood.bounded_cache import BoundedCache, bytes_of
from cordwood.model.redaction import RedactionRules, RedactMode
from cordwood.model.shape import Kinds, Shape
from cordwood.sql.redaction.detection import Detection, Stage

# What is remembered of names, and of shapes without those that are hidden: about 100 bytes for each path.
_JUDGED_BYTES: Final = 4 * 2**20
_PRUNED_BYTES: Final = 4 * 2**20
_PATH_BYTES: Final = 100


class Redaction(msgspec.Struct, frozen=True, dict=True):
    """Made once for each mode: it remembers which names it has judged."""

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
        return self.look.is_secret_name(name)

    def hides(self, name: str) -> bool:
        """Whether a field's own name is something to hide. A doubtful number is hidden too."""
        known = self._judged.get(name)
        if known is None:
            known = self._finds(name)
            self._judged.put(name, known)
        return known

    def shown(self, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
        """The shapes without names that are hidden: no hint, and no list of columns, may tell them."""
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
        return _compiled(self.look.hint)

    @cached_property
    def _patterns(self) -> list[tuple[Stage, "re.Pattern[str]"]]:
        stages = (*self.look.own, *self.look.stages)
        return [(stage, pattern) for stage in stages if (pattern := _compiled(stage.pattern)) is not None]


def _compiled(pattern: str) -> "re.Pattern[str] | None":
    """Python reads RE2's patterns but for a few of an operator's own."""
    try:
        return re.compile(pattern, re.ASCII)
    except re.error:
        return None
