"""What an answer shows of texts that nothing else reads: redacted once they are fetched, and remembered."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from threading import Lock
from typing import Any, Final

import msgspec

from cordwood.model.redaction import RedactMode

# What is remembered, found texts and what is left of them: some thousand events.
_MOST_CHARACTERS: Final = 8 * 2**20

# JSON that may hold a text.
_WITH_TEXTS: Final = ('"', "{", "[")

Texts = Sequence[str | None]
# How an engine redacts JSON texts, in their order.
Redact = Callable[[Sequence[str]], Sequence[str]]


class HiddenTexts:
    """Safe from several threads.

    Who looks at the newest events asks for nearly the same ones again and again, so texts that were redacted are
    remembered: to find one again costs a thousandth of redacting it.
    """

    def __init__(self, most_characters: int = _MOST_CHARACTERS) -> None:
        self._remembered = {mode: _Remembered(most_characters) for mode in RedactMode}

    def json(self, mode: RedactMode, texts: Texts, redact: Redact) -> list[str | None]:
        """JSON texts, redacted; numbers and truths are none."""
        remembered = self._remembered[mode]
        looked_at = list(dict.fromkeys(text for text in texts if text is not None and text.startswith(_WITH_TEXTS)))
        known = remembered.of(looked_at)
        new = [text for text in looked_at if text not in known]
        if new:
            left = dict(zip(new, redact(new), strict=True))
            remembered.keep(left)
            known |= left
        return [None if text is None else known.get(text, text) for text in texts]

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


class _Remembered:
    """What is left of texts; those that were not asked for longest go first."""

    def __init__(self, most_characters: int) -> None:
        self._most_characters = most_characters
        self._characters = 0
        self._lock = Lock()
        self._left: OrderedDict[str, str] = OrderedDict()

    def of(self, texts: Iterable[str]) -> dict[str, str]:
        """Those that are known."""
        with self._lock:
            found = {text: self._left[text] for text in texts if text in self._left}
            for text in found:
                self._left.move_to_end(text)
            return found

    def keep(self, left: dict[str, str]) -> None:
        with self._lock:
            for text, rest in left.items():
                if text not in self._left:
                    self._characters += len(text) + len(rest)
                self._left[text] = rest
            while self._characters > self._most_characters:
                text, rest = self._left.popitem(last=False)
                self._characters -= len(text) + len(rest)
