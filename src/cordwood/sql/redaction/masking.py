"""The masking of matches, in an engine's terms: the order of the passes, the markers, and the replacements."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from cordwood.model.redaction import RedactMode
from cordwood.sql.redaction.detection import Stage
from cordwood.sql.redaction.patterns import Nature

# The prefixes of the engine functions' names; the mode follows.
REDACT_TEXT: Final = "redacted_text"
REDACT_JSON: Final = "redacted_json"
REDACT_EVENT: Final = "redacted_event"

# The function that returns a text unchanged, and fails with this message if it may need redaction.
OPTIMISTIC_TEXT: Final = "trusted_text"
FOUND: Final = "A text may hold something to redact."

HIDDEN: Final = "REDACTED"

# Markers around matches. They are removed from every text before matching, so that a text cannot contain its own.
OPEN: Final = "\x01"
CUT: Final = "\x02"
APART: Final = "\x03"

# Everything before a digit outside of JSON strings: the digit is separated, so that no pass matches it as a card's.
BEFORE_DIGIT: Final = r'(?s)((?:[^"0-9]|"(?:[^"\\]|\\.)*")*)([0-9]|\z)'
SET_APART: Final = rf"\1{APART}\2"
JSON_PIECES: Final = r'(?s)"(?:[^"\\]|\\.)*"|[^"]+'

_HEX: Final = "0123456789abcdef"
# Only letters, so that no later pass matches a digest as a number or an address.
_DIGEST_LETTERS: Final = "ghijklmnopqrstuv"


class Words(Protocol):
    """An engine's SQL for the steps of masking; arguments and results are SQL texts."""

    def without(self, text: str, mark: str) -> str: ...

    def replace_all(self, text: str, pattern: str, shown: str) -> str: ...

    def either(self, condition: str, then: str, otherwise: str) -> str: ...

    def part(self, at: int) -> str:
        """Return a part, from 1, of a piece that is split at `CUT`."""
        ...

    def pieces(self, marked: str, each: str) -> str:
        """Split the text at `OPEN`, and apply an expression of their parts to the pieces with a `CUT`."""
        ...

    def digits(self, text: str) -> str:
        """Return a card number's digits without separators."""
        ...

    def counts_up(self, digits: str) -> str:
        """Return the Luhn check of a card number's digits."""
        ...

    def digest(self, value: str) -> str:
        """Return a keyed digest of a value, as sixteen hexadecimal digits."""
        ...

    def network(self, value: str) -> str:
        """Return the /24 or /48 network of an address. An IPv4 address within IPv6 is handled by a later pass."""
        ...


class Masking(msgspec.Struct, frozen=True):
    """The expressions of one redaction mode for one engine."""

    words: Words
    mode: RedactMode

    def own(self, text: str, stages: Sequence[Stage]) -> str:
        for one in stages:
            text = self._looked(text, one)
        return text

    def shipped(self, text: str, stages: Sequence[Stage], *, is_set_apart: bool = False) -> str:
        """Apply the built-in stages.

        `is_set_apart`: digits of JSON numbers are marked, and these markers are kept.
        """
        text = self._without(text, (OPEN, CUT)) if is_set_apart else self.bare(text)
        return self.unmarked(self.own(text, stages))

    def bare(self, text: str) -> str:
        """Remove all markers from the text."""
        return self._without(text, (OPEN, CUT, APART))

    def unmarked(self, text: str) -> str:
        """Remove the markers around matches from a text after matching."""
        return self._without(text, (OPEN, CUT))

    def _without(self, text: str, marks: Sequence[str]) -> str:
        for mark in marks:
            text = self.words.without(text, mark)
        return text

    def _looked(self, text: str, one: Stage) -> str:
        if one.nature is Nature.CARD:
            return self._cards(text, one)
        return self._replaced(text, one) if self._is_plain(one) else self._described(text, one)

    def _is_plain(self, one: Stage) -> bool:
        """Return whether all matches are replaced by the same word."""
        if self.mode is RedactMode.TRUNCATE:
            return one.nature is not Nature.ADDRESS
        return self.mode is RedactMode.REPLACE or one.nature is Nature.PLAIN

    def _replaced(self, text: str, one: Stage) -> str:
        shown = f"{_groups(one.befores)}{HIDDEN}"
        if not one.keeps:
            return self.words.replace_all(text, one.pattern, shown)
        # A match to keep is put between markers, and restored without what was appended to it.
        found = self.words.replace_all(text, one.pattern, f"{OPEN}{_groups(one.keeps)}{CUT}{shown}")
        back = self.words.replace_all(found, f"{OPEN}([^{CUT}]+){CUT}{HIDDEN}", _groups((1,)))
        # Remove the markers of other matches as well, because a later pass may search for its own.
        return self.words.without(back, OPEN + CUT)

    def _described(self, text: str, one: Stage) -> str:
        """Replace matches by a value computed from their parts: what is kept, what precedes, and the whole match."""
        kept, before, found, rest = map(self.words.part, range(1, 5))
        shown = rf"{OPEN}{_groups(one.keeps)}{CUT}{_groups(one.befores)}{CUT}\0{CUT}"
        value = self._instead(f"substring({found}, length({before}) + 1)", one.nature)
        return self.words.pieces(
            self.words.replace_all(text, one.pattern, shown),
            self.words.either(f"{kept} <> ''", f"{kept} || {rest}", f"{before} || {value} || {rest}"),
        )

    def _cards(self, text: str, one: Stage) -> str:
        """Replace numbers that pass the Luhn check; a card's digits are the group after the last of `befores`."""
        number, before, found, rest = map(self.words.part, range(1, 5))
        shown = rf"{OPEN}\{one.befores[-1] + 1}{CUT}{_groups(one.befores)}{CUT}\0{CUT}"
        digits = self.words.digits(number)
        is_card = f"{number} <> '' AND {self.words.counts_up(digits)}"
        hidden = f"{before} || {self._instead(digits, one.nature)} || {rest}"
        return self.words.pieces(
            self.words.replace_all(text, one.pattern, shown),
            self.words.either(is_card, hidden, f"{found} || {rest}"),
        )

    def _instead(self, value: str, nature: Nature) -> str:
        if self.mode is RedactMode.HASH:
            return f"'{HIDDEN}-' || translate({self.words.digest(value)}, '{_HEX}', '{_DIGEST_LETTERS}')"
        if self.mode is RedactMode.TRUNCATE and nature is Nature.ADDRESS:
            return self.words.network(value)
        return f"'{HIDDEN}'"


def _groups(numbers: Sequence[int]) -> str:
    return "".join(rf"\{number}" for number in numbers)
