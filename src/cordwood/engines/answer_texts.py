"""What an answer shows of texts that nothing else reads: redacted once they are fetched.

Only texts in which nothing is hidden are remembered, and only they are looked up. Whether a text was seen before shows
in how long an answer takes: of a text that is answered as it is that tells nothing, of any other it would tell which
events have the same private value, and whether it is the one that somebody sent in an event of their own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

import msgspec

from cordwood.bounded_cache import BoundedCache, bytes_of
from cordwood.model.redaction import RedactMode

# What is remembered of texts, whatever the mode: some thousand events.
_MOST_BYTES: Final = 16 * 2**20

# JSON that may hold a text.
_WITH_TEXTS: Final = ('"', "{", "[")

Texts = Sequence[str | None]
# How an engine redacts JSON texts, in their order.
Redact = Callable[[Sequence[str]], Sequence[str]]


class AnswerTexts:
    """Safe from several threads."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._clean = _CleanTexts(most_bytes)

    def json(self, mode: RedactMode, texts: Texts, redact: Redact) -> list[str | None]:
        """JSON texts, redacted; numbers and truths are none."""
        answered = list(texts)
        placed = [(at, text) for at, text in enumerate(texts) if text and text.startswith(_WITH_TEXTS)]
        places = self._clean.without(mode, placed)
        if places:
            # Each as often as it is there: whether texts are the same must not show in how long it takes.
            looked_at = [text for _, text in places]
            left = redact(looked_at)
            for (at, _), shown in zip(places, left, strict=True):
                answered[at] = shown
            self._clean.keep(mode, (text for text, shown in zip(looked_at, left, strict=True) if text == shown))
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

    def __init__(self, most_bytes: int) -> None:
        self._texts: BoundedCache[tuple[RedactMode, str], bool] = BoundedCache(most_bytes, _text_bytes)

    def without(self, mode: RedactMode, placed: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
        """Those that are not known to be clean."""
        return [(at, text) for at, text in placed if not self._texts.get((mode, text))]

    def keep(self, mode: RedactMode, texts: Iterable[str]) -> None:
        for text in texts:
            self._texts.put((mode, text), value=True)


def _text_bytes(key: tuple[RedactMode, str], _: bool) -> int:  # noqa: FBT001 - a cache's value
    return bytes_of(key[1])
