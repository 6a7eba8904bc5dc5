"""Redact the columns that only an answer reads, after its rows are fetched, by one statement over uncached texts."""

import time
from collections.abc import Iterator, Sequence
from typing import Final

from cordwood.engines.answer_texts import AnswerTexts
from cordwood.engines.clickhouse.redaction_functions import KEY, PARTED, hide_texts
from cordwood.engines.clickhouse.session import Query, Session, Values
from cordwood.engines.clickhouse.target import as_it_must_be_run
from cordwood.errors import EngineFailed
from cordwood.model.datatype import Kind
from cordwood.model.redaction import Redacting, RedactMode
from cordwood.sql.stages import Statement

# The characters of one bound value: a server takes 128 KiB, and a character may be encoded in four bytes.
_PIECE: Final = 30_000
_ROWS_AT_ONCE: Final = 1000


class AnswerRedaction:
    """Redaction of fetched rows; safe from several threads."""

    def __init__(self, session: Session, redacting: Redacting) -> None:
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
        places = {place: _is_text(statement, place) for place in statement.raw_columns}
        for at in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[at : at + _ROWS_AT_ONCE]
            yield from self._texts.rows(mode, some, places, lambda texts: self._redacted(mode, texts, query, until))

    def _redacted(self, mode: RedactMode, texts: Sequence[str], query: Query, until: float) -> Sequence[str]:
        """Redact the texts by one statement, within the query's time limit.

        The statement has the query's mark, so that both are cancelled together.
        """
        whole = PARTED.join(texts)
        pieces = [whole[at : at + _PIECE] for at in range(0, len(whole), _PIECE)]
        values = {KEY: self._redacting.key, **{f"piece{at}": piece for at, piece in enumerate(pieces)}}
        sql = as_it_must_be_run(hide_texts(self._redacting.rules, mode, len(pieces)))
        with self._session.select(Query(sql, values, _settings(query.settings, until), query.mark)) as selected:
            ((left,),) = [row for block in selected.blocks for row in block]
        if not isinstance(left, list) or len(left) != len(texts):
            raise EngineFailed("ClickHouse gave back other texts than it was sent to redact.")
        return left


def _settings(settings: Values, until: float) -> Values:
    return {**settings, "max_execution_time": max(0.1, until - time.monotonic())}


def _is_text(statement: Statement, place: int) -> bool:
    datatype = statement.column_types[place]
    return datatype is not None and datatype.kind is Kind.STRING
