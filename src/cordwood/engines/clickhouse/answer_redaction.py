"""Redact columns that only an answer contains, after its rows are fetched, by one statement over uncached texts."""

import time
from collections.abc import Iterator, Sequence
from typing import Final

from cordwood.engines.clickhouse.redaction_functions import KEY, SEPARATOR, redact_texts_sql
from cordwood.engines.clickhouse.session import Query, Session, Values
from cordwood.engines.clickhouse.target import with_settings
from cordwood.engines.late_redaction import AnswerTexts
from cordwood.errors import EngineFailed
from cordwood.model.datatype import Kind
from cordwood.model.redaction import RedactionConfig, RedactMode
from cordwood.sql.stages import Statement

# The characters of one bound value: a server takes 128 KiB, and a character may be encoded in four bytes.
_CHUNK_CHARACTERS: Final = 30_000
_BATCH_ROWS: Final = 1000


class AnswerRedaction:
    """Redacts fetched rows; safe from several threads."""

    def __init__(self, session: Session, redacting: RedactionConfig) -> None:
        self._session = session
        self._redacting = redacting
        self._texts = AnswerTexts()

    def rows(
        self, statement: Statement, rows: Sequence[Sequence[object]], query: Query, until: float
    ) -> Iterator[Sequence[object]]:
        """Yield the rows of an answer redacted; `query` is the query that returned them."""
        if statement.redaction is None or not statement.raw_columns:
            yield from rows
            return
        mode = statement.redaction
        are_texts = {position: _is_text(statement, position) for position in statement.raw_columns}
        for start in range(0, len(rows), _BATCH_ROWS):
            batch = rows[start : start + _BATCH_ROWS]
            yield from self._texts.rows(mode, batch, are_texts, lambda texts: self._redact(mode, texts, query, until))

    def _redact(self, mode: RedactMode, texts: Sequence[str], query: Query, until: float) -> Sequence[str]:
        """Redact the texts by one statement, within the query's time limit.

        The statement has the query's mark, so that both are cancelled together.
        """
        joined = SEPARATOR.join(texts)
        chunks = [joined[at : at + _CHUNK_CHARACTERS] for at in range(0, len(joined), _CHUNK_CHARACTERS)]
        values = {KEY: self._redacting.key, **{f"piece{at}": chunk for at, chunk in enumerate(chunks)}}
        sql = with_settings(redact_texts_sql(self._redacting.rules, mode, len(chunks)))
        with self._session.select(Query(sql, values, _settings(query.settings, until), query.mark)) as selected:
            ((redacted,),) = [row for block in selected.blocks for row in block]
        if not isinstance(redacted, list) or len(redacted) != len(texts):
            raise EngineFailed("ClickHouse gave back other texts than it was sent to redact.")
        return redacted


def _settings(settings: Values, until: float) -> Values:
    return {**settings, "max_execution_time": max(0.1, until - time.monotonic())}


def _is_text(statement: Statement, position: int) -> bool:
    datatype = statement.column_types[position]
    return datatype is not None and datatype.kind is Kind.STRING
