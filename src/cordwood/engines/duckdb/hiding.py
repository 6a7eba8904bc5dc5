"""Makes the macros of redaction when a mode is first asked for, and redacts with them what only an answer reads."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from threading import Lock
from typing import Any

import duckdb
import msgspec
from duckdb.sqltypes import DuckDBPyType

from cordwood.engines.duckdb.redaction import hide_texts, macros
from cordwood.model.redaction import Redacting, RedactMode
from cordwood.model.rows import Row
from cordwood.sql.stages import Statement

# What is remembered, found texts and what is left of them: some thousand events.
_MOST_CHARACTERS = 8 * 2**20

# JSON that may hold a text.
_WITH_TEXTS = ('"', "{", "[")

Texts = Sequence[str | None]
OnCursor = Callable[[duckdb.DuckDBPyConnection], None]


class Hiding:
    """Safe from several threads. `cursor` gives a connection of the caller's own.

    Who looks at the newest events asks for nearly the same ones again and again, so texts that were redacted are
    remembered: to find one again costs a thousandth of redacting it.
    """

    def __init__(
        self,
        cursor: Callable[[], duckdb.DuckDBPyConnection],
        redacting: Redacting,
        most_characters: int = _MOST_CHARACTERS,
    ) -> None:
        self._cursor = cursor
        self._redacting = redacting
        self._lock = Lock()
        self._made: set[RedactMode] = set()
        self._remembered = {mode: Remembered(most_characters) for mode in RedactMode}

    def columns(self, statement: Statement) -> "HiddenColumns":
        """What the answer to a statement shows of events as they are, and must not."""
        return HiddenColumns(self, statement.redaction, statement.hidden)

    def make(self, mode: RedactMode) -> None:
        """Making them all takes a third of a second."""
        with self._lock:
            if mode in self._made:
                return
            with self._cursor() as cursor:
                for statement in macros(self._redacting.rules, self._redacting.key, mode):
                    cursor.execute(statement)
            self._made.add(mode)

    def json(self, mode: RedactMode, texts: Texts, on_cursor: OnCursor) -> list[str | None]:
        """JSON texts, redacted; numbers and truths are none. `on_cursor` is told what may have to be interrupted."""
        remembered = self._remembered[mode]
        looked_at = list(dict.fromkeys(text for text in texts if text is not None and text.startswith(_WITH_TEXTS)))
        known = remembered.of(looked_at)
        new = [text for text in looked_at if text not in known]
        if new:
            with self._cursor() as cursor:
                on_cursor(cursor)
                left = cursor.execute(hide_texts(mode), {"texts": new}).fetchall()[0][0]
            known.update(zip(new, left, strict=True))
            remembered.keep({text: known[text] for text in new})
        return [None if text is None else known.get(text, text) for text in texts]


@dataclass(frozen=True, slots=True)
class HiddenColumns:
    """The columns of an answer that nothing but the answer reads: they are redacted once they are fetched."""

    hiding: Hiding
    mode: RedactMode | None
    places: tuple[int, ...]

    def redacted(self, rows: Sequence[Row], types: Sequence[DuckDBPyType], on_cursor: OnCursor) -> list[Row]:
        """All columns at once: to make the patterns ready costs as much as a hundred texts."""
        if self.mode is None:
            return list(rows)
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
        are_texts = [str(types[place].id) == "varchar" for place in self.places]
        written = [
            _written(columns[place], is_text=is_text) for place, is_text in zip(self.places, are_texts, strict=True)
        ]
        left = iter(self.hiding.json(self.mode, list(chain.from_iterable(written)), on_cursor))
        for place, is_text in zip(self.places, are_texts, strict=True):
            columns[place] = _read(list(islice(left, len(rows))), is_text=is_text)
        return list(zip(*columns, strict=True))


def _written(column: Texts, *, is_text: bool) -> Texts:
    return [None if text is None else msgspec.json.encode(text).decode() for text in column] if is_text else column


def _read(column: Texts, *, is_text: bool) -> Texts:
    return [None if text is None else msgspec.json.decode(text, type=str) for text in column] if is_text else column


class Remembered:
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
