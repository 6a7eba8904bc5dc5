"""How one query is redacted, and what that means for the names of fields."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Final

import msgspec

from cordwood.model.redaction import RedactionRules, RedactMode
from cordwood.model.shape import Kinds, Shape
from cordwood.sql.redaction.look import Look, Stage

# Of so many shapes the names are judged once.
_PRUNED: Final = 256


class Redaction(msgspec.Struct, frozen=True, dict=True):
    """Made once for each mode: it remembers which names it has judged."""

    mode: RedactMode
    rules: RedactionRules = msgspec.field(default_factory=RedactionRules)

    @cached_property
    def look(self) -> Look:
        return Look(self.rules)

    @cached_property
    def _judged(self) -> dict[str, bool]:
        return {}

    @cached_property
    def _pruned(self) -> dict[int, tuple[Kinds, Kinds]]:
        return {}

    def is_secret_name(self, name: str) -> bool:
        return self.look.is_secret_name(name)

    def hides(self, name: str) -> bool:
        """Whether a field's own name is something to hide. A doubtful number is hidden too."""
        known = self._judged.get(name)
        if known is None:
            if len(self._judged) > 100_000:
                self._judged.clear()
            known = self._judged[name] = self._finds(name)
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
            if len(self._pruned) > _PRUNED:
                self._pruned.clear()
            left = {path: of_path for path, of_path in kinds.items() if not any(map(self.hides, path))}
            known = self._pruned[id(kinds)] = (kinds, left)
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
