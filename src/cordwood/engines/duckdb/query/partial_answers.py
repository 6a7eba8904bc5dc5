"""Partial answers: the results of repeated questions for single blocks, in memory and in files beside the events.

An entry belongs to one question: the SQL that aggregates a block, and the values of its parameters except those that
bound the time. It has the rows of each block by the id of the block's content. Files that cannot be read are deleted.

Entries are stored in stages, so that a caller with many different questions does not displace the entries of others. A
question that is asked once has no entry. The entry of a question that is asked twice is in the smaller part of the
memory. When it is used again, it moves to the larger part, and is also written to a file.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from cordwood.bounded_cache import BoundedCache
from cordwood.engines.duckdb.storage.blocks import BlockReader
from cordwood.observe.observation import Note, PartialAnswersUsed, note_nothing
from cordwood.sql.plan import Merge

FOLDER: Final = "partial-answers"
Cell = int | str | bool | None
Row = tuple[Cell, ...]

_SUFFIX: Final = ".partial"
# The version of the files' format; incremented when older files can no longer be used.
_FORMAT: Final = b"cordwood partial answers 1\n"
_DIGEST_BYTES: Final = 32
# The share of the memory for questions that were not asked again after their partial answers were computed.
_FRESH_SHARE: Final = 4
# The maximum number of questions that are counted, in each of two generations.
_MAX_ASKED: Final = 5_000
# For how long a question gets no partial answers: without blocks to reuse, after a failure, if it is unsuitable.
_PAUSE_SECONDS, _AFTER_FAILURE_SECONDS, _UNSUITABLE_SECONDS = 10.0, 60.0, 3600.0
# A file that was not read for this long is deleted at the start.
_MAX_FILE_AGE_SECONDS: Final = 7 * 86_400.0
_MAX_FILES: Final = 2_000
_MAX_MERGED_ROWS: Final = 2_000
_CELL_BYTES, _ROW_BYTES, _BLOCK_BYTES = 40, 60, 250


class ReuseLimits(msgspec.Struct, frozen=True):
    """Limits of partial answers in bytes; with 0 bytes of memory there are none.

    `asked` is how often a question must have been asked before partial answers are computed for it.
    """

    memory_bytes: int = 0
    disk_bytes: int = 0
    asked: int = 2


class Entry:
    """The partial answers of one question: the engine's types of its columns, and each block's rows as MessagePack.

    The first cell of a row is its hour, which has no type.
    """

    def __init__(self, types: Sequence[str], blocks: Mapping[str, bytes]) -> None:
        self.types = tuple(types)
        # Replaced as a whole, never changed, because other threads read it without the lock.
        self.blocks = blocks
        # Whether the entry was used again after it was computed.
        self.is_proven = False
        # The last merged rows, with the blocks and the hours from which they were merged.
        self.merged: tuple[object, list[Row]] = (None, [])

    @property
    def size(self) -> int:
        merged_bytes = sum(map(_row_bytes, self.merged[1]))
        return merged_bytes + sum(_BLOCK_BYTES + len(rows) for rows in self.blocks.values())


class _File(msgspec.Struct):
    types: list[str]
    blocks: dict[str, bytes]


_encode = msgspec.msgpack.Encoder().encode
_DECODER: Final = msgspec.msgpack.Decoder(_File)
_decode_rows = msgspec.msgpack.Decoder(list[Row]).decode


class PartialAnswers:
    """All partial answers of an engine; safe from several threads."""

    def __init__(
        self,
        folder: Path,
        limits: ReuseLimits,
        note: Note = note_nothing,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self.block_reader = BlockReader()
        self._note = note
        self._clock = clock
        self._lock = threading.Lock()
        fresh_bytes = limits.memory_bytes // _FRESH_SHARE
        self._fresh: BoundedCache[str, Entry] = BoundedCache(fresh_bytes, _entry_bytes)
        self._proven: BoundedCache[str, Entry] = BoundedCache(limits.memory_bytes - fresh_bytes, _entry_bytes)
        self._max_entry_bytes = fresh_bytes // _FRESH_SHARE
        self._asked: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._paused_until: dict[str, float] = {}
        self._files = _Files(folder, limits.disk_bytes)

    @property
    def is_on(self) -> bool:
        return self.limits.memory_bytes > 0

    def may_use(self, key: str, call: str) -> bool:
        """Count one more call of the question; return whether it has partial answers or may have some from now on.

        `call` identifies the question together with the values that bound the time.
        """
        with self._lock:
            if self._is_paused(key) or self._is_paused(call):
                return False
            if self._proven.peek(key) or self._fresh.peek(key) or key in self._files:
                return True
            current, previous = self._asked
            count = current.get(key, previous.get(key, 0)) + 1
            if len(current) >= _MAX_ASKED:
                self._asked = current, previous = {}, current
            current[key] = count
            return count >= self.limits.asked

    def give_up(self, key: str) -> None:
        """Record that an answer from partial answers failed, so that they are not used for a while."""
        self._note(PartialAnswersUsed(outcome="failed"))
        with self._lock:
            self._pause(key, _AFTER_FAILURE_SECONDS)

    def pause(self, call: str) -> None:
        """Use no partial answers for this call for a while, because no block is within its time bounds."""
        with self._lock:
            self._pause(call, _PAUSE_SECONDS)

    def reject(self, key: str) -> None:
        """Store no partial answers for this question, which has too many rows or columns of unsupported types."""
        with self._lock:
            self._pause(key, _UNSUITABLE_SECONDS)
            self._drop(key)

    def _is_paused(self, name: str) -> bool:
        paused_until = self._paused_until.get(name)
        if paused_until is not None and self._clock() >= paused_until:
            del self._paused_until[name]
            return False
        return paused_until is not None

    def _pause(self, key: str, seconds: float) -> None:
        if len(self._paused_until) >= _MAX_ASKED:
            self._paused_until.clear()
        self._paused_until[key] = self._clock() + seconds

    def find(self, key: str, contents: AbstractSet[str]) -> Entry | None:
        """Return the question's entry, after removing the blocks that are no longer among `contents`."""
        with self._lock:
            entry = self._proven.get(key) or self._fresh.get(key) or self._load(key)
            if entry is None:
                return None
            if entry.blocks.keys() - contents:
                self._replace_blocks(
                    key, entry, {name: rows for name, rows in entry.blocks.items() if name in contents}
                )
            return entry

    def add(self, key: str, types: Sequence[str], blocks: Mapping[str, Sequence[Row]]) -> Entry:
        """Add the rows of further blocks to the entry; if the types of the columns differ, replace the entry."""
        self._note(PartialAnswersUsed(outcome="computed"))
        with self._lock:
            entry = self._proven.peek(key) or self._fresh.peek(key)
            if entry is None or entry.types != tuple(types):
                self._drop(key)
                entry = Entry(types, {})
                self._fresh.put(key, entry)
            self._replace_blocks(key, entry, {**entry.blocks, **{name: _encode(rows) for name, rows in blocks.items()}})
            return entry

    def keep_merged(self, key: str, entry: Entry, parts: object, rows: list[Row]) -> None:
        """Cache the merged rows of an entry, unless there are many, until other rows are merged for it."""
        if len(rows) <= _MAX_MERGED_ROWS:
            with self._lock:
                entry.merged = parts, rows
                self._recount(key)

    def note_use(self, key: str, entry: Entry) -> None:
        """Record an answer for which no partial answer had to be computed; store its entry on the first such use."""
        self._note(PartialAnswersUsed(outcome="reused"))
        if entry.is_proven:
            return
        with self._lock:
            entry.is_proven = True
            self._fresh.drop(key)
            self._proven.put(key, entry)
            self._files.write(key, entry)

    def _replace_blocks(self, key: str, entry: Entry, blocks: Mapping[str, bytes]) -> None:
        entry.blocks = blocks
        if entry.size > self._max_entry_bytes:
            self._pause(key, _UNSUITABLE_SECONDS)
            self._drop(key)
            return
        self._recount(key)
        if entry.is_proven:
            self._files.write(key, entry)

    def _recount(self, key: str) -> None:
        self._proven.recount(key)
        self._fresh.recount(key)

    def _load(self, key: str) -> Entry | None:
        entry = self._files.read(key)
        if entry is not None:
            entry.is_proven = True
            self._proven.put(key, entry)
        return entry

    def _drop(self, key: str) -> None:
        self._fresh.drop(key)
        self._proven.drop(key)
        self._files.delete(key)


