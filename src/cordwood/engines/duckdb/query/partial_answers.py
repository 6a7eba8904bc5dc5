"""Partial answers: stored results of an aggregation, each over one hour of one block, in memory and in files.

If a query is repeated, it uses these results, so that it does not have to read the events of all blocks again.

Each entry has the partial answers of one question. Here, a question is the SQL that aggregates a block, with the values
of its parameters except those that bound the time. An entry maps the id of a block's content to the rows that the
aggregation returned for this block. If the file of an entry cannot be read, it is deleted.

Entries are stored in stages, so that a caller with many different questions does not displace the entries of other
callers. A question that was asked once has no entry. When it is asked again, its entry is stored in the smaller part of
the memory. When the entry is used again, it moves to the larger part, and is also written to a file.

The statements that list blocks and compute partial answers run in the same transaction as the query itself, so that
all of them see the same blocks and events. So each event is counted once, even if blocks are compacted or deleted
meanwhile. A partial answer is used if its hour is wholly within the query's time bounds; the query reads the events of
the block in other hours. Missing partial answers are computed in one pass over their blocks. The query then does not
read these events itself.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from hashlib import sha256
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any, Final, Protocol

import duckdb
import msgspec

import cordwood
from cordwood.bounded_cache import BoundedCache
from cordwood.engines.duckdb.query.partial_aggregation import HOUR_US
from cordwood.engines.duckdb.storage.blocks import UNKNOWN_BLOCK_NUMBER, BlockReader, RegisteredBlock, StreamBlocks
from cordwood.observe.observation import PartialAnswersUsed, RecordObservation, ignore_observation
from cordwood.sql.nodes import NOW_SLOT_NAME
from cordwood.sql.plan import (
    EventRange,
    MergeAggregate,
    PartialAnswerPlan,
    PartialAnswerSql,
    PlanVariant,
    SqlSegments,
    TimeComparison,
    fill_partial_answer_segments,
    print_segments,
)
from cordwood.sql.stages import BoundStatement

PARTIAL_ANSWERS_FOLDER: Final = "partial-answers"
PartialCell = int | str | bool | None
PartialRow = tuple[PartialCell, ...]

_ENTRY_FILE_SUFFIX: Final = ".partial"
# The header of each file, with the version of the file format. The version must be incremented if older files can no
# longer be used.
_FILE_FORMAT_HEADER: Final = b"cordwood partial answers 1\n"
_FILE_DIGEST_BYTES: Final = 32
# A quarter of the memory is for new entries, which no later call has used yet. A single entry may take a quarter of
# that part, and a single file may take a quarter of the limit on disk space.
_NEW_ENTRIES_MEMORY_DIVISOR: Final = 4
# The maximum number of questions in one generation of call counts. When it is reached, these counts become the older
# generation, which is still read, and counting starts again in a new generation.
_MAX_COUNTED_QUESTIONS: Final = 5_000
# How long partial answers are paused: for a call if no block was within its time bounds, for a question if its run on
# partial answers failed, and for a question whose partial answers are too large to be stored or have columns of
# unsupported types.
_UNCOVERED_CALL_PAUSE_SECONDS, _FAILED_QUESTION_PAUSE_SECONDS, _UNSUITABLE_QUESTION_PAUSE_SECONDS = 10.0, 60.0, 3600.0
# A file that was neither read nor written for this long is deleted when the engine starts.
_MAX_ENTRY_FILE_AGE_SECONDS: Final = 7 * 86_400.0
_MAX_ENTRY_FILES: Final = 2_000
# The merged rows of an entry are cached only if there are at most this many.
_MAX_CACHED_MERGED_ROWS: Final = 2_000
# Estimates of memory: of a cell without its text, of a row without its cells, and of a block without its rows.
_CELL_BYTES, _ROW_BYTES, _BLOCK_BYTES = 40, 60, 250


class PartialAnswerLimits(msgspec.Struct, frozen=True):
    """The limits of the cache of partial answers; `max_memory_bytes=0` disables partial answers.

    From the `min_calls_before_caching`-th call of a question on, partial answers are computed for the question.
    """

    max_memory_bytes: int = 0
    max_disk_bytes: int = 0
    min_calls_before_caching: int = 2


class PartialAnswerEntry:
    """The partial answers of one question: the DuckDB types of the columns, and the rows of each block as MessagePack.

    The first cell of each row is its hour. The hour is not a column of the question, so `types` does not contain its
    type.
    """

    def __init__(self, types: Sequence[str], blocks: Mapping[str, bytes]) -> None:
        self.column_types = tuple(types)
        # This mapping is never mutated, only replaced, because other threads read it without the lock.
        self.encoded_rows_by_content_id = blocks
        # Whether the entry was used again after it was computed.
        self.was_reused = False
        # The last result of merging partial answers: what was merged (see `cache_merged_rows`), and the merged rows.
        self.last_merge_parts_and_rows: tuple[object, list[PartialRow]] = (None, [])

    @property
    def estimated_bytes(self) -> int:
        merged_bytes = sum(map(_row_bytes, self.last_merge_parts_and_rows[1]))
        return merged_bytes + sum(_BLOCK_BYTES + len(rows) for rows in self.encoded_rows_by_content_id.values())


class _StoredEntry(msgspec.Struct):
    """The content of an entry's file: the fields `types` and `blocks` of the entry."""

    types: list[str]
    blocks: dict[str, bytes]


