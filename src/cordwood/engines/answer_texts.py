"""Redact texts that only the answer contains, after they are fetched.

The cache holds only texts that contain nothing to redact, and only these are looked up. A cache hit makes an answer
faster, so its time reveals whether a text was seen before. For a text that is returned unchanged this reveals nothing
new; for any other it would reveal which events share a private value, or whether a guessed value occurs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

import msgspec

from cordwood.bounded_cache import BoundedCache, bytes_of
from cordwood.model.redaction import RedactMode

# Capacity of the cache of clean texts, for all modes together: some thousand events.
_MAX_CACHE_BYTES: Final = 16 * 2**20

# The first character of a JSON value that may contain a text.
_FIRST_CHARACTERS_WITH_TEXTS: Final = ('"', "{", "[")

Texts = Sequence[str | None]
# The engine's function that redacts JSON texts and returns them in the same order.
RedactTexts = Callable[[Sequence[str]], Sequence[str]]


class AnswerTexts:
    """Redacts fetched texts and caches those that need no redaction; safe from several threads."""

    def __init__(self, max_bytes: int = _MAX_CACHE_BYTES) -> None:
        self._clean = _CleanTexts(max_bytes)

    def json(self, mode: RedactMode, texts: Texts, redact: RedactTexts) -> list[str | None]:
        """Redact JSON texts; numbers and booleans are returned unchanged."""
        redacted = list(texts)
        positioned_texts = [
            (position, text)
            for position, text in enumerate(texts)
            if text and text.startswith(_FIRST_CHARACTERS_WITH_TEXTS)
        ]
        unknown_texts = self._clean.exclude_clean(mode, positioned_texts)
        if unknown_texts:
            # Duplicates are not removed: the time taken must not reveal whether two texts are equal.
            originals = [text for _, text in unknown_texts]
            redacted_texts = redact(originals)
            for (position, _), redacted_text in zip(unknown_texts, redacted_texts, strict=True):
                redacted[position] = redacted_text
            self._clean.add(
                mode,
                (text for text, redacted_text in zip(originals, redacted_texts, strict=True) if text == redacted_text),
            )
        return redacted

    def rows(
        self, mode: RedactMode, rows: Sequence[Sequence[Any]], positions: Mapping[int, bool], redact: RedactTexts
    ) -> list[tuple[Any, ...]]:
        """Return the rows with the columns at these positions redacted; a flag says whether a column is text or JSON.

        All columns are redacted in one call, because compiling the patterns costs as much as redacting a hundred texts.
        """
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
        json_columns = [_to_json(columns[position], is_text=is_text) for position, is_text in positions.items()]
        redacted = iter(self.json(mode, list(chain.from_iterable(json_columns)), redact))
        for position, is_text in positions.items():
            columns[position] = _from_json(list(islice(redacted, len(rows))), is_text=is_text)
        return list(zip(*columns, strict=True))


def _to_json(column: Texts, *, is_text: bool) -> Texts:
    return [None if text is None else msgspec.json.encode(text).decode() for text in column] if is_text else column


def _from_json(column: Texts, *, is_text: bool) -> Texts:
    return [None if text is None else msgspec.json.decode(text, type=str) for text in column] if is_text else column


class _CleanTexts:
    """A bounded cache of texts that redaction leaves unchanged, which evicts the least recently used first."""

    def __init__(self, max_bytes: int) -> None:
        self._texts: BoundedCache[tuple[RedactMode, str], bool] = BoundedCache(max_bytes, _text_bytes)

    def exclude_clean(self, mode: RedactMode, positioned_texts: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
        """Return the texts that are not known to be clean."""
        return [(position, text) for position, text in positioned_texts if not self._texts.get((mode, text))]

    def add(self, mode: RedactMode, texts: Iterable[str]) -> None:
        for text in texts:
            self._texts.put((mode, text), value=True)


def _text_bytes(key: tuple[RedactMode, str], _: bool) -> int:  # noqa: FBT001 - a cache's value
    return bytes_of(key[1])
