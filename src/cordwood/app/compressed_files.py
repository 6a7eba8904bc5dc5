"""Read a file or standard input in pieces: decompressed, while counting the bytes as they are stored."""

import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from cordwood.engines.duckdb.parquet_import import RETRY_HINT
from cordwood.errors import BadBody

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

STANDARD_INPUT = Path("-")

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_BUFFER = 64 * 1024


class _CountingFile(io.RawIOBase):
    """A file that counts the bytes that are read from it."""

    def __init__(self, inner: io.BufferedReader) -> None:
        self._inner = inner
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # narrower than any writable buffer
        data = self._inner.read1(len(buffer))
        buffer[: len(data)] = data
        self.count += len(data)
        return len(data)


class _ReadableFile(Protocol):
    """The interface of a file, plain or decompressed, that is read in pieces."""

    def read1(self, size: int, /) -> bytes: ...


class _FileAfterSample(io.RawIOBase):
    """A file whose beginning was already read."""

    def __init__(self, sample: bytes, remaining: _ReadableFile) -> None:
        self._sample = io.BytesIO(sample)
        self._remaining = remaining

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # narrower than any writable buffer
        data = self._sample.read(len(buffer)) or self._remaining.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class OpenFile:
    """A file that is being read. `coding` is `gzip`, `zstd` or None; `sample` is its decompressed beginning."""

    def __init__(self, name: str, raw: io.BufferedReader, sample_bytes: int) -> None:
        self.name = name
        self._size = _size_of(raw)
        self._counted = _CountingFile(raw)
        stored = io.BufferedReader(self._counted, _BUFFER)
        with self.reading():
            magic = stored.peek(4)[:4]
            self.coding = "gzip" if magic.startswith(_GZIP) else "zstd" if magic == _ZSTD else None
            self._decompressed = _decompressed(stored, self.coding)
            self.sample = _beginning(self._decompressed, sample_bytes)
        self.content = io.BufferedReader(_FileAfterSample(self.sample, self._decompressed), _BUFFER)

    @property
    def bytes_read(self) -> int:
        return self._counted.count

    @property
    def share(self) -> float | None:
        """The share of the file that was read, or None if its size is unknown."""
        return min(1.0, self.bytes_read / self._size) if self._size else None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Convert errors of reading and of decompressing to BadBody in the block."""
        try:
            yield
        except (OSError, EOFError, zlib.error, zstd.ZstdError) as problem:
            raise unreadable_fault(self.name, problem) from problem

    def lines(self, max_bytes: int) -> Iterator[bytes]:
        """Yield the lines with their line ends. Of a longer line, only the first `max_bytes` + 1 are read into memory."""
        with self.reading():
            while line := self.content.readline(max_bytes + 1):
                yield line
                if len(line) > max_bytes and not line.endswith(b"\n"):
                    self._skip_line()

    def _skip_line(self) -> None:
        while (remaining := self.content.readline(_BUFFER)) and not remaining.endswith(b"\n"):
            pass


def unreadable_fault(name: str, problem: Exception) -> BadBody:
    cause = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    is_damaged = not (isinstance(problem, OSError) and problem.errno)
    return BadBody(f"{name} cannot be read: {cause.rstrip('.')}.", hint=RETRY_HINT if is_damaged else None)


@contextmanager
def opened(file: Path, sample_bytes: int) -> Iterator[OpenFile]:
    """Open a file, or standard input for `-`."""
    if file == STANDARD_INPUT:
        if not isinstance(sys.stdin, io.TextIOWrapper) or not isinstance(sys.stdin.buffer, io.BufferedReader):
            raise BadBody("Standard input is closed.")
        yield OpenFile("standard input", sys.stdin.buffer, sample_bytes)
        return
    try:
        raw = file.open("rb")
    except OSError as problem:
        raise unreadable_fault(str(file), problem) from problem
    with raw:
        yield OpenFile(str(file), raw, sample_bytes)


def _size_of(raw: io.BufferedReader) -> int | None:
    try:
        status = os.fstat(raw.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _decompressed(stored: "io.BufferedReader[_CountingFile]", coding: str | None) -> _ReadableFile:
    """Return the content: of all members of gzip, or all frames of zstd."""
    if coding == "gzip":
        return gzip.GzipFile(fileobj=stored, mode="rb")
    if coding == "zstd":
        return zstd.ZstdFile(stored, "rb")
    return stored


def _beginning(content: _ReadableFile, size: int) -> bytes:
    chunks, missing = [], size
    while missing and (chunk := content.read1(missing)):
        chunks.append(chunk)
        missing -= len(chunk)
    return b"".join(chunks)
