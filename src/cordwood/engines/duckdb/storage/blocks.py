"""The blocks of flushed events: their registry, and the index of the n-grams in their messages.

A block is the set of events that one flush or one step of compaction wrote: at most as many as a row group has rows.

The registry lists blocks, each with the range of its events' times and with an id of its content. Partial answers of a
block are stored under this id (`query/partial_answers.py`). A transaction that changes the rows of a registered block
also gives the block another id, or removes the block from the registry. So a partial answer is found only while it is
correct, even after a crash and in a folder that was restored from a backup. A block keeps its id if its rows are only
moved to another place in the file. The small blocks of a slow stream are not registered; compaction merges them into
larger blocks.

The n-gram index tells which blocks may contain a text in their messages. An n-gram is six consecutive letters or
digits. The index has a Bloom filter for each block, in which each n-gram sets the bit of its hash. A filter has about
as many bits as the block has n-grams. If a block lacks an n-gram of a text, it cannot contain the text. Newly flushed
blocks are listed without a filter. Queries always read such blocks, until the compaction thread indexes them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import duckdb
import msgspec

from cordwood.bounded_cache import BoundedCache, estimate_memory_bytes
from cordwood.engines.duckdb.storage.tables import StreamTableStatements

CREATE_BLOCK_REGISTRY_SQL: Final = (
    # `oldest` and `newest` are times in microseconds. The times of all events of the block are between them.
    "CREATE TABLE IF NOT EXISTS store.cordwood.block (stream VARCHAR, block BIGINT, content UUID, oldest BIGINT, newest BIGINT)",
)

# Flushed blocks with fewer rows than this are not registered, because a slow stream has thousands of them. Compaction
# later merges them into larger blocks, which are registered.
_MIN_REGISTERED_BLOCK_ROWS: Final = 2_048
_READ_BLOCKS_SQL: Final = (
    "SELECT block, content::VARCHAR, oldest, newest FROM store.cordwood.block WHERE stream = $stream;"
    " SELECT block FROM store.cordwood.pieces WHERE stream = $stream"
)
_CONTENT_ID_AND_TIMES_SQL: Final = "uuid(), epoch_us(min(timestamp)), epoch_us(max(timestamp))"


class RegisteredBlock(msgspec.Struct, frozen=True):
    """A registered block: its number, the id of its content, and a range that contains the times of all its events."""

    number: int
    content_id: str
    oldest_us: int
    newest_us: int


def register_block(cursor: duckdb.DuckDBPyConnection, tables: StreamTableStatements, block: int) -> None:
    """Register a block; the caller does this in the same transaction in which it writes the block's rows."""
    cursor.execute(
        f"INSERT INTO store.cordwood.block SELECT $stream, $block, {_CONTENT_ID_AND_TIMES_SQL}"  # noqa: S608 - our own names
        f" FROM {tables.table} WHERE block = $block HAVING count(*) > 0",
        {"stream": tables.stream, "block": block},
    )


def register_flushed_block(
    cursor: duckdb.DuckDBPyConnection, tables: StreamTableStatements, block: int, times_us: Sequence[int]
) -> None:
    """Register a flushed block, unless it has fewer than `_MIN_REGISTERED_BLOCK_ROWS` events.

    The caller does this in the transaction that flushes the events. `times_us` has the times of the events.
    """
    if len(times_us) >= _MIN_REGISTERED_BLOCK_ROWS:
        cursor.execute(
            "INSERT INTO store.cordwood.block VALUES ($stream, $block, uuid(), $oldest, $newest)",
            {"stream": tables.stream, "block": block, "oldest": min(times_us), "newest": max(times_us)},
        )


def register_missing_blocks(cursor: duckdb.DuckDBPyConnection, tables: StreamTableStatements, most: int) -> bool:
    """Register up to `most` of the blocks that earlier releases left unregistered; return whether any were found.

    Rows with the block number 0 do not belong to a block, and are not registered.
    """
    registered = "SELECT block FROM store.cordwood.block WHERE stream = $stream"
    sql = (
        f"SELECT block FROM {tables.table} WHERE block > 0 AND block NOT IN ({registered}) GROUP BY block"  # noqa: S608
        f" HAVING bool_or(settled) OR count(*) >= {_MIN_REGISTERED_BLOCK_ROWS:d} ORDER BY block LIMIT {most:d}"
    )
    blocks = [block for (block,) in cursor.execute(sql, {"stream": tables.stream}).fetchall()]
    for block in blocks:
        register_block(cursor, tables, block)
    return bool(blocks)


def unregister_compacted_blocks(
    cursor: duckdb.DuckDBPyConnection, tables: StreamTableStatements, last_rowid: int
) -> None:
    """Unregister the blocks whose rows compaction is about to delete: the uncompacted rows up to `last_rowid`."""
    cursor.execute(
        "DELETE FROM store.cordwood.block WHERE stream = $stream AND block IN"  # noqa: S608 - our own names
        f" (SELECT block FROM {tables.table} WHERE NOT settled AND rowid <= $last)",
        {"stream": tables.stream, "last": last_rowid},
    )


