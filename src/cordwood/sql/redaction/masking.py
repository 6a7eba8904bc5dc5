"""SQL that masks private parts of texts, and rules that lower redacted reads to calls of the engine's functions.

A statement has an optimistic variant, which does not redact. It only searches each text for the hint, a pattern that
matches wherever something may have to be redacted, and fails if the hint matches. This takes a small part of the time
that redaction takes. For queries over texts without anything to redact, such as paths, methods and countries, this
variant is enough. If it fails, the full variant is run, and the engine remembers to run the full variant first from
then on.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec
from sqlglot import exp

from cordwood.model.redaction import RedactMode
from cordwood.sql.budget import copy_tree
from cordwood.sql.lowering import LoweringRule, RuleSet, catches_failures, fragment_node, fragment_parts, is_fragment
from cordwood.sql.nodes import (
    EventAsText,
    RedactedEvent,
    RedactedEventText,
    RedactedSecret,
    RedactedText,
    RedactedValue,
    RedactionCall,
    TextAsEventValue,
    TextRedactionCall,
    find_operations,
    has_operation,
    operation_if_of_class,
    replace_node,
)
from cordwood.sql.redaction.patterns import DetectionStage, MatchKind
from cordwood.sql.rules.vocabulary import Conversion

# Prefixes of the names of the engine's redaction functions. A name is a prefix followed by the redaction mode.
REDACT_TEXT_FUNCTION_PREFIX: Final = "redacted_text"
REDACT_JSON_FUNCTION_PREFIX: Final = "redacted_json"
REDACT_EVENT_FUNCTION_PREFIX: Final = "redacted_event"

# The prefix of the function that optimistic variants call: it returns a text unchanged, or fails with
# MAY_NEED_REDACTION_MESSAGE if the text may need redaction.
OPTIMISTIC_TEXT_FUNCTION_PREFIX: Final = "trusted_text"
MAY_NEED_REDACTION_MESSAGE: Final = "A text may hold something to redact."

REDACTION_WORD: Final = "REDACTED"

# Markers in a text during redaction. They are removed from every text before matching, so that a text cannot contain
# markers of its own.
MATCH_START_MARKER: Final = "\x01"
MATCH_PART_SEPARATOR: Final = "\x02"
DIGIT_MARKER: Final = "\x03"

# Matches the text before each digit outside of JSON strings. A marker is inserted before the digit, so that no pass
# matches the digit as part of a card number.
TEXT_BEFORE_DIGIT_PATTERN: Final = r'(?s)((?:[^"0-9]|"(?:[^"\\]|\\.)*")*)([0-9]|\z)'
MARKED_DIGIT_REPLACEMENT: Final = rf"\1{DIGIT_MARKER}\2"
# Matches one JSON string, or the text between two strings.
JSON_STRING_OR_GAP_PATTERN: Final = r'(?s)"(?:[^"\\]|\\.)*"|[^"]+'

_HEX_DIGITS: Final = "0123456789abcdef"
# The letters that replace a digest's hexadecimal digits, so that no later pass matches the digest as a number or an
# address.
_LETTER_BY_HEX_DIGIT: Final = "ghijklmnopqrstuv"


class MaskingSql(Protocol):
    """An engine's SQL for the steps of masking; arguments and results are SQL expressions."""

    def remove_marker(self, text: str, mark: str) -> str: ...

    def replace_matches(self, text: str, pattern: str, replacement: str) -> str: ...

    def case_when(self, condition: str, then: str, otherwise: str) -> str: ...

    def current_match_part(self, index: int) -> str:
        """Return part `index`, counted from 1, of the segment that `replace_marked_segments` is replacing.

        The segment is split into parts at `MATCH_PART_SEPARATOR`.
        """
        ...

    def replace_marked_segments(self, marked: str, each: str) -> str:
        """Split `marked` at `MATCH_START_MARKER`; replace by `each` every segment that has a `MATCH_PART_SEPARATOR`."""
        ...

    def remove_card_separators(self, text: str) -> str:
        """Return the digits of a card number without separators."""
        ...

    def passes_luhn(self, digits: str) -> str:
        """Return the condition that a card number's digits have a valid checksum by the Luhn algorithm."""
        ...

    def keyed_digest(self, value: str) -> str:
        """Return a keyed digest of a value, as sixteen hexadecimal digits."""
        ...

    def network_of_ip_address(self, value: str) -> str:
        """Return the network of an IP address: /24 for IPv4, /48 for IPv6.

        An IPv4 address within an IPv6 address is left to a later pass.
        """
        ...


