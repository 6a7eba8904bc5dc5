"""The redaction passes and the hint pattern of a set of rules."""

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from typing import Final

import msgspec

from cordwood.model.redaction import Detector, RedactionRules
from cordwood.sql.redaction.patterns import PASSES, SECRET_NAME, MatchKind, Pass

_FLAGS: Final = "(?is)"
_GROUP: Final = re.compile(r"(?<!\\)\((?!\?)")
_SECRET_NAME: Final = re.compile(SECRET_NAME, re.ASCII)


class Stage(msgspec.Struct, frozen=True):
    """One stage of detection: a pattern and its groups that are kept; `hint` is a cheaper, more general pattern."""

    pattern: str
    kept_groups: tuple[int, ...]
    prefix_groups: tuple[int, ...]
    match_kind: MatchKind
    hint: str


class Detection(msgspec.Struct, frozen=True, dict=True):
    """The passes over a text: the operator's own patterns first, then the built-in stages."""

    rules: RedactionRules

    @cached_property
    def operator_stages(self) -> tuple[Stage, ...]:
        """The operator's patterns, which are case-sensitive and match the text as it is, not as escaped in JSON."""
        return tuple(
            Stage(f"(?s:{named.pattern})", (), (), MatchKind.OTHER, f"(?s:{named.pattern})")
            for named in self.rules.patterns
        )

    @cached_property
    def builtin_stages(self) -> tuple[Stage, ...]:
        enabled = [redaction_pass for redaction_pass in PASSES if self._is_enabled(redaction_pass.detector)]
        return tuple(
            _combine_passes(tuple(passes))
            for _, passes in groupby(enabled, key=lambda redaction_pass: redaction_pass.stage)
        )

    @cached_property
    def before_addresses(self) -> tuple[Stage, ...]:
        """The stages before the last one for addresses, which is the only one that matches in most texts."""
        last = max(
            (index for index, stage in enumerate(self.builtin_stages) if stage.match_kind is MatchKind.ADDRESS),
            default=0,
        )
        return self.builtin_stages[:last]

    @cached_property
    def hint(self) -> str:
        """A pattern that matches every text in which any stage has a match."""
        return "|".join(stage.hint for stage in (*self.builtin_stages, *self.operator_stages))

    def is_secret_name(self, name: str) -> bool:
        """Return whether a field of this name holds a secret, whatever its value."""
        return Detector.SECRET in self.rules.detectors and _SECRET_NAME.search(name) is not None

    def _is_enabled(self, detector: Detector | None) -> bool:
        return detector is None or detector in self.rules.detectors


def _combine_passes(passes: Sequence[Pass]) -> Stage:
    kept_groups: tuple[int, ...] = ()
    prefix_groups: tuple[int, ...] = ()
    group_count = 0
    for redaction_pass in passes:
        kept_groups += tuple(group_count + number for number in redaction_pass.kept_groups)
        prefix_groups += tuple(group_count + number for number in redaction_pass.prefix_groups)
        group_count += len(_GROUP.findall(redaction_pass.pattern))
    pattern, hint = (
        "|".join(parts)
        for parts in zip(*((redaction_pass.pattern, redaction_pass.hint) for redaction_pass in passes), strict=True)
    )
    return Stage(_FLAGS + pattern, kept_groups, prefix_groups, passes[0].match_kind, f"(?i:{hint})")
