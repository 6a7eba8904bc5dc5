"""The redaction passes and the hint pattern of a set of rules."""

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from typing import Final

import msgspec

from cordwood.model.redaction import Detector, RedactionRules
from cordwood.sql.redaction.patterns import PASSES, SECRET_NAME, Nature, Pass

_FLAGS: Final = "(?is)"
_GROUP: Final = re.compile(r"(?<!\\)\((?!\?)")
_SECRET_NAME: Final = re.compile(SECRET_NAME, re.ASCII)


class Stage(msgspec.Struct, frozen=True):
    """A pattern with the numbers of the groups that are kept; `hint` matches every text in which it has a match."""

    pattern: str
    keeps: tuple[int, ...]
    befores: tuple[int, ...]
    nature: Nature
    hint: str


class Detection(msgspec.Struct, frozen=True, dict=True):
    """The passes over a text: the operator's own patterns first, then the built-in stages."""

    rules: RedactionRules

    @cached_property
    def own(self) -> tuple[Stage, ...]:
        """The operator's patterns, which are case-sensitive and match the text as it is, not as escaped in JSON."""
        return tuple(
            Stage(f"(?s:{named.pattern})", (), (), Nature.PLAIN, f"(?s:{named.pattern})")
            for named in self.rules.patterns
        )

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        wanted = [one for one in PASSES if self._wants(one.detector)]
        return tuple(_joined(tuple(passes)) for _, passes in groupby(wanted, key=lambda one: one.stage))

    @cached_property
    def before_addresses(self) -> tuple[Stage, ...]:
        """The stages before the last one for addresses, which is the only one that matches in most texts."""
        last = max((at for at, one in enumerate(self.stages) if one.nature is Nature.ADDRESS), default=0)
        return self.stages[:last]

    @cached_property
    def hint(self) -> str:
        """A pattern that matches every text in which any stage has a match."""
        return "|".join(stage.hint for stage in (*self.stages, *self.own))

    def is_secret_name(self, name: str) -> bool:
        """Return whether a field of this name holds a secret, whatever its value."""
        return Detector.SECRET in self.rules.detectors and _SECRET_NAME.search(name) is not None

    def _wants(self, detector: Detector | None) -> bool:
        return detector is None or detector in self.rules.detectors


def _joined(passes: Sequence[Pass]) -> Stage:
    keeps: tuple[int, ...] = ()
    befores: tuple[int, ...] = ()
    groups = 0
    for one in passes:
        keeps += tuple(groups + number for number in one.keeps)
        befores += tuple(groups + number for number in one.befores)
        groups += len(_GROUP.findall(one.pattern))
    pattern, hint = ("|".join(found) for found in zip(*((one.pattern, one.hint) for one in passes), strict=True))
    return Stage(_FLAGS + pattern, keeps, befores, passes[0].nature, f"(?i:{hint})")