class MaskingBuilder(msgspec.Struct, frozen=True):
    """Builder of the SQL expressions of one redaction mode for one engine."""

    engine_sql: MaskingSql
    mode: RedactMode

    def apply_stages(self, text: str, stages: Sequence[DetectionStage]) -> str:
        for stage in stages:
            text = self._apply_stage(text, stage)
        return text

    def apply_builtin_stages(
        self, text: str, stages: Sequence[DetectionStage], *, digits_are_marked: bool = False
    ) -> str:
        """Redact a text by the built-in detection stages.

        If `digits_are_marked` is set, the text has a marker before each digit of a JSON number, and these markers are
        kept.
        """
        text = (
            self._remove_given_markers(text, (MATCH_START_MARKER, MATCH_PART_SEPARATOR))
            if digits_are_marked
            else self.remove_markers(text)
        )
        return self.remove_match_markers(self.apply_stages(text, stages))

    def remove_markers(self, text: str) -> str:
        """Remove all markers from the text."""
        return self._remove_given_markers(text, (MATCH_START_MARKER, MATCH_PART_SEPARATOR, DIGIT_MARKER))

    def remove_match_markers(self, text: str) -> str:
        """Remove the markers around matches from a text after matching."""
        return self._remove_given_markers(text, (MATCH_START_MARKER, MATCH_PART_SEPARATOR))

    def _remove_given_markers(self, text: str, marks: Sequence[str]) -> str:
        for mark in marks:
            text = self.engine_sql.remove_marker(text, mark)
        return text

    def _apply_stage(self, text: str, stage: DetectionStage) -> str:
        if stage.match_kind is MatchKind.CARD_NUMBER:
            return self._replace_card_numbers(text, stage)
        return (
            self._replace_by_fixed_word(text, stage)
            if self._has_fixed_replacement(stage)
            else self._replace_by_computed_value(text, stage)
        )

    def _has_fixed_replacement(self, stage: DetectionStage) -> bool:
        """Return whether the stage replaces all its matches by the same word."""
        if self.mode is RedactMode.TRUNCATE:
            return stage.match_kind is not MatchKind.IP_ADDRESS
        return self.mode is RedactMode.REPLACE or stage.match_kind is MatchKind.OTHER

    def _replace_by_fixed_word(self, text: str, stage: DetectionStage) -> str:
        replacement = f"{_group_references(stage.prefix_groups)}{REDACTION_WORD}"
        if not stage.kept_groups:
            return self.engine_sql.replace_matches(text, stage.pattern, replacement)
        # Replace each match by its kept groups between markers, followed by the replacement. Then, wherever a kept
        # group is not empty, restore the group and drop the replacement.
        marked = self.engine_sql.replace_matches(
            text,
            stage.pattern,
            f"{MATCH_START_MARKER}{_group_references(stage.kept_groups)}{MATCH_PART_SEPARATOR}{replacement}",
        )
        restored = self.engine_sql.replace_matches(
            marked,
            f"{MATCH_START_MARKER}([^{MATCH_PART_SEPARATOR}]+){MATCH_PART_SEPARATOR}{REDACTION_WORD}",
            _group_references((1,)),
        )
        # The other matches still have both markers, next to each other. Remove them, because a later pass may insert
        # and search for markers, too.
        return self.engine_sql.remove_marker(restored, MATCH_START_MARKER + MATCH_PART_SEPARATOR)

    def _replace_by_computed_value(self, text: str, stage: DetectionStage) -> str:
        """Replace each match by a value computed from its parts: the kept groups, the prefix, and the whole match."""
        kept_text, prefix, match, remainder = map(self.engine_sql.current_match_part, range(1, 5))
        marked = rf"{MATCH_START_MARKER}{_group_references(stage.kept_groups)}{MATCH_PART_SEPARATOR}{_group_references(stage.prefix_groups)}{MATCH_PART_SEPARATOR}\0{MATCH_PART_SEPARATOR}"
        value = self._replacement_sql(f"substring({match}, length({prefix}) + 1)", stage.match_kind)
        return self.engine_sql.replace_marked_segments(
            self.engine_sql.replace_matches(text, stage.pattern, marked),
            self.engine_sql.case_when(
                f"{kept_text} <> ''", f"{kept_text} || {remainder}", f"{prefix} || {value} || {remainder}"
            ),
        )

    def _replace_card_numbers(self, text: str, stage: DetectionStage) -> str:
        """Replace card numbers that pass the Luhn check.

        In the regular expression, the first group after the `prefix_groups` contains the digits of the number.
        """
        number, prefix, match, remainder = map(self.engine_sql.current_match_part, range(1, 5))
        marked = rf"{MATCH_START_MARKER}\{stage.prefix_groups[-1] + 1}{MATCH_PART_SEPARATOR}{_group_references(stage.prefix_groups)}{MATCH_PART_SEPARATOR}\0{MATCH_PART_SEPARATOR}"
        digits = self.engine_sql.remove_card_separators(number)
        is_card = f"{number} <> '' AND {self.engine_sql.passes_luhn(digits)}"
        masked = f"{prefix} || {self._replacement_sql(digits, stage.match_kind)} || {remainder}"
        return self.engine_sql.replace_marked_segments(
            self.engine_sql.replace_matches(text, stage.pattern, marked),
            self.engine_sql.case_when(is_card, masked, f"{match} || {remainder}"),
        )

    def _replacement_sql(self, value: str, match_kind: MatchKind) -> str:
        if self.mode is RedactMode.HASH:
            return f"'{REDACTION_WORD}-' || translate({self.engine_sql.keyed_digest(value)}, '{_HEX_DIGITS}', '{_LETTER_BY_HEX_DIGIT}')"
        if self.mode is RedactMode.TRUNCATE and match_kind is MatchKind.IP_ADDRESS:
            return self.engine_sql.network_of_ip_address(value)
        return f"'{REDACTION_WORD}'"


