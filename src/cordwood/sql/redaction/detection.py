"""The looks through a text, and the hint that spares them, that a set of rules comes to."""

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
    """One pattern with the numbers of its groups that stay; its hint is found in every text in which it finds any."""

    pattern: str
    keeps: tuple[int, ...]
    befores: tuple[int, ...]
    nature: Nature
    hint: str


class Detection(msgspec.Struct, frozen=True, dict=True):
    """What is looked for in a text: the operator's own patterns first, then the stages that ship."""

    rules: RedactionRules

    @cached_property
    def own(self) -> tuple[Stage, ...]:
        """An operator's pattern minds case, and sees the text as it is, not as JSON writes it."""
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
        """The stages before the last look for addresses, which is the only one that most finds are of."""
        last = max((at for at, one in enumerate(self.stages) if one.nature is Nature.ADDRESS), default=0)
        return self.stages[:last]

    @cached_property
    def hint(self) -> str:
        """Found in every text in which anything is."""
        return "|".join(stage.hint for stage in (*self.stages, *self.own))

    def is_secret_name(self, name: str) -> bool:
        """Whether a field of this name holds a secret, whatever that looks like."""
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