_encode_msgpack = msgspec.msgpack.Encoder().encode
_ENTRY_DECODER: Final = msgspec.msgpack.Decoder(_StoredEntry)
_decode_partial_rows = msgspec.msgpack.Decoder(list[PartialRow]).decode


class PartialAnswerCache:
    """The cache of all partial answers of an engine; several threads may use it at the same time."""

    def __init__(
        self,
        folder: Path,
        limits: PartialAnswerLimits,
        note: RecordObservation = ignore_observation,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self.block_reader = BlockReader()
        self._record_observation = note
        self._clock = clock
        self._lock = threading.Lock()
        fresh_bytes = limits.max_memory_bytes // _NEW_ENTRIES_MEMORY_DIVISOR
        self._new_entries: BoundedCache[str, PartialAnswerEntry] = BoundedCache(fresh_bytes, _entry_bytes)
        self._reused_entries: BoundedCache[str, PartialAnswerEntry] = BoundedCache(
            limits.max_memory_bytes - fresh_bytes, _entry_bytes
        )
        self._max_entry_bytes = fresh_bytes // _NEW_ENTRIES_MEMORY_DIVISOR
        self._call_count_generations: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._paused_until_by_key: dict[str, float] = {}
        self._entry_files = _EntryFiles(folder, limits.max_disk_bytes)

    @property
    def is_enabled(self) -> bool:
        return self.limits.max_memory_bytes > 0

    def decide_use_for_call(self, key: str, call: str) -> bool:
        """Count a call of the question; return whether the call should use partial answers.

        The call should use them if the question already has partial answers, or was asked often enough that they should
        be computed now. `key` identifies the question. `call` identifies the question together with its time bounds.
        """
        with self._lock:
            if self._is_paused(key) or self._is_paused(call):
                return False
            if self._reused_entries.peek(key) or self._new_entries.peek(key) or key in self._entry_files:
                return True
            current, previous = self._call_count_generations
            count = current.get(key, previous.get(key, 0)) + 1
            if len(current) >= _MAX_COUNTED_QUESTIONS:
                self._call_count_generations = current, previous = {}, current
            current[key] = count
            return count >= self.limits.min_calls_before_caching

    def pause_failed_question(self, key: str) -> None:
        """Use no partial answers for a question for a while, because its run on partial answers failed."""
        self._record_observation(PartialAnswersUsed(outcome="failed"))
        with self._lock:
            self._pause_for(key, _FAILED_QUESTION_PAUSE_SECONDS)

    def pause_uncovered_call(self, call: str) -> None:
        """Use no partial answers for `call` for a while, because no block is within its time bounds."""
        with self._lock:
            self._pause_for(call, _UNCOVERED_CALL_PAUSE_SECONDS)

    def pause_unsuitable_question(self, key: str) -> None:
        """Store no partial answers for a question for a while, because they are too large or have unsupported types."""
        with self._lock:
            self._pause_for(key, _UNSUITABLE_QUESTION_PAUSE_SECONDS)
            self._drop_entry(key)

    def _is_paused(self, name: str) -> bool:
        paused_until = self._paused_until_by_key.get(name)
        if paused_until is not None and self._clock() >= paused_until:
            del self._paused_until_by_key[name]
            return False
        return paused_until is not None

    def _pause_for(self, key: str, seconds: float) -> None:
        if len(self._paused_until_by_key) >= _MAX_COUNTED_QUESTIONS:
            self._paused_until_by_key.clear()
        self._paused_until_by_key[key] = self._clock() + seconds

    def find_entry(self, key: str, contents: AbstractSet[str]) -> PartialAnswerEntry | None:
        """Return the question's entry, or None if there is none; first remove the blocks whose content has changed.

        `contents` has the ids of the content of all blocks that exist now.
        """
        with self._lock:
            entry = self._reused_entries.get(key) or self._new_entries.get(key) or self._load_entry(key)
            if entry is None:
                return None
            if entry.encoded_rows_by_content_id.keys() - contents:
                self._replace_blocks(
                    key,
                    entry,
                    {name: rows for name, rows in entry.encoded_rows_by_content_id.items() if name in contents},
                )
            return entry

    def add_blocks(
        self, key: str, types: Sequence[str], blocks: Mapping[str, Sequence[PartialRow]]
    ) -> PartialAnswerEntry:
        """Add the rows of more blocks to the question's entry; start a new entry if the column types differ."""
        self._record_observation(PartialAnswersUsed(outcome="computed"))
        with self._lock:
            entry = self._reused_entries.peek(key) or self._new_entries.peek(key)
            if entry is None or entry.column_types != tuple(types):
                self._drop_entry(key)
                entry = PartialAnswerEntry(types, {})
                self._new_entries.put(key, entry)
            self._replace_blocks(
                key,
                entry,
                {**entry.encoded_rows_by_content_id, **{name: _encode_msgpack(rows) for name, rows in blocks.items()}},
            )
            return entry

    def cache_merged_rows(self, key: str, entry: PartialAnswerEntry, parts: object, rows: list[PartialRow]) -> None:
        """Cache the merged rows of a question in its entry, unless there are too many.

        `parts` identifies what was merged: the ids of the blocks' content, and the time bounds of the merged hours.
        """
        if len(rows) <= _MAX_CACHED_MERGED_ROWS:
            with self._lock:
                entry.last_merge_parts_and_rows = parts, rows
                self._update_entry_size(key)

    def record_use(self, key: str, entry: PartialAnswerEntry) -> None:
        """Record that a call was answered from the entry, so that no partial answers had to be computed.

        The first such use moves the entry to the larger part of the memory, and writes the entry to a file.
        """
        self._record_observation(PartialAnswersUsed(outcome="reused"))
        if entry.was_reused:
            return
        with self._lock:
            entry.was_reused = True
            self._new_entries.drop(key)
            self._reused_entries.put(key, entry)
            self._entry_files.write(key, entry)

    def _replace_blocks(self, key: str, entry: PartialAnswerEntry, blocks: Mapping[str, bytes]) -> None:
        entry.encoded_rows_by_content_id = blocks
        if entry.estimated_bytes > self._max_entry_bytes:
            self._pause_for(key, _UNSUITABLE_QUESTION_PAUSE_SECONDS)
            self._drop_entry(key)
            return
        self._update_entry_size(key)
        if entry.was_reused:
            self._entry_files.write(key, entry)

    def _update_entry_size(self, key: str) -> None:
        self._reused_entries.update_size(key)
        self._new_entries.update_size(key)

    def _load_entry(self, key: str) -> PartialAnswerEntry | None:
        entry = self._entry_files.read(key)
        if entry is not None:
            entry.was_reused = True
            self._reused_entries.put(key, entry)
        return entry

    def _drop_entry(self, key: str) -> None:
        self._new_entries.drop(key)
        self._reused_entries.drop(key)
        self._entry_files.delete(key)


class _EntryFiles:
    """The files of entries, one for each entry; the least recently used files are deleted to stay below the limit."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        # The size of each entry's file by key; the least recently used file is first.
        self._bytes_by_key: dict[str, int] = {}
        with suppress(OSError):
            self._list_and_clean_up_files()

    def __contains__(self, key: str) -> bool:
        return key in self._bytes_by_key

    def read(self, key: str) -> PartialAnswerEntry | None:
        """Read an entry from its file; return None if there is no file, or if it is damaged and therefore deleted."""
        if key not in self._bytes_by_key:
            return None
        path = self._path(key)
        decoded = None
        with suppress(OSError, msgspec.DecodeError):
            content = path.read_bytes()
            head, body = (
                content[: len(_FILE_FORMAT_HEADER) + _FILE_DIGEST_BYTES],
                content[len(_FILE_FORMAT_HEADER) + _FILE_DIGEST_BYTES :],
            )
            if head == _FILE_FORMAT_HEADER + sha256(key.encode() + body).digest():
                decoded = _ENTRY_DECODER.decode(body)
                os.utime(path)
        if decoded is None:
            self.delete(key)
            return None
        self._bytes_by_key[key] = self._bytes_by_key.pop(key)
        return PartialAnswerEntry(decoded.types, decoded.blocks)

    def write(self, key: str, entry: PartialAnswerEntry) -> None:
        """Write an entry to its file.

        After a crash, the file is the old one, the new one, or one that `read` recognises as damaged.
        """
        body = _encode_msgpack(_StoredEntry(list(entry.column_types), dict(entry.encoded_rows_by_content_id)))
        content = _FILE_FORMAT_HEADER + sha256(key.encode() + body).digest() + body
        self._bytes_by_key.pop(key, None)
        if len(content) > self._max_bytes // _NEW_ENTRIES_MEMORY_DIVISOR:
            self.delete(key)
            return
        self._bytes_by_key[key] = len(content)
        while sum(self._bytes_by_key.values()) > self._max_bytes or len(self._bytes_by_key) > _MAX_ENTRY_FILES:
            self.delete(next(iter(self._bytes_by_key)))
        temporary = self._folder / f"{key}.tmp"
        try:
            self._folder.mkdir(exist_ok=True)
            temporary.write_bytes(content)
            temporary.replace(self._path(key))
        except OSError:
            # The disk is probably full. Delete the entry's files, because events need the space more than partial
            # answers.
            with suppress(OSError):
                temporary.unlink()
            self.delete(key)

    def delete(self, key: str) -> None:
        self._bytes_by_key.pop(key, None)
        with suppress(OSError):
            self._path(key).unlink()

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}{_ENTRY_FILE_SUFFIX}"

    def _list_and_clean_up_files(self) -> None:
        """Find the files that an earlier process wrote; delete old, unfinished and excess files."""
        found = []
        for path in self._folder.iterdir():
            status = path.stat()
            if path.suffix != _ENTRY_FILE_SUFFIX or time.time() - status.st_mtime > _MAX_ENTRY_FILE_AGE_SECONDS:
                path.unlink()
            else:
                found.append((status.st_mtime, path.stem, status.st_size))
        self._bytes_by_key = {key: size for _, key, size in sorted(found)}
        while sum(self._bytes_by_key.values()) > self._max_bytes:
            self.delete(next(iter(self._bytes_by_key)))


def merge_partial_rows(rows: Sequence[PartialRow], merges: Sequence[MergeAggregate]) -> list[PartialRow]:
    """Merge the rows with equal keys into one row; a cell is NULL only if it is NULL in all of these rows."""
    keys = [position for position, merge in enumerate(merges) if merge is MergeAggregate.GROUP_KEY]
    merged: dict[PartialRow, list[PartialCell]] = {}
    for row in rows:
        key = tuple(row[position] for position in keys)
        total = merged.get(key)
        if total is None:
            merged[key] = list(row)
            continue
        for position, merge in enumerate(merges):
            if merge is not MergeAggregate.GROUP_KEY:
                total[position] = _merge_cells(merge, total[position], row[position])
    return [tuple(total) for total in merged.values()]


def _merge_cells(merge: MergeAggregate, left: PartialCell, right: PartialCell) -> PartialCell:
    if left is None or right is None:
        return right if left is None else left
    return _MERGE_FUNCTION_BY_AGGREGATE[merge](left, right)


_MERGE_FUNCTION_BY_AGGREGATE: Final[Mapping[MergeAggregate, Callable[..., PartialCell]]] = {
    MergeAggregate.SUM: lambda left, right: left + right,
    MergeAggregate.MIN: min,
    MergeAggregate.MAX: max,
    MergeAggregate.BOOL_AND: lambda left, right: left and right,
    MergeAggregate.BOOL_OR: lambda left, right: left or right,
    MergeAggregate.BIT_AND: lambda left, right: left & right,
    MergeAggregate.BIT_OR: lambda left, right: left | right,
    MergeAggregate.BIT_XOR: lambda left, right: left ^ right,
}


def decode_partial_rows(rows: bytes) -> list[PartialRow]:
    return _decode_partial_rows(rows)


def _row_bytes(row: PartialRow) -> int:
    return _ROW_BYTES + sum(_CELL_BYTES + (len(cell) if isinstance(cell, str) else 0) for cell in row)


def _entry_bytes(_: str, entry: PartialAnswerEntry) -> int:
    return entry.estimated_bytes


# The maximum number of partial rows that are computed for a question at once. With more rows, merging them would take
# as long as reading the events.
MAX_COMPUTED_PARTIAL_ROWS: Final = 20_000
# If fewer blocks than this lack partial answers, the query reads the events of these blocks instead of computing
# partial answers for them.
_MIN_BLOCKS_TO_COMPUTE: Final = 4
# For each DuckDB type that partial answers support: the SQL that converts a value to a cell for Python
# (`_TO_CELL_SQL_BY_TYPE`), and the SQL that converts a list of cells back to rows (`_FROM_CELL_SQL_BY_TYPE`).
_TO_CELL_SQL_BY_TYPE: Final = {
    "BIGINT": "{0}",
    "INTEGER": "{0}",
    "VARCHAR": "{0}",
    "BOOLEAN": "{0}",
    "DATE": "({0} - '1970-01-01'::DATE)",
    "TIMESTAMP": "epoch_us({0})",
    "TIMESTAMP WITH TIME ZONE": "epoch_us({0})",
}
_FROM_CELL_SQL_BY_TYPE: Final = {
    "BIGINT": "unnest({0}::BIGINT[])",
    "INTEGER": "unnest({0}::BIGINT[])::INTEGER",
    "VARCHAR": "unnest({0}::VARCHAR[])",
    "BOOLEAN": "unnest({0}::BOOLEAN[])",
    "DATE": "'1970-01-01'::DATE + unnest({0}::BIGINT[])::INTEGER",
    "TIMESTAMP": "make_timestamp(unnest({0}::BIGINT[]))",
    "TIMESTAMP WITH TIME ZONE": "make_timestamptz(unnest({0}::BIGINT[]))",
}

_OPERATOR_BY_TIME_COMPARISON: Final[Mapping[TimeComparison, Callable[[int, int], bool]]] = {
    TimeComparison.AFTER: gt,
    TimeComparison.AT_OR_AFTER: ge,
    TimeComparison.BEFORE: lt,
    TimeComparison.AT_OR_BEFORE: le,
}
_SOFTWARE_VERSIONS: Final = (cordwood.__version__, duckdb.__version__)


class StatementParser(Protocol):
    """The interface to parse SQL into a DuckDB statement, with or without the isolation check.

    The isolation check ensures that a statement reads only certain streams.
    """

    def parse_checked(self, cursor: duckdb.DuckDBPyConnection, sql: str, streams: tuple[str, ...]) -> duckdb.Statement:
        """Parse SQL and apply the isolation check; raise IsolationCheckFailed if it fails."""

    def parse_unchecked(self, cursor: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
        """Parse SQL without the isolation check; it must differ from checked SQL only by block numbers and casts."""


class FilledPlanVariant(msgspec.Struct, frozen=True):
    """A plan's variant that uses partial answers, and the values of the parameters that this variant adds.

    The value of each added parameter is a list: one column of the rows that were merged from partial answers.
    """

    variant: PlanVariant
    added_parameter_values: Mapping[str, object]


class PartialAnswerPlanner:
    """Finds, computes and merges the partial answers for one call of a question."""

    def __init__(
        self,
        answers: PartialAnswerCache,
        statements: StatementParser,
        question: BoundStatement,
        plan: PartialAnswerPlan,
    ) -> None:
        self._cache = answers
        self._statement_parser = statements
        self._streams = question.statement.streams
        self._parameter_values = question.values
        self._partial_answer_plan = plan
        # The question's key in the cache. It is unknown until the statement has been parsed.
        self._question_key: str | None = None

    def prepare_variant(self, cursor: duckdb.DuckDBPyConnection, reads: EventRange) -> FilledPlanVariant | None:
        """Compute missing partial answers; return the plan's variant that uses them, or None if they cannot be used.

        The caller must read the answer in the same transaction. If the query reads only flushed events, this method
        begins the transaction. Otherwise, the transaction is open already.
        """
        key = self._question_key = self._compute_question_key(cursor)
        call = key + _digest_of(
            [(name, str(value)) for name, value in self._parameter_values.items() if name != NOW_SLOT_NAME]
        )
        if not self._cache.decide_use_for_call(key, call):
            return None
        if reads is EventRange.FLUSHED:
            cursor.execute("BEGIN")
        blocks = self._cache.block_reader.read_blocks(cursor, self._partial_answer_plan.stream)
        split = self._divide_blocks_by_coverage(
            blocks, self._read_time_bounds(cursor) if blocks.registered_blocks else None
        )
        if not split.covered_blocks:
            self._cache.pause_uncovered_call(call)
            return None
        found = self._compute_missing_blocks(
            cursor, key, split, {block.content_id for block in blocks.registered_blocks}
        )
        if found is None:
            return None
        entry, rows_by_content = found
        merged = self._merge_covered_rows(key, entry, rows_by_content, split)
        variant = next(variant for variant in self._partial_answer_plan.variants if variant.event_range is reads)
        return self._fill_variant(variant, split, merged, entry.column_types)

    def pause_failed_question(self) -> None:
        """Record that the run on partial answers failed, so that they are not used for this question for a while."""
        if self._question_key is not None:
            self._cache.pause_failed_question(self._question_key)

    def _compute_question_key(self, cursor: duckdb.DuckDBPyConnection) -> str:
        """Return the question's key: a digest of the SQL that aggregates a block, its values, and software versions."""
        text = print_segments(self._partial_answer_plan.blocks_query, self._parameter_values)
        parsed = self._statement_parser.parse_checked(cursor, text, self._streams)
        values = [(name, repr(self._parameter_values[name])) for name in sorted(parsed.named_parameters)]
        return _digest_of((_SOFTWARE_VERSIONS, text, values))

    def _read_time_bounds(self, cursor: duckdb.DuckDBPyConnection) -> list[int] | None:
        """Return the values of the time bounds, or None if one is NULL, so that no event is within the bounds."""
        if not self._partial_answer_plan.bounds_query:
            return []
        parsed = self._statement_parser.parse_checked(
            cursor, print_segments(self._partial_answer_plan.bounds_query, self._parameter_values), self._streams
        )
        ((*bounds,),) = cursor.execute(parsed, self._parameter_values_of(parsed)).fetchall()
        return None if None in bounds else bounds

    def _divide_blocks_by_coverage(self, blocks: StreamBlocks, bounds: Sequence[int] | None) -> "_BlockCoverage":
        """Divide the blocks into covered blocks, which have whole hours within the time bounds, and uncovered blocks.

        The query reads all events of uncovered blocks. Blocks outside of the bounds are in neither group, because the
        query does not need them.
        """
        if bounds is None:
            return _BlockCoverage()
        split = _BlockCoverage(*self._bounds_of_whole_hours(bounds))
        left_out = set()
        for block in blocks.registered_blocks:
            if self._is_outside_time_bounds(block, bounds):
                left_out.add(block.number)
            elif split.may_cover_block(block):
                left_out.add(block.number)
                split.covered_blocks.append(block)
        split.uncovered_block_numbers += [
            UNKNOWN_BLOCK_NUMBER,
            *(number for number in blocks.block_numbers if number not in left_out),
        ]
        return split

    def _bounds_of_whole_hours(self, bounds: Sequence[int]) -> tuple[int | None, int | None]:
        """Return the start and the end of the whole hours within the time bounds; None if a side has no bound."""
        lows, highs = [], []
        for comparison, bound in zip(self._partial_answer_plan.time_bound_comparisons, bounds, strict=True):
            if comparison is TimeComparison.AT_OR_AFTER:
                lows.append(-(-bound // HOUR_US) * HOUR_US)
            elif comparison is TimeComparison.AFTER:
                lows.append((bound // HOUR_US + 1) * HOUR_US)
            elif comparison is TimeComparison.BEFORE:
                highs.append(bound // HOUR_US * HOUR_US)
            else:
                highs.append((bound + 1) // HOUR_US * HOUR_US)
        return max(lows, default=None), min(highs, default=None)

    def _is_outside_time_bounds(self, block: RegisteredBlock, bounds: Sequence[int]) -> bool:
        return any(
            not _OPERATOR_BY_TIME_COMPARISON[comparison](block.oldest_us, bound)
            and not _OPERATOR_BY_TIME_COMPARISON[comparison](block.newest_us, bound)
            for comparison, bound in zip(self._partial_answer_plan.time_bound_comparisons, bounds, strict=True)
        )

    def _compute_missing_blocks(
        self, cursor: duckdb.DuckDBPyConnection, key: str, split: "_BlockCoverage", contents: AbstractSet[str]
    ) -> tuple[PartialAnswerEntry, Mapping[str, bytes]] | None:
        """Compute the missing rows of covered blocks; return the entry and the rows of all covered blocks.

        Return None if rows cannot be stored. If only a few blocks lack rows, they become uncovered blocks, because it
        costs less to read their events in the query than to run another statement.
        """
        entry = self._cache.find_entry(key, contents)
        # Read the attribute once, because concurrent calls replace the mapping.
        found = {} if entry is None else entry.encoded_rows_by_content_id
        lacking = [block for block in split.covered_blocks if block.content_id not in found]
        if entry is not None and len(lacking) < min(_MIN_BLOCKS_TO_COMPUTE, len(split.covered_blocks)):
            split.move_to_uncovered(lacking)
            self._cache.record_use(key, entry)
            return entry, found
        computed = self._aggregate_blocks(cursor, lacking)
        if computed is None:
            self._cache.pause_unsuitable_question(key)
            return None
        entry = self._cache.add_blocks(key, *computed)
        found = entry.encoded_rows_by_content_id
        return (entry, found) if all(block.content_id in found for block in split.covered_blocks) else None

    def _aggregate_blocks(
        self, cursor: duckdb.DuckDBPyConnection, blocks: Sequence[RegisteredBlock]
    ) -> tuple[Sequence[str], dict[str, list[PartialRow]]] | None:
        """Aggregate each block; return the column types and each block's rows, or None if they cannot be stored.

        Rows cannot be stored if there are too many, or if a column has an unsupported type.
        """
        segments = fill_partial_answer_segments(
            self._partial_answer_plan.blocks_query, PartialAnswerSql(_in_blocks_sql(block.number for block in blocks))
        )
        description = self._run_segments(cursor, ("FROM (", *segments, ") LIMIT 0")).description or []
        types = [str(column[1]) for column in description[:-2]]
        if not all(type_ in _TO_CELL_SQL_BY_TYPE for type_ in types):
            return None
        names = [f"c{index}" for index, _ in enumerate(description)]
        cells = [_TO_CELL_SQL_BY_TYPE[type_].format(name) for type_, name in zip(types, names, strict=False)]
        head = f"SELECT {', '.join([names[-1], names[-2], *cells])} FROM ("  # noqa: S608 - names of our own
        tail = f") AS answer({', '.join(names)}) LIMIT {MAX_COMPUTED_PARTIAL_ROWS + 1}"
        rows = self._run_segments(cursor, (head, *segments, tail)).fetchall()
        if len(rows) > MAX_COMPUTED_PARTIAL_ROWS:
            return None
        contents = {block.number: block.content_id for block in blocks}
        by_content: dict[str, list[PartialRow]] = {content: [] for content in contents.values()}
        for number, *row in rows:
            by_content[contents[number]].append(tuple(row))
        return types, by_content

    def _run_segments(self, cursor: duckdb.DuckDBPyConnection, segments: SqlSegments) -> duckdb.DuckDBPyConnection:
        parsed = self._statement_parser.parse_unchecked(cursor, print_segments(segments, self._parameter_values))
        return cursor.execute(parsed, self._parameter_values_of(parsed))

    def _parameter_values_of(self, parsed: duckdb.Statement) -> dict[str, object]:
        return {name: self._parameter_values[name] for name in parsed.named_parameters}

    def _merge_covered_rows(
        self, key: str, entry: PartialAnswerEntry, rows_by_content: Mapping[str, bytes], split: "_BlockCoverage"
    ) -> list[PartialRow]:
        """Merge the rows of all hours within the time bounds, or return the cached result of the same merge."""
        contents = tuple(block.content_id for block in split.covered_blocks)
        parts = (contents, split.covered_from_us, split.covered_before_us)
        merged_parts, merged = entry.last_merge_parts_and_rows
        if merged_parts != parts:
            decoded = (row for content in contents for row in decode_partial_rows(rows_by_content[content]))
            merged = merge_partial_rows(
                [tuple(cells) for hour, *cells in decoded if split.covers_hour(hour)],
                self._partial_answer_plan.merge_aggregates,
            )
            self._cache.cache_merged_rows(key, entry, parts, merged)
        return merged

    def _fill_variant(
        self, variant: PlanVariant, split: "_BlockCoverage", rows: Sequence[PartialRow], types: Sequence[str]
    ) -> FilledPlanVariant:
        prefix = "partial_"
        while any(name.lower().startswith(prefix) for name in self._parameter_values):
            prefix += "_"
        names = [f"{prefix}{index}" for index, _ in enumerate(types)]
        columns = [_FROM_CELL_SQL_BY_TYPE[type_].format(f"${name}") for type_, name in zip(types, names, strict=True)]
        filling = PartialAnswerSql(
            _in_blocks_sql(split.uncovered_block_numbers),
            split.uncounted_events_condition_sql(),
            f"SELECT {', '.join(columns)}",
        )
        values = {name: [row[index] for row in rows] for index, name in enumerate(names)}
        segments = fill_partial_answer_segments(variant.segments, filling)
        return FilledPlanVariant(msgspec.structs.replace(variant, segments=segments), values)


class _BlockCoverage(msgspec.Struct):
    """The division of a stream's blocks into covered and uncovered blocks.

    Partial answers count those events of covered blocks whose time is at least `covered_from_us` and less than
    `covered_before_us`. None means that there is no such bound.
    """

    covered_from_us: int | None = None
    covered_before_us: int | None = None
    covered_blocks: list[RegisteredBlock] = msgspec.field(default_factory=list)
    # The numbers of the blocks of which all events are read.
    uncovered_block_numbers: list[int] = msgspec.field(default_factory=list)

    def may_cover_block(self, block: RegisteredBlock) -> bool:
        """Return whether the times of the block's events may be in the hours that partial answers count."""
        return not self._is_before_covered_hours(block.newest_us) and not self._is_after_covered_hours(block.oldest_us)

    def move_to_uncovered(self, blocks: Sequence[RegisteredBlock]) -> None:
        """Move covered blocks to the uncovered blocks, of which the query reads all events."""
        if blocks:
            numbers = {block.number for block in blocks}
            self.covered_blocks = [block for block in self.covered_blocks if block.number not in numbers]
            self.uncovered_block_numbers += sorted(numbers)

    def covers_hour(self, hour: Any) -> bool:
        return not self._is_before_covered_hours(hour * HOUR_US) and not self._is_after_covered_hours(hour * HOUR_US)

    def uncounted_events_condition_sql(self) -> str:
        """Return the SQL condition for those events in covered blocks that are outside the hours of partial answers."""
        edges = [
            block.number
            for block in self.covered_blocks
            if self._is_before_covered_hours(block.oldest_us) or self._is_after_covered_hours(block.newest_us)
        ]
        beyond = (
            [f"timestamp < make_timestamptz({self.covered_from_us:d}::BIGINT)"]
            if self.covered_from_us is not None
            else []
        )
        beyond += (
            [f"timestamp >= make_timestamptz({self.covered_before_us:d}::BIGINT)"]
            if self.covered_before_us is not None
            else []
        )
        return f"{_in_blocks_sql(edges)} AND ({' OR '.join(beyond)})" if edges else "false"

    def _is_before_covered_hours(self, time_us: int) -> bool:
        return self.covered_from_us is not None and time_us < self.covered_from_us

    def _is_after_covered_hours(self, time_us: int) -> bool:
        return self.covered_before_us is not None and time_us >= self.covered_before_us


def _digest_of(value: object) -> str:
    return sha256(msgspec.msgpack.encode(value)).hexdigest()


def _in_blocks_sql(numbers: Iterable[int]) -> str:
    return f"block IN ({', '.join(f'{number:d}' for number in numbers)})"
