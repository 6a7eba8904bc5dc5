"""A Bloom-filter index of n-grams: which blocks of flushed events may contain a text in their messages.

A block is what one flush or one compaction step wrote, a row group at most. An n-gram is six consecutive letters or
digits. A block's filter has one bit for each n-gram's hash, and about as many bits as the block has n-grams. A block
that lacks one of a text's n-grams cannot contain the text. Newly flushed blocks are listed without a filter and are
always read until the compaction thread indexes them.
"""

import re
from collections.abc import Sequence
from typing import Final

import duckdb

from cordwood.engines.duckdb.storage.tables import StreamTables

# The block number of rows written before the index existed, which are always read.
UNKNOWN_BLOCK: Final = 0

_NGRAM_LENGTH: Final = 6
_MAX_NGRAMS: Final = 16
_WORD_PATTERN: Final = re.compile("[0-9A-Za-z]{6,}")

CREATE_NGRAM_INDEX: Final = (
    "CREATE SEQUENCE IF NOT EXISTS store.cordwood.blocks",
    # DuckDB's hash function may change with its version, so each filter stores the version that made it.
    "CREATE TABLE IF NOT EXISTS store.cordwood.pieces (stream VARCHAR, block BIGINT, engine VARCHAR, bits BIT)",
)


def extract_ngrams(texts: Sequence[str]) -> tuple[str, ...]:
    """Return n-grams that every message with all these texts contains; none if the texts have no long word."""
    words = [word for text in texts for word in _WORD_PATTERN.findall(text)]
    ngrams = {
        word[start : start + _NGRAM_LENGTH]: None for word in words for start in range(len(word) - _NGRAM_LENGTH + 1)
    }
    return tuple(ngrams)[:_MAX_NGRAMS]


def new_block_number(cursor: duckdb.DuckDBPyConnection) -> int:
    ((block,),) = cursor.execute("SELECT nextval('store.cordwood.blocks')").fetchall()
    return int(block)


def list_block(cursor: duckdb.DuckDBPyConnection, tables: StreamTables, block: int) -> None:
    """List the block in the index, without a filter."""
    values = {"stream": tables.stream, "block": block}
    cursor.execute("INSERT INTO store.cordwood.pieces VALUES ($stream, $block, '', NULL)", values)


def next_unindexed_block(cursor: duckdb.DuckDBPyConnection, tables: StreamTables) -> int | None:
    """Return the newest block without a filter, or with one of another engine version; None if there is none."""
    sql = "SELECT max(block) FROM store.cordwood.pieces WHERE stream = $stream AND engine <> version()"
    ((block,),) = cursor.execute(sql, {"stream": tables.stream}).fetchall()
    return None if block is None else int(block)


def replace_ngrams(cursor: duckdb.DuckDBPyConnection, tables: StreamTables, block: int) -> None:
    """Index a block that is already listed; requires a transaction."""
    cursor.execute("DELETE FROM store.cordwood.pieces WHERE block = $block", {"block": block})
    insert_ngrams(cursor, tables, block)


def insert_ngrams(cursor: duckdb.DuckDBPyConnection, tables: StreamTables, block: int) -> None:
    """Insert the filter of a block, whose events must be in the table already; requires the same transaction."""
    cursor.execute(
        "CREATE OR REPLACE TEMP TABLE pieces AS SELECT DISTINCT hash(substr(word, place, 6)) AS piece FROM"  # noqa: S608 - our own names
        " (SELECT word, unnest(range(1, length(word) - 4)) AS place FROM (SELECT DISTINCT"
        " unnest(regexp_extract_all(event_message, '[0-9A-Za-z]{6,}')) AS word"
        f" FROM {tables.table} WHERE block = $block))",
        {"block": block},
    )
    ((count,),) = cursor.execute("SELECT count(*) FROM pieces").fetchall()
    bits = max(64, 1 << (count - 1).bit_length())
    cursor.execute(
        "INSERT INTO store.cordwood.pieces SELECT $stream, $block, version(),"  # noqa: S608 - a number of ours
        f" coalesce(bitstring_agg((piece % {bits})::INTEGER, 0, {bits - 1}), bitstring('0', {bits})) FROM pieces",
        {"stream": tables.stream, "block": block},
    )


def drop_ngrams_of_empty_blocks(cursor: duckdb.DuckDBPyConnection, tables: StreamTables) -> None:
    """Delete the filters of blocks that have no events any more."""
    cursor.execute(
        "DELETE FROM store.cordwood.pieces WHERE stream = $stream"  # noqa: S608 - our own names
        f" AND block NOT IN (SELECT DISTINCT block FROM {tables.table} WHERE block IS NOT NULL)",
        {"stream": tables.stream},
    )


def find_candidate_blocks(cursor: duckdb.DuckDBPyConnection, stream: str, ngrams: Sequence[str]) -> list[int] | None:
    """Return the blocks that may have all n-grams; None if that is more than half of the blocks."""
    values = {f"p{index}": ngram for index, ngram in enumerate(ngrams)}
    has_all = " AND ".join(f"get_bit(bits, (hash(${name}) % bit_length(bits))::INTEGER) = 1" for name in values)
    rows = cursor.execute(
        f"SELECT block, engine <> version() OR ({has_all}) FROM store.cordwood.pieces WHERE stream = $stream",  # noqa: S608
        {"stream": stream, **values},
    ).fetchall()
    candidates = [block for block, may_have in rows if may_have]
    return None if 2 * len(candidates) > len(rows) else [UNKNOWN_BLOCK, *candidates]
