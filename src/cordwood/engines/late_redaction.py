"""Redaction at run time: choose between a statement's two variants, and redact columns of the fetched rows.

The optimistic variant does not redact: it stops as soon as a text may need redaction. Then the redacting variant runs,
which redacts texts in SQL. Columns that are used only in the answer are redacted in the fetched rows instead, by
`TextRedactor`.

`TextRedactor` caches only texts that redaction leaves unchanged. A cached text makes an answer faster, so the time of
the answer reveals whether the text was seen before. For an unchanged text this is not a leak, because the caller sees
the text. For a redacted text, the time would reveal which events share a private value, or whether a guessed value
occurs.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

import msgspec

from cordwood.bounded_cache import BoundedCache, estimate_memory_bytes
from cordwood.errors import BadQueryValue
from cordwood.model.datatype import Rows
from cordwood.model.redaction import RedactMode
from cordwood.sql.plan import EventRange
from cordwood.sql.redaction.masking import MAY_NEED_REDACTION_MESSAGE
from cordwood.sql.stages import Statement

# The rows of the optimistic variant are buffered, because only after the last row is it certain that no text needs
# redaction. At this number of rows, the run is stopped, and the redacting variant runs instead.
_MAX_OPTIMISTIC_RUN_ROWS: Final = 1000
_MAX_REDACT_FIRST_STATEMENTS: Final = 2000

# A function that runs a statement: the optimistic variant if its argument is True, the redacting variant if it is
# False.
RunRedactionVariant = Callable[[bool], Rows]


class OptimisticRedactionRunner:
    """A runner of statements that tries the optimistic variant first, unless this failed for the statement before.

    It is safe from several threads.
    """

    def __init__(self) -> None:
        self._redacting_variant_statement_digests: set[bytes] = set()

    def run_statement(self, statement: Statement, run: RunRedactionVariant) -> Rows:
        """Return the rows of the optimistic variant, or of the redacting variant if a text may need redaction."""
        if (
            statement.plan.find_variant_or_fallback(EventRange.ALL, optimistic=True) is not None
            and statement.digest not in self._redacting_variant_statement_digests
        ):
            rows = _try_optimistic_run(run)
            if rows is not None:
                return rows
            if len(self._redacting_variant_statement_digests) >= _MAX_REDACT_FIRST_STATEMENTS:
                self._redacting_variant_statement_digests.clear()
            self._redacting_variant_statement_digests.add(statement.digest)
        return run(False)  # noqa: FBT003 - what the callback takes


def _try_optimistic_run(run: RunRedactionVariant) -> Rows | None:
    """Return the rows of the optimistic variant; None if a text may need redaction or the rows are too many."""
    try:
        return _fetch_rows_within_limit(run(True))  # noqa: FBT003 - what the callback takes
    except BadQueryValue as fault:
        # Compare without the full stop, because ClickHouse omits it or appends its own message.
        if not fault.message.startswith(MAY_NEED_REDACTION_MESSAGE.rstrip(".")):
            raise
    return None


def _fetch_rows_within_limit(rows: Rows) -> Rows | None:
    """Fetch all rows; if there are `_MAX_OPTIMISTIC_RUN_ROWS` or more, stop the query and return None."""
    fetched, row_count, batches = [], 0, rows.batches
    for batch in batches:
        fetched.append(batch)
        row_count += len(batch)
        if row_count >= _MAX_OPTIMISTIC_RUN_ROWS:
            if isinstance(batches, Generator):
                batches.close()
            return None
    rows.batches = fetched
    return rows


# The maximum memory for cached texts that need no redaction, for all redaction modes together. It is enough for the
# texts of some thousands of events.
_MAX_UNCHANGED_TEXT_CACHE_BYTES: Final = 16 * 2**20

# The first characters of JSON values that are or may contain texts: strings, objects and arrays.
_FIRST_CHARACTERS_OF_TEXT_JSON: Final = ('"', "{", "[")

OptionalTexts = Sequence[str | None]
# A function of the engine that redacts JSON texts, and returns them in the same order.
RedactTexts = Callable[[Sequence[str]], Sequence[str]]


class TextRedactor:
    """A redactor of the texts in fetched rows, which caches texts that need no redaction.

    It is safe from several threads.
    """

    def __init__(self, max_bytes: int = _MAX_UNCHANGED_TEXT_CACHE_BYTES) -> None:
        self._unchanged_text_cache = _UnchangedTextCache(max_bytes)

    def redact_json(self, mode: RedactMode, texts: OptionalTexts, redact: RedactTexts) -> list[str | None]:
        """Return the JSON texts after redaction; numbers, booleans and None are unchanged."""
        redacted = list(texts)
        positioned_texts = [
            (position, text)
            for position, text in enumerate(texts)
            if text and text.startswith(_FIRST_CHARACTERS_OF_TEXT_JSON)
        ]
        unknown_texts = self._unchanged_text_cache.exclude_unchanged_texts(mode, positioned_texts)
        if unknown_texts:
            # Duplicates are not removed, because the time taken must not reveal whether two texts are equal.
            originals = [text for _, text in unknown_texts]
            redacted_texts = redact(originals)
            for (position, _), redacted_text in zip(unknown_texts, redacted_texts, strict=True):
                redacted[position] = redacted_text
            self._unchanged_text_cache.add(
                mode,
                (text for text, redacted_text in zip(originals, redacted_texts, strict=True) if text == redacted_text),
            )
        return redacted

    def redact_rows(
        self, mode: RedactMode, rows: Sequence[Sequence[Any]], positions: Mapping[int, bool], redact: RedactTexts
    ) -> list[tuple[Any, ...]]:
        """Return rows in which the columns at `positions` are redacted.

        `positions` maps the position of each of these columns to True if its values are texts, and to False if they are
        JSON.

        All columns are redacted in one call, because compiling the patterns costs as much as redacting a hundred texts.
        """
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
        json_columns = [_texts_to_json(columns[position], is_text=is_text) for position, is_text in positions.items()]
        redacted = iter(self.redact_json(mode, list(chain.from_iterable(json_columns)), redact))
        for position, is_text in positions.items():
            columns[position] = _texts_from_json(list(islice(redacted, len(rows))), is_text=is_text)
        return list(zip(*columns, strict=True))


def _texts_to_json(column: OptionalTexts, *, is_text: bool) -> OptionalTexts:
    return [None if text is None else msgspec.json.encode(text).decode() for text in column] if is_text else column


def _texts_from_json(column: OptionalTexts, *, is_text: bool) -> OptionalTexts:
    return [None if text is None else msgspec.json.decode(text, type=str) for text in column] if is_text else column


class _UnchangedTextCache:
    """A cache of texts that redaction leaves unchanged. At its limit, the least recently used texts are evicted."""

    def __init__(self, max_bytes: int) -> None:
        self._texts: BoundedCache[tuple[RedactMode, str], bool] = BoundedCache(max_bytes, _text_bytes)

    def exclude_unchanged_texts(
        self, mode: RedactMode, positioned_texts: Iterable[tuple[int, str]]
    ) -> list[tuple[int, str]]:
        """Return the texts, with their positions, that are not known to be unchanged by redaction."""
        return [(position, text) for position, text in positioned_texts if not self._texts.get((mode, text))]

    def add(self, mode: RedactMode, texts: Iterable[str]) -> None:
        for text in texts:
            self._texts.put((mode, text), value=True)


def _text_bytes(key: tuple[RedactMode, str], _: bool) -> int:  # noqa: FBT001 - the value that is cached
    return estimate_memory_bytes(key[1])
