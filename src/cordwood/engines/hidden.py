"""What an answer shows of texts that nothing else reads: redacted once they are fetched.

Only texts in which nothing is hidden are remembered, and only they are looked up. Whether a text was seen before shows
in how long an answer takes: of a text that is answered as it is that tells nothing, of any other it would tell which
events have the same private value, and whether it is the one that somebody sent in an event of their own.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from threading import Lock
from typing import Any, Final

import msgspec

from cordwood.model.redaction import RedactMode

# What is remembered of texts: some thousand events.
_MOST_CHARACTERS: Final = 8 * 2**20

# JSON that may hold a text.
_WITH_TEXTS: Final = ('"', "{", "[")

Texts = Sequence[str | None]
# How an engine redacts JSON texts, in their order.
Redact = Callable[[Sequence[str]], Sequence[str]]


class HiddenTexts:
    """Safe from several threads."""

    def __init__(self, most_characters: int = _MOST_CHARACTERS) -> None:
        self._clean = {mode: _CleanTexts(most_characters) for mode in RedactMode}

    def json(self, mode: RedactMode, texts: Texts, redact: Redact) -> list[str | None]:
        """JSON texts, redacted; numbers and truths are none."""
        clean, answered = self._clean[mode], list(texts)
        places = clean.without([(at, text) for at, text in enumerate(texts) if text and text.startswith(_WITH_TEXTS)])
        if places:
            # Each as often as it is there: whether texts are the same must not show in how long it takes.
            looked_at = [text for _, text in places]
            left = redact(looked_at)
            for (at, _), shown in zip(places, left, strict=True):
                answered[at] = shown
            clean.keep(text for text, shown in zip(looked_at, left, strict=True) if text == shown)
        return answered

    def rows(
        self, mode: RedactMode, rows: Sequence[Sequence[Any]], places: Mapping[int, bool], redact: Redact
    ) -> list[tuple[Any, ...]]:
        """The rows with the columns at these places redacted: texts where it says so, JSON elsewhere.

        All columns at once: to make the patterns ready costs as much as a hundred texts.
        """
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
        written = [_written(columns[place], is_text=is_text) for place, is_text in places.items()]
        left = iter(self.json(mode, list(chain.from_iterable(written)), redact))
        for place, is_text in places.items():
            columns[place] = _read(list(islice(left, len(rows))), is_text=is_text)
        return list(zip(*columns, strict=True))


def _written(column: Texts, *, is_text: bool) -> Texts:
    return [None if text is None else msgspec.json.encode(text).decode() for text in column] if is_text else column


def _read(column: Texts, *, is_text: bool) -> Texts:
    return [None if text is None else msgspec.json.decode(text, type=str) for text in column] if is_text else column


class _CleanTexts:
    """Texts that redaction leaves as they are; those that were not asked for longest go first."""

    def __init__(self, most_characters: int) -> None:
        self._most_characters = most_characters
        self._characters = 0
        self._lock = Lock()
        self._texts: OrderedDict[str, None] = OrderedDict()

    def without(self, placed: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
        """Those that are not known to be clean."""
        with self._lock:
            return [(at, text) for at, text in placed if not self._knows(text)]

    def _knows(self, text: str) -> bool:
        is_known = text in self._texts
        if is_known:
            self._texts.move_to_end(text)
        return is_known

    def keep(self, texts: Iterable[str]) -> None:
        with self._lock:
            for text in texts:
                if text not in self._texts:
                    self._characters += len(text)
                self._texts[text] = None
            while self._characters > self._most_characters:
                text, _ = self._texts.popitem(last=False)
                self._characters -= len(text)
