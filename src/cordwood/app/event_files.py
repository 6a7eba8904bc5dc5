"""Files of events as JSON lines, with ids that are the same whenever a file is read."""

import gzip
import hashlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from cordwood.engines.duckdb.parquet_import import AGAIN, count_parquet, is_export, read_parquet, read_stored
from cordwood.errors import BadBody

_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"


class _Envelope(msgspec.Struct):
    """An event of which only the id is decoded."""

    id: msgspec.Raw | None = None


class EventFile:
    """The events of a Parquet or (compressed) NDJSON file, and the progress of reading it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            with file.open("rb") as start:
                self._magic = start.read(4)
            self._whole, self._read = max(1, file.stat().st_size), 0
        except OSError as problem:
            raise BadBody(f"{file} cannot be read: {problem.strerror}.") from problem
        if not self._magic and file.suffix == ".parquet":
            raise BadBody(f"{file} is empty, and so no Parquet file.", hint=AGAIN)

    @property
    def share(self) -> float:
        """The fraction that was read, from 0 to 1."""
        return min(1.0, self._read / self._whole)

    @property
    def is_export(self) -> bool:
        """Whether the file was written by an export."""
        return self._magic == _PARQUET and is_export(self._file)

    def stored(self) -> Iterator[bytes]:
        """Yield the rows of an export."""
        return self._counted(read_stored(self._file))

    def events(self) -> Iterator[bytes]:
        return with_ids(self._counted(read_parquet(self._file)) if self._magic == _PARQUET else self._lines())

    def _counted(self, rows: Iterator[bytes]) -> Iterator[bytes]:
        self._whole = max(1, count_parquet(self._file))
        for event in rows:
            self._read += 1
            yield event

    def _lines(self) -> Iterator[bytes]:
        try:
            with self._file.open("rb") as raw:
                yield from filter(None, map(bytes.strip, self._unpacked(raw)))
        except (OSError, EOFError) as problem:
            raise BadBody(f"{self._file} cannot be read: {str(problem).rstrip('.')}.", hint=AGAIN) from problem

    def _unpacked(self, raw: BinaryIO) -> Iterator[bytes]:
        for line in gzip.GzipFile(fileobj=raw) if self._magic.startswith(_GZIP) else raw:
            self._read = raw.tell()
            yield line


def count_events(file: Path) -> int:
    """Return the number of events in a Parquet file; raise BadBody if it is not one or is truncated."""
    return count_parquet(file)


def with_ids(events: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the events; those without an id get one from their position and text, so that a repeat is a duplicate."""
    decode = msgspec.json.Decoder(_Envelope).decode
    for number, event in enumerate(events):
        try:
            lacks_id = decode(event).id is None
        except msgspec.DecodeError:
            # Invalid lines are sent unchanged: the service reports them.
            lacks_id = False
        yield _identified(number, event) if lacks_id else event


def _identified(number: int, event: bytes) -> bytes:
    digest = hashlib.blake2b(b"%d:" % number + event, digest_size=16).digest()
    start = event.index(b"{") + 1
    separator = b"" if event[start:].lstrip().startswith(b"}") else b","
    return event[:start] + b'"id":"%s"' % str(uuid.UUID(bytes=digest)).encode() + separator + event[start:]