class _Files:
    """The files of entries, one each; the least recently used ones are deleted beyond the limit."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        # Sizes by key, the least recently used first.
        self._sizes: dict[str, int] = {}
        with suppress(OSError):
            self._list()

    def __contains__(self, key: str) -> bool:
        return key in self._sizes

    def read(self, key: str) -> Entry | None:
        """Return the entry of a file; delete a file that is damaged."""
        if key not in self._sizes:
            return None
        path = self._path(key)
        decoded = None
        with suppress(OSError, msgspec.DecodeError):
            content = path.read_bytes()
            head, body = content[: len(_FORMAT) + _DIGEST_BYTES], content[len(_FORMAT) + _DIGEST_BYTES :]
            if head == _FORMAT + sha256(key.encode() + body).digest():
                decoded = _DECODER.decode(body)
                os.utime(path)
        if decoded is None:
            self.delete(key)
            return None
        self._sizes[key] = self._sizes.pop(key)
        return Entry(decoded.types, decoded.blocks)

    def write(self, key: str, entry: Entry) -> None:
        """Write an entry; a crash leaves the old file, the new one, or one that is recognised as damaged."""
        body = _encode(_File(list(entry.types), dict(entry.blocks)))
        content = _FORMAT + sha256(key.encode() + body).digest() + body
        self._sizes.pop(key, None)
        if len(content) > self._max_bytes // _FRESH_SHARE:
            self.delete(key)
            return
        self._sizes[key] = len(content)
        while sum(self._sizes.values()) > self._max_bytes or len(self._sizes) > _MAX_FILES:
            self.delete(next(iter(self._sizes)))
        temporary = self._folder / f"{key}.tmp"
        try:
            self._folder.mkdir(exist_ok=True)
            temporary.write_bytes(content)
            temporary.replace(self._path(key))
        except OSError:
            # The disk is full, and its space is needed for events.
            with suppress(OSError):
                temporary.unlink()
            self.delete(key)

    def delete(self, key: str) -> None:
        self._sizes.pop(key, None)
        with suppress(OSError):
            self._path(key).unlink()

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}{_SUFFIX}"

    def _list(self) -> None:
        """Find the files of an earlier run; delete those that are old, unfinished, or beyond the limit."""
        found = []
        for path in self._folder.iterdir():
            status = path.stat()
            if path.suffix != _SUFFIX or time.time() - status.st_mtime > _MAX_FILE_AGE_SECONDS:
                path.unlink()
            else:
                found.append((status.st_mtime, path.stem, status.st_size))
        self._sizes = {key: size for _, key, size in sorted(found)}
        while sum(self._sizes.values()) > self._max_bytes:
            self.delete(next(iter(self._sizes)))


def merge_rows(rows: Sequence[Row], merges: Sequence[Merge]) -> list[Row]:
    """Merge rows with equal keys. A merged column is NULL only if it is NULL in all of these rows."""
    keys = [position for position, merge in enumerate(merges) if merge is Merge.KEY]
    merged: dict[Row, list[Cell]] = {}
    for row in rows:
        key = tuple(row[position] for position in keys)
        total = merged.get(key)
        if total is None:
            merged[key] = list(row)
            continue
        for position, merge in enumerate(merges):
            if merge is not Merge.KEY:
                total[position] = _merge_cells(merge, total[position], row[position])
    return [tuple(total) for total in merged.values()]


def _merge_cells(merge: Merge, left: Cell, right: Cell) -> Cell:
    if left is None or right is None:
        return right if left is None else left
    return _MERGING[merge](left, right)


_MERGING: Final[Mapping[Merge, Callable[..., Cell]]] = {
    Merge.SUM: lambda left, right: left + right,
    Merge.MIN: min,
    Merge.MAX: max,
    Merge.ALL: lambda left, right: left and right,
    Merge.ANY: lambda left, right: left or right,
    Merge.BIT_AND: lambda left, right: left & right,
    Merge.BIT_OR: lambda left, right: left | right,
    Merge.BIT_XOR: lambda left, right: left ^ right,
}


def decode_rows(rows: bytes) -> list[Row]:
    return _decode_rows(rows)


def _row_bytes(row: Row) -> int:
    return _ROW_BYTES + sum(_CELL_BYTES + (len(cell) if isinstance(cell, str) else 0) for cell in row)


def _entry_bytes(_: str, entry: Entry) -> int:
    return entry.size
