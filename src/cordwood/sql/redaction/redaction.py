"""Redaction of one query: its mode and rules, the passes that detect values to redact, and the hidden field names."""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Final

import msgspec

from cordwood.bounded_cache import BoundedCache, bytes_of
from cordwood.model.redaction import Detector, RedactionRules, RedactMode
from cordwood.model.shape import Kinds, Shape
from cordwood.sql.redaction.patterns import DETECTION_PASSES, SECRET_NAME, DetectionPass, MatchKind

_REGEX_FLAGS: Final = "(?is)"
_CAPTURING_GROUP: Final = re.compile(r"(?<!\\)\((?!\?)")
_SECRET_NAME: Final = re.compile(SECRET_NAME, re.ASCII)


class DetectionStage(msgspec.Struct, frozen=True):
    """One stage of detection: a pattern, its kept groups, and `hint`, a cheaper and more general pattern."""

    pattern: str
    kept_groups: tuple[int, ...]
    prefix_groups: tuple[int, ...]
    match_kind: MatchKind
    hint: str


class Detection(msgspec.Struct, frozen=True, dict=True):
    """The detection passes over a text: the operator's own patterns first, then the built-in stages."""

    rules: RedactionRules

    @cached_property
    def operator_stages(self) -> tuple[DetectionStage, ...]:
        """The operator's patterns, which are case-sensitive and match the text without JSON escapes."""
        return tuple(
            DetectionStage(f"(?s:{named.pattern})", (), (), MatchKind.OTHER, f"(?s:{named.pattern})")
            for named in self.rules.patterns
        )

    @cached_property
    def builtin_stages(self) -> tuple[DetectionStage, ...]:
        enabled = [redaction_pass for redaction_pass in DETECTION_PASSES if self._is_enabled(redaction_pass.detector)]
        return tuple(
            _combine_passes(tuple(passes))
            for _, passes in groupby(enabled, key=lambda redaction_pass: redaction_pass.stage)
        )

    @cached_property
    def before_addresses(self) -> tuple[DetectionStage, ...]:
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


def _combine_passes(passes: Sequence[DetectionPass]) -> DetectionStage:
    kept_groups: tuple[int, ...] = ()
    prefix_groups: tuple[int, ...] = ()
    group_count = 0
    for redaction_pass in passes:
        kept_groups += tuple(group_count + number for number in redaction_pass.kept_groups)
        prefix_groups += tuple(group_count + number for number in redaction_pass.prefix_groups)
        group_count += len(_CAPTURING_GROUP.findall(redaction_pass.pattern))
    pattern, hint = (
        "|".join(parts)
        for parts in zip(*((redaction_pass.pattern, redaction_pass.hint) for redaction_pass in passes), strict=True)
    )
    return DetectionStage(_REGEX_FLAGS + pattern, kept_groups, prefix_groups, passes[0].match_kind, f"(?i:{hint})")


# Limits of the caches of decisions on names and of shapes without hidden names: about 100 bytes for each path.
_NAME_CACHE_BYTES: Final = 4 * 2**20
_SHAPE_CACHE_BYTES: Final = 4 * 2**20
_PATH_BYTES: Final = 100


class Redaction(msgspec.Struct, frozen=True, dict=True):
    """The redaction rules in one mode. There is one instance for each mode, which caches decisions on names."""

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
        """Return whether a field's name must be hidden because it contains personal data, such as a card number."""
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
        if self._compiled_hint is not None and self._compiled_hint.search(name) is None:
            return False
        return any(
            not any(match.group(number) for number in stage.kept_groups)
            for stage, pattern in self._compiled_patterns
            for match in pattern.finditer(name)
        )

    @cached_property
    def _compiled_hint(self) -> "re.Pattern[str] | None":
        return _compile_pattern(self.detection.hint)

    @cached_property
    def _compiled_patterns(self) -> list[tuple[DetectionStage, "re.Pattern[str]"]]:
        stages = (*self.detection.operator_stages, *self.detection.builtin_stages)
        return [(stage, pattern) for stage in stages if (pattern := _compile_pattern(stage.pattern)) is not None]


def _compile_pattern(pattern: str) -> "re.Pattern[str] | None":
    """Return the pattern compiled by Python; None for the few operator patterns with syntax that only RE2 has."""
    try:
        return re.compile(pattern, re.ASCII)
    except re.error:
        return None
