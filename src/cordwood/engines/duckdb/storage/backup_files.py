"""Read the files of a backup through open descriptors, up to a fixed length, even if they grow or are unlinked."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from cordwood.engines.engine import BackupFile
from cordwood.errors import EngineFailed

_CHUNK_BYTES = 1024 * 1024


class OpenFile(msgspec.Struct, frozen=True):
    """An open file of a backup: its name, and how many of its bytes belong to the backup.

    If `is_borrowed`, the descriptor is closed by its owner.
    """

    name: str
    descriptor: int
    size: int
    is_borrowed: bool = False

    def chunks(self) -> Iterator[bytes]:
        offset = 0
        while offset < self.size:
            chunk = os.pread(self.descriptor, min(_CHUNK_BYTES, self.size - offset), offset)
            if not chunk:
                raise EngineFailed(f"The file {self.name} is shorter than it was.")
            yield chunk
            offset += len(chunk)


@contextmanager
def as_backup_files(open_files: Sequence[OpenFile]) -> Iterator[list[BackupFile]]:
    """Yield the files for reading during the block; close their descriptors afterwards."""
    try:
        yield [BackupFile(file.name, file.size, file.chunks) for file in open_files]
    finally:
        for file in open_files:
            if not file.is_borrowed:
                os.close(file.descriptor)
