"""The write-ahead log of events that are not flushed yet; records are written together and synced to disk once."""

import errno
import os
import shutil
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from cordwood.engines.duckdb.storage.backup_files import OpenFile
from cordwood.engines.duckdb.storage.locks import LockRank, ordered_lock
from cordwood.file_listing import list_files
from cordwood.folder import sync_folder, unusable_path_fault
from cordwood.model.event import Event, ValueKind
from cordwood.observe.observation import ReportOperatorMessage

# The header of each record in a segment file: the length and the CRC-32 of the record's payload.
_RECORD_HEADER_FORMAT = struct.Struct("<II")
_MAX_SEGMENT_BYTES = 64 * 1024 * 1024


PathWithKinds = tuple[tuple[str, ...], frozenset[ValueKind]]


class WalRecord(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A record of consecutive events of one stream; `first_event_number` is the sequence number of the first event.

    The first event has the receive time `received_us`. The receive time of each further event is one microsecond later,
    so that receive times show the order in which events were sent.
    """

    stream: str
    first_event_number: int
    received_us: int
    events: list[Event]
    learnt_kinds: list[PathWithKinds] = []
    kinds_by_project: list[tuple[str, list[PathWithKinds]]] = []

    @property
    def end_event_number(self) -> int:
        return self.first_event_number + len(self.events)

    def without_first_events(self, count: int) -> "WalRecord":
        """Return the record without its first `count` events, and without its changes of the shapes."""
        return WalRecord(self.stream, self.first_event_number + count, self.received_us + count, self.events[count:])

    @property
    def last_received_us(self) -> int:
        return self.received_us + max(0, len(self.events) - 1)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(WalRecord)


class WriteAheadLog:
    """The write-ahead log in segment files `NNNNNNNN.log`; a segment is removed when all of its events are flushed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(exist_ok=True)
        except OSError as problem:
            raise unusable_path_fault(folder, problem) from problem
        self._end_event_numbers_by_segment: dict[int, dict[str, int]] = {}
        self._lock = ordered_lock(LockRank.WRITE_AHEAD_LOG)
        self._current_segment_number = 0
        self._current_segment_descriptor = -1
        self._current_segment_bytes = 0
        # The buffer is reused for each record, because filling new memory pages takes five times as long. It is freed
        # when the last segment is removed.
        self._encode_buffer = bytearray()

    def replay(self, report: ReportOperatorMessage) -> Iterator[WalRecord]:
        """Yield every complete record in order; the caller must read all records before the first append.

        Parts that cannot be read, because a write was cut off or the file is damaged, are skipped and reported.
        """
        for file in (files := self._list_segments()):
            number = int(file.stem)
            self._current_segment_number = max(self._current_segment_number, number)
            self._end_event_numbers_by_segment[number] = {}
            reader = _SegmentReader(file)
            for record in reader.read_records():
                self._end_event_numbers_by_segment[number][record.stream] = record.end_event_number
                yield record
            if reader.lost_bytes:
                report(_preserve_and_describe_damage(reader, is_last=file == files[-1]))

    def _list_segments(self) -> list[Path]:
        """Return the segment files; raise DataFolderUnusable if the log cannot be read or written.

        A log that is wrongly taken for empty would lose events: the numbers of its events would be given to new events.
        """
        try:
            files = list_files(self._folder, ".log")
        except OSError as problem:
            raise unusable_path_fault(self._folder, problem) from problem
        for path, mode in ((self._folder, os.R_OK | os.W_OK | os.X_OK), *((file, os.R_OK) for file in files)):
            if not os.access(path, mode):
                raise unusable_path_fault(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
        return files

    def append(self, records: Iterable[WalRecord]) -> None:
        """Append the records and sync them to disk; if that fails, none of them is replayed later."""
        with self._lock:
            if self._current_segment_descriptor < 0 or self._current_segment_bytes > _MAX_SEGMENT_BYTES:
                self._start_next_segment()
            written = {}
            with self._truncate_on_failure():
                for record in records:
                    _encoder.encode_into(record, self._encode_buffer)
                    self._write_to_current_segment(
                        _RECORD_HEADER_FORMAT.pack(len(self._encode_buffer), zlib.crc32(self._encode_buffer)),
                        self._encode_buffer,
                    )
                    written[record.stream] = record.end_event_number
                os.fdatasync(self._current_segment_descriptor)
            self._end_event_numbers_by_segment[self._current_segment_number] |= written

    def delete_flushed_segments(self, flushed_to: Mapping[str, int]) -> None:
        """Remove the segments in which every event is flushed.

        An event is flushed if its sequence number is below the number that `flushed_to` has for the event's stream.
        """
        with self._lock:
            for number, ends in list(self._end_event_numbers_by_segment.items()):
                if all(end <= flushed_to.get(stream, 0) for stream, end in ends.items()):
                    self._remove_segment(number)

    def open_segments_for_backup(self) -> list[OpenFile]:
        """Return all segments as open files, which can be read even after the segments were removed."""
        with self._lock:
            return [self._open_segment(number) for number in sorted(self._end_event_numbers_by_segment)]

    def _open_segment(self, number: int) -> OpenFile:
        path = self._folder / f"{number:08}.log"
        size = (
            self._current_segment_bytes
            if number == self._current_segment_number and self._current_segment_descriptor >= 0
            else path.stat().st_size
        )
        return OpenFile(f"{self._folder.name}/{path.name}", os.open(path, os.O_RDONLY), size)

    def close(self) -> None:
        if self._current_segment_descriptor >= 0:
            os.close(self._current_segment_descriptor)
            self._current_segment_descriptor = -1

    @contextmanager
    def _truncate_on_failure(self) -> Iterator[None]:
        size = self._current_segment_bytes
        try:
            yield
        except BaseException:
            os.ftruncate(self._current_segment_descriptor, size)
            os.lseek(self._current_segment_descriptor, size, os.SEEK_SET)
            self._current_segment_bytes = size
            raise

    def _write_to_current_segment(self, *parts: bytes | bytearray) -> None:
        for part in parts:
            _write_all(self._current_segment_descriptor, part)
            self._current_segment_bytes += len(part)

    def _start_next_segment(self) -> None:
        self.close()
        self._current_segment_number += 1
        path = self._folder / f"{self._current_segment_number:08}.log"
        self._current_segment_descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._current_segment_bytes = 0
        self._end_event_numbers_by_segment[self._current_segment_number] = {}
        sync_folder(self._folder)

    def _remove_segment(self, number: int) -> None:
        if number == self._current_segment_number:
            self.close()
            self._encode_buffer = bytearray()
        (self._folder / f"{number:08}.log").unlink(missing_ok=True)
        del self._end_event_numbers_by_segment[number]


class _SegmentReader:
    """Reads the records of one segment; skips a corrupt record if the length in its header is plausible."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.lost_bytes = 0
        # Whether a part that cannot be read is followed by a record that can be read.
        self.has_records_after_loss = False
        self._size = file.stat().st_size

    def read_records(self) -> Iterator[WalRecord]:
        with self.file.open("rb") as source:
            while (start := source.tell()) < self._size:
                payload = _read_payload(source)
                if payload is not None:
                    self.has_records_after_loss = self.lost_bytes > 0
                    yield _decoder.decode(payload)
                else:
                    self.lost_bytes += source.tell() - start


def _read_payload(source: BinaryIO) -> bytes | None:
    header = source.read(_RECORD_HEADER_FORMAT.size)
    if len(header) < _RECORD_HEADER_FORMAT.size:
        return None
    length, checksum = _RECORD_HEADER_FORMAT.unpack(header)
    payload = source.read(length)
    return payload if payload and len(payload) == length and zlib.crc32(payload) == checksum else None


def _preserve_and_describe_damage(reader: _SegmentReader, *, is_last: bool) -> str:
    """Save a copy of a damaged segment, and return a message about its lost bytes.

    If only the last write was cut off, there is nothing to rescue, so no copy is made.
    """
    file = reader.file
    if is_last and not reader.has_records_after_loss and reader.lost_bytes < file.stat().st_size:
        return f"The last {reader.lost_bytes} bytes of {file.name} are a write that was cut off: nobody was told that it was kept."
    copy = file.with_suffix(".damaged")
    shutil.copyfile(file, copy)
    return (
        f"{reader.lost_bytes} bytes of the journal's {file.name} cannot be read, and the events in them are lost:"
        f" the disk may be failing. What else it holds is there; the file is kept as {copy}."
    )


def _write_all(descriptor: int, data: bytes | bytearray) -> None:
    """Write all of `data` to a file; release all memory views of it, so that the buffer can be reused."""
    written = 0
    with memoryview(data) as view:
        while written < len(view):
            with view[written:] as remaining:
                written += os.write(descriptor, remaining)
