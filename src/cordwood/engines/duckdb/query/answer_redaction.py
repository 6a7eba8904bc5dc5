"""Redact columns that only an answer contains, after they are fetched; create the redaction macros on first use."""

from collections.abc import Callable, Mapping, Sequence
from threading import Lock

import duckdb
import msgspec
from duckdb.sqltypes import DuckDBPyType

from cordwood.engines.answer_texts import AnswerTexts, RedactTexts, Texts
from cordwood.engines.duckdb.query.redaction_macros import macros, redact_texts_sql
from cordwood.model.redaction import RedactionConfig, RedactMode
from cordwood.model.rows import Row
from cordwood.sql.stages import Statement

OnCursor = Callable[[duckdb.DuckDBPyConnection], None]


class AnswerRedaction:
    """Redacts on a connection of its own, which `cursor` returns; safe from several threads."""

    def __init__(
        self,
        cursor: Callable[[], duckdb.DuckDBPyConnection],
        redacting: RedactionConfig,
        texts: AnswerTexts | None = None,
    ) -> None:
        self._cursor = cursor
        self._redacting = redacting
        self._lock = Lock()
        self._created_modes: set[RedactMode] = set()
        self._texts = texts or AnswerTexts()

    def columns(self, statement: Statement) -> "RedactedColumns":
        """Return the columns of the statement's answer that must be redacted after they are fetched."""
        return RedactedColumns(self, statement.redaction, statement.raw_columns)

    def create_macros(self, mode: RedactMode) -> None:
        """Create the macros of a redaction mode, which takes a third of a second."""
        with self._lock:
            if mode in self._created_modes:
                return
            with self._cursor() as cursor:
                for statement in macros(self._redacting.rules, self._redacting.key, mode):
                    cursor.execute(statement)
            self._created_modes.add(mode)

    def json(self, mode: RedactMode, texts: Texts, on_cursor: OnCursor) -> list[str | None]:
        """Return the JSON texts redacted. `on_cursor` is called with the connection, so that it can be interrupted."""
        return self._texts.json(mode, texts, self._redact(mode, on_cursor))

    def rows(
        self, mode: RedactMode, rows: Sequence[Row], positions: Mapping[int, bool], on_cursor: OnCursor
    ) -> list[Row]:
        return self._texts.rows(mode, rows, positions, self._redact(mode, on_cursor))

    def _redact(self, mode: RedactMode, on_cursor: OnCursor) -> RedactTexts:
        def redact(texts: Sequence[str]) -> Sequence[str]:
            with self._cursor() as cursor:
                on_cursor(cursor)
                redacted: Sequence[str] = cursor.execute(redact_texts_sql(mode), {"texts": texts}).fetchall()[0][0]
                return redacted

        return redact


class RedactedColumns(msgspec.Struct, frozen=True):
    """The columns of an answer that are redacted after they are fetched."""

    redaction: AnswerRedaction
    mode: RedactMode | None
    positions: tuple[int, ...]

    def redact(self, rows: Sequence[Row], types: Sequence[DuckDBPyType], on_cursor: OnCursor) -> list[Row]:
        if self.mode is None:
            return list(rows)
        are_texts = {position: str(types[position].id) == "varchar" for position in self.positions}
        return self.redaction.rows(self.mode, rows, are_texts, on_cursor)
