"""Tell from a regular expression in RE2's notation whether it may match the empty text."""

import re
from typing import Final

import msgspec

# The parts of a regular expression, in the order in which they are tried: the opening of a group, flags without a group
# (such as `(?i)`), the end of a group, the sign of alternatives, anchors, a character class, an escape, and any other
# character. A character class that is not closed matches none of them.
_PART_PATTERN: Final = re.compile(
    r"(?P<flags>\(\?[a-zA-Z-]+\))|(?P<open>\((?:\?(?:P?<\w+>|[a-zA-Z-]*:))?)|(?P<close>\))|(?P<or>\|)"
    r"|(?P<anchor>[\^$]|\\[AzbB])|(?P<class>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*+\])|(?P<escape>\\.)|(?P<text>[^\[\\])",
    re.DOTALL,
)
_OPTIONAL_QUANTIFIER_PATTERN: Final = re.compile(r"[*?]|\{0(?:,\d*)?\}")
_QUANTIFIER_PATTERN: Final = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})\??")
# Escapes that match exactly one character: classes, control characters and punctuation marks.
_CHARACTER_ESCAPE_PATTERN: Final = re.compile(r"\\[dDsSwWaftnrv\W_]")


class _Group(msgspec.Struct):
    """An open group: whether the alternative at the end needs a character, and whether all others before it do."""

    alternative_needs_character: bool = False
    others_need_character: bool = True

    def end_alternative(self) -> None:
        self.others_need_character &= self.alternative_needs_character
        self.alternative_needs_character = False


def may_match_empty_text(pattern: str) -> bool:
    """Return False only if the regular expression certainly does not match the empty text anywhere.

    The result is True for notations that are not understood here. The time grows linearly with the pattern's length.
    """
    groups = [_Group()]
    position = 0
    while position < len(pattern):
        part = _PART_PATTERN.match(pattern, position)
        if part is None:
            return True
        position = part.end()
        kind = part.lastgroup
        if kind == "open":
            groups.append(_Group())
            continue
        if kind == "or":
            groups[-1].end_alternative()
            continue
        if kind == "close" and len(groups) == 1:
            return True
        if kind == "escape" and not _CHARACTER_ESCAPE_PATTERN.fullmatch(part[0]):
            return True
        needs_character = kind in ("class", "escape", "text")
        if kind == "close":
            closed = groups.pop()
            closed.end_alternative()
            needs_character = closed.others_need_character
        quantifier = _QUANTIFIER_PATTERN.match(pattern, position)
        if quantifier is not None:
            needs_character &= _OPTIONAL_QUANTIFIER_PATTERN.match(quantifier[0]) is None
            position = quantifier.end()
        groups[-1].alternative_needs_character |= needs_character
    groups[-1].end_alternative()
    return len(groups) > 1 or not groups[0].others_need_character