def _group_references(numbers: Sequence[int]) -> str:
    return "".join(rf"\{number}" for number in numbers)


def _redacted_text(text: exp.Expr, mode: RedactMode) -> exp.Expr:
    """Return the call of the engine's function that redacts a text."""
    name = f"{REDACT_TEXT_FUNCTION_PREFIX}_{mode}"
    return fragment_node(
        f"{name}({{0}})",
        text,
        operation=TextRedactionCall(name, optimistic_function_name=f"{OPTIMISTIC_TEXT_FUNCTION_PREFIX}_{mode}"),
    )


def _redacted_event(value: exp.Expr, mode: RedactMode) -> exp.Expr:
    """Return the call of the engine's function that redacts an event's value."""
    name = f"{REDACT_EVENT_FUNCTION_PREFIX}_{mode}"
    return fragment_node(f"{name}({{0}})", value, operation=RedactionCall(name))


def redaction_mode_of(node: exp.Expr) -> RedactMode:
    """Return the redaction mode of a redacted read."""
    read = operation_if_of_class(node, RedactedValue)
    if read is None:
        raise ValueError("no redacted read")
    return read.mode


def optimistic_redaction_variant(tree: exp.Expr) -> exp.Expr | None:
    """Return a copy of the tree with optimistic redaction, which fails at a text that may need redaction.

    Return None if the tree redacts nothing, or if the failure might be caught in the SQL and become NULL.
    """
    fragments = filter(is_fragment, tree.find_all(exp.Anonymous))
    if next(find_operations(tree, TextRedactionCall), None) is None or any(map(catches_failures, fragments)):
        return None
    variant = copy_tree(tree)
    for node, call in list(find_operations(variant, TextRedactionCall)):
        replace_node(
            node,
            fragment_node(
                f"{call.optimistic_function_name}({{0}})",
                *fragment_parts(node),
                operation=RedactionCall(call.optimistic_function_name),
            ),
        )
    return variant


def remove_text_round_trips(tree: exp.Expr) -> None:
    """Remove conversions of a redacted text to an event's value and directly back to a text.

    A filter then reads the redacted text itself. The filter must not be moved to the text before redaction, because its
    timing would reveal whether that text contains the searched text.
    """
    for reader, _ in list(find_operations(tree, EventAsText)):
        value = fragment_parts(reader)[0].unnest()
        if has_operation(value, TextAsEventValue) and has_operation(fragment_parts(value)[0], TextRedactionCall):
            replace_node(reader, fragment_parts(value)[0])


class RedactionLoweringRules(msgspec.Struct, frozen=True):
    """The lowering rules of redacted reads.

    `event_to_text` converts an event's value to a text, and `text_to_event` converts a text to an event's value.
    `secret_rule` lowers a value whose key names a secret.
    """

    event_to_text: Conversion
    text_to_event: Conversion
    secret_rule: LoweringRule

    def _translate_redacted_text(self, node: exp.Expr) -> exp.Expr:
        return _redacted_text(node.expressions[0], redaction_mode_of(node))

    def _translate_redacted_event_text(self, node: exp.Expr) -> exp.Expr:
        return self.text_to_event(_redacted_text(self.event_to_text(node.expressions[0]), redaction_mode_of(node)))

    def _translate_redacted_event(self, node: exp.Expr) -> exp.Expr:
        return _redacted_event(node.expressions[0], redaction_mode_of(node))

    def rules(self) -> RuleSet:
        return RuleSet(
            by_operation_class={
                RedactedText: self._translate_redacted_text,
                RedactedEventText: self._translate_redacted_event_text,
                RedactedEvent: self._translate_redacted_event,
                RedactedSecret: self.secret_rule,
            }
        )