def update_registry_after_deletion(
    cursor: duckdb.DuckDBPyConnection, tables: StreamTableStatements, before_us: int
) -> None:
    """Update the registry in the transaction that deletes the events before `before_us`.

    Blocks that lose all of their events are unregistered. Blocks that lose some events get a new id of their content,
    and `before_us` as the new start of their times.
    """
    values = {"stream": tables.stream, "before": before_us}
    cursor.execute("DELETE FROM store.cordwood.block WHERE stream = $stream AND newest < $before", values)
    cursor.execute(
        "UPDATE store.cordwood.block SET content = uuid(), oldest = $before"
        " WHERE stream = $stream AND oldest < $before",
        values,
    )


class StreamBlocks(msgspec.Struct, frozen=True):
    """The blocks of a stream's flushed events: the numbers of all blocks, and the registered blocks."""

    block_numbers: Sequence[int] = ()
    registered_blocks: Sequence[RegisteredBlock] = ()


class BlockReader:
    """Reads the blocks of streams; parses its SQL only once, because each run of a repeated query reads the blocks."""

    def __init__(self) -> None:
        self._parsed_read_statements: tuple[duckdb.Statement, ...] = ()

    def read_blocks(self, cursor: duckdb.DuckDBPyConnection, stream: str) -> StreamBlocks:
        """Return the blocks of a stream that the cursor's transaction sees; empty lists if no block is registered.

        Rows with the block number 0 do not belong to any block.
        """
        if not self._parsed_read_statements:
            self._parsed_read_statements = tuple(cursor.extract_statements(_READ_BLOCKS_SQL))
        select_registered, select_numbers = self._parsed_read_statements
        rows = cursor.execute(select_registered, {"stream": stream}).fetchall()
        if not rows:
            return StreamBlocks()
        numbers = cursor.execute(select_numbers, {"stream": stream}).fetchall()
        return StreamBlocks([block for (block,) in numbers], [RegisteredBlock(*row) for row in sorted(rows)])


# The block number of rows that were written before the index existed. Queries always read these rows.
UNKNOWN_BLOCK_NUMBER: Final = 0

_SEARCH_INDEX_SQL: Final = (
    "SELECT block, engine <> version() FROM store.cordwood.pieces WHERE stream = $stream;"
    " SELECT list_transform($ngrams, lambda ngram: hash(ngram));"
    " SELECT block, bits::BLOB FROM store.cordwood.pieces WHERE stream = $stream AND block IN (SELECT unnest($blocks))"
)
# The approximate memory of a full block's filter in the cache. It serves to estimate whether all filters of a search
# fit in the cache.
_TYPICAL_FILTER_BYTES: Final = 34_000

_NGRAM_LENGTH: Final = 6
_MAX_EXTRACTED_NGRAMS: Final = 16
_WORD_PATTERN: Final = re.compile("[0-9A-Za-z]{6,}")

CREATE_NGRAM_INDEX_SQL: Final = (
    "CREATE SEQUENCE IF NOT EXISTS store.cordwood.blocks",
    # The table of filters. DuckDB's hash function may change with DuckDB's version, so each row has the version that
    # made the filter.
    "CREATE TABLE IF NOT EXISTS store.cordwood.pieces (stream VARCHAR, block BIGINT, engine VARCHAR, bits BIT)",
)


def extract_ngrams(texts: Sequence[str]) -> tuple[str, ...]:
    """Return n-grams that every message with all of `texts` contains; an empty tuple if all words are too short."""
    words = [word for text in texts for word in _WORD_PATTERN.findall(text)]
    ngrams = {
        word[start : start + _NGRAM_LENGTH]: None for word in words for start in range(len(word) - _NGRAM_LENGTH + 1)
    }
    return tuple(ngrams)[:_MAX_EXTRACTED_NGRAMS]


def allocate_block_number(cursor: duckdb.DuckDBPyConnection) -> int:
    ((block,),) = cursor.execute("SELECT nextval('store.cordwood.blocks')").fetchall()
    return int(block)


def add_unindexed_block(cursor: duckdb.DuckDBPyConnection, tables: StreamTableStatements, block: int) -> None:
    """Add a block to the n-gram index without a filter."""
    values = {"stream": tables.stream, "block": block}
    cursor.execute("INSERT INTO store.cordwood.pieces VALUES ($stream, $block, '', NULL)", values)


def next_unindexed_block(cursor: duckdb.DuckDBPyConnection, tables: StreamTableStatements) -> int | None:
    """Return the newest block that has no filter made by the running version of DuckDB; None if there is none."""
    sql = "SELECT max(block) FROM store.cordwood.pieces WHERE stream = $stream AND engine <> version()"
    ((block,),) = cursor.execute(sql, {"stream": tables.stream}).fetchall()
    return None if block is None else int(block)


