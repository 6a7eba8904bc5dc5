"""What was acknowledged and is not yet sealed: an append-only log, one sync for many batches."""

import os
import struct
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from cordwood.engines.duckdb.held import Opened
from cordwood.model.event import Event
from cordwood.model.shape import ValueKind

_HEADER = struct.Struct("<II")
_SEGMENT_BYTES = 64 * 1024 * 1024


class Record(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Events of one stream; the first is the stream's event number `first`, counted from its beginning."""

    stream: str
    first: int
    received_us: int
    events: list[Event]
    learnt: list[tuple[tuple[str, ...], frozenset[ValueKind]]] = []

    @property
    def end(self) -> int:
        return self.first + len(self.events)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


class Journal:
    """Segments `NNNNNNNN.log`; a segment is dropped once everything in it is sealed. One writer."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._ends: dict[int, dict[str, int]] = {}
        self._turn = threading.Lock()
        self._number = 0
        self._file = -1
        self._size = 0

    def replay(self) -> Iterator[Record]:
        """Every record that was written whole, in order; must be read to its end before the first append."""
        for file in sorted(self._folder.glob("*.log")):
            number = int(file.stem)
            self._number = max(self._number, number)
            self._ends[number] = {}
            for record in _records(file):
                self._ends[number][record.stream] = record.end
                yield record

    def append(self, records: Iterable[Record]) -> None:
        """Durable when it returns; when it fails nothing of it will ever be replayed."""
        with self._turn:
            if self._file < 0 or self._size > _SEGMENT_BYTES:
                self._next_segment()
            written = {}
            with self._undone_on_failure():
                for record in records:
                    payload = _encoder.encode(record)
                    self._write(_HEADER.pack(len(payload), zlib.crc32(payload)), payload)
                    written[record.stream] = record.end
                os.fdatasync(self._file)
            self._ends[self._number] |= written

    def drop_sealed(self, sealed_to: Mapping[str, int]) -> None:
        """Remove the segments whose every event is sealed: all events below the number given by stream."""
        with self._turn:
            for number, ends in list(self._ends.items()):
                if all(end <= sealed_to.get(stream, 0) for stream, end in ends.items()):
                    self._drop(number)

    def files(self) -> list[Opened]:
        """Every segment, readable even after it is dropped."""
        with self._turn:
            return [self._opened(number) for number in sorted(self._ends)]

    def _opened(self, number: int) -> Opened:
        path = self._folder / f"{number:08}.log"
        size = self._size if number == self._number and self._file >= 0 else path.stat().st_size
        return Opened(f"{self._folder.name}/{path.name}", os.open(path, os.O_RDONLY), size)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @contextmanager
    def _undone_on_failure(self) -> Iterator[None]:
        size = self._size
        try:
            yield
        except BaseException:
            os.ftruncate(self._file, size)
            os.lseek(self._file, size, os.SEEK_SET)
            self._size = size
            raise

    def _write(self, *pieces: bytes) -> None:
        for piece in pieces:
            _write_all(self._file, piece)
            self._size += len(piece)

    def _next_segment(self) -> None:
        self.close()
        self._number += 1
        path = self._folder / f"{self._number:08}.log"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._size = 0
        self._ends[self._number] = {}
        _sync_folder(self._folder)

    def _drop(self, number: int) -> None:
        if number == self._number:
            self.close()
        (self._folder / f"{number:08}.log").unlink(missing_ok=True)
        del self._ends[number]


def _records(file: Path) -> Iterator[Record]:
    """A record cut short or scrambled ends the segment: it was never acknowledged."""
    with file.open("rb") as source:
        while len(header := source.read(_HEADER.size)) == _HEADER.size:
            length, checksum = _HEADER.unpack(header)
            payload = source.read(length)
            if len(payload) != length or zlib.crc32(payload) != checksum:
                return
            yield _decoder.decode(payload)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
