"""How finds are masked, over the vocabulary of any engine: the order of the passes, the marks, and what replaces a find."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from cordwood.model.redaction import RedactMode
from cordwood.sql.redaction.detection import Stage
from cordwood.sql.redaction.patterns import Nature

# What an engine's functions are called, each with its mode behind it.
REDACT_TEXT: Final = "redacted_text"
REDACT_JSON: Final = "redacted_json"
REDACT_EVENT: Final = "redacted_event"

# Takes a text for one in which nothing is to be found, and fails with that sentence where it is not so.
OPTIMISTIC_TEXT: Final = "trusted_text"
FOUND: Final = "A text may hold something to redact."

HIDDEN: Final = "REDACTED"

# Marks around finds. They are taken out of every text before it is looked through, so no text can bring its own.
OPEN: Final = "\x01"
CUT: Final = "\x02"
APART: Final = "\x03"

# All that stands before a digit outside of JSON's strings: the digit is set apart, so that no pass takes it for a card's.
BEFORE_DIGIT: Final = r'(?s)((?:[^"0-9]|"(?:[^"\\]|\\.)*")*)([0-9]|\z)'
SET_APART: Final = rf"\1{APART}\2"
JSON_PIECES: Final = r'(?s)"(?:[^"\\]|\\.)*"|[^"]+'

_HEX: Final = "0123456789abcdef"
# Letters only, so that no later pass takes a digest for a number or an address.
_DIGEST_LETTERS: Final = "ghijklmnopqrstuv"


class Words(Protocol):
    """What an engine calls the steps of masking. Its texts of SQL go in and come out."""

    def without(self, text: str, mark: str) -> str: ...

    def replace_all(self, text: str, pattern: str, shown: str) -> str: ...

    def either(self, condition: str, then: str, otherwise: str) -> str: ...

    def part(self, at: int) -> str:
        """A part of a piece that was cut at `CUT`, counted from 1."""
        ...

    def pieces(self, marked: str, each: str) -> str:
        """The text cut at `OPEN`, every piece that has a `CUT` put through an expression of its parts."""
        ...

    def digits(self, text: str) -> str:
        """A card's digits without what stands between them."""
        ...

    def counts_up(self, digits: str) -> str:
        """Whether digits count up as a card's do: every second one from the right counts double."""
        ...

    def digest(self, value: str) -> str:
        """Sixteen hexadecimal digits of a value, keyed."""
        ...

    def network(self, value: str) -> str:
        """/24 and /48. The fourth version inside the sixth is left to its own pass, which comes after."""
        ...


class Masking(msgspec.Struct, frozen=True):
    """One mode in one engine's words."""

    words: Words
    mode: RedactMode

    def own(self, text: str, stages: Sequence[Stage]) -> str:
        for one in stages:
            text = self._looked(text, one)
        return text

    def shipped(self, text: str, stages: Sequence[Stage], *, is_set_apart: bool = False) -> str:
        """`is_set_apart` where digits of JSON have been: those marks are to stay until all is looked through."""
        text = self._without(text, (OPEN, CUT)) if is_set_apart else self.bare(text)
        return self.unmarked(self.own(text, stages))

    def bare(self, text: str) -> str:
        """The text without marks of its own."""
        return self._without(text, (OPEN, CUT, APART))

    def unmarked(self, text: str) -> str:
        """What has been looked through, without the marks around finds."""
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
        """Whether one word stands for all that is found."""
        if self.mode is RedactMode.TRUNCATE:
            return one.nature is not Nature.ADDRESS
        return self.mode is RedactMode.REPLACE or one.nature is Nature.PLAIN

    def _replaced(self, text: str, one: Stage) -> str:
        shown = f"{_groups(one.befores)}{HIDDEN}"
        if not one.keeps:
            return self.words.replace_all(text, one.pattern, shown)
        # A find that is to stay stands between the marks, and is put back without what was set after it.
        found = self.words.replace_all(text, one.pattern, f"{OPEN}{_groups(one.keeps)}{CUT}{shown}")
        back = self.words.replace_all(found, f"{OPEN}([^{CUT}]+){CUT}{HIDDEN}", _groups((1,)))
        # The marks of the others go too: a later pass may look for its own.
        return self.words.without(back, OPEN + CUT)

    def _described(self, text: str, one: Stage) -> str:
        """What is put in the place of a find is made of it: its parts are what stays, what stands before, and all."""
        kept, before, found, rest = map(self.words.part, range(1, 5))
        shown = rf"{OPEN}{_groups(one.keeps)}{CUT}{_groups(one.befores)}{CUT}\0{CUT}"
        value = self._instead(f"substring({found}, length({before}) + 1)", one.nature)
        return self.words.pieces(
            self.words.replace_all(text, one.pattern, shown),
            self.words.either(f"{kept} <> ''", f"{kept} || {rest}", f"{before} || {value} || {rest}"),
        )

    def _cards(self, text: str, one: Stage) -> str:
        """Only numbers whose digits count up as a card's do go; a card's digits are the group after the last before."""
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