def replace_block_filter(cursor: duckdb.DuckDBPyConnection, tables: StreamTableStatements, block: int) -> None:
    """Replace the filter of a block that the n-gram index lists already; the caller must have begun a transaction."""
    cursor.execute("DELETE FROM store.cordwood.pieces WHERE block = $block", {"block": block})
    insert_block_filter(cursor, tables, block)


def insert_block_filter(cursor: duckdb.DuckDBPyConnection, tables: StreamTableStatements, block: int) -> None:
    """Compute and insert the filter of a block, whose events must be in the table already.

    The caller does this in the transaction that writes the block or deletes its old filter.
    """
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


def delete_filters_of_empty_blocks(cursor: duckdb.DuckDBPyConnection, tables: StreamTableStatements) -> None:
    """Delete the filters of blocks that have no events any more."""
    cursor.execute(
        "DELETE FROM store.cordwood.pieces WHERE stream = $stream"  # noqa: S608 - our own names
        f" AND block NOT IN (SELECT DISTINCT block FROM {tables.table} WHERE block IS NOT NULL)",
        {"stream": tables.stream},
    )


def _check_filters_in_file(
    cursor: duckdb.DuckDBPyConnection, stream: str, ngrams: Sequence[str]
) -> list[tuple[int, bool]]:
    """Return each block of the stream, and whether it may have all `ngrams`; the filters are read from the file."""
    values = {f"p{index}": ngram for index, ngram in enumerate(ngrams)}
    has_all = " AND ".join(f"get_bit(bits, (hash(${name}) % bit_length(bits))::INTEGER) = 1" for name in values)
    sql = f"SELECT block, engine <> version() OR ({has_all}) FROM store.cordwood.pieces WHERE stream = $stream"  # noqa: S608 - our own names
    return cursor.execute(sql, {"stream": stream, **values}).fetchall()


class NgramIndex:
    """The n-gram index, with a cache of filters, because reading them from the file takes most of the time of a search.

    Cached filters stay correct, because a filter is replaced only if another version of DuckDB made it, and such
    filters are neither used nor cached.
    """

    def __init__(self, max_cached_bytes: int = 8 * 2**20) -> None:
        self._block_filter_cache: BoundedCache[tuple[str, int], bytes] = BoundedCache(
            max_cached_bytes, _estimate_filter_memory_bytes
        )
        self._parsed_search_statements: tuple[duckdb.Statement, ...] = ()

    def find_candidate_blocks(
        self, cursor: duckdb.DuckDBPyConnection, stream: str, ngrams: Sequence[str]
    ) -> list[int] | None:
        """Return the numbers of the blocks that may have all n-grams; the first number is `UNKNOWN_BLOCK_NUMBER`.

        If more than half of the stream's blocks may have them, return None, which means that the query reads all
        blocks.
        """
        if not self._parsed_search_statements:
            self._parsed_search_statements = tuple(cursor.extract_statements(_SEARCH_INDEX_SQL))
        select_blocks, select_hashes, _ = self._parsed_search_statements
        blocks = cursor.execute(select_blocks, {"stream": stream}).fetchall()
        filters = self._load_filters(cursor, stream, [block for block, is_outdated in blocks if not is_outdated])
        if filters is None:
            checked = _check_filters_in_file(cursor, stream, ngrams)
        else:
            ((hashes,),) = cursor.execute(select_hashes, {"ngrams": list(ngrams)}).fetchall()
            checked = [(block, block not in filters or _has_all_hashes(filters[block], hashes)) for block, _ in blocks]
        candidates = [block for block, may_have in checked if may_have]
        return None if 2 * len(candidates) > len(checked) else [UNKNOWN_BLOCK_NUMBER, *candidates]

    def _load_filters(
        self, cursor: duckdb.DuckDBPyConnection, stream: str, blocks: Sequence[int]
    ) -> Mapping[int, bytes] | None:
        """Return the filters of `blocks`, or None if the filters are too large to be cached."""
        if len(blocks) * _TYPICAL_FILTER_BYTES > self._block_filter_cache.max_bytes:
            return None
        filters = {
            block: cached for block in blocks if (cached := self._block_filter_cache.get((stream, block))) is not None
        }
        missing = [block for block in blocks if block not in filters]
        if missing:
            select_filters = self._parsed_search_statements[2]
            for block, bits in cursor.execute(select_filters, {"stream": stream, "blocks": missing}).fetchall():
                filters[block] = bits
                self._block_filter_cache.put((stream, block), bits)
        return filters


def _estimate_filter_memory_bytes(key: tuple[str, int], bits: bytes) -> int:
    return estimate_memory_bytes(key) + len(bits)


def _has_all_hashes(bits: bytes, hashes: Sequence[int]) -> bool:
    """Return whether the filter has the bits of all hashes; its first bit is the highest bit of its first byte."""
    positions = (hash_ % (8 * len(bits)) for hash_ in hashes)
    return all(bits[position >> 3] & (0x80 >> (position & 7)) for position in positions)
